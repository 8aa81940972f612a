//! Errors: one opaque type with a kind to match on.

use crate::base::lost_reason::LostReason;
use fairlock_core::{LockName, OwnerId};
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// What went wrong, to which lock, and what to do about it.
///
/// Match on [`kind`](Self::kind); the text is for people and carries no secret. Not getting a lock
/// in time is not an error: `try_lock` and `try_lock_for` return `None`.
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    /// What another program wrote, where that is known. The message has the [`legible`] part.
    outside: Option<Box<str>>,
    lock: Option<LockName>,
    owner: Option<OwnerId>,
    holder: Option<OwnerId>,
    lost_reason: Option<LostReason>,
}

/// The classes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller's input cannot work: a bad name, lease, URL, setting, or a server that a setting excludes, such as a
    /// server that is not a Cluster behind `redis+cluster://`. Nothing was sent for any lock.
    Misuse,
    /// The server refuses the client (wrong password, missing permission, no client certificate
    /// that it trusts), or the host store's file or folder belongs to another user, is read-only,
    /// or is open to others.
    Denied,
    /// No encrypted connection could be made: the server did not prove its identity, does not speak
    /// TLS, or answered a connection without TLS with a TLS alert, or a file with certificates or a
    /// key cannot be used. No login was sent, unless the connection was to be made without TLS. (A
    /// server that speaks only TLS and sends no alert is `Unavailable`.)
    Tls,
    /// The store could not be reached, or could not serve the request, within the store timeout.
    /// The request certainly has no lasting effect: anything it may have left behind is being taken
    /// back.
    Unavailable,
    /// The request was sent and its outcome is unknown. Anything it may have left behind is being
    /// taken back in the background, and otherwise ends with its lease.
    Unknown,
    /// The lock is no longer held, or its validity has run out.
    Lost,
    /// The owner already holds the lock, and this request [must not enter
    /// it](crate::Lock::non_reentrant) again. Nothing was sent, and the hold is unchanged.
    AlreadyHeld,
    /// Twice, the explicit lease was over before the lock could be handed to the caller.
    LeaseTooShort,
    /// A key of the lock holds something that is not a lock: a wrong type, a value that is not a
    /// number, an application's data. It was not changed.
    WrongType,
    /// The server's reply does not fit the protocol: another program uses these keys, a proxy
    /// rewrites replies, or there is a bug. The host store's file is damaged, belongs to another
    /// program, or was written by a newer version.
    Protocol,
    /// The client was shut down.
    Closed,
    /// Fewer replicas had the lock in time than [`Config::replicas`](crate::Config::replicas)
    /// requires. The lock was given back, or is being given back.
    NotReplicated,
    /// Another thread ended the wait (blocking API only). The request has no lasting effect:
    /// anything it may have left behind is being taken back.
    Interrupted,
}

impl ErrorKind {
    /// Returns whether the same call may succeed later without a change of the program, its settings or the store's
    /// content: [`Unavailable`](Self::Unavailable), [`Unknown`](Self::Unknown) and
    /// [`NotReplicated`](Self::NotReplicated). The client has retried already, for as long as the call may take, so
    /// pause before the next one.
    ///
    /// ```
    /// # use fairlock::ErrorKind;
    /// assert!(ErrorKind::Unavailable.is_retryable());
    /// assert!(!ErrorKind::Misuse.is_retryable());
    /// ```
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Unavailable | Self::Unknown | Self::NotReplicated)
    }
}

impl Error {
    #[cold]
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Arc::new(Inner {
            kind,
            message: message.into(),
            outside: None,
            lock: None,
            owner: None,
            holder: None,
            lost_reason: None,
        }))
    }

    #[cold]
    pub(crate) fn misuse(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(ErrorKind::Misuse, message)
    }

    pub(crate) fn closed() -> Self {
        Self::new(
            ErrorKind::Closed,
            "the client was shut down, or its background work panicked; connect a new client",
        )
    }

    /// Makes the error of a reply that does not belong to the operation that was sent.
    #[cold]
    pub(crate) fn mismatch() -> Self {
        let message = "the server's reply belongs to another operation: does anything between here \
                       and the server rewrite replies?";
        Self::new(ErrorKind::Protocol, message)
    }

    pub(crate) fn forked() -> Self {
        Self::misuse(
            "this client belongs to the parent process: nothing made before fork() can be used \
             after it; make a new client in the child",
        )
    }

    fn change(self, change: impl FnOnce(&mut Inner)) -> Self {
        let mut inner = Inner {
            kind: self.0.kind,
            message: self.0.message.clone(),
            outside: self.0.outside.clone(),
            lock: self.0.lock.clone(),
            owner: self.0.owner.clone(),
            holder: self.0.holder.clone(),
            lost_reason: self.0.lost_reason,
        };
        change(&mut inner);
        Self(Arc::new(inner))
    }

    pub(crate) fn on(self, lock: &LockName) -> Self {
        self.change(|inner| inner.lock = Some(lock.clone()))
    }

    /// Adds a circumstance.
    pub(crate) fn noting(self, note: &str) -> Self {
        self.change(|inner| inner.message = format!("{}; {note}", inner.message).into())
    }

    /// Names the server that the error is about.
    #[cfg(feature = "redis")]
    pub(crate) fn at(self, place: impl fmt::Display) -> Self {
        self.change(|inner| inner.message = format!("{place}: {}", inner.message).into())
    }

    /// Notes what another program wrote, whose [`legible`] part may be in the message; nothing if `outside` is empty.
    #[cfg(feature = "redis")]
    pub(crate) fn quoting(self, outside: &str) -> Self {
        self.change(|inner| inner.outside = Some(outside.into()))
    }

    /// Removes a secret from the text, because a server may repeat its input. The library's own
    /// words stay, even if the password is one of them; if it is not known which words are the
    /// library's, the whole text is searched.
    #[cfg(feature = "redis")]
    pub(crate) fn without(self, secret: &str) -> Self {
        let said = self.0.outside.as_deref().unwrap_or(&self.0.message);
        // Before it is cut: a part of the secret would not be found. Servers write their errors in one line.
        let masked = masked(&masked(said, secret), &in_one_line(secret));
        if masked == said {
            return self;
        }
        self.change(|inner| {
            let said = inner.outside.as_deref().unwrap_or(&inner.message).to_owned();
            let quotes = inner.outside.is_some();
            let shown = |text: &str| if quotes { legible(text) } else { text.to_owned() };
            inner.message = inner.message.replace(&shown(&said), &shown(&masked)).into();
            inner.outside = quotes.then(|| masked.into());
        })
    }

    pub(crate) fn by(self, owner: &OwnerId) -> Self {
        self.change(|inner| inner.owner = Some(owner.clone()))
    }

    pub(crate) fn held_by(self, holder: Option<OwnerId>) -> Self {
        self.change(|inner| inner.holder = holder)
    }

    pub(crate) fn because(self, reason: LostReason) -> Self {
        self.change(|inner| inner.lost_reason = Some(reason))
    }

    /// Returns the kind of this error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Returns the lock that the error is about.
    pub fn lock(&self) -> Option<&LockName> {
        self.0.lock.as_ref()
    }

    /// Returns the owner that made the request.
    pub fn owner(&self) -> Option<&OwnerId> {
        self.0.owner.as_ref()
    }

    /// Returns who holds the lock instead, if known.
    pub fn holder(&self) -> Option<&OwnerId> {
        self.0.holder.as_ref()
    }

    /// Returns why the lock was lost, if the error is the [`Lost`](ErrorKind::Lost) of a hold.
    pub fn lost_reason(&self) -> Option<LostReason> {
        self.0.lost_reason
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(lock) = &self.0.lock {
            write!(f, "lock `{lock}`: ")?;
        }
        f.write_str(&self.0.message)?;
        if let Some(holder) = &self.0.holder {
            write!(f, "; held by {holder}")?;
        }
        if let Some(owner) = &self.0.owner {
            write!(f, " (asked as {owner})")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}({self})", self.0.kind)
    }
}

impl std::error::Error for Error {}

impl From<fairlock_core::IdError> for Error {
    fn from(error: fairlock_core::IdError) -> Self {
        Self::misuse(error.to_string())
    }
}

/// What a message repeats of another program's text.
#[cfg(feature = "redis")]
pub(crate) fn legible(text: &str) -> String {
    /// In characters.
    const SHOWN_MAX: usize = 200;
    in_one_line(text).chars().take(SHOWN_MAX).collect()
}

/// The text without control characters.
#[cfg(feature = "redis")]
fn in_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Replaces the secret in the text by `***`. A short secret is masked only where it is a word of
/// its own: inside another word it is not the password, and masking it there would reveal it.
#[cfg(feature = "redis")]
fn masked(text: &str, secret: &str) -> String {
    /// Longer ones occur in no text by accident.
    const SHORT: usize = 8;
    if secret.is_empty() {
        return text.to_owned();
    }
    if secret.len() > SHORT {
        return text.replace(secret, "***");
    }
    let (mut clean, mut done) = (String::with_capacity(text.len()), 0);
    for (at, _) in text.match_indices(secret) {
        let (before, after) = (&text[..at], &text[at + secret.len()..]);
        let joins = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
        let is_inside = joins(before.chars().next_back()) || joins(after.chars().next());
        clean.push_str(&text[done..at]);
        clean.push_str(if is_inside { secret } else { "***" });
        done = at + secret.len();
    }
    clean + &text[done..]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With the password `p`, a message contained "scri***t", which reveals the password.
    #[test]
    #[cfg(feature = "redis")]
    fn a_short_password_is_masked_only_as_a_word() {
        for (text, secret, shown) in [
            ("script p, 'p' p", "p", "script ***, '***' ***"),
            ("p", "p", "***"),
            ("pp ppp", "p", "pp ppp"),
            ("user:p@host", "p", "user:***@host"),
            ("été t", "t", "été ***"),
            ("my correct-horse is xcorrect-horse", "correct-horse", "my *** is x***"),
            ("nothing", "", "nothing"),
        ] {
            assert_eq!(masked(text, secret), shown);
        }
    }

    /// The text was cut and cleaned first, so a part of the password stayed.
    #[test]
    #[cfg(feature = "redis")]
    fn a_password_is_masked_before_the_text_is_cut_and_cleaned() {
        let long = "s3cret".repeat(50);
        for (said, secret, shown) in [
            (format!("{}{long}", "x".repeat(150)), &*long, format!("{}***", "x".repeat(150))),
            ("no user sec\tret pw".to_owned(), "sec\tret pw", "no user ***".to_owned()),
            ("no user sec ret pw".to_owned(), "sec\nret pw", "no user ***".to_owned()),
        ] {
            let message = format!("refused: {}", legible(&said));
            let error = Error::new(ErrorKind::Denied, message).quoting(&said).without(secret);
            assert_eq!(error.to_string(), format!("refused: {shown}"));
        }
    }

    /// D40: a password that is also a word of the library's message was masked there: "*** Sentinel
    /// names a master".
    #[test]
    #[cfg(feature = "redis")]
    fn d40_a_password_is_masked_where_others_have_said_it() {
        let error = || Error::new(ErrorKind::Denied, "no way: the server says: no such user no");
        let quoted = error().quoting("no such user no").at("no Sentinel").without("no");
        assert_eq!(quoted.to_string(), "no Sentinel: no way: the server says: *** such user ***");
        assert_eq!(quoted.without("no").to_string().matches("***").count(), 2, "once is enough");
        // No other program has written anything.
        assert_eq!(error().quoting("").without("no").to_string(), error().to_string());
        // If that is unknown, masking too much is better than too little.
        assert!(!error().without("no").to_string().contains("no"));
        assert_eq!(error().without("").to_string(), error().to_string());
    }
}
