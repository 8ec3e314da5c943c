//! Which of several copies of a page is taken, whatever the engine.

use std::cmp::Reverse;

use super::{Page, Planned, Proof};

/// What a candidate is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Worth {
    /// It is the version that was written last; why.
    Exact(String),
    /// A version that the engine's own redo brought forward to the end of the log; from where to where.
    Replayed(String),
    /// A version that the page has had, or may have had; why it may be no more.
    Older(String),
}

impl Worth {
    /// Why.
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Exact(why) | Self::Replayed(why) | Self::Older(why) => why,
        }
    }

    /// True for the version that was written last.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    fn is_replayed(&self) -> bool {
        matches!(self, Self::Replayed(_))
    }

    fn proof(&self) -> Proof {
        match self {
            Self::Exact(_) => Proof::Exact,
            Self::Replayed(_) => Proof::Replayed,
            Self::Older(_) => Proof::Older,
        }
    }
}

/// A copy of a page that passed the page's own test.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// The page.
    pub bytes: Vec<u8>,
    /// Where it is from, in words.
    pub source: String,
    /// What it is worth.
    pub worth: Worth,
    /// The engine's own measure of time: of two older ones the larger is better.
    pub moment: u64,
}

/// The best candidate, and why it is that one or none. Two that are both proved and not the same
/// version prove that something here is wrong: then it is none. `objections` are the reasons against
/// copies that are no candidates.
pub fn choose(
    candidates: Vec<Candidate>,
    objections: &[String],
    is_same: impl Fn(&[u8], &[u8]) -> bool,
) -> (Option<Candidate>, String) {
    let (mut proved, rest): (Vec<_>, Vec<_>) =
        candidates.into_iter().partition(|one| one.worth.is_exact());
    let (replayed, mut older): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|one| one.worth.is_replayed());
    // Redo may leave other hints and positions than the server that did the work.
    if proved.is_empty() {
        proved = replayed;
    }
    if let Some(first) = proved.first() {
        if let Some(other) = proved.iter().find(|one| !is_same(&one.bytes, &first.bytes)) {
            let reason = format!(
                "two copies are proved and differ, so neither is taken: {} and {}",
                first.source, other.source
            );
            return (None, reason);
        }
        let best = proved.swap_remove(0);
        let reason = best.worth.words().to_owned();
        return (Some(best), reason);
    }
    older.sort_by_key(|one| Reverse(one.moment));
    if older.is_empty() {
        let reason = match objections.is_empty() {
            true => "no copy of this page was found".to_owned(),
            false => objections.join("; "),
        };
        return (None, reason);
    }
    let best = older.swap_remove(0);
    let reason = format!("not proved to be the last version: {}", best.worth.words());
    (Some(best), reason)
}

/// What is done about candidates that are not proved.
#[derive(Debug, Clone, Copy)]
pub struct Older<'a> {
    /// They are taken.
    pub is_accepted: bool,
    /// Why one is never taken for this page, and what to do, if so.
    pub never: Option<&'a str>,
    /// What to do once one was taken.
    pub after: &'a str,
}

impl Planned {
    /// Puts the best candidate into the plan, if it may be written. The reason is there already.
    pub fn take(&mut self, best: Candidate, older: Older<'_>) {
        let proof = best.worth.proof();
        let is_proved = proof != Proof::Older;
        let page: &mut Page = &mut self.page;
        page.source = Some(best.source);
        page.proof = Some(proof);
        if best.bytes == self.old {
            page.proof = None;
            page.reason = format!("{}; but the same bytes are here already", page.reason);
            page.hint = Some("what contradicts this page is elsewhere: see check".to_owned());
            return;
        }
        match older.never.filter(|_| !is_proved) {
            Some(never) => page.hint = Some(never.to_owned()),
            None if is_proved || older.is_accepted => {
                page.after = Some(blake3::hash(&best.bytes).to_hex().to_string());
                page.hint = (!is_proved).then(|| older.after.to_owned());
                self.new = Some(best.bytes);
            }
            None => {
                let hint = "--accept-older takes it, and loses what changed since";
                page.hint = Some(hint.to_owned());
            }
        }
    }
}
