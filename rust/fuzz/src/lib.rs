//! Structured fuzzing: bytes are a script that builds something valid and then damages it.
//!
//! The result is what a peer, a disk or a crash could hand to the broker: checksums and lengths are
//! right unless they are the subject. Each [`Target`] has an oracle and planted bugs: copies of the
//! code under test with a typical mistake. A target must find its bugs, and the tests check that.
//!
//! `cargo test -p pyrklog-fuzz` runs the targets over seeded bytes, `make fuzz` under libFuzzer.

#![forbid(unsafe_code)]

mod avro_values;
mod batches;
mod checkpoints;
mod decoded;
mod dumps;
mod fetched;
mod frames;
mod history;
mod indexes;
mod memory;
mod message_sets;
mod old_segments;
mod reads;
mod recovery;
mod responses;
mod script;
mod search;
mod snapshots;
mod typed_values;

pub use search::{Found, search};

use script::Script;

/// What an oracle says: nothing, or what does not hold.
pub type Verdict = Result<(), String>;

/// What is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Request frames of every API and version that the data plane decodes, and the headers of all
    /// others: decoded as written, without panic or unbounded memory.
    Frames,
    /// Record batches of every codec: an accepted one has the records its header announces.
    Batches,
    /// Message sets of old formats: an accepted one has the messages that were sent.
    MessageSets,
    /// Offset, time and transaction indexes: a search in an accepted one agrees with a list.
    Indexes,
    /// Producer snapshots: parsed as written; every flipped bit is noticed.
    Snapshots,
    /// Checkpoints, `meta.properties`, `partition.metadata`: read back as written.
    Checkpoints,
    /// A killed and damaged log opens with a prefix of its records, twice alike.
    Recovery,
    /// Segments of old formats, damaged: the log opens with the messages that were not, and twice
    /// alike.
    OldSegments,
    /// Responses of every API and version that the data plane encodes: decoded as written.
    Responses,
    /// Reads of a log with damaged indexes begin with the requested batch.
    Reads,
    /// The dump of any file reports damage, and nothing else, and ends.
    Dumps,
    /// Fetched records, new and old formats, with transactions: a scan has the rows that are visible.
    Fetched,
    /// JSON that a scan decodes: what fits has its fields, a bad value costs its own row, within
    /// bounded memory.
    TypedValues,
    /// Avro data that a scan decodes by a schema of its own: the same.
    AvroValues,
}

impl Target {
    /// All targets.
    pub const ALL: [Target; 14] = [
        Target::Frames,
        Target::Batches,
        Target::MessageSets,
        Target::Indexes,
        Target::Snapshots,
        Target::Checkpoints,
        Target::Recovery,
        Target::OldSegments,
        Target::Responses,
        Target::Reads,
        Target::Dumps,
        Target::Fetched,
        Target::TypedValues,
        Target::AvroValues,
    ];

    /// The names of the bugs planted for it.
    pub fn planted(self) -> &'static [&'static str] {
        match self {
            Target::Frames => frames::PLANTED,
            Target::Batches => batches::PLANTED,
            Target::MessageSets => message_sets::PLANTED,
            Target::Indexes => indexes::PLANTED,
            Target::Snapshots => snapshots::PLANTED,
            Target::Checkpoints => checkpoints::PLANTED,
            Target::Recovery => recovery::PLANTED,
            Target::OldSegments => old_segments::PLANTED,
            Target::Responses => responses::PLANTED,
            Target::Reads => reads::PLANTED,
            Target::Dumps => dumps::PLANTED,
            Target::Fetched => fetched::PLANTED,
            Target::TypedValues => typed_values::PLANTED,
            Target::AvroValues => avro_values::PLANTED,
        }
    }

    /// Runs one script against the broker's code, or with a planted bug.
    pub fn run(self, data: &[u8], planted: Option<&str>) -> Verdict {
        let mut script = Script::new(data);
        match self {
            Target::Frames => frames::run(&mut script, planted),
            Target::Batches => batches::run(&mut script, planted),
            Target::MessageSets => message_sets::run(&mut script, planted),
            Target::Indexes => indexes::run(&mut script, planted),
            Target::Snapshots => snapshots::run(&mut script, planted),
            Target::Checkpoints => checkpoints::run(&mut script, planted),
            Target::Recovery => recovery::run(&mut script, planted),
            Target::OldSegments => old_segments::run(&mut script, planted),
            Target::Responses => responses::run(&mut script, planted),
            Target::Reads => reads::run(&mut script, planted),
            Target::Dumps => dumps::run(&mut script, planted),
            Target::Fetched => fetched::run(&mut script, planted),
            Target::TypedValues => typed_values::run(&mut script, planted),
            Target::AvroValues => avro_values::run(&mut script, planted),
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
