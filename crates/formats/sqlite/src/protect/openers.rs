//! Who has a file open. In rollback mode a program that has a database open, but
//! reads nothing at the moment, holds no lock: it would go on with a file that has
//! lost its name. Its next write would fail (`SQLITE_READONLY_DBMOVED`), its reads
//! would not. The system tells of programs of the same user, and root of all.

use std::fs::{self, Metadata};
use std::path::Path;
use std::thread;
use std::time::Duration;

use pagewarden_core::error::Error;
use pagewarden_core::system::identity;

/// A program that starts another has its files open in two processes for a moment, also those that it has
/// closed by then: so often, and so long after another, it is looked again.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);

/// Refuses a file that another process has open.
pub(crate) fn check_nobody(path: &Path, file: &Metadata) -> Result<(), Error> {
    let mut looks = 1_u32;
    while let Some((process, name)) = opener(path, file) {
        if looks >= LOOKS {
            let reason = format!("process {process} ({name}) has it open");
            return Err(Error::in_use(path, reason, "stop the programs that use it"));
        }
        looks = looks.saturating_add(1);
        thread::sleep(PAUSE);
    }
    Ok(())
}

/// The first process found that has `file` open, and its name.
fn opener(path: &Path, file: &Metadata) -> Option<(u32, String)> {
    let ours = identity(file, path).ok()?;
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    for process in numbers.filter(|process| *process != std::process::id()) {
        let folder = Path::new("/proc").join(process.to_string());
        let Ok(files) = fs::read_dir(folder.join("fd")) else { continue };
        let is_it = |path: &Path| {
            let open = fs::metadata(path).and_then(|open| identity(&open, path));
            open.is_ok_and(|open| open == ours)
        };
        if files.filter_map(Result::ok).any(|open| is_it(&open.path())) {
            let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            return Some((process, name.trim().to_owned()));
        }
    }
    None
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn process_that_has_a_file_open_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "x").unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(opener(&path, &metadata), None);
        let input = Stdio::from(fs::File::open(&path).unwrap());
        let mut sleeper = Command::new("sleep").arg("60").stdin(input).spawn().unwrap();
        assert_eq!(opener(&path, &metadata), Some((sleeper.id(), "sleep".to_owned())));
        assert!(check_nobody(&path, &metadata).is_err());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        assert_eq!(opener(&path, &metadata), None);
        // One that has it open for a moment only.
        let input = Stdio::from(fs::File::open(&path).unwrap());
        let mut sleeper = Command::new("sleep").arg("0.1").stdin(input).spawn().unwrap();
        let checked = check_nobody(&path, &metadata);
        sleeper.wait().unwrap();
        checked.unwrap();
    }
}
