//! Whether a source's segment goes before the first one of a log.

use pyrklog_log::{FillOrigin, FillPlan, Log};
use pyrklog_wire::replica_segments::SegmentOrigin;

/// What a source's segment is to a log.
pub enum Planned {
    /// With the segment's origin where the log is compacted.
    Fill(FillPlan, Option<SegmentOrigin>),
    /// It cannot be taken now.
    Not,
    /// `is_told`: versions without back-fills of compacted logs do not tell which log it is.
    OfAnotherLog { is_told: bool },
}

/// Plans a segment with the records from `begin` on, which a broker has told of.
pub fn plan(log: &Log, begin: i64, broker: i32, told: SegmentOrigin) -> Planned {
    if !log.config().cleanup_compact {
        let plan = log.plan_fill(begin);
        return plan.map_or(Planned::Not, |plan| Planned::Fill(plan, None));
    }
    let opening = told.opening;
    let origin = FillOrigin { broker, opening };
    let is_told = opening != 0;
    if !is_told || !log.may_fill_from(origin, told.clean_below) {
        return Planned::OfAnotherLog { is_told };
    }
    let plan = log.plan_compacted_fill(begin, origin);
    plan.map_or(Planned::Not, |plan| Planned::Fill(plan, Some(told)))
}
