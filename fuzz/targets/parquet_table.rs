//! The books of a table of Delta Lake or Iceberg, of arbitrary bytes.
//!
//! The first byte says which book the others are: a version of Delta's log, Iceberg's metadata, or a
//! list of manifests that sound metadata names.

use std::fs;
use std::num::NonZero;

use pagewarden::database::kind_named;
use pagewarden_fuzz::{check, empty_folder};

const METADATA: &str = r#"{"location":"file:///t","current-snapshot-id":1,"snapshots":[{"snapshot-id":1,
"manifest-list":"file:///t/metadata/list.avro"}]}"#;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [which, book @ ..] = input else { return };
    let folder = empty_folder();
    let write = |place: &str, content: &[u8]| {
        let path = folder.join(place);
        fs::create_dir_all(path.parent().expect("it has one")).expect("the folder is ours");
        fs::write(path, content).expect("the folder is ours");
    };
    match which % 3 {
        0 => write("_delta_log/00000000000000000000.json", book),
        1 => write("metadata/v1.metadata.json", book),
        _ => {
            write("metadata/v1.metadata.json", METADATA.as_bytes());
            write("metadata/list.avro", book);
        }
    }
    if let Some(report) = check(folder, kind_named("parquet"), NonZero::<usize>::MIN) {
        assert_eq!(report.summary.pages.total(), 0, "there are no files");
    }
}
