//! Every API in every version: encoded messages decode to the same, truncated ones are errors, and
//! no bytes make a decoder panic.

mod api_versions;
mod epochs;
mod fetch_request;
mod fetch_response;
mod list_offsets;
mod metadata;
mod produce;
mod replica_segments;
mod replica_start;
mod support;
