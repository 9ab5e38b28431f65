//! The caller's side of a scan.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_schema::{ArrowError, SchemaRef};
use pyrklog_client::{Cancel, Waker};

use crate::ask::FetchTerms;
use crate::assign::Lanes;
use crate::bad_rows::{BadRecords, BadRows};
use crate::bad_writer::{BadRecordSink, BadWriter};
use crate::columns::Columns;
use crate::coordinator::{Coordinator, WorkerHandle, leaders};
use crate::decode::{DecodeLimits, Decoder};
use crate::error::{ErrorKind, Result, ScanError};
use crate::left_out::{LeftOut, LeftOuts};
use crate::openers::Openers;
use crate::options::ScanOptions;
use crate::plan::Plan;
use crate::progress::{Progress, SplitProgress};
use crate::queue::{Popped, Queue};
use crate::rows::{BatchLimits, Rows};
use crate::split::{Cursor, Split};
use crate::threads;
use crate::worker::{Event, Shared, Worker, WorkerTerms};

/// How often a caller asks whether to stop.
const LOOK: Duration = Duration::from_millis(100);
const LANES_MAX: usize = 1024;
const LANE_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=8 << 20;
const EXPANDED_BYTES_MAX: usize = 8 << 20;

/// Asked when the caller wants a batch, and while it waits for one: true ends the scan.
pub type Interrupt = Box<dyn Fn() -> bool + Send>;

/// How the memory of a scan is shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryShares {
    /// Batches that wait for the caller.
    pub queue: usize,
    /// A worker's batch.
    pub batch: usize,
    /// A worker's buffer for expanded batches.
    pub expanded: usize,
    /// A lane's answer.
    pub lane: usize,
    pub lanes_max: usize,
}

impl MemoryShares {
    /// A quarter is for the queue, a quarter for workers, half for lanes; `lanes` are expected.
    pub fn of(options: &ScanOptions, lanes: usize) -> MemoryShares {
        let memory = options.memory_bytes;
        let of_worker = memory / 8 / options.threads;
        let expanded = of_worker.min(EXPANDED_BYTES_MAX);
        let lanes_max = (memory / 2 / LANE_BYTES.start()).min(LANES_MAX);
        let lanes = lanes.clamp(1, lanes_max);
        MemoryShares {
            queue: memory / 4,
            batch: options.batch_bytes.min(of_worker),
            expanded: expanded.min(options.large_bytes),
            lane: (memory / 2 / lanes).clamp(*LANE_BYTES.start(), *LANE_BYTES.end()),
            lanes_max,
        }
    }
}

/// Figures of a scan, while its reader is elsewhere, and its end.
#[derive(Clone, Debug)]
pub struct Status {
    splits: Arc<[Split]>,
    progress: Arc<Progress>,
    queue: Arc<Queue>,
    left_out: LeftOuts,
    cancel: Cancel,
    /// Of the writer of bad records, which works on when all is read.
    bad_cancel: Option<Cancel>,
}

impl Status {
    /// What is read.
    pub fn splits(&self) -> &[Split] {
        &self.splits
    }

    /// Figures of each split, in their order.
    pub fn progress(&self) -> Vec<SplitProgress> {
        self.progress.read()
    }

    /// Partitions without which it goes on so far.
    pub fn left_out(&self) -> Vec<LeftOut> {
        self.left_out.read()
    }

    /// The failure, if the scan has failed.
    pub fn failure(&self) -> Option<ScanError> {
        self.queue.failure()
    }

    /// Ends the scan. Its threads end soon; nothing waits for them.
    pub fn close(&self) {
        self.queue.close();
        self.cancel.cancel();
        if let Some(cancel) = &self.bad_cancel {
            cancel.cancel();
        }
    }
}

/// What a wait for a batch ends with.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The next one.
    Batch(RecordBatch),
    /// There are no more.
    End,
    /// None came in time.
    Nothing,
}

/// Reads the batches of a scan; dropping it ends the scan.
pub struct ScanReader {
    status: Status,
    columns: Arc<Columns>,
    bad_records: Option<BadWriter>,
    interrupt: Option<Interrupt>,
    /// When it was asked last.
    asked_at: Instant,
}

impl std::fmt::Debug for ScanReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScanReader").finish_non_exhaustive()
    }
}

impl Drop for ScanReader {
    fn drop(&mut self) {
        self.status.close();
    }
}

impl ScanReader {
    /// Starts the threads of a plan. With `bad_records`, records whose values do not fit are written
    /// there before the batch that they were in is given. `interrupt` is asked about ten times a
    /// second, on the caller's thread, also while batches come faster than they are taken: a reader of
    /// the C stream may ask for one after the other without another look at signals.
    ///
    /// # Errors
    /// The system has no thread or file descriptor left.
    pub fn start(
        plan: Plan,
        bad_records: Option<BadRecordSink>,
        interrupt: Option<Interrupt>,
    ) -> Result<ScanReader> {
        let Plan {
            splits,
            left_out,
            options,
            client,
        } = plan;
        let cancel = client.cancel().clone();
        let progress = Arc::new(Progress::new(&splits));
        let cursors: Vec<Cursor> = splits
            .iter()
            .enumerate()
            .map(|(number, split)| Cursor::new(number, split))
            .filter(|cursor| !cursor.is_done())
            .collect();
        let brokers = leaders(client.metadata(), &cursors);
        let shares = MemoryShares::of(&options, brokers.max(options.threads));
        let queue = Arc::new(Queue::new(shares.queue, Arc::clone(&progress)));
        let shared = Shared::new(Arc::clone(&queue), cancel.clone());
        // From here on an error ends the threads that have started.
        let reader = ScanReader {
            status: Status {
                splits: splits.into(),
                progress: Arc::clone(&progress),
                queue,
                left_out: LeftOuts::new(left_out),
                cancel,
                bad_cancel: bad_records.as_ref().map(|sink| sink.cancel.clone()),
            },
            columns: Arc::clone(&options.columns),
            bad_records: bad_records.map(BadWriter::start).transpose()?,
            interrupt,
            asked_at: Instant::now(),
        };
        let terms = fetch_terms(&options, shares);
        let keeps_bad = reader.bad_records.is_some();
        let workers = options.threads.min(cursors.len()).max(1);
        let (events, heard) = channel();
        let handles = (0..workers)
            .map(|number| {
                let decoder = decoder(&options, shares, &shared, number, keeps_bad);
                let terms = WorkerTerms {
                    fetch: Arc::clone(&terms),
                    large_bytes: options.large_bytes,
                };
                start_worker(number, &shared, terms, decoder, events.clone())
            })
            .collect::<Result<Vec<_>>>()?;
        let openers = Openers::new(client.opener(), events);
        let lanes = Lanes::new(workers, brokers, shares.lanes_max);
        let coordinator = Coordinator::new(
            client,
            shared,
            progress,
            terms,
            (options.missing, options.unanswered),
            reader.status.left_out.clone(),
            handles,
            heard,
            openers,
            lanes,
            cursors,
        );
        threads::start("scan-coordinator", move || coordinator.run())?;
        Ok(reader)
    }

    /// Figures, for those who do not hold the reader.
    pub fn status(&self) -> Status {
        self.status.clone()
    }

    /// The next batch; `None` at the end. Waits for it.
    ///
    /// # Errors
    /// The scan has failed or was interrupted; nothing follows.
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            match self.next_within(LOOK)? {
                Next::Batch(batch) => return Ok(Some(batch)),
                Next::End => return Ok(None),
                Next::Nothing => {}
            }
        }
    }

    /// The next batch, if it comes in time. Bad records of one that has come are waited for.
    ///
    /// # Errors
    /// As [`ScanReader::next_batch`].
    pub fn next_within(&mut self, most: Duration) -> Result<Next> {
        let since = Instant::now();
        loop {
            // Before a batch is taken: one that was taken counts as delivered.
            self.look()?;
            let left = most.saturating_sub(since.elapsed());
            match self.status.queue.pop(left.min(LOOK)) {
                Popped::Batch(output) => {
                    let has_bad = output.bad.is_some();
                    if let Some(bad) = output.bad {
                        self.write_bad(bad)?;
                    }
                    // One without a row was there for its bad records.
                    if !has_bad || output.batch.num_rows() > 0 {
                        return Ok(Next::Batch(output.batch));
                    }
                }
                Popped::End => return Ok(Next::End),
                Popped::Failed(error) => return Err(error),
                Popped::Nothing if left.is_zero() => return Ok(Next::Nothing),
                Popped::Nothing => {}
            }
        }
    }

    /// Waits until they are written. They are those of the batch taken last.
    fn write_bad(&mut self, bad: BadRecords) -> Result<()> {
        let Some(writer) = self.bad_records.take() else {
            return Err(ScanError::cancelled());
        };
        writer.send(bad);
        let answer = loop {
            match writer.answer(LOOK) {
                Some(answer) => break answer,
                None => self.look()?,
            }
        };
        if let Err(error) = &answer {
            self.status.queue.fail(error.clone());
            self.status.close();
        }
        answer?;
        self.status.queue.delivered();
        self.bad_records = Some(writer);
        Ok(())
    }

    /// Asks whether to stop, if it is time to.
    fn look(&mut self) -> Result<()> {
        let now = Instant::now();
        if now.saturating_duration_since(self.asked_at) < LOOK {
            return Ok(());
        }
        self.asked_at = now;
        if !self.interrupt.as_ref().is_some_and(|is_due| is_due()) {
            return Ok(());
        }
        let error = ScanError::new(ErrorKind::Interrupted, "the scan was interrupted");
        self.status.queue.fail(error.clone());
        self.status.close();
        Err(error)
    }
}

impl Iterator for ScanReader {
    type Item = std::result::Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_batch().transpose()?;
        Some(next.map_err(|error| {
            let text = error.to_string();
            ArrowError::IoError(text, std::io::Error::other(error))
        }))
    }
}

impl RecordBatchReader for ScanReader {
    fn schema(&self) -> SchemaRef {
        self.columns.schema()
    }
}

fn fetch_terms(options: &ScanOptions, shares: MemoryShares) -> Arc<FetchTerms> {
    Arc::new(FetchTerms {
        isolation: options.isolation,
        rack: options.rack.clone(),
        bytes: shares.lane,
        timeout: options.timeout,
        request_timeout: options.client.request_timeout,
    })
}

fn start_worker(
    number: usize,
    shared: &Shared,
    terms: WorkerTerms,
    decoder: Decoder,
    events: Sender<Event>,
) -> Result<WorkerHandle> {
    let (commands, orders) = channel();
    let waker = Arc::new(Waker::new().map_err(threads::resources)?);
    let worker = Worker {
        number,
        shared: shared.clone(),
        terms,
        decoder,
        commands: orders,
        events,
        waker: Arc::clone(&waker),
        lanes: Vec::new(),
        rows_since: None,
        finished: Vec::new(),
        awake_since: Instant::now(),
    };
    threads::start(&format!("scan-worker-{number}"), move || worker.run())?;
    Ok(WorkerHandle { commands, waker })
}

fn decoder(
    options: &ScanOptions,
    shares: MemoryShares,
    shared: &Shared,
    worker: usize,
    keeps_bad: bool,
) -> Decoder {
    let limits = BatchLimits {
        rows: options.batch_rows,
        bytes: shares.batch,
        record_bytes: 2 * options.large_bytes,
    };
    let rows = Rows::new(
        Arc::clone(&options.columns),
        limits,
        Arc::clone(&shared.queue),
        keeps_bad.then(|| BadRows::new(options.client.client_id.as_str().into())),
    );
    let limits = DecodeLimits {
        expanded_bytes: shares.expanded,
        large_bytes: options.large_bytes,
        check_crcs: options.check_crcs,
        is_read_committed: options.isolation == pyrklog_client::Isolation::ReadCommitted,
    };
    let (expansions, cancel) = (Arc::clone(&shared.expansions), shared.cancel.clone());
    Decoder::new(rows, limits, worker, expansions, cancel)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::Column;
    use crate::options::{Missing, Position, TopicPartitions, Unanswered};
    use pyrklog_client::{ClientConfig, Isolation};
    use std::collections::HashMap;

    fn options(memory_bytes: usize, threads: usize) -> ScanOptions {
        ScanOptions {
            client: ClientConfig {
                bootstrap: Vec::new(),
                client_id: String::new(),
                connect_timeout: LOOK,
                request_timeout: LOOK,
                security: Default::default(),
            },
            topics: vec![TopicPartitions {
                topic: "t".into(),
                partitions: None,
            }],
            topic_ids: HashMap::new(),
            start: Position::Earliest,
            end: Position::Latest,
            starts: HashMap::new(),
            ends: HashMap::new(),
            columns: Arc::new(Columns::new(&[Column::Value])),
            decode: None,
            isolation: Isolation::ReadCommitted,
            rack: String::new(),
            missing: Missing::Fail,
            unanswered: Unanswered::Fail,
            threads,
            batch_rows: 1000,
            batch_bytes: 8 << 20,
            memory_bytes,
            large_bytes: 100 << 20,
            timeout: LOOK,
            check_crcs: true,
        }
    }

    #[test]
    fn the_shares_are_the_whole_memory_at_most() {
        for memory in [16 << 20, 100 << 20, 1 << 30] {
            for threads in [1, 4, 32] {
                let options = options(memory, threads);
                options.check().unwrap();
                for lanes in [1, threads, 100, 100_000] {
                    let shares = MemoryShares::of(&options, lanes);
                    let lanes = lanes.min(shares.lanes_max);
                    let workers = threads * (shares.batch + shares.expanded);
                    let sum = shares.queue + workers + lanes * shares.lane;
                    assert!(sum <= memory, "{memory} {threads} {lanes}: {shares:?}");
                    assert!(shares.lane >= 64 << 10 && shares.batch >= 64 << 10);
                }
            }
        }
        let error = options(16 << 20, 64).check().unwrap_err().to_string();
        assert_eq!(error, "memory_bytes is 16777216; 64 threads need 33554432");
    }
}
