//! Users and processes, as far as there is anything to say of them.

use windows_sys::Win32::Foundation::{CloseHandle, ERROR_INVALID_PARAMETER, STILL_ACTIVE};
use windows_sys::Win32::System::Threading::{
    GetExitCodeProcess, OpenProcess, PROCESS_QUERY_LIMITED_INFORMATION,
};

use super::Errno;

/// The number of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pid(u32);

impl Pid {
    /// By its number, which is above 0.
    #[must_use]
    pub fn from_raw(number: i32) -> Option<Self> {
        u32::try_from(number).ok().filter(|number| *number > 0).map(Self)
    }

    /// Its number.
    #[must_use]
    pub fn as_raw_nonzero(self) -> u32 {
        self.0
    }
}

/// Whether a process lives.
///
/// # Errors
/// [`Errno::SRCH`] if there is none of this number. One that cannot be asked lives.
pub fn test_kill_process(process: Pid) -> Result<(), Errno> {
    // SAFETY: takes numbers.
    let handle = unsafe { OpenProcess(PROCESS_QUERY_LIMITED_INFORMATION, 0, process.0) };
    if handle.is_null() {
        let error = std::io::Error::last_os_error().raw_os_error();
        let is_none = error == i32::try_from(ERROR_INVALID_PARAMETER).ok();
        return if is_none { Err(Errno::SRCH) } else { Ok(()) };
    }
    let mut status = 0_u32;
    // SAFETY: the handle was just given to us, and the pointer is to a live number.
    let asked = unsafe { GetExitCodeProcess(handle, &raw mut status) };
    // SAFETY: nothing else has the handle.
    unsafe { CloseHandle(handle) };
    let has_ended = asked != 0 && i32::try_from(status) != Ok(STILL_ACTIVE);
    if has_ended { Err(Errno::SRCH) } else { Ok(()) }
}

/// A request to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal;

impl Signal {
    /// To end at once.
    pub const KILL: Self = Self;
}

/// Not supported: a program is ended by itself.
///
/// # Errors
/// Always.
pub fn kill_process_group(_: Pid, _: Signal) -> Result<(), Errno> {
    Err(Errno::NOSYS)
}

/// A user by number: all are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uid(u32);

/// A group by number: all are one.
pub type Gid = Uid;

impl Uid {
    /// By its number.
    #[must_use]
    pub fn from_raw(number: u32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub fn as_raw(self) -> u32 {
        self.0
    }

    /// False: administrators are no `root`, whose writing is held in check elsewhere.
    #[must_use]
    pub fn is_root(self) -> bool {
        false
    }
}

/// The user of this process.
#[must_use]
pub fn geteuid() -> Uid {
    Uid(0)
}

/// The group of this process.
#[must_use]
pub fn getegid() -> Gid {
    Uid(0)
}
