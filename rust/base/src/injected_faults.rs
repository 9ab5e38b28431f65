//! Bugs that a simulation plants to test that it finds them. Only with feature `sim`.

/// A bug to plant: a known mistake each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A follower truncates to its high watermark, not by epochs (before KIP-101).
    TruncateToHighWatermark,
    /// A follower joins the ISR before it reaches the leader epoch's start (KAFKA-7128).
    JoinBeforeEpochStart,
    /// The high watermark passes the durable end offset.
    #[cfg(feature = "sim")]
    HighWatermarkAboveDurableEnd,
    /// Records that come with a diverging epoch are sent and appended.
    AppendDiverging,
    /// Neither acks=all nor the high watermark requires `min.insync.replicas`.
    AckBelowMinIsr,
    /// The leader answers for an epoch it does not know (before KIP-279).
    AnswerForUnknownEpoch,
    /// A request's leader epoch is ignored (before KIP-320).
    AcceptAnyLeaderEpoch,
    /// The high watermark depends on `min.insync.replicas` alone, not on eligible replicas outside
    /// the ISR.
    MoveWhileHeld,
    /// A follower fetches during a write and so claims to have its records.
    AskWhileWriting,
    /// The leader answers OFFSET_OUT_OF_RANGE beyond its end although another broker may lead.
    OutOfRangeInDoubt,
    /// A directory is marked clean although its block cache has unwritten records.
    CloseOverUnwritten,
    /// A transaction's first batch enters once its coordinator has agreed, whatever has come since
    /// (KIP-890 without its guard).
    EnterWithoutGuard,
    /// Markers of former coordinators are written.
    AcceptAnyCoordinatorEpoch,
    /// A partial replica joins the ISR as soon as it has the new records.
    JoinPartial,
    /// A partial replica that the controller does not know as one keeps its log.
    KeepUnlisted,
    /// A back-fill takes records that are not committed, of any leader epoch, from any replica.
    FillTruncatedEpoch,
    /// A back-filled segment ends before its last batch.
    FillLeavesGap,
}

/// Whether a bug is planted.
#[cfg(not(feature = "sim"))]
#[inline(always)]
pub const fn is_injected(_bug: Fault) -> bool {
    false
}

#[cfg(feature = "sim")]
pub use planting::{is_injected, plant};

#[cfg(feature = "sim")]
mod planting {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Fault;

    static PLANTED: AtomicU32 = AtomicU32::new(0);

    const NAMES: [(&str, Fault); 17] = [
        ("truncate_to_high_watermark", Fault::TruncateToHighWatermark),
        ("join_before_epoch_start", Fault::JoinBeforeEpochStart),
        (
            "high_watermark_above_durable_end",
            Fault::HighWatermarkAboveDurableEnd,
        ),
        ("append_diverging", Fault::AppendDiverging),
        ("ack_below_min_isr", Fault::AckBelowMinIsr),
        ("answer_for_unknown_epoch", Fault::AnswerForUnknownEpoch),
        ("accept_any_leader_epoch", Fault::AcceptAnyLeaderEpoch),
        ("move_while_held", Fault::MoveWhileHeld),
        ("ask_while_writing", Fault::AskWhileWriting),
        ("out_of_range_in_doubt", Fault::OutOfRangeInDoubt),
        ("close_over_unwritten", Fault::CloseOverUnwritten),
        ("enter_without_guard", Fault::EnterWithoutGuard),
        (
            "accept_any_coordinator_epoch",
            Fault::AcceptAnyCoordinatorEpoch,
        ),
        ("join_partial", Fault::JoinPartial),
        ("keep_unlisted", Fault::KeepUnlisted),
        ("fill_truncated_epoch", Fault::FillTruncatedEpoch),
        ("fill_leaves_gap", Fault::FillLeavesGap),
    ];

    /// Whether a bug is planted.
    pub fn is_injected(bug: Fault) -> bool {
        PLANTED.load(Ordering::Relaxed) & (1 << bug as u32) != 0
    }

    /// Plants exactly the named bugs, process-wide; returns the first unknown name.
    pub fn plant(names: &[String]) -> Result<(), String> {
        let mut bits = 0;
        for name in names {
            match NAMES.iter().find(|(known, _)| known == name) {
                Some((_, bug)) => bits |= 1 << *bug as u32,
                None => return Err(name.clone()),
            }
        }
        PLANTED.store(bits, Ordering::Relaxed);
        Ok(())
    }
}
