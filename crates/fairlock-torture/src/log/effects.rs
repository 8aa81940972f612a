//! The commands in a server's append-only file, and how they are grouped.

use fairlock_testkit::resp::{self, Value};

/// A command as the server carried it out, with absolute times.
pub(crate) type Command = Vec<Vec<u8>>;

/// Splits the bytes of an append-only file into groups of commands that were carried out
/// atomically.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    unread: Vec<u8>,
    /// Commands since a MULTI.
    open: Option<Vec<Command>>,
}

impl Reader {
    /// Returns the groups that these bytes complete.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be a command.
    pub(crate) fn read(&mut self, bytes: &[u8]) -> Result<Vec<Vec<Command>>, resp::Malformed> {
        self.unread.extend_from_slice(bytes);
        let (mut groups, mut from) = (Vec::new(), 0);
        while let Some((value, length)) = resp::parse(&self.unread[from..])? {
            from += length;
            let Value::Array(words) = value else { return Err(resp::Malformed) };
            let words = words.into_iter().map(|word| match word {
                Value::Bulk(bytes) => Ok(bytes),
                _ => Err(resp::Malformed),
            });
            self.command(words.collect::<Result<_, _>>()?, &mut groups);
        }
        self.unread.drain(..from);
        Ok(groups)
    }

    fn command(&mut self, command: Command, groups: &mut Vec<Vec<Command>>) {
        match (command[0].to_ascii_uppercase().as_slice(), &mut self.open) {
            (b"MULTI", _) => self.open = Some(Vec::new()),
            (b"EXEC", open) => groups.extend(open.take()),
            (b"SELECT", _) => {}
            (_, Some(open)) => open.push(command),
            (_, None) => groups.push(vec![command]),
        }
    }

    /// Discards an incomplete command: the server was killed while it wrote it.
    pub(crate) fn forget_the_torn(&mut self) {
        self.unread.clear();
        self.open = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let words: Vec<_> = command.iter().map(|word| String::from_utf8_lossy(word)).collect();
        words.join(" ")
    }

    #[test]
    fn what_was_carried_out_at_once_comes_at_once() {
        let all: Vec<u8> = [
            &["SELECT", "0"][..],
            &["MULTI"],
            &["DEL", "a"],
            &["HSET", "a", "x:1", "1"],
            &["EXEC"],
            &["DEL", "b"],
        ]
        .iter()
        .flat_map(|command| resp::encode(command))
        .collect();
        // The result does not depend on how the bytes are split.
        for piece in [1, 7, all.len()] {
            let mut reader = Reader::default();
            let groups: Vec<_> =
                all.chunks(piece).flat_map(|bytes| reader.read(bytes).unwrap()).collect();
            let told: Vec<Vec<_>> = groups.iter().map(|g| g.iter().map(words).collect()).collect();
            assert_eq!(told, [vec!["DEL a", "HSET a x:1 1"], vec!["DEL b"]]);
        }
    }

    #[test]
    fn a_torn_end_is_forgotten() {
        let mut reader = Reader::default();
        let torn = [resp::encode(&["MULTI"]), resp::encode(&["DEL", "a"]), b"*2\r\n$3".to_vec()];
        assert!(reader.read(&torn.concat()).unwrap().is_empty());
        reader.forget_the_torn();
        assert_eq!(reader.read(&resp::encode(&["DEL", "b"])).unwrap().len(), 1);
        assert_eq!(reader.read(b"no command\r\n"), Err(resp::Malformed));
    }
}
