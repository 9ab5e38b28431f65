//! A partition's folder, which may be renamed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::names::{self, FileKind};

/// The path of a partition's folder, shared by everything that opens files in it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: RwLock<Arc<Path>>,
    /// Held while files of the folder are renamed.
    in_place: Mutex<()>,
}

impl Folder {
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            path: RwLock::new(path.into()),
            in_place: Mutex::default(),
        })
    }

    pub fn path(&self) -> Arc<Path> {
        self.path.read().clone()
    }

    /// Acts on files of the folder. A rename of the folder waits until then, so its name cannot go
    /// to a successor meanwhile.
    pub fn in_place<T>(&self, act: impl FnOnce() -> T) -> T {
        let _stays = self.in_place.lock();
        act()
    }

    pub fn moved(&self, path: &Path) {
        let _after_that = self.in_place.lock();
        *self.path.write() = path.into();
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path.read().join(name)
    }

    pub fn segment_file(&self, base_offset: i64, kind: FileKind) -> PathBuf {
        self.file(&names::file_name(base_offset, kind))
    }
}
