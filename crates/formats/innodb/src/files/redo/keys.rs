//! The keys of a log that MySQL encrypts (`innodb_redo_log_encrypt`).
//!
//! The third block of a file, at 1024, says at 48 what page 0 of an encrypted tablespace says of its
//! key (see `page/encryption.rs`), in every file that was begun or written while encryption was on.
//! Of a block all behind the header of 12 bytes is encrypted as the body of a page is; the sum is that
//! of the block in the clear, without the mark of encryption.
//!
//! Sources: `Encryption::encrypt_log_block` of MySQL 8.0 (`os0enc.cc`), `log_header_encryption` of
//! `log0files_io.cc`; settled by the log and the keyring of MySQL 9.7.

use super::{LogFile, sums_of};
use crate::page::encryption::{Cipher, KeyInfo, Keyring};
use pagewarden_core::source::file::read_fully;

const INFO_AT: u64 = 1024 + 48;
const INFO_BYTES: usize = 111;
const BLOCK: usize = 512;
const BLOCK_HEADER_BYTES: usize = 12;
const SUM: usize = 508;
const USED: usize = 4;
/// In the first byte of the length.
const MARK: u8 = 0x80;

/// The keys of all files of a log: the server may have been given another meanwhile.
#[derive(Debug, Default)]
pub(super) struct Keys {
    ciphers: Vec<Cipher>,
    /// Why there is a key that could not be used.
    closed: Option<String>,
}

/// What an encrypted block is with these keys.
pub(super) enum Opened {
    /// Its sum fits.
    Sound(Box<[u8; BLOCK]>),
    /// All keys are here, and with none does its sum fit.
    Bad((u32, u32)),
    /// A key is not here.
    Closed(String),
}

impl Keys {
    /// Reads what the files say, and opens it with a keyring.
    pub(super) fn of(files: &[LogFile], keyring: Option<&Keyring>) -> Self {
        let mut keys = Self::default();
        let mut seen: Vec<KeyInfo> = Vec::new();
        for file in files {
            let mut info = [0_u8; INFO_BYTES];
            let count = read_fully(&file.file, &mut info, INFO_AT).unwrap_or(0);
            let found = info.get(..count).and_then(KeyInfo::of_mysql);
            let Some(info) = found.filter(|info| !seen.contains(info)) else { continue };
            let opened = match (keyring, &info) {
                (Some(keyring), _) => info.open(keyring),
                (None, KeyInfo::MySql { master_key, .. }) => {
                    Err(format!("their key {master_key} was not given"))
                }
                (None, KeyInfo::MariaDb { .. }) => Err("their key was not given".to_owned()),
            };
            match opened {
                Ok(cipher) if keys.ciphers.contains(&cipher) => {}
                Ok(cipher) => keys.ciphers.push(cipher),
                Err(reason) => keys.closed = Some(reason),
            }
            seen.push(info);
        }
        if seen.is_empty() {
            keys.closed = Some("no file of the log says with which key".to_owned());
        }
        keys
    }

    /// Decrypts a block, and tests its sum.
    pub(super) fn open(&self, block: &[u8; BLOCK]) -> Opened {
        let mut failed = None;
        for cipher in &self.ciphers {
            let mut clear = Box::new(*block);
            if let Some(used) = clear.get_mut(USED) {
                *used &= !MARK;
            }
            let body = clear.get_mut(BLOCK_HEADER_BYTES..).unwrap_or_default();
            if !cipher.decrypt_mysql_body(body) {
                continue;
            }
            let sums = sums_of(&*clear, SUM);
            if sums.0 == sums.1 {
                return Opened::Sound(clear);
            }
            failed = Some(sums);
        }
        match (&self.closed, failed) {
            (None, Some(sums)) => Opened::Bad(sums),
            (Some(reason), _) => Opened::Closed(reason.clone()),
            (None, None) => Opened::Closed("no key".to_owned()),
        }
    }
}
