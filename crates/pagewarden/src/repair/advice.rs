//! The command that plans a repair, named beside what it may repair.

use std::io;
use std::path::{Path, PathBuf};

use crate::formats;
use crate::shell::quoted;
use crate::verdict::{Finding, Note, Recount, Severity, Stretch, Unread};
use crate::verify::Sink;

/// A database, and where sound copies of its pages may be.
#[derive(Debug, Clone)]
pub struct Advice {
    path: PathBuf,
    sources: Sources,
    /// What its engine may bring back.
    treats: fn(&Finding) -> bool,
}

/// What a repair is to be given besides the database.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sources {
    /// Where sound copies of pages may be: `--from`.
    pub from: Vec<PathBuf>,
    /// Folders with archived log: `--log`.
    pub log: Vec<PathBuf>,
    /// A file of keys: `--keyring`.
    pub keyring: Option<PathBuf>,
}

impl Advice {
    /// Of a database; `None` if there is no source, or this is nothing that repair takes.
    #[must_use]
    pub fn of(path: &Path, sources: &Sources) -> Option<Self> {
        if sources.from.is_empty() {
            return None;
        }
        let engine = formats::repairing().find(|engine| (engine.probe)(path))?;
        let (path, sources) = (path.to_owned(), sources.clone());
        Some(Self { path, sources, treats: engine.treats })
    }

    /// True for damage that the plan of a repair has an answer to.
    #[must_use]
    pub fn treats(&self, finding: &Finding) -> bool {
        finding.severity == Severity::Damage && (self.treats)(finding)
    }

    /// The command that makes the plan. It writes nothing.
    #[must_use]
    pub fn command(&self) -> String {
        let mut text = "pagewarden repair".to_owned();
        let mut add = |option: &str, path: &Path| {
            text.push_str(option);
            // A name is not to be taken for an option, wherever the command is pasted.
            let dashed = path.to_string_lossy().starts_with('-');
            let path = if dashed { Path::new(".").join(path) } else { path.to_owned() };
            text.push_str(&quoted(path.as_os_str()));
        };
        add(" ", &self.path);
        self.sources.from.iter().for_each(|from| add(" --from ", from));
        self.sources.log.iter().for_each(|log| add(" --log ", log));
        self.sources.keyring.iter().for_each(|keyring| add(" --keyring ", keyring));
        text
    }

    /// The same command, which writes the plan as a web page, too.
    #[must_use]
    pub fn command_with_page(&self, page: &Path) -> String {
        format!("{} --html {}", self.command(), quoted(page.as_os_str()))
    }

    /// The advice in words; a server that runs must be stopped before.
    #[must_use]
    pub fn hint(&self, is_live: bool) -> String {
        let before = if is_live { "stop the server, then plan a repair" } else { "plan a repair" };
        format!("{before}: {}", self.command())
    }
}

/// For damage that no repair of pages brings back.
const OTHERWISE: &str = "pagewarden repair does not bring this back: restore it from a backup";

/// Hands everything on, damage with one more hint.
#[derive(Debug)]
pub struct Advised<'a, S: Sink + ?Sized> {
    sink: &'a mut S,
    advice: Option<&'a Advice>,
    is_live: bool,
    treated: u64,
}

impl<'a, S: Sink + ?Sized> Advised<'a, S> {
    /// To `sink`, with what is to be done about damage, if something is known; a server may be running.
    pub fn new(sink: &'a mut S, advice: Option<&'a Advice>, is_live: bool) -> Self {
        Self { sink, advice, is_live, treated: 0 }
    }

    /// Findings that name the command.
    #[must_use]
    pub fn treated(&self) -> u64 {
        self.treated
    }
}

impl<S: Sink + ?Sized> Sink for Advised<'_, S> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let Some(advice) = self.advice.filter(|_| finding.severity == Severity::Damage) else {
            return self.sink.finding(finding);
        };
        let more = match advice.treats(finding) {
            true => {
                self.treated = self.treated.saturating_add(1);
                advice.hint(self.is_live)
            }
            false => OTHERWISE.to_owned(),
        };
        let hint = match &finding.hint {
            Some(hint) => format!("{hint}; {more}"),
            None => more,
        };
        self.sink.finding(&finding.clone().with_hint(hint))
    }

    fn unread(&mut self, unread: &Unread) -> io::Result<()> {
        self.sink.unread(unread)
    }

    fn note(&mut self, note: &Note) -> io::Result<()> {
        self.sink.note(note)
    }

    fn pages(&mut self, stretch: &Stretch<'_>) -> io::Result<()> {
        self.sink.pages(stretch)
    }

    fn recount(&mut self, recount: &Recount) -> io::Result<()> {
        self.sink.recount(recount)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Kind;

    #[derive(Default)]
    struct Kept(Vec<Option<String>>);

    impl Sink for Kept {
        fn finding(&mut self, finding: &Finding) -> io::Result<()> {
            self.0.push(finding.hint.clone());
            Ok(())
        }

        fn unread(&mut self, _: &Unread) -> io::Result<()> {
            Ok(())
        }

        fn note(&mut self, _: &Note) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn the_command_is_one_that_a_shell_takes() {
        let sources = Sources {
            from: vec!["-old".into(), "it's".into()],
            log: vec!["/a b".into()],
            ..Sources::default()
        };
        let advice = Advice { path: "/data".into(), sources, treats: |_| true };
        let command = "pagewarden repair /data --from ./-old --from 'it'\\''s' --log '/a b'";
        assert_eq!(advice.command(), command);
        assert_eq!(advice.hint(true), format!("stop the server, then plan a repair: {command}"));
    }

    #[test]
    fn what_no_repair_brings_back_has_other_advice() {
        let sources = Sources { from: vec!["/copy".into()], ..Sources::default() };
        let treats = |finding: &Finding| finding.kind == Kind::Missing;
        let advice = Advice { path: "/data".into(), sources, treats };
        let mut kept = Kept::default();
        let mut advised = Advised::new(&mut kept, Some(&advice), false);
        let of = |severity, kind| Finding::of_file("1", severity, kind, "what it is".to_owned());
        advised.finding(&of(Severity::Damage, Kind::Missing)).unwrap();
        advised.finding(&of(Severity::Damage, Kind::Missing).with_hint("look")).unwrap();
        advised.finding(&of(Severity::Suspect, Kind::Missing)).unwrap();
        advised.finding(&of(Severity::Damage, Kind::Header)).unwrap();
        assert_eq!(advised.treated(), 2);
        let hints: Vec<_> = kept.0.iter().map(Option::as_deref).collect();
        let command = advice.hint(false);
        let both = format!("look; {command}");
        assert_eq!(hints, [Some(&*command), Some(&*both), None, Some(OTHERWISE)]);
    }

    #[test]
    fn nothing_is_advised_without_a_source_or_a_database() {
        let here = tempfile::tempdir().unwrap();
        let sources = Sources { from: vec!["/backup".into()], ..Sources::default() };
        assert!(Advice::of(here.path(), &sources).is_none());
        let file = here.path().join("it.sqlite");
        std::fs::write(&file, [b"SQLite format 3\0".as_slice(), &[0; 496]].concat()).unwrap();
        assert!(Advice::of(&file, &Sources::default()).is_none());
        assert!(Advice::of(&file, &sources).is_some());
    }
}
