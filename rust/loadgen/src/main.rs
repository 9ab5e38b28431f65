//! The program: reads its arguments, measures, prints one line of JSON.
//!
//! Exit status: 0 done, 1 failed or with errors in replies, 2 usage.

#![forbid(unsafe_code)]

use pyrklog_loadgen::error::Failure;
use pyrklog_loadgen::options::{Command, HELP, Mode, parse};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Command::Help) => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        Ok(Command::Run(options)) => options,
        Err(error) => {
            eprintln!("pyrklog-loadgen: {error}");
            return ExitCode::from(2);
        }
    };
    if options.mode == Mode::Probe {
        return match pyrklog_loadgen::probe::run(&options) {
            Ok(served) => {
                println!("{}", served.to_json());
                ExitCode::SUCCESS
            }
            Err(error) => failed(&error),
        };
    }
    match pyrklog_loadgen::run::run(&options) {
        Ok(outcome) => {
            println!("{}", outcome.to_json(&options));
            if outcome.tally.is_clean() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &Failure) -> ExitCode {
    eprintln!("pyrklog-loadgen: {error}");
    ExitCode::FAILURE
}
