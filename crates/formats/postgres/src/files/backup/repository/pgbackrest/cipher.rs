//! Encryption of stored files: AES-256 in CBC mode, in the form of `openssl enc`.
//!
//! ```text
//! bytes  field
//!     8  "Salted__"; left out in the raw mode of bundles and block incrementals
//!     8  salt
//!  n*16  AES-256-CBC, padded as in PKCS#7
//! ```
//!
//! Key and initial vector come from the passphrase by `EVP_BytesToKey` with SHA-1 and one round. What
//! is compressed was compressed first. Nothing authenticates the bytes: a flipped byte garbles 16
//! bytes and flips a bit of the next 16.
//!
//! Source: the documentation of OpenSSL, `EVP_BytesToKey` and `enc`; repositories of 2.45 and 2.60.

use std::fmt;
use std::io::{self, Read};

use aes::Aes256;
use cbc::cipher::{BlockModeDecrypt as _, KeyIvInit as _};
use sha1::{Digest as _, Sha1};

use pagewarden_core::source::decode::fill;

const BLOCK: usize = 16;
const MAGIC: &[u8; 8] = b"Salted__";
const SALT_BYTES: usize = 8;
const KEY_BYTES: usize = 32;
const DIGEST_BYTES: usize = 20;
/// Bytes that are decrypted at a time.
const PIECE_BYTES: usize = 64 << 10;
const _: () = assert!(PIECE_BYTES.is_multiple_of(BLOCK));

/// A passphrase, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Passphrase(Vec<u8>);

impl fmt::Debug for Passphrase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Passphrase")
    }
}

impl Passphrase {
    pub(super) fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    fn key_and_vector(&self, salt: &[u8]) -> ([u8; KEY_BYTES], [u8; BLOCK]) {
        let mut stream = Vec::with_capacity(DIGEST_BYTES * 3);
        let mut digest: Vec<u8> = Vec::new();
        while stream.len() < KEY_BYTES + BLOCK {
            let mut hash = Sha1::new();
            hash.update(&digest);
            hash.update(&self.0);
            hash.update(salt);
            digest = hash.finalize().to_vec();
            stream.extend_from_slice(&digest);
        }
        let mut key = [0; KEY_BYTES];
        let mut vector = [0; BLOCK];
        let places = key.iter_mut().chain(&mut vector);
        places.zip(stream).for_each(|(place, byte)| *place = byte);
        (key, vector)
    }
}

/// True if `begin`, the beginning of a file, is that of an encrypted one.
pub(super) fn is_encrypted(begin: &[u8]) -> bool {
    begin.starts_with(MAGIC)
}

/// Decrypts what comes from a source.
pub(super) struct Decrypted<R> {
    source: R,
    cipher: cbc::Decryptor<Aes256>,
    /// Decrypted, and not given out up to `given`.
    ready: Vec<u8>,
    given: usize,
    /// The last block that was read: it waits until it is known not to be the padding.
    last: Option<[u8; BLOCK]>,
    is_done: bool,
}

impl<R: Read> Decrypted<R> {
    /// Begins to decrypt. `raw`: without the magic at the beginning.
    ///
    /// # Errors
    /// The source ends early, cannot be read, or is not encrypted.
    pub(super) fn new(mut source: R, passphrase: &Passphrase, raw: bool) -> io::Result<Self> {
        if !raw {
            let mut magic = [0; MAGIC.len()];
            let count = fill(&mut source, &mut magic)?;
            if count < magic.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if &magic != MAGIC {
                return Err(invalid("it is not encrypted as the repository is"));
            }
        }
        let mut salt = [0; SALT_BYTES];
        if fill(&mut source, &mut salt)? < salt.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (key, vector) = passphrase.key_and_vector(&salt);
        Ok(Self {
            source,
            cipher: cbc::Decryptor::new((&key).into(), (&vector).into()),
            ready: Vec::new(),
            given: 0,
            last: None,
            is_done: false,
        })
    }

    fn decrypt_more(&mut self) -> io::Result<()> {
        let mut piece = vec![0; PIECE_BYTES];
        let count = fill(&mut self.source, &mut piece)?;
        piece.truncate(count);
        self.ready.clear();
        self.given = 0;
        let (blocks, rest) = piece.as_chunks_mut::<BLOCK>();
        for block in blocks {
            self.cipher.decrypt_block(block.into());
            if let Some(before) = self.last.replace(*block) {
                self.ready.extend_from_slice(&before);
            }
        }
        if !rest.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if count < PIECE_BYTES {
            self.is_done = true;
            // Nothing at all was encrypted as nothing.
            let Some(last) = self.last.take() else { return Ok(()) };
            self.ready.extend_from_slice(without_padding(&last)?);
        }
        Ok(())
    }
}

fn without_padding(block: &[u8; BLOCK]) -> io::Result<&[u8]> {
    let [.., count] = *block;
    let kept = BLOCK.checked_sub(usize::from(count)).filter(|_| count > 0);
    let (kept, padding) = kept
        .and_then(|kept| block.split_at_checked(kept))
        .ok_or_else(|| invalid("its end does not decrypt"))?;
    if padding.iter().any(|byte| *byte != count) {
        return Err(invalid("its end does not decrypt"));
    }
    Ok(kept)
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

impl<R: Read> Read for Decrypted<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        while self.given >= self.ready.len() {
            if self.is_done || bytes.is_empty() {
                return Ok(0);
            }
            self.decrypt_more()?;
        }
        let mut rest = self.ready.get(self.given..).unwrap_or_default();
        let count = rest.read(bytes)?;
        self.given = self.given.saturating_add(count);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By `printf 'every page' | openssl enc -aes-256-cbc -md sha1 -S 0102030405060708
    /// -pass pass:fixture-pass`, which leaves the magic and the salt out.
    const BY_OPENSSL: [u8; 16] = [
        0x31, 0x57, 0xD5, 0xE9, 0x4D, 0x41, 0x7D, 0xC1, 0x78, 0xA7, 0x19, 0xD7, 0x13, 0x4A, 0x82,
        0xC2,
    ];

    fn stored(raw: bool) -> Vec<u8> {
        let mut bytes = if raw { Vec::new() } else { MAGIC.to_vec() };
        bytes.extend_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        bytes.extend_from_slice(&BY_OPENSSL);
        bytes
    }

    fn decrypted(bytes: &[u8], pass: &str, raw: bool) -> io::Result<Vec<u8>> {
        let mut clear = Vec::new();
        Decrypted::new(bytes, &Passphrase::new(pass), raw)?.read_to_end(&mut clear)?;
        Ok(clear)
    }

    #[test]
    fn what_openssl_encrypted_is_decrypted() {
        for raw in [false, true] {
            assert_eq!(decrypted(&stored(raw), "fixture-pass", raw).unwrap(), b"every page");
        }
    }

    #[test]
    fn cut_and_wrong_input_is_an_error() {
        let whole = stored(false);
        for length in [0, 7, 8, 15, 17, 31] {
            assert!(decrypted(&whole[..length], "fixture-pass", false).is_err(), "{length}");
        }
        assert!(decrypted(&stored(true), "fixture-pass", false).is_err());
        assert!(decrypted(&whole, "other", false).is_err());
        assert_eq!(format!("{:?}", Passphrase::new("secret")), "Passphrase");
    }
}
