//! What a move to another log directory does to the log that is copied; see the module `moving`.

/// A number of a move; 0 is none.
pub type MoveId = u64;

/// What a move to another directory does to the current log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leave {
    /// The move that copies it.
    pub copied_by: MoveId,
    /// The lowest offset that it was cut to since the copier last asked.
    pub cut_to: Option<i64>,
    /// Whether it takes records, and others change its files.
    pub hold: Hold,
}

/// Whether a log stands still for its copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It goes on.
    #[default]
    None,
    /// It stands still, for a while.
    Held,
    /// It stands still until it is known whether the copy has taken its place.
    Final,
}

impl Leave {
    pub fn is_held(&self) -> bool {
        self.hold != Hold::None
    }

    /// The log was cut, and ends at `end` now.
    pub fn note_cut(&mut self, end: i64) {
        if self.copied_by != 0 {
            self.cut_to = Some(self.cut_to.map_or(end, |known| known.min(end)));
        }
    }
}
