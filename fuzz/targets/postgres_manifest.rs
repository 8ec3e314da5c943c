//! Backup manifests: arbitrary text, and text whose own checksum fits.

use pagewarden::formats::postgres::files::backup::hash::{Algorithm, Hasher};
use pagewarden::formats::postgres::files::backup::manifest;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((mode, text)) = input.split_first() else { return };
    let mut text = text.to_vec();
    if mode % 2 == 1 {
        text.push(b'\n');
        let mut hasher = Hasher::new(Algorithm::Sha256);
        hasher.update(&text);
        let sum: String = hasher.finish().iter().map(|byte| format!("{byte:02x}")).collect();
        text.extend(format!("\"Manifest-Checksum\": \"{sum}\"}}\n").as_bytes());
    }
    let mut files = 0;
    let read = manifest::read(text.as_slice(), &mut |entry| {
        files += 1;
        if let Some((algorithm, hash)) = &entry.hash {
            assert_eq!(hash.len(), algorithm.bytes());
        }
    });
    if let Ok(manifest) = read {
        assert_eq!(manifest.files, files);
        assert!(matches!(manifest.version, 1 | 2));
    }
}
