//! The program: reads its arguments, measures, prints one line of JSON.
//!
//! Exit status: 0 done, 1 failed or with errors in replies, 2 usage.

#![forbid(unsafe_code)]

use pyrklog_loadgen::program::{Trouble, execute};
use std::process::ExitCode;

fn main() -> ExitCode {
    match execute(std::env::args().skip(1)) {
        Ok(ended) => {
            print!("{}", ended.text);
            ExitCode::from(u8::from(!ended.is_clean))
        }
        Err(trouble) => {
            eprintln!("pyrklog-loadgen: {trouble}");
            ExitCode::from(match trouble {
                Trouble::Usage(_) => 2,
                Trouble::Run(_) => 1,
            })
        }
    }
}
