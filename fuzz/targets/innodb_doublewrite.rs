//! Doublewrite files of MySQL, and whatever lies in a data directory beside them.
//!
//! The first byte says what the input is written as.

use std::fs;
use std::num::NonZero;

use pagewarden::database::kind_named;
use pagewarden::formats::innodb::files::doublewrite::{Extents, slot_bytes_of};
use pagewarden_fuzz::{check, empty_folder};

const NAMES: [&str; 6] = [
    "#ib_16384_0.dblwr",
    "#ib_4096_1.bdblwr",
    "ibdata1",
    "db/t.ibd.delta",
    "db/t.ibd.zst",
    "undo001",
];

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let Some((kind, bytes)) = input.split_first() else { return };
    let _ = Extents::parse(bytes);
    let _ = slot_bytes_of(&String::from_utf8_lossy(bytes));
    let folder = empty_folder();
    let path = folder.join(NAMES[usize::from(*kind) % NAMES.len()]);
    fs::create_dir_all(path.parent().expect("it has one")).expect("the folder is ours");
    fs::write(&path, bytes).expect("the folder is ours");
    fs::write(folder.join("db.meta"), b"").expect("the folder is ours");
    fs::create_dir_all(folder.join("db")).expect("the folder is ours");
    let meta = "page_size = 1024\nzip_size = 0\nspace_id = 7\n";
    fs::write(folder.join("db/t.ibd.meta"), meta).expect("the folder is ours");
    check(folder, kind_named("innodb"), NonZero::<usize>::MIN);
    check(&path, kind_named("innodb"), NonZero::<usize>::MIN);
}
