//! What the shared parts of a log directory know of a segment: a `.log` whose bytes may be cached, and
//! open files that may be closed.

use std::fmt::Debug;
use std::io;
use std::sync::Arc;

use crate::disk::DiskFile;
use crate::wait::Wait;

/// A segment, as its directory's windows, page cache bound and list of open files see it.
pub(crate) trait SegmentHandle: Debug + Send + Sync {
    /// Tells it from every other segment that this process ever had.
    fn id(&self) -> u64;

    /// Bytes of the `.log` that are in the file.
    fn written(&self) -> u64;

    /// The `.log` for reading. Opening it may wait, so `Nowait` fails when it is not open yet.
    fn open_log(self: Arc<Self>, wait: Wait) -> io::Result<Arc<dyn DiskFile>>;

    /// The page cache need not hold these bytes of the `.log`. May wait for the disk.
    fn give_up_pages(self: Arc<Self>, position: u64, len: u64);

    /// Hands the open files of a segment that nobody used since the last time this was asked to
    /// `closing`; false if it was used and should be asked again later.
    fn take_files_unless_used(&self, closing: &mut Vec<Arc<dyn DiskFile>>) -> bool;
}
