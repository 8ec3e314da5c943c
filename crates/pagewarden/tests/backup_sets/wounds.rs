//! Seeded wounds: single bits flipped in stored archives, one in each run. All of them are found, but in
//! two blind spots: bits without a meaning for what is restored (the header of gzip says when and where
//! it was made), and in a brotli stream, which has no sum, what is no page.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use pagewarden::database::repository::RepositoryOptions;
use pagewarden::source::decode::{Compression, decode, decode_as};

use super::{BARMAN, Report, Repository, WALG, checked, decoded, relations};

/// Numbers from a seed: splitmix64.
struct Seeded(u64);

impl Seeded {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % end as u64).unwrap()
    }
}

fn wounds() -> usize {
    std::env::var("PAGEWARDEN_SET_WOUNDS").map_or(8, |count| count.parse().unwrap())
}

fn archives(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        let name = entry.file_name().into_string().unwrap();
        if path.is_dir() {
            archives(&path, found);
        } else if name.contains(".tar.") {
            found.push(path);
        }
    }
}

/// True where nothing that a restore brings back has changed: the header of gzip, and bits of a
/// compressed form without a meaning. Of brotli, which has no sum, where no page has changed.
fn is_blind_spot(path: &Path, whole: &[u8], at: usize, bit: u8) -> bool {
    let mut wounded = whole.to_vec();
    wounded[at] ^= bit;
    let is_brotli = path.extension().is_some_and(|ending| ending == "br");
    let source = Box::new(io::Cursor::new(wounded));
    let stream = if is_brotli { decode_as(source, Compression::Brotli) } else { decode(source) };
    let Ok(mut stream) = stream else { return false };
    let mut all = Vec::new();
    if stream.reader.read_to_end(&mut all).is_err() || stream.compression == Compression::None {
        return false;
    }
    let (_, before) = decoded(path);
    all == before || (is_brotli && relations(&all) == relations(&before))
}

fn wound(repository: &Repository, root: &Path, options: &RepositoryOptions) {
    let mut paths = Vec::new();
    archives(root, &mut paths);
    paths.sort();
    let mut seeded = Seeded(20_261_124);
    let mut missed = 0;
    for turn in 0..wounds() {
        // Large archives are hit more often, and small ones at times.
        let path = match turn % 4 {
            0 => &paths[seeded.below(paths.len())],
            _ => paths.iter().max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap(),
        };
        let whole = fs::read(path).unwrap();
        let (at, bit) = (seeded.below(whole.len()), 1_u8 << seeded.below(8));
        let mut bytes = whole.clone();
        bytes[at] ^= bit;
        fs::write(path, &bytes).unwrap();
        let reports = checked(root, options.clone());
        fs::write(path, &whole).unwrap();
        let is_found = !reports.iter().all(Report::is_intact);
        let is_blind = !is_found && is_blind_spot(path, &whole, at, bit);
        let name = repository.name;
        assert!(is_found || is_blind, "{name}: {} byte {at} bit {bit}", path.display());
        missed += u32::from(!is_found);
    }
    println!("{}: {} wounds, {missed} in blind spots", repository.name, wounds());
}

#[test]
fn wounds_in_stored_archives_of_walg_are_found() {
    for name in WALG {
        let Some(repository) = Repository::copy(name) else { return };
        wound(&repository, &repository.at("repo"), &repository.options());
    }
}

#[test]
fn wounds_in_stored_archives_of_barman_are_found() {
    for (name, server, _) in BARMAN {
        let Some(repository) = Repository::copy(name) else { return };
        if name.contains("tar") || name.contains("cloud") {
            wound(&repository, &repository.at(server), &RepositoryOptions::default());
        }
    }
}
