//! The first fields of requests by group members.
#![allow(missing_docs)] // Docs say what the protocol's own names do not.

use crate::error::Result;
use crate::reader::Reader;
use crate::span::Span;

/// Generation of a commit without a member.
const NO_GENERATION: i32 = -1;

/// The fields as spans of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipFields {
    group_id: Span,
    generation: i32,
    member_id: Span,
    instance_id: Option<Span>,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Membership<'a> {
    pub group_id: &'a str,
    /// Generation, -1 of a consumer without one.
    pub generation: i32,
    /// Member id, empty of a consumer without one.
    pub member_id: &'a str,
    /// Instance id of a static member (KIP-345), by version.
    pub instance_id: Option<&'a str>,
}

impl MembershipFields {
    /// Reads the fields at the start of a body.
    pub(crate) fn read(reader: &mut Reader<'_>, has_instance_id: bool) -> Result<Self> {
        Ok(MembershipFields {
            group_id: reader.string_span()?,
            generation: reader.i32()?,
            member_id: reader.string_span()?,
            instance_id: match has_instance_id {
                true => reader.nullable_string_span()?,
                false => None,
            },
        })
    }

    /// Reads a group's name; it has no member.
    pub(crate) fn read_group(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(MembershipFields {
            group_id: reader.string_span()?,
            generation: NO_GENERATION,
            member_id: Span::default(),
            instance_id: None,
        })
    }

    /// The same with texts from the body.
    pub fn of(self, body: &[u8]) -> Membership<'_> {
        Membership {
            group_id: self.group_id.text(body),
            generation: self.generation,
            member_id: self.member_id.text(body),
            instance_id: self.instance_id.map(|span| span.text(body)),
        }
    }
}
