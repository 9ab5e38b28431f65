//! `DataPlane`: each command passes its arguments to the plane with the GIL released.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::prelude::*;
use pyrklog_dataplane::seam;

use crate::config::{cleaner_config, connection_quotas, plane_config};
use crate::errors;
use crate::events::{self, text};
use crate::image::{follower_specs, image_delta, leader_specs};
use crate::internal::{Record, borrowed};
use crate::member_requests::{Heartbeat, OffsetCommit};
use crate::offsets::CommitBatch;
use crate::transactions::{self, ActiveProducer, Marker};

/// (error code, own log start offset, (broker, log start offset) of each follower).
type LogStarts = (i16, i64, Vec<(i32, i64)>);

/// `pyrklog_dataplane::DataPlane`.
#[pyclass(frozen, module = "pyrklog._core")]
pub struct DataPlane(Arc<pyrklog_dataplane::DataPlane>);

#[cfg(feature = "sim")]
impl From<&Arc<pyrklog_dataplane::DataPlane>> for DataPlane {
    fn from(plane: &Arc<pyrklog_dataplane::DataPlane>) -> Self {
        Self(Arc::clone(plane))
    }
}

type Found = (String, i32, Option<seam::TopicId>, String);

#[pymethods]
impl DataPlane {
    #[new]
    fn new(py: Python<'_>, settings: &Bound<'_, PyAny>) -> PyResult<Self> {
        let config = plane_config(settings)?;
        py.detach(|| pyrklog_dataplane::DataPlane::open(config))
            .map(|plane| Self(Arc::new(plane)))
            .map_err(errors::open)
    }

    fn found_partitions(&self, py: Python<'_>) -> Vec<Found> {
        let found = py.detach(|| self.0.found_partitions());
        found
            .into_iter()
            .map(|one| (one.topic, one.partition, one.topic_id, text(&one.log_dir)))
            .collect()
    }

    fn pasts(&self, py: Python<'_>) -> Vec<(Option<i64>, bool)> {
        let pasts = py.detach(|| self.0.pasts());
        pasts
            .into_iter()
            .map(|past| (past.closed_at_epoch, past.is_reattached))
            .collect()
    }

    fn listen(
        &self,
        py: Python<'_>,
        listener: &str,
        host: &str,
        port: u16,
        for_brokers: bool,
    ) -> PyResult<u16> {
        py.detach(|| self.0.listen(listener, host, port, for_brokers))
            .map_err(|error| errors::os(&error, None))
    }

    fn apply_image(&self, py: Python<'_>, delta: &Bound<'_, PyAny>) -> PyResult<()> {
        let delta = image_delta(delta)?;
        py.detach(|| self.0.apply_image(delta))
            .map_err(errors::image)
    }

    fn become_leaders(
        &self,
        py: Python<'_>,
        specs: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<seam::TicketId> {
        let specs = leader_specs(&specs)?;
        py.detach(|| self.0.become_leaders(specs))
            .map_err(errors::closed)
    }

    fn become_followers(
        &self,
        py: Python<'_>,
        specs: Vec<Bound<'_, PyAny>>,
    ) -> PyResult<seam::TicketId> {
        let specs = follower_specs(&specs)?;
        py.detach(|| self.0.become_followers(specs))
            .map_err(errors::closed)
    }

    fn log_ends(&self, py: Python<'_>, partitions: Vec<(String, i32)>) -> Vec<Option<(i32, i64)>> {
        py.detach(|| self.0.log_ends(&partitions))
    }

    fn replica_offsets(
        &self,
        py: Python<'_>,
        partitions: Vec<(String, i32)>,
    ) -> Vec<Option<(i64, i64, i64, u64)>> {
        py.detach(|| self.0.replica_offsets(&partitions))
    }

    fn served_bytes(&self, py: Python<'_>, topic: &str) -> (u64, u64) {
        py.detach(|| self.0.served_bytes(topic))
    }

    fn data_ends(&self, py: Python<'_>, partitions: Vec<(String, i32)>) -> Vec<Option<i64>> {
        py.detach(|| self.0.data_ends(&partitions))
    }

    #[expect(clippy::too_many_arguments, reason = "one a field, as in the stub")]
    fn set_isr(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        leader_epoch: i32,
        members: Vec<i32>,
        isr: Vec<i32>,
        is_held: bool,
    ) -> bool {
        py.detach(|| {
            self.0
                .set_isr(topic, partition, leader_epoch, &members, &isr, is_held)
        })
    }

    fn lagging_followers(
        &self,
        py: Python<'_>,
        max_lag_ms: i64,
    ) -> Vec<(String, i32, i32, Vec<i32>)> {
        let found = py.detach(|| self.0.lagging_followers(max_lag_ms));
        found
            .into_iter()
            .map(|one| (one.topic, one.partition, one.leader_epoch, one.brokers))
            .collect()
    }

    fn set_broker_epoch(&self, epoch: i64) {
        self.0.set_broker_epoch(epoch);
    }

    #[pyo3(signature = (*, leader_bytes, follower_bytes))]
    fn set_replication_rates(
        &self,
        py: Python<'_>,
        leader_bytes: Option<u64>,
        follower_bytes: Option<u64>,
    ) {
        py.detach(|| self.0.set_replication_rates(leader_bytes, follower_bytes));
    }

    fn set_back_fill_rate(&self, bytes: u64) {
        self.0.set_back_fill_rate(bytes);
    }

    fn set_replication_window_ms(&self, window_ms: i64) {
        self.0.set_replication_window_ms(window_ms);
    }

    fn set_move_rate(&self, bytes: Option<u64>) {
        self.0.set_move_rate(bytes);
    }

    fn set_move_window_ms(&self, window_ms: i64) {
        self.0.set_move_window_ms(window_ms);
    }

    /// `ConnectionQuotas` of `config/connection_quotas.py`.
    fn set_connection_quotas(&self, py: Python<'_>, quotas: &Bound<'_, PyAny>) -> PyResult<()> {
        let quotas = connection_quotas(quotas)?;
        py.detach(|| self.0.set_connection_quotas(quotas));
        Ok(())
    }

    fn set_io_threads(&self, py: Python<'_>, threads: usize) {
        py.detach(|| self.0.set_io_threads(threads));
    }

    fn set_recovery_threads_per_dir(&self, py: Python<'_>, threads: usize) {
        py.detach(|| self.0.set_recovery_threads_per_dir(threads));
    }

    fn set_producer_id_expiration_ms(&self, expiration_ms: i64) {
        self.0.set_producer_id_expiration_ms(expiration_ms);
    }

    fn set_cleaner(&self, py: Python<'_>, settings: &Bound<'_, PyAny>) -> PyResult<()> {
        let config = cleaner_config(settings)?;
        py.detach(|| self.0.set_cleaner(config));
        Ok(())
    }

    fn stop_partitions(
        &self,
        py: Python<'_>,
        specs: Vec<(String, i32, bool)>,
    ) -> PyResult<seam::TicketId> {
        let spec = |(topic, partition, delete)| seam::StopSpec {
            topic,
            partition,
            delete,
        };
        let specs = specs.into_iter().map(spec).collect();
        py.detach(|| self.0.stop_partitions(specs))
            .map_err(errors::closed)
    }

    fn delete_records(
        &self,
        py: Python<'_>,
        targets: Vec<(String, i32, i64)>,
    ) -> PyResult<seam::TicketId> {
        py.detach(|| self.0.delete_records(targets))
            .map_err(errors::closed)
    }

    /// The code is 0 without an error.
    fn log_starts(&self, py: Python<'_>, partitions: Vec<(String, i32)>) -> Vec<LogStarts> {
        let found = py.detach(|| self.0.log_starts(&partitions));
        let flat = found.into_iter().map(|one| match one {
            Ok((own, followers)) => (0, own, followers),
            Err(error) => (error.0, -1, Vec::new()),
        });
        flat.collect()
    }

    fn alter_log_dirs(
        &self,
        py: Python<'_>,
        wanted: Vec<(String, i32, String)>,
    ) -> PyResult<Vec<i16>> {
        py.detach(|| self.0.alter_log_dirs(&wanted))
            .map_err(errors::closed)
    }

    fn describe_log_dirs(&self, py: Python<'_>) -> PyResult<seam::TicketId> {
        py.detach(|| self.0.describe_log_dirs())
            .map_err(errors::closed)
    }

    #[pyo3(signature = (
        topic, partition, records, *, timestamp_ms, codec, expected_epoch, producer, guard
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword a field, as in the stub"
    )]
    fn append_internal(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        records: Vec<Record>,
        timestamp_ms: i64,
        codec: u8,
        expected_epoch: i32,
        producer: Option<(i64, i16)>,
        guard: Option<u64>,
    ) -> PyResult<seam::TicketId> {
        let append = seam::InternalAppend {
            topic,
            partition,
            timestamp_ms,
            codec,
            expected_epoch,
            producer,
            guard,
        };
        let records = &records;
        py.detach(|| {
            self.0
                .append_internal(&append, records.iter().map(borrowed))
        })
        .map_err(errors::closed)
    }

    #[pyo3(signature = (
        topic, partition, commits, *, timestamp_ms, codec, expected_epoch
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword a field, as in the stub"
    )]
    fn append_commits(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        commits: Vec<Bound<'_, OffsetCommit>>,
        timestamp_ms: i64,
        codec: u8,
        expected_epoch: i32,
    ) -> PyResult<CommitBatch> {
        let append = seam::InternalAppend {
            topic,
            partition,
            timestamp_ms,
            codec,
            expected_epoch,
            producer: None,
            guard: None,
        };
        let commits = commits
            .iter()
            .map(|commit| commit.get().0.clone())
            .collect();
        py.detach(|| self.0.append_commits(&append, commits))
            .map(|batch| CommitBatch(Arc::downgrade(&batch)))
            .map_err(errors::closed)
    }

    fn time_out_commits(&self, py: Python<'_>, batch: &Bound<'_, CommitBatch>) {
        if let Some(batch) = batch.get().0.upgrade() {
            py.detach(|| self.0.time_out_commits(&batch));
        }
    }

    #[pyo3(signature = (topic, partition, offset, *, max_bytes))]
    fn read_internal(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        offset: i64,
        max_bytes: usize,
    ) -> PyResult<seam::TicketId> {
        py.detach(|| self.0.read_internal(topic, partition, offset, max_bytes))
            .map_err(errors::closed)
    }

    #[pyo3(signature = (topic, partition, *, max_bytes))]
    fn load_internal(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        max_bytes: usize,
    ) -> PyResult<seam::TicketId> {
        py.detach(|| self.0.load_internal(topic, partition, max_bytes))
            .map_err(errors::closed)
    }

    #[pyo3(signature = (markers, *, timestamp_ms))]
    fn write_markers(
        &self,
        py: Python<'_>,
        markers: Vec<Marker>,
        timestamp_ms: i64,
    ) -> PyResult<seam::TicketId> {
        let markers: Vec<_> = markers.into_iter().map(transactions::marker).collect();
        py.detach(|| self.0.write_markers(&markers, timestamp_ms))
            .map_err(errors::closed)
    }

    /// The code is 0 without an error.
    fn begin_verification(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        producer_id: i64,
        producer_epoch: i16,
    ) -> (i16, u64) {
        let producer = (producer_id, producer_epoch);
        let begun = py.detach(|| self.0.begin_verification(topic, partition, producer));
        begun.map_or_else(|error| (error.0, 0), |guard| (0, guard))
    }

    fn end_verification(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        producer_id: i64,
        producer_epoch: i16,
        guard: u64,
    ) {
        let producer = (producer_id, producer_epoch);
        py.detach(|| self.0.end_verification(topic, partition, producer, guard));
    }

    fn transaction_verified(&self, py: Python<'_>, id: u64, errors: Vec<i16>) {
        py.detach(|| self.0.transaction_verified(id, &errors));
    }

    fn set_transaction_verification(&self, is_on: bool) {
        self.0.set_transaction_verification(is_on);
    }

    fn offer_client_metrics(&self, is_on: bool) {
        self.0.offer_client_metrics(is_on);
    }

    /// The code is 0 without an error.
    #[pyo3(signature = (topic, partition, *, max))]
    fn active_producers(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        max: usize,
    ) -> (i16, Vec<ActiveProducer>) {
        match py.detach(|| self.0.active_producers(topic, partition, max)) {
            Ok(found) => {
                let found = found.iter().map(transactions::active_producer);
                (0, found.collect())
            }
            Err(error) => (error.0, Vec::new()),
        }
    }

    #[pyo3(signature = (topic, partition, start, end, *, max_bytes))]
    fn replica_digest(
        &self,
        py: Python<'_>,
        topic: &str,
        partition: i32,
        start: i64,
        end: i64,
        max_bytes: usize,
    ) -> PyResult<seam::TicketId> {
        let range = seam::DigestRange {
            start,
            end,
            max_bytes,
        };
        py.detach(|| self.0.replica_digest(topic, partition, range))
            .map_err(errors::closed)
    }

    fn reply(&self, py: Python<'_>, request: seam::RequestId, body: Vec<u8>) {
        py.detach(|| self.0.reply(request, body));
    }

    fn answer_heartbeat(&self, py: Python<'_>, heartbeat: &Bound<'_, Heartbeat>, error: i16) {
        let heartbeat = &heartbeat.get().0;
        py.detach(|| {
            let body = heartbeat.answer(pyrklog_wire::ErrorCode(error));
            self.0.reply(heartbeat.request.id, body);
        });
    }

    fn resume(&self, py: Python<'_>, request: seam::RequestId, errors: BTreeMap<String, i16>) {
        py.detach(|| self.0.resume(request, errors.into_iter().collect()));
    }

    fn close_request(&self, py: Python<'_>, request: seam::RequestId) {
        py.detach(|| self.0.close_request(request));
    }

    fn park(&self, py: Python<'_>, request: seam::RequestId) -> bool {
        py.detach(|| self.0.park(request))
    }

    fn statistics(&self, py: Python<'_>) -> BTreeMap<String, u64> {
        py.detach(|| self.0.statistics()).into_iter().collect()
    }

    fn times(&self, py: Python<'_>) -> Vec<(String, Vec<u64>)> {
        py.detach(|| self.0.times())
    }

    fn shutdown(&self, py: Python<'_>, grace_ms: i64) -> seam::TicketId {
        py.detach(|| self.0.shutdown(grace_ms))
    }

    fn abandon(&self, py: Python<'_>) {
        py.detach(|| self.0.abandon());
    }

    fn event_fd(&self) -> i32 {
        self.0.event_fd()
    }

    fn drain_events(&self, py: Python<'_>, max: usize) -> PyResult<Vec<Py<PyAny>>> {
        let drained = py.detach(|| self.0.drain_events(max));
        drained
            .into_iter()
            .map(|event| events::into_python(py, event))
            .collect()
    }
}
