//! Real servers for tests that compare our reading with theirs.
//!
//! `PAGEWARDEN_TEST_VERSIONS` says which versions, as `9.6 15 18` or `all`.

use std::env;
use std::fs;
use std::path::Path;

use pagewarden::formats::postgres::files::catalogue::Catalogue;
use pagewarden::formats::postgres::files::control::Control;
use pagewarden_scratch::postgres::{Cluster, Installation, VERSIONS};

/// The versions to test, where they are installed.
pub fn installations() -> Vec<Installation> {
    let wanted = env::var("PAGEWARDEN_TEST_VERSIONS").unwrap_or_else(|_| "15 18".to_owned());
    if wanted.trim() == "all" {
        return VERSIONS.iter().filter_map(|version| Installation::find(version)).collect();
    }
    let listed = wanted.split([' ', ',']).filter(|version| !version.is_empty());
    listed.filter_map(|version| Installation::for_test(version).unwrap()).collect()
}

/// The catalogues of a cluster.
pub fn catalogue(cluster: &Cluster) -> Catalogue {
    let control = control(cluster.data_dir());
    Catalogue::find(cluster.data_dir(), &cluster.installation().version, &control).unwrap()
}

/// The control file of a data directory.
pub fn control(data_dir: &Path) -> Control {
    Control::parse(&fs::read(data_dir.join("global/pg_control")).unwrap()).unwrap()
}

/// The rows of a query, split into columns.
pub fn rows(cluster: &Cluster, database: &str, sql: &str) -> Vec<Vec<String>> {
    let text = cluster.psql_in(database, sql).unwrap();
    text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect()
}
