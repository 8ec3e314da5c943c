//! The pages of a target as a map: a few hundred tiles, each as bad as its worst page and as old as
//! its oldest one.

use anyhow::{Context as _, Result};

use super::{Ledger, TargetId, uint};

/// Tiles of a map.
pub const TILES_MAX: u64 = 512;

/// How a tile's worst page stands, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// A page has a finding of damage.
    Damaged,
    /// A page has a suspect finding.
    Suspect,
    /// A page was never verified, or not since it was changed.
    Unverified,
    /// All were verified in an earlier pass.
    Earlier,
    /// All were verified in the pass that is under way, or the last one.
    Verified,
}

/// A run of pages, in the order of the names of files.
#[derive(Debug, Clone)]
pub struct Tile {
    /// The file where it begins.
    pub file: String,
    /// The page of that file where it begins.
    pub page: u64,
    /// How its worst page stands.
    pub state: State,
    /// When the page was verified that was verified longest ago; `None` if one never was.
    pub oldest_at: Option<i64>,
    /// Pages that claims cover.
    pub(crate) covered: u64,
    /// All claims are of the last pass.
    pub(crate) is_of_pass: bool,
}

/// A map of a target.
#[derive(Debug, Default)]
pub struct Tiles {
    /// In order.
    pub tiles: Vec<Tile>,
    /// Pages of each tile but the last.
    pub pages_each: u64,
    /// All pages.
    pub pages: u64,
}

impl Ledger {
    /// A map of all pages of a target.
    ///
    /// # Errors
    /// The ledger cannot be read.
    pub fn tiles(&self, target: TargetId) -> Result<Tiles> {
        tiles(self, target).context("cannot read the ledger")
    }
}

/// A file, and where its pages are among all.
struct Placed {
    id: i64,
    name: String,
    page_size: u64,
    first: u64,
    /// The number of its first page among all.
    begin: u64,
    pages: u64,
}

fn tiles(ledger: &Ledger, target: TargetId) -> rusqlite::Result<Tiles> {
    let files = files(ledger, target)?;
    let pages = files.last().map_or(0, |file| file.begin.saturating_add(file.pages));
    let pages_each = pages.div_ceil(TILES_MAX).max(1);
    let count = pages.div_ceil(pages_each);
    let mut map = Tiles { tiles: Vec::new(), pages_each, pages };
    let mut of = files.iter().peekable();
    for number in 0..count {
        let begin = number.saturating_mul(pages_each);
        let is_behind = |file: &&Placed| file.begin.saturating_add(file.pages) <= begin;
        while of.next_if(|file| is_behind(file)).is_some() {}
        let Some(file) = of.peek() else { break };
        map.tiles.push(Tile {
            file: file.name.clone(),
            page: begin.saturating_sub(file.begin),
            state: State::Verified,
            oldest_at: None,
            covered: 0,
            is_of_pass: true,
        });
    }
    let pass: i64 =
        ledger.db.query_row("SELECT pass FROM target WHERE id = ?1", [target], |row| row.get(0))?;
    let mut claims = ledger
        .db
        .prepare_cached("SELECT begin, end, pass, at FROM claim WHERE file = ?1 ORDER BY begin")?;
    for file in &files {
        let mut rows = claims.query([file.id])?;
        while let Some(row) = rows.next()? {
            let (begin, end) = (file.page_at(uint(row.get(0)?)), file.page_at(uint(row.get(1)?)));
            let (is_of_pass, at): (bool, i64) = (row.get::<_, i64>(2)? == pass, row.get(3)?);
            map.claim(
                file.begin.saturating_add(begin),
                file.begin.saturating_add(end),
                is_of_pass,
                at,
            );
        }
    }
    map.conclude();
    let mut findings = ledger.db.prepare_cached(
        "SELECT file, offset, severity FROM finding
         WHERE target = ?1 AND closed_at IS NULL AND severity <> 'notice' AND member = ''",
    )?;
    let mut rows = findings.query([target])?;
    while let Some(row) = rows.next()? {
        let (name, offset): (String, Option<i64>) = (row.get(0)?, row.get(1)?);
        let severity: String = row.get(2)?;
        let state = if severity == "damage" { State::Damaged } else { State::Suspect };
        let found = files.binary_search_by(|file| file.name.as_str().cmp(&name));
        if let Some(file) = found.ok().and_then(|index| files.get(index)) {
            let page = file.page_at(uint(offset.unwrap_or(0)).max(file.first));
            map.worsen(file.begin.saturating_add(page.min(file.pages.saturating_sub(1))), state);
        }
    }
    Ok(map)
}

/// By name, as bytes: the order of the binary search.
fn files(ledger: &Ledger, target: TargetId) -> rusqlite::Result<Vec<Placed>> {
    let mut statement = ledger.db.prepare_cached(
        "SELECT id, name, page_size, first, end FROM file WHERE target = ?1 AND first < end
         ORDER BY name",
    )?;
    let mut rows = statement.query([target])?;
    let mut files: Vec<Placed> = Vec::new();
    let mut begin = 0_u64;
    while let Some(row) = rows.next()? {
        let page_size = uint(row.get(2)?).max(1);
        let (first, end) = (uint(row.get(3)?), uint(row.get(4)?));
        let pages = end.saturating_sub(first) / page_size;
        let (id, name) = (row.get(0)?, row.get(1)?);
        files.push(Placed { id, name, page_size, first, begin, pages });
        begin = begin.saturating_add(pages);
    }
    Ok(files)
}

impl Placed {
    /// The page at an offset, counted from its first.
    fn page_at(&self, offset: u64) -> u64 {
        (offset.saturating_sub(self.first) / self.page_size).min(self.pages)
    }
}

impl Tiles {
    fn claim(&mut self, begin: u64, end: u64, is_of_pass: bool, at: i64) {
        let first = begin / self.pages_each;
        for (tile, number) in self.tiles.iter_mut().skip(index(first)).zip(first..) {
            let tile_begin = number.saturating_mul(self.pages_each);
            let tile_end = tile_begin.saturating_add(self.pages_each);
            if tile_begin >= end {
                return;
            }
            tile.covered += end.min(tile_end).saturating_sub(begin.max(tile_begin));
            tile.is_of_pass &= is_of_pass;
            tile.oldest_at = Some(tile.oldest_at.map_or(at, |oldest| oldest.min(at)));
        }
    }

    /// All claims are in.
    fn conclude(&mut self) {
        for (tile, number) in self.tiles.iter_mut().zip(0_u64..) {
            let begin = number.saturating_mul(self.pages_each);
            let pages = self.pages.saturating_sub(begin).min(self.pages_each);
            tile.state = match (tile.covered >= pages, tile.is_of_pass) {
                (false, _) => State::Unverified,
                (true, false) => State::Earlier,
                (true, true) => State::Verified,
            };
            tile.oldest_at = tile.oldest_at.filter(|_| tile.covered >= pages);
        }
    }

    fn worsen(&mut self, page: u64, state: State) {
        if let Some(tile) = self.tiles.get_mut(index(page / self.pages_each)) {
            tile.state = tile.state.min(state);
        }
    }
}

fn index(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use pagewarden::verdict::{ByteOffset, Finding, Kind, Severity};

    use super::*;
    use crate::ledger::claims::{Identity, Listed, claim, file};
    use crate::ledger::findings::{Room, Run, record};
    use crate::ledger::tests::ledger;

    #[test]
    fn tiles_are_as_bad_as_their_worst_page_and_as_old_as_their_oldest() {
        let (_folder, _held, mut ledger, target) = ledger();
        let listed = |name: &str, pages: u64| Listed {
            name: name.to_owned(),
            identity: Identity { inode: 1, born: 1, changed: 1, size: pages * 10 },
            page_size: 10,
            first: 0,
            end: pages * 10,
        };
        let files = [listed("a", 1024), listed("b", 6), listed("empty", 0), listed("z", 506)];
        ledger.list(target, crate::ledger::claims::Look::default(), files.into_iter(), 1).unwrap();
        let first = ledger.begin_pass(target, 1).unwrap();
        let id = |name| file(&ledger.db, target, name).unwrap().unwrap().id;
        // All but one page of a, in two passes; all of b.
        claim(&ledger.db, id("a"), 0, 10_220, first, 100).unwrap();
        claim(&ledger.db, id("b"), 0, 60, first, 100).unwrap();
        ledger.db.execute("UPDATE target SET pass = 2", []).unwrap();
        claim(&ledger.db, id("a"), 0, 5000, 2, 200).unwrap();
        let mut finding = Finding::of_file("z", Severity::Damage, Kind::Torn, String::new());
        finding.place.offset = Some(ByteOffset(5055));
        let run = Run { target, member: "", run: 1, pass: 2, now: 5 };
        let mut room = Room::of(&ledger.db, target).unwrap();
        record(&ledger.db, run, &finding, true, &mut room).unwrap();
        let map = ledger.tiles(target).unwrap();
        assert_eq!((map.pages, map.pages_each, map.tiles.len()), (1536, 3, 512));
        let at = |page: u64| &map.tiles[index(page / 3)];
        assert_eq!((at(0).state, at(0).oldest_at), (State::Verified, Some(200)));
        // Pages 498 to 500: the last of them is of the first pass.
        assert_eq!((at(500).state, at(500).oldest_at), (State::Earlier, Some(100)));
        assert_eq!((at(1023).state, at(1023).oldest_at), (State::Unverified, None));
        assert_eq!((at(1024).file.as_str(), at(1024).page), ("a", 1023));
        assert_eq!((at(1027).state, at(1027).file.as_str()), (State::Earlier, "b"));
        assert_eq!((at(1032).state, at(1032).file.as_str()), (State::Unverified, "z"));
        assert_eq!(at(1535).state, State::Damaged);
        assert!(ledger.tiles(99).is_err(), "no such target");
    }
}
