//! Requests that take a network thread long: those of very many elements.
//!
//! The worst that is allowed takes a quarter of a second. A thread works on one of them in a turn,
//! when everybody else has been served, so that a request that takes no time waits for one such
//! request at most, however many there are.

use std::collections::VecDeque;

use crate::connection::{Connection, Hold};
use crate::context::Context;
use crate::inbox::Token;

/// A request of more bytes than this counts as long, unless the bytes are records.
pub const FRAME_BYTES: usize = 64 * 1024;

/// So does one with more partitions.
pub const PARTITIONS: usize = 5_000;

/// And one with a larger answer of the broker's own making.
pub const REPLY_BYTES: usize = 512 * 1024;

/// What a network thread knows of them.
#[derive(Debug, Default)]
pub struct Heavy {
    waiting: VecDeque<Token>,
    /// Whose turn it is.
    turn_of: Option<Token>,
    /// It is being worked on.
    is_begun: bool,
}

impl Heavy {
    /// Whether connections wait for their turn.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// The next connection, whose turn it is from now on.
    pub fn next(&mut self) -> Option<Token> {
        self.turn_of = self.waiting.pop_front();
        self.turn_of
    }

    /// A request was worked on: if it was a long one, that was it for this turn.
    pub fn end_request(&mut self) -> bool {
        let was_heavy = std::mem::take(&mut self.is_begun);
        if was_heavy {
            self.turn_of = None;
        }
        was_heavy
    }

    /// The turn is over, used or not.
    pub fn end_turn(&mut self) {
        self.turn_of = None;
        self.is_begun = false;
    }
}

/// Whether a request may go on that takes long if `is_heavy`; else its connection is held until it
/// is its turn.
pub fn admit(cx: &mut Context, conn: &mut Connection, is_heavy: bool) -> bool {
    if !is_heavy {
        return true;
    }
    if cx.heavy.turn_of == Some(conn.token) {
        cx.heavy.is_begun = true;
        return true;
    }
    conn.hold = Some(Hold::Heavy);
    cx.heavy.waiting.push_back(conn.token);
    false
}
