//! Whether a partition may serve.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Health {
    /// They held at the last check.
    Sound,
    /// One is broken, in this sentence; nobody was told.
    Broken(String),
    /// The directory was told.
    Told,
}
