//! What each page of a run counts as, in page order. Neighbours that count as
//! the same share an entry: most runs are a single one.

use crate::verdict::Standing;

/// The list; see the module. An entry without a standing is a page that is in
/// no count, such as SQLite's lock-byte page.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standings {
    entries: Vec<(Option<Standing>, u32)>,
}

impl Standings {
    /// Appends the next page.
    pub fn push(&mut self, standing: Option<Standing>) {
        match self.entries.last_mut() {
            Some((last, pages)) if *last == standing && *pages < u32::MAX => *pages += 1,
            _ => self.entries.push((standing, 1)),
        }
    }

    /// Changes what the page at `index` counts as; nothing if there is none.
    pub fn set(&mut self, index: u64, standing: Option<Standing>) {
        let mut at = 0;
        for (was, pages) in std::mem::take(&mut self.entries) {
            for _ in 0..pages {
                self.push(if at == index { standing } else { was });
                at += 1;
            }
        }
    }

    /// The entries: what a number of pages counts as.
    pub fn iter(&self) -> impl Iterator<Item = (Option<Standing>, u64)> {
        self.entries.iter().map(|(standing, pages)| (*standing, u64::from(*pages)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_the_middle_is_changed_and_neighbours_are_joined_again() {
        let mut standings = Standings::default();
        for _ in 0..5 {
            standings.push(Some(Standing::Ok));
        }
        standings.set(2, Some(Standing::Damaged));
        standings.set(9, None);
        let entries: Vec<_> = standings.iter().collect();
        assert_eq!(
            entries,
            [(Some(Standing::Ok), 2), (Some(Standing::Damaged), 1), (Some(Standing::Ok), 2)]
        );
        standings.set(2, Some(Standing::Ok));
        assert_eq!(standings.iter().collect::<Vec<_>>(), [(Some(Standing::Ok), 5)]);
    }
}
