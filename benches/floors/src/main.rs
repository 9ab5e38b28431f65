//! The program: `pyrklog-floors --listen HOST:PORT --data DIR`, which runs until it is killed, or
//! `pyrklog-floors pieces`.
//!
//! Exit status: 1 failed, 2 usage.

#![forbid(unsafe_code)]

use pyrklog_floors::pieces::{self, Work};
use pyrklog_floors::serve;
use pyrklog_floors::store::{Limits, Store};
use pyrklog_floors::writer::Caching;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

const HELP: &str = "\
pyrklog-floors: the unavoidable work of produce and fetch, and nothing else

usage: pyrklog-floors --listen HOST:PORT --data DIR [options]
       pyrklog-floors pieces DIR FILES PIECE_BYTES BYTES THREADS

The first serves produce and fetch. The second only writes: BYTES to FILES in DIR, in turn, by
PIECE_BYTES at a time, and prints the MB/s.

  --partitions N       of every topic; a topic appears when it is asked for   [6]
  --memory-bytes N     what is kept in memory for fetches, oldest out first   [700000000]
  --unwritten-bytes N  what may wait for its file                             [375000000]
  --read-files         read from the files what is no longer in memory        [forget it]
  --page-cache         leave what was written in the page cache               [drop it]
";

struct Options {
    listen: String,
    data: PathBuf,
    limits: Limits,
    caching: Caching,
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let (mut listen, mut data) = (None, None);
    let mut limits = Limits::default();
    let mut caching = Caching::Drop;
    while let Some(name) = words.next() {
        if name == "--page-cache" {
            caching = Caching::Keep;
            continue;
        }
        if name == "--read-files" {
            limits.reads_files = true;
            continue;
        }
        let value = words
            .next()
            .ok_or_else(|| format!("{name} needs a value"))?;
        let number = || {
            let parsed = value.parse::<usize>().ok().filter(|number| *number > 0);
            parsed.ok_or_else(|| format!("{name} {value:?} is not a number above 0"))
        };
        match name.as_str() {
            "--listen" => listen = Some(value),
            "--data" => data = Some(PathBuf::from(value)),
            "--partitions" => limits.partitions = number()?,
            "--memory-bytes" => limits.memory_bytes = number()?,
            "--unwritten-bytes" => limits.unwritten_bytes = number()?,
            _ => return Err(format!("no option {name}")),
        }
    }
    match (listen, data) {
        (Some(listen), Some(data)) => Ok(Options {
            listen,
            data,
            limits,
            caching,
        }),
        _ => Err("--listen and --data are required".into()),
    }
}

fn parse_pieces(words: &[String]) -> Result<Work, String> {
    let [folder, numbers @ ..] = words else {
        return Err("pieces needs a folder".into());
    };
    let numbers: Vec<usize> = numbers
        .iter()
        .filter_map(|word| word.parse().ok().filter(|number| *number > 0))
        .collect();
    let [files, piece_bytes, bytes, threads] = numbers[..] else {
        return Err("pieces needs a folder and four numbers above 0".into());
    };
    Ok(Work {
        folder: folder.into(),
        files,
        piece_bytes,
        bytes,
        threads,
    })
}

fn write_pieces(words: &[String]) -> ExitCode {
    let work = match parse_pieces(words) {
        Ok(work) => work,
        Err(error) => {
            eprintln!("pyrklog-floors: {error}");
            return ExitCode::from(2);
        }
    };
    match pieces::run(&work) {
        Ok((took, written)) => {
            println!("{:.1}", written as f64 / 1e6 / took.as_secs_f64());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("pyrklog-floors: {error}");
            ExitCode::FAILURE
        }
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let Some(("pieces", rest)) = words
        .split_first()
        .map(|(word, rest)| (word.as_str(), rest))
    {
        return write_pieces(rest);
    }
    if words.iter().any(|word| word == "-h" || word == "--help") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(words.into_iter()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("pyrklog-floors: {error}");
            return ExitCode::from(2);
        }
    };
    let served = Store::open(&options.data, options.limits, options.caching).and_then(|store| {
        let listener = TcpListener::bind(&options.listen)?;
        serve::run(&listener, &Arc::new(store))
    });
    if let Err(error) = served {
        eprintln!("pyrklog-floors: {error}");
    }
    ExitCode::FAILURE
}
