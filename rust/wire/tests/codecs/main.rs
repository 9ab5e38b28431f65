//! Every API, every version: what is encoded decodes to the same, what is cut off is an error, and
//! no bytes make a decoder panic.

mod api_versions;
mod epochs;
mod fetch_request;
mod fetch_response;
mod list_offsets;
mod metadata;
mod produce;
mod support;
