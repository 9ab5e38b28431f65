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

/// The endpoints of hinted leaders: tagged field 0 at the end of a Produce or Fetch reply, from a
/// version on.
pub enum EndpointsSince<const SINCE: i16> {}

impl<'a, const SINCE: i16> Field<'a> for EndpointsSince<SINCE> {
    type Value = Vec<NodeEndpoint<'a>>;

    fn read(reader: &mut Reader<'a>, version: i16) -> Result<Self::Value> {
        let mut endpoints = Vec::new();
        reader.tags(|tag, field| {
            let is_known = tag == 0 && version >= SINCE;
            if is_known {
                endpoints = Vec::read(field, version)?;
            }
            Ok(is_known)
        })?;
        Ok(endpoints)
    }

    fn write(endpoints: &Self::Value, writer: &mut Writer<'_>, version: i16) {
        Self::write_all(endpoints, writer, version);
    }

    fn min_bytes(_version: i16, flexible: bool) -> usize {
        usize::from(flexible)
    }
}

impl<const SINCE: i16> EndpointsSince<SINCE> {
    /// Appends them, if there are any and the version has the field.
    pub fn write_all(endpoints: &[NodeEndpoint<'_>], writer: &mut Writer<'_>, version: i16) {
        if version < SINCE || endpoints.is_empty() {
            writer.no_tags();
            return;
        }
        writer.tag_count(1);
        writer.tagged_field(0, |field| {
            field.array(endpoints, |field, endpoint| {
                NodeEndpoint::write(endpoint, field, version);
            });
        });
    }
}
