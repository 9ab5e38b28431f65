//! The transaction indexes of a folder: reading them, and entering what a kill kept from them.

use crate::disk;
use crate::names::FileKind;
use crate::open::load::LoadedState;
use crate::open::producers::Aborted;
use crate::open::{Loader, OpenError, OpenReport, files};
use crate::transaction_index::{ENTRY_BYTES, TransactionIndex, TransactionIndexError};

/// The part of a transaction index's last entry that was written when the kill came.
#[derive(Debug)]
pub(super) struct TornEntry {
    base_offset: i64,
    position: usize,
    bytes: Vec<u8>,
}

impl Loader<'_> {
    /// Reads all transaction indexes: they exist only where transactions were aborted. Returns the
    /// segment whose index must be built anew, with all that follow it, from the batches.
    ///
    /// # Errors
    /// One cannot be read while the block cache holds records that are not written: nothing is built
    /// anew then. An entry that is torn is not among these, see [`Loader::enter_aborted`].
    pub(super) fn load_transaction_indexes(
        &self,
        files: &files::FolderFiles,
        loading: &mut LoadedState,
        report: &mut OpenReport,
    ) -> Result<Option<i64>, OpenError> {
        for &base_offset in &files.transaction_indexes {
            let path = self
                .folder
                .segment_file(base_offset, FileKind::TransactionIndex);
            let mut content = disk::read_file(self.env.disk(), &path, i32::MAX as u64)?;
            let mut loaded = TransactionIndex::load(base_offset, &content);
            if let (Err(TransactionIndexError::PartialEntry(len)), true) =
                (&loaded, self.has_unwritten())
            {
                let position = len / ENTRY_BYTES * ENTRY_BYTES;
                let bytes = content.split_off(position);
                loaded = TransactionIndex::load(base_offset, &content);
                loading.torn_aborted.push(TornEntry {
                    base_offset,
                    position,
                    bytes,
                });
            }
            match loaded {
                Ok(index) if index.is_empty() => {}
                Ok(index) => {
                    loading.aborted.insert(base_offset, index);
                }
                Err(_) if self.has_unwritten() => {
                    return Err(self.unreadable(base_offset));
                }
                Err(error) => {
                    report
                        .notes
                        .push(format!("rebuilding {}: {error}", path.display()));
                    return Ok(Some(base_offset));
                }
            }
        }
        Ok(None)
    }

    fn unreadable(&self, base_offset: i64) -> OpenError {
        let kind = FileKind::TransactionIndex;
        let path = self.folder.segment_file(base_offset, kind);
        OpenError::Corrupt(format!(
            "{} cannot be read, and the block cache holds records that are not written; remove it, and it is built anew",
            path.display()
        ))
    }

    /// Enters transactions that were aborted and are not in their segment's index yet. An entry that
    /// a kill tore is among them, since its marker lies behind the last snapshot of the producers:
    /// both are queued for the writer in this order.
    ///
    /// # Errors
    /// What was found is not what the torn entry began with; or an index cannot be written.
    pub(super) fn enter_aborted(
        &self,
        loading: &mut LoadedState,
        aborted: Aborted,
        log_start: i64,
    ) -> Result<(), OpenError> {
        for (base_offset, txn) in aborted {
            let index = loading
                .aborted
                .entry(base_offset)
                .or_insert_with(|| TransactionIndex::new(base_offset));
            // An entry that does not rise above the last one was there already.
            if index.append(txn).is_ok() {
                self.replace_transaction_index(base_offset, &index.to_bytes())?;
            }
        }
        for torn in std::mem::take(&mut loading.torn_aborted) {
            let index = loading.aborted.get(&torn.base_offset);
            let content = index.map(TransactionIndex::to_bytes).unwrap_or_default();
            if !content[torn.position..].starts_with(&torn.bytes) {
                // Markers below the log start are not looked at, and nobody asks for them.
                if torn.base_offset >= log_start {
                    return Err(self.unreadable(torn.base_offset));
                }
                self.replace_transaction_index(torn.base_offset, &content)?;
            }
        }
        Ok(())
    }

    fn replace_transaction_index(&self, base_offset: i64, bytes: &[u8]) -> Result<(), OpenError> {
        let path = self
            .folder
            .segment_file(base_offset, FileKind::TransactionIndex);
        Ok(disk::replace_file_unsynced(self.env.disk(), &path, bytes)?)
    }
}
