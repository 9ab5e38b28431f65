//! A partition's folder: where its files are, even after the folder was renamed.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::RwLock;

use crate::names::{self, FileKind};

/// The path of a partition's folder, shared by everything that opens files in it.
#[derive(Debug)]
pub(crate) struct Folder {
    path: RwLock<Arc<Path>>,
}

impl Folder {
    /// A folder at `path`.
    pub fn new(path: PathBuf) -> Arc<Self> {
        Arc::new(Self {
            path: RwLock::new(path.into()),
        })
    }

    /// Where it is now.
    pub fn path(&self) -> Arc<Path> {
        self.path.read().clone()
    }

    /// It was renamed.
    pub fn moved(&self, path: &Path) {
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
