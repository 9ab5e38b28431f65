//! The leader epochs of a log that is being opened.

use crate::disk;
use crate::leader_epochs::LeaderEpochs;
use crate::names;
use crate::open::files::FolderFiles;
use crate::open::load::LoadedState;
use crate::open::{Loader, OpenError};
use crate::scan::{ScanError, WALK_CHUNK_BYTES};

/// A larger file is not read.
const SMALL_FILE_BYTES_MAX: u64 = 64 << 20;

impl Loader<'_> {
    /// Reads the checkpoint; if missing or unreadable, takes the epochs from the batches.
    pub(super) fn load_epochs(
        &self,
        files: &FolderFiles,
        loading: &mut LoadedState,
    ) -> Result<(), OpenError> {
        let path = self.folder.file(names::LEADER_EPOCH_CHECKPOINT);
        if files.has_epochs {
            let content = disk::read_file(self.env.disk(), &path, SMALL_FILE_BYTES_MAX)?;
            let parsed = LeaderEpochs::parse(&path.to_string_lossy(), &content);
            match parsed {
                // Without a final line feed the file is incomplete, and its last number may lack
                // digits.
                Ok(_) if !content.ends_with(b"\n") => {}
                // Batches always come with epochs, so an empty file was lost.
                Ok(epochs) if epochs.entries().is_empty() => {}
                Ok(epochs) => {
                    loading.epochs = epochs;
                    return Ok(());
                }
                Err(error) => loading
                    .report
                    .notes
                    .push(format!("rebuilding the leader epochs: {error}")),
            }
        }
        for segment in loading.segments.clone() {
            if segment.size() == 0 {
                continue;
            }
            let mut scanner = segment.walk(0, WALK_CHUNK_BYTES);
            loop {
                match scanner.next_header() {
                    Ok(Some(met)) => {
                        let header = met.header;
                        loading.note_epoch(header.partition_leader_epoch, header.base_offset);
                    }
                    Ok(None) => break,
                    Err(ScanError::Io(error)) => return Err(error.into()),
                    // Recovery handles a torn tail.
                    Err(ScanError::NotABatch { .. }) => return Ok(()),
                }
            }
        }
        Ok(())
    }

    pub(crate) fn write_epochs(&self, epochs: &LeaderEpochs) -> Result<(), OpenError> {
        let path = self.folder.file(names::LEADER_EPOCH_CHECKPOINT);
        Ok(disk::replace_file_unsynced(
            self.env.disk(),
            &path,
            epochs.encode().as_bytes(),
        )?)
    }
}
