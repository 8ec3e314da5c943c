//! A cluster whose catalogues hold arbitrary rows, versions and transaction logs.
//!
//! The first byte of the input chooses the version and the moment, the second one
//! how the rows are laid out; the rest is cut into rows, one catalogue after the
//! other.

use std::fs;
use std::path::Path;

use pagewarden::crc::crc32c;
use pagewarden::formats::postgres::files::catalogue::Catalogue;
use pagewarden::formats::postgres::files::catalogue::transactions::Moment;
use pagewarden::formats::postgres::files::control::Control;
use pagewarden::formats::postgres::files::wal::block::Locator;
use pagewarden::formats::postgres::page::Checksums;
use pagewarden_fuzz::empty_folder;

const CONTROL: &[u8] = include_bytes!("../../fixtures/postgres/18/control.on.shutdown");
const VERSIONS: [&str; 10] = ["9.6", "10", "11", "12", "13", "14", "15", "16", "17", "18"];
const PAGE_BYTES: usize = 8192;
/// A row of every catalogue fits.
const ROW_BYTES: usize = 288;
const ROWS_A_PAGE: usize = 24;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [mode, layout, rows @ ..] = input else { return };
    let version = VERSIONS[usize::from(mode & 15) % VERSIONS.len()];
    let moment = if mode & 16 == 0 { Moment::AtRest } else { Moment::Running };
    let root = empty_folder();
    for folder in ["global", "base/5", "pg_xact", "pg_multixact/offsets", "pg_multixact/members"] {
        fs::create_dir_all(root.join(folder)).expect("the folder is ours");
    }
    write(root, "global/pg_filenode.map", &map(&[(1262, 1262), (1260, 1260)]));
    write(root, "base/5/pg_filenode.map", &map(&[(1259, 1259), (1249, 1249)]));
    let part = rows.len() / 4;
    for (index, file) in
        ["global/1262", "base/5/1259", "base/5/2615", "base/5/2610"].into_iter().enumerate()
    {
        let rows = &rows[index * part..(index + 1) * part];
        write(root, file, &page(rows, version, *layout));
    }
    let mut log = rows.to_vec();
    log.resize(PAGE_BYTES, 0b0110_0101);
    for file in ["pg_xact/0000", "pg_multixact/offsets/0000", "pg_multixact/members/0000"] {
        write(root, file, &log[..PAGE_BYTES]);
    }

    let mut control = Control::parse(CONTROL).expect("a server wrote it");
    control.checksums = Checksums::Off;
    let catalogue = Catalogue::find(root, version, &control).expect("the version is known");
    let databases = catalogue.databases(moment);
    for database in databases.listed.iter().filter(|database| database.oid == 5) {
        let relations = catalogue.relations(database, moment);
        for relation in relations.iter() {
            assert_ne!(relation.number, 0);
            let found = relations.by_file(relation.tablespace, relation.number);
            assert_eq!(found, Some(relation));
            assert_eq!(relations.by_oid(relation.oid).map(|one| one.oid), Some(relation.oid));
            let name = relations.name(relation);
            assert!(name.contains('.') && !name.contains(char::is_control), "{name:?}");
            if let Some(heap) = relations.heap_of(relation) {
                assert!(heap.is_heap());
            }
            let number = relation.number;
            let place = Locator { tablespace: relation.tablespace, database: 5, number };
            let _ = catalogue.establishes(place);
        }
        assert!(relations.required().count() <= relations.count() * 2);
    }
    let shared = catalogue.shared(&databases, moment);
    assert!(shared.iter().all(|relation| relation.tablespace == 1664));
}

fn write(root: &Path, name: &str, bytes: &[u8]) {
    fs::write(root.join(name), bytes).expect("the folder is ours");
}

fn map(mappings: &[(u32, u32)]) -> Vec<u8> {
    let mut bytes = 0x0059_2717_u32.to_le_bytes().to_vec();
    bytes.extend(u32::try_from(mappings.len()).expect("few").to_le_bytes());
    for (oid, number) in mappings {
        bytes.extend(oid.to_le_bytes());
        bytes.extend(number.to_le_bytes());
    }
    bytes.resize(504, 0);
    let crc = crc32c(&bytes).to_le_bytes();
    bytes.extend(crc);
    bytes.resize(512, 0);
    bytes
}

/// A page of rows. Where the layout says so, they are made such as a server would
/// list: with enough attributes and a header of the length it has.
fn page(rows: &[u8], version: &str, layout: u8) -> Vec<u8> {
    let mut page = vec![0_u8; PAGE_BYTES];
    let mut upper = PAGE_BYTES;
    let mut count = 0;
    for row in rows.chunks(ROW_BYTES).take(ROWS_A_PAGE) {
        upper -= ROW_BYTES;
        let tuple = &mut page[upper..upper + ROW_BYTES];
        tuple[..row.len()].copy_from_slice(row);
        if layout & 1 == 0 {
            tuple[18] = 30;
            tuple[22] = 32;
            tuple[20] &= !1;
        }
        if layout & 2 == 0 && matches!(version, "9.6" | "10" | "11") {
            tuple[20] |= 8;
        }
        if layout & 4 == 0 {
            // Names that end, and kinds that have files.
            tuple[32 + 60..32 + 68].fill(0);
        }
        let begin = u16::try_from(upper).expect("within the page");
        let pointer = u32::from(begin) | 1 << 15 | 288 << 17;
        page[24 + count * 4..28 + count * 4].copy_from_slice(&pointer.to_le_bytes());
        count += 1;
    }
    let fields = [24 + count * 4, upper, PAGE_BYTES, PAGE_BYTES | 4];
    for (index, field) in fields.into_iter().enumerate() {
        let field = u16::try_from(field).expect("within the page");
        page[12 + index * 2..14 + index * 2].copy_from_slice(&field.to_le_bytes());
    }
    page
}
