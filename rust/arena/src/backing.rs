//! Which chunks have memory (`block-cache.md`, sections 1 and 2).

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{SeekFrom, seek};

use crate::layout::{CHUNK_BYTES, PAGE_BYTES, VERSION, chunk_at};

/// Chunks by whether they have memory. Under the arena's lock.
#[derive(Debug, Default)]
pub(crate) struct Backing {
    /// Chunks from here on never had memory.
    ever: u32,
    /// The header's copy of `ever`.
    ever_stored: u32,
    /// Chunks below `ever` without memory.
    holes: BTreeSet<u32>,
    /// The file has an earlier version, which knows no holes.
    is_earlier: bool,
}

impl Backing {
    /// As an earlier life left it.
    pub fn found(ever: u32, holes: impl Iterator<Item = u32>, version: u32) -> Backing {
        Backing {
            ever,
            ever_stored: ever,
            holes: holes.collect(),
            is_earlier: version != VERSION,
        }
    }

    pub fn ever(&self) -> u32 {
        self.ever
    }

    pub fn is_hole(&self, chunk: u32) -> bool {
        self.holes.contains(&chunk)
    }

    /// A chunk lost its memory, or got none.
    pub fn add_hole(&mut self, chunk: u32) {
        self.holes.insert(chunk);
    }

    /// A chunk got memory. Returns the number of chunks ever populated if the header has to be
    /// raised to it.
    pub fn ever_to_store(&mut self, chunk: u32) -> Option<u32> {
        if self.ever_stored > chunk {
            return None;
        }
        self.ever_stored = chunk + 1;
        Some(self.ever_stored)
    }

    /// Whether the header still has an earlier version, which knows no holes. True once.
    pub fn take_is_earlier(&mut self) -> bool {
        std::mem::take(&mut self.is_earlier)
    }

    /// Chunks that have memory, or are about to.
    pub fn backed(&self) -> u32 {
        self.ever - self.holes.len() as u32
    }

    /// Chooses a chunk that is to get memory.
    pub fn take(&mut self) -> u32 {
        self.holes.pop_first().unwrap_or_else(|| {
            self.ever += 1;
            self.ever - 1
        })
    }
}

/// Which pages of a chunk the file has memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// None, or not the first page.
    NoFirst,
    /// The first page, but not all.
    Some,
    All,
}

/// The pages of the chunks below `ever` that have memory; all of them if the file system cannot
/// tell.
pub(crate) fn pages_of(file: Option<&File>, ever: u32) -> Vec<Pages> {
    let mut pages = vec![Pages::All; ever as usize];
    let Some(file) = file else { return pages };
    let end = chunk_at(ever) as u64;
    let mut at = chunk_at(0) as u64;
    while at < end {
        let Ok(hole) = seek(file, SeekFrom::Hole(at)) else {
            break;
        };
        let data = match seek(file, SeekFrom::Data(hole)) {
            Ok(data) => data.min(end),
            Err(_) => end,
        };
        mark(&mut pages, hole.min(end), data);
        at = data;
    }
    for (chunk, pages) in (0..).zip(&mut pages) {
        // A file system that tells wrong loses nothing. Reading makes no page, unlike a mapping.
        if *pages == Pages::NoFirst && is_carved(file, chunk) {
            *pages = Pages::Some;
        }
    }
    pages
}

fn is_carved(file: &File, chunk: u32) -> bool {
    let mut state = [0; 4];
    let is_read = file.read_exact_at(&mut state, chunk_at(chunk) as u64);
    is_read.is_ok() && state != [0; 4]
}

/// Marks `from..to` as having no memory.
fn mark(pages: &mut [Pages], from: u64, to: u64) {
    let start = chunk_at(0) as u64;
    let chunk_bytes = CHUNK_BYTES as u64;
    let mut at = from;
    while at < to {
        let chunk = (at - start) / chunk_bytes;
        let within = (at - start) % chunk_bytes;
        let one = &mut pages[chunk as usize];
        *one = match within < PAGE_BYTES as u64 {
            true => Pages::NoFirst,
            false if *one == Pages::All => Pages::Some,
            false => *one,
        };
        at = start + (chunk + 1) * chunk_bytes;
    }
}
