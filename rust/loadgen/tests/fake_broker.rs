//! Whole runs against a minimal broker, which can stall or fail on demand.

use pyrklog_loadgen::options::{Command, Options, parse};
use pyrklog_loadgen::run::run;
use pyrklog_loadgen::tally::Outcome;
use pyrklog_wire::batch::{BatchHeader, set_base_offset, verify_crc};
use pyrklog_wire::{ErrorCode, Reader, Writer};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

const PARTITIONS: usize = 3;
const TOPIC_ID: [u8; 16] = [7; 16];

/// How the broker misbehaves.
#[derive(Clone, Copy, Default)]
struct Habits {
    /// The Produce request with this number (from 1) waits this long.
    stall: Option<(usize, Duration)>,
    /// Every Produce request takes this long.
    pause: Duration,
    /// The Produce request with this number fails with this code.
    fail: Option<(usize, i16)>,
    /// Produce replies come with a wrong correlation id.
    confused: bool,
    /// Produced batches are acknowledged and dropped.
    forgetful: bool,
}

#[derive(Default)]
struct State {
    /// Batches of each partition with their offsets assigned.
    logs: [Vec<Vec<u8>>; PARTITIONS],
    next_offsets: [i64; PARTITIONS],
    produced: usize,
}

struct Broker {
    port: u16,
    habits: Habits,
    state: Mutex<State>,
    appended: Condvar,
}

impl Broker {
    fn start(habits: Habits) -> Arc<Broker> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, appended) = (Mutex::default(), Condvar::new());
        let broker = Arc::new(Broker {
            port,
            habits,
            state,
            appended,
        });
        let served = Arc::clone(&broker);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let broker = Arc::clone(&served);
                thread::spawn(move || while broker.serve_one(&stream).is_some() {});
            }
        });
        broker
    }

    fn serve_one(&self, mut stream: &TcpStream) -> Option<()> {
        let mut length = [0; 4];
        stream.read_exact(&mut length).ok()?;
        let mut request = vec![0; u32::from_be_bytes(length) as usize];
        stream.read_exact(&mut request).ok()?;
        let mut reader = Reader::new(&request, true);
        let (api_key, version) = (reader.i16().unwrap(), reader.i16().unwrap());
        let correlation_id = reader.i32().unwrap();
        assert_eq!(
            reader.classic_nullable_string().unwrap(),
            Some("pyrklog-loadgen")
        );
        reader.skip_tags().unwrap();
        let mut reply = vec![0; 4];
        let mut writer = Writer::new(&mut reply, true);
        writer.i32(correlation_id);
        writer.no_tags();
        let answered = match (api_key, version) {
            (0, 11) => self.produce(&mut reader, &mut writer),
            (1, 17) => self.fetch(&mut reader, &mut writer),
            (2, 7) => self.list_offsets(&mut reader, &mut writer),
            (3, 12) => self.metadata(&mut reader, &mut writer),
            other => panic!("unexpected request {other:?}"),
        };
        if api_key == 0 && self.habits.confused {
            reply[4..8].copy_from_slice(&(-7_i32).to_be_bytes());
        }
        if answered {
            let length = (reply.len() - 4) as u32;
            reply[..4].copy_from_slice(&length.to_be_bytes());
            stream.write_all(&reply).ok()?;
        }
        Some(())
    }

    fn metadata(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> bool {
        assert_eq!(reader.array_len(1).unwrap(), 1);
        reader.uuid().unwrap();
        let name = reader.string().unwrap();
        writer.i32(0);
        writer.array_len(1);
        writer.i32(1);
        writer.string("127.0.0.1");
        writer.i32(i32::from(self.port));
        writer.nullable_string(None);
        writer.no_tags();
        writer.nullable_string(Some("cluster"));
        writer.i32(1);
        writer.array_len(1);
        let known = name != "absent";
        writer.i16(if known {
            0
        } else {
            ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0
        });
        writer.string(name);
        writer.uuid(TOPIC_ID);
        writer.bool(false);
        writer.array_len(if known { PARTITIONS } else { 0 });
        for partition in 0..if known { PARTITIONS } else { 0 } {
            writer.i16(0);
            writer.i32(partition as i32);
            writer.i32(1);
            writer.i32(0);
            for _ in 0..3 {
                writer.array_len(1);
                writer.i32(1);
            }
            writer.no_tags();
        }
        writer.i32(0);
        writer.no_tags();
        writer.no_tags();
        true
    }

    fn list_offsets(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> bool {
        reader.take(4 + 1).unwrap();
        assert_eq!(reader.array_len(1).unwrap(), 1);
        let name = reader.string().unwrap();
        let asked = reader.array(17, |reader| {
            let partition = reader.i32()?;
            reader.i32()?;
            let timestamp = reader.i64()?;
            reader.skip_tags()?;
            Ok((partition, timestamp))
        });
        let state = self.state.lock().unwrap();
        writer.i32(0);
        writer.array_len(1);
        writer.string(name);
        writer.array(&asked.unwrap(), |writer, (partition, timestamp)| {
            let latest = state.next_offsets[*partition as usize];
            writer.i32(*partition);
            writer.i16(0);
            writer.i64(-1);
            writer.i64(if *timestamp == -1 { latest } else { 0 });
            writer.i32(0);
            writer.no_tags();
        });
        writer.no_tags();
        writer.no_tags();
        true
    }

    fn produce(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> bool {
        assert_eq!(reader.nullable_string().unwrap(), None);
        let acks = reader.i16().unwrap();
        reader.i32().unwrap();
        assert_eq!(reader.array_len(1).unwrap(), 1);
        let name = reader.string().unwrap();
        assert_eq!(reader.array_len(1).unwrap(), 1);
        let partition = reader.i32().unwrap();
        let mut batch = reader.bytes().unwrap().to_vec();
        verify_crc(&batch).unwrap();
        let mut state = self.state.lock().unwrap();
        state.produced += 1;
        let number = state.produced;
        let code = self
            .habits
            .fail
            .filter(|(at, _)| *at == number)
            .map_or(0, |(_, code)| code);
        thread::sleep(self.habits.pause);
        if let Some((_, pause)) = self.habits.stall.filter(|(at, _)| *at == number) {
            thread::sleep(pause);
        }
        if code == 0 && !self.habits.forgetful {
            let next = &mut state.next_offsets[partition as usize];
            set_base_offset(&mut batch, *next);
            *next = BatchHeader::parse(&batch).unwrap().next_offset();
            state.logs[partition as usize].push(batch);
            self.appended.notify_all();
        }
        writer.array_len(1);
        writer.string(name);
        writer.array_len(1);
        writer.i32(partition);
        writer.i16(code);
        for _ in 0..3 {
            writer.i64(0);
        }
        writer.array_len(0);
        writer.nullable_string(None);
        writer.no_tags();
        writer.no_tags();
        writer.i32(0);
        writer.no_tags();
        acks != 0
    }

    fn fetch(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> bool {
        let max_wait = Duration::from_millis(reader.i32().unwrap() as u64);
        reader.take(4 + 4 + 1 + 4 + 4).unwrap();
        assert_eq!(reader.array_len(1).unwrap(), 1);
        assert_eq!(reader.uuid().unwrap(), TOPIC_ID);
        let asked = reader.array(33, |reader| {
            let partition = reader.i32()? as usize;
            reader.i32()?;
            let offset = reader.i64()?;
            reader.take(4 + 8 + 4)?;
            reader.skip_tags()?;
            Ok((partition, offset))
        });
        let asked = asked.unwrap();
        let nothing_new = |state: &mut State| {
            asked
                .iter()
                .all(|(partition, offset)| state.next_offsets[*partition] <= *offset)
        };
        let state = self.state.lock().unwrap();
        let state = self
            .appended
            .wait_timeout_while(state, max_wait, nothing_new)
            .unwrap()
            .0;
        writer.i32(0);
        writer.i16(0);
        writer.i32(0);
        writer.array_len(1);
        writer.uuid(TOPIC_ID);
        writer.array(&asked, |writer, (partition, offset)| {
            let log = &state.logs[*partition];
            let from = |batch: &&Vec<u8>| BatchHeader::parse(batch).unwrap().base_offset >= *offset;
            let mut records: Vec<u8> = log.iter().filter(from).take(2).flatten().copied().collect();
            records.extend(log.first().map_or(&[][..], |batch| &batch[..70]));
            if log.iter().filter(from).count() == 0 {
                records.clear(); // never a cut-off batch alone
            }
            writer.i32(*partition as i32);
            writer.i16(0);
            for _ in 0..2 {
                writer.i64(state.next_offsets[*partition]);
            }
            writer.i64(0);
            writer.nullable_len(None);
            writer.i32(-1);
            writer.bytes(&records);
            writer.no_tags();
        });
        writer.no_tags();
        writer.no_tags();
        true
    }
}

fn options(broker: &Broker, line: &str) -> Options {
    let words = format!("{line} --bootstrap 127.0.0.1:{}", broker.port);
    match parse(words.split_whitespace().map(str::to_owned)) {
        Ok(Command::Run(options)) => *options,
        other => panic!("{other:?}"),
    }
}

fn measure(broker: &Broker, line: &str) -> Outcome {
    run(&options(broker, line)).unwrap()
}

#[test]
fn bytes_bound_a_produce_run_and_every_request_is_counted_once() {
    let broker = Broker::start(Habits::default());
    let outcome = measure(
        &broker,
        "produce --topic t --connections 2 --batch-bytes 1024 --bytes 200k",
    );
    let tally = outcome.tally;
    let state = broker.state.lock().unwrap();
    assert_eq!(tally.requests as usize, state.produced);
    assert_eq!(tally.bytes, tally.requests * outcome.batch_bytes as u64);
    assert_eq!(
        tally.records,
        tally.requests * u64::from(outcome.batch_records)
    );
    assert!((200_000..203_000).contains(&tally.bytes), "{}", tally.bytes);
    assert_eq!(tally.latency.count(), tally.requests);
    let counts: Vec<usize> = state.logs.iter().map(Vec::len).collect();
    assert!(
        counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 3,
        "{counts:?}"
    );
}

#[test]
fn without_acknowledgement_what_was_sent_is_counted() {
    let broker = Broker::start(Habits::default());
    let tally = measure(&broker, "produce --topic t --acks 0 --bytes 500k").tally;
    assert_eq!(tally.bytes, tally.requests * (tally.bytes / tally.requests));
    let mut state = broker.state.lock().unwrap();
    while state.produced < tally.requests as usize {
        state = broker.appended.wait(state).unwrap();
    }
}

#[test]
fn everything_produced_is_fetched_once() {
    let broker = Broker::start(Habits::default());
    let sent = measure(&broker, "produce --topic t --batch-bytes 2048 --bytes 100k").tally;
    for connections in [1, 2, 5] {
        let line = format!("fetch --topic t --connections {connections} --in-flight 2");
        let read = measure(&broker, &line).tally;
        assert_eq!((read.records, read.bytes), (sent.records, sent.bytes));
        assert!(read.is_clean());
    }
}

#[test]
fn a_repeated_fetch_ends_at_its_bytes() {
    let broker = Broker::start(Habits::default());
    measure(&broker, "produce --topic t --batch-bytes 2048 --bytes 20k");
    let read = measure(&broker, "fetch --topic t --repeat --bytes 300k").tally;
    assert!((300_000..330_000).contains(&read.bytes), "{}", read.bytes);
}

#[test]
fn an_error_code_is_counted_by_name_and_the_run_goes_on() {
    let broker = Broker::start(Habits {
        fail: Some((3, 6)),
        ..Habits::default()
    });
    let tally = measure(&broker, "produce --topic t --batch-bytes 1024 --bytes 20k").tally;
    assert_eq!(
        tally.errors.into_iter().collect::<Vec<_>>(),
        [(ErrorCode(6), 1)]
    );
    assert_eq!(
        tally.requests as usize,
        broker.state.lock().unwrap().produced - 1
    );
}

#[test]
fn waiting_behind_a_stall_is_not_omitted() {
    let stall = Some((20, Duration::from_millis(300)));
    let broker = Broker::start(Habits {
        stall,
        ..Habits::default()
    });
    let line = "produce --topic t --record-bytes 100 --batch-bytes 228 --rate 1000 \
                --seconds 0.5 --in-flight 2";
    let outcome = measure(&broker, line);
    // 300 of the 500 requests were due while one stalled, 200 of them at least 0.1 s before its
    // end: a stop-watch that starts at the sending would show only two.
    let tally = outcome.tally;
    assert_eq!(tally.requests, 500, "what was due is sent, however late");
    let slow_from = 100_000_000;
    assert!(
        tally.latency.max() >= 290_000_000,
        "{}",
        tally.latency.max()
    );
    assert!(
        tally.latency.percentile(70.0) >= slow_from,
        "{}",
        tally.latency.percentile(70.0)
    );
}

#[test]
fn a_rate_beyond_the_broker_is_said_to_be() {
    let broker = Broker::start(Habits {
        pause: Duration::from_millis(10),
        ..Habits::default()
    });
    let line = "produce --topic t --rate 10000 --batch-bytes 228 --record-bytes 100 --in-flight 1 \
                --seconds 0.2 --timeout-seconds 3";
    let error = run(&options(&broker, line)).unwrap_err().to_string();
    assert!(
        error.contains("no reply for") || error.contains("cannot keep up"),
        "{error}"
    );
}

#[test]
fn records_that_never_reach_the_reader_are_lost() {
    let broker = Broker::start(Habits {
        forgetful: true,
        ..Habits::default()
    });
    let line =
        "end-to-end --topic t --rate 100 --seconds 0.1 --max-wait-ms 50 --linger-seconds 0.2";
    let tally = measure(&broker, line).tally;
    assert_eq!((tally.lost, tally.records), (10, 0));
    assert!(!tally.is_clean());
}

#[test]
fn end_to_end_sees_every_record_once() {
    let broker = Broker::start(Habits::default());
    let tally = measure(&broker, "end-to-end --topic t --rate 2000 --seconds 0.3").tally;
    assert!(tally.is_clean());
    assert_eq!(
        tally.records as usize,
        broker.state.lock().unwrap().produced
    );
    assert_eq!(tally.latency.count(), tally.records);
    assert_eq!(tally.records, tally.requests);
}

#[test]
fn replies_out_of_order_end_a_run() {
    let broker = Broker::start(Habits {
        confused: true,
        ..Habits::default()
    });
    let error = run(&options(&broker, "produce --topic t --bytes 1k"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("correlation id -7"), "{error}");
}

#[test]
fn a_broker_that_does_not_answer_is_given_up() {
    let stall = Some((1, Duration::from_secs(10)));
    let broker = Broker::start(Habits {
        stall,
        ..Habits::default()
    });
    let line = "produce --topic t --timeout-seconds 2 --bytes 100k";
    let error = run(&options(&broker, line)).unwrap_err().to_string();
    assert!(
        error.contains("no reply for") && error.contains("5 requests in flight"),
        "{error}"
    );
}

#[test]
fn a_missing_topic_is_named() {
    let broker = Broker::start(Habits::default());
    let error = run(&options(&broker, "fetch --topic absent"))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("\"absent\": UNKNOWN_TOPIC_OR_PARTITION"),
        "{error}"
    );
}
