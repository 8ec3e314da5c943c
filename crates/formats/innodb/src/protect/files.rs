//! The tablespaces of a data directory, and what is in the way.
//!
//! What `check` takes for a tablespace is one here too ([`Role`]): `ibdata1` and its sisters,
//! undo tablespaces, `*.ibd`. Left alone are tables of other engines, files of copies, temporary
//! ones, and what lies elsewhere: a link, or a `.isl` file that names a place.

use std::fs;
use std::path::{Path, PathBuf};

use crate::files::directory::{Role, is_database};
use crate::files::names;
use crate::files::tablespace::{Context, Member, SYSTEM_SPACE, Tablespace, open_file};
use pagewarden_core::error::Error;

/// Behind the name of a file that is to take another's place. No server takes it for a
/// tablespace.
pub(super) const ENDING: &str = ".pagewarden-protect";

/// A file of a tablespace.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    /// Below the data directory.
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) length: u64,
}

impl Entry {
    /// Where its replacement is made: in the same folder, and so on the same file system.
    pub(super) fn replacement(&self) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(ENDING);
        PathBuf::from(name)
    }
}

/// A tablespace: its files in the order of their pages.
pub(super) type Group = Vec<Entry>;

/// What there is.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Large ones first, the system tablespace last.
    pub(super) groups: Vec<Group>,
    /// What interrupted runs left.
    pub(super) leftovers: Vec<PathBuf>,
    pub(super) warnings: Vec<String>,
}

impl Listing {
    /// Of a data directory.
    ///
    /// # Errors
    /// A folder cannot be listed, or holds packed tablespaces.
    pub(super) fn of(root: &Path) -> Result<Self, Error> {
        let mut listing = Self::default();
        let mut system: Vec<(u32, Entry)> = Vec::new();
        let mut folders = vec![(String::new(), root.to_owned())];
        while let Some((prefix, folder)) = folders.pop() {
            let is_root = prefix.is_empty();
            for (name, path) in names_in(&folder)? {
                let shown = format!("{prefix}{name}");
                let metadata = fs::symlink_metadata(&path)
                    .map_err(|error| Error::io("look at", &path, error))?;
                let role = Role::of(&name);
                if metadata.is_symlink() {
                    if role.has_pages() || (is_root && path.is_dir()) {
                        listing.warn_elsewhere(&shown);
                    }
                } else if metadata.is_dir() {
                    if is_root && is_database(&name) {
                        folders.push((format!("{name}/"), path));
                    }
                } else if metadata.is_file() {
                    let entry = Entry { name: shown, path, length: metadata.len() };
                    match role {
                        Role::System(number) if is_root => system.push((number, entry)),
                        _ => listing.add(entry, &role, &name)?,
                    }
                }
            }
        }
        listing.groups.sort_by(|a, b| length(b).cmp(&length(a)).then_with(|| name(a).cmp(name(b))));
        system.sort_by_key(|(number, _)| *number);
        if !system.is_empty() {
            listing.groups.push(system.into_iter().map(|(_, entry)| entry).collect());
        }
        listing.leftovers.sort();
        Ok(listing)
    }

    /// Of one file.
    pub(super) fn of_file(path: &Path) -> Result<Self, Error> {
        let metadata = fs::metadata(path).map_err(|error| Error::io("open", path, error))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entry = Entry { name, path: path.to_owned(), length: metadata.len() };
        let leftovers = Some(entry.replacement()).filter(|left| left.exists());
        let groups = vec![vec![entry]];
        Ok(Self { groups, leftovers: leftovers.into_iter().collect(), warnings: Vec::new() })
    }

    fn add(&mut self, entry: Entry, role: &Role, name: &str) -> Result<(), Error> {
        let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
        match role {
            _ if name.ends_with(ENDING) => self.leftovers.push(entry.path),
            Role::Tablespace if names::is_temporary(stem) => {
                let text = "what is left of a table that was being made, left alone";
                self.warnings.push(format!("{}: {text}", entry.name));
            }
            Role::Tablespace | Role::Undo | Role::System(_) => self.groups.push(vec![entry]),
            Role::Link => self.warn_elsewhere(&entry.name),
            Role::Compressed | Role::Delta => {
                return Err(Error::refused(
                    &entry.path,
                    "a backup's packed tablespace, or the changed pages of one",
                    "unpack and prepare the backup first",
                ));
            }
            Role::Aria | Role::Doublewrite | Role::Foreign | Role::None => {}
        }
        Ok(())
    }

    fn warn_elsewhere(&mut self, name: &str) {
        self.warnings.push(format!(
            "{name}: lies elsewhere, and is left alone: name the file itself to change it too"
        ));
    }

    /// Looks at the beginning of every file, so that nothing is begun where one cannot be
    /// understood.
    pub(super) fn check(&self) -> Result<(), Error> {
        self.groups.iter().try_for_each(|group| open(group, |_, _| Ok(())))
    }
}

/// Opens the files of a tablespace, one after the other: what the first one says of its pages
/// holds for the others.
pub(super) fn open(
    group: &[Entry],
    mut each: impl FnMut(&Entry, &Tablespace) -> Result<(), Error>,
) -> Result<(), Error> {
    let mut before: Option<Member> = None;
    for entry in group {
        let mut context = Context::alone(entry.name.clone());
        context.member.clone_from(&before);
        let opened = open_file(&entry.path, context)?;
        if before.is_none() && opened.geometry.first_page > 0 {
            return Err(Error::refused(
                &entry.path,
                "a further file of a tablespace whose first file was not named",
                "name the data directory",
            ));
        }
        before = Some(Member {
            layout: opened.geometry.layout,
            space_id: SYSTEM_SPACE,
            first_page: opened.geometry.first_page.saturating_add(opened.pages()),
            in_use: None,
        });
        each(entry, &opened)?;
    }
    Ok(())
}

fn length(group: &Group) -> u64 {
    group.iter().map(|entry| entry.length).fold(0, u64::saturating_add)
}

fn name(group: &Group) -> &str {
    group.first().map_or("", |entry| &entry.name)
}

/// The names in a folder, in order.
fn names_in(folder: &Path) -> Result<Vec<(String, PathBuf)>, Error> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| Error::io("list", folder, error))? {
        let entry = entry.map_err(|error| Error::io("list", folder, error))?;
        names.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
    }
    names.sort();
    Ok(names)
}
