//! A command line from its arguments to its result: for the program, and for the Python package.

use crate::error::Failure;
use crate::options::{Command, HELP, Mode, UsageError, parse};
use crate::{probe, run};
use std::fmt;

/// What a command line gave: text for standard output.
#[derive(Debug)]
pub struct Ended {
    /// The help, or one line of JSON.
    pub text: String,
    /// Whether there were neither errors in replies nor lost records.
    pub is_clean: bool,
}

/// Why a command line gave nothing.
#[derive(Debug)]
pub enum Trouble {
    /// It is not understood.
    Usage(UsageError),
    /// The run failed.
    Run(Failure),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Usage(error) => error.fmt(f),
            Trouble::Run(error) => error.fmt(f),
        }
    }
}

/// Does what the arguments after the program's name say; [`HELP`] tells what there is.
///
/// # Errors
/// Arguments that are not understood, or a run that failed.
pub fn execute<I: IntoIterator<Item = String>>(arguments: I) -> Result<Ended, Trouble> {
    let options = match parse(arguments).map_err(Trouble::Usage)? {
        Command::Help => return Ok(clean(HELP.into())),
        Command::Run(options) => options,
    };
    if options.mode == Mode::Probe {
        let served = probe::run(&options).map_err(Trouble::Run)?;
        return Ok(clean(served.to_json() + "\n"));
    }
    let outcome = run::run(&options).map_err(Trouble::Run)?;
    Ok(Ended {
        text: outcome.to_json(&options) + "\n",
        is_clean: outcome.tally.is_clean(),
    })
}

fn clean(text: String) -> Ended {
    Ended {
        text,
        is_clean: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn executed(arguments: &[&str]) -> Result<Ended, Trouble> {
        execute(arguments.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn help_is_a_result() {
        assert_eq!(executed(&["--help"]).unwrap().text, HELP);
    }

    #[test]
    fn what_is_not_understood_names_the_word() {
        let error = executed(&["produce", "--topic", "t", "--batches", "3"]).unwrap_err();
        assert!(matches!(error, Trouble::Usage(_)));
        assert!(error.to_string().contains("--batches"), "{error}");
    }

    #[test]
    fn a_broker_that_is_not_there_fails_the_run() {
        // Port 1 of this host: nothing listens below 1024 unless it was started to.
        let words = ["fetch", "--topic", "t", "--bootstrap", "127.0.0.1:1"];
        let error = executed(&words).unwrap_err();
        assert!(matches!(error, Trouble::Run(_)));
    }
}
