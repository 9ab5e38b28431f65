//! Bugs that a simulation plants to see that it finds them. In production builds there is none, and
//! no way to plant one: feature `sim`.

/// What can be planted; each is a mistake that somebody made before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A follower cuts its log to its high watermark, and goes by no epochs (before KIP-101).
    TruncateToHighWatermark,
    /// A follower joins the in-sync replicas before it has reached the leader epoch's start (KAFKA-7128).
    JoinBeforeEpochStart,
    /// What is in memory only counts for the high watermark.
    #[cfg(feature = "sim")]
    HighWatermarkAboveGate,
    /// The records that come with a diverging epoch are sent and appended.
    AppendDiverging,
    /// Neither acks=all nor the high watermark asks for `min.insync.replicas`.
    AckBelowMinIsr,
    /// The leader answers for an epoch that it does not know (before KIP-279).
    AnswerForUnknownEpoch,
    /// Nobody looks at the leader epoch that a request names (before KIP-320).
    AcceptAnyLeaderEpoch,
    /// The high watermark goes by `min.insync.replicas` alone, whoever is eligible outside the ISR.
    MoveWhileHeld,
    /// A follower asks for what comes next while a write is under way: it tells that it has it.
    AskWhileWriting,
    /// The leader says of any offset beyond its end that nothing is there, whoever leads by now.
    OutOfRangeInDoubt,
    /// A directory is marked clean although records lie in the block cache alone.
    CloseOverUnwritten,
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

    const NAMES: [(&str, Fault); 11] = [
        ("truncate_to_high_watermark", Fault::TruncateToHighWatermark),
        ("join_before_epoch_start", Fault::JoinBeforeEpochStart),
        ("high_watermark_above_gate", Fault::HighWatermarkAboveGate),
        ("append_diverging", Fault::AppendDiverging),
        ("ack_below_min_isr", Fault::AckBelowMinIsr),
        ("answer_for_unknown_epoch", Fault::AnswerForUnknownEpoch),
        ("accept_any_leader_epoch", Fault::AcceptAnyLeaderEpoch),
        ("move_while_held", Fault::MoveWhileHeld),
        ("ask_while_writing", Fault::AskWhileWriting),
        ("out_of_range_in_doubt", Fault::OutOfRangeInDoubt),
        ("close_over_unwritten", Fault::CloseOverUnwritten),
    ];

    /// Whether a bug is planted.
    pub fn is_injected(bug: Fault) -> bool {
        PLANTED.load(Ordering::Relaxed) & (1 << bug as u32) != 0
    }

    /// Plants the bugs of these names and no others, in the whole process; the first name that is not
    /// known is given back.
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
