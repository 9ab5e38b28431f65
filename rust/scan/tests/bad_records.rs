//! A caller whose bad records are written first, are not, or never.

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use arrow_schema::{DataType, Field, Fields};
use common::{FakeBroker, PATIENCE, Reply, offsets_of};
use pyrklog_client::Cancel;
use pyrklog_scan::{
    BadRecordSink, Decode, ErrorKind, Format, NotWritten, OnBad, ScanOptions, ScanReader, Status,
    plan,
};
use pyrklog_wire::builder::BatchBuilder;

const TOPIC: &str = "bad";

/// A log whose every tenth value is bad, or every one.
fn broker(good: bool) -> FakeBroker {
    let broker = FakeBroker::start(|_, _| Reply::Log);
    let batches = (0..10).map(|number| {
        let mut builder = BatchBuilder::new().base_offset(10 * number).leader_epoch(1);
        for at in 0..10 {
            let is_good = good && at != 7;
            let value: &[u8] = if is_good { b"{\"id\":1}" } else { b"x" };
            builder.append(1, None, Some(value));
        }
        (10 * number, builder.build())
    });
    broker.state().log = batches.collect();
    broker
}

fn options(broker: &FakeBroker, on_bad: OnBad) -> ScanOptions {
    let schema = Fields::from(vec![Field::new("id", DataType::Int64, false)]);
    let mut options = broker.options();
    options.threads = 1;
    options.batch_rows = 25;
    options.decode = Some(Decode {
        format: Format::Json {
            schema: Some(schema),
        },
        fields: None,
        on_bad,
    });
    options
}

fn sink(
    cancel: Cancel,
    write: impl FnMut(usize) -> Result<(), NotWritten> + Send + 'static,
) -> BadRecordSink {
    let mut write = write;
    BadRecordSink {
        topic: TOPIC.into(),
        write: Box::new(move |records| write(records.num_rows())),
        cancel,
    }
}

fn started(
    options: ScanOptions,
    sink: BadRecordSink,
    interrupt: impl Fn() -> bool + Send + 'static,
) -> ScanReader {
    let plan = plan(options, Cancel::new().unwrap()).unwrap();
    ScanReader::start(plan, Some(sink), Some(Box::new(interrupt))).unwrap()
}

fn patient() -> impl Fn() -> bool + Send + 'static {
    let started = std::time::Instant::now();
    move || started.elapsed() > PATIENCE
}

#[test]
fn a_batch_is_given_and_counts_when_its_bad_records_are_written() {
    for (on_bad, expected) in [(OnBad::Null, 100), (OnBad::Drop, 90)] {
        let broker = broker(true);
        let status: Arc<OnceLock<Status>> = Arc::default();
        let written: Arc<Mutex<Vec<(i64, usize)>>> = Arc::default();
        let (seen, notes) = (Arc::clone(&status), Arc::clone(&written));
        let sink = sink(Cancel::new().unwrap(), move |count| {
            let position = seen.get().unwrap().progress()[0].position;
            notes.lock().unwrap().push((position, count));
            Ok(())
        });
        let mut reader = started(options(&broker, on_bad), sink, patient());
        status.set(reader.status()).unwrap();
        let mut offsets = Vec::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            assert!(batch.num_rows() > 0);
            let next = offsets_of(&batch);
            // Those of the batch that comes were written while it did not count.
            let (before, _) = written.lock().unwrap().last().copied().unwrap();
            assert!(before <= next[0], "{before} {next:?}");
            offsets.extend(next);
            let position = reader.status().progress()[0].position;
            assert!(position > *offsets.last().unwrap());
        }
        assert_eq!(offsets.len(), expected);
        assert!(offsets.is_sorted());
        let counts = written.lock().unwrap();
        assert_eq!(counts.iter().map(|one| one.1).sum::<usize>(), 10);
        let figures = reader.status().progress()[0];
        assert_eq!((figures.position, figures.bad), (100, 10));
    }
}

#[test]
fn batches_without_a_row_are_written_and_not_given() {
    let broker = broker(false);
    let written: Arc<Mutex<usize>> = Arc::default();
    let notes = Arc::clone(&written);
    let sink = sink(Cancel::new().unwrap(), move |count| {
        *notes.lock().unwrap() += count;
        Ok(())
    });
    let mut reader = started(options(&broker, OnBad::Drop), sink, patient());
    assert!(reader.next_batch().unwrap().is_none());
    assert_eq!(*written.lock().unwrap(), 100);
    assert_eq!(reader.status().progress()[0].position, 100);
}

#[test]
fn what_is_not_written_ends_the_scan() {
    for is_too_large in [false, true] {
        let broker = broker(true);
        let sink = sink(Cancel::new().unwrap(), move |_| {
            let text = "nobody takes them".into();
            Err(NotWritten { text, is_too_large })
        });
        let mut reader = started(options(&broker, OnBad::Null), sink, patient());
        let error = reader.next_batch().unwrap_err();
        assert_eq!(error.kind, ErrorKind::BadRecords);
        let told =
            "records whose values do not fit cannot be written to topic bad: nobody takes them";
        let largest = "; the largest of them, topic t partition 0 offset 17, has about ";
        match is_too_large {
            false => assert_eq!(error.text, told),
            true => assert!(
                error.text.starts_with(&format!("{told}{largest}")),
                "{error}"
            ),
        }
        // Also where all was read meanwhile.
        assert_eq!(reader.next_batch().unwrap_err(), error);
        assert_eq!(reader.status().failure(), Some(error));
        assert_eq!(reader.status().progress()[0].position, 0);
    }
}

#[test]
fn an_interrupt_and_a_close_end_a_write() {
    for is_closed in [false, true] {
        let broker = broker(true);
        let cancel = Cancel::new().unwrap();
        let (has_begun, of_sink) = (Arc::new(AtomicBool::new(false)), cancel.clone());
        let begins = Arc::clone(&has_begun);
        let ended = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&ended);
        let sink = sink(cancel, move |_| {
            begins.store(true, Ordering::SeqCst);
            of_sink.sleep(Duration::from_secs(600)).unwrap_err();
            ends.store(true, Ordering::SeqCst);
            let text = "cancelled".into();
            Err(NotWritten {
                text,
                is_too_large: false,
            })
        });
        let status: Arc<OnceLock<Status>> = Arc::default();
        let seen = Arc::clone(&status);
        let interrupt = move || {
            let is_due = has_begun.load(Ordering::SeqCst);
            if is_due && is_closed {
                seen.get().unwrap().close();
            }
            is_due && !is_closed
        };
        let mut reader = started(options(&broker, OnBad::Null), sink, interrupt);
        status.set(reader.status()).unwrap();
        let kind = match is_closed {
            true => ErrorKind::Cancelled,
            false => ErrorKind::Interrupted,
        };
        for _ in 0..2 {
            assert_eq!(reader.next_batch().unwrap_err().kind, kind);
        }
        while !ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}
