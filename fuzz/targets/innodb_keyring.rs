//! Key files of arbitrary bytes, page 0 with key information, and pages under the key.
//!
//! The first byte says where the key file ends.

use pagewarden::formats::innodb::page::encryption::{KeyInfo, Keyring, info_offset};
use pagewarden::formats::innodb::page::layout::{Form, Layout};

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [split, bytes @ ..] = input else { return };
    let (keys, rest) = bytes.split_at(bytes.len().min(usize::from(*split) * 4));
    let keyring = Keyring::parse(keys);
    let layout = Layout::guessed(Form::Old, 4096);
    let mut page = vec![0; 4096];
    let offset = info_offset(&layout).expect("a sound layout has a place for it");
    let place = page.get_mut(offset..).expect("inside of the page");
    let length = rest.len().min(place.len());
    place[..length].copy_from_slice(&rest[..length]);
    let Some(info) = KeyInfo::of_first_page(&layout, &page) else { return };
    let fallback = Keyring::parse(b"1;000102030405060708090a0b0c0d0e0f");
    for keyring in [keyring, fallback].into_iter().flatten() {
        match info.open(&keyring) {
            Ok(cipher) => {
                for page_type in [15_u16, 16, 17, 37_401] {
                    page[24..26].copy_from_slice(&page_type.to_be_bytes());
                    let _ = (cipher.decrypt_mysql(&page), cipher.decrypt_mariadb(&page));
                }
            }
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
}
