//! Every format on runs made of its specimens' pages, damaged, and of noise:
//! no panic, each page counted once, and the same as page by page.

use std::sync::OnceLock;

use arbitrary::{Arbitrary, Unstructured};
use pagewarden::formats::specimens;
use pagewarden::page::{RunVerdict, Specimen};
use pagewarden::verdict::PageNo;
use pagewarden_fuzz::judge;

#[derive(Debug, Arbitrary)]
struct Input {
    specimen: u8,
    first: First,
    pages: Vec<Page>,
    /// Too short for a page.
    rest: u16,
}

#[derive(Debug, Arbitrary)]
enum First {
    OfSpecimen,
    Near(u8),
    Any(u64),
}

#[derive(Debug, Arbitrary)]
struct Page {
    base: Base,
    patches: Vec<(u16, u8)>,
}

#[derive(Debug, Arbitrary)]
enum Base {
    Good,
    Stamped,
    Zero,
    Filled(u8),
    Noise(Vec<u8>),
}

/// Runs beyond this show nothing new.
const PAGES_MAX: usize = 40;

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    static SPECIMENS: OnceLock<Vec<Specimen>> = OnceLock::new();
    let specimens = SPECIMENS.get_or_init(specimens);
    let specimen = &specimens[usize::from(input.specimen) % specimens.len()];
    let format = specimen.format.as_ref();
    let page_size = format.page_size();
    let first = match input.first {
        First::OfSpecimen => specimen.page,
        First::Near(number) => PageNo(u64::from(number)),
        First::Any(number) => PageNo(number),
    };
    let mut bytes = Vec::new();
    for (page, index) in input.pages.iter().take(PAGES_MAX).zip(0..) {
        let begin = bytes.len();
        match &page.base {
            Base::Good => bytes.extend(&specimen.good),
            Base::Stamped => {
                bytes.extend(&specimen.good);
                if let Some(stamp) = specimen.stamp {
                    stamp(&mut bytes[begin..], first.plus(index));
                }
            }
            Base::Zero => {}
            Base::Filled(byte) => bytes.resize(begin + page_size, *byte),
            Base::Noise(noise) => bytes.extend(noise.iter().take(page_size)),
        }
        bytes.resize(begin + page_size, 0);
        for (at, value) in &page.patches {
            bytes[begin + usize::from(*at) % page_size] ^= *value;
        }
    }
    let whole = bytes.len();
    bytes.resize(whole + usize::from(input.rest) % page_size, 0xA5);

    let together = judge(format, first, &bytes);
    let mut apart = RunVerdict::default();
    for (page, index) in bytes[..whole].chunks_exact(page_size).zip(0..) {
        let one = judge(format, first.plus(index), page);
        apart.counts += one.counts;
        apart.by_mode += one.by_mode;
        apart.findings.extend(one.findings);
        for (standing, _) in one.standings.iter() {
            apart.standings.push(standing);
        }
    }
    assert_eq!(together, apart);
}
