//! Every file that is taken out of real repositories is what the tool restored, byte for byte.

use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::*;
use crate::checksum::{checksum, hash_pages};
use crate::page::Header;

const PAGE: usize = 8192;

/// The collections, or a loud word.
fn collections() -> Vec<PathBuf> {
    let beside = || concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared/fixtures").into();
    let root = std::env::var_os("PAGEWARDEN_FIXTURES").map_or_else(beside, PathBuf::from);
    let Ok(entries) = fs::read_dir(root.join("backups")) else {
        println!("SKIPPED: {} has no backups", root.display());
        return Vec::new();
    };
    let folders = entries.map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join("manifest.json").is_file()).collect()
}

/// The repository of a collection; none if it has to be unpacked first.
fn repository_in(collection: &Path) -> Option<PathBuf> {
    let mut folders: Vec<_> =
        fs::read_dir(collection).unwrap().map(|it| it.unwrap().path()).collect();
    folders.retain(|path| path.is_dir());
    assert!(folders.len() <= 1, "{folders:?}");
    let folder = folders.pop()?;
    // barman-cloud has a folder for each server.
    match folder.join("demo").join("base").is_dir() {
        true => Some(folder.join("demo")),
        false => Some(folder),
    }
}

/// A file with the passphrase or key, if there is one.
fn secret(manifest: &Value, folder: &Path) -> Option<PathBuf> {
    let secrets = ["cipher_pass", "libsodium_key_hex"];
    let secret = secrets.iter().find_map(|name| manifest[*name].as_str())?;
    let path = folder.join("secret");
    fs::write(&path, secret).unwrap();
    Some(path)
}

/// A collection whose tool restored the latest set.
struct Collected {
    /// What is damaged in copies of it, and more.
    manifest: Value,
    folder: PathBuf,
    path: PathBuf,
    options: RepositoryOptions,
    /// Holds the secret, and copies.
    scratch: TempDir,
}

impl Collected {
    fn all() -> impl Iterator<Item = Self> {
        collections().into_iter().filter_map(|folder| {
            let manifest = fs::read(folder.join("manifest.json")).unwrap();
            let manifest: Value = serde_json::from_slice(&manifest).unwrap();
            let path = repository_in(&folder)?;
            manifest["sha256_after_restore_of_latest"].as_object()?;
            let scratch = tempfile::tempdir().unwrap();
            let cipher_pass_file = secret(&manifest, scratch.path());
            let options = RepositoryOptions { cipher_pass_file, ..RepositoryOptions::default() };
            Some(Self { manifest, folder, path, options, scratch })
        })
    }

    /// The SHA-256 of each restored file.
    fn sums(&self) -> &serde_json::Map<String, Value> {
        self.manifest["sha256_after_restore_of_latest"].as_object().unwrap()
    }
}

#[test]
fn files_are_those_that_the_tools_restored() {
    let mut compared = 0;
    for one in Collected::all() {
        // Of all others only some are wanted: what is passed over must disturb nothing.
        let wanted: HashSet<String> = one.sums().keys().step_by(3).cloned().collect();
        let name = one.folder.display();
        let taken = take_out(&one.path.as_path().into(), &one.options, wanted.clone()).unwrap();
        let taken = taken.unwrap_or_else(|| panic!("{name}: no repository"));
        assert!(taken.losses.is_empty(), "{name}: {:?}", taken.losses);
        assert!(taken.is_known(), "{name}");
        let has_log = ["archive", "wals", "wal_005"].iter().any(|it| one.path.join(it).is_dir());
        assert_eq!(taken.log.is_some(), has_log, "{name}");
        for file in &wanted {
            let bytes = fs::read(taken.root.join(file));
            let bytes = bytes.unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
            let sum: String = Sha256::digest(&bytes).iter().map(|it| format!("{it:02x}")).collect();
            assert_eq!(one.sums()[file].as_str(), Some(&*sum), "{name}: {file}");
            compared += 1;
        }
    }
    println!("{compared} files compared");
}

/// A stored byte that is wrong leaves a file out, or shows in the page's own checksum: tar parts have no
/// sums of their own.
#[test]
fn damage_of_stored_bytes_brings_no_sound_page_of_another_content() {
    let (mut left_out, mut other) = (0, 0);
    for one in Collected::all() {
        let is_relation = |name: &&String| name.contains('/') && locate(name).is_some();
        let wanted: HashSet<String> = one.sums().keys().filter(is_relation).cloned().collect();
        let sound =
            take_out(&one.path.as_path().into(), &one.options, wanted.clone()).unwrap().unwrap();
        for (number, damage) in
            one.manifest["damage"].as_array().unwrap().iter().take(3).enumerate()
        {
            let (Some(file), Some(offset), Some(mask)) =
                (damage["file"].as_str(), damage["offset"].as_u64(), damage["xor"].as_u64())
            else {
                continue;
            };
            let copy = one.scratch.path().join(number.to_string());
            copy_all(&one.folder, &copy);
            let mut bytes = fs::read(copy.join(file)).unwrap();
            bytes[usize::try_from(offset).unwrap()] ^= u8::try_from(mask).unwrap();
            fs::write(copy.join(file), bytes).unwrap();
            let path = repository_in(&copy).unwrap();
            let name = format!("{}: {file} at {offset}", one.folder.display());
            let Ok(Some(taken)) = take_out(&path.as_path().into(), &one.options, wanted.clone())
            else {
                continue;
            };
            for file in &wanted {
                let Ok(bytes) = fs::read(taken.root.join(file)) else {
                    left_out += 1;
                    continue;
                };
                let truth = fs::read(sound.root.join(file)).unwrap();
                for (block, (now, then)) in (0..).zip(bytes.chunks(PAGE).zip(truth.chunks(PAGE))) {
                    if now != then {
                        assert!(!is_sound(now, block), "{name}: {file}, block {block}");
                        other += 1;
                    }
                }
            }
        }
    }
    println!("{left_out} files left out, {other} pages that fail their tests");
}

fn is_sound(page: &[u8], block: u32) -> bool {
    let mut hash = [0];
    hash_pages(page, PAGE, &mut hash);
    let stored = Header::read(page).map(|header| header.checksum);
    page.len() == PAGE && stored == Some(checksum(hash[0], block)) && page.iter().any(|it| *it != 0)
}

fn copy_all(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (path, target) = {
            let entry = entry.unwrap();
            (entry.path(), to.join(entry.file_name()))
        };
        match path.is_dir() {
            true => copy_all(&path, &target),
            false => drop(fs::copy(path, target).unwrap()),
        }
    }
}
