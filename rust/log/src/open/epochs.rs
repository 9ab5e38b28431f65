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
    /// Takes the epochs of the checkpoint. If it has none, or they begin behind the log, takes those
    /// of the batches.
    pub(super) fn load_epochs(
        &self,
        known: LeaderEpochs,
        loading: &mut LoadedState,
    ) -> Result<(), OpenError> {
        let earliest = known.earliest().map(|epoch| epoch.start_offset);
        let begins = loading.log_start.max(loading.segments[0].base_offset());
        // Segments with messages of old formats had none, before they were converted.
        let has_all = earliest.is_some_and(|start| start <= begins || self.has_unwritten());
        if has_all {
            loading.epochs = known;
            return Ok(());
        }
        self.epochs_of_batches(loading, earliest.unwrap_or(i64::MAX))?;
        for entry in known.entries() {
            loading.note_epoch(entry.epoch, entry.start_offset);
        }
        // Nothing lies before the first batch, and the next opening need not walk.
        loading.epochs_changed |= loading.epochs.begin_at(begins);
        Ok(())
    }

    /// The epochs in the checkpoint; none if it is missing or unreadable, and a note about that.
    pub(super) fn known_epochs(
        &self,
        files: &FolderFiles,
    ) -> Result<(LeaderEpochs, Option<String>), OpenError> {
        if !files.has_epochs {
            return Ok((LeaderEpochs::new(), None));
        }
        let path = self.folder.file(names::LEADER_EPOCH_CHECKPOINT);
        let content = disk::read_file(self.env.disk(), &path, SMALL_FILE_BYTES_MAX)?;
        Ok(
            match LeaderEpochs::parse(&path.to_string_lossy(), &content) {
                // Without a final line feed the file is incomplete, and its last number may lack digits.
                Ok(_) if !content.ends_with(b"\n") => (LeaderEpochs::new(), None),
                // Batches always come with epochs, so an empty file was lost.
                Ok(epochs) => (epochs, None),
                Err(error) => {
                    let note = format!("rebuilding the leader epochs: {error}");
                    (LeaderEpochs::new(), Some(note))
                }
            },
        )
    }

    /// Those of batches below `end`.
    fn epochs_of_batches(&self, loading: &mut LoadedState, end: i64) -> Result<(), OpenError> {
        let mut log_end = loading.segments[0].base_offset();
        for segment in loading.segments.clone() {
            if segment.base_offset() >= end {
                return Ok(());
            }
            if segment.size() == 0 {
                continue;
            }
            let mut scanner = segment.walk(0, WALK_CHUNK_BYTES);
            loop {
                match scanner.next_header() {
                    Ok(Some(met)) => {
                        let header = met.header;
                        if header.base_offset >= end {
                            return Ok(());
                        }
                        let start = self.config.epoch_start(header.base_offset, log_end);
                        loading.note_epoch(header.partition_leader_epoch, start);
                        log_end = header.last_offset() + 1;
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
