//! The command that plans a repair, named beside what it may repair.

use std::io;
use std::path::{Path, PathBuf};

use crate::formats;
use crate::shell::quoted;
use crate::verdict::{Finding, Kind, Note, Recount, Severity, Stretch, Unread};
use crate::verify::Sink;

/// A database, and where sound copies of its pages may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    path: PathBuf,
    sources: Sources,
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
        let is_known = || formats::repairing().any(|engine| (engine.probe)(path));
        let is_some = !sources.from.is_empty() && is_known();
        is_some.then(|| Self { path: path.to_owned(), sources: sources.clone() })
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

    /// The advice in words; a server that runs must be stopped before.
    #[must_use]
    pub fn hint(&self, is_live: bool) -> String {
        let before = if is_live { "stop the server, then plan a repair" } else { "plan a repair" };
        format!("{before}: {}", self.command())
    }
}

/// True for what a plan of a repair has an entry for.
fn is_wound(finding: &Finding) -> bool {
    let is_of_length = matches!(finding.kind, Kind::Truncated | Kind::Missing);
    finding.severity == Severity::Damage && (finding.place.page.is_some() || is_of_length)
}

/// Hands everything on, damage with one more hint.
pub struct Advised<'a> {
    /// What it is handed to.
    pub sink: &'a mut dyn Sink,
    /// What to do about damage, if something is known.
    pub hint: Option<String>,
}

impl std::fmt::Debug for Advised<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Advised").field("hint", &self.hint).finish_non_exhaustive()
    }
}

impl Sink for Advised<'_> {
    fn finding(&mut self, finding: &Finding) -> io::Result<()> {
        let Some(more) = self.hint.as_ref().filter(|_| is_wound(finding)) else {
            return self.sink.finding(finding);
        };
        let hint = match &finding.hint {
            Some(hint) => format!("{hint}; {more}"),
            None => more.clone(),
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
        let sources =
            Sources { from: vec!["-old".into(), "it's".into()], log: vec!["/a b".into()], ..Sources::default() };
        let advice = Advice { path: "/data".into(), sources };
        let command = "pagewarden repair /data --from ./-old --from 'it'\\''s' --log '/a b'";
        assert_eq!(advice.command(), command);
        assert_eq!(advice.hint(true), format!("stop the server, then plan a repair: {command}"));
    }

    #[test]
    fn only_damage_of_pages_and_lengths_is_advised() {
        let mut kept = Kept::default();
        let mut advised = Advised { sink: &mut kept, hint: Some("mend it".to_owned()) };
        let of = |severity, kind| Finding::of_file("1", severity, kind, "what it is".to_owned());
        advised.finding(&of(Severity::Damage, Kind::Truncated)).unwrap();
        advised.finding(&of(Severity::Damage, Kind::Missing).with_hint("look")).unwrap();
        advised.finding(&of(Severity::Suspect, Kind::Missing)).unwrap();
        advised.finding(&of(Severity::Damage, Kind::Header)).unwrap();
        let hints: Vec<_> = kept.0.iter().map(Option::as_deref).collect();
        assert_eq!(hints, [Some("mend it"), Some("look; mend it"), None, None]);
    }

    #[test]
    fn nothing_is_advised_without_a_source_or_a_database() {
        let here = tempfile::tempdir().unwrap();
        let sources = Sources { from: vec!["/backup".into()], ..Sources::default() };
        assert_eq!(Advice::of(here.path(), &sources), None);
        let file = here.path().join("it.sqlite");
        std::fs::write(&file, [b"SQLite format 3\0".as_slice(), &[0; 496]].concat()).unwrap();
        assert_eq!(Advice::of(&file, &Sources::default()), None);
        assert!(Advice::of(&file, &sources).is_some());
    }
}
