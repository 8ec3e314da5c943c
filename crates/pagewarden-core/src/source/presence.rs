//! Being seen by another user's processes.
//!
//! A server that finds a process number in its lock file asks the system whether
//! that process lives (`kill` with signal 0). Where the process belongs to root,
//! the system answers a server with `EPERM`, which PostgreSQL takes for "some
//! process, but no server of mine": the lock would not hold. Linux lets a process
//! signal another whose *saved* user is its own, so lending that out is enough;
//! the effective user, by which rights are judged, stays what it is.

use std::io;

#[cfg(target_os = "linux")]
pub use linux::Presence;

/// This process, which only its own user sees: other systems have no way.
#[cfg(not(target_os = "linux"))]
#[derive(Debug)]
pub struct Presence;

#[cfg(not(target_os = "linux"))]
impl Presence {
    /// Fails for any user but that of this process.
    ///
    /// # Errors
    /// It is another user's.
    pub fn before(user: u32) -> io::Result<Self> {
        let ours = crate::system::process::geteuid().as_raw();
        if ours == user { Ok(Self) } else { Err(io::ErrorKind::PermissionDenied.into()) }
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use super::io;

    /// This process answers to `user`, until this is dropped.
    #[derive(Debug)]
    pub struct Presence {
        before: Option<[libc::uid_t; 3]>,
    }

    impl Presence {
        /// Makes processes of `user` able to see that this one lives.
        ///
        /// # Errors
        /// Neither root nor that user: the system refuses.
        pub fn before(user: u32) -> io::Result<Self> {
            let users = users()?;
            let [real, _, saved] = users;
            if real == user || saved == user {
                return Ok(Self { before: None });
            }
            // -1 leaves a user as it is.
            set([libc::uid_t::MAX, libc::uid_t::MAX, user])?;
            Ok(Self { before: Some(users) })
        }
    }

    impl Drop for Presence {
        fn drop(&mut self) {
            if let Some([_, _, saved]) = self.before {
                // Back to a user this process still is: it cannot fail.
                let _ = set([libc::uid_t::MAX, libc::uid_t::MAX, saved]);
            }
        }
    }

    /// The real, effective and saved user of this process.
    fn users() -> io::Result<[libc::uid_t; 3]> {
        let [mut real, mut effective, mut saved] = [0; 3];
        // SAFETY: three pointers to live integers of the type that is written.
        let result = unsafe { libc::getresuid(&raw mut real, &raw mut effective, &raw mut saved) };
        if result == 0 { Ok([real, effective, saved]) } else { Err(io::Error::last_os_error()) }
    }

    /// Sets them for all threads, as the C library sees to.
    fn set([real, effective, saved]: [libc::uid_t; 3]) -> io::Result<()> {
        // SAFETY: takes integers and touches no memory of this process.
        let result = unsafe { libc::setresuid(real, effective, saved) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// A process of root must lend another user; one of any other user can lend only its own.
        #[test]
        fn saved_user_is_lent_and_taken_back() {
            const OTHER_USER: u32 = 65534;
            let before = users().unwrap();
            if before[1] == 0 {
                let presence = Presence::before(OTHER_USER).unwrap();
                assert_eq!(users().unwrap(), [before[0], 0, OTHER_USER]);
                drop(presence);
            } else {
                drop(Presence::before(before[1]).unwrap());
                assert!(before.contains(&OTHER_USER) || Presence::before(OTHER_USER).is_err());
            }
            assert_eq!(users().unwrap(), before);
        }
    }
}
