//! Colours on a terminal.

use crate::verdict::{Severity, Verdict};

/// Escape sequences, or nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colours(pub bool);

impl Colours {
    /// `text` in the colours of `code` (the numbers of the sequence).
    #[must_use]
    pub fn paint(self, text: &str, code: &str) -> String {
        if self.0 && !code.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }

    /// The word for a severity, padded to the width of the longest.
    #[must_use]
    pub fn severity(self, severity: Severity) -> String {
        // Padded before it is painted: escape sequences have no width.
        let word = format!("{:<8}", severity.name());
        match severity {
            Severity::Damage => self.paint(&word, "1;31"),
            Severity::Suspect => self.paint(&word, "33"),
            Severity::Notice => self.paint(&word, "36"),
        }
    }

    /// The word for a verdict.
    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> String {
        let code = match verdict {
            Verdict::Damaged => "1;31",
            Verdict::Incomplete | Verdict::Suspect | Verdict::Unprotected => "33",
            Verdict::Intact => "32",
        };
        self.paint(verdict.name(), code)
    }
}
