//! Whether the files of a directory are those that its last life left. They are not read: sizes,
//! times and inodes tell, as whoever writes to a file, cuts it or replaces it changes one of them.

use std::io;
use std::path::Path;

use crate::disk::Stamp;
use crate::env::LogEnv;
use crate::log_dir::LogDir;
use crate::names;

/// FNV-1a: the same in every version of this program.
struct Fnv(u64);

impl Fnv {
    fn new() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn add_stamp(&mut self, name: &str, stamp: &Stamp) {
        self.add(name.as_bytes());
        // No name has it.
        self.add(&[0]);
        self.add(&stamp.inode.to_le_bytes());
        self.add(&stamp.size.to_le_bytes());
        self.add(&stamp.modified_ns.to_le_bytes());
        self.add(&stamp.changed_ns.to_le_bytes());
    }

    /// 0 stands for "none" where hashes are kept.
    fn finish(self) -> u64 {
        self.0.max(1)
    }
}

/// Of one file.
pub(super) fn file_hash(env: &LogEnv, path: &Path) -> io::Result<u64> {
    let mut hash = Fnv::new();
    hash.add_stamp("", &env.disk().stamp(path)?);
    Ok(hash.finish())
}

impl LogDir {
    /// Tells the files of a partition from any others: of each its name, size, times and inode, and of
    /// the partition what the checkpoints say. `None` if there is no such folder. A look at each
    /// file's inode, no more.
    ///
    /// # Errors
    /// The disk's; of kind `Unsupported` where it cannot tell.
    pub fn files_hash(&self, topic: &str, partition: i32) -> io::Result<Option<u64>> {
        let folder = self.path.join(names::folder_name(topic, partition));
        let disk = self.env.disk();
        let mut entries = match disk.read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        entries.sort();
        let mut hash = Fnv::new();
        for entry in entries {
            let stamp = disk.stamp(&folder.join(&entry.name))?;
            hash.add_stamp(&entry.name, &stamp);
        }
        let state = self.open_state(topic, partition);
        for offset in [state.recovery_point, state.log_start_offset] {
            hash.add(&offset.to_le_bytes());
        }
        Ok(Some(hash.finish()))
    }

    /// Tells the mark of a clean shutdown that is there now from any other.
    ///
    /// # Errors
    /// The disk's: it is not there, for one.
    pub fn clean_mark_now(&self) -> io::Result<u64> {
        file_hash(&self.env, &self.path.join(names::CLEAN_SHUTDOWN))
    }

    /// The same of the one with which the directory was opened.
    pub fn clean_mark(&self) -> Option<u64> {
        self.clean_mark
    }

    /// Whether an orderly end now says of a log that nobody has opened that it was closed in order.
    pub fn is_left_closed(&self, topic: &str, partition: i32) -> bool {
        !self
            .env
            .not_closed()
            .contains(&(topic.to_owned(), partition))
    }
}
