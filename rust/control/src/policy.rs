//! The two questions that every request passes: may it, and what does it cost?
//!
//! The image of a cluster without access rules and quotas carries neither, and this is their
//! answer to such an image: everything is allowed (as Kafka without an authorizer), nothing is
//! throttled.

use crate::image::Image;

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fetch records.
    Read,
    /// Append records.
    Write,
    /// Learn offsets and epochs.
    Describe,
}

/// What it wants to do it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource<'a> {
    /// A topic.
    Topic(&'a str),
}

/// Which of a client's rates a request counts against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quota {
    /// Bytes produced.
    Produce,
    /// Bytes fetched.
    Fetch,
}

/// Whether `principal` may do `operation` to `resource`.
pub fn authorize(
    image: &Image,
    principal: &str,
    operation: Operation,
    resource: Resource<'_>,
) -> bool {
    let _ = (image, principal, operation, resource);
    true
}

/// Counts `amount` against a quota; the answer is how long the client is to be throttled, in
/// milliseconds.
pub fn charge(image: &Image, principal: &str, quota: Quota, amount: usize) -> i32 {
    let _ = (image, principal, quota, amount);
    0
}
