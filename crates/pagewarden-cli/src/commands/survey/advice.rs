//! One command to run next, and why.

use std::path::Path;

use pagewarden::database::{self, TurnedOn};
use pagewarden::shell;
use pagewarden::verdict::{Protection, Verdict};

use super::Surveyed;

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Advice {
    /// A command, or a statement for the server.
    pub(super) command: String,
    /// Why.
    pub(super) why: String,
}

/// The one thing that is most worth doing.
pub(super) fn advice(surveyed: &Surveyed) -> Advice {
    let path = quoted(&surveyed.path);
    let said = |command: String, why: &str| Advice { command, why: why.to_owned() };
    match surveyed.verdict {
        Verdict::Damaged => said(
            format!("pagewarden check --html damage.html {path}"),
            "it names every damaged page, the table it belongs to, and where a good copy may be; \
             copy the files before anything else writes to them",
        ),
        _ if surveyed.summary.stopped => {
            said(format!("pagewarden survey {path}"), "it was stopped before all was read")
        }
        Verdict::Incomplete if surveyed.summary.unread > 0 => said(
            format!("pagewarden check {path}"),
            "it names all that could not be read; run it as the owner of the files, or look at \
             the disk",
        ),
        Verdict::Incomplete if surveyed.summary.pages.undecided > 0 => said(
            format!("pagewarden check {path}"),
            "some pages were being written all the time; try again in a quieter moment",
        ),
        Verdict::Incomplete => said(
            format!("pagewarden survey --keyring FILE {path}"),
            "without its key no page can be tested",
        ),
        Verdict::Suspect if surveyed.description.live => said(
            format!("pagewarden check --settle 10m {path}"),
            "what is suspect on a running server is damage if a checkpoint does not mend it",
        ),
        Verdict::Suspect => said(
            format!("pagewarden check --strict {path}"),
            "it names what recovery could explain; start and stop the server, then look again",
        ),
        Verdict::Unprotected => protect(surveyed, &path),
        Verdict::Intact => keep(surveyed, &path),
    }
}

/// Nothing protects it.
fn protect(surveyed: &Surveyed, path: &str) -> Advice {
    let description = &surveyed.description;
    if surveyed.storage.is_some() {
        return Advice {
            command: format!("pagewarden check --seal FILE {path}"),
            why: "what is stored stays as it is: a seal finds later what its pages cannot tell; turn \
                  checksums on in the database itself"
                .to_owned(),
        };
    }
    let is_file = surveyed.path.is_file();
    let turned_on = database::kind_named(description.format).map(|format| format.turned_on);
    let (command, why) = match turned_on {
        // Sums ask something of every program that writes to it, and the programs are often not
        // those of who asks.
        _ if description.format == pagewarden::formats::sqlite::FORMAT.name => {
            let seal = if description.live { "" } else { " --seal FILE" };
            (
                format!("pagewarden check --structure{seal} {path}"),
                "it compares every row with the indexes, and a seal finds later what changed in a \
                 file that nothing writes to; checksums (pagewarden protect) see more, but every \
                 program that writes to it must then load the pagewarden VFS (--guard lets the \
                 others only read)",
            )
        }
        Some(TurnedOn::ByServer(statement)) => (
            statement.to_owned(),
            "each page is then protected when it is next written (rebuilding indexes writes \
             them), and so are those in later backups",
        ),
        Some(TurnedOn::ForTheWhole) if is_file => (
            format!("pagewarden survey {}", quoted(folder_of(&surveyed.path))),
            "checksums are turned on for a whole cluster, of which this is one file",
        ),
        Some(TurnedOn::Here | TurnedOn::ForTheWhole) if description.live => (
            format!("pagewarden protect --mode checksum --dry-run {path}"),
            "shut it down first; this shows what would change, and without --dry-run changes it",
        ),
        Some(TurnedOn::Here | TurnedOn::ForTheWhole) => (
            format!("pagewarden protect --mode checksum --dry-run {path}"),
            "it shows what would change, and without --dry-run changes it",
        ),
        // A seal is of pages that stay in their places: it refuses these files.
        Some(TurnedOn::ByWriter(options)) => {
            return Advice {
                command: format!("pagewarden check --nagios {path}"),
                why: format!(
                    "for monitoring; the program that writes the file can give each page a sum: \
                     {options}"
                ),
            };
        }
        Some(TurnedOn::Never) | None => (
            format!("pagewarden check --seal FILE {path}"),
            "a seal finds later what its pages cannot tell",
        ),
    };
    Advice { command, why: why.to_owned() }
}

/// All is well: how to keep it so.
fn keep(surveyed: &Surveyed, path: &str) -> Advice {
    let summary = &surveyed.summary;
    let said = |command: String, why: &str| Advice { command, why: why.to_owned() };
    if surveyed.storage.is_some() {
        return said(
            format!("pagewarden check --nagios {path}"),
            "for monitoring: the same every night, in one line",
        );
    }
    if surveyed.path == Path::new("-") {
        return said("pagewarden check -".to_owned(), "the same for every backup that is made");
    }
    let turned_on = database::kind_named(surveyed.description.format).map(|it| it.turned_on);
    // A share of the pages is older than the setting.
    if summary.by_mode.none > 0
        && surveyed.description.setting != Some(Protection::None)
        && turned_on == Some(TurnedOn::Here)
        && !surveyed.description.live
    {
        return said(
            format!("pagewarden protect --mode checksum --dry-run {path}"),
            "some pages carry no sum: it shows what would change, and without --dry-run changes it",
        );
    }
    if surveyed.description.live || surveyed.description.epoch.is_none() {
        return said(
            format!("pagewarden check --nagios {path}"),
            "for monitoring: the same every night, in one line",
        );
    }
    said(
        format!("pagewarden check --seal FILE {path}"),
        "a seal of this sound state finds later what sums cannot: zeroed pages and lost writes",
    )
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

fn quoted(path: &Path) -> String {
    shell::quoted(path.as_os_str())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use clap::Parser as _;
    use pagewarden::database::{Description, Epoch, Evidence};
    use pagewarden::verify::Summary;

    use super::*;
    use crate::args::Arguments;
    use crate::commands::survey::price::Price;

    fn surveyed(format: &'static str, verdict: Verdict) -> Surveyed {
        let epoch = Epoch { database: "x".to_owned(), position: 1, is_at_rest: true };
        Surveyed {
            path: PathBuf::from("/srv/a folder"),
            description: Description {
                path: PathBuf::from("/srv/a folder"),
                format,
                engine: "an engine".to_owned(),
                page_size: 8192,
                setting: None,
                state: String::new(),
                evidence: Evidence { tested_by: "", unseen: "" },
                live: false,
                epoch: Some(epoch),
                part: None,
            },
            summary: Summary::default(),
            verdict,
            findings: Vec::new(),
            unread: Vec::new(),
            device_bytes: None,
            storage: None,
            price: Price { known: Vec::new(), command: None },
            ended: String::new(),
        }
    }

    const VERDICTS: [Verdict; 5] = [
        Verdict::Damaged,
        Verdict::Incomplete,
        Verdict::Suspect,
        Verdict::Unprotected,
        Verdict::Intact,
    ];

    /// What is recommended can be typed: our own parser takes it.
    #[test]
    fn every_recommended_command_is_one() {
        for kind in pagewarden::formats::FORMATS {
            for verdict in VERDICTS {
                for live in [false, true] {
                    let mut surveyed = surveyed(kind.name, verdict);
                    surveyed.description.live = live;
                    let Advice { command, why } = advice(&surveyed);
                    assert!(!why.is_empty() && !command.contains('\n'), "{command}");
                    if command.starts_with("ALTER DATABASE") {
                        assert_eq!(kind.name, "sqlserver");
                        continue;
                    }
                    // As a shell would cut it.
                    let plain = command.replace("'/srv/a folder'", "/srv/a_folder");
                    let parsed = Arguments::try_parse_from(plain.split(' '));
                    assert!(parsed.is_ok(), "{command}: {parsed:?}");
                }
            }
        }
    }

    /// Its programs would be locked out.
    #[test]
    fn protection_is_not_advised_for_a_database_of_other_programs() {
        let mut plain = surveyed("sqlite", Verdict::Unprotected);
        let Advice { command, why } = advice(&plain);
        assert_eq!(command, "pagewarden check --structure --seal FILE '/srv/a folder'");
        assert!(why.contains("every program that writes to it must then load"), "{why}");
        plain.description.live = true;
        assert_eq!(advice(&plain).command, "pagewarden check --structure '/srv/a folder'");
    }

    /// Their pages come one by one, which no seal is made of.
    #[test]
    fn no_seal_is_advised_for_parquet() {
        for verdict in VERDICTS {
            let mut parquet = surveyed("parquet", verdict);
            parquet.description.epoch = None;
            let Advice { command, .. } = advice(&parquet);
            assert!(!command.contains("--seal"), "{command}");
        }
    }

    #[test]
    fn what_is_grave_comes_first() {
        let command = |surveyed: &Surveyed| advice(surveyed).command;
        let damaged = surveyed("postgres", Verdict::Damaged);
        assert!(command(&damaged).contains("check --html"));
        let mut unread = surveyed("postgres", Verdict::Incomplete);
        assert!(command(&unread).contains("--keyring"), "no page was tested");
        unread.summary.unread = 1;
        assert!(command(&unread).starts_with("pagewarden check '"));
        let mut suspect = surveyed("postgres", Verdict::Suspect);
        suspect.description.live = true;
        assert!(command(&suspect).contains("--settle"));
        let mut stopped = surveyed("postgres", Verdict::Incomplete);
        stopped.summary.stopped = true;
        assert!(command(&stopped).starts_with("pagewarden survey"));
        let mut mixed = surveyed("innodb", Verdict::Intact);
        mixed.summary.by_mode.none = 3;
        assert!(command(&mixed).contains("protect --mode checksum"));
    }
}
