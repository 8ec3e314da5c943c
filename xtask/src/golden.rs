//! `cargo xtask golden`: pages and control files of real servers, as fixtures.
//!
//! For each version a directory `fixtures/postgres/<version>/` is written anew:
//!
//! | file | what | described in |
//! |---|---|---|
//! | `<kind>.<block>.page` | one page, as in its file | `manifest.tsv` |
//! | `control.<checksums>.<state>` | `pg_control`, all 8192 bytes | `controls.tsv` |
//! | `filenode.<scope>.map` | `pg_filenode.map` | `maps.tsv` |
//!
//! What the tables say comes from the server itself (pageinspect, the
//! `pg_control_*` functions, `pg_relation_filenode`), asked after a restart: a
//! page that stayed in memory since it was changed shows a checksum that is not
//! the one in the file. The bytes are read from the files afterwards and must
//! be the ones that the server saw.
//!
//! All data are invented here. The bytes differ from run to run, because log
//! positions, times and identifiers do; the tables are written along with them.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use pagewarden_scratch::postgres::{Cluster, Installation, Options, StopMode, VERSIONS};

/// Block size and segment size of every package that we can get.
const PAGE_BYTES: usize = 8192;
const SEGMENT_BLOCKS: u32 = 131_072;
const CONTROL_BYTES: usize = 8192;
/// Offset of the state in `pg_control`, of the position of the last checkpoint,
/// and the states that we make.
const CONTROL_STATE_OFFSET: usize = 16;
const CONTROL_CHECKPOINT_OFFSET: usize = 32;
const STATE_SHUT_DOWN: u32 = 1;
const STATE_IN_PRODUCTION: u32 = 6;

/// The version whose table is made larger than a segment: one is enough, as it
/// takes a GiB of disk.
const LONG_TABLE_VERSION: &str = "18";
/// A block in the second segment, whose number is not the one in its file.
const LONG_TABLE_BLOCK: u32 = SEGMENT_BLOCKS + 3;

const SCHEMA: &[&str] = &[
    "CREATE EXTENSION pageinspect",
    "CREATE TABLE golden_heap (id int, word text, tags int[], place point)",
    "INSERT INTO golden_heap SELECT i, md5(i::text), ARRAY[i % 50, i % 7, i],
       point(i % 211, i % 307) FROM generate_series(1, 3000) i",
    "CREATE INDEX golden_btree ON golden_heap (word)",
    "CREATE INDEX golden_hash ON golden_heap USING hash (id)",
    "CREATE INDEX golden_gin ON golden_heap USING gin (tags)",
    "CREATE INDEX golden_gist ON golden_heap USING gist (place)",
    "CREATE INDEX golden_spgist ON golden_heap USING spgist (place)",
    "CREATE INDEX golden_brin ON golden_heap USING brin (id)",
    "DELETE FROM golden_heap WHERE id % 7 = 0",
    "VACUUM golden_heap",
    "CREATE TABLE golden_wide (id int, document text)",
    "ALTER TABLE golden_wide ALTER document SET STORAGE EXTERNAL",
    "INSERT INTO golden_wide SELECT i, repeat(md5(i::text), 300) FROM generate_series(1, 20) i",
    "CREATE SEQUENCE golden_sequence",
    "SELECT nextval('golden_sequence')",
    // A mapped catalog gets another file number than its OID.
    "VACUUM FULL pg_class",
];

const LONG_SCHEMA: &[&str] = &[
    "CREATE EXTENSION pageinspect",
    "BEGIN",
    "CREATE TABLE golden_long (id int, filler text)",
    "ALTER TABLE golden_long ALTER filler SET STORAGE PLAIN",
    // A row to a page. With wal_level = minimal a new table is not logged.
    "INSERT INTO golden_long SELECT i, rpad(i::text, 7900, 'x') FROM generate_series(0, 131080) i",
    "COMMIT",
    // Gives the page a log position.
    "DELETE FROM golden_long WHERE ctid = '(131075,1)'",
];

/// One page to keep.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    kind: &'static str,
    /// SQL that gives the relation's name.
    relation: &'static str,
    fork: &'static str,
    block: u32,
}

const fn wanted(kind: &'static str, relation: &'static str, block: u32) -> Wanted {
    Wanted { kind, relation, fork: "main", block }
}

const PAGES: &[Wanted] = &[
    wanted("heap", "'golden_heap'", 3),
    wanted(
        "toast",
        "(SELECT reltoastrelid::regclass::text FROM pg_class WHERE relname = 'golden_wide')",
        2,
    ),
    wanted("btree_meta", "'golden_btree'", 0),
    wanted("btree_leaf", "'golden_btree'", 2),
    wanted("hash", "'golden_hash'", 2),
    wanted("gin", "'golden_gin'", 1),
    wanted("gist", "'golden_gist'", 1),
    wanted("spgist", "'golden_spgist'", 1),
    wanted("brin", "'golden_brin'", 2),
    Wanted { fork: "fsm", ..wanted("fsm", "'golden_heap'", 2) },
    Wanted { fork: "vm", ..wanted("vm", "'golden_heap'", 0) },
    wanted("sequence", "'golden_sequence'", 0),
];
const LONG_PAGES: &[Wanted] = &[wanted("heap", "'golden_long'", LONG_TABLE_BLOCK)];

const MANIFEST_HEADER: &str = "file\trelation\tkind\tfork\tblock\tpage_bytes\tchecksum\tcomputed\t\
     lsn\tflags\tlower\tupper\tspecial\tlayout\n";
const CONTROLS_HEADER: &str = "file\tstate\tcontrol_version\tcatalog_version\tsystem_identifier\t\
     checkpoint_lsn\tredo_lsn\ttimeline\tblock_bytes\tsegment_blocks\twal_block_bytes\t\
     wal_segment_bytes\tdata_checksum_version\tserver\n";
const MAPS_HEADER: &str = "file\toid\tfilenode\n";

/// Arguments of `cargo xtask golden`.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Versions to make; all that are installed when none is named
    versions: Vec<String>,
    /// Where the directories of the versions are written
    #[arg(long, default_value_os_t = default_directory())]
    out: PathBuf,
}

fn default_directory() -> PathBuf {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask).join("fixtures/postgres")
}

/// Writes the fixtures of every version asked for. A version is replaced only
/// when all of it has been made.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let installations = if arguments.versions.is_empty() {
        Installation::all()
    } else {
        let find = |version: &String| {
            Installation::find(version).with_context(|| {
                format!(
                    "PostgreSQL {version} is not installed\nhint: cargo xtask servers {version}"
                )
            })
        };
        arguments.versions.iter().map(find).collect::<Result<_>>()?
    };
    for version in VERSIONS {
        if arguments.versions.is_empty() && !installations.iter().any(|one| one.version == *version)
        {
            say(&format!("{version}: not installed, left as it is"))?;
        }
    }
    for installation in &installations {
        let version = &installation.version;
        let fixture = make(installation).with_context(|| format!("PostgreSQL {version}"))?;
        let directory = arguments.out.join(version);
        let bytes = fixture.write(&directory)?;
        say(&format!("{version}: {bytes} bytes in {}", directory.display()))?;
    }
    Ok(())
}

/// Everything about one version, before it is written.
#[derive(Debug, Default)]
struct Fixture {
    files: Vec<(String, Vec<u8>)>,
    manifest: String,
    controls: String,
    maps: String,
}

impl Fixture {
    fn write(self, directory: &Path) -> Result<usize> {
        if directory.exists() {
            fs::remove_dir_all(directory)?;
        }
        fs::create_dir_all(directory)?;
        let tables = [
            ("manifest.tsv", MANIFEST_HEADER, self.manifest),
            ("controls.tsv", CONTROLS_HEADER, self.controls),
            ("maps.tsv", MAPS_HEADER, self.maps),
        ]
        .map(|(name, header, rows)| (name.to_owned(), format!("{header}{rows}").into_bytes()));
        let mut bytes_total = 0;
        for (name, bytes) in self.files.into_iter().chain(tables) {
            let path = directory.join(&name);
            fs::write(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
            bytes_total += bytes.len();
        }
        Ok(bytes_total)
    }
}

fn make(installation: &Installation) -> Result<Fixture> {
    let mut fixture = Fixture::default();
    // Only what this script does may change a page.
    let quiet = Options::default().with("autovacuum", "off");
    let mut cluster = Cluster::init(installation, &quiet)?;
    cluster.start()?;
    cluster.execute("postgres", SCHEMA)?;
    keep_pages(&mut cluster, PAGES, &mut fixture)?;
    keep_control(&mut cluster, "on.shutdown", STATE_SHUT_DOWN, &mut fixture)?;
    keep_control(&mut cluster, "on.crashed", STATE_IN_PRODUCTION, &mut fixture)?;
    keep_maps(&mut cluster, &mut fixture)?;
    drop(cluster);

    let options = Options { checksums: false, ..quiet.clone() };
    let mut cluster = Cluster::init(installation, &options)?;
    keep_control(&mut cluster, "off.shutdown", STATE_SHUT_DOWN, &mut fixture)?;
    drop(cluster);

    if installation.version == LONG_TABLE_VERSION {
        let options = quiet.with("wal_level", "minimal").with("max_wal_senders", "0");
        let mut cluster = Cluster::init(installation, &options)?;
        cluster.start()?;
        cluster.execute("postgres", LONG_SCHEMA)?;
        keep_pages(&mut cluster, LONG_PAGES, &mut fixture)?;
    }
    Ok(fixture)
}

/// Restarts the server, asks it about each page, stops it, and reads the pages.
fn keep_pages(cluster: &mut Cluster, pages: &[Wanted], fixture: &mut Fixture) -> Result<()> {
    cluster.stop(StopMode::Fast)?;
    cluster.start()?;
    // page_checksum() came with 10.
    let computed = match cluster.installation().major {
        10.. => "page_checksum(page, block)::int & 65535",
        _ => "'-'",
    };
    let mut seen = Vec::new();
    for page in pages {
        let Wanted { relation, fork, block, .. } = page;
        let answer = cluster.psql(&format!(
            "SELECT relation, pg_relation_filepath(relation::regclass), lsn,
                    checksum::int & 65535, {computed}, flags, lower, upper, special, version,
                    pagesize, encode(page, 'hex')
               FROM (SELECT {relation}::text AS relation, {block} AS block) a,
                    LATERAL (SELECT get_raw_page(relation, '{fork}', block) AS page) b,
                    LATERAL page_header(page) c"
        ));
        seen.push(answer.with_context(|| format!("cannot look at the {} page", page.kind))?);
    }
    cluster.stop(StopMode::Fast)?;

    for (page, seen) in pages.iter().zip(seen) {
        let fields: Vec<&str> = seen.split('|').collect();
        let [
            relation,
            path,
            lsn,
            checksum,
            computed,
            flags,
            lower,
            upper,
            special,
            layout,
            page_bytes,
            hex,
        ] = fields.as_slice()
        else {
            anyhow::bail!("unexpected answer: {seen}");
        };
        let bytes = read_page(&cluster.data_dir().join(path), page)?;
        ensure!(
            *hex == to_hex(&bytes),
            "the {} page in the file is not the one that the server saw",
            page.kind
        );
        ensure!(
            *computed == "-" || computed == checksum,
            "the {} page has checksum {checksum}, not {computed}",
            page.kind
        );
        let (kind, fork, block) = (page.kind, page.fork, page.block);
        let file = format!("{kind}.{block}.page");
        // The number of a TOAST table means nothing outside its cluster.
        let relation = if kind == "toast" { "golden_wide's TOAST table" } else { relation };
        fixture.manifest.push_str(&format!(
            "{file}\t{relation}\t{kind}\t{fork}\t{block}\t{page_bytes}\t{checksum}\t{computed}\t\
             {lsn}\t{flags}\t{lower}\t{upper}\t{special}\t{layout}\n"
        ));
        fixture.files.push((file, bytes));
    }
    Ok(())
}

fn read_page(first_segment: &Path, page: &Wanted) -> Result<Vec<u8>> {
    let mut path = first_segment.as_os_str().to_owned();
    if page.fork != "main" {
        path.push(format!("_{}", page.fork));
    }
    let segment = page.block / SEGMENT_BLOCKS;
    if segment > 0 {
        path.push(format!(".{segment}"));
    }
    let offset = u64::from(page.block % SEGMENT_BLOCKS) * PAGE_BYTES as u64;
    let mut bytes = vec![0; PAGE_BYTES];
    let path = PathBuf::from(path);
    File::open(&path)
        .and_then(|file| file.read_exact_at(&mut bytes, offset))
        .with_context(|| format!("cannot read block {} of {}", page.block, path.display()))?;
    Ok(bytes)
}

/// Brings the cluster into a state, and keeps the control file and what the
/// server says about it. The cluster is stopped in the end.
fn keep_control(
    cluster: &mut Cluster,
    name: &str,
    state: u32,
    fixture: &mut Fixture,
) -> Result<()> {
    let path = cluster.data_dir().join("global/pg_control");
    let (bytes, seen) = if state == STATE_IN_PRODUCTION {
        cluster.start()?;
        cluster.psql("CHECKPOINT")?;
        let seen = ask_for_control(cluster)?;
        cluster.crash()?;
        (fs::read(&path)?, seen)
    } else {
        cluster.start()?;
        cluster.stop(StopMode::Fast)?;
        let bytes = fs::read(&path)?;
        // A start after a clean stop writes no checkpoint of its own.
        cluster.start()?;
        let seen = ask_for_control(cluster)?;
        cluster.stop(StopMode::Fast)?;
        (bytes, seen)
    };
    ensure!(bytes.len() == CONTROL_BYTES, "pg_control has {} bytes", bytes.len());
    let found = read_u32(&bytes, CONTROL_STATE_OFFSET)?;
    ensure!(found == state, "pg_control is in state {found}, not {state}");
    // The low half comes first: this one is a plain number of 64 bits.
    let low = read_u32(&bytes, CONTROL_CHECKPOINT_OFFSET)?;
    let high = read_u32(&bytes, CONTROL_CHECKPOINT_OFFSET + 4)?;
    let checkpoint = format!("{high:X}/{low:X}");
    ensure!(
        lsn_of(seen.get(3).map(String::as_str))? == lsn_of(Some(&checkpoint))?,
        "pg_control names checkpoint {checkpoint}, the server says {seen:?}"
    );
    let file = format!("control.{name}");
    let server = cluster.installation().server_version()?;
    fixture.controls.push_str(&format!("{file}\t{state}\t{}\t{server}\n", seen.join("\t")));
    fixture.files.push((file, bytes));
    Ok(())
}

fn ask_for_control(cluster: &Cluster) -> Result<Vec<String>> {
    let (checkpoint, redo) = match cluster.installation().major {
        10.. => ("checkpoint_lsn", "redo_lsn"),
        _ => ("checkpoint_location", "redo_location"),
    };
    let answer = cluster.psql(&format!(
        "SELECT pg_control_version, catalog_version_no, system_identifier, {checkpoint}, {redo},
                timeline_id, database_block_size, blocks_per_segment, wal_block_size,
                bytes_per_wal_segment, data_page_checksum_version
           FROM pg_control_system(), pg_control_checkpoint(), pg_control_init()"
    ))?;
    Ok(answer.split('|').map(str::to_owned).collect())
}

/// Keeps the maps of the shared and of the database's own catalogs, and for
/// each mapped relation the file number that the server reads from them.
fn keep_maps(cluster: &mut Cluster, fixture: &mut Fixture) -> Result<()> {
    cluster.start()?;
    let database = cluster.psql("SELECT oid FROM pg_database WHERE datname = 'postgres'")?;
    let seen = cluster.psql(
        "SELECT relisshared, oid, pg_relation_filenode(oid) FROM pg_class
          WHERE relfilenode = 0 AND pg_relation_filenode(oid) IS NOT NULL ORDER BY 1, 2",
    )?;
    cluster.stop(StopMode::Fast)?;
    for (scope, directory, shared) in
        [("global", "global".to_owned(), "t"), ("database", format!("base/{database}"), "f")]
    {
        let file = format!("filenode.{scope}.map");
        for line in seen.lines() {
            if let Some((is_shared, pair)) = line.split_once('|')
                && is_shared == shared
            {
                let pair = pair.replace('|', "\t");
                fixture.maps.push_str(&format!("{file}\t{pair}\n"));
            }
        }
        let path = cluster.data_dir().join(directory).join("pg_filenode.map");
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        fixture.files.push((file, bytes));
    }
    Ok(())
}

fn read_u32(bytes: &[u8], offset: usize) -> Result<u32> {
    let field =
        bytes.get(offset..).and_then(<[u8]>::first_chunk).context("pg_control is too short")?;
    Ok(u32::from_le_bytes(*field))
}

/// `16/B374D848` as a number: servers differ in leading zeroes.
fn lsn_of(text: Option<&str>) -> Result<u64> {
    let (high, low) = text.and_then(|text| text.split_once('/')).context("no log position")?;
    Ok((u64::from_str_radix(high, 16)? << 32) | u64::from_str_radix(low, 16)?)
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn say(line: &str) -> Result<()> {
    Ok(writeln!(io::stderr(), "{line}")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No fixture is edited by hand, and nothing but a fixture lies there.
    #[test]
    fn fixtures_are_what_their_tables_say() {
        for version in VERSIONS {
            let directory = default_directory().join(version);
            let table = |name: &str| fs::read_to_string(directory.join(name)).unwrap();
            let manifest = table("manifest.tsv");
            let mut described = vec!["manifest.tsv", "controls.tsv", "maps.tsv"];
            for line in manifest.lines().skip(1) {
                let fields: Vec<&str> = line.split('\t').collect();
                assert_eq!(fields.len(), MANIFEST_HEADER.split('\t').count());
                let page = fs::read(directory.join(fields[0])).unwrap();
                assert_eq!(page.len(), PAGE_BYTES);
                let stored = u16::from_le_bytes([page[8], page[9]]);
                assert_eq!(stored.to_string(), fields[6], "{version} {line}");
                described.push(fields[0]);
            }
            let (controls, maps) = (table("controls.tsv"), table("maps.tsv"));
            for line in controls.lines().chain(maps.lines()) {
                described.push(line.split('\t').next().unwrap());
            }
            for entry in fs::read_dir(&directory).unwrap() {
                let name = entry.unwrap().file_name();
                assert!(described.contains(&name.to_str().unwrap()), "{name:?}");
            }
        }
    }

    #[test]
    fn log_positions_are_compared_as_numbers() {
        assert_eq!(lsn_of(Some("1/0A")).unwrap(), lsn_of(Some("1/A")).unwrap());
        assert!(lsn_of(Some("nothing")).is_err());
        assert!(lsn_of(None).is_err());
    }
}
