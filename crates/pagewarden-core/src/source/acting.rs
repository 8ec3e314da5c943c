//! Root at work with the rights of another user.
//!
//! Where another user can change where a path leads ([`trusted_path`](super::trusted_path)), a
//! process of root that makes files below it takes that user's rights and no others: then a link
//! leads it nowhere where that user could not have written too, and what it makes belongs to that
//! user. Rights are those of a thread on Linux, and threads that it starts have the same, so they
//! are to be taken before any of the workers is started.

use std::fs;
use std::io;
use std::path::Path;

use crate::shell::quoted;
use crate::source::trusted_path::{End, Foreign, foreign_to_root, group, user};
use crate::system::MetadataExt as _;

/// Why root cannot work there.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ActingError {
    /// The way cannot be looked at.
    #[error("cannot look at the way to it: {0}")]
    Io(#[from] io::Error),
    /// Any user may change the way, so that no user's rights are the right ones.
    #[error("{found}\nhint: name a folder that only root can write to, or close this one: chmod go-w {}", quoted(found.path.as_os_str()))]
    Open {
        /// What is open.
        found: Foreign,
    },
    /// More than one user can.
    #[error("{}, and {}\nhint: name a folder that only root and one other user can write to", .0, .1)]
    Several(Foreign, Foreign),
    /// The system does not let us.
    #[error("cannot take the rights of {}, to whom {} belongs: {error}\nhint: run as that user: sudo -u {}", user(found.owner), found.path.display(), quoted(user(found.owner).as_ref()))]
    Refused {
        /// Whose rights, and why.
        found: Foreign,
        /// What it said.
        error: io::Error,
    },
}

/// The rights of another user, until it is dropped.
#[derive(Debug)]
pub struct Acting {
    /// Because of what.
    pub found: Foreign,
    #[cfg(target_os = "linux")]
    before: linux::Rights,
}

impl Acting {
    /// Takes the rights of the user that can change where these paths lead, if there is one and
    /// this is a process of root.
    ///
    /// # Errors
    /// There is more than one, or the system refuses.
    pub fn for_paths(paths: &[(&Path, End)]) -> Result<Option<Self>, ActingError> {
        let mut first: Option<Foreign> = None;
        for (path, end) in paths {
            for found in foreign_to_root(path, *end)? {
                match &first {
                    _ if found.is_open => return Err(ActingError::Open { found }),
                    Some(first) if first.owner != found.owner => {
                        return Err(ActingError::Several(first.clone(), found));
                    }
                    Some(_) => {}
                    None => first = Some(found),
                }
            }
        }
        first.map(Self::take).transpose()
    }

    fn take(found: Foreign) -> Result<Self, ActingError> {
        let folders = || fs::metadata(&found.path).map(|metadata| metadata.gid());
        let taken = match group(found.owner) {
            Some(group) => Ok(group),
            None => folders(),
        };
        match taken.and_then(|group| take(found.owner, group)) {
            #[cfg(target_os = "linux")]
            Ok(before) => Ok(Self { found, before }),
            #[cfg(not(target_os = "linux"))]
            Ok(()) => Ok(Self { found }),
            Err(error) => Err(ActingError::Refused { found, error }),
        }
    }
}

#[cfg(target_os = "linux")]
use linux::take;

/// Elsewhere rights are those of the process, and are not taken back so easily.
#[cfg(not(target_os = "linux"))]
fn take(_: u32, _: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
impl Drop for Acting {
    fn drop(&mut self) {
        // Back to what this process still is: it cannot fail.
        let _ = self.before.give_back();
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use rustix::fs::{Gid, Uid};
    use rustix::process::{getegid, getgroups};
    use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

    #[derive(Debug)]
    pub(super) struct Rights {
        group: Gid,
        groups: Vec<Gid>,
    }

    impl Rights {
        pub(super) fn give_back(&self) -> io::Result<()> {
            // Only root may change groups.
            set_thread_res_uid(None, Uid::ROOT, None)?;
            set_thread_res_gid(None, self.group, None)?;
            Ok(set_thread_groups(&self.groups)?)
        }
    }

    /// Takes a user's rights, with one group. Real and saved user stay root, so that the user can
    /// do nothing to this process.
    pub(super) fn take(user: u32, group: u32) -> io::Result<Rights> {
        let before = Rights { group: getegid(), groups: getgroups()? };
        let group = Gid::from_raw(group);
        let taken = set_thread_groups(&[group])
            .and_then(|()| set_thread_res_gid(None, group, None))
            .and_then(|()| set_thread_res_uid(None, Uid::from_raw(user), None));
        if let Err(error) = taken {
            let _ = before.give_back();
            return Err(error.into());
        }
        Ok(before)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, chown, symlink};

    const OTHER: u32 = 65534;

    #[test]
    fn rights_are_those_of_the_owner_until_they_are_given_back() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("SKIPPED: only root can take rights");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (theirs, private) = (folder.path().join("theirs"), folder.path().join("private"));
        fs::create_dir(&theirs).unwrap();
        fs::create_dir(&private).unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        chown(&theirs, Some(OTHER), Some(OTHER)).unwrap();
        symlink(&private, theirs.join("link")).unwrap();
        assert!(Acting::for_paths(&[(&private, End::Inside)]).unwrap().is_none());
        let new = theirs.join("new");
        let acting = Acting::for_paths(&[(&new, End::Inside)]).unwrap().unwrap();
        assert_eq!(acting.found.owner, OTHER);
        // A worker that is started now.
        let (denied, made) = std::thread::scope(|scope| {
            let work = || (fs::write(theirs.join("link/x"), "").is_err(), fs::create_dir(&new));
            scope.spawn(work).join().unwrap()
        });
        assert!(denied && made.is_ok());
        drop(acting);
        let status = fs::metadata(&new).unwrap();
        assert_eq!((status.uid(), status.gid()), (OTHER, OTHER));
        assert!(fs::write(private.join("x"), "").is_ok());
        assert!(rustix::process::geteuid().is_root());
        // Two users, or any.
        let other = folder.path().join("other");
        fs::create_dir(&other).unwrap();
        chown(&other, Some(1), Some(1)).unwrap();
        let both = [(new.as_path(), End::Name), (other.as_path(), End::Inside)];
        assert!(matches!(Acting::for_paths(&both), Err(ActingError::Several(..))));
        chown(&other, Some(0), Some(0)).unwrap();
        fs::set_permissions(&other, fs::Permissions::from_mode(0o777)).unwrap();
        let error = Acting::for_paths(&both).unwrap_err();
        assert!(error.to_string().contains("chmod go-w"), "{error}");
    }
}
