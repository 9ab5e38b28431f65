//! The generator against the floor: every byte is counted, answered, written and read back.

use pyrklog_floors::serve;
use pyrklog_floors::store::{Limits, Store};
use pyrklog_floors::writer::Caching;
use pyrklog_loadgen::options::{Command, parse};
use pyrklog_loadgen::tally::Outcome;
use pyrklog_loadgen::{batch, probe, run};
use pyrklog_wire::batch::{Batches, verify_crc};
use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Serves until the test's process ends; returns the address.
fn start(folder: &Path, partitions: usize) -> String {
    let limits = Limits {
        partitions,
        ..Limits::default()
    };
    let store = Arc::new(Store::open(folder, limits, Caching::Drop).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || serve::run(&listener, &store));
    address
}

fn load(address: &str, line: &str) -> Outcome {
    let line = format!("{line} --topic t --bootstrap {address} --timeout-seconds 60");
    match parse(line.split_whitespace().map(str::to_owned)) {
        Ok(Command::Run(options)) => run::run(&options).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// Waits until the partitions' files hold `bytes`; returns their content.
fn wait_for_files(folder: &Path, partitions: usize, bytes: u64) -> Vec<Vec<u8>> {
    let path = |index| folder.join(format!("t-{index}/00000000000000000000.log"));
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let sizes = (0..partitions).map(|index| fs::metadata(path(index)).unwrap().len());
        let found: u64 = sizes.sum();
        if found == bytes {
            return (0..partitions)
                .map(|index| fs::read(path(index)).unwrap())
                .collect();
        }
        assert!(
            found < bytes && Instant::now() < deadline,
            "{found} of {bytes}"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

/// 7 partitions have frames with batches of their own, 100 share one.
#[test]
fn what_is_produced_lies_in_the_files_and_is_read_back() {
    for partitions in [7, 100] {
        let folder = tempfile::tempdir().unwrap();
        let address = start(folder.path(), partitions);
        let sent = load(
            &address,
            "produce --connections 3 --bytes 20M --batch-bytes 16384",
        );
        assert!(sent.tally.is_clean(), "{:?}", sent.tally.errors);
        assert!(sent.tally.bytes >= 20_000_000);
        let mut records = 0;
        for bytes in wait_for_files(folder.path(), partitions, sent.tally.bytes) {
            let mut next = 0;
            for view in Batches::new(&bytes).map(|view| view.unwrap()) {
                verify_crc(view.bytes).unwrap();
                assert_eq!(view.header.base_offset, next);
                next = view.header.next_offset();
            }
            records += next as u64;
        }
        assert_eq!(records, sent.tally.records);
        let read = load(&address, "fetch --connections 2 --bytes 1G");
        assert!(read.tally.is_clean());
        assert_eq!(read.tally.bytes, sent.tally.bytes);
        assert_eq!(read.tally.records, sent.tally.records);
    }
}

#[test]
fn the_last_records_are_the_last() {
    let folder = tempfile::tempdir().unwrap();
    let address = start(folder.path(), 2);
    let sent = load(&address, "produce --bytes 4M --batch-bytes 16384");
    wait_for_files(folder.path(), 2, sent.tally.bytes);
    let each = u64::from(sent.batch_records);
    // Half a batch of each partition: a fetch returns its whole batch.
    let read = load(&address, &format!("fetch --last-records {each}"));
    assert_eq!(read.tally.records, 2 * each);
}

#[test]
fn a_probe_sees_it_served() {
    let folder = tempfile::tempdir().unwrap();
    let address = start(folder.path(), 300);
    let line = format!("probe --topic t --bootstrap {address}");
    let Ok(Command::Run(options)) = parse(line.split_whitespace().map(str::to_owned)) else {
        panic!("refused");
    };
    let served = probe::run(&options).unwrap();
    assert_eq!(served.partitions, 300);
    assert!(served.led_ns <= served.read_ns);
    let one = batch::build(100, 1, 0).bytes.len() as u64;
    wait_for_files(folder.path(), 300, one);
}
