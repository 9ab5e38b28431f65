//! Who hears of the conversion of old segments, which may take long.

use std::fmt::Debug;
use std::path::Path;

/// Follows conversions; see [`crate::LogEnv::set_conversion_listener`].
pub trait ConversionListener: Debug + Send + Sync {
    /// Segments of a folder, of so many bytes, are about to be converted.
    fn begins(&self, folder: &Path, segments: usize, bytes: u64);

    /// Whether to go on; asked before each message and batch.
    fn may_go_on(&self) -> bool;
}
