//! The sets of a repository as their verdicts come in, and what its log says of the time between them.

use std::time::{Duration, SystemTime};

use crate::database::Description;
use crate::database::repository::{Log, RepositoryPart, spans};
use crate::verdict::Verdict;
use crate::words::time_of;

/// See the module.
#[derive(Debug, Clone, Default)]
pub(super) struct SetsSeen {
    /// Sets that were judged.
    pub(super) seen: u64,
    /// Those without damage of which all was looked at.
    pub(super) sound: u64,
    /// The sound set that was done last: its name, and when that was.
    pub(super) newest_sound: Option<(String, SystemTime)>,
}

impl SetsSeen {
    /// Counts a target if it is a set.
    pub(super) fn add(&mut self, description: &Description, verdict: Verdict) {
        let is_sound = matches!(verdict, Verdict::Intact | Verdict::Unprotected);
        let set = match &description.part {
            Some(RepositoryPart::Set(set)) => Some(set),
            Some(RepositoryPart::Media) => None,
            _ => return,
        };
        self.seen = self.seen.saturating_add(1);
        self.sound = self.sound.saturating_add(u64::from(is_sound));
        let Some(set) = set.filter(|_| is_sound) else { return };
        let time = set.stopped.as_deref().or(set.started.as_deref()).and_then(time_of);
        let Some(time) = time else { return };
        if self.newest_sound.as_ref().is_none_or(|(_, newest)| *newest < time) {
            self.newest_sound = Some((set.label.clone(), time));
        }
    }
}

/// The longest time between moments that can be restored, in which none can; zero where there is none.
/// `None` where times are not known.
pub(super) fn longest_gap(log: &Log) -> Option<Duration> {
    let spans = spans(&log.restorable)?;
    let gaps = spans.windows(2).filter_map(|pair| match pair {
        [before, after] => {
            let (end, begin) = (time_of(before.1)?, time_of(after.0)?);
            begin.duration_since(end).ok()
        }
        _ => None,
    });
    gaps.max().or(Some(Duration::ZERO))
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::database::repository::{Backup, Lsn, Restorable};
    use crate::report::sample::description;

    /// A set of a repository, done at that hour.
    pub(crate) fn set(label: &str, hour: u32) -> Description {
        let backup = Backup {
            label: label.to_owned(),
            stopped: Some(format!("2026-11-23T{hour:02}:00:00Z")),
            ..Backup::default()
        };
        let part = Some(RepositoryPart::Set(Arc::new(backup)));
        Description { part, ..description(&format!("/repo#{label}")) }
    }

    /// A log that brings a set from one hour to another.
    pub(crate) fn log(ways: &[(&str, u32, u32)]) -> Log {
        let restorable = ways.iter().map(|(set, from, to)| Restorable {
            set: (*set).to_owned(),
            timeline: 1,
            from_lsn: Lsn(u64::from(*from) << 24),
            to_lsn: Lsn(u64::from(*to) << 24),
            from_time: Some(format!("2026-11-23T{from:02}:00:00Z")),
            to_time: Some(format!("2026-11-23T{to:02}:00:00Z")),
        });
        Log { restorable: restorable.collect(), ..Log::default() }
    }

    #[test]
    fn newest_sound_set_is_the_last_one_without_damage() {
        let mut sets = SetsSeen::default();
        sets.add(&set("a", 3), Verdict::Intact);
        sets.add(&set("b", 5), Verdict::Unprotected);
        sets.add(&set("c", 7), Verdict::Damaged);
        sets.add(&set("d", 8), Verdict::Incomplete);
        sets.add(&description("/repo"), Verdict::Intact);
        assert_eq!((sets.seen, sets.sound), (4, 2));
        let (label, time) = sets.newest_sound.unwrap();
        assert_eq!((label.as_str(), Some(time)), ("b", time_of("2026-11-23T05:00:00Z")));
    }

    #[test]
    fn longest_gap_is_that_between_spans() {
        let hours =
            |ways: &[(&str, u32, u32)]| longest_gap(&log(ways)).map(|gap| gap.as_secs() / 3600);
        assert_eq!(hours(&[("a", 1, 4), ("b", 3, 6), ("c", 9, 10), ("d", 12, 13)]), Some(3));
        assert_eq!(hours(&[("a", 1, 4)]), Some(0));
        let mut unknown = log(&[("a", 1, 4)]);
        unknown.restorable[0].to_time = None;
        assert_eq!(longest_gap(&unknown), None);
    }
}
