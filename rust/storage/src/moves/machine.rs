//! What a move does next: pure.

/// Copied bytes may lag behind by so many for the current log to be held: the time for which it
/// takes no records.
pub const REST_MAX_BYTES: u64 = 256 << 10;

/// Offsets of a log that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Log start offset.
    pub start: i64,
    /// Of the current log its durable end offset, of the copy its log end offset.
    pub end: i64,
}

/// What a step depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The current log.
    pub current: Span,
    /// Its lowest end since the last step, if it was cut.
    pub cut: Option<i64>,
    /// The copy.
    pub copy: Span,
    /// The copy is known to hold what the current log holds.
    pub is_verified: bool,
    /// Bytes of the current log behind the copy's end; an upper estimate.
    pub rest_bytes: u64,
    /// What was copied so far was synced at least once.
    pub is_synced: bool,
}

impl Facts {
    /// The current log was made to begin lower, as one that had begun at its leader's end: the
    /// copy, which a kill may have left, lacks what lies between.
    pub fn lacks_begin(&self) -> bool {
        self.copy.start > self.current.start
    }
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Compare the copy's last batch with the current log's.
    Verify,
    /// Cut the copy's end.
    CutTo(i64),
    /// Drop all of the copy; it goes on at this offset.
    RestartAt(i64),
    /// Copy the next piece.
    Copy,
    /// Make the copy durable, so that less remains to be synced while the log is held.
    Sync,
    /// Put the copy in the log's place.
    Swap,
}

/// The step after these facts.
pub fn next(facts: &Facts) -> Step {
    let Facts { current, copy, .. } = *facts;
    let cut = facts.cut.filter(|cut| *cut < copy.end);
    let is_apart = copy.end < current.start || cut.is_some_and(|cut| cut < copy.start);
    if is_apart || facts.lacks_begin() {
        return Step::RestartAt(current.start);
    }
    if let Some(cut) = cut {
        return Step::CutTo(cut);
    }
    if copy.end > current.end {
        // The current log was found shorter than its copy.
        return Step::RestartAt(current.start);
    }
    if !facts.is_verified {
        return Step::Verify;
    }
    if facts.rest_bytes > REST_MAX_BYTES {
        Step::Copy
    } else if !facts.is_synced {
        Step::Sync
    } else {
        Step::Swap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        current: Span { start: 10, end: 50 },
        cut: None,
        copy: Span { start: 10, end: 30 },
        is_verified: true,
        rest_bytes: 1 << 20,
        is_synced: false,
    };

    fn copied_to(end: i64) -> Facts {
        let start = FACTS.copy.start.min(end);
        Facts {
            copy: Span { start, end },
            ..FACTS
        }
    }

    #[test]
    fn a_copy_is_verified_filled_synced_and_swapped() {
        let found = Facts {
            is_verified: false,
            ..FACTS
        };
        assert_eq!(next(&found), Step::Verify);
        assert_eq!(next(&FACTS), Step::Copy);
        let near = Facts {
            rest_bytes: REST_MAX_BYTES,
            ..FACTS
        };
        assert_eq!(next(&near), Step::Sync);
        let synced = Facts {
            is_synced: true,
            ..near
        };
        assert_eq!(next(&synced), Step::Swap);
    }

    #[test]
    fn a_cut_of_the_log_comes_before_the_next_piece() {
        let cut_to = |cut| Facts {
            cut: Some(cut),
            ..FACTS
        };
        assert_eq!(next(&cut_to(29)), Step::CutTo(29));
        assert_eq!(next(&cut_to(10)), Step::CutTo(10));
        assert_eq!(next(&cut_to(9)), Step::RestartAt(10));
        for unreached in [30, 40] {
            assert_eq!(next(&cut_to(unreached)), Step::Copy);
        }
    }

    #[test]
    fn a_copy_outside_of_the_log_begins_anew() {
        assert_eq!(next(&copied_to(9)), Step::RestartAt(10));
        assert_eq!(next(&copied_to(51)), Step::RestartAt(10));
        assert_eq!(next(&copied_to(50)), Step::Copy);
        assert_eq!(next(&copied_to(10)), Step::Copy);
    }

    /// A kill may have left it behind a log that begins lower since. Its last batch is the log's.
    #[test]
    fn a_copy_that_begins_behind_the_log_begins_anew() {
        for is_verified in [false, true] {
            let late = Facts {
                copy: Span { start: 11, end: 30 },
                is_verified,
                ..FACTS
            };
            assert_eq!(next(&late), Step::RestartAt(10));
        }
    }

    /// Whatever is cut and deleted, the steps lead to a swap at the log's end.
    #[test]
    fn every_state_leads_to_a_swap() {
        for end in 0..60 {
            for cut in (0..60).map(Some).chain([None]) {
                let mut facts = Facts {
                    cut,
                    is_verified: false,
                    ..copied_to(end)
                };
                let mut steps = 0;
                loop {
                    steps += 1;
                    assert!(steps < 8, "{facts:?}");
                    match next(&facts) {
                        Step::Verify => facts.is_verified = true,
                        Step::CutTo(offset) => {
                            assert!(offset < facts.copy.end);
                            facts.copy.end = offset;
                            facts.cut = None;
                            facts.rest_bytes = FACTS.rest_bytes;
                        }
                        Step::RestartAt(start) => {
                            facts.copy = Span { start, end: start };
                            facts.cut = None;
                            facts.rest_bytes = FACTS.rest_bytes;
                        }
                        Step::Copy => {
                            facts.copy.end = facts.current.end;
                            facts.rest_bytes = 0;
                        }
                        Step::Sync => facts.is_synced = true,
                        Step::Swap => break,
                    }
                }
                assert_eq!(facts.copy.end, facts.current.end);
            }
        }
    }
}
