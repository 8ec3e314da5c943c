//! InnoDB pages of every layout, of arbitrary bytes: judged, unpacked, decrypted, explained.
//!
//! The first byte of the input chooses the layout, the second what is made of the pages.

use pagewarden::formats::innodb::checksum::{crc32, full_crc32, zip_crc32};
use pagewarden::formats::innodb::page::InnodbPages;
use pagewarden::formats::innodb::page::encryption::Cipher;
use pagewarden::formats::innodb::page::layout::{Form, Layout};
use pagewarden::page::{Neighbours, PageFormat};
use pagewarden::verdict::{PageNo, Severity};
use pagewarden_fuzz::judge;

/// A relation of one page.
struct Alone(Vec<u8>);

impl Neighbours for Alone {
    fn page_count(&self) -> u64 {
        u64::MAX
    }

    fn page(&self, _: PageNo) -> Option<Vec<u8>> {
        Some(self.0.clone())
    }
}

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [shape, make, rest @ ..] = input else { return };
    let form = [Form::Old, Form::Zip, Form::FullCrc32][usize::from(shape % 3)];
    let size = 1024 << (shape / 3 % 7);
    let layout = Layout::guessed(form, size);
    let mut bytes = rest.to_vec();
    // Inputs are shorter than pages: what is missing is zero.
    bytes.resize(rest.len().next_multiple_of(size).max(size), 0);
    for page in bytes.chunks_exact_mut(size) {
        if make & 1 != 0 {
            page[4..8].copy_from_slice(&5_u32.to_be_bytes());
        }
        if make & 2 != 0 {
            let types = [34_354_u16, 37_401, 14, 15, 16, 17, 7, 17_855];
            page[24..26].copy_from_slice(&types[usize::from(make >> 5)].to_be_bytes());
        }
        if make & 4 != 0 {
            let low = page[20..24].to_vec();
            let sum = match form {
                Form::Old => {
                    page[size - 4..].copy_from_slice(&low);
                    crc32(page)
                }
                Form::Zip => zip_crc32(page),
                Form::FullCrc32 => {
                    page[size - 8..size - 4].copy_from_slice(&low);
                    full_crc32(page)
                }
            }
            .to_be_bytes();
            match form {
                Form::Old => {
                    page[..4].copy_from_slice(&sum);
                    page[size - 8..size - 4].copy_from_slice(&sum);
                }
                Form::Zip => page[..4].copy_from_slice(&sum),
                Form::FullCrc32 => page[size - 4..].copy_from_slice(&sum),
            }
        }
    }
    let mut format = InnodbPages::new(layout);
    format.space_id = (make & 8 != 0).then_some(0);
    format.doublewrite = (make & 16 != 0).then_some(5..6).into_iter().collect();
    format.cipher = match shape / 21 % 3 {
        0 => None,
        1 => Some(Cipher::MySql { key: [7; 32], vector: [9; 16] }),
        _ => Some(Cipher::MariaDb { key: [7; 16] }),
    };
    let verdict = judge(&format, PageNo(5), &bytes);
    // The order of trying sums changes nothing.
    let again = judge(&format, PageNo(5), &bytes);
    assert_eq!(verdict, again);
    for finding in verdict.findings {
        let index = usize::try_from(finding.page.0 - 5).expect("a page of the run");
        let page = &bytes[index * size..][..size];
        let mut explained = finding.clone();
        format.explain(page, &mut explained, &Alone(page.to_vec()));
        assert_eq!((explained.page, explained.severity), (finding.page, finding.severity));
        assert!(explained.severity <= Severity::Damage);
    }
}
