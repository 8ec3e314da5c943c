//! TPC-C's table of stock: the table that a read-only database was compressed with.
//!
//! Its strings are random characters, as the specification wants them, which hardly compress, or
//! made of 64 words, which do. Rows come in the order of the key.

/// Rows of one warehouse.
pub const ITEMS: u32 = 100_000;

/// What the strings are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Strings {
    /// Letters and digits at random: nearly as large when compressed
    Random,
    /// Words out of 64: a third when compressed
    Words,
}

impl Strings {
    /// As the tables name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Words => "words",
        }
    }
}

/// Columns of text that are equally long.
pub const DISTRICTS: usize = 10;
const DISTRICT_BYTES: usize = 24;
const DATA_BYTES: std::ops::RangeInclusive<u32> = 26..=50;
const SYMBOLS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const WORDS: [&str; 64] = [
    "amber", "anchor", "apple", "arrow", "autumn", "basin", "beacon", "birch", "bridge", "candle",
    "canyon", "cedar", "cloud", "cobalt", "copper", "coral", "crystal", "delta", "desert", "ember",
    "falcon", "feather", "fern", "field", "flint", "forest", "frost", "garden", "glacier",
    "granite", "harbor", "hazel", "hollow", "island", "ivory", "jasper", "juniper", "lantern",
    "lemon", "linen", "maple", "marble", "meadow", "mercury", "mirror", "north", "oak", "ocean",
    "olive", "opal", "orchard", "pebble", "pine", "quartz", "raven", "river", "saffron", "silver",
    "spruce", "stone", "summit", "thunder", "velvet", "willow",
];

/// A row of the table. Columns that are not here are 0.
#[derive(Debug)]
pub struct Row {
    /// Its key, behind the warehouse.
    pub item: u32,
    /// The first part of its key, counted from 1.
    pub warehouse: u32,
    /// 10 to 100.
    pub quantity: u32,
    /// 24 bytes each.
    pub districts: [String; DISTRICTS],
    /// 26 to 50 bytes.
    pub data: String,
}

/// All rows of this number of warehouses, the same in every run.
pub fn rows(warehouses: u32, strings: Strings) -> impl Iterator<Item = Row> {
    let mut random = Random(0x5eed);
    let keys =
        (1..=warehouses).flat_map(|warehouse| (1..=ITEMS).map(move |item| (warehouse, item)));
    keys.map(move |(warehouse, item)| {
        let quantity = random.below(91).saturating_add(10);
        let districts = std::array::from_fn(|_| random.text(strings, DISTRICT_BYTES));
        let spread = DATA_BYTES.end() - DATA_BYTES.start() + 1;
        let bytes = DATA_BYTES.start() + random.below(spread);
        let data = random.text(strings, usize::try_from(bytes).unwrap_or(0));
        Row { item, warehouse, quantity, districts, data }
    })
}

/// Warehouses and items of rows that are looked up, as Order-Status and its kin do.
pub fn keys(warehouses: u32, count: u32, seed: u64) -> impl Iterator<Item = (u32, u32)> {
    let mut random = Random(seed);
    (0..count).map(move |_| (random.below(warehouses) + 1, random.below(ITEMS) + 1))
}

/// SplitMix64: the same table in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound.max(1))).unwrap_or(0)
    }

    fn text(&mut self, strings: Strings, bytes: usize) -> String {
        let mut text = String::new();
        match strings {
            Strings::Random => {
                while text.len() < bytes {
                    let symbol = SYMBOLS.get(usize::try_from(self.below(62)).unwrap_or(0));
                    text.extend(symbol.copied().map(char::from));
                }
            }
            Strings::Words => {
                while text.len() < bytes {
                    let place = usize::try_from(self.below(64)).unwrap_or(0);
                    text.push_str(WORDS.get(place).copied().unwrap_or_default());
                    text.push(' ');
                }
                text.truncate(bytes);
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_keys_are_those_of_the_table() {
        for (row, item) in rows(1, Strings::Words).zip(1..=50) {
            assert_eq!((row.warehouse, row.item), (1, item));
            assert!((10..=100).contains(&row.quantity), "{row:?}");
            assert!(row.districts.iter().all(|text| text.len() == DISTRICT_BYTES), "{row:?}");
            assert!((26..=50).contains(&row.data.len()), "{row:?}");
        }
        assert!(keys(3, 500, 7).all(|(w, i)| (1..=3).contains(&w) && (1..=ITEMS).contains(&i)));
        assert_eq!(keys(3, 5, 7).collect::<Vec<_>>(), keys(3, 5, 7).collect::<Vec<_>>());
    }
}
