//! The map of a target's pages, and the counts that are its legend.

use std::fmt::Write as _;

use crate::report::html::escaped;
use crate::report::map::{MARKS, Mark, MarkCounts, PageMap, Tile};
use crate::verify::Summary;
use crate::words::{grouped, percent};

/// What titles may take, in bytes. Several targets share it.
const TITLES_BYTES: usize = 60_000;
/// Tiles that are alike and share a title.
const TILES_ALIKE: usize = 16;

/// How many pages count as what; the table is the legend of the map too.
pub(super) fn counts(page: &mut String, summary: &Summary, map: &PageMap) {
    let mut all = MarkCounts { read: summary.pages, ..MarkCounts::default() };
    for tile in map.tiles() {
        all.unread += tile.counts.unread;
        all.not_reached += tile.counts.not_reached;
    }
    if all.total() == 0 {
        return;
    }
    page.push_str("<h3>Pages</h3>\n<div class=\"counts\">");
    for mark in MARKS.into_iter().filter(|mark| all.of(*mark) > 0) {
        let count = all.of(mark);
        let _ = writeln!(
            page,
            "<span><i class=\"{}\"></i> <b>{}</b> {} <small>{}</small></span>",
            tile_class(mark),
            grouped(count),
            mark.name(),
            percent(count, all.total())
        );
    }
    page.push_str("</div>\n");
}

fn tile_class(mark: Mark) -> &'static str {
    match mark {
        Mark::Damaged => "d",
        Mark::Unread => "x",
        Mark::Undecided => "c",
        Mark::Suspect => "s",
        Mark::Unprotected => "u",
        Mark::Unverifiable => "k",
        Mark::Ok => "o",
        Mark::Empty => "e",
        Mark::NotReached => "n",
    }
}

/// The map. Neighbours with the same mark share an element and a title.
pub(super) fn draw(page: &mut String, map: &PageMap, shares: usize) {
    let tiles = map.tiles();
    if tiles.is_empty() {
        return;
    }
    let size = match tiles.len() {
        0..=256 => "map large",
        257..=1024 => "map",
        _ => "map small",
    };
    let groups: Vec<(Mark, &[Tile])> = tiles
        .chunk_by(|one, next| one.counts.worst() == next.counts.worst())
        .flat_map(|alike| alike.chunks(TILES_ALIKE))
        .filter_map(|alike| Some((alike.first()?.counts.worst(), alike)))
        .collect();
    let titles = titles(&groups, TITLES_BYTES / shares);
    let _ = write!(
        page,
        "<div class=\"{size}\" role=\"img\" aria-label=\"Map of the pages: {}\">",
        map.scale()
    );
    for ((mark, alike), title) in groups.iter().zip(titles) {
        let class = tile_class(*mark);
        let title = title.map_or_else(String::new, |title| format!(" title=\"{title}\""));
        if alike.len() == 1 {
            let _ = write!(page, "<i class={class}{title}></i>");
        } else {
            let _ = write!(page, "<b class={class}{title}>");
            alike.iter().for_each(|_| page.push_str("<i></i>"));
            page.push_str("</b>");
        }
    }
    let first = tiles.first().map(|tile| escaped(&tile.begin.file)).unwrap_or_default();
    let _ = writeln!(
        page,
        "</div>\n<p class=\"scale\">In the order of the files, from <code>{first}</code>: {}. \
         <span>Point at a tile for its pages.</span></p>",
        map.scale()
    );
}

/// A title for each group as far as there is room, for the worst marks first.
fn titles(groups: &[(Mark, &[Tile])], room: usize) -> Vec<Option<String>> {
    let mut order: Vec<usize> = (0..groups.len()).collect();
    order.sort_by_key(|index| groups.get(*index).map(|(mark, _)| std::cmp::Reverse(*mark)));
    let mut titles = vec![None; groups.len()];
    let mut taken = 0;
    for index in order {
        let Some((first, rest)) = groups.get(index).and_then(|(_, tiles)| tiles.split_first())
        else {
            continue;
        };
        let title = escaped(&first.through(rest).to_string());
        taken += title.len();
        if taken > room {
            break;
        }
        if let Some(place) = titles.get_mut(index) {
            *place = Some(title);
        }
    }
    titles
}
