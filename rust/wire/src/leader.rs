//! Hints about a partition's leader (KIP-951) in Produce and Fetch, and the identical broker
//! entries of Metadata.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::error::Result;
use crate::message::{Field, fields};
use crate::reader::Reader;
use crate::writer::Writer;

fields! {
    /// The leader known to the answering broker; -1 for unknown.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct CurrentLeader {
        pub leader_id: i32,
        /// Leader epoch.
        pub leader_epoch: i32,
    }
}

fields! {
    /// Where a broker can be reached.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct NodeEndpoint<'a> {
        pub node_id: i32,
        pub host: &'a str,
        pub port: i32,
        /// Rack, if the broker has one; version 0 of Metadata alone lacks it.
        pub rack: Option<&'a str> [in 1.., else None],
    }
}

/// A leader where one is known. `None` has no form of its own: a tagged field without it is left out.
impl Field<'_> for Option<CurrentLeader> {
    type Value = Self;

    fn read(reader: &mut Reader<'_>, version: i16) -> Result<Self> {
        CurrentLeader::read(reader, version).map(Some)
    }

    fn write(leader: &Self, writer: &mut Writer<'_>, version: i16) {
        if let Some(leader) = leader {
            CurrentLeader::write(leader, writer, version);
        }
    }

    fn min_bytes(version: i16, flexible: bool) -> usize {
        CurrentLeader::min_bytes(version, flexible)
    }
}
