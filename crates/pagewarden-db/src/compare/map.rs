//! What came of the parts of a table, as few tiles as a picture has room for.
//!
//! How many parts there will be is known only at the end. A tile begins as one part, and
//! whenever there is no room for another, neighbours are joined two by two.

/// What came of a part; the mildest first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum PartState {
    /// Both sides are equal.
    #[default]
    Equal,
    /// Some of its rows kept changing.
    Unresolved,
    /// Some of its rows differ.
    Different,
}

/// Neighbouring parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tile {
    /// The worst that came of one of them.
    pub state: PartState,
    /// The rows of all of them, on the side that has more.
    pub rows: u64,
}

/// The tiles of a table, in the order of its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartMap {
    tiles: Vec<Tile>,
    parts: u64,
    parts_per_tile: u64,
}

/// The most tiles.
const TILES_MAX: usize = 1024;

impl Default for PartMap {
    fn default() -> Self {
        Self { tiles: Vec::new(), parts: 0, parts_per_tile: 1 }
    }
}

impl PartMap {
    /// A map of `parts` parts, by the rows of its tiles; none if it would have more or fewer tiles.
    pub fn of_tiles(parts: u64, rows: &[u64]) -> Option<Self> {
        let mut parts_per_tile = 1;
        while parts.div_ceil(parts_per_tile) > TILES_MAX as u64 {
            parts_per_tile *= 2;
        }
        let tiles = rows.iter().map(|rows| Tile { rows: *rows, ..Tile::default() }).collect();
        let fits = parts.div_ceil(parts_per_tile) == rows.len() as u64;
        fits.then_some(Self { tiles, parts, parts_per_tile })
    }

    /// Appends a part of `rows` rows, equal until it is marked.
    pub fn add(&mut self, rows: u64) {
        if self.parts.is_multiple_of(self.parts_per_tile) {
            if self.tiles.len() == TILES_MAX {
                self.join();
            }
            self.tiles.push(Tile::default());
        }
        self.parts += 1;
        if let Some(tile) = self.tiles.last_mut() {
            tile.rows = tile.rows.saturating_add(rows);
        }
    }

    fn join(&mut self) {
        let joined = self.tiles.chunks(2).map(|pair| Tile {
            state: pair.iter().map(|tile| tile.state).max().unwrap_or_default(),
            rows: pair.iter().fold(0, |rows, tile| rows.saturating_add(tile.rows)),
        });
        self.tiles = joined.collect();
        self.parts_per_tile *= 2;
    }

    /// Says what came of a part, unless something worse was said of it.
    pub fn mark(&mut self, part: u64, state: PartState) {
        let place = usize::try_from(part / self.parts_per_tile).unwrap_or(usize::MAX);
        if let Some(tile) = self.tiles.get_mut(place) {
            tile.state = tile.state.max(state);
        }
    }

    /// Takes back that rows of parts kept changing.
    pub fn forget_unresolved(&mut self) {
        for tile in self.tiles.iter_mut().filter(|tile| tile.state == PartState::Unresolved) {
            tile.state = PartState::Equal;
        }
    }

    /// The tiles.
    pub fn tiles(&self) -> &[Tile] {
        &self.tiles
    }

    /// How many parts a tile stands for; the last may stand for fewer.
    pub fn parts_per_tile(&self) -> u64 {
        self.parts_per_tile
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_are_joined_and_marks_stay_where_they_belong() {
        for count in [1, 1024, 1025, 5000, 65_536] {
            let mut map = PartMap::default();
            for part in 0..count {
                map.add(part % 7);
                if part == count / 3 {
                    map.mark(part, PartState::Different);
                }
            }
            let rows: Vec<u64> = map.tiles().iter().map(|tile| tile.rows).collect();
            let mut again = PartMap::of_tiles(count, &rows).unwrap();
            again.mark(count / 3, PartState::Different);
            assert_eq!(again, map);
            assert_eq!(PartMap::of_tiles(count, &rows[1..]), None);
            map.mark(count - 1, PartState::Unresolved);
            assert!(
                map.tiles().len() <= TILES_MAX && map.tiles().len() as u64 * 2 > count.min(1024)
            );
            let rows: u64 = map.tiles().iter().map(|tile| tile.rows).sum();
            assert_eq!(rows, (0..count).map(|part| part % 7).sum::<u64>());
            let place = usize::try_from(count / 3 / map.parts_per_tile()).unwrap();
            assert_eq!(map.tiles()[place].state, PartState::Different, "{count}");
            let worst = if count / 3 == count - 1 { 1 } else { 2 };
            let marked = map.tiles().iter().filter(|tile| tile.state != PartState::Equal);
            assert_eq!(marked.count(), worst, "{count}");
            map.forget_unresolved();
            assert_eq!(map, again, "{count}");
        }
    }
}
