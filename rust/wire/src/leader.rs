//! Hints about a partition's leader (KIP-951) in Produce and Fetch, and the identical broker
//! entries of Metadata.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::error::Result;
use crate::reader::Reader;
use crate::writer::Writer;

/// The leader known to the answering broker; -1 for unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLeader {
    pub leader_id: i32,
    /// Leader epoch.
    pub leader_epoch: i32,
}

/// Where a broker can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeEndpoint<'a> {
    pub node_id: i32,
    pub host: &'a str,
    pub port: i32,
    /// Rack, if the broker has one.
    pub rack: Option<&'a str>,
}

/// The least bytes of a [`NodeEndpoint`] in flexible form.
pub(crate) const ENDPOINT_MIN_LEN: usize = 11;

impl CurrentLeader {
    pub(crate) fn encode(self, writer: &mut Writer<'_>) {
        writer.i32(self.leader_id);
        writer.i32(self.leader_epoch);
        writer.no_tags();
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let leader = CurrentLeader {
            leader_id: reader.i32()?,
            leader_epoch: reader.i32()?,
        };
        reader.skip_tags()?;
        Ok(leader)
    }
}

impl<'a> NodeEndpoint<'a> {
    pub(crate) fn encode(&self, writer: &mut Writer<'_>) {
        writer.i32(self.node_id);
        writer.string(self.host);
        writer.i32(self.port);
        writer.nullable_string(self.rack);
        writer.no_tags();
    }

    pub(crate) fn decode(reader: &mut Reader<'a>) -> Result<Self> {
        let endpoint = NodeEndpoint {
            node_id: reader.i32()?,
            host: reader.string()?,
            port: reader.i32()?,
            rack: reader.nullable_string()?,
        };
        reader.skip_tags()?;
        Ok(endpoint)
    }
}

/// Appends the tagged fields at the end of a Produce or Fetch reply: field 0 has the endpoints of
/// hinted leaders, if any and if the version has it.
pub(crate) fn encode_endpoint_tags(
    writer: &mut Writer<'_>,
    has_field: bool,
    endpoints: &[NodeEndpoint<'_>],
) {
    if !has_field || endpoints.is_empty() {
        writer.no_tags();
        return;
    }
    writer.tag_count(1);
    writer.tagged_field(0, |field| {
        field.array(endpoints, |field, endpoint| endpoint.encode(field));
    });
}

/// Reads what [`encode_endpoint_tags`] appends.
pub(crate) fn decode_endpoint_tags<'a>(
    reader: &mut Reader<'a>,
    has_field: bool,
) -> Result<Vec<NodeEndpoint<'a>>> {
    let mut endpoints = Vec::new();
    reader.tags(|tag, field| {
        if tag == 0 && has_field {
            endpoints = field.array(ENDPOINT_MIN_LEN, NodeEndpoint::decode)?;
        }
        Ok(tag == 0 && has_field)
    })?;
    Ok(endpoints)
}
