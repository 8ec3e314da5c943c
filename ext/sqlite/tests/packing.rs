//! Makes packs, in this process.

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use pagewarden::pack::{Content, Method, Packing, Settings, Strays};
use pagewarden::target;
use pagewarden::verdict::{Finding, Note, Unread};
use pagewarden::verify::{Options, Sink, verify};

/// Hears nothing: what is packed here may be damaged.
struct Deaf;

impl Sink for Deaf {
    fn finding(&mut self, _: &Finding) -> std::io::Result<()> {
        Ok(())
    }

    fn unread(&mut self, _: &Unread) -> std::io::Result<()> {
        Ok(())
    }

    fn note(&mut self, _: &Note) -> std::io::Result<()> {
        Ok(())
    }
}

/// Blocks of this size, compressed so.
pub fn settings(block_bytes: u32, method: Method) -> Settings {
    Settings { block_bytes, method, dictionary: Vec::new() }
}

/// Packs a database.
pub fn pack(database: &Path, pack: &Path, settings: Settings) {
    pack_with_others(database, database, pack, settings);
}

/// Packs the folder, or the file, that `database` is or lies in.
pub fn pack_with_others(database: &Path, content: &Path, pack: &Path, settings: Settings) {
    let _ = fs::remove_file(pack);
    let target = target::open(database, None).unwrap();
    let content = Content::list(content, Strays::Refused).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let out = File::create(pack).unwrap();
    let (target, packing) = Packing::begin(target, content, settings, out, &stop).unwrap();
    verify(target, &Options::default(), &(), &mut Deaf).unwrap();
    packing.pack_rest(1, &()).unwrap();
    packing.finish(b"{}").unwrap();
}
