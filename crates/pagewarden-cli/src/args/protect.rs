//! `pagewarden protect`: its part of the command line.

use std::num::NonZero;
use std::path::PathBuf;

use pagewarden::protect::TablespaceMapping;

use clap::{ArgGroup, Args, ValueEnum};
use pagewarden::source::rate::Rate;

/// Turn page verification of a database on or off
///
/// The database must be shut down cleanly, and no server can start on it
/// meanwhile. Interrupted at any point, also by power failure, it is as it was
/// to its server; run the same command again to resume.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("wish").required(true).args(["mode", "for_upgrade", "like"]))]
#[command(after_help = "Examples:\n  \
    pagewarden protect --mode checksum /var/lib/postgresql/15/main\n  \
    pagewarden protect --mode checksum --dry-run DIR      what would change\n  \
    pagewarden protect --mode checksum DIR --copy-to NEW  a protected copy\n  \
    pagewarden protect --mode checksum /var/lib/mysql     InnoDB pages of older sums get crc32\n  \
    pagewarden protect --mode torn app.db                 a SQLite database\n  \
    pagewarden protect --mode checksum --heal app.db      written without the VFS meanwhile\n  \
    pagewarden protect --mode checksum --guard app.db     other programs can only read it\n  \
    pagewarden protect --mode torn shop.mdf shop_2.ndf --copy-to NEW\n  \
                                                          SQL Server, experimental\n  \
    pagewarden protect OLD --for-upgrade NEW              before pg_upgrade\n\n\
    Exit status: 0 done, 1 damaged pages (nothing was switched, or with --skip-damaged they\n\
    are still damaged), 2 it could not be done, 3 stopped early: run it again to go on.")]
pub struct Protect {
    /// A data directory of PostgreSQL (9.6 to 18), MySQL or MariaDB; an InnoDB tablespace; a
    /// SQLite database; or, with --copy-to, a folder of SQL Server data files, or the files
    /// themselves, 2005 to 2022 (experimental)
    ///
    /// Only the files of one SQL Server database can be several PATHs. What is written
    /// for SQL Server was judged by `pagewarden check` and the rules that pages of real
    /// files keep. No server has read it.
    #[arg(required = true, value_name = "PATH")]
    pub paths: Vec<PathBuf>,

    /// How pages are to be protected
    #[arg(long, value_enum)]
    pub mode: Option<Mode>,

    /// Fit PATH, the old cluster, to this new one that pg_upgrade is to fill
    ///
    /// pg_upgrade demands the same checksum setting on both sides.
    #[arg(long, value_name = "NEWDIR")]
    pub for_upgrade: Option<PathBuf>,

    /// Fit PATH, the new and still empty cluster, to this old one
    #[arg(long, value_name = "OLDDIR", conflicts_with = "copy_to")]
    pub like: Option<PathBuf>,

    /// Leave PATH as it is, and make a changed copy here
    ///
    /// DIR must not exist or be empty. What is in it is no database before it is
    /// complete. For a SQLite database: a file that does not exist, or a folder to put
    /// it into.
    #[arg(long, value_name = "DIR")]
    pub copy_to: Option<PathBuf>,

    /// Copy the tablespace of a PostgreSQL cluster that lies in OLD to NEW
    ///
    /// NEW is an absolute path and does not exist or is empty; the copy's server finds the
    /// tablespace there. A `=` in a path is written `\=`. To be given for each tablespace that
    /// lies outside of the data directory.
    #[arg(long, value_name = "OLD=NEW", value_parser = parse_mapping, requires = "copy_to")]
    pub tablespace_mapping: Vec<TablespaceMapping>,

    /// Only say what would change
    #[arg(long)]
    pub dry_run: bool,

    /// Go on where pages are damaged; they stay as they are, for the server to report
    #[arg(long)]
    pub skip_damaged: bool,

    /// Stamp pages of a SQLite database again that a program without the VFS wrote
    ///
    /// Only where nothing else is wrong: the structure is checked as by `check --structure`, and
    /// pages whose own marker tells of damage (a flipped bit, another page in its place) are left,
    /// and all others with them. What is stamped is listed by table.
    #[arg(long, requires = "mode", conflicts_with = "skip_damaged")]
    pub heal: bool,

    /// Keep programs without the VFS from writing to a SQLite database: they can read it
    ///
    /// The header names a version to write with that no SQLite knows, and the VFS takes it for the
    /// one to read with. It stays until `--mode none`, or PRAGMA page_verify_guard = 0.
    #[arg(long, requires = "mode")]
    pub guard: bool,

    /// Do not read back from the device what was written
    #[arg(long)]
    pub no_verify: bool,

    /// Do not wait until the device holds what was written
    ///
    /// For databases that can be made again: after a power failure the setting
    /// may claim more than is true. There is no journal then; a run that was
    /// interrupted looks at every page again.
    #[arg(long)]
    pub no_sync: bool,

    /// Read and write no more than this, for example 200MiB/s; none is no ceiling
    #[arg(long, value_name = "BYTES/S", value_parser = super::parse_rate,
        default_value = "none", hide_default_value = true)]
    pub rate: Rate,

    /// Threads that work on pages [default: the available cores]
    #[arg(short, long, value_name = "N")]
    pub jobs: Option<NonZero<usize>>,

    /// Print one JSON object on standard output
    #[arg(long)]
    pub json: bool,

    /// Show no progress
    #[arg(short, long, conflicts_with = "progress")]
    pub quiet: bool,

    /// Show progress as plain lines, every few seconds, also without a terminal
    #[arg(long)]
    pub progress: bool,
}

/// `OLD=NEW`, as `pg_basebackup` takes it.
fn parse_mapping(text: &str) -> Result<TablespaceMapping, String> {
    let mut sides = [String::new(), String::new()];
    let mut is_behind = false;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            '\\' if letters.peek() == Some(&'=') => letters.next().unwrap_or(letter),
            '=' if is_behind => return Err("more than one '='; in a path it is '\\='".to_owned()),
            '=' => {
                is_behind = true;
                continue;
            }
            letter => letter,
        };
        let [old, new] = &mut sides;
        if is_behind { new } else { old }.push(letter);
    }
    let [old, new] = sides.map(PathBuf::from);
    if !(old.is_absolute() && new.is_absolute()) {
        return Err("two absolute paths are wanted, OLD=NEW".to_owned());
    }
    Ok(TablespaceMapping { old, new })
}

/// What `--mode` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// A checksum on every page (InnoDB: crc32)
    Checksum,
    /// Marks that show torn writes only (no PostgreSQL, no InnoDB)
    Torn,
    /// Nothing (no InnoDB)
    None,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mapping_is_two_absolute_paths() {
        let of = |old: &str, new: &str| TablespaceMapping { old: old.into(), new: new.into() };
        assert_eq!(parse_mapping("/a=/b"), Ok(of("/a", "/b")));
        assert_eq!(parse_mapping(r"/a\=b=/c\d\="), Ok(of("/a=b", r"/c\d=")));
        for wrong in ["", "/a", "/a=", "=/b", "a=/b", "/a=b", "/a=/b=/c", r"/a\=/b"] {
            assert!(parse_mapping(wrong).is_err(), "{wrong}");
        }
    }
}
