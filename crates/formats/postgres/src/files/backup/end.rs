//! The end of a backup's archives: what is known now, and what stands of what
//! was held back.

use std::io;
use std::sync::Arc;

use crate::FORMAT;
use crate::files::backup::ground::Ground;
use crate::files::backup::label::LABEL;
use crate::files::backup::ledger::Compared;
use crate::files::backup::log::LogAtHand;
use crate::files::backup::stream::{ArchiveWalk, ManifestAt, NOTES_MAX};
use crate::files::backup::{manifest, tablespace_of};
use crate::files::control::ClusterState;
use crate::files::{SEGMENT_BYTES, evidence_of};
use crate::page::Checksums;
use pagewarden_core::database::repository::{Lsn, RepositoryPart};
use pagewarden_core::database::{Description, Settled, Step};
use pagewarden_core::verdict::{Finding, Kind, Note, Protection, Severity, Unread};

impl ArchiveWalk {
    /// Says what stands, when all archives were read.
    pub(super) fn finish(&mut self) {
        if self.notes > NOTES_MAX {
            let text = "more notes like these were left out".to_owned();
            self.ready.push_back(Step::Note(Note { file: String::new(), text }));
        }
        self.say_control();
        self.say_what_a_set_lacks();
        self.say_tablespaces();
        self.is_by_server = self.manifest.is_some();
        let manifest = self.compare();
        let ground = self.ground(manifest.as_ref());
        for (mut finding, at_most) in std::mem::take(&mut self.partial) {
            finding.severity = ground.partial_page(at_most);
            self.ready.push_back(Step::Finding(finding));
        }
        let checksums = self.checksums();
        if let Some(books) = &self.books {
            let label = self.facts.label.map(|_| self.facts.label_text.as_str());
            let control = self.facts.control.as_ref().and_then(|control| control.as_ref().ok());
            books.learn(label, control, manifest.as_ref());
        }
        let description = self.description(Some((ground, checksums)));
        let log = self.log(ground);
        let judge = self.terms.as_ref().map(|terms| Arc::clone(&terms.judge));
        self.ready.push_back(Step::Settled(Box::new(Settled {
            description,
            has_sums: checksums == Checksums::On,
            judge: Box::new(move |finding, page| {
                finding.severity = ground.severity(page);
                if let Some(log) = &log {
                    log.tell(finding, page);
                }
                if let Some(judge) = &judge {
                    judge(finding, page);
                }
            }),
        })));
    }

    /// The log that is yet to be replayed, if it is known which.
    fn log(&mut self, ground: Ground) -> Option<LogAtHand> {
        let control = self.facts.control.as_ref().filter(|_| ground != Ground::AtRest);
        let control = control?.as_ref().ok()?.clone();
        let label = self.facts.label.map(|_| std::mem::take(&mut self.facts.label_text));
        let archives = std::mem::take(&mut self.log_archives);
        let kept = self.terms.as_ref().and_then(|terms| terms.log.clone());
        Some(LogAtHand::new(control, label, self.wal.take(), archives).with_archived(kept))
    }

    fn say_control(&mut self) {
        let path = "global/pg_control";
        match self.facts.control.clone() {
            Some(Err(fault)) => {
                let detail = format!("the control file cannot be believed: {}", fault.detail);
                let finding = Finding::of_file(path, Severity::Damage, fault.kind, detail);
                self.ready.push_back(Step::Finding(finding));
            }
            // A user who packs a part of a cluster leaves it out.
            None if (self.facts.has_root || self.facts.label.is_some())
                && !self.is_cut
                && !self.facts.has_unread =>
            {
                let detail = "a data directory without a control file".to_owned();
                let finding = Finding::of_file(path, Severity::Damage, Kind::Missing, detail);
                self.ready.push_back(Step::Finding(finding));
            }
            Some(Ok(control)) => {
                let assumed = self.facts.page_size.unwrap_or(control.page_size);
                let segments = SEGMENT_BYTES / assumed as u64;
                if assumed != control.page_size || segments != u64::from(control.segment_pages) {
                    let text = format!(
                        "the control file, which comes last, says pages of {} bytes and segments of {} pages; they were judged with {assumed} and {segments}: unpack the archive and check the folder",
                        control.page_size, control.segment_pages
                    );
                    self.unread("", 0, 0, text);
                }
                if control.checksums == Checksums::Changing {
                    self.note(path, "checksums are being switched on or off: no page was tested by its checksum");
                }
            }
            None => {}
        }
    }

    /// What the books of a backup tool say of its set must be so.
    fn say_what_a_set_lacks(&mut self) {
        let Some(terms) = &self.terms else { return };
        let mut findings = Vec::new();
        if terms.is_whole && !self.facts.has_losses && !self.is_cut {
            findings.extend(self.facts.needed.lacks());
        }
        let damage = |file: &str, kind, detail: String| {
            Finding::of_file(file, Severity::Damage, kind, detail)
        };
        let other = |file: &str, detail: String| damage(file, Kind::Misplaced, detail);
        let begun = terms.backup.from_lsn.map(|lsn| lsn.0);
        match self.facts.label.as_ref().map(|label| label.start_lsn) {
            Some(None) => {
                let detail = "it does not say where replay of the log begins".to_owned();
                findings.push(damage(LABEL, Kind::Header, detail));
            }
            Some(Some(start)) if begun.is_some_and(|begun| begun != start) => {
                let (start, begun) = (Lsn(start), Lsn(begun.unwrap_or(0)));
                findings.push(other(
                    LABEL,
                    format!(
                        "it is that of another backup: it begins at {start}, this set at {begun}"
                    ),
                ));
            }
            _ => {}
        }
        if let (Some(Ok(control)), Some(expected)) =
            (&self.facts.control, terms.backup.system_identifier)
            && control.system_identifier != expected
        {
            findings.push(other(
                "global/pg_control",
                format!(
                    "it is that of another cluster: {}, and the set is of {expected}",
                    control.system_identifier
                ),
            ));
        }
        self.ready.extend(findings.into_iter().map(Step::Finding));
    }

    fn say_tablespaces(&mut self) {
        if self.has_all_tablespaces {
            return;
        }
        for oid in std::mem::take(&mut self.facts.tablespaces) {
            let error = format!(
                "this tablespace is in an archive of its own, {oid}.tar, and was not read: check \
                 the folder with all archives"
            );
            let unread = Unread::of_file(format!("pg_tblspc/{oid}"), error);
            self.ready.push_back(Step::Unread(unread));
        }
    }

    /// Holds what was read against the manifest.
    fn compare(&mut self) -> Option<manifest::Manifest> {
        let source = self.manifest.take()?;
        // A cluster that was started since has outlived its manifest.
        let is_backup = self.facts.label.is_some() || !self.facts.has_base;
        if !is_backup || self.is_cut {
            return None;
        }
        let prefix = self.only_prefix();
        let has_all = self.has_all_tablespaces;
        let is_ours = move |path: &str| match &prefix {
            Some(prefix) => path.starts_with(prefix.as_str()),
            None => has_all || !path.starts_with("pg_tblspc/"),
        };
        let compared = match source {
            ManifestAt::File(file) => self.ledger.compare(io::BufReader::new(file), &is_ours),
            ManifestAt::Spooled(file) => self.ledger.compare(file, &is_ours),
        };
        match compared {
            Ok(compared) => Some(self.say_compared(compared)),
            Err(error) => {
                let detail = format!("the backup's manifest cannot be believed: {error}");
                let finding =
                    Finding::of_file(manifest::NAME, Severity::Damage, Kind::Checksum, detail);
                self.ready.push_back(Step::Finding(finding));
                None
            }
        }
    }

    fn say_compared(&mut self, compared: Compared) -> manifest::Manifest {
        let Compared { manifest, mut findings, mut more, unlisted, other_hashes } = compared;
        if self.facts.has_unread {
            // What was not read is not missing.
            findings.retain(|finding| finding.kind != Kind::Missing);
            more = 0;
        }
        self.ready.extend(findings.into_iter().map(Step::Finding));
        if more > 0 {
            let detail = format!("{more} more files are not as the backup's manifest lists them");
            let finding = Finding::of_file("", Severity::Damage, Kind::Checksum, detail);
            self.ready.push_back(Step::Finding(finding));
        }
        if other_hashes > 0 {
            let algorithm = self.ledger.algorithm.name();
            self.note("", format!("the hashes of {other_hashes} files were not tested: the manifest, which comes last, has others than {algorithm}; name the archive as a file with the manifest beside it"));
        }
        if unlisted > 0 {
            self.note("", format!("{unlisted} files are not in the backup's manifest"));
        }
        manifest
    }

    /// What stands before all names in the manifest, for a tablespace alone.
    fn only_prefix(&self) -> Option<String> {
        let oid = tablespace_of(&self.path)?;
        (!self.has_all_tablespaces).then(|| format!("pg_tblspc/{oid}/"))
    }

    fn ground(&self, manifest: Option<&manifest::Manifest>) -> Ground {
        if let Some(terms) = self.terms.as_ref().filter(|_| !self.is_by_server) {
            return terms.ground;
        }
        let ranges = manifest.map(|manifest| manifest.wal_ranges.as_slice()).unwrap_or_default();
        let manifest_start = ranges.iter().map(|range| range.start_lsn).min();
        let label_start = self.facts.label.and_then(|label| label.start_lsn);
        let by_server = self.facts.label_first || manifest.is_some();
        match (&self.facts.control, label_start.or(manifest_start)) {
            (_, Some(start_lsn)) if by_server => Ground::SentByServer {
                start_lsn,
                end_lsn: ranges.iter().map(|range| range.end_lsn).max(),
            },
            (Some(Ok(control)), None)
                if control.state == ClusterState::ShutDown && self.facts.label.is_none() =>
            {
                Ground::AtRest
            }
            _ => Ground::Copied,
        }
    }

    fn checksums(&self) -> Checksums {
        match &self.facts.control {
            Some(Ok(control)) => control.checksums,
            _ if self.sample.most_fit() => Checksums::On,
            _ => Checksums::Off,
        }
    }

    pub(super) fn description(&self, end: Option<(Ground, Checksums)>) -> Description {
        // The control file of a set came first.
        let known = self.terms.as_ref().filter(|_| matches!(self.facts.control, Some(Ok(_))));
        let end = end.or_else(|| known.map(|terms| (terms.ground, self.checksums())));
        let by_tool = self.terms.as_ref().and_then(|it| it.backup.database_version.as_deref());
        let major = self.facts.major.as_deref().or(by_tool);
        let control = self.facts.control.as_ref().is_some_and(Result::is_ok);
        let sums = match end.map(|(_, checksums)| checksums) {
            None => "checksums not known before its end",
            Some(Checksums::On) if control => "checksums on",
            Some(Checksums::On) => "checksums found on pages",
            Some(Checksums::Changing) => "checksums being switched",
            Some(_) if control => "checksums off",
            Some(_) => "no checksums found on pages",
        };
        let is_incremental = self.facts.label.is_some_and(|label| label.is_incremental);
        let what = match end {
            Some((Ground::AtRest, _)) => "a cluster that was shut down cleanly",
            _ if is_incremental => "an incremental backup",
            _ if self.facts.label.is_some() => "a base backup",
            _ if !self.facts.has_base => "a tablespace",
            _ => "a cluster",
        };
        let form = match self.facts.compression {
            None | Some("not compressed") => "in a tar archive".to_owned(),
            Some(compression) => format!("in a tar archive ({compression})"),
        };
        let state = match &self.terms {
            Some(terms) => format!("{}, {sums}", terms.what),
            None => format!("{what} {form}, {sums}"),
        };
        Description {
            path: self.path.clone(),
            format: FORMAT.name,
            engine: major
                .map_or_else(|| "PostgreSQL".to_owned(), |major| format!("PostgreSQL {major}")),
            page_size: u32::try_from(self.page_size()).unwrap_or(0),
            setting: match end {
                Some((_, Checksums::On)) if control => Some(Protection::Checksum),
                Some(_) if control => Some(Protection::None),
                _ => None,
            },
            state,
            evidence: evidence_of(end.map_or(Checksums::On, |(_, checksums)| checksums)),
            live: false,
            epoch: None,
            part: self
                .terms
                .as_ref()
                .map(|terms| Arc::clone(&terms.backup))
                .or_else(|| self.books.as_ref()?.backup())
                .map(RepositoryPart::Set),
        }
    }
}
