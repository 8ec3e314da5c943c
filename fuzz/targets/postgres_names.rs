//! Names of relation files: whatever is read as one is written back the same.

use arbitrary::{Arbitrary as _, Unstructured};
use pagewarden::formats::postgres::files::names::{RelationFile, is_known_without_pages};

/// Runs one input.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(name) = <&str>::arbitrary_take_rest(Unstructured::new(bytes)) else { return };
    if let Some(file) = RelationFile::parse(name) {
        assert_eq!(file.name(), name);
        assert!(file.number > 0);
        assert!(!is_known_without_pages(name));
        assert!(name.starts_with(&file.stem()));
    }
}
