//! The threads that carry out moves.

use std::sync::Arc;

use pyrklog_log::SyncScope;

use crate::log_manager::LogManager;
use crate::moves::copying::{Copying, Failure, Stage};
use crate::moves::machine::{self, Step};
use crate::moves::{Fate, Move, Moves, swap};
use pyrklog_base::clock::mono_ms;

/// Pause of a move that lacks space, or could not be ended.
pub(super) const AGAIN_MS: i64 = 1_000;

/// Pause of a move whose partition has another one under way, or whose log is being cut.
const ANOTHER_MS: i64 = 20;

enum Next {
    /// The next step.
    On,
    Wait(i64),
    Swap,
    Over,
}

/// The work of one thread, until it is told to stop.
pub fn run(logs: &Arc<LogManager>) {
    while let Some(next) = logs.moves.next() {
        carry_on(logs, next);
    }
}

/// Carries a move on until it is over or has to wait.
fn carry_on(logs: &Arc<LogManager>, one: Arc<Move>) {
    let moves = &logs.moves;
    while !moves.is_stopped() {
        moves.make_folders(logs);
        moves.end_ended(logs);
        if moves.has_to_slow_down(&one) {
            continue;
        }
        let next = step(logs, &one, &mut one.copying.lock());
        match next {
            Ok(Next::On) => {}
            Ok(Next::Wait(wait_ms)) => return moves.again(one, wait_ms),
            Ok(Next::Swap) if moves.may_queue_swap(&one) => return swap::submit(logs, one),
            // The thread waits, so that no further copies have open files.
            Ok(Next::Swap) => moves.sleep_until(mono_ms() + ANOTHER_MS),
            Ok(Next::Over) => return,
            Err(failure) => return failed(logs, one, failure),
        }
    }
    // What the end of the broker does with it depends on whether it was ended.
    moves.again(one, 0);
}

impl Moves {
    /// Waits a while if too much was copied.
    fn has_to_slow_down(&self, one: &Move) -> bool {
        let now_ms = mono_ms();
        let is_exceeded = self.rate.is_exceeded(now_ms) && one.fate() == Fate::GoesOn;
        if is_exceeded {
            self.sleep_until(self.rate.look_ms(now_ms));
        }
        is_exceeded
    }
}

fn step(logs: &LogManager, one: &Move, copying: &mut Copying) -> Result<Next, Failure> {
    if one.fate() != Fate::GoesOn {
        one.end(logs, copying);
        return Ok(Next::Over);
    }
    if one.waits_for_another() {
        return Ok(Next::Wait(ANOTHER_MS));
    }
    if one.partition.dir().index == one.destination.index {
        one.set_fate(Fate::Ends);
        return Ok(Next::On);
    }
    match copying.stage {
        Stage::New => one.make(logs, copying)?,
        Stage::Made => {
            // Copies that wait for space have no open files.
            one.check_space()?;
            one.open(logs, copying)?;
        }
        Stage::Open => return copy_on(logs, one, copying),
        Stage::Gone => return Ok(Next::Over),
    }
    Ok(Next::On)
}

fn copy_on(logs: &LogManager, one: &Move, copying: &mut Copying) -> Result<Next, Failure> {
    one.write(copying)?;
    let current = one.look(copying)?;
    if current.is_being_cleaned {
        // The copy would have records that the new segment replaces, and lack what replaced them.
        return Ok(Next::Wait(ANOTHER_MS));
    }
    let start = current.facts.current.start;
    match machine::next(&current.facts) {
        Step::Verify => one.verify(logs, copying, current.at_last, start)?,
        Step::CutTo(offset) => one.cut(logs, copying, offset)?,
        Step::RestartAt(offset) => one.restart(logs, copying, offset)?,
        Step::Copy => {
            let at_end = current.at_end.ok_or(Failure::Rests)?;
            let bytes = one.copy_piece(logs, copying, &at_end)?;
            logs.moves.rate.count(bytes, mono_ms());
            if bytes == 0 {
                // The log was being cut, or is compacted.
                return Ok(Next::Wait(ANOTHER_MS));
            }
        }
        Step::Sync => {
            one.sync(copying, SyncScope::Written)?;
            copying.is_synced = true;
        }
        Step::Swap => return Ok(Next::Swap),
    }
    Ok(Next::On)
}

/// Does what a failure of a step asks for.
pub(super) fn failed(logs: &Arc<LogManager>, one: Arc<Move>, failure: Failure) {
    let fate = match failure {
        Failure::Later(reason) => {
            if one.copying.lock().is_news(&reason) {
                one.tell(logs, "replica_move_waits", "warning", reason);
            }
            return logs.moves.again(one, AGAIN_MS);
        }
        Failure::Rests => Fate::Rests,
        Failure::Destination(reason) => {
            logs.fail_dir(
                &one.destination,
                format!("moving {} there: {reason}", one.partition),
            );
            Fate::Rests
        }
        Failure::Hopeless(reason) => {
            one.tell(logs, "replica_move_failed", "error", reason);
            Fate::Ends
        }
        Failure::BeginsAt(offset) => {
            let reason = format!("the log begins at {offset}, behind its first batch's start");
            one.tell(logs, "replica_move_failed", "error", reason);
            Fate::Ends
        }
    };
    if one.fate() == Fate::GoesOn {
        one.set_fate(fate);
    }
    one.end(logs, &mut one.copying.lock());
}
