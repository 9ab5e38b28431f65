//! OffsetCommit requests that need only the control plane's consent.
//!
//! A network thread decodes the request. The control plane checks the member, *stages* the commit
//! in the group's [`OffsetTable`] and returns it with others of its `__consumer_offsets` partition
//! (`DataPlane::append_commits`). The plane then writes records, table and answer
//! ([`crate::commit_batch`]). Requests that name a missing partition take the general path.

use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use pyrklog_wire::ErrorCode;
use pyrklog_wire::membership::Membership;
use pyrklog_wire::offset_commit::{NO_RETENTION, OffsetCommitRequest, OffsetCommitTopic};
use pyrklog_wire::offset_records::{NO_EXPIRY, OffsetValue, STRING_MAX_BYTES};

use crate::control_request::ControlRequest;
use crate::image::Image;
use crate::offset_table::{CommittedOffset, OffsetTable, Ticket};
use pyrklog_base::waiting_memory::Charge;

/// Bytes of a record besides its strings.
const RECORD_FIXED_BYTES: usize = 64;

/// See [`refusal`].
const ELEMENTS_MAX: usize = 50_000;

/// A smaller body cannot have so many elements.
const SMALL_BYTES: usize = 2 * ELEMENTS_MAX;

/// See the module.
#[derive(Debug)]
pub struct OffsetCommit {
    /// The request.
    pub request: ControlRequest,
    decoded: OffsetCommitRequest,
    metadata_units: usize,
    size_bytes: usize,
    staged: OnceLock<(Arc<OffsetTable>, Ticket)>,
    /// Memory while it waits for replication, even after the client's answer.
    charge: OnceLock<Charge>,
    /// Source of the newest image.
    images: Arc<ArcSwap<Image>>,
    /// Version of the image in which its partitions were looked up.
    image_version: u64,
}

impl OffsetCommit {
    /// Decodes a request.
    ///
    /// # Errors
    /// The request, for the general path, if it is malformed or empty or names a missing partition
    /// or an over-long string.
    pub fn decode(
        request: ControlRequest,
        images: &Arc<ArcSwap<Image>>,
    ) -> Result<OffsetCommit, Box<ControlRequest>> {
        let image = images.load();
        let body = &request.body;
        let Ok(decoded) = OffsetCommitRequest::decode(body, request.api_version) else {
            return Err(Box::new(request));
        };
        let group_bytes = decoded.membership.of(body).group_id.len();
        let (mut metadata_units, mut size_bytes) = (0, 0);
        let mut is_plain = group_bytes <= STRING_MAX_BYTES && !decoded.topics.is_empty();
        is_plain &= all_exist(&decoded, body, &image);
        for topic in &decoded.topics {
            let name = topic.name.text(body);
            is_plain &= !topic.partitions.is_empty();
            for partition in &topic.partitions {
                let metadata = partition.metadata.map_or("", |span| span.text(body));
                is_plain &= metadata.len() <= STRING_MAX_BYTES;
                metadata_units = metadata_units.max(utf16_units(metadata));
                size_bytes += group_bytes + name.len() + metadata.len() + RECORD_FIXED_BYTES;
            }
        }
        if !is_plain {
            return Err(Box::new(request));
        }
        Ok(OffsetCommit {
            request,
            decoded,
            metadata_units,
            size_bytes,
            staged: OnceLock::new(),
            charge: OnceLock::new(),
            images: Arc::clone(images),
            image_version: image.version(),
        })
    }

    /// The committing member.
    pub fn membership(&self) -> Membership<'_> {
        self.decoded.membership.of(&self.request.body)
    }

    /// UTF-16 units of the longest metadata: Kafka's limit counts these.
    pub fn metadata_units(&self) -> usize {
        self.metadata_units
    }

    /// Charges its memory while it waits for replication; once.
    pub fn hold(&self, charge: impl FnOnce() -> Charge) {
        self.charge.get_or_init(charge);
    }

    /// The answer's body, with one error for all offsets.
    pub fn encode_answer(&self, error: ErrorCode) -> Vec<u8> {
        let ControlRequest {
            api_version, body, ..
        } = &self.request;
        let mut answer = Vec::with_capacity(64);
        self.decoded
            .encode_answer(body, *api_version, error, &mut answer);
        answer
    }

    /// About the size of its records.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    /// Stages its offsets in the group's table. False, without effect, if it was staged before or a
    /// partition was deleted since: deleted topics' offsets may already have been removed.
    pub fn stage(&self, table: &Arc<OffsetTable>, ticket: Ticket) -> bool {
        let image = self.images.load();
        let is_known = image.version() == self.image_version
            || all_exist(&self.decoded, &self.request.body, &image);
        if !is_known {
            return false;
        }
        let is_first = self.staged.set((Arc::clone(table), ticket)).is_ok();
        if is_first {
            let body = &self.request.body;
            let partitions = self.decoded.partitions();
            table.stage(
                ticket,
                partitions.map(|(topic, one)| (topic.text(body), one.index)),
            );
        }
        is_first
    }

    /// (topic, partition, value) of each offset.
    pub fn values(&self, now_ms: i64) -> impl Iterator<Item = (&str, i32, OffsetValue<'_>)> {
        let body = &self.request.body;
        let retention_ms = self.decoded.retention_ms;
        let expire_ms = match retention_ms {
            NO_RETENTION => NO_EXPIRY,
            _ => now_ms.saturating_add(retention_ms),
        };
        self.decoded.partitions().map(move |(topic, one)| {
            let value = OffsetValue {
                offset: one.offset,
                leader_epoch: one.leader_epoch,
                metadata: one.metadata.map_or("", |span| span.text(body)),
                commit_ms: now_ms,
                expire_ms,
            };
            (topic.text(body), one.index, value)
        })
    }

    /// The append is over, with the first record at `base_offset`; returns the next commit's.
    pub fn finish(&self, error: ErrorCode, base_offset: i64, now_ms: i64) -> i64 {
        let Some((table, ticket)) = self.staged.get() else {
            return base_offset;
        };
        let mut record_offset = base_offset;
        let offsets = self.values(now_ms).map(|(topic, partition, value)| {
            let committed = (error == ErrorCode::NONE).then(|| CommittedOffset {
                record_offset,
                offset: value.offset,
                leader_epoch: value.leader_epoch,
                metadata: value.metadata.into(),
                commit_ms: value.commit_ms,
                expire_ms: value.expire_ms,
            });
            record_offset += 1;
            (topic, partition, committed)
        });
        table.finish(*ticket, offsets);
        record_offset
    }
}

fn all_exist(request: &OffsetCommitRequest, body: &[u8], image: &Image) -> bool {
    request.topics.iter().all(|topic| {
        let known = image.topic(topic.name.text(body));
        let exists = |index| known.is_some_and(|known| known.partition(index).is_some());
        topic.partitions.iter().all(|one| exists(one.index))
    })
}

/// Refuses commits with so many topics and partitions that their records would exceed
/// `max.message.bytes` of `__consumer_offsets` several times. With `no_room` (no memory for waiting
/// commits) refuses any commit; clients retry. Malformed bodies are judged elsewhere.
pub fn refusal(body: &[u8], api_version: i16, no_room: bool) -> Option<Vec<u8>> {
    if body.len() < SMALL_BYTES && !no_room {
        return None;
    }
    let request = OffsetCommitRequest::decode(body, api_version).ok()?;
    let elements = |topic: &OffsetCommitTopic| 1 + topic.partitions.len();
    let error = if request.topics.iter().map(elements).sum::<usize>() > ELEMENTS_MAX {
        ErrorCode::INVALID_COMMIT_OFFSET_SIZE
    } else if no_room {
        ErrorCode::COORDINATOR_NOT_AVAILABLE
    } else {
        return None;
    };
    let mut answer = Vec::new();
    request.encode_answer(body, api_version, error, &mut answer);
    Some(answer)
}

fn utf16_units(text: &str) -> usize {
    if text.is_ascii() {
        text.len()
    } else {
        text.encode_utf16().count()
    }
}
