//! An archive, a pack, a repository of backups: verified as a whole or not at all.

use anyhow::{Context as _, Result};
use pagewarden::Error;
use pagewarden::database::repository::RepositoryPart;
use pagewarden::database::{Target, parts, repository};
use pagewarden::source::store::StorePath;
use pagewarden::verify::{Summary, Verified};
use rusqlite::params;

use super::{Done, Out, Plan, Read, Scrub};
use crate::config::Subject;
use crate::ledger::passes::{COUNTS, Due};
use crate::ledger::{TargetId, claims, int, passes};
use crate::listing::signature;
use crate::record::Reads;

impl Scrub<'_> {
    pub(super) fn archive(
        &mut self,
        subject: &Subject,
        target: TargetId,
        now: i64,
        out: &mut Out<'_>,
    ) -> Result<Result<Done, Error>> {
        let has_begun = self.enter_archive(target, &signature(&subject.paths), now)?;
        let due = match self.ledger.due(target, subject.every, now)? {
            Some(Due::Resume) if !has_begun => Some(Due::Resume),
            Some(_) => Some(Due::Begin),
            None => None,
        };
        let pass = match due {
            Some(Due::Begin) if !has_begun => self.ledger.begin_pass(target, now)?,
            _ => self.ledger.entry(target)?.pass,
        };
        if due == Some(Due::Resume) {
            // It reads everything again, and so counts from the beginning.
            let zero = COUNTS.map(|name| format!("{name} = 0")).join(", ");
            let sql = format!("UPDATE pass SET {zero} WHERE target = ?1 AND number = ?2");
            self.ledger
                .db
                .execute(&sql, params![target, pass])
                .context("cannot write the ledger")?;
        }
        let targets = match self.targets(subject) {
            Ok(targets) => targets,
            Err(error) => return Ok(Err(error)),
        };
        let mut plan = self.plan(subject, target, pass, now, due, due.is_some(), Reads::Archive)?;
        // No seal is made of archives.
        plan.seal = None;
        let mut pages: Vec<(String, u64)> = Vec::new();
        let mut before = Summary::default();
        let mut last: Option<(String, Verified)> = None;
        let mut stopped = false;
        for one in targets {
            if let Some((member, verified)) = last.take() {
                let verdict = verified.verdict();
                before += &self.close(&plan, &member, &verified, verdict, false, out)?.summary;
            }
            let member = member_of(&one);
            let Read { verified, stopped: has_stopped, .. } =
                self.read(&plan, &member, one, out)?;
            pages.push((member.clone(), verified.summary.pages.total()));
            last = Some((member, verified));
            stopped = has_stopped;
            if stopped {
                break;
            }
        }
        let Some((member, verified)) = last else {
            let hint = "see what pagewarden check says of it";
            return Ok(Err(Error::unrecognised(subject.path(), "there is no set in it", hint)));
        };
        if due.is_some() && !stopped {
            self.claim_members(&plan, &pages)?;
            self.end_run(&plan, &verified, None)?;
        }
        self.succeeded(target)?;
        // With the last of several stands what is true of all.
        let verdict = self.ledger.verdict(target, now)?;
        let mut done = self.close(&plan, &member, &verified, verdict, stopped, out)?;
        done.summary += &before;
        Ok(Ok(done))
    }

    fn targets(&self, subject: &Subject) -> Result<Box<dyn Iterator<Item = Target>>, Error> {
        let open = subject.open_options(&self.open);
        if let [path] = subject.paths.as_slice()
            && let Some(tool) = repository::kind_of(&StorePath::local(path), None)
        {
            return Ok((tool.open)(&StorePath::local(path), &open)?.targets);
        }
        let target = parts::open_together(&subject.paths, None, &open)?;
        Ok(Box::new(std::iter::once(target)))
    }

    /// Counts a run over an archive. What is claimed of another one is dropped, and a pass over this one
    /// begins in the same moment: without either, a ledger with no claims would look like one that has
    /// them all. True if a pass has begun.
    fn enter_archive(&self, target: TargetId, signature: &str, now: i64) -> Result<bool> {
        let tx = self.ledger.writing()?;
        let sql = "SELECT signature FROM target WHERE id = ?1";
        let before: Option<String> = tx.query_row(sql, [target], |row| row.get(0))?;
        let is_another = before.as_deref() != Some(signature);
        let mut has_begun = false;
        if is_another {
            drop_claims(&tx, target)?;
            has_begun = passes::is_between_passes(&tx, target)?;
        }
        if has_begun {
            passes::begin_pass(&tx, target, now)?;
        }
        tx.execute(
            "UPDATE target SET run = run + 1, signature = ?2 WHERE id = ?1",
            params![target, signature],
        )?;
        tx.commit().context("cannot write the ledger")?;
        Ok(has_begun)
    }

    /// Every page of an archive was read.
    fn claim_members(&self, plan: &Plan, pages: &[(String, u64)]) -> Result<()> {
        let tx = self.ledger.writing()?;
        drop_claims(&tx, plan.target)?;
        for (name, pages) in pages {
            let id: i64 = tx.query_row(
                "INSERT INTO file (target, name, inode, born, changed, size, page_size, first, end,
                    listed)
                 VALUES (?1, ?2, 0, 0, 0, ?3, 1, 0, ?3, ?4) RETURNING id",
                params![plan.target, name, int(*pages), plan.run],
                |row| row.get(0),
            )?;
            claims::claim(&tx, id, 0, *pages, plan.pass, plan.now)?;
        }
        tx.commit().context("cannot write the ledger")
    }
}

fn drop_claims(db: &rusqlite::Connection, target: TargetId) -> rusqlite::Result<()> {
    db.execute(
        "DELETE FROM claim WHERE file IN (SELECT id FROM file WHERE target = ?1)",
        [target],
    )?;
    db.execute("DELETE FROM file WHERE target = ?1", [target])?;
    Ok(())
}

/// Which set of a repository a target is; empty for one that stands alone.
fn member_of(target: &Target) -> String {
    match &target.description.part {
        Some(RepositoryPart::Set(backup)) => backup.label.clone(),
        Some(RepositoryPart::Whole(_) | RepositoryPart::Chains(_)) => "the repository".to_owned(),
        Some(RepositoryPart::Binlogs(_)) => "the binary logs".to_owned(),
        Some(RepositoryPart::Media) | None => String::new(),
    }
}
