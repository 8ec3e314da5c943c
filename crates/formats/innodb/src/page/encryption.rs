//! Pages that need a key, and the keys.
//!
//! Behind the extent descriptors of page 0:
//!
//! | MySQL, offset | bytes | what |
//! |---|---|---|
//! | 0 | 3 | `lCB` or `lCC` |
//! | 3 | 4 | number of the master key |
//! | 7 | 36 | the server's UUID: the master key is called `INNODBKey-<uuid>-<number>` |
//! | 43 | 64 | key (32) and initial vector (16 of 32), AES-256-ECB with the master key |
//! | 107 | 4 | CRC-32C of the 64 bytes in the clear |
//!
//! MariaDB's lies 38 bytes further on (the length of the page header, which it adds twice):
//!
//! | MariaDB, offset | bytes | what |
//! |---|---|---|
//! | 0 | 6 | `73 0E 0C 52 45 74` |
//! | 6 | 1 | scheme, 1 |
//! | 7 | 1 | 16 |
//! | 8 | 16 | what the tablespace's key is made of |
//! | 24 | 4 | oldest key version |
//! | 28 | 4 | number of the key |
//!
//! MySQL encrypts all from byte 38 on (of a compressed page: what is stored of it) by
//! AES-256-CBC; as that is no whole number of blocks, the last 32 bytes are encrypted once
//! more, and decrypted first. MariaDB's key is AES-ECB of the 16 bytes under the key of
//! the key file; a page's initial vector is made of space id, page number and LSN, each little
//! endian; what is left behind the last whole block is XORed with the encrypted vector.
//!
//! Sources: MySQL `os0enc.cc`; MariaDB `fil0crypt.cc`, `sql/encryption.cc`, `my_crypt.cc`;
//! settled by pages of real servers and their keys.

use std::collections::HashMap;
use std::fmt;

use aes::cipher::{BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Aes192, Aes256};
use cbc::cipher::{BlockModeDecrypt, KeyIvInit};

use super::compression::{Algorithm, Unpacked, restore_type, set_type, unpack, unpack_mysql};
use super::fields::{
    BODY, EXTENT_DESCRIPTORS, KEY_VERSION, KEY_VERSION_FULL_CRC32, LSN,
    MARIADB_ENCRYPTED_ALGORITHM, MARIADB_ENCRYPTED_PAYLOAD, MARIADB_PAYLOAD_BYTES,
    MYSQL_STORED_BYTES, MYSQL_VERSION, PAGE_NUMBER, PAGE_TYPE, SPACE_ID, TYPE_COMPRESSED,
    TYPE_COMPRESSED_AND_ENCRYPTED, TYPE_ENCRYPTED_RTREE, TYPE_RTREE, read_u16, read_u32, read_u64,
};
use super::index::TYPE_INDEX;
use super::layout::{Form, Layout};
use crate::checksum::{SUM_BYTES, TRAILER_BYTES};
use pagewarden_core::crc::crc32c;

const BLOCK: usize = 16;
const MYSQL_MAGICS: [&[u8]; 2] = [b"lCB", b"lCC"];
const MYSQL_INFO_BYTES: usize = 111;
const MARIADB_MAGIC: &[u8] = b"s\x0e\x0cREt";
const KEY_BYTES: usize = 32;
const DESCRIPTOR_HEAD_BYTES: usize = 24;

/// The keys of a key file.
#[derive(Clone, PartialEq, Eq)]
pub struct Keyring {
    /// MySQL's master keys by name.
    master_keys: HashMap<String, [u8; KEY_BYTES]>,
    /// MariaDB's keys by number.
    numbered: HashMap<u32, Vec<u8>>,
}

/// Keys are never shown.
impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keyring")
            .field("master_keys", &self.master_keys.len())
            .field("numbered", &self.numbered.len())
            .finish()
    }
}

impl Keyring {
    /// Reads the file of MySQL's `component_keyring_file` (JSON) or of MariaDB's
    /// `file_key_management` (lines of `number;key`).
    ///
    /// # Errors
    /// In words, why it is neither.
    pub fn parse(bytes: &[u8]) -> Result<Self, &'static str> {
        if bytes.starts_with(b"Salted__") {
            return Err("the key file is itself encrypted: decrypt it with openssl first");
        }
        let text = std::str::from_utf8(bytes).map_err(|_| "not a text file")?;
        let keyring = if text.trim_start().starts_with('{') {
            Self::parse_json(text)?
        } else {
            Self::parse_lines(text)?
        };
        if keyring.master_keys.is_empty() && keyring.numbered.is_empty() {
            return Err("there is no key in it");
        }
        Ok(keyring)
    }

    fn parse_json(text: &str) -> Result<Self, &'static str> {
        let json: serde_json::Value =
            serde_json::from_str(text).map_err(|_| "not the JSON of a keyring")?;
        let elements = json.get("elements").and_then(serde_json::Value::as_array);
        let elements = elements.ok_or("JSON without the elements of a keyring")?;
        let key = |element: &serde_json::Value| {
            let name = element.get("data_id")?.as_str()?.to_owned();
            let key = from_hex(element.get("data")?.as_str()?)?;
            Some((name, key.try_into().ok()?))
        };
        let master_keys = elements.iter().filter_map(key).collect();
        Ok(Self { master_keys, numbered: HashMap::new() })
    }

    fn parse_lines(text: &str) -> Result<Self, &'static str> {
        let mut numbered = HashMap::new();
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            let parts = line.split_once(';').and_then(|(number, key)| {
                let key = from_hex(key.trim())?;
                matches!(key.len(), 16 | 24 | 32).then_some((number.trim().parse().ok()?, key))
            });
            let (number, key) = parts.ok_or("a line of it is not NUMBER;KEY")?;
            numbered.insert(number, key);
        }
        Ok(Self { master_keys: HashMap::new(), numbered })
    }
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    rest.is_empty().then(|| pairs.iter().map(byte).collect())?
}

/// Where a tablespace says how it is encrypted: behind the extent descriptors.
#[must_use]
pub fn info_offset(layout: &Layout) -> Option<usize> {
    let extent_pages = layout.extent_pages();
    let length = extent_pages.checked_div(4)?.checked_add(DESCRIPTOR_HEAD_BYTES)?;
    let extents = layout.page_size.checked_div(extent_pages)?;
    length.checked_mul(extents)?.checked_add(EXTENT_DESCRIPTORS)
}

/// What page 0 says of the tablespace's key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyInfo {
    /// MySQL: the key, encrypted with a master key.
    MySql {
        /// The name of the master key.
        master_key: String,
        /// Key and initial vector, encrypted.
        sealed: [u8; 64],
        /// CRC-32C of the same in the clear.
        sum: u32,
    },
    /// MariaDB: what the key is made of.
    MariaDb {
        /// Encrypted with the key of the key file this is the tablespace's key.
        seed: [u8; BLOCK],
        /// The number of the key in the key file.
        key_number: u32,
    },
}

impl KeyInfo {
    /// Reads it from page 0, if the tablespace has any.
    #[must_use]
    pub fn of_first_page(layout: &Layout, page: &[u8]) -> Option<Self> {
        let info = page.get(info_offset(layout)?..)?;
        let mariadb = info.get(BODY..)?;
        if MYSQL_MAGICS.iter().any(|magic| info.starts_with(magic)) {
            return Self::of_mysql(info);
        }
        if mariadb.starts_with(MARIADB_MAGIC) && mariadb.get(6..8) == Some(&[1, 16]) {
            return Some(Self::MariaDb {
                seed: *mariadb.get(8..)?.first_chunk()?,
                key_number: read_u32(mariadb, 28),
            });
        }
        None
    }

    /// Reads what MySQL writes of a key: for a tablespace on its page 0, for the log in the headers of
    /// its files.
    #[must_use]
    pub fn of_mysql(info: &[u8]) -> Option<Self> {
        if !MYSQL_MAGICS.iter().any(|magic| info.starts_with(magic)) {
            return None;
        }
        let uuid = std::str::from_utf8(info.get(7..43)?).ok()?;
        let number = read_u32(info, 3);
        Some(Self::MySql {
            master_key: format!("INNODBKey-{uuid}-{number}"),
            sealed: *info.get(43..)?.first_chunk()?,
            sum: read_u32(info.get(..MYSQL_INFO_BYTES)?, 107),
        })
    }

    /// Takes the key out of the keyring.
    ///
    /// # Errors
    /// In words, why that does not work.
    pub fn open(&self, keyring: &Keyring) -> Result<Cipher, String> {
        match self {
            Self::MySql { master_key, sealed, sum } => {
                let key = keyring
                    .master_keys
                    .get(master_key)
                    .ok_or_else(|| format!("the keyring has no key {master_key}"))?;
                let mut clear = *sealed;
                let cipher = Aes256::new(key.into());
                for block in clear.as_chunks_mut::<BLOCK>().0 {
                    cipher.decrypt_block(block.into());
                }
                let opened = crc32c(&clear) == *sum;
                let vector = clear.get(KEY_BYTES..).and_then(<[u8]>::first_chunk);
                let parts = clear.first_chunk().zip(vector);
                match parts.filter(|_| opened) {
                    Some((key, vector)) => Ok(Cipher::MySql { key: *key, vector: *vector }),
                    None => Err(format!("the key {master_key} of the keyring is another one")),
                }
            }
            Self::MariaDb { seed, key_number } => {
                let key = keyring
                    .numbered
                    .get(key_number)
                    .ok_or_else(|| format!("the key file has no key {key_number}"))?;
                let mut own = *seed;
                match key.len() {
                    16 => Aes128::new_from_slice(key)
                        .map(|cipher| cipher.encrypt_block((&mut own).into())),
                    24 => Aes192::new_from_slice(key)
                        .map(|cipher| cipher.encrypt_block((&mut own).into())),
                    _ => Aes256::new_from_slice(key)
                        .map(|cipher| cipher.encrypt_block((&mut own).into())),
                }
                .map_err(|_| "a key of impossible length".to_owned())?;
                Ok(Cipher::MariaDb { key: own })
            }
        }
    }
}

/// How a key opens a page, by the ciphers of MariaDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opens {
    /// As `AES_CBC`.
    Chained,
    /// As `AES_CTR`.
    Counted,
    /// It does not.
    Not,
}

/// What decrypts the pages of a tablespace.
#[derive(Clone, PartialEq, Eq)]
pub enum Cipher {
    /// AES-256-CBC with one initial vector for all pages.
    MySql {
        /// The key.
        key: [u8; KEY_BYTES],
        /// The vector.
        vector: [u8; BLOCK],
    },
    /// AES-128-CBC with a vector for each page.
    MariaDb {
        /// The key.
        key: [u8; BLOCK],
    },
}

/// Keys are never shown.
impl fmt::Debug for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MySql { .. } => "Cipher::MySql",
            Self::MariaDb { .. } => "Cipher::MariaDb",
        })
    }
}

/// Compressed pages shorter than this are filled up before they are encrypted.
const MYSQL_STORED_MIN: usize = 2 * BLOCK;
/// The version of compression in which pages are filled up to blocks of the device.
const MYSQL_VERSION_BLOCKS: u8 = 1;
const DEVICE_BLOCKS: [usize; 3] = [4096, 512, 1];

impl Cipher {
    /// The pages that may be in a page of MySQL's types 15 to 17: more than one where what was
    /// encrypted depends on the device. The caller tests their sums.
    #[must_use]
    pub fn decrypt_mysql(&self, page: &[u8]) -> Vec<Unpacked> {
        let Self::MySql { key, vector } = self else { return Vec::new() };
        let page_type = read_u16(page, PAGE_TYPE);
        if page_type != TYPE_COMPRESSED_AND_ENCRYPTED {
            let mut clear = page.to_vec();
            let body = clear.get_mut(BODY..).unwrap_or_default();
            decrypt_mysql_run(key, vector, body);
            if page_type == TYPE_ENCRYPTED_RTREE {
                set_type(&mut clear, TYPE_RTREE);
            } else {
                restore_type(&mut clear);
            }
            return vec![Unpacked::Page(clear)];
        }
        let stored = usize::from(read_u16(page, MYSQL_STORED_BYTES));
        let is_blocks = page.get(MYSQL_VERSION) == Some(&MYSQL_VERSION_BLOCKS);
        let lengths = DEVICE_BLOCKS.iter().filter_map(|block| {
            match (is_blocks, *block) {
                (false, 1) => Some(stored.max(MYSQL_STORED_MIN)),
                (false, _) | (true, 1) => None,
                // The header counts towards the block.
                (true, block) => {
                    stored.checked_add(BODY)?.next_multiple_of(block).checked_sub(BODY)
                }
            }
        });
        lengths
            .map(|length| {
                let mut clear = page.to_vec();
                let Some(body) = clear.get_mut(BODY..).and_then(|body| body.get_mut(..length))
                else {
                    return Unpacked::Broken("its payload has an impossible length");
                };
                decrypt_mysql_run(key, vector, body);
                set_type(&mut clear, TYPE_COMPRESSED);
                unpack_mysql(&clear)
            })
            .collect()
    }

    /// Decrypts what MySQL encrypted with one vector, in place: the body of a page, or that of a block
    /// of the log. False, and nothing done, with a key of MariaDB.
    pub fn decrypt_mysql_body(&self, body: &mut [u8]) -> bool {
        let Self::MySql { key, vector } = self else { return false };
        decrypt_mysql_run(key, vector, body);
        true
    }

    /// How this key opens a page of an index that MariaDB encrypted: the name of the lowest record is
    /// where each such page has it. `None` of another page.
    #[must_use]
    pub fn opens_index(&self, form: Form, space: u32, page: &[u8]) -> Option<Opens> {
        /// By the form of the records.
        const PLACES: [usize; 2] = [99, 101];
        const NAME: &[u8] = b"infimum";
        const BEGIN_BYTES: usize = 96;
        let Self::MariaDb { key } = self else { return None };
        // No vector is needed for what is behind the first block.
        let body = match form {
            Form::Old => BODY,
            Form::FullCrc32 => KEY_VERSION,
            Form::Zip => return None,
        };
        if read_u16(page, PAGE_TYPE) != TYPE_INDEX || !is_encrypted_by_mariadb(form, page) {
            return None;
        }
        let begin: [u8; BEGIN_BYTES] = *page.get(body..)?.first_chunk()?;
        let has_name = |clear: &[u8]| {
            let places = PLACES.iter().filter_map(|place| place.checked_sub(body));
            places.into_iter().any(|at| clear.get(at..).is_some_and(|it| it.starts_with(NAME)))
        };
        let mut chained = begin;
        decrypt_mariadb_run(key, mariadb_vector(space, page), &mut chained);
        if has_name(&chained) {
            return Some(Opens::Chained);
        }
        let mut counted = begin;
        let mut counter = u128::from_be_bytes(mariadb_vector(space, page));
        for block in counted.as_chunks_mut::<BLOCK>().0 {
            let mut mask = counter.to_be_bytes();
            Aes128::new(key.into()).encrypt_block((&mut mask).into());
            block.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
            counter = counter.wrapping_add(1);
        }
        Some(if has_name(&counted) { Opens::Counted } else { Opens::Not })
    }

    /// A page that MariaDB encrypted, and did not compress, as it was before, but for its sum; `None`
    /// without a key for it. The key's cipher is to be `AES_CBC`.
    #[must_use]
    pub fn decrypt_mariadb_page(&self, form: Form, space: u32, page: &[u8]) -> Option<Vec<u8>> {
        let Self::MariaDb { key } = self else { return None };
        let (begin, behind) = match form {
            Form::Old => (BODY, TRAILER_BYTES),
            Form::FullCrc32 => (KEY_VERSION, SUM_BYTES),
            Form::Zip => return None,
        };
        let mut clear = page.to_vec();
        let end = clear.len().checked_sub(behind)?;
        decrypt_mariadb_run(key, mariadb_vector(space, page), clear.get_mut(begin..end)?);
        Some(clear)
    }

    /// The page in a page of MariaDB's type 37401; `None` without a key for it.
    #[must_use]
    pub fn decrypt_mariadb(&self, page: &[u8]) -> Option<Unpacked> {
        let Self::MariaDb { key } = self else { return None };
        let number = u64::from(read_u16(page, MARIADB_ENCRYPTED_ALGORITHM));
        let Some(algorithm) = Algorithm::of_mariadb(number) else {
            return Some(Unpacked::Broken("it names no known algorithm"));
        };
        let length = usize::from(read_u16(page, MARIADB_PAYLOAD_BYTES));
        let rest = page.get(MARIADB_ENCRYPTED_PAYLOAD..).unwrap_or_default();
        let Some(payload) = rest.get(..length).filter(|payload| !payload.is_empty()) else {
            return Some(Unpacked::Broken("its payload has an impossible length"));
        };
        let mut clear = payload.to_vec();
        decrypt_mariadb_run(key, mariadb_vector(read_u32(page, SPACE_ID), page), &mut clear);
        Some(unpack(algorithm, &clear, page.len()))
    }
}

fn decrypt_blocks_256(key: &[u8; KEY_BYTES], vector: &[u8; BLOCK], bytes: &mut [u8]) {
    let mut mode = cbc::Decryptor::<Aes256>::new(key.into(), vector.into());
    for block in bytes.as_chunks_mut::<BLOCK>().0 {
        mode.decrypt_block(block.into());
    }
}

fn decrypt_mysql_run(key: &[u8; KEY_BYTES], vector: &[u8; BLOCK], bytes: &mut [u8]) {
    if !bytes.len().is_multiple_of(BLOCK) {
        let tail = bytes.len().saturating_sub(MYSQL_STORED_MIN);
        if let Some(tail) = bytes.get_mut(tail..) {
            decrypt_blocks_256(key, vector, tail);
        }
    }
    decrypt_blocks_256(key, vector, bytes);
}

/// True of a page that MariaDB encrypted, and that has its sum all the same: it is that of what is stored.
pub(crate) fn is_encrypted_by_mariadb(form: Form, page: &[u8]) -> bool {
    let key_version = match form {
        Form::FullCrc32 => KEY_VERSION_FULL_CRC32,
        // Such pages have another number there.
        _ if read_u16(page, PAGE_TYPE) == TYPE_RTREE => return false,
        Form::Old | Form::Zip => KEY_VERSION,
    };
    read_u32(page, key_version) != 0
}

fn mariadb_vector(space: u32, page: &[u8]) -> [u8; BLOCK] {
    let mut vector = [0; BLOCK];
    let parts = space
        .to_le_bytes()
        .into_iter()
        .chain(read_u32(page, PAGE_NUMBER).to_le_bytes())
        .chain(read_u64(page, LSN).to_le_bytes());
    for (place, byte) in vector.iter_mut().zip(parts) {
        *place = byte;
    }
    vector
}

fn decrypt_mariadb_run(key: &[u8; BLOCK], vector: [u8; BLOCK], bytes: &mut [u8]) {
    let mut mode = cbc::Decryptor::<Aes128>::new(key.into(), (&vector).into());
    let (blocks, rest) = bytes.as_chunks_mut::<BLOCK>();
    for block in blocks {
        mode.decrypt_block(block.into());
    }
    let mut mask = vector;
    Aes128::new(key.into()).encrypt_block((&mut mask).into());
    for (byte, mask) in rest.iter_mut().zip(mask) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_files_of_both_servers_are_read() {
        let hex = "0EC3D2B7BB20B5BDAF66D5DD9FAC3D2540B09B915FC34294E973530E159019C8";
        let json = format!(
            r#"{{"version":"1.0","elements":[{{"data_id":"INNODBKey-x-1","data":"{hex}"}}]}}"#
        );
        let keyring = Keyring::parse(json.as_bytes()).unwrap();
        assert_eq!(keyring.master_keys["INNODBKey-x-1"][..2], [0x0e, 0xc3]);
        let lines = format!("# comment\n1;{hex}\n\n 2 ; {} # short\n", &hex[..32]);
        let keyring = Keyring::parse(lines.as_bytes()).unwrap();
        assert_eq!((keyring.numbered[&1].len(), keyring.numbered[&2].len()), (32, 16));
        assert!(!format!("{keyring:?}").to_lowercase().contains("0ec3"));
    }

    #[test]
    fn what_is_no_key_file_is_refused() {
        let bad: [&[u8]; 8] =
            [b"", b"{", b"{}", b"{\"elements\":[]}", b"1", b"1;xyz", b"1;00", b"Salted__abcdefgh"];
        for bytes in bad {
            assert!(Keyring::parse(bytes).is_err(), "{bytes:?}");
        }
        assert!(Keyring::parse(&[0xff; 40]).is_err());
    }
}
