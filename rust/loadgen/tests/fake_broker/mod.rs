//! A minimal broker, which can stall or fail on demand.

#![allow(dead_code)] // Each test program uses a part of it.

use pyrklog_loadgen::options::{Command, Options, parse};
use pyrklog_loadgen::run::run;
use pyrklog_loadgen::tally::Outcome;
use pyrklog_wire::batch::{BatchHeader, set_base_offset, verify_crc};
use pyrklog_wire::{ErrorCode, Reader, Writer};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

pub const PARTITIONS: usize = 3;
const TOPIC_ID: [u8; 16] = [7; 16];

/// How the broker misbehaves.
#[derive(Clone, Copy, Default)]
pub struct Habits {
    /// The Produce request with this number (from 1) waits this long.
    pub stall: Option<(usize, Duration)>,
    /// Every Produce request takes this long.
    pub pause: Duration,
    /// The Produce request with this number fails with this code.
    pub fail: Option<(usize, i16)>,
    /// Produce replies come with a wrong correlation id.
    pub confused: bool,
    /// Produced batches are acknowledged and dropped.
    pub forgetful: bool,
    /// So many requests after the end of a transaction find it not completed.
    pub completes_late: usize,
}

/// What a producer's end of a transaction left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub transactional_id: String,
    pub is_commit: bool,
    /// Batches since the one before.
    pub batches: usize,
}

#[derive(Default)]
pub struct State {
    /// Batches of each partition with their offsets assigned.
    pub logs: [Vec<Vec<u8>>; PARTITIONS],
    pub next_offsets: [i64; PARTITIONS],
    pub produced: usize,
    /// By producer id, which counts up from 0.
    pub producers: Vec<ProducerState>,
    pub ended: Vec<Ended>,
}

/// One producer.
#[derive(Default)]
pub struct ProducerState {
    pub epoch: i16,
    pub enrolled: BTreeSet<i32>,
    /// The next sequence number of each partition.
    pub sequences: BTreeMap<i32, i32>,
    pub batches: usize,
    /// Requests that are still told of the last transaction.
    pub busy: usize,
}

pub struct Broker {
    port: u16,
    habits: Habits,
    pub state: Mutex<State>,
    pub appended: Condvar,
}

impl Broker {
    pub fn start(habits: Habits) -> Arc<Broker> {
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
            (0, version @ 11..=12) => self.produce(&mut reader, &mut writer, version == 12),
            (1, 17) => self.fetch(&mut reader, &mut writer),
            (2, 7) => self.list_offsets(&mut reader, &mut writer),
            (3, 12) => self.metadata(&mut reader, &mut writer),
            (10, 6) => self.find_coordinator(&mut reader, &mut writer),
            (22, 5) => self.init_producer(&mut reader, &mut writer),
            (24, 3) => self.add_partitions(&mut reader, &mut writer),
            (26, version @ 4..=5) => self.end(&mut reader, &mut writer, version == 5),
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

    fn produce(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>, enrolls: bool) -> bool {
        let is_transactional = reader.nullable_string().unwrap().is_some();
        let acks = reader.i16().unwrap();
        reader.i32().unwrap();
        assert_eq!(reader.array_len(1).unwrap(), 1);
        let name = reader.string().unwrap();
        assert_eq!(reader.array_len(1).unwrap(), 1);
        let partition = reader.i32().unwrap();
        let mut batch = reader.bytes().unwrap().to_vec();
        verify_crc(&batch).unwrap();
        let mut state = self.state.lock().unwrap();
        let header = BatchHeader::parse(&batch).unwrap();
        assert_eq!(header.is_transactional(), is_transactional);
        let busy = self.check_producer(&mut state, &header, partition, enrolls);
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
        let code = if busy { 51 } else { code };
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

    /// Sequence numbers must follow each other, and partitions be enrolled. True: the last
    /// transaction is not completed.
    fn check_producer(
        &self,
        state: &mut State,
        header: &BatchHeader,
        partition: i32,
        enrolls: bool,
    ) -> bool {
        let Ok(id) = usize::try_from(header.producer_id) else {
            return false;
        };
        let producer = &mut state.producers[id];
        assert_eq!(header.producer_epoch, producer.epoch);
        if enrolls {
            if producer.busy > 0 {
                producer.busy -= 1;
                return true;
            }
            producer.enrolled.insert(partition);
        }
        if header.is_transactional() {
            assert!(producer.enrolled.contains(&partition), "not enrolled");
        }
        let next = producer.sequences.entry(partition).or_default();
        assert_eq!(header.base_sequence, *next);
        *next += header.record_count;
        producer.batches += 1;
        false
    }

    fn find_coordinator(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> bool {
        assert_eq!(reader.i8().unwrap(), 1, "transactional ids");
        let ids = reader.array(1, |reader| reader.string()).unwrap();
        writer.i32(0);
        writer.array(&ids, |writer, id| {
            writer.string(id);
            writer.i32(1);
            writer.string("127.0.0.1");
            writer.i32(i32::from(self.port));
            writer.i16(0);
            writer.nullable_string(None);
            writer.no_tags();
        });
        writer.no_tags();
        true
    }

    fn init_producer(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> bool {
        reader.nullable_string().unwrap();
        reader.take(4 + 8 + 2).unwrap();
        let mut state = self.state.lock().unwrap();
        writer.i32(0);
        writer.i16(0);
        writer.i64(state.producers.len() as i64);
        writer.i16(0);
        writer.no_tags();
        state.producers.push(ProducerState::default());
        true
    }

    fn add_partitions(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>) -> bool {
        reader.string().unwrap();
        let (id, epoch) = (reader.i64().unwrap(), reader.i16().unwrap());
        assert_eq!(reader.array_len(3).unwrap(), 1);
        let name = reader.string().unwrap();
        let partitions = reader.array(4, |reader| reader.i32()).unwrap();
        let mut state = self.state.lock().unwrap();
        let producer = &mut state.producers[id as usize];
        assert_eq!(epoch, producer.epoch);
        let code = if producer.busy > 0 { 51 } else { 0 };
        match code {
            0 => producer.enrolled.extend(&partitions),
            _ => producer.busy -= 1,
        }
        writer.i32(0);
        writer.array_len(1);
        writer.string(name);
        writer.array(&partitions, |writer, partition| {
            writer.i32(*partition);
            writer.i16(code);
            writer.no_tags();
        });
        writer.no_tags();
        writer.no_tags();
        true
    }

    fn end(&self, reader: &mut Reader<'_>, writer: &mut Writer<'_>, bumps: bool) -> bool {
        let transactional_id = reader.string().unwrap().to_owned();
        let (id, epoch) = (reader.i64().unwrap(), reader.i16().unwrap());
        let is_commit = reader.bool().unwrap();
        let mut state = self.state.lock().unwrap();
        let producer = &mut state.producers[id as usize];
        assert_eq!(epoch, producer.epoch);
        assert!(!producer.enrolled.is_empty(), "no transaction is open");
        producer.enrolled.clear();
        producer.busy = self.habits.completes_late;
        let batches = std::mem::take(&mut producer.batches);
        writer.i32(0);
        writer.i16(0);
        if bumps {
            producer.epoch += 1;
            producer.sequences.clear();
            writer.i64(id);
            writer.i16(producer.epoch);
        }
        writer.no_tags();
        state.ended.push(Ended {
            transactional_id,
            is_commit,
            batches,
        });
        true
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

pub fn options(broker: &Broker, line: &str) -> Options {
    let words = format!("{line} --bootstrap 127.0.0.1:{}", broker.port);
    match parse(words.split_whitespace().map(str::to_owned)) {
        Ok(Command::Run(options)) => *options,
        other => panic!("{other:?}"),
    }
}

pub fn measure(broker: &Broker, line: &str) -> Outcome {
    run(&options(broker, line)).unwrap()
}
