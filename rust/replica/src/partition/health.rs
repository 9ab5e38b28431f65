//! Whether a partition may serve.

/// Whether the invariants hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// They did when they were last checked.
    Sound,
    /// One is broken, and nobody was told: this is the sentence.
    Broken(String),
    /// The directory was told.
    Told,
}
