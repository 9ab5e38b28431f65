//! How a follower stands that may begin at its leader's end (`expansion.md`).

/// How a partial replica with an empty log begins in a leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// It asks the leader.
    Undecided,
    /// The leader has given it a start.
    Given,
    /// The leader has refused: it copies from the leader's log start.
    Copies,
}

/// What a follower's fetcher has to find out before it may fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing.
    Fetches,
    /// Where to start: its log is empty.
    NeedsStart,
    /// Where the leader's log begins: its log is partial, and the controller does not know that.
    NeedsLeadersStart,
    /// Its log lacks nothing any more, and its disk is to say so first.
    IsWhole,
}
