//! Names in sentences. They come from schemas, and may be as long as those.

/// Of a name.
const NAME_CHARS_MAX: usize = 100;
/// Of field names before a reason.
const PATH_BYTES_MAX: usize = 200;

/// A name, or its beginning.
pub(crate) fn short(name: &str) -> &str {
    match name.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => &name[..end],
        None => name,
    }
}

/// A reason, and the field that it is about.
#[cold]
pub(crate) fn within(field: &str, reason: String) -> String {
    match reason.len() < PATH_BYTES_MAX {
        true => format!("{}: {reason}", short(field)),
        false => reason,
    }
}
