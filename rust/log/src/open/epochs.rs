//! The leader epochs of a log that is being opened.

use crate::disk;
use crate::leader_epochs::LeaderEpochs;
use crate::names;
use crate::open::files::FolderFiles;
use crate::open::load::LoadedState;
use crate::open::request::SMALL_FILE_BYTES_MAX;
use crate::open::{Loader, OpenError, OpenReport};
use crate::scan::{BatchScanner, ScanError, WALK_CHUNK_BYTES};
use crate::wait::Wait;

impl Loader<'_> {
    /// Reads the checkpoint; if missing or unreadable, takes the epochs from the batches.
    pub(super) fn load_epochs(
        &self,
        files: &FolderFiles,
        loading: &mut LoadedState,
        report: &mut OpenReport,
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
                Err(error) => report
                    .notes
                    .push(format!("rebuilding the leader epochs: {error}")),
            }
        }
        for segment in &loading.segments {
            if segment.size() == 0 {
                continue;
            }
            let bytes = segment.bytes();
            let mut scanner =
                BatchScanner::new(&bytes, 0, segment.size(), WALK_CHUNK_BYTES, Wait::Blocking);
            loop {
                match scanner.next_header() {
                    Ok(Some(met)) => {
                        let (epoch, offset) =
                            (met.header.partition_leader_epoch, met.header.base_offset);
                        let newest = loading.epochs.latest().map_or(-1, |entry| entry.epoch);
                        if epoch > newest {
                            loading.epochs_changed |= loading.epochs.assign(epoch, offset);
                        }
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
