//! The map of a run's pages as a picture: one SVG file with no scripts and no links.
//!
//! Each target has a heading, its tiles (see [`crate::report::map`]), and a legend with the
//! counts. Colours follow the reader's light or dark theme; damage has a cross too, so that it does
//! not depend on seeing red.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::time::SystemTime;

use crate::database::Description;
use crate::report::html::escaped;
use crate::report::map::{MARKS, Mark, MarkCounts, PageMap};
use crate::report::{Report, RunEnd, TargetEnd};
use crate::verdict::{Finding, Note, Recount, Stretch, Unread, Verdict};
use crate::verify::Sink;
use crate::words::{counted, grouped, shortened};

/// What every picture that this library draws begins with.
pub const BEGIN: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" data-pagewarden=\"1\"";

/// Pixels.
const WIDTH: usize = 960;
const MARGIN: usize = 24;
const TILE: usize = 12;
const GAP: usize = 2;
const LINE: usize = 20;
/// Tiles in a row, and on all maps together.
const COLUMNS: usize = (WIDTH - 2 * MARGIN + GAP) / (TILE + GAP);
const TILES_MAX: usize = COLUMNS * 32;
/// Of more targets, only the first have a map: a picture is one screen.
const TARGETS_MAX: usize = 16;
/// Characters of a path or of an error that are shown.
const TEXT_CHARS_MAX: usize = 100;

const STYLE: &str = "text{font:14px ui-monospace,monospace;fill:#1c2127}.h{font-weight:700}\
.s{fill:#5b6673}.p{fill:#fff}.d{fill:#b3150f}.x{fill:#6b2fa0}.c{fill:#3d8fd1}.q{fill:#e8a317}\
.u{fill:#c9b98f}.k{fill:#7fb0bd}.o{fill:#9ccfb6}.e{fill:#aeb8c3}.n{fill:#e3e7eb}\
.w{stroke:#fff;stroke-width:1.5}\
@media(prefers-color-scheme:dark){text{fill:#e4e8ec}.s{fill:#9aa6b2}.p{fill:#14181d}\
.d{fill:#ff5c50}.x{fill:#b98af0}.c{fill:#58a6e6}.u{fill:#7d7050}.k{fill:#3f7d8c}.o{fill:#2c6650}\
.e{fill:#4a5561}.n{fill:#262d35}.w{stroke:#14181d}}";

/// Draws the picture; see the module.
#[derive(Debug)]
pub struct PictureReport<W> {
    out: W,
    room: usize,
    map: Option<PageMap>,
    body: String,
    /// Where the next line goes.
    top: usize,
    drawn: usize,
    left_out: u64,
}

impl<W: Write> PictureReport<W> {
    /// A picture to `out` of about `targets` targets, among which the room is divided.
    pub fn new(out: W, targets: usize) -> Self {
        Self {
            out,
            room: TILES_MAX / targets.clamp(1, TARGETS_MAX),
            map: None,
            body: String::new(),
            top: MARGIN,
            drawn: 0,
            left_out: 0,
        }
    }

    /// A line of text in a class of [`STYLE`].
    fn line(&mut self, class: &str, text: &str) {
        self.top += LINE;
        let text = escaped(&shortened(text, TEXT_CHARS_MAX));
        let baseline = self.top - 6;
        let _ = writeln!(
            self.body,
            "<text class=\"{class}\" x=\"{MARGIN}\" y=\"{baseline}\">{text}</text>"
        );
    }

    /// True if there is room for one more target; counts the ones without.
    fn has_room(&mut self) -> bool {
        let has_room = self.drawn < TARGETS_MAX;
        if has_room {
            self.drawn += 1;
        } else {
            self.left_out += 1;
        }
        has_room
    }

    /// The tiles. A browser shows the pages of the tile under the pointer.
    fn tiles(&mut self, map: &PageMap) {
        self.top += GAP * 2;
        for row in map.tiles().chunks(COLUMNS) {
            for (column, tile) in row.iter().enumerate() {
                let (left, top) = (MARGIN + column * (TILE + GAP), self.top);
                let mark = tile.counts.worst();
                let class = class(mark);
                let title = escaped(&tile.to_string());
                let _ = write!(
                    self.body,
                    "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{TILE}\" \
                     height=\"{TILE}\" rx=\"2\"><title>{title}</title></rect>"
                );
                if mark == Mark::Damaged {
                    let (right, bottom) = (left + TILE - 3, top + TILE - 3);
                    let (left, top) = (left + 3, top + 3);
                    let _ = write!(
                        self.body,
                        "<path class=\"w\" d=\"M{left} {top}L{right} {bottom}M{right} {top}L{left} \
                         {bottom}\"/>"
                    );
                }
            }
            self.body.push('\n');
            self.top += TILE + GAP;
        }
    }

    /// What occurs, with how many pages.
    fn legend(&mut self, all: &MarkCounts) {
        self.top += LINE;
        let (mut left, baseline) = (MARGIN, self.top);
        for mark in MARKS.into_iter().filter(|mark| all.of(*mark) > 0) {
            let text = format!("{} {}", grouped(all.of(mark)), mark.name());
            let (square, words) = (baseline - 11, left + TILE + 6);
            let _ = writeln!(
                self.body,
                "<rect class=\"{}\" x=\"{left}\" y=\"{square}\" width=\"{TILE}\" height=\"{TILE}\" \
                 rx=\"2\"/><text x=\"{words}\" y=\"{baseline}\">{text}</text>",
                class(mark)
            );
            // A character of this font is a little less than nine pixels wide.
            left = words + text.len() * 9 + LINE;
        }
        self.top += LINE / 2;
    }
}

fn class(mark: Mark) -> &'static str {
    match mark {
        Mark::Damaged => "d",
        Mark::Unread => "x",
        Mark::Undecided => "c",
        Mark::Suspect => "q",
        Mark::Unprotected => "u",
        Mark::Unverifiable => "k",
        Mark::Ok => "o",
        Mark::Empty => "e",
        Mark::NotReached => "n",
    }
}

fn word(verdict: Verdict) -> String {
    format!("verdict: {}", verdict.name())
}

impl<W: Write + Send> Sink for PictureReport<W> {
    fn finding(&mut self, _: &Finding) -> io::Result<()> {
        Ok(())
    }

    fn unread(&mut self, _: &Unread) -> io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Note) -> io::Result<()> {
        Ok(())
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        if let Some(map) = &mut self.map {
            map.add(stretch);
        }
        Ok(())
    }

    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        if let Some(map) = &mut self.map {
            map.recount(recount);
        }
        Ok(())
    }
}

impl<W: Write + Send> Report for PictureReport<W> {
    fn begin_target(&mut self, target: &Description) -> io::Result<()> {
        self.map = Some(PageMap::new(self.room, target.page_size));
        Ok(())
    }

    fn end_target(&mut self, target: &TargetEnd<'_>) -> io::Result<()> {
        let Some(mut map) = self.map.take().filter(|_| self.has_room()) else { return Ok(()) };
        map.end(target);
        let verified = target.verified;
        let description = &verified.description;
        self.line("h", &format!("{}: {}", description.path.to_string_lossy(), description.engine));
        let mut all = MarkCounts { read: verified.summary.pages, ..MarkCounts::default() };
        for tile in map.tiles() {
            all.unread = all.unread.saturating_add(tile.counts.unread);
            all.not_reached = all.not_reached.saturating_add(tile.counts.not_reached);
        }
        let scale = if map.tiles().is_empty() { String::new() } else { map.scale() };
        self.line("s", &format!("{}; {scale}", word(verified.verdict())));
        self.tiles(&map);
        self.legend(&all);
        Ok(())
    }

    fn failed_target(&mut self, path: &str, error: &str, _: SystemTime) -> io::Result<()> {
        if self.has_room() {
            self.line("h", path);
            self.line("s", error.lines().next().unwrap_or_default());
        }
        Ok(())
    }

    fn end(&mut self, run: &RunEnd<'_>) -> io::Result<()> {
        if self.left_out > 0 {
            self.line("s", &format!("and {}", counted(self.left_out, "more target")));
        }
        let height = self.top + MARGIN;
        write!(
            self.out,
            "{BEGIN} width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\">\n<title>Map of the pages; {}</title>\n<style>{STYLE}</style>\n\
             <rect class=\"p\" width=\"100%\" height=\"100%\"/>\n{}</svg>\n",
            word(run.verdict),
            self.body
        )?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::report::sample::{description, stretch};
    use crate::verdict::{PageCounts, SeverityCounts, Standing};
    use crate::verify::{Summary, Verified};

    fn summary(ok: u64, damaged: u64) -> Summary {
        Summary {
            files: 1,
            pages: PageCounts { ok, damaged, ..PageCounts::default() },
            severities: SeverityCounts { damage: damaged, ..SeverityCounts::default() },
            elapsed: Duration::from_millis(1500),
            ..Summary::default()
        }
    }

    /// A run over targets of 1,000 sound pages and one damaged page, and one that failed.
    fn picture(paths: &[String]) -> String {
        let mut out = Vec::new();
        let mut report = PictureReport::new(&mut out, paths.len() + 1);
        let summary = summary(1000, 1);
        for path in paths {
            report.begin_target(&description(path)).unwrap();
            report.pages(&stretch(path, 0, 1000, Some(Standing::Ok))).unwrap();
            report.pages(&stretch(path, 1000, 1, Some(Standing::Damaged))).unwrap();
            let verified = Verified::of(description(path), summary.clone());
            let end = TargetEnd {
                verified: &verified,
                overall: None,
                listed_bytes: None,
                ended: UNIX_EPOCH,
            };
            report.end_target(&end).unwrap();
        }
        report.failed_target("/gone", "cannot open /gone\nhint: look", UNIX_EPOCH).unwrap();
        let run = RunEnd {
            verdict: Verdict::Damaged,
            total: &summary,
            opened: 1,
            protection_missed: false,
            storage: None,
            drill: None,
            ended: UNIX_EPOCH,
        };
        report.end(&run).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_page_is_in_the_picture_and_the_damaged_one_is_crossed() {
        let picture = picture(&["/data/base/5/1".to_owned()]);
        assert!(picture.starts_with(BEGIN), "{picture}");
        for text in [
            "/data/base/5/1: PostgreSQL 15",
            "verdict: damaged; one tile is one page (8 KiB)",
            "<title>/data/base/5/1 page 1000: 1 damaged</title>",
            "1 damaged</text>",
            "1,000 ok</text>",
            ">cannot open /gone</text>",
        ] {
            assert!(picture.contains(text), "no {text} in\n{picture}");
        }
        assert_eq!(picture.matches("class=\"o\"").count(), 1001, "1,000 tiles and the legend");
        assert_eq!(picture.matches("<path").count(), 1);
    }

    #[test]
    fn names_cannot_become_markup_and_many_targets_are_one_screen() {
        let paths: Vec<_> = (0..500).map(|index| format!("/{index}<script>\u{202e}\"&")).collect();
        let picture = picture(&paths);
        assert!(!picture.contains("<script>") && !picture.contains('\u{202e}'));
        assert!(picture.contains("and 485 more targets"), "{picture}");
        assert!(picture.len() < 1 << 20, "{}", picture.len());
    }
}
