//! The command line. Every option has bounds; an error names an option that is out of bounds.

use crate::transactions::messages::TransactionVersion;
use lexopt::{Arg, Parser, ValueExt};
use std::fmt;
use std::str::FromStr;

/// What `--help` prints.
pub const HELP: &str = "\
pyrklog-loadgen: measures a Kafka-protocol broker with prebuilt batches

usage: pyrklog-loadgen MODE --topic NAME [options]

  produce      sends batches with a window of requests in flight, or at --rate
  idempotent   the same by producers with sequence numbers; --rate is not for them
  transactions the same in transactions; latency and number of requests are those of commits, from
               when one is due (or its last batch is sent) to the reply to EndTxn
  fetch        reads the topic from its beginning
  end-to-end   paced single-record requests and a reader; latency from the intended send time
  probe        waits until the broker serves the topic: a record is acknowledged, every partition
               is led, the last record of every partition is read; nothing but --timeout-seconds ends it

The topic must exist. Every run is bounded in time and in bytes; whichever comes first ends it.
The result is one line of JSON on standard output. MB and GB are 10^6 and 10^9 bytes of record
batches, as they lie in the log; latencies are milliseconds.

  --bootstrap HOST:PORT     any broker of the cluster               [127.0.0.1:9092]
  --topic NAME              required
  --connections N           each on a thread of its own             [1]
  --in-flight N             requests in flight a connection         [5]
  --seconds S               most time to measure                    [10]
  --bytes N                 most bytes to measure; k, M, G allowed  [2G]
  --warmup-seconds S        before measuring                        [0]
  --timeout-seconds S       a reply that takes longer is an error   [30]
  --until-eof               standard input's end ends the run, too
  --announce                write \"started\" to standard error when all is set up
  --progress                then a line of JSON there every 250 ms: seconds, records, bytes so far
producing modes:
  --record-bytes N          size of a record's value                [100]
  --batch-bytes N           size of a batch, header included        [16384]
                            (end-to-end: one record a batch)
  --acks 0|1|all            what to wait for         [1; idempotent, transactions: all]
  --records N               produce: so many, rounded up to whole batches
  --keys N                  produce: each record has one of so many keys, of eight bytes
  --rate N                  records a second over all connections   [end-to-end: 1000]
idempotent and transactions, on one broker:
  --producers N             each with a connection                  [1]
  --threads N               for all producers together              [1]
  --commit-ms N             transactions: a commit every so often   [100 unless batches count]
  --commit-batches N        transactions: a commit after so many batches; with both options not
                            before its time, which then is fixed
  --abort-percent N         so many of 100 transactions are aborted [0]
  --transactional-id TEXT   with the producer's number behind it    [loadgen]
  --transaction-version N   1, or 2 (KIP-890): Produce enrolls, EndTxn bumps the epoch [1]
fetch and end-to-end:
  --max-wait-ms N           how long a fetch may wait for data      [500]
  --partition-bytes N       most bytes of a partition in one fetch  [1M]
  --linger-seconds S        end-to-end: wait for the last records  [10]
  --repeat                  fetch: begin again at the end of the log
  --follow                  fetch: stay at the end of the log and wait for more
  --old-format              fetch, and produce: message sets, as clients of Kafka 0.10
  --read-committed          fetch: only what is committed
  --last-records N          fetch: begin so many records (of all partitions) before the end
";

/// What a run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Sends batches.
    Produce,
    /// Sends batches with sequence numbers.
    Idempotent,
    /// Sends batches in transactions.
    Transactions,
    /// Reads batches.
    Fetch,
    /// Sends and reads single records, measuring from the intended send time to the reader.
    EndToEnd,
    /// Waits until a topic is served.
    Probe,
}

impl Mode {
    /// As on the command line and in the result.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Produce => "produce",
            Mode::Idempotent => "idempotent",
            Mode::Transactions => "transactions",
            Mode::Fetch => "fetch",
            Mode::EndToEnd => "end-to-end",
            Mode::Probe => "probe",
        }
    }

    const ALL: [Mode; 6] = [
        Mode::Produce,
        Mode::Idempotent,
        Mode::Transactions,
        Mode::Fetch,
        Mode::EndToEnd,
        Mode::Probe,
    ];

    fn has_sequences(self) -> bool {
        matches!(self, Mode::Idempotent | Mode::Transactions)
    }
}

/// A checked command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// What to do.
    pub mode: Mode,
    /// host:port of any broker.
    pub bootstrap: String,
    /// Topic to use.
    pub topic: String,
    /// Connections, each on its own thread.
    pub connections: usize,
    /// Requests in flight a connection.
    pub in_flight: usize,
    /// Longest measurement.
    pub seconds: f64,
    /// Most bytes of batches to measure.
    pub bytes_max: u64,
    /// Time before measuring.
    pub warmup_seconds: f64,
    /// Longest wait for one reply.
    pub timeout_seconds: f64,
    /// Size of a record's value.
    pub record_bytes: usize,
    /// Size of a batch including its header.
    pub batch_bytes: usize,
    /// 0, 1 or -1.
    pub acks: i16,
    /// Records a second over all connections; `None` = as fast as the window allows.
    pub records_per_second: Option<f64>,
    /// Longest wait of a fetch for data.
    pub max_wait_ms: i32,
    /// Most bytes of one partition in one fetch.
    pub partition_bytes: i32,
    /// How long the reader waits for the last acknowledged records after the sender is done.
    pub linger_seconds: f64,
    /// Begin again at the end of the log.
    pub repeat: bool,
    /// Stay at the end of the log.
    pub follow: bool,
    /// Keys, of eight bytes.
    pub keys: Option<u64>,
    /// Message sets, as clients of Kafka 0.10 send and get them.
    pub is_old: bool,
    /// Read only what is committed.
    pub read_committed: bool,
    /// Producers with sequence numbers.
    pub producers: usize,
    /// Their threads.
    pub threads: usize,
    /// Milliseconds of a transaction.
    pub commit_ms: Option<u64>,
    /// Batches of a transaction.
    pub commit_batches: Option<usize>,
    /// Aborted ones of a hundred transactions.
    pub abort_percent: u64,
    /// A producer's number follows it.
    pub transactional_id: String,
    /// Protocol of transactions.
    pub transaction_version: TransactionVersion,
    /// Begin this many records before the end of the log; `None` = at its beginning.
    pub last_records: Option<u64>,
    /// The end of standard input ends the run.
    pub until_eof: bool,
    /// Announce when all connections are set up.
    pub announce: bool,
    /// Tell how far the run is.
    pub progress: bool,
    /// Records to produce.
    pub records_max: Option<u64>,
}

/// Why a command line was refused; the text is for the user.
#[derive(Debug, PartialEq, Eq)]
pub struct UsageError(pub String);

impl fmt::Display for UsageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<lexopt::Error> for UsageError {
    fn from(error: lexopt::Error) -> Self {
        Self(match error {
            lexopt::Error::MissingValue {
                option: Some(option),
            } => format!("{option} needs a value"),
            lexopt::Error::UnexpectedValue { option, .. } => format!("{option} takes no value"),
            other => other.to_string(),
        })
    }
}

/// What the command line asks for.
#[derive(Debug, PartialEq)]
pub enum Command {
    /// Print [`HELP`].
    Help,
    /// Run a measurement.
    Run(Box<Options>),
}

const SECONDS_MAX: f64 = 24.0 * 3_600.0;
const BATCH_BYTES_MAX: u64 = 64 << 20;
/// Room in a batch for its header and the fields of one record.
const BATCH_OVERHEAD_BYTES: usize = 128;

/// Reads the arguments after the program's name.
///
/// # Errors
/// An unknown word, a missing or malformed value, a value out of its bounds.
pub fn parse<I: IntoIterator<Item = String>>(arguments: I) -> Result<Command, UsageError> {
    let mut words = Parser::from_args(arguments.into_iter().collect::<Vec<_>>());
    let named: Vec<&str> = Mode::ALL.map(Mode::name).to_vec();
    let choice = named.join(", ");
    let mode = match words.next()?.map(spelled).as_deref() {
        None => return Err(UsageError(format!("say {choice} (or --help)"))),
        Some("-h" | "--help" | "help") => return Ok(Command::Help),
        Some(word) => Mode::ALL
            .into_iter()
            .find(|mode| mode.name() == word)
            .ok_or_else(|| UsageError(format!("no mode {word:?}: say {choice}")))?,
    };
    let mut options = defaults(mode);
    while let Some(name) = words.next()?.map(spelled) {
        match name.as_str() {
            "-h" | "--help" => return Ok(Command::Help),
            "--repeat" => options.repeat = true,
            "--follow" => options.follow = true,
            "--until-eof" => options.until_eof = true,
            "--announce" => options.announce = true,
            "--progress" => options.progress = true,
            "--old-format" => options.is_old = true,
            "--read-committed" => options.read_committed = true,
            _ => set(&mut options, &name, &mut words)?,
        }
    }
    check(options).map(|options| Command::Run(Box::new(options)))
}

fn spelled(argument: Arg<'_>) -> String {
    match argument {
        Arg::Short(letter) => format!("-{letter}"),
        Arg::Long(name) => format!("--{name}"),
        Arg::Value(word) => word.to_string_lossy().into_owned(),
    }
}

fn defaults(mode: Mode) -> Options {
    Options {
        mode,
        bootstrap: "127.0.0.1:9092".into(),
        topic: String::new(),
        connections: 1,
        in_flight: 5,
        seconds: 10.0,
        bytes_max: 2_000_000_000,
        warmup_seconds: 0.0,
        timeout_seconds: 30.0,
        record_bytes: 100,
        batch_bytes: 16_384,
        acks: if mode.has_sequences() { -1 } else { 1 },
        records_per_second: (mode == Mode::EndToEnd).then_some(1_000.0),
        max_wait_ms: 500,
        partition_bytes: 1 << 20,
        linger_seconds: 10.0,
        repeat: false,
        follow: false,
        keys: None,
        is_old: false,
        read_committed: false,
        producers: 1,
        threads: 1,
        commit_ms: None,
        commit_batches: None,
        abort_percent: 0,
        transactional_id: "loadgen".into(),
        transaction_version: TransactionVersion::V1,
        last_records: None,
        until_eof: false,
        announce: false,
        progress: false,
        records_max: None,
    }
}

fn set(options: &mut Options, name: &str, words: &mut Parser) -> Result<(), UsageError> {
    let mut text = || words.value()?.string();
    match name {
        "--bootstrap" => options.bootstrap = text()?,
        "--topic" => options.topic = text()?,
        "--connections" => options.connections = whole(name, &text()?, 1, 1_024)?,
        "--in-flight" => options.in_flight = whole(name, &text()?, 1, 1_000)?,
        "--seconds" => options.seconds = real(name, &text()?, 0.001, SECONDS_MAX)?,
        "--bytes" => options.bytes_max = whole(name, &text()?, 1, 1 << 50)?,
        "--warmup-seconds" => options.warmup_seconds = real(name, &text()?, 0.0, SECONDS_MAX)?,
        "--timeout-seconds" => options.timeout_seconds = real(name, &text()?, 0.1, 3_600.0)?,
        "--record-bytes" => options.record_bytes = whole(name, &text()?, 1, BATCH_BYTES_MAX)?,
        "--batch-bytes" => options.batch_bytes = whole(name, &text()?, 1, BATCH_BYTES_MAX)?,
        "--acks" => options.acks = acks(&text()?)?,
        "--rate" => options.records_per_second = Some(real(name, &text()?, 0.1, 1e8)?),
        "--max-wait-ms" => options.max_wait_ms = whole(name, &text()?, 0, 60_000)?,
        "--linger-seconds" => options.linger_seconds = real(name, &text()?, 0.0, 3_600.0)?,
        "--last-records" => options.last_records = Some(whole(name, &text()?, 1, 1 << 50)?),
        "--records" => options.records_max = Some(whole(name, &text()?, 1, 1 << 50)?),
        "--keys" => options.keys = Some(whole(name, &text()?, 1, 1 << 50)?),
        "--producers" => options.producers = whole(name, &text()?, 1, 10_000)?,
        "--threads" => options.threads = whole(name, &text()?, 1, 64)?,
        "--commit-ms" => options.commit_ms = Some(whole(name, &text()?, 1, 30_000)?),
        "--commit-batches" => options.commit_batches = Some(whole(name, &text()?, 1, 1 << 20)?),
        "--abort-percent" => options.abort_percent = whole(name, &text()?, 0, 100)?,
        "--transactional-id" => options.transactional_id = text()?,
        "--transaction-version" => {
            options.transaction_version = match text()?.as_str() {
                "1" => TransactionVersion::V1,
                "2" => TransactionVersion::V2,
                other => return Err(UsageError(format!("{name} {other:?} is not 1 or 2"))),
            }
        }
        "--partition-bytes" => options.partition_bytes = whole(name, &text()?, 1, 1 << 30)?,
        _ => return Err(UsageError(format!("no option {name} (--help lists them)"))),
    }
    Ok(())
}

fn check(mut options: Options) -> Result<Options, UsageError> {
    let refuse = |text: String| Err(UsageError(text));
    if options.topic.is_empty() {
        return refuse("--topic NAME is missing".into());
    }
    if options.topic.len() > 249 {
        return refuse("a topic's name has at most 249 characters".into());
    }
    match options.bootstrap.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {}
        _ => {
            return refuse(format!(
                "--bootstrap {:?} is not HOST:PORT",
                options.bootstrap
            ));
        }
    }
    if options.is_old && !matches!(options.mode, Mode::Produce | Mode::Fetch) {
        return refuse("--old-format is for produce and fetch".into());
    }
    if options.is_old && (options.keys.is_some() || options.read_committed) {
        return refuse("--old-format goes with neither --keys nor --read-committed".into());
    }
    if options.records_max.is_some() && options.mode != Mode::Produce {
        return refuse("--records is for produce".into());
    }
    if options.repeat && options.follow {
        return refuse("--repeat and --follow exclude each other".into());
    }
    if options.mode == Mode::EndToEnd {
        if options.connections != 1 {
            return refuse("end-to-end uses one connection each way; leave --connections".into());
        }
        if options.record_bytes < 8 {
            return refuse("end-to-end needs --record-bytes of 8 or more for the send time".into());
        }
    }
    if options.mode.has_sequences() {
        if options.acks != -1 {
            return refuse("producers with sequence numbers need --acks all".into());
        }
        if options.records_per_second.is_some() {
            return refuse("--rate is not for producers with sequence numbers".into());
        }
        if !(1..=200).contains(&options.transactional_id.len()) {
            return refuse("--transactional-id has 1 to 200 characters".into());
        }
        if options.commit_batches.is_none() {
            options.commit_ms.get_or_insert(100);
        }
    }
    if (options.mode == Mode::Produce || options.mode.has_sequences())
        && options.record_bytes + BATCH_OVERHEAD_BYTES > options.batch_bytes
    {
        return refuse(format!(
            "a batch of {} bytes cannot hold a record of {} bytes: raise --batch-bytes to {}",
            options.batch_bytes,
            options.record_bytes,
            options.record_bytes + BATCH_OVERHEAD_BYTES
        ));
    }
    Ok(options)
}

fn acks(text: &str) -> Result<i16, UsageError> {
    match text {
        "0" => Ok(0),
        "1" => Ok(1),
        "-1" | "all" => Ok(-1),
        _ => Err(UsageError(format!("--acks {text:?} is not 0, 1 or all"))),
    }
}

fn whole<T>(name: &str, text: &str, min: u64, max: u64) -> Result<T, UsageError>
where
    T: TryFrom<u64>,
{
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number = u64::from_str(digits)
        .ok()
        .and_then(|count| count.checked_mul(unit));
    match number {
        None => Err(UsageError(format!("{name} {text:?} is not a whole number"))),
        Some(number) if (min..=max).contains(&number) => T::try_from(number)
            .map_err(|_| UsageError(format!("{name} {text} is more than this machine can count"))),
        Some(_) => Err(UsageError(format!(
            "{name} {text} is outside {min} to {max}"
        ))),
    }
}

fn real(name: &str, text: &str, min: f64, max: f64) -> Result<f64, UsageError> {
    match f64::from_str(text) {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        Ok(_) => Err(UsageError(format!(
            "{name} {text} is outside {min} to {max}"
        ))),
        Err(_) => Err(UsageError(format!("{name} {text:?} is not a number"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS_AND_REQUIRED: [&str; 9] = [
        "--rate",
        "--progress",
        "--repeat",
        "--follow",
        "--until-eof",
        "--announce",
        "--read-committed",
        "--old-format",
        "--topic",
    ];

    fn run(line: &str) -> Result<Options, String> {
        match parse(line.split_whitespace().map(str::to_owned)) {
            Ok(Command::Run(options)) => Ok(*options),
            Ok(Command::Help) => Err("help".into()),
            Err(error) => Err(error.0),
        }
    }

    #[test]
    fn defaults_bound_every_run() {
        let options = run("produce --topic t").unwrap();
        assert_eq!((options.seconds, options.bytes_max), (10.0, 2_000_000_000));
        assert_eq!(
            (options.connections, options.in_flight, options.acks),
            (1, 5, 1)
        );
        assert_eq!(options.records_per_second, None);
        assert_eq!(
            run("end-to-end --topic t").unwrap().records_per_second,
            Some(1_000.0)
        );
    }

    #[test]
    fn units_and_both_spellings() {
        let options = run("produce --topic=t --bytes 3G --batch-bytes=128k --acks all").unwrap();
        assert_eq!(
            (options.bytes_max, options.batch_bytes),
            (3_000_000_000, 128_000)
        );
        assert_eq!(options.acks, -1);
        assert!(run("fetch --topic t --repeat").unwrap().repeat);
        let options = run("fetch --topic t --follow --until-eof --last-records 2k").unwrap();
        assert!(options.follow && options.until_eof);
        assert_eq!(options.last_records, Some(2_000));
    }

    #[test]
    fn transactions_end_after_a_while_unless_their_batches_are_counted() {
        let ends = |line: &str| {
            let options = run(line).unwrap();
            (options.commit_ms, options.commit_batches)
        };
        assert_eq!(ends("transactions --topic t"), (Some(100), None));
        assert_eq!(
            ends("transactions --topic t --commit-batches 10"),
            (None, Some(10))
        );
        assert_eq!(
            ends("transactions --topic t --commit-batches 1 --commit-ms 50"),
            (Some(50), Some(1))
        );
        assert_eq!(run("transactions --topic t").unwrap().acks, -1);
    }

    #[test]
    fn every_option_in_the_help_is_understood() {
        let named = HELP
            .split_whitespace()
            .filter(|word| word.starts_with("--"));
        for name in named.filter(|name| !FLAGS_AND_REQUIRED.contains(name)) {
            let value = if name == "--bootstrap" { "h:1" } else { "1" };
            let name = name.trim_end_matches([';', ')']);
            let mode = if name == "--records" {
                "produce"
            } else {
                "fetch"
            };
            let line = format!("{mode} --topic t {name} {value}");
            assert!(run(&line).is_ok(), "{line}: {:?}", run(&line));
        }
    }

    #[test]
    fn wrong_options_are_named() {
        for (line, part) in [
            (
                "",
                "say produce, idempotent, transactions, fetch, end-to-end, probe",
            ),
            ("consume --topic t", "no mode \"consume\""),
            ("produce", "--topic NAME is missing"),
            ("produce --topic", "--topic needs a value"),
            ("produce --topic t --acks 2", "--acks \"2\" is not"),
            (
                "produce --topic t --connections 0",
                "--connections 0 is outside 1 to 1024",
            ),
            ("produce --topic t --connections 1025", "is outside"),
            (
                "produce --topic t --bytes lots",
                "--bytes \"lots\" is not a whole number",
            ),
            (
                "produce --topic t --bytes 99999999999999G",
                "is not a whole number",
            ),
            (
                "produce --topic t --seconds nan",
                "--seconds nan is outside",
            ),
            ("produce --topic t --rate 0", "--rate 0 is outside"),
            ("produce --topic t --bootstrap here", "is not HOST:PORT"),
            (
                "produce --topic t --record-bytes 20k",
                "raise --batch-bytes to 20128",
            ),
            ("produce --topic t --frobnicate 1", "no option --frobnicate"),
            ("produce --topic t stray", "no option stray"),
            ("produce --topic t --repeat=1", "--repeat takes no value"),
            ("fetch --topic t --follow=1", "--follow takes no value"),
            ("fetch --topic t --follow --repeat", "exclude each other"),
            (
                "end-to-end --topic t --connections 2",
                "one connection each way",
            ),
            ("end-to-end --topic t --record-bytes 7", "8 or more"),
            ("end-to-end --topic t --old-format", "for produce and fetch"),
            (
                "produce --topic t --old-format --keys 5",
                "goes with neither",
            ),
            ("transactions --topic t --acks 1", "need --acks all"),
            ("idempotent --topic t --rate 5", "--rate is not for"),
            ("transactions --topic t --abort-percent 101", "is outside"),
            (
                "transactions --topic t --transaction-version 3",
                "\"3\" is not 1 or 2",
            ),
        ] {
            let error = run(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn help_wins_anywhere() {
        assert_eq!(run("--help"), Err("help".into()));
        assert_eq!(run("produce --help"), Err("help".into()));
    }
}
