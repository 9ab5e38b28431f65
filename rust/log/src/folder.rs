//! A partition's folder: where its files are, even after the folder was renamed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::names::{self, FileKind};

/// The path of a partition's folder, shared by everything that opens files in it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: RwLock<Arc<Path>>,
    /// Held while files of the folder get other names.
    in_place: Mutex<()>,
}

impl Folder {
    /// A folder at `path`.
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            path: RwLock::new(path.into()),
            in_place: Mutex::default(),
        })
    }

    /// Where it is now.
    pub fn path(&self) -> Arc<Path> {
        self.path.read().clone()
    }

    /// Does something to files of the folder; a renaming of the folder is noted only afterwards, and
    /// until then the name is given to no successor.
    pub fn in_place<T>(&self, act: impl FnOnce() -> T) -> T {
        let _stays = self.in_place.lock();
        act()
    }

    /// It was renamed.
    pub fn moved(&self, path: &Path) {
        let _after_that = self.in_place.lock();
        *self.path.write() = path.into();
    }

    /// A file of the folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.read().join(name)
    }

    /// A file of a segment.
    pub fn segment_file(&self, base_offset: i64, kind: FileKind) -> PathBuf {
        self.file(&names::file_name(base_offset, kind))
    }
}
