//! Commands, encoded as they are built.

use super::value::PushKind;

/// One command.
#[derive(Clone)]
pub(crate) struct Cmd {
    words: usize,
    /// The words, each as a bulk string.
    body: Vec<u8>,
    /// What confirms the command instead of a reply, and for which channel.
    confirmation: Option<(PushKind, Vec<u8>)>,
}

/// Begins a command.
pub(crate) fn cmd(name: &str) -> Cmd {
    let mut cmd = Cmd::with_capacity(0);
    cmd.arg(name);
    cmd
}

/// A pipeline to add commands to.
pub(crate) fn pipe() -> Pipeline {
    Pipeline::default()
}

impl Cmd {
    /// Without a name yet, with room for this many bytes.
    pub(crate) fn with_capacity(bytes: usize) -> Self {
        Self { words: 0, body: Vec::with_capacity(bytes), confirmation: None }
    }

    /// Subscribes to the channel, or unsubscribes from it. The server confirms that with a message
    /// of this kind.
    pub(crate) fn subscription(kind: PushKind, channel: &[u8]) -> Self {
        let mut cmd = cmd(match kind {
            PushKind::Subscribe => "SUBSCRIBE",
            PushKind::Unsubscribe => "UNSUBSCRIBE",
            PushKind::SSubscribe => "SSUBSCRIBE",
            PushKind::SUnsubscribe => "SUNSUBSCRIBE",
            _ => unreachable!("the others confirm no command"),
        });
        cmd.arg(channel);
        cmd.confirmation = Some((kind, channel.to_vec()));
        cmd
    }

    /// Adds an argument.
    pub(crate) fn arg(&mut self, arg: impl Argument) -> &mut Self {
        arg.add_to(self);
        self
    }

    /// Adds several arguments.
    pub(crate) fn args<A: Argument>(&mut self, args: &[A]) -> &mut Self {
        for arg in args {
            arg.add_to(self);
        }
        self
    }

    /// Adds an argument in parts.
    #[inline]
    pub(crate) fn arg_of<const N: usize>(&mut self, parts: &[&[u8]; N]) -> &mut Self {
        self.words += 1;
        let length: usize = parts.iter().map(|part| part.len()).sum();
        write_header(&mut self.body, b'$', length as u64);
        for part in parts {
            self.body.extend_from_slice(part);
        }
        self.body.extend_from_slice(b"\r\n");
        self
    }

    pub(super) fn confirmation(&self) -> Option<&(PushKind, Vec<u8>)> {
        self.confirmation.as_ref()
    }

    /// Appends the command as it is sent.
    pub(super) fn write_to(&self, out: &mut Vec<u8>) {
        write_header(out, b'*', self.words as u64);
        out.extend_from_slice(&self.body);
    }

    fn word(&mut self, word: &[u8]) {
        self.arg_of(&[word]);
    }

    /// The words, name first.
    #[cfg(all(test, feature = "_testkit"))]
    pub(crate) fn words(&self) -> Vec<Vec<u8>> {
        let mut rest = &self.body[..];
        let mut words = Vec::new();
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let length = std::str::from_utf8(&rest[1..end - 1]).expect("digits");
            let (from, length) = (end + 1, length.parse::<usize>().expect("a length"));
            words.push(rest[from..from + length].to_vec());
            rest = &rest[from + length + 2..];
        }
        words
    }

    /// The command as it is sent.
    #[cfg(all(test, feature = "_testkit"))]
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.write_to(&mut bytes);
        bytes
    }
}

/// Commands that are sent together.
#[derive(Default)]
pub(crate) struct Pipeline(Vec<Cmd>);

impl Pipeline {
    pub(crate) fn with_capacity(commands: usize) -> Self {
        Self(Vec::with_capacity(commands))
    }

    /// Begins another command.
    pub(crate) fn cmd(&mut self, name: &str) -> &mut Cmd {
        self.0.push(cmd(name));
        self.0.last_mut().expect("it was just added")
    }

    pub(crate) fn add_command(&mut self, cmd: Cmd) -> &mut Self {
        self.0.push(cmd);
        self
    }

    pub(super) fn commands(&self) -> &[Cmd] {
        &self.0
    }
}

/// The types that can be an argument of a command.
pub(crate) trait Argument {
    fn add_to(&self, cmd: &mut Cmd);
}

impl<T: Argument + ?Sized> Argument for &T {
    fn add_to(&self, cmd: &mut Cmd) {
        (**self).add_to(cmd);
    }
}

impl Argument for str {
    fn add_to(&self, cmd: &mut Cmd) {
        cmd.word(self.as_bytes());
    }
}

impl Argument for String {
    fn add_to(&self, cmd: &mut Cmd) {
        cmd.word(self.as_bytes());
    }
}

impl Argument for [u8] {
    fn add_to(&self, cmd: &mut Cmd) {
        cmd.word(self);
    }
}

impl Argument for Vec<u8> {
    fn add_to(&self, cmd: &mut Cmd) {
        cmd.word(self);
    }
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Argument for $number {
            fn add_to(&self, cmd: &mut Cmd) {
                cmd.word(Decimal::of(u64::from(*self)).digits());
            }
        })+
    };
}

numbers!(u8, u16, u32, u64);

impl Argument for usize {
    fn add_to(&self, cmd: &mut Cmd) {
        (*self as u64).add_to(cmd);
    }
}

/// Digits of the largest `u64`.
const DIGITS_MAX: usize = 20;

/// A number in decimal.
pub(crate) struct Decimal {
    text: [u8; DIGITS_MAX],
    from: usize,
}

impl Decimal {
    pub(crate) fn of(number: u64) -> Self {
        let mut text = [0; DIGITS_MAX];
        let from = decimal(number, &mut text);
        Self { text, from }
    }

    pub(crate) fn digits(&self) -> &[u8] {
        &self.text[self.from..]
    }
}

/// The number in decimal, at the end of `digits`; returns where it begins. Without `fmt`, which
/// costs more than the rest of a word.
fn decimal(mut number: u64, digits: &mut [u8]) -> usize {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            return at;
        }
    }
}

/// The line that announces a value. Of most words it is of a known length, which is written without
/// a call of `memcpy`.
fn write_header(out: &mut Vec<u8>, kind: u8, number: u64) {
    let digit = |number: u64| b'0' + (number % 10) as u8;
    match number {
        0..10 => out.extend_from_slice(&[kind, digit(number), b'\r', b'\n']),
        10..100 => {
            let line = [kind, digit(number / 10), digit(number), b'\r', b'\n'];
            out.extend_from_slice(&line);
        }
        _ => {
            out.push(kind);
            out.extend_from_slice(Decimal::of(number).digits());
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(cmd: &Cmd) -> String {
        let mut out = Vec::new();
        cmd.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn commands_are_arrays_of_bulk_strings() {
        let mut cmd = cmd("EVAL");
        cmd.arg("").arg(0_u8).arg(u64::MAX).arg(10_usize).arg(vec![b'\r', b'\n']);
        cmd.args(&["a", "bc"]);
        let expected = "*8\r\n$4\r\nEVAL\r\n$0\r\n\r\n$1\r\n0\r\n$20\r\n18446744073709551615\r\n\
                        $2\r\n10\r\n$2\r\n\r\n\r\n$1\r\na\r\n$2\r\nbc\r\n";
        assert_eq!(sent(&cmd), expected);
    }

    #[test]
    fn a_subscription_has_its_channel_twice() {
        let cmd = Cmd::subscription(PushKind::SSubscribe, b"c");
        assert_eq!(sent(&cmd), "*2\r\n$10\r\nSSUBSCRIBE\r\n$1\r\nc\r\n");
        assert_eq!(cmd.confirmation(), Some(&(PushKind::SSubscribe, b"c".to_vec())));
    }
}
