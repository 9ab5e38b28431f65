//! A segment as the shared parts of a log directory see it: a `.log` with cacheable bytes, and open
//! files that may be closed.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::wait::Wait;

/// A segment as its directory's windows, page cache limit and list of open files see it.
pub(crate) trait SegmentHandle: Debug + Send + Sync {
    fn id(&self) -> u64;

    /// Bytes of the `.log` that are in the file.
    fn written(&self) -> u64;

    /// The `.log` for reading. `Nowait` fails if it must be opened first.
    fn open_log(self: Arc<Self>, wait: Wait) -> io::Result<Arc<dyn DiskFile>>;

    /// The page cache need not hold these bytes of the `.log`. May wait for the disk.
    fn give_up_pages(self: Arc<Self>, position: u64, len: u64);

    /// Moves the open files to `closing`, unless the segment was used since the last call: then
    /// false, and the caller should ask again later.
    fn take_files_unless_used(&self, closing: &mut Vec<Arc<dyn DiskFile>>) -> bool;
}
