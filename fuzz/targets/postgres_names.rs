//! Names of relation files: whatever is read as one is written back the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pagewarden::formats::postgres::files::names::{RelationFile, is_known_without_pages};

fuzz_target!(|name: &str| {
    if let Some(file) = RelationFile::parse(name) {
        assert_eq!(file.name(), name);
        assert!(file.number > 0);
        assert!(!is_known_without_pages(name));
        assert!(name.starts_with(&file.stem()));
    }
});
