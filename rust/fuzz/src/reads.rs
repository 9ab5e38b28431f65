//! Reads of an orderly closed log with damaged indexes: a read begins with the batch that holds its
//! offset, and a time finds an existing offset.

use pyrklog_log::{Isolation, Log, TimeSpec, Wait};

use crate::history::{self, History};
use crate::script::Script;
use crate::{Verdict, expect};

/// Begins a read one record too late; fails because of a damaged index of the active segment.
pub const PLANTED: &[&str] = &["begins-late", "astray-is-final"];

pub fn run(script: &mut Script<'_>, planted: Option<&str>) -> Verdict {
    let history = History::make(script)?;
    let mut damaged = false;
    for path in history.files() {
        let is_index = path.to_string_lossy().ends_with("index");
        if is_index && script.bool() {
            let mut content = history.content(&path);
            script.damage(&mut content);
            history.disk.put(&path, &content);
            damaged = true;
        }
    }
    let log = history.open()?;
    let count = history.appended.len();
    expect(log.log_end_offset() == count as i64, || {
        format!("ends at {}, not {count}", log.log_end_offset())
    })?;
    let first = script.below(count.max(1));
    let max_bytes = script.pick(&[1, 300, 1 << 20]);
    // Not in order, so that wrong indexes are found and rebuilt on the way.
    for step in 0..count {
        let offset = (first + step * 7) % count;
        let wanted = &history.appended[offset];
        let found = match planted {
            Some("begins-late") => history::read(&log, wanted.0, max_bytes).map(|mut found| {
                found.remove(0);
                found
            }),
            Some("astray-is-final") if damaged => direct(&log, wanted.0, max_bytes),
            _ => history::read(&log, wanted.0, max_bytes),
        };
        let found = found.map_err(|error| format!("{} of {count}: {error}", wanted.0))?;
        expect(found.contains(wanted), || {
            format!("{wanted:?} is not in {found:?}")
        })?;
    }
    times(script, &log, count as i64)
}

/// The planted bug: gives up where a read would wait, as the repair of a wrong index does.
fn direct(log: &Log, offset: i64, max_bytes: usize) -> Result<history::Content, String> {
    let location = log.locate(offset, Isolation::HighWatermark);
    let location = location.map_err(|error| error.to_string())?;
    let slice = location.resolve(max_bytes, true, Wait::Nowait);
    slice.map_err(|error| error.to_string())?;
    history::read(log, offset, max_bytes)
}

fn times(script: &mut Script<'_>, log: &Log, count: i64) -> Verdict {
    for _ in 0..3 {
        let timestamp = 900 + script.below(300) as i64;
        let query = log.offset_for_time(TimeSpec::At(timestamp), Isolation::HighWatermark);
        let found = query.resolve(Wait::Blocking);
        let found = found.map_err(|error| format!("at {timestamp}: {error}"))?;
        let fits = found
            .is_none_or(|found| (0..count).contains(&found.offset) && found.timestamp >= timestamp);
        expect(fits, || format!("at {timestamp}: {found:?}"))?;
    }
    Ok(())
}
