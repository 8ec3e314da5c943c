//! Which files of a data directory hold pages, by their names.
//!
//! Source: `src/common/relpath.c` and `parse_filename_for_nontemp_relation` in
//! `src/backend/storage/file/reinit.c`. A white list: whatever is not named
//! like a relation is none, and is never read as pages.
//!
//! ```text
//! 16397           main fork, segment 0
//! 16397.2         main fork, segment 2
//! 16397_fsm.1     free space map, segment 1
//! t3_16402_vm     a temporary relation of session 3
//! INCREMENTAL.16397.2   changed blocks of a segment, in an incremental backup
//! ```

use crate::files::incremental;

/// A relation's parallel files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fork {
    /// The data.
    Main,
    /// The free space map.
    FreeSpace,
    /// The visibility map.
    Visibility,
    /// What an unlogged relation is reset to after a crash.
    Init,
}

impl Fork {
    /// The ending of the file name.
    #[must_use]
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::FreeSpace => "_fsm",
            Self::Visibility => "_vm",
            Self::Init => "_init",
        }
    }
}

/// What the name of a relation's file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RelationFile {
    /// The relation's file number (relfilenode).
    pub number: u32,
    /// The session that a temporary relation belongs to.
    pub session: Option<u32>,
    /// Which fork.
    pub fork: Fork,
    /// Which segment, from 0.
    pub segment: u32,
    /// It holds changed blocks only.
    pub is_incremental: bool,
}

impl RelationFile {
    /// Reads a file name; `None` if no server gives this name to a relation.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (name, is_incremental) = match name.strip_prefix(incremental::PREFIX) {
            Some(whole) => (whole, true),
            None => (name, false),
        };
        let (stem, segment) = match name.split_once('.') {
            // Segment 0 has no ending.
            Some((stem, segment)) => (stem, number(segment).filter(|segment| *segment > 0)?),
            None => (name, 0),
        };
        let (session, stem) = match stem.strip_prefix('t') {
            Some(rest) => {
                let (session, stem) = rest.split_once('_')?;
                // Sessions are numbered from 0 or 1, according to the version.
                let session = if session == "0" { 0 } else { number(session)? };
                (Some(session), stem)
            }
            None => (None, stem),
        };
        let (digits, fork) = match stem.split_once('_') {
            None => (stem, Fork::Main),
            Some((digits, "fsm")) => (digits, Fork::FreeSpace),
            Some((digits, "vm")) => (digits, Fork::Visibility),
            Some((digits, "init")) => (digits, Fork::Init),
            Some(_) => return None,
        };
        Some(Self { number: number(digits)?, session, fork, segment, is_incremental })
    }

    /// The name without the segment, as the server would write it.
    #[must_use]
    pub fn stem(&self) -> String {
        let session = self.session.map_or(String::new(), |session| format!("t{session}_"));
        let prefix = if self.is_incremental { incremental::PREFIX } else { "" };
        format!("{prefix}{session}{}{}", self.number, self.fork.suffix())
    }

    /// The whole name, as the server would write it.
    #[must_use]
    pub fn name(&self) -> String {
        match self.segment {
            0 => self.stem(),
            segment => format!("{}.{segment}", self.stem()),
        }
    }
}

/// A positive decimal number as the server writes it: no sign, no leading zero.
fn number(digits: &str) -> Option<u32> {
    let canonical = !digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit());
    if canonical { digits.parse().ok() } else { None }
}

/// True for files that belong in a database's folder but hold no pages.
/// `pg_internal.init` is a prefix: the server leaves `pg_internal.init.PID`
/// behind when it dies while writing one.
#[must_use]
pub fn is_known_without_pages(name: &str) -> bool {
    matches!(name, "pg_control" | "pg_filenode.map" | "pg_filenode.map.tmp" | "PG_VERSION")
        || name.starts_with("pg_internal.init")
        || name.starts_with("pgsql_tmp")
        || name.starts_with("config_exec_params")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fork() -> impl Strategy<Value = Fork> {
        prop::sample::select(vec![Fork::Main, Fork::FreeSpace, Fork::Visibility, Fork::Init])
    }

    proptest! {
        #[test]
        fn what_was_written_is_read_back(
            number in 1..=u32::MAX,
            session: Option<u32>,
            fork in fork(),
            segment: u32,
            is_incremental: bool,
        ) {
            let file = RelationFile { number, session, fork, segment, is_incremental };
            prop_assert_eq!(RelationFile::parse(&file.name()), Some(file));
        }

        /// No two names stand for one file: whatever is read is written as it was.
        #[test]
        fn what_was_read_is_written_back(
            name in prop_oneof![
                any::<String>(),
                "(INCREMENTAL[.])?(t[0-9]{0,2}_)?[0-9]{1,10}(_fsm|_vm|_init|_)?([.][0-9]{0,10})?",
                "[0-9t_.fsmvinit]{0,12}",
            ],
        ) {
            if let Some(file) = RelationFile::parse(&name) {
                prop_assert_eq!(file.name(), name);
            }
        }
    }

    #[test]
    fn every_name_a_server_gives_is_read_and_written_back() {
        for name in [
            "1259",
            "16397.1",
            "16397_fsm",
            "4294967295_vm.131071",
            "16400_init",
            "t3_16402",
            "t12_16402_fsm.2",
            "t0_1",
            "INCREMENTAL.1259",
            "INCREMENTAL.16397_vm.2",
        ] {
            let parsed = RelationFile::parse(name).unwrap_or_else(|| panic!("{name} not parsed"));
            assert_eq!(parsed.name(), name);
        }
    }

    #[test]
    fn no_other_name_is_taken_for_a_relation() {
        for name in [
            "",
            ".",
            "0",
            "01",
            "16397.",
            "16397.0",
            "16397.01",
            "16397.1.2",
            "16397_foo",
            "16397_",
            "_fsm",
            "4294967296",
            "+5",
            "-5",
            "16397 ",
            "t_1",
            "t3",
            "t3_",
            "t3_16402_x",
            "t03_1",
            "PG_VERSION",
            "pg_filenode.map",
            "16397.99999999999",
            ".DS_Store",
            "16397_fsm_vm",
            "t-1_5",
            "16397.1_fsm",
            "INCREMENTAL.",
            "INCREMENTAL.INCREMENTAL.1",
            "incremental.1",
        ] {
            assert_eq!(RelationFile::parse(name), None, "{name}");
        }
    }
}
