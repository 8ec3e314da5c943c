//! The hashes that a backup's manifest may hold.

use std::fmt;

use sha2::digest::DynDigest;
use sha2::{Sha224, Sha256, Sha384, Sha512};

use pagewarden_core::crc::Crc32c;

/// How files are hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The default of a server.
    Crc32c,
    /// SHA-224.
    Sha224,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Algorithm {
    /// The algorithm by its name in a manifest.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "CRC32C" => Some(Self::Crc32c),
            "SHA224" => Some(Self::Sha224),
            "SHA256" => Some(Self::Sha256),
            "SHA384" => Some(Self::Sha384),
            "SHA512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Its name in a manifest.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "CRC32C",
            Self::Sha224 => "SHA224",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
        }
    }

    /// Bytes in a hash.
    #[must_use]
    pub fn bytes(self) -> usize {
        match self {
            Self::Crc32c => 4,
            Self::Sha224 => 28,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }
}

/// Hashes bytes that come in pieces.
pub enum Hasher {
    /// By this.
    Crc32c(Box<Crc32c>),
    /// By one of the others.
    Sha(Box<dyn DynDigest + Send>),
}

impl fmt::Debug for Hasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hasher")
    }
}

impl Hasher {
    /// Of nothing yet.
    #[must_use]
    pub fn new(algorithm: Algorithm) -> Self {
        match algorithm {
            Algorithm::Crc32c => Self::Crc32c(Box::new(Crc32c::new())),
            Algorithm::Sha224 => Self::Sha(Box::new(Sha224::default())),
            Algorithm::Sha256 => Self::Sha(Box::new(Sha256::default())),
            Algorithm::Sha384 => Self::Sha(Box::new(Sha384::default())),
            Algorithm::Sha512 => Self::Sha(Box::new(Sha512::default())),
        }
    }

    /// Goes on with `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32c(crc) => crc.update(bytes),
            Self::Sha(sha) => sha.update(bytes),
        }
    }

    /// The hash of all bytes, as a manifest has it: a CRC in the byte order of
    /// the server, which is little-endian on all machines that matter.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        match self {
            Self::Crc32c(crc) => crc.finish().to_le_bytes().to_vec(),
            Self::Sha(sha) => sha.finalize().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_standards() {
        let of = |algorithm: Algorithm| {
            let mut hasher = Hasher::new(algorithm);
            hasher.update(b"1234");
            hasher.update(b"56789");
            let hash = hasher.finish();
            assert_eq!(hash.len(), algorithm.bytes());
            assert_eq!(Algorithm::named(algorithm.name()), Some(algorithm));
            hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        };
        // The check value of CRC-32C is 0xE3069283.
        assert_eq!(of(Algorithm::Crc32c), "839206e3");
        assert!(of(Algorithm::Sha224).starts_with("9b3e61bf29f17c75572fae2e86e17809a4513d07"));
        assert!(of(Algorithm::Sha256).starts_with("15e2b0d3c33891ebb0f1ef609ec419420c20e320"));
        assert!(of(Algorithm::Sha384).starts_with("eb455d56d2c1a69de64e832011f3393d45f3fa31"));
        assert!(of(Algorithm::Sha512).starts_with("d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f11"));
    }
}
