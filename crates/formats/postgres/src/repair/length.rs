//! How long the main fork of a relation was, whose files lack pages.
//!
//! The length of a copy, and what the log says of the relation since: records that name a block show that
//! it was there, `XLOG_SMGR_TRUNCATE` cuts it, `XLOG_SMGR_CREATE` begins it anew, and the end of a
//! transaction that drops it leaves nothing to bring back. That is what replay would make of the copy.
//!
//! Pages that a server has added at the end, and that no record names, are in no log: they hold nothing, and
//! a crash would have lost them too. A copy from after that has them.
//!
//! Sources: `storage_xlog.h`, `smgr_redo` and `XLogReadBufferExtended` of 10 to 18.

#![deny(clippy::arithmetic_side_effects)]

/// What a record says of a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// It begins with no page.
    Created,
    /// It ends before this block.
    Cut(u32),
    /// This block is there.
    Names(u32),
    /// It is gone.
    Dropped,
}

/// What a log says of a length, in its order, with the positions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Steps {
    list: Vec<(u64, Change)>,
    /// As many pages as the log alone knows to be there.
    pages: u32,
}

/// What comes of a copy's length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Length {
    /// As many pages.
    Pages(u32),
    /// The relation was dropped.
    Gone,
}

impl Steps {
    /// Takes a record in.
    pub(super) fn add(&mut self, begin: u64, change: Change) {
        let pages = after(self.pages, change);
        let is_news = pages != self.pages || !matches!(change, Change::Names(_));
        self.pages = pages;
        if !is_news {
            return;
        }
        // Of blocks that follow one another the last is enough.
        if let (Change::Names(_), Some((_, last @ Change::Names(_)))) =
            (change, self.list.last_mut())
        {
            *last = change;
        } else {
            self.list.push((begin, change));
        }
    }

    /// The length in the end, of a copy that had `pages`, as of `since` or later.
    pub(super) fn of_copy(&self, pages: u32, since: u64) -> Length {
        let (mut copied, mut named, mut is_gone) = (pages, 0, false);
        for (begin, change) in &self.list {
            named = after(named, *change);
            is_gone = match change {
                Change::Created => false,
                Change::Dropped => true,
                _ => is_gone,
            };
            // What was before is in the copy.
            if *begin >= since && !matches!(change, Change::Names(_)) {
                copied = after(copied, *change);
            }
        }
        match is_gone {
            true => Length::Gone,
            false => Length::Pages(copied.max(named)),
        }
    }

    /// The length in the end, if the log has the relation's begin, with the position of that.
    pub(super) fn of_log(&self) -> Option<(Length, u64)> {
        self.list.iter().rev().find_map(|(begin, change)| match change {
            Change::Created => Some((Length::Pages(self.pages), *begin)),
            Change::Dropped => Some((Length::Gone, *begin)),
            _ => None,
        })
    }
}

fn after(pages: u32, change: Change) -> u32 {
    match change {
        Change::Created | Change::Dropped => 0,
        Change::Cut(from) => pages.min(from),
        Change::Names(block) => pages.max(block.saturating_add(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(changes: &[(u64, Change)]) -> Steps {
        let mut steps = Steps::default();
        changes.iter().for_each(|(begin, change)| steps.add(*begin, *change));
        steps
    }

    #[test]
    fn length_is_that_of_the_copy_and_what_the_log_adds_and_cuts() {
        use Change::{Created, Cut, Dropped, Names};
        let of = |changes: &[(u64, Change)]| steps(changes).of_copy(100, 50);
        assert_eq!(of(&[]), Length::Pages(100));
        assert_eq!(of(&[(60, Names(7))]), Length::Pages(100));
        assert_eq!(of(&[(60, Names(120)), (61, Names(110))]), Length::Pages(121));
        assert_eq!(of(&[(60, Cut(40))]), Length::Pages(40));
        assert_eq!(of(&[(60, Cut(40)), (61, Names(44))]), Length::Pages(45));
        // A cut from before is in the copy, and a block that the copy lacks was there all the same.
        assert_eq!(of(&[(40, Cut(40))]), Length::Pages(100));
        assert_eq!(of(&[(40, Names(150)), (60, Names(3))]), Length::Pages(151));
        assert_eq!(of(&[(40, Names(150)), (60, Cut(40)), (70, Names(50))]), Length::Pages(51));
        assert_eq!(of(&[(60, Created), (61, Names(3))]), Length::Pages(4));
        // Dropped is never brought back, unless the number was given away anew.
        assert_eq!(of(&[(60, Dropped)]), Length::Gone);
        assert_eq!(of(&[(40, Dropped), (60, Names(3))]), Length::Gone);
        assert_eq!(of(&[(60, Dropped), (70, Created), (71, Names(3))]), Length::Pages(4));
    }

    #[test]
    fn log_alone_knows_the_length_of_what_was_created_in_it() {
        use Change::{Created, Cut, Dropped, Names};
        assert_eq!(steps(&[(60, Names(3))]).of_log(), None);
        let of = |changes: &[(u64, Change)]| steps(changes).of_log();
        assert_eq!(of(&[(60, Created), (61, Names(9))]), Some((Length::Pages(10), 60)));
        assert_eq!(
            of(&[(60, Created), (61, Names(9)), (62, Cut(2))]),
            Some((Length::Pages(2), 60))
        );
        assert_eq!(of(&[(60, Created), (61, Dropped)]), Some((Length::Gone, 61)));
    }
}
