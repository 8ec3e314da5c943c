//! SQL Server: data files, log files and backups.

pub mod checksum;
pub mod files;
pub mod mssqlbak;
pub mod mtf;
pub mod page;
pub mod protect;
pub mod repair;
pub mod stretch;
pub mod xpress;

use files::backup;
use pagewarden_core::database::parts::{Part, PartsKind};
use pagewarden_core::database::{Format, LinkMaker, Probe, StreamKind, TurnedOn};

/// What it can do.
pub const FORMAT: Format = Format {
    name: "sqlserver",
    title: "SQL Server",
    summary: "SQL Server data files (.mdf, .ndf), logs (.ldf) and backups (.bak, .trn), 2005 to 2025",
    endings: &["mdf", "ndf", "ldf", "bak", "trn"],
    folder_mark: |_, _| None,
    probe: files::probe,
    open: files::open,
    stream: Some(StreamKind {
        name: "SQL Server backup",
        probe: |begin| Probe::yes_if(backup::is_backup(begin)),
        open: |path, decoded, _| backup::open_stream(path, decoded),
    }),
    // The stripes of a backup.
    in_store: None,
    parts: Some(PartsKind {
        part: |place| {
            let media = backup::media(place)?;
            Some(Part { whole: media.set_id, number: media.family })
        },
        open: backup::open,
    }),
    repositories: &[],
    in_folder: Some(backup::chains::FOLDER),
    with_log: None,
    turned_on: TurnedOn::ByServer("ALTER DATABASE [name] SET PAGE_VERIFY CHECKSUM"),
    experiments: &[],
    sidecars: &[],
    link_maker: |_| LinkMaker::Unknown,
    specimens: Some(page::specimens::all),
    protect: Some(protect::ENGINE),
    repair: Some(repair::ENGINE),
};

#[cfg(test)]
pagewarden_core::conformance!(page::specimens::all());
