//! libsodium's encrypted streams (`crypto_secretstream_xchacha20poly1305`), as WAL-G writes them.
//!
//! ```text
//! 24 bytes    header: 16 from which the key of the stream is made, 8 of its first nonce
//! chunks      of 8,192 bytes of content each, the last one shorter:
//!    1 byte     tag, encrypted: 0 more follows, 2 and 3 a new key, 3 the last chunk
//!    n bytes    content, encrypted
//!   16 bytes    Poly1305 over both
//! ```
//!
//! Every chunk is authenticated before a byte of it is given out, its place in the stream with it: a
//! flipped bit, a missing chunk and a cut end are errors. Sources: `secretstream_xchacha20poly1305.c`
//! of libsodium; `internal/crypto/libsodium` of WAL-G for the size of its chunks.

use std::fmt;
use std::io::{self, Read};

use chacha20::cipher::{KeyIvInit as _, StreamCipher as _};
use chacha20::{ChaCha20, R20, hchacha};
use poly1305::Poly1305;
use poly1305::universal_hash::KeyInit as _;

use crate::source::decode::fill;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;

const SEED_BYTES: usize = 16;
const INNER_NONCE_BYTES: usize = 8;
const HEADER_BYTES: usize = SEED_BYTES + INNER_NONCE_BYTES;
const COUNTER_BYTES: usize = 4;
const NONCE_BYTES: usize = COUNTER_BYTES + INNER_NONCE_BYTES;
const BLOCK_BYTES: usize = 64;
const SUM_BYTES: usize = 16;
const TAG_BYTES: usize = 1;
/// Content of a chunk in WAL-G's streams.
const CONTENT_BYTES: usize = 8192;
const CHUNK_BYTES: usize = TAG_BYTES + CONTENT_BYTES + SUM_BYTES;

const TAG_REKEY: u8 = 2;
const TAG_FINAL: u8 = 3;

/// A key; it is shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(pub [u8; KEY_BYTES]);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// A stream's content, decrypted.
pub struct SecretStream<R> {
    source: R,
    /// `None` before the header was read.
    state: Option<State>,
    key: Key,
    content: Vec<u8>,
    given: usize,
    ended: bool,
}

impl<R> fmt::Debug for SecretStream<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretStream").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl<R: Read> SecretStream<R> {
    /// A stream that begins where `source` stands.
    pub fn new(source: R, key: Key) -> Self {
        Self { source, state: None, key, content: Vec::new(), given: 0, ended: false }
    }

    /// Opens the next chunk.
    fn advance(&mut self) -> io::Result<()> {
        let state = match &mut self.state {
            Some(state) => state,
            None => {
                let mut header = [0_u8; HEADER_BYTES];
                if fill(&mut self.source, &mut header)? < HEADER_BYTES {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                self.state.insert(State::new(&self.key, &header))
            }
        };
        let mut chunk = vec![0_u8; CHUNK_BYTES];
        let count = fill(&mut self.source, &mut chunk)?;
        chunk.truncate(count);
        let is_short = count < CHUNK_BYTES;
        let Some((tag, content)) = state.open(&chunk) else {
            // A chunk that was cut in two does not open either.
            return Err(match is_short {
                true if count < TAG_BYTES + SUM_BYTES => io::ErrorKind::UnexpectedEof.into(),
                _ => io::Error::new(
                    io::ErrorKind::InvalidData,
                    "a chunk of the encrypted stream does not open: it is damaged, or the key is another one",
                ),
            });
        };
        self.ended = tag == TAG_FINAL;
        if self.ended && fill(&mut self.source, &mut [0])? > 0 {
            let text = "something follows the last chunk of the encrypted stream";
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        self.content = content;
        self.given = 0;
        Ok(())
    }
}

impl<R: Read> Read for SecretStream<R> {
    /// # Errors
    /// The source fails or ends before the last chunk ([`io::ErrorKind::UnexpectedEof`]), or a chunk
    /// does not open ([`io::ErrorKind::InvalidData`]).
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut rest = self.content.get(self.given..).unwrap_or_default();
            if !rest.is_empty() || self.ended {
                let count = rest.read(bytes)?;
                self.given = self.given.saturating_add(count);
                return Ok(count);
            }
            self.advance()?;
        }
    }
}

/// True if the first chunk of a stream that begins like this opens with the key. `begin` holds
/// [`FIRST_CHUNK_BYTES`], or all of the stream if that is shorter.
#[must_use]
pub fn opens(begin: &[u8], key: &Key) -> bool {
    let mut stream =
        SecretStream::new(begin.get(..FIRST_CHUNK_BYTES).unwrap_or(begin), key.clone());
    stream.advance().is_ok()
}

/// Bytes of a stream up to the end of its first chunk.
pub const FIRST_CHUNK_BYTES: usize = HEADER_BYTES + CHUNK_BYTES;

/// The key and the nonce of the next chunk.
struct State {
    key: [u8; KEY_BYTES],
    nonce: [u8; NONCE_BYTES],
}

const COUNTER_BEGIN: [u8; COUNTER_BYTES] = [1, 0, 0, 0];

impl State {
    fn new(key: &Key, header: &[u8; HEADER_BYTES]) -> Self {
        let (mut seed, mut inner) = ([0_u8; SEED_BYTES], [0_u8; INNER_NONCE_BYTES]);
        let (from_seed, from_inner) = header.split_at(SEED_BYTES);
        seed.copy_from_slice(from_seed);
        inner.copy_from_slice(from_inner);
        let key = hchacha::<R20>(&key.0.into(), &seed.into()).0;
        Self { key, nonce: nonce_of(COUNTER_BEGIN, inner) }
    }

    /// A chunk's tag and content; `None` if it is not the next chunk of this stream.
    fn open(&mut self, chunk: &[u8]) -> Option<(u8, Vec<u8>)> {
        let (encrypted, sum) = chunk.split_at_checked(chunk.len().checked_sub(SUM_BYTES)?)?;
        let (tag, encrypted) = encrypted.split_first()?;
        let mut cipher = ChaCha20::new(&self.key.into(), &self.nonce.into());
        // Blocks of the key stream: one for the sum's key, one for the tag, the rest for the content.
        let mut first = [0_u8; BLOCK_BYTES];
        cipher.apply_keystream(&mut first);
        let mut block = [0_u8; BLOCK_BYTES];
        let [begin, ..] = &mut block;
        *begin = *tag;
        cipher.apply_keystream(&mut block);
        let [begin, ..] = &mut block;
        let opened_tag = std::mem::replace(begin, *tag);
        let sum_key: [u8; KEY_BYTES] = first.first_chunk().copied()?;
        if sum_of(sum_key, &block, encrypted) != *sum {
            return None;
        }
        let mut content = encrypted.to_vec();
        cipher.apply_keystream(&mut content);
        self.go_on(opened_tag, sum);
        Some((opened_tag, content))
    }

    /// Makes the nonce of the next chunk, and a new key where the tag asks for one.
    fn go_on(&mut self, tag: u8, sum: &[u8]) {
        let (counter, inner) = self.nonce.split_at_mut(COUNTER_BYTES);
        for (byte, sum) in inner.iter_mut().zip(sum) {
            *byte ^= sum;
        }
        let mut carry = true;
        for byte in counter.iter_mut() {
            let (sum, is_over) = byte.overflowing_add(u8::from(carry));
            *byte = sum;
            carry = is_over;
        }
        let is_over = counter.iter().all(|byte| *byte == 0);
        if tag & TAG_REKEY != 0 || is_over {
            self.rekey();
        }
    }

    fn rekey(&mut self) {
        let mut cipher = ChaCha20::new(&self.key.into(), &self.nonce.into());
        cipher.apply_keystream(&mut self.key);
        let (counter, inner) = self.nonce.split_at_mut(COUNTER_BYTES);
        cipher.apply_keystream(inner);
        counter.copy_from_slice(&COUNTER_BEGIN);
    }
}

fn nonce_of(counter: [u8; COUNTER_BYTES], inner: [u8; INNER_NONCE_BYTES]) -> [u8; NONCE_BYTES] {
    let mut nonce = [0_u8; NONCE_BYTES];
    let bytes = counter.iter().chain(&inner);
    for (place, byte) in nonce.iter_mut().zip(bytes) {
        *place = *byte;
    }
    nonce
}

/// The sum over the block of the tag, the content, and their lengths. libsodium pads the content with
/// as many zeroes as it has bytes past a multiple of 16, by a slip that all its versions keep.
fn sum_of(key: [u8; KEY_BYTES], block: &[u8; BLOCK_BYTES], encrypted: &[u8]) -> [u8; SUM_BYTES] {
    let padding = encrypted.len() % SUM_BYTES;
    let bytes = (BLOCK_BYTES as u64).saturating_add(encrypted.len() as u64);
    let mut message = Vec::with_capacity(BLOCK_BYTES + encrypted.len() + 2 * SUM_BYTES);
    message.extend_from_slice(block);
    message.extend_from_slice(encrypted);
    message.resize(message.len().saturating_add(padding), 0);
    // Nothing is authenticated besides.
    message.extend_from_slice(&0_u64.to_le_bytes());
    message.extend_from_slice(&bytes.to_le_bytes());
    Poly1305::new(&key.into()).compute_unpadded(&message).0
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key([7; KEY_BYTES]);

    /// Encrypts as the module describes it. That it is what libsodium writes is shown by the real
    /// backups of WAL-G that other tests read.
    fn encrypted(content: &[u8], tags: impl Fn(usize) -> u8) -> Vec<u8> {
        let header = [9_u8; HEADER_BYTES];
        let mut state = State::new(&KEY, &header);
        let mut stream = header.to_vec();
        let chunks: Vec<_> = content.chunks(CONTENT_BYTES).collect();
        for (index, content) in chunks.iter().enumerate() {
            let tag = if index + 1 == chunks.len() { TAG_FINAL } else { tags(index) };
            let mut cipher = ChaCha20::new(&state.key.into(), &state.nonce.into());
            let mut first = [0; BLOCK_BYTES];
            cipher.apply_keystream(&mut first);
            let mut block = [0; BLOCK_BYTES];
            block[0] = tag;
            cipher.apply_keystream(&mut block);
            let mut body = content.to_vec();
            cipher.apply_keystream(&mut body);
            let sum = sum_of(first[..KEY_BYTES].try_into().unwrap(), &block, &body);
            stream.push(block[0]);
            stream.extend(body);
            stream.extend(sum);
            state.go_on(tag, &sum);
        }
        stream
    }

    fn read(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut all = Vec::new();
        SecretStream::new(bytes, KEY).read_to_end(&mut all)?;
        Ok(all)
    }

    fn content() -> Vec<u8> {
        (0..30_001_u32).map(|number| number.to_le_bytes()[0]).collect()
    }

    #[test]
    fn chunks_are_read_also_where_the_key_changes() {
        for tag in [0, 1, TAG_REKEY] {
            let stream = encrypted(&content(), |index| if index == 1 { tag } else { 0 });
            assert!(read(&stream).unwrap() == content(), "{tag}");
            assert!(opens(&stream[..FIRST_CHUNK_BYTES], &KEY));
            assert!(!opens(&stream[..FIRST_CHUNK_BYTES], &Key([8; KEY_BYTES])));
        }
        assert!(opens(&encrypted(b"short", |_| 0), &KEY));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let whole = encrypted(&content(), |_| 0);
        for at in (0..whole.len()).step_by(97).chain([0, 24, whole.len() - 1]) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            assert_eq!(read(&bytes).unwrap_err().kind(), io::ErrorKind::InvalidData, "{at}");
        }
    }

    #[test]
    fn missing_end_and_missing_chunk_are_found() {
        let whole = encrypted(&content(), |_| 0);
        for length in [0, 23, 24, 40, HEADER_BYTES + CHUNK_BYTES, HEADER_BYTES + 2 * CHUNK_BYTES] {
            let kind = read(&whole[..length]).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::UnexpectedEof, "{length}");
        }
        assert!(read(&whole[..whole.len() - 1]).is_err());
        let without = [&whole[..FIRST_CHUNK_BYTES], &whole[FIRST_CHUNK_BYTES + CHUNK_BYTES..]];
        assert!(read(&without.concat()).is_err());
        assert!(read(&[whole, vec![0]].concat()).is_err());
    }
}
