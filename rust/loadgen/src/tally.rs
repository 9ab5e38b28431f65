//! Counts of one connection, and the run's result as one line of JSON.

use crate::histogram::Histogram;
use crate::options::Options;
use pyrklog_wire::ErrorCode;
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counts of one connection, or of all together. Except `errors` and `lost`, only what began after
/// the warm-up and was answered without an error counts.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Latency in nanoseconds: of requests, or (end-to-end) of records.
    pub latency: Histogram,
    /// Requests answered.
    pub requests: u64,
    /// Records sent or fetched.
    pub records: u64,
    /// Bytes of record batches sent or fetched.
    pub bytes: u64,
    /// Error codes in replies.
    pub errors: BTreeMap<ErrorCode, u64>,
    /// End-to-end: acknowledged records that the reader did not see.
    pub lost: u64,
    /// When the last of them was answered (monotonic).
    pub finished_ns: u64,
}

impl Tally {
    /// Adds what another connection counted.
    pub fn merge(&mut self, other: &Tally) {
        self.latency.merge(&other.latency);
        self.requests += other.requests;
        self.records += other.records;
        self.bytes += other.bytes;
        self.lost += other.lost;
        for (code, count) in &other.errors {
            *self.errors.entry(*code).or_default() += count;
        }
        self.finished_ns = self.finished_ns.max(other.finished_ns);
    }

    /// Counts an error code.
    pub fn error(&mut self, code: ErrorCode) {
        *self.errors.entry(code).or_default() += 1;
    }

    /// Whether there were neither errors nor lost records.
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty() && self.lost == 0
    }
}

/// A finished run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// All connections together.
    pub tally: Tally,
    /// Connections that were used.
    pub connections: usize,
    /// When measuring began (monotonic).
    pub started_ns: u64,
    /// Processor time of this process meanwhile.
    pub client_cpu_ns: u64,
    /// Size of each batch that was sent; 0 for fetch.
    pub batch_bytes: usize,
    /// Records in each batch that was sent; 0 for fetch.
    pub batch_records: u32,
}

impl Outcome {
    /// The result as one line of JSON. Times are seconds, except `latency_ms`; `started_ns` and
    /// `finished_ns` are CLOCK_MONOTONIC.
    pub fn to_json(&self, options: &Options) -> String {
        let tally = &self.tally;
        let elapsed_ns = tally.finished_ns.saturating_sub(self.started_ns);
        let seconds = elapsed_ns as f64 / 1e9;
        let client_cpu_s = self.client_cpu_ns as f64 / 1e9;
        let mut json = String::from("{");
        let mut field = |name: &str, value: String| {
            let comma = if json.len() > 1 { ", " } else { "" };
            let _ = write!(json, "{comma}\"{name}\": {value}");
        };
        field("mode", quoted(options.mode.name()));
        field("topic", quoted(&options.topic));
        field("connections", self.connections.to_string());
        field("in_flight", options.in_flight.to_string());
        field("acks", options.acks.to_string());
        field("record_bytes", options.record_bytes.to_string());
        field("batch_bytes", self.batch_bytes.to_string());
        field("batch_records", self.batch_records.to_string());
        field("seconds", format!("{seconds:.6}"));
        field("requests", tally.requests.to_string());
        field("records", tally.records.to_string());
        field("bytes", tally.bytes.to_string());
        field("mb_per_s", per(tally.bytes as f64 / 1e6, seconds));
        field("records_per_s", per(tally.records as f64, seconds));
        field("requests_per_s", per(tally.requests as f64, seconds));
        field("latency_ms", latencies(&tally.latency));
        field("errors", errors(&tally.errors));
        field("lost", tally.lost.to_string());
        field("client_cpu_s", format!("{client_cpu_s:.6}"));
        field(
            "client_cpu_s_per_gb",
            per(client_cpu_s, tally.bytes as f64 / 1e9),
        );
        field("started_ns", self.started_ns.to_string());
        field("finished_ns", tally.finished_ns.to_string());
        json.push('}');
        json
    }
}

fn per(amount: f64, of: f64) -> String {
    if of > 0.0 {
        format!("{:.3}", amount / of)
    } else {
        "0".into()
    }
}

fn latencies(histogram: &Histogram) -> String {
    let ms = |ns: u64| format!("{:.4}", ns as f64 / 1e6);
    format!(
        "{{\"p50\": {}, \"p95\": {}, \"p99\": {}, \"p99.9\": {}, \"max\": {}}}",
        ms(histogram.percentile(50.0)),
        ms(histogram.percentile(95.0)),
        ms(histogram.percentile(99.0)),
        ms(histogram.percentile(99.9)),
        ms(histogram.max())
    )
}

fn errors(counts: &BTreeMap<ErrorCode, u64>) -> String {
    let each: Vec<_> = counts
        .iter()
        .map(|(code, count)| format!("\"{code}\": {count}"))
        .collect();
    format!("{{{}}}", each.join(", "))
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Command, parse};

    #[test]
    fn the_result_is_one_line_with_rates_and_errors() {
        let words = ["produce", "--topic", "a\"b"].map(str::to_owned);
        let Ok(Command::Run(options)) = parse(words) else {
            panic!("refused")
        };
        let mut tally = Tally {
            requests: 10,
            records: 80,
            bytes: 4_000_000,
            ..Tally::default()
        };
        tally.finished_ns = 2_500_000_000;
        tally.latency.record(1_500_000);
        tally.error(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        tally.error(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        assert!(!tally.is_clean());
        let outcome = Outcome {
            tally,
            connections: 1,
            started_ns: 500_000_000,
            client_cpu_ns: 1_000_000_000,
            batch_bytes: 1_024,
            batch_records: 8,
        };
        let json = outcome.to_json(&options);
        for part in [
            "\"topic\": \"a\\\"b\"",
            "\"seconds\": 2.000000",
            "\"mb_per_s\": 2.000",
            "\"records_per_s\": 40.000",
            "\"p99.9\": 1.5000",
            "\"errors\": {\"NOT_LEADER_OR_FOLLOWER\": 2}",
            "\"client_cpu_s_per_gb\": 250.000",
        ] {
            assert!(json.contains(part), "{part} not in {json}");
        }
        assert!(!json.contains('\n'));
    }

    #[test]
    fn a_run_without_results_divides_by_nothing() {
        assert_eq!(per(1.0, 0.0), "0");
        assert_eq!(
            latencies(&Histogram::default()).matches("0.0000").count(),
            5
        );
    }

    #[test]
    fn merging_adds_up() {
        let mut one = Tally {
            requests: 1,
            finished_ns: 5,
            lost: 1,
            ..Tally::default()
        };
        let mut two = Tally {
            requests: 2,
            finished_ns: 9,
            ..Tally::default()
        };
        one.error(ErrorCode::CORRUPT_MESSAGE);
        two.error(ErrorCode::CORRUPT_MESSAGE);
        one.merge(&two);
        assert_eq!((one.requests, one.finished_ns, one.lost), (3, 9, 1));
        assert_eq!(one.errors[&ErrorCode::CORRUPT_MESSAGE], 2);
    }
}
