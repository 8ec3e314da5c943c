//! A map of all pages, drawn as SVG: a tile for some pages, as bad or as old as the worst of them.

use std::fmt::Write as _;

use pagewarden::words::{counted, grouped};

use super::text;
use crate::ledger::tiles::{State, Tile, Tiles};
use crate::ledger::uint;
use crate::scrub::words::span;
use crate::status::Standing;

/// Tiles in a row, and how large one is.
const COLUMNS: usize = 64;
const SIDE: usize = 12;

/// What a tile is drawn as: a class with a colour, a pattern over it, and words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    class: &'static str,
    /// The mark in the tile; none for what is good.
    mark: Option<&'static str>,
    words: &'static str,
}

const fn look(class: &'static str, mark: Option<&'static str>, words: &'static str) -> Look {
    Look { class, mark, words }
}

/// By the worst page.
const STATES: [(State, Look); 5] = [
    (State::Damaged, look("t-bad", Some("M2 2L10 10M10 2L2 10"), "damaged")),
    (State::Suspect, look("t-odd", Some("M6 2V10M2 6H10"), "suspect")),
    (State::Unverified, look("t-none", Some("M0 12L12 0"), "not verified")),
    (State::Earlier, look("t-old", Some("M2 9H10"), "verified in an earlier pass")),
    (State::Verified, look("t-good", None, "verified in this pass")),
];

/// By the oldest page, in quarters of what is promised.
const AGES: [Look; 6] = [
    look("t-good", None, "younger than a quarter of the promise"),
    look("t-age1", Some("M2 9H10"), "a quarter to a half of it"),
    look("t-age2", Some("M2 9H10M2 6H10"), "a half to three quarters"),
    look("t-age3", Some("M2 9H10M2 6H10M2 3H10"), "three quarters to all of it"),
    look("t-bad", Some("M2 2L10 10M10 2L2 10"), "overdue"),
    look("t-none", Some("M0 12L12 0"), "not verified"),
];

/// Draws the map with its legend, and links to the other one.
pub(super) fn draw(
    page: &mut String,
    map: &Tiles,
    one: &Standing,
    by_age: bool,
    address: &str,
    now: i64,
) {
    if map.tiles.is_empty() {
        page.push_str(
            "<p>There is no map: no page is listed yet, or it is an archive, which is verified as a \
             whole.</p>\n",
        );
        return;
    }
    let here = |is_here: bool| if is_here { " aria-current=\"page\"" } else { "" };
    let _ = writeln!(
        page,
        "<nav class=\"filters\" aria-label=\"Map\"><a href=\"{address}\"{}>by state</a> \
         <a href=\"{address}?map=age\"{}>by age</a></nav>",
        here(!by_age),
        here(by_age)
    );
    let looks: Vec<Look> = map
        .tiles
        .iter()
        .map(|tile| if by_age { age(tile, one, now) } else { state(tile) })
        .collect();
    let legend: Vec<Look> =
        if by_age { AGES.to_vec() } else { STATES.iter().map(|(_, look)| *look).collect() };
    let rows = map.tiles.len().div_ceil(COLUMNS);
    let columns = map.tiles.len().min(COLUMNS);
    let told: Vec<String> = legend
        .iter()
        .map(|look| (look, looks.iter().filter(|other| *other == look).count()))
        .filter(|(_, count)| *count > 0)
        .map(|(look, count)| format!("{count} {}", look.words))
        .collect();
    let _ = write!(
        page,
        "<svg class=\"map\" role=\"img\" viewBox=\"0 0 {} {}\" aria-label=\"{} tiles: {}\">",
        columns * SIDE,
        rows * SIDE,
        map.tiles.len(),
        told.join(", ")
    );
    for ((number, tile), look) in map.tiles.iter().enumerate().zip(&looks) {
        let place = (number % COLUMNS * SIDE, number / COLUMNS * SIDE);
        draw_tile(page, place, look, Some(&title(tile, map, look, now)));
    }
    page.push_str("</svg>\n<ul class=\"legend\">");
    for look in &legend {
        let count = looks.iter().filter(|other| *other == look).count();
        let _ = write!(page, "<li><svg viewBox=\"0 0 {SIDE} {SIDE}\" aria-hidden=\"true\">");
        draw_tile(page, (0, 0), look, None);
        let _ = write!(page, "</svg> {}: {}</li>", look.words, grouped(count as u64));
    }
    let _ = writeln!(
        page,
        "</ul><p><small>{}, {} a tile, in the order of the files; a tile is as bad, or as old, as the \
         worst page in it.</small></p>",
        counted(map.pages, "page"),
        grouped(map.pages_each)
    );
}

fn draw_tile(page: &mut String, (x, y): (usize, usize), look: &Look, title: Option<&str>) {
    let side = SIDE - 1;
    let _ = write!(page, "<g transform=\"translate({x} {y})\" class=\"{}\">", look.class);
    if let Some(title) = title {
        let _ = write!(page, "<title>{title}</title>");
    }
    let _ = write!(page, "<rect width=\"{side}\" height=\"{side}\"/>");
    if let Some(mark) = look.mark {
        let _ = write!(page, "<path d=\"{mark}\"/>");
    }
    page.push_str("</g>");
}

fn title(tile: &Tile, map: &Tiles, look: &Look, now: i64) -> String {
    let age = tile.oldest_at.map(|at| span(uint(now.saturating_sub(at))));
    let age = age.map(|age| format!(", {age} ago")).unwrap_or_default();
    let more = if map.pages_each > 1 { " and on" } else { "" };
    format!("{} page {}{more}: {}{age}", text(&tile.file), tile.page, look.words)
}

fn state(tile: &Tile) -> Look {
    let found = STATES.iter().find(|(state, _)| *state == tile.state);
    found.map_or(AGES[0], |(_, look)| *look)
}

fn age(tile: &Tile, one: &Standing, now: i64) -> Look {
    let [young, quarter, half, most, overdue, never] = AGES;
    let Some(at) = tile.oldest_at else { return never };
    let age = uint(now.saturating_sub(at));
    let every = one.coverage.every_seconds;
    match age.saturating_mul(4) {
        _ if age > every => overdue,
        quarters if quarters < every => young,
        quarters if quarters < every.saturating_mul(2) => quarter,
        quarters if quarters < every.saturating_mul(3) => half,
        _ => most,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Subject;

    #[test]
    fn each_look_has_a_mark_of_its_own() {
        for looks in [&AGES[..], &STATES.map(|(_, look)| look)[..]] {
            let marks: std::collections::HashSet<_> = looks.iter().map(|look| look.mark).collect();
            assert_eq!(marks.len(), looks.len(), "colour alone says nothing");
        }
    }

    #[test]
    fn tiles_grow_old_in_quarters() {
        let subject = Subject::of_path(std::path::Path::new("/x"));
        let one = crate::status::standings(None, &[subject], &[], 0).unwrap().remove(0);
        let every = i64::try_from(one.coverage.every_seconds).unwrap();
        let mut tile = Tile {
            file: "a".to_owned(),
            page: 0,
            state: State::Verified,
            oldest_at: Some(0),
            covered: 1,
            is_of_pass: true,
        };
        let quarter = every / 4;
        for (now, expected) in
            [(0, 0), (quarter, 1), (2 * quarter, 2), (3 * quarter, 3), (every, 3), (every + 1, 4)]
        {
            assert_eq!(age(&tile, &one, now), AGES[expected], "{now}");
        }
        // The clock was set back.
        assert_eq!(age(&tile, &one, -5), AGES[0]);
        tile.oldest_at = None;
        assert_eq!(age(&tile, &one, 0), AGES[5]);
    }
}
