//! The copies of a request that were sent.

/// How many copies of a request were sent, and how many of them are unanswered. While any copy is
/// unanswered, the request may still be carried out, whatever the replies to the others were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Copies {
    unanswered: u32,
    sent: u32,
    replied: bool,
}

impl Copies {
    /// A copy goes out.
    pub fn send(&mut self) {
        self.unanswered += 1;
        self.sent += 1;
    }

    /// The store has answered a copy.
    pub fn answered(&mut self) {
        self.refused();
        self.replied = true;
    }

    /// A copy certainly never reached the store.
    pub fn refused(&mut self) {
        debug_assert!(self.unanswered > 0, "no copy was under way");
        self.unanswered -= 1;
    }

    /// Whether a copy is unanswered.
    pub fn in_doubt(self) -> bool {
        self.unanswered > 0
    }

    /// Whether the store has answered any of them.
    pub fn answered_once(self) -> bool {
        self.replied
    }

    /// Whether more than one was sent.
    pub fn resent(self) -> bool {
        self.sent > 1
    }
}
