//! Structured fuzzing: bytes are read as a script that builds something valid, then damages it.
//!
//! What comes out is as a peer, a disk or a crash would hand it to the broker: checksums are right
//! unless the checksum is what is tried, lengths fit unless lengths are. Each [`Target`] has an
//! oracle that says what must hold, and bugs planted for it: copies of the code under test with a
//! mistake that people make. A target that does not find its bugs would find no other, so the
//! tests look for each of them.
//!
//! `cargo test -p pyrklog-fuzz` runs the targets over seeded bytes, `make fuzz` under libFuzzer.

#![forbid(unsafe_code)]

mod batches;
mod checkpoints;
mod dumps;
mod frames;
mod history;
mod indexes;
mod memory;
mod reads;
mod recovery;
mod responses;
mod script;
mod search;
mod snapshots;

pub use search::{Found, search};

use script::Script;

/// What an oracle says: nothing, or what does not hold.
pub type Verdict = Result<(), String>;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Request frames of every API and version that the data plane decodes, and the headers of all
    /// others: read back as written; no panic, and no memory on the word of a count.
    Frames,
    /// Record batches of every codec: what is accepted has the records that its header says.
    Batches,
    /// Offset, time and transaction indexes: what is accepted is searched as a list would be.
    Indexes,
    /// Snapshots of producers: read back as written, and every flipped bit is noticed.
    Snapshots,
    /// Checkpoints, `meta.properties`, `partition.metadata`: read back as written.
    Checkpoints,
    /// A log that was killed and damaged opens with a prefix of what was appended, twice alike.
    Recovery,
    /// Responses of every API and version that the data plane writes: read back as written.
    Responses,
    /// Reads of a log whose indexes are damaged: they begin with the batch that was asked for.
    Reads,
    /// The dump of any file: damage is told, soundness too, and it ends.
    Dumps,
}

impl Target {
    /// All targets.
    pub const ALL: [Target; 9] = [
        Target::Frames,
        Target::Batches,
        Target::Indexes,
        Target::Snapshots,
        Target::Checkpoints,
        Target::Recovery,
        Target::Responses,
        Target::Reads,
        Target::Dumps,
    ];

    /// The names of the bugs planted for it.
    pub fn planted(self) -> &'static [&'static str] {
        match self {
            Target::Frames => frames::PLANTED,
            Target::Batches => batches::PLANTED,
            Target::Indexes => indexes::PLANTED,
            Target::Snapshots => snapshots::PLANTED,
            Target::Checkpoints => checkpoints::PLANTED,
            Target::Recovery => recovery::PLANTED,
            Target::Responses => responses::PLANTED,
            Target::Reads => reads::PLANTED,
            Target::Dumps => dumps::PLANTED,
        }
    }

    /// Runs one script against the code of the broker, or against that with a planted bug.
    pub fn run(self, data: &[u8], planted: Option<&str>) -> Verdict {
        let mut script = Script::new(data);
        match self {
            Target::Frames => frames::run(&mut script, planted),
            Target::Batches => batches::run(&mut script, planted),
            Target::Indexes => indexes::run(&mut script, planted),
            Target::Snapshots => snapshots::run(&mut script, planted),
            Target::Checkpoints => checkpoints::run(&mut script, planted),
            Target::Recovery => recovery::run(&mut script, planted),
            Target::Responses => responses::run(&mut script, planted),
            Target::Reads => reads::run(&mut script, planted),
            Target::Dumps => dumps::run(&mut script, planted),
        }
    }

    /// For libFuzzer: panics with what was found.
    pub fn fuzz(self, data: &[u8]) {
        if let Err(problem) = self.run(data, None) {
            panic!("{problem}");
        }
    }
}

/// An error where something does not hold.
pub(crate) fn expect(holds: bool, problem: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(problem()) }
}
