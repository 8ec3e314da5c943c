//! PostgreSQL: relation files, clusters, base backups and their log.

pub mod checksum;
pub mod files;
pub mod page;
pub mod protect;
pub mod repair;

use pagewarden_core::database::{Format, StreamKind, TurnedOn, mark_among};

/// What it can do.
pub const FORMAT: Format = Format {
    name: "postgres",
    title: "PostgreSQL",
    summary: "PostgreSQL data directories, base backups and relation files, 9.6 to 19",
    endings: &[],
    folder_mark: |_, listed| mark_among(listed, files::MARKS),
    probe: files::probe,
    open: files::open,
    stream: Some(StreamKind {
        name: "tar archive of a PostgreSQL backup",
        probe: files::backup::probe_archive,
        open: files::backup::open_stream,
    }),
    in_store: Some(files::backup::IN_STORE),
    parts: None,
    repositories: files::backup::repository::REPOSITORIES,
    in_folder: None,
    with_log: Some(files::backup::with_log::open),
    turned_on: TurnedOn::ForTheWhole,
    experiments: &["e2b", "e0", "e2a"],
    sidecars: &[],
    link_maker: files::link_maker,
    specimens: Some(page::specimens),
    protect: Some(protect::ENGINE),
    repair: Some(repair::ENGINE),
};

#[cfg(test)]
pagewarden_core::conformance!(page::specimens());
