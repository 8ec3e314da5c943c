//! What protection costs, where `cost` does not run: it is not known.

use pagewarden::database::Description;

/// What protection costs here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Price {
    /// What was measured: nothing.
    pub(super) known: Vec<String>,
    /// The command that measures it: none.
    pub(super) command: Option<String>,
}

/// A measurement, of which there is none.
pub(super) enum Run {}

/// The price of an engine's protection.
pub(super) fn price(_: &Description, _: &[Run]) -> Price {
    Price { known: Vec::new(), command: None }
}

/// No measurements.
pub(super) fn runs() -> Vec<Run> {
    Vec::new()
}
