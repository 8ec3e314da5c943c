//! A map of a target's pages: tiles of equally many pages in the order of the
//! files, each marked by its worst page.
//!
//! How many pages there are is known only at the end. So a tile begins as one
//! page, and whenever there is no room for another tile, neighbours are joined
//! two by two: the number of tiles ends between half the room and all of it,
//! and memory is the same for a megabyte and for a hundred terabytes.

use std::fmt;
use std::sync::Arc;

use crate::report::TargetEnd;
use crate::report::colours::Colours;
use crate::verdict::{PageCounts, Place, Recount, Standing, Stretch};
use crate::words::{bytes, counted, grouped, printable, shortened};

/// What a tile is marked by: the mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mark {
    /// The run was stopped before it came here.
    NotReached,
    /// See [`Standing::Empty`].
    Empty,
    /// See [`Standing::Ok`].
    Ok,
    /// See [`Standing::Unverifiable`].
    Unverifiable,
    /// See [`Standing::Unprotected`].
    Unprotected,
    /// See [`Standing::Suspect`].
    Suspect,
    /// See [`Standing::Undecided`].
    Undecided,
    /// Could not be read.
    Unread,
    /// See [`Standing::Damaged`].
    Damaged,
}

/// All marks, the worst first.
pub const MARKS: [Mark; 9] = [
    Mark::Damaged,
    Mark::Unread,
    Mark::Undecided,
    Mark::Suspect,
    Mark::Unprotected,
    Mark::Unverifiable,
    Mark::Ok,
    Mark::Empty,
    Mark::NotReached,
];

impl Mark {
    fn of(standing: Standing) -> Self {
        match standing {
            Standing::Ok => Self::Ok,
            Standing::Empty => Self::Empty,
            Standing::Unprotected => Self::Unprotected,
            Standing::Unverifiable => Self::Unverifiable,
            Standing::Undecided => Self::Undecided,
            Standing::Suspect => Self::Suspect,
            Standing::Damaged => Self::Damaged,
        }
    }

    /// The word in a legend.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Damaged => "damaged",
            Self::Unread => "unread",
            Self::Undecided => "undecided",
            Self::Suspect => "suspect",
            Self::Unprotected => "unprotected",
            Self::Unverifiable => "unverifiable",
            Self::Ok => "ok",
            Self::Empty => "empty",
            Self::NotReached => "not reached",
        }
    }

    /// The character on a terminal: what is well is quiet, what is not is not.
    #[must_use]
    pub fn character(self) -> char {
        match self {
            Self::Damaged => 'X',
            Self::Unread => '!',
            Self::Undecided => '~',
            Self::Suspect => '?',
            Self::Unprotected => 'o',
            Self::Unverifiable => 'k',
            Self::Ok => '.',
            Self::Empty => '_',
            Self::NotReached => '-',
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Self::Damaged => "1;97;41",
            Self::Unread => "1;97;45",
            Self::Undecided => "30;46",
            Self::Suspect => "30;43",
            Self::Unprotected => "33",
            Self::Unverifiable => "36",
            Self::Ok => "32",
            Self::Empty | Self::NotReached => "2",
        }
    }
}

/// Pages by mark.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MarkCounts {
    /// Pages that were read.
    pub read: PageCounts,
    /// Pages that could not be.
    pub unread: u64,
    /// Pages that were not come to.
    pub not_reached: u64,
}

impl MarkCounts {
    /// The pages of one mark.
    #[must_use]
    pub fn of(&self, mark: Mark) -> u64 {
        match mark {
            Mark::Damaged => self.read.damaged,
            Mark::Unread => self.unread,
            Mark::Undecided => self.read.undecided,
            Mark::Suspect => self.read.suspect,
            Mark::Unprotected => self.read.unprotected,
            Mark::Unverifiable => self.read.unverifiable,
            Mark::Ok => self.read.ok,
            Mark::Empty => self.read.empty,
            Mark::NotReached => self.not_reached,
        }
    }

    /// All pages.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.read.total() + self.unread + self.not_reached
    }

    /// The worst mark there is.
    #[must_use]
    pub fn worst(&self) -> Mark {
        MARKS.into_iter().find(|mark| self.of(*mark) > 0).unwrap_or(Mark::NotReached)
    }

    /// The same, of tiles together.
    fn join(&mut self, other: &Self) {
        self.read += other.read;
        self.unread += other.unread;
        self.not_reached += other.not_reached;
    }

    fn count(&mut self, what: What, pages: u64) {
        let count = match what {
            What::Standing(Standing::Ok) => &mut self.read.ok,
            What::Standing(Standing::Empty) => &mut self.read.empty,
            What::Standing(Standing::Unprotected) => &mut self.read.unprotected,
            What::Standing(Standing::Unverifiable) => &mut self.read.unverifiable,
            What::Standing(Standing::Undecided) => &mut self.read.undecided,
            What::Standing(Standing::Suspect) => &mut self.read.suspect,
            What::Standing(Standing::Damaged) => &mut self.read.damaged,
            What::Unread => &mut self.unread,
            What::NotReached => &mut self.not_reached,
        };
        *count = count.saturating_add(pages);
    }
}

/// `3 damaged, 125 ok`.
impl fmt::Display for MarkCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for mark in MARKS.into_iter().filter(|mark| self.of(*mark) > 0) {
            write!(f, "{separator}{} {}", grouped(self.of(mark)), mark.name())?;
            separator = ", ";
        }
        Ok(())
    }
}

#[derive(Debug, Clone, Copy)]
enum What {
    Standing(Standing),
    Unread,
    NotReached,
}

/// One page's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The file, shortened and without anything that could mislead.
    pub file: Arc<str>,
    at: At,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Page(u64),
    /// Where the engine's number is not known.
    Byte(u64),
    /// Somewhere behind what was read.
    Behind,
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Page(page) => write!(f, "page {page}"),
            Self::Byte(offset) => write!(f, "byte {offset}"),
            Self::Behind => write!(f, "behind what was read"),
        }
    }
}

/// Neighbouring pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tile {
    /// The first page.
    pub begin: Position,
    /// The last page.
    pub end: Position,
    /// What the pages count as.
    pub counts: MarkCounts,
}

impl Tile {
    /// This tile and those behind it, up to `last`, as one.
    #[must_use]
    pub fn through(&self, rest: &[Self]) -> Self {
        let mut all = self.clone();
        for tile in rest {
            all.counts.join(&tile.counts);
            all.end = tile.end.clone();
        }
        all
    }
}

/// `base/5/16397 page 0 to 127: 3 damaged, 125 ok`.
impl fmt::Display for Tile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { file, at } = &self.begin;
        match (at, &self.end) {
            (At::Behind, _) => write!(f, "{at}")?,
            (_, end) if *end == self.begin => write!(f, "{file} {at}")?,
            (At::Page(_), Position { file: last, at: At::Page(page) }) if last == file => {
                write!(f, "{file} {at} to {page}")?;
            }
            (_, Position { at: At::Behind, .. }) => write!(f, "from {file} {at}")?,
            (_, end) => write!(f, "{file} {at} to {} {}", end.file, end.at)?,
        }
        write!(f, ": {}", self.counts)
    }
}

/// Characters of a file's name that are kept.
const NAME_CHARS_MAX: usize = 60;

/// The map; see the module.
#[derive(Debug)]
pub struct PageMap {
    tiles: Vec<Tile>,
    room: usize,
    pages_per_tile: u64,
    page_bytes: u64,
    /// The last file's name as it was given, and as it is kept.
    file: (String, Arc<str>),
    /// Where the next suspect page to be counted anew may be.
    recount: Cursor,
}

/// A tile, and how many of its suspect pages were counted anew and still
/// count as suspect.
#[derive(Debug, Clone, Copy, Default)]
struct Cursor {
    tile: usize,
    confirmed: u64,
}

impl PageMap {
    /// A map of at most `room` tiles (but at least two) of pages of
    /// `page_bytes`; 0 for pages of all lengths, which are called by where they begin.
    #[must_use]
    pub fn new(room: usize, page_bytes: u32) -> Self {
        Self {
            tiles: Vec::new(),
            // Even, so that every tile has a neighbour to be joined with.
            room: (room - room % 2).max(2),
            pages_per_tile: 1,
            page_bytes: u64::from(page_bytes),
            file: (String::new(), Arc::from("")),
            recount: Cursor::default(),
        }
    }

    /// Adds pages behind those that are there.
    pub fn add(&mut self, stretch: &Stretch<'_>) {
        if self.file.0 != stretch.file {
            let kept = shortened(&printable(stretch.file), NAME_CHARS_MAX);
            self.file = (stretch.file.to_owned(), Arc::from(kept));
        }
        // A length that is unknown is still something that was not read.
        let pages = match self.page_bytes {
            0 => stretch.pages,
            size => stretch.length.div_ceil(size),
        };
        let pages = pages.max(1);
        let what = stretch.standing.map_or(What::Unread, What::Standing);
        let page_bytes = self.page_bytes;
        let at = |index: u64| match stretch.first.filter(|_| page_bytes > 0) {
            Some(first) => At::Page(first.plus(index).0),
            None => At::Byte(stretch.offset.0.saturating_add(index.saturating_mul(page_bytes))),
        };
        self.append(what, pages, at);
    }

    /// Counts pages anew that are on the map. Nothing may be added afterwards.
    pub fn recount(&mut self, recount: &Recount) {
        match recount {
            Recount::NoSums => {
                for tile in &mut self.tiles {
                    let read = &mut tile.counts.read;
                    read.unprotected += std::mem::take(&mut read.ok);
                }
            }
            Recount::Page { place, from, to } => self.recount_page(place, *from, *to),
            Recount::Suspect(standing) => {
                while let Some(tile) = self.tiles.get_mut(self.recount.tile) {
                    if tile.counts.read.suspect > self.recount.confirmed {
                        if *standing == Standing::Suspect {
                            self.recount.confirmed += 1;
                        } else {
                            tile.counts.read.suspect -= 1;
                            tile.counts.count(What::Standing(*standing), 1);
                        }
                        return;
                    }
                    self.recount = Cursor { tile: self.recount.tile + 1, confirmed: 0 };
                }
            }
        }
    }

    /// Looks for the tile of a page by its place. The map does not know which
    /// files lie between the first and the last of a tile: a page of one of
    /// those is counted in the first such tile that can have it.
    fn recount_page(&mut self, place: &Place, from: Standing, to: Standing) {
        let Some(page) = place.page else { return };
        let file = shortened(&printable(&place.file), NAME_CHARS_MAX);
        let in_file = |position: &Position| *position.file == *file;
        let has = |tile: &Tile| tile.counts.of(Mark::of(from)) > 0;
        let holds = |tile: &Tile| {
            let begins = match tile.begin.at {
                At::Page(first) if in_file(&tile.begin) => first <= page.0,
                _ => in_file(&tile.end),
            };
            let ends = match tile.end.at {
                At::Page(last) if in_file(&tile.end) => last >= page.0,
                _ => in_file(&tile.begin),
            };
            begins && ends && has(tile)
        };
        let spans = |tile: &Tile| tile.begin.file != tile.end.file && has(tile);
        let found = self.tiles.iter().position(holds);
        let found = found.or_else(|| self.tiles.iter().position(spans));
        if let Some(tile) = found.and_then(|index| self.tiles.get_mut(index)) {
            tile.counts.read.remove(from);
            tile.counts.count(What::Standing(to), 1);
        }
    }

    /// Adds what a stopped run did not come to, as far as that is known.
    pub fn end(&mut self, target: &TargetEnd<'_>) {
        let Some(listed) = target.listed_bytes.filter(|_| target.verified.summary.stopped) else {
            return;
        };
        let mapped: u64 = self.tiles.iter().map(|tile| tile.counts.total()).sum();
        let listed = listed.checked_div(self.page_bytes).unwrap_or(0);
        let left = listed.saturating_sub(mapped);
        self.append(What::NotReached, left, |_| At::Behind);
    }

    fn append(&mut self, what: What, pages: u64, at: impl Fn(u64) -> At) {
        let mut done = 0;
        while done < pages {
            let full = self.tiles.last().is_none_or(|t| t.counts.total() >= self.pages_per_tile);
            if full {
                if self.tiles.len() >= self.room {
                    self.join_neighbours();
                }
                let begin = Position { file: Arc::clone(&self.file.1), at: at(done) };
                let end = begin.clone();
                self.tiles.push(Tile { begin, end, counts: MarkCounts::default() });
            }
            let Some(tile) = self.tiles.last_mut() else { return };
            let free = self.pages_per_tile.saturating_sub(tile.counts.total());
            let more = free.min(pages - done);
            tile.counts.count(what, more);
            done += more;
            tile.end = Position { file: Arc::clone(&self.file.1), at: at(done - 1) };
        }
    }

    fn join_neighbours(&mut self) {
        self.tiles = self
            .tiles
            .chunks(2)
            .filter_map(|pair| pair.split_first().map(|(first, rest)| first.through(rest)))
            .collect();
        self.pages_per_tile = self.pages_per_tile.saturating_mul(2);
    }

    /// The tiles.
    #[must_use]
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// The marks that occur, the worst first.
    #[must_use]
    pub fn marks(&self) -> Vec<Mark> {
        let occurs = |mark: &Mark| self.tiles.iter().any(|tile| tile.counts.worst() == *mark);
        MARKS.into_iter().filter(occurs).collect()
    }

    /// `one tile is 512 pages (4 MiB), marked by its worst page`.
    #[must_use]
    pub fn scale(&self) -> String {
        let size = match self.page_bytes {
            0 => String::new(),
            size => format!(" ({})", bytes(self.pages_per_tile.saturating_mul(size))),
        };
        if self.pages_per_tile == 1 {
            return format!("one tile is one page{size}");
        }
        format!(
            "one tile is {}{size}, marked by its worst page",
            counted(self.pages_per_tile, "page")
        )
    }
}

/// Lines of tiles on a terminal. With the heading and the legend, that is a
/// screen of 24 lines with room for the verdict.
const LINES_MAX: usize = 16;
/// Before each line, the file that has most of it.
const LABEL_CHARS: usize = 20;
/// A terminal narrower than this gets no names.
const WIDTH_WITH_LABELS: usize = 60;
/// What lines are indented by.
const INDENT: &str = "  ";

/// How a map lies on a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    width: usize,
    label_chars: usize,
    tiles_per_line: usize,
}

impl Layout {
    /// For lines of `width` characters.
    #[must_use]
    pub fn new(width: usize) -> Self {
        let label_chars = if width < WIDTH_WITH_LABELS { 0 } else { LABEL_CHARS + 1 };
        let tiles_per_line = width.saturating_sub(INDENT.len() + label_chars).clamp(8, 512);
        Self { width, label_chars, tiles_per_line }
    }

    /// Tiles for which there is room.
    #[must_use]
    pub fn room(self) -> usize {
        self.tiles_per_line * LINES_MAX
    }
}

impl PageMap {
    /// The map in lines: a heading, the tiles, a legend.
    #[must_use]
    pub fn lines(&self, layout: Layout, colours: Colours) -> Vec<String> {
        if self.tiles.is_empty() {
            return Vec::new();
        }
        let mut lines = vec![format!("{INDENT}map: {}", self.scale())];
        let mut labelled: Option<&Arc<str>> = None;
        for tiles in self.tiles.chunks(layout.tiles_per_line) {
            let mut line = INDENT.to_owned();
            if layout.label_chars > 0 {
                let file = main_file(tiles);
                let label = if labelled == file { None } else { file };
                labelled = file;
                let label = label.map_or_else(String::new, |name| shortened(name, LABEL_CHARS));
                line.push_str(&padded(&label, layout.label_chars));
            }
            let marks: Vec<_> = tiles.iter().map(|tile| tile.counts.worst()).collect();
            for same in marks.chunk_by(|one, next| one == next) {
                let Some(mark) = same.first() else { continue };
                let text: String = same.iter().map(|mark| mark.character()).collect();
                line.push_str(&colours.paint(&text, mark.colour()));
            }
            lines.push(line);
        }
        lines.extend(self.legend(layout, colours));
        lines
    }

    fn legend(&self, layout: Layout, colours: Colours) -> Vec<String> {
        let mut lines = Vec::new();
        let (mut line, mut used) = (INDENT.to_owned(), INDENT.len());
        for mark in self.marks() {
            // The mark, a blank, the word, two blanks.
            let width = mark.name().len() + 4;
            if used + width > layout.width && used > INDENT.len() {
                lines.push(line.trim_end().to_owned());
                (line, used) = (INDENT.to_owned(), INDENT.len());
            }
            line.push_str(&colours.paint(&mark.character().to_string(), mark.colour()));
            line.push_str(&format!(" {}  ", mark.name()));
            used += width;
        }
        lines.push(line.trim_end().to_owned());
        lines
    }
}

/// The file in which most of the tiles begin.
fn main_file(tiles: &[Tile]) -> Option<&Arc<str>> {
    tiles
        .chunk_by(|one, next| one.begin.file == next.begin.file)
        .max_by_key(|tiles| tiles.len())
        .and_then(|tiles| tiles.first())
        .filter(|tile| tile.begin.at != At::Behind)
        .map(|tile| &tile.begin.file)
}

fn padded(text: &str, chars: usize) -> String {
    format!("{text:<chars$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample::stretch;
    use crate::verdict::{ByteOffset, PageNo};

    fn plain(map: &PageMap, width: usize) -> Vec<String> {
        map.lines(Layout::new(width), Colours(false))
    }

    #[test]
    fn a_small_file_has_a_tile_for_each_page() {
        let mut map = PageMap::new(64, 8192);
        map.add(&stretch("base/5/1", 0, 3, Some(Standing::Ok)));
        map.add(&stretch("base/5/1", 3, 1, Some(Standing::Damaged)));
        map.add(&stretch("base/5/1", 4, 2, Some(Standing::Empty)));
        assert_eq!(
            plain(&map, 80),
            [
                "  map: one tile is one page (8 KiB)",
                "  base/5/1             ...X__",
                "  X damaged  . ok  _ empty"
            ]
        );
        assert_eq!(map.tiles()[3].to_string(), "base/5/1 page 3: 1 damaged");
    }

    #[test]
    fn tiles_are_joined_when_there_is_no_room_and_no_page_is_lost() {
        let mut map = PageMap::new(8, 8192);
        map.add(&stretch("a", 0, 1, Some(Standing::Damaged)));
        map.add(&stretch("a", 1, 999, Some(Standing::Ok)));
        map.add(&stretch("b", 0, 25, Some(Standing::Unprotected)));
        let total: u64 = map.tiles().iter().map(|tile| tile.counts.total()).sum();
        assert_eq!(total, 1025);
        assert_eq!(map.pages_per_tile, 256);
        assert_eq!(map.tiles()[0].to_string(), "a page 0 to 255: 1 damaged, 255 ok");
        assert_eq!(map.tiles()[3].to_string(), "a page 768 to b page 23: 24 unprotected, 232 ok");
        assert_eq!(map.tiles()[4].to_string(), "b page 24: 1 unprotected");
    }

    #[test]
    fn a_file_of_a_hundred_tebibytes_that_cannot_be_opened_is_drawn_at_once() {
        let mut map = PageMap::new(4096, 8192);
        map.add(&Stretch {
            file: "huge",
            first: None,
            offset: ByteOffset(0),
            pages: 0,
            length: 100 << 40,
            standing: None,
        });
        assert!(map.tiles().len() <= 4096 && map.tiles().len() > 2048);
        assert!(map.tiles().iter().all(|tile| tile.counts.worst() == Mark::Unread));
        let beyond = Stretch { length: u64::MAX, ..stretch("huge", 0, 0, None) };
        map.add(&beyond);
    }

    #[test]
    fn an_unread_stretch_of_unknown_length_is_on_the_map() {
        let mut map = PageMap::new(8, 8192);
        map.add(&Stretch { length: 0, first: None, ..stretch("closed", 0, 0, None) });
        assert_eq!(map.tiles()[0].to_string(), "closed byte 0: 1 unread");
    }

    #[test]
    fn a_map_fits_the_terminal_whatever_is_on_it() {
        for width in [20, 40, 80, 160, 1000] {
            let layout = Layout::new(width);
            let mut map = PageMap::new(layout.room(), 8192);
            let standings = [
                Some(Standing::Ok),
                Some(Standing::Empty),
                Some(Standing::Unprotected),
                Some(Standing::Unverifiable),
                Some(Standing::Undecided),
                Some(Standing::Suspect),
                Some(Standing::Damaged),
                None,
            ];
            for index in 0..100_000_u64 {
                let file = format!("pg_tblspc/16400/PG_15_202209061/5/{}", index / 1000);
                let standing = standings[usize::try_from(index / 700).unwrap() % 8];
                map.add(&stretch(&file, index % 1000, 1, standing));
            }
            let lines = map.lines(layout, Colours(false));
            assert!(width < 80 || lines.len() <= 20, "{width}: {} lines", lines.len());
            let longest = lines.iter().skip(1).map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= width.max(20), "{width}: {longest}");
            let painted = map.lines(layout, Colours(true)).join("\n");
            assert!(painted.contains("\x1b["));
        }
    }

    /// By its place; and where its file lies inside a tile of several, somewhere
    /// among them.
    #[test]
    fn page_that_is_overruled_is_marked_in_its_tile() {
        let overruled = |file: &str, page| Recount::Page {
            place: Place { file: file.to_owned(), page: Some(PageNo(page)), offset: None },
            from: Standing::Empty,
            to: Standing::Damaged,
        };
        let mut map = PageMap::new(4, 8192);
        for file in ["a", "b", "c", "d"] {
            map.add(&stretch(file, 0, 30, Some(Standing::Empty)));
        }
        map.recount(&overruled("d", 29));
        map.recount(&overruled("a", 0));
        map.recount(&overruled("b", 3));
        let worst: Vec<_> = map.tiles().iter().map(|tile| tile.counts.of(Mark::Damaged)).collect();
        assert_eq!(worst, [1, 1, 0, 1], "{:?}", map.tiles());
        assert_eq!(map.tiles().iter().map(|tile| tile.counts.total()).sum::<u64>(), 120);
        // Nothing of this kind is left to be marked there.
        map.recount(&Recount::Page {
            place: Place { file: "a".to_owned(), page: Some(PageNo(1)), offset: None },
            from: Standing::Ok,
            to: Standing::Damaged,
        });
        let damaged = map.tiles().iter().map(|tile| tile.counts.of(Mark::Damaged)).sum::<u64>();
        assert_eq!(damaged, 3);
    }

    #[test]
    fn pages_that_turn_out_otherwise_are_marked_otherwise() {
        let mut map = PageMap::new(2, 8192);
        map.add(&stretch("a", 0, 1, Some(Standing::Ok)));
        map.add(&stretch("a", 1, 5, Some(Standing::Suspect)));
        for standing in
            [Standing::Suspect, Standing::Damaged, Standing::Unprotected, Standing::Damaged]
        {
            map.recount(&Recount::Suspect(standing));
        }
        map.recount(&Recount::NoSums);
        let titles: Vec<_> = map.tiles().iter().map(ToString::to_string).collect();
        assert_eq!(
            titles,
            [
                "a page 0 to 3: 1 damaged, 1 suspect, 2 unprotected",
                "a page 4 to 5: 1 damaged, 1 suspect"
            ]
        );
        for _ in 0..9 {
            map.recount(&Recount::Suspect(Standing::Damaged));
        }
        assert_eq!(map.tiles()[1].to_string(), "a page 4 to 5: 2 damaged");
    }

    #[test]
    fn names_on_the_map_cannot_mislead() {
        let mut map = PageMap::new(8, 8192);
        map.add(&stretch("a\x1b[2J\u{202e}b", 0, 1, Some(Standing::Ok)));
        assert!(plain(&map, 80).iter().all(|line| line.is_ascii() && !line.contains('\x1b')));
    }
}
