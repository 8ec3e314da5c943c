//! Parquet: files of columns, by whichever program wrote them.

pub mod checksum;
pub mod files;
pub mod page;
pub mod table;
pub mod thrift;

use pagewarden_core::database::{Format, LinkMaker, TurnedOn};

/// What it can do.
pub const FORMAT: Format = Format {
    name: "parquet",
    title: "Parquet",
    summary: "a Parquet file, a table of Delta Lake or Iceberg",
    endings: files::ENDINGS,
    folder_mark: table::folder_mark,
    probe: files::probe,
    open: files::open,
    stream: None,
    in_store: Some(files::IN_STORE),
    parts: None,
    repositories: &[],
    in_folder: None,
    with_log: None,
    turned_on: TurnedOn::ByWriter(
        "write_page_checksum=True of pyarrow, parquet.page.write-checksum.enabled=true of Java and Spark",
    ),
    experiments: &[],
    sidecars: &[],
    link_maker: |_| LinkMaker::Unknown,
    specimens: Some(page::specimens),
    protect: None,
    repair: None,
};

#[cfg(test)]
pagewarden_core::conformance!(page::specimens());
