//! What a page of a copy is worth, that passed its own test.
//!
//! | rule | what must be so |
//! |---|---|
//! | by the map | the database is at rest; its file header names this very backup as differential base; the map of changed extents is sound and says that the page's extent did not change since; no other page contradicts the map |
//! | by the state | boot pages are the same byte for byte, and so is every other page |
//!
//! Two things make the first rule need more than the map. The data in a full backup, taken out of it,
//! has a map that counts from that backup and a header that names the one before (see
//! `page/diff_map.rs`): so all pages of extents that "did not change" are compared with the backup, and
//! their LSNs with its checkpoint. A server that was not shut down may have bits in memory that are
//! not on the disk. And a database that was restored from the backup has its pages as the log in the
//! backup left them: whether that sets bits was not seen.
//!
//! Of two files the second rule needs more: two databases of one origin that ran the same statements
//! may differ in one page only. Of a backup it does not: what is equal to the data in a backup, boot page
//! included, was taken out of it, or is of the moments while it was made, which recovery makes again from the
//! checkpoint that both name.

use crate::checksum::{Page, stored};
use crate::page::diff_map::is_beyond_the_map;
use crate::page::header::{Header, Lsn, kinds};
use crate::repair::database::{DataFile, Database, Scan};
use crate::repair::source::{Kind, Seen, Source};
use pagewarden_core::repair::candidate::Worth;
use pagewarden_core::verdict::Protection;
use pagewarden_core::words::counted;

/// Fewer pages that are the same show nothing.
const SAME_MIN: u64 = 8;

/// A damaged page and one that may replace it.
pub(super) struct Case<'a> {
    pub(super) database: &'a Database,
    pub(super) file: &'a DataFile,
    pub(super) scan: &'a Scan,
    pub(super) source: &'a Source,
    pub(super) number: u64,
    pub(super) damaged: &'a Page,
    pub(super) candidate: &'a Page,
}

/// `42:8120:1`
pub(super) fn words(lsn: Lsn) -> String {
    format!("{}:{}:{}", lsn.log_file, lsn.block, lsn.slot)
}

/// True for pages that say which others are in use or changed, or what the database is. One of another
/// moment contradicts all of it.
pub(super) fn is_map(file: u16, number: u64, candidate: Option<&Page>) -> bool {
    let kind = candidate.map(|page| Header::parse(page).kind);
    let is_kind = matches!(
        kind,
        Some(
            kinds::GAM
                | kinds::SGAM
                | IAM
                | kinds::PFS
                | kinds::BOOT
                | kinds::FILE_HEADER
                | kinds::DIFF_MAP
                | kinds::ML_MAP
        )
    );
    is_kind || is_beyond_the_map(file, number)
}

/// Pages of an index allocation map.
const IAM: u8 = 10;

impl Case<'_> {
    /// What the candidate is worth.
    pub(super) fn worth(&self) -> Worth {
        match Header::parse(self.candidate).protection() {
            Some(Protection::Checksum) => {}
            Some(Protection::Torn) => {
                return Worth::Older(self.with_age(
                    "torn bits do not show whether the content of the copy's page is sound",
                ));
            }
            _ => {
                return Worth::Older(
                    self.with_age("nothing on the copy's page shows that it is sound"),
                );
            }
        }
        let by_state = self.by_state();
        let by_map = || self.by_map();
        match by_state.or_else(|why| by_map().map_err(|other| format!("{other}; {why}"))) {
            Ok(why) => match self.contradiction() {
                None => Worth::Exact(why),
                Some(contradiction) => Worth::Older(self.with_age(&contradiction)),
            },
            Err(why) => Worth::Older(self.with_age(&why)),
        }
    }

    fn with_age(&self, why: &str) -> String {
        let lsn = words(Header::parse(self.candidate).lsn);
        let until = self.database.checkpoint().map_or_else(String::new, |checkpoint| {
            format!(", and the database's last checkpoint is at {}", words(checkpoint))
        });
        format!("{why}; the copy's page was last changed at LSN {lsn}{until}")
    }

    /// The header of the damaged page may still say that it was changed later. Past the last checkpoint
    /// that is possible only where the server did not end.
    fn contradiction(&self) -> Option<String> {
        let (ours, theirs) = (Header::parse(self.damaged), Header::parse(self.candidate));
        let is_possible = ours.is_of(self.file.number, self.number)
            && ours.lsn > theirs.lsn
            && (!self.database.is_at_rest()
                || self.database.checkpoint().is_some_and(|checkpoint| ours.lsn <= checkpoint));
        let bits =
            self.damaged.iter().zip(self.candidate).map(|(one, two)| (one ^ two).count_ones());
        let is_one_bit = bits.fold(0, |sum: u32, bits| sum.saturating_add(bits)) == 1;
        (is_possible && !is_one_bit).then(|| {
            format!(
                "the damaged page's header says that it was changed later, at {}",
                words(ours.lsn)
            )
        })
    }

    /// The extent did not change since the backup began.
    fn by_map(&self) -> Result<String, String> {
        let Kind::Full { id, checkpoint, .. } = self.source.kind else {
            return Err(
                "it is no full backup, from which the map of changed extents counts".to_owned()
            );
        };
        let base = self.file.base().ok_or_else(|| match self.file.header {
            Some(_) => "the file names no differential base".to_owned(),
            None => "the file header, which names the differential base, cannot be read".to_owned(),
        })?;
        if base.set_id != id || base.checkpoint != checkpoint {
            return Err(format!(
                "the map of changed extents counts from another full backup, of checkpoint {}",
                words(base.checkpoint)
            ));
        }
        if is_beyond_the_map(self.file.number, self.number) {
            return Err("the map of changed extents does not tell of this page".to_owned());
        }
        if !self.database.is_at_rest() {
            return Err(
                "the database was not shut down cleanly, or its boot page does not say so: the \
                        map of changed extents on the disk may be behind"
                    .to_owned(),
            );
        }
        if let Some(page) = self.scan.late {
            return Err(format!(
                "page {}:{page} was changed after the last checkpoint: the files are not of one moment",
                self.file.number
            ));
        }
        if self.file.header.as_ref().and_then(|header| header.restored_from) == Some(id) {
            return Err(
                "the database was restored from this very backup, and the log in it may have \
                        changed the page then"
                    .to_owned(),
            );
        }
        match self.scan.is_unchanged(self.number) {
            None => return Err("no sound map of changed extents tells of this page".to_owned()),
            Some(false) => {
                return Err("by the map of changed extents, its extent changed since this backup"
                    .to_owned());
            }
            Some(true) => {}
        }
        let seen = self.source.seen(self.file.number);
        if let Some(page) = self.scan.unmarked.or(seen.and_then(|seen| seen.unmarked)) {
            return Err(format!(
                "the map of changed extents is contradicted by page {}:{page}, which changed and is not in it",
                self.file.number
            ));
        }
        if Header::parse(self.candidate).lsn > checkpoint {
            return Err("the backup's page is of after its checkpoint, which contradicts the map"
                .to_owned());
        }
        let same = seen.map_or(0, |seen| seen.unchanged);
        if same < SAME_MIN {
            return Err("too few other pages of unchanged extents could be compared".to_owned());
        }
        Ok(format!(
            "the database names this backup as its differential base (checkpoint {}), its map of changed \
             extents says that this extent did not change since, and {} of such extents are the same",
            words(checkpoint),
            counted(same, "other page")
        ))
    }

    /// Database and source are of one state.
    fn by_state(&self) -> Result<String, String> {
        let (Some(boot), Some(theirs)) = (&self.database.boot, self.source.boot()) else {
            return Err("not both boot pages could be read".to_owned());
        };
        if *boot.page != *theirs {
            return Err("the boot pages differ: it is of another moment".to_owned());
        }
        if (self.file.number, self.number) == (1, crate::page::system::BOOT_PAGE) {
            return Err("the boot page is damaged itself".to_owned());
        }
        let seen = self.source.seen(self.file.number).ok_or("the file is not in it")?;
        if let Some(page) = seen.other() {
            return Err(format!("page {}:{page} differs", self.file.number));
        }
        if seen.same() < SAME_MIN || seen.same() != self.scan.formatted {
            return Err(format!(
                "it has {} of the {} of the file",
                seen.same(),
                counted(self.scan.formatted, "sound page")
            ));
        }
        let same = counted(seen.same(), "other page");
        match &self.source.kind {
            Kind::Full { is_whole: true, .. } => Ok(format!(
                "the file is what this backup holds: boot page and {same} are the same, byte for byte"
            )),
            Kind::Full { .. } | Kind::Part => Err("not all of the backup came".to_owned()),
            Kind::File => self.of_one_shutdown(seen, &same),
        }
    }

    /// The same for a copy of the file.
    fn of_one_shutdown(&self, seen: &Seen, same: &str) -> Result<String, String> {
        if !self.database.is_at_rest() {
            return Err("the database was not shut down cleanly".to_owned());
        }
        if seen.is_same_moment {
            return Ok(format!(
                "both files were last written at the same nanosecond, and boot page and {same} are the same"
            ));
        }
        let (ours, theirs) = (Header::parse(self.damaged), Header::parse(self.candidate));
        let is_version = ours.is_of(self.file.number, self.number)
            && ours.lsn == theirs.lsn
            && stored(self.damaged) == stored(self.candidate);
        if is_version {
            return Ok(format!(
                "the damaged page carries this page's LSN and checksum, and boot page and {same} are the same"
            ));
        }
        Err("boot pages and all other pages are the same, but neither the times of the files nor the \
             header of the damaged page shows that this page was not written since"
            .to_owned())
    }
}
