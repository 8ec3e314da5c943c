//! Tells the service manager that started it how it is: `sd_notify`, without its library.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use pagewarden::system::OsStrExt as _;

/// It answers.
pub(super) fn ready() {
    tell("READY=1");
}

/// It is alive.
pub(super) fn alive() {
    tell("WATCHDOG=1");
}

/// It is about to end.
pub(super) fn stopping() {
    tell("STOPPING=1");
}

/// How often the manager wants to hear that this process is alive; `None` if it does not watch it.
pub(super) fn alive_every() -> Option<Duration> {
    let number = |name| std::env::var(name).ok()?.parse::<u64>().ok();
    let is_other = number("WATCHDOG_PID").is_some_and(|pid| pid != u64::from(std::process::id()));
    // In time, even where one is late.
    number("WATCHDOG_USEC").filter(|_| !is_other).map(|time| Duration::from_micros(time / 3))
}

fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let bytes = name.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    // Without a listener there is no one to tell.
    if let (Ok(socket), Ok(address)) = (UnixDatagram::unbound(), address) {
        let _ = socket.send_to_addr(state.as_bytes(), &address);
    }
}
