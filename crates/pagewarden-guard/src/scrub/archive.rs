//! An archive, a pack, a repository of backups: verified as a whole or not at all.

use anyhow::{Context as _, Result};
use pagewarden::Error;
use pagewarden::database::repository::RepositoryPart;
use pagewarden::database::{Target, parts, repository};
use pagewarden::source::store::StorePath;
use pagewarden::verdict::Verdict;
use pagewarden::verify::{Summary, Verified};
use rusqlite::{OptionalExtension as _, params};
use serde_json::Value;

use super::{Done, Out, Plan, Read, Scrub};
use crate::config::Subject;
use crate::ledger::passes::{COUNTS, Coverage, Due};
use crate::ledger::{TargetId, claims, findings, int, passes, uint};
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
        let mut read: Vec<Member> = Vec::new();
        let mut before = Summary::default();
        let mut last: Option<(String, Verified)> = None;
        let mut stopped = false;
        for one in targets {
            if let Some((member, verified)) = last.take() {
                before += &self.close_member(&plan, &member, &verified, out)?.summary;
            }
            let member = member_of(&one);
            let Read { verified, stopped: has_stopped, .. } =
                self.read(&plan, &member, one, out)?;
            if due.is_some() && !has_stopped {
                findings::seen_member(&self.ledger.db, plan.as_run(&member))
                    .context("cannot write the ledger")?;
            }
            read.push(Member {
                name: member.clone(),
                pages: verified.summary.pages.total(),
                verdict: verified.verdict(),
            });
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
            self.claim_members(&plan, &read)?;
            self.end_run(&plan, &verified, None)?;
        }
        self.succeeded(target)?;
        // With the last of several stands what is true of all.
        let verdict = self.ledger.verdict(target, now)?;
        let mut done = self.close(&plan, &member, &verified, verdict, None, stopped, out)?;
        done.summary += &before;
        Ok(Ok(done))
    }

    /// Reports a set that others follow: by what this run saw of it, or by what the last one did.
    fn close_member(
        &mut self,
        plan: &Plan,
        member: &str,
        verified: &Verified,
        out: &mut Out<'_>,
    ) -> Result<Done> {
        let of_all = self.ledger.coverage(plan.target, plan.now)?;
        let seen = match plan.due {
            Some(_) => Some((verified.verdict(), verified.summary.pages.total(), Some(plan.now))),
            None => self.claimed(plan.target, member)?,
        };
        let never = (Verdict::Incomplete, 0, None);
        let (verdict, pages, at) = seen.unwrap_or(never);
        let age = at.map_or(0, |at| uint(plan.now.saturating_sub(at)));
        let coverage = Coverage {
            pages,
            verified: pages,
            oldest_unverified_seconds: age,
            overdue: age > of_all.every_seconds,
            pass_complete: at.is_some(),
            has_holes: at.is_none(),
            oldest_at: at,
            ..of_all
        };
        self.close(plan, member, verified, verdict, Some(coverage), false, out)
    }

    /// What the last pass saw of a set: the verdict, how many pages, when. `None` if that is not known.
    fn claimed(
        &self,
        target: TargetId,
        member: &str,
    ) -> Result<Option<(Verdict, u64, Option<i64>)>> {
        let sql = "SELECT f.verdict, f.end, coalesce(min(c.at), p.ended_at) FROM file f
             JOIN target t ON t.id = f.target JOIN pass p ON p.target = t.id AND p.number = t.pass
             LEFT JOIN claim c ON c.file = f.id
             WHERE f.target = ?1 AND f.name = ?2 AND f.hole_since IS NULL GROUP BY f.id";
        let row = self.ledger.db.prepare_cached(sql)?.query_row(params![target, member], |row| {
            Ok((row.get::<_, Option<String>>(0)?, row.get(1)?, row.get(2)?))
        });
        let row = row.optional().context("cannot read the ledger")?;
        Ok(row.and_then(|(word, pages, at)| {
            let verdict = serde_json::from_value(Value::String(word?)).ok()?;
            Some((verdict, uint(pages), at))
        }))
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
            // What was there is not verified any more, until the pass over this one ends.
            drop_claims(&tx, target)?;
            tx.execute("UPDATE file SET hole_since = ?2 WHERE target = ?1", params![target, now])?;
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
    fn claim_members(&self, plan: &Plan, members: &[Member]) -> Result<()> {
        let tx = self.ledger.writing()?;
        drop_claims(&tx, plan.target)?;
        tx.execute("DELETE FROM file WHERE target = ?1", [plan.target])?;
        for Member { name, pages, verdict } in members {
            let id: i64 = tx.query_row(
                "INSERT INTO file (target, name, inode, born, changed, size, page_size, first, end,
                    listed, verdict)
                 VALUES (?1, ?2, 0, 0, 0, ?3, 1, 0, ?3, ?4, ?5) RETURNING id",
                params![plan.target, name, int(*pages), plan.run, verdict.name()],
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
    Ok(())
}

/// A set that was read.
struct Member {
    name: String,
    pages: u64,
    verdict: Verdict,
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
