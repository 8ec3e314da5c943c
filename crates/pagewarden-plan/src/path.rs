//! Paths in JSON: text, or bytes where a path is no text.

use std::ffi::OsString;
use std::path::PathBuf;

use pagewarden::system::{OsStrExt as _, OsStringExt as _};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path that is written without loss.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExactPath(pub PathBuf);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Text(String),
    Bytes { bytes: Vec<u8> },
}

impl Serialize for ExactPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let form = match self.0.to_str() {
            Some(text) => Form::Text(text.to_owned()),
            None => Form::Bytes { bytes: self.0.as_os_str().as_bytes().to_vec() },
        };
        form.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ExactPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(match Form::deserialize(deserializer)? {
            Form::Text(text) => text.into(),
            Form::Bytes { bytes } => OsString::from_vec(bytes).into(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_back_as_they_were() {
        for bytes in [&b"a/b"[..], b"", b"\xff\n\"", "\u{e4}".as_bytes()] {
            let path = ExactPath(OsString::from_vec(bytes.to_vec()).into());
            let text = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<ExactPath>(&text).unwrap(), path, "{text}");
        }
    }
}
