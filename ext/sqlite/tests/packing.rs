//! Makes packs, in this process.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagewarden::database;
use pagewarden::pack::{Content, Method, Pack, Packing, Settings, Strays};
use pagewarden::verify::{Options, verify};

/// Blocks of this size, compressed so.
pub fn settings(block_bytes: u32, method: Method) -> Settings {
    Settings { block_bytes, method, dictionary: Vec::new() }
}

/// Packs a database.
pub fn pack(database: &Path, pack: &Path, settings: Settings) {
    make(database, database, pack, settings, None);
}

/// Packs all of a folder that a database lies in.
#[allow(dead_code, reason = "not every test program has folders to pack")]
pub fn pack_with_others(database: &Path, folder: &Path, pack: &Path, settings: Settings) {
    make(database, folder, pack, settings, None);
}

/// Packs what is not in an earlier pack of a database.
#[allow(dead_code, reason = "as above")]
pub fn pack_delta(database: &Path, base: &Path, pack: &Path, settings: Settings) {
    let base = Arc::new(Pack::open(base).unwrap());
    make(database, database, pack, settings, Some(base));
}

fn make(database: &Path, content: &Path, pack: &Path, settings: Settings, base: Option<Arc<Pack>>) {
    let _ = fs::remove_file(pack);
    let target = database::open(database, None).unwrap();
    let content = Content::list(content, Strays::Refused).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let out = File::create(pack).unwrap();
    let (target, packing) = Packing::begin(target, content, settings, base, out, &stop).unwrap();
    // What is packed here may be damaged.
    verify(target, &Options::default(), &(), &mut ()).unwrap();
    packing.pack_rest(1, None, &()).unwrap();
    packing.finish(b"{}").unwrap();
}
