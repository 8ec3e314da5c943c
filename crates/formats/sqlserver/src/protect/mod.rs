//! SQL Server 2005 to 2022: `PAGE_VERIFY` of a copy of a database's files.
//!
//! Every page says by its own flags what protects it, and the boot page what is to
//! protect pages that are written from now on. So a database whose pages are in
//! part of one kind and in part of another is sound; what must not be is half a
//! copy that passes for a whole one.
//!
//! **Experimental.** No SQL Server was there to read what this writes. Its judges
//! are `pagewarden check`, and the rules that all pages of real files keep. For
//! that reason the database itself is never changed, only copied.
//!
//! | step | what an interruption leaves in the target |
//! | --- | --- |
//! | a file that says that the copy is not finished, and of what | itself |
//! | pages, under names of Pagewarden's, but for the first of each file | files that no server takes, by name and content |
//! | these synced and read back, then the first pages too | files that no server takes, by name |
//! | the files' own names, that of the primary file last | no database: its primary file is missing |
//! | what says that it is not finished taken away | the copy |
//!
//! Where blocks are shared with the source, a file is the source's own for a moment
//! before its first page is taken out of it: unchanged, under a name of Pagewarden's.

use std::path::Path;

use pagewarden_core::error::Error;
use pagewarden_core::protect::disk::{Disk, System};
use pagewarden_core::protect::plan::{Feature, Request, Wish};
use pagewarden_core::protect::{Engine, Options, Outcome, check_mode};
use pagewarden_core::verdict::Protection;
use pagewarden_core::verify::Progress;

mod copy;
mod database;
mod pages;
#[cfg(test)]
mod tests;

use database::{Database, is_known};
use pages::RUN_BYTES;

/// The line in the registry of engines.
pub const ENGINE: Engine = Engine {
    name: "sqlserver",
    summary: "SQL Server data files (.mdf, .ndf) or a folder of them, 2005 to 2022, to a copy (experimental)",
    has_setting: true,
    modes: &[Protection::Checksum, Protection::Torn, Protection::None],
    features: &[Feature::SeveralFiles],
    probe: is_known,
    run,
};

/// What everybody must know who uses this.
const EXPERIMENTAL: &str = "experimental: no SQL Server has read what this writes; its judges are \
     `pagewarden check` and the rules that pages of real files keep. Before the copy is relied on, \
     attach it and run DBCC CHECKDB";

/// About how many bytes there are to read, for progress.
#[must_use]
pub fn listed_bytes(path: &Path) -> u64 {
    database::listed_bytes(path)
}

fn run(request: &Request, options: &Options, progress: &dyn Progress) -> Result<Outcome, Error> {
    Run { disk: &System, request, options, progress, run_bytes: RUN_BYTES }.run()
}

/// A request on its way.
struct Run<'a> {
    disk: &'a dyn Disk,
    request: &'a Request,
    options: &'a Options,
    progress: &'a dyn Progress,
    run_bytes: usize,
}

impl Run<'_> {
    fn run(&self) -> Result<Outcome, Error> {
        let path = &self.request.path;
        let Wish::Mode(wanted) = &self.request.wish else {
            return Err(Error::refused(
                path,
                "a SQL Server database, which has no other one that it must agree with",
                "--mode checksum, --mode torn or --mode none",
            ));
        };
        check_mode(&ENGINE, path, *wanted)?;
        let Some(target) = &self.request.copy_to else {
            return Err(Error::refused(
                path,
                "files of SQL Server are not changed in place: no server was there to confirm what \
                 is written, so the original must stay as it is",
                "--copy-to DIR writes a changed copy; or let the server do it: ALTER DATABASE ... \
                 SET PAGE_VERIFY",
            ));
        };
        let database = match self.request.further.as_slice() {
            [] => Database::open(path)?,
            further => Database::of_files(path, further)?,
        };
        copy::run(self, &database, target, *wanted)
    }
}
