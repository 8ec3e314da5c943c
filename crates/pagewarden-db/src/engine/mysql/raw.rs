//! Rows past the driver, which makes a value of every column: that takes three quarters of a
//! client's time where nothing but the bytes is asked for.
//!
//! The driver logs in and prepares the statement; then it and the server wait for each other,
//! and nothing is in its buffers. The statement is executed over the same socket, and when its
//! answer is over the driver finds the connection as it was.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;

use mysql::Conn;

use super::packets::{Answer, malformed};
use crate::error::{Error, Result};

/// Bytes that are asked of the socket at once.
const BUFFER_BYTES: usize = 256 << 10;
const COM_STMT_EXECUTE: u8 = 0x17;

/// Executes a prepared statement without parameters, and gives the packet of each row. The
/// connection must not be encrypted or compressed. It can be used again only if the answer
/// is over.
///
/// # Errors
/// The connection is gone (`Gone`), the answer malformed (`Unsupported`), or `see` gave the error.
pub fn execute(
    (connection, place): (&mut Conn, &str),
    statement: u32,
    answer: &mut Answer,
    see: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let gone =
        |error: std::io::Error| Error::Gone { place: place.to_owned(), reason: error.to_string() };
    let mut socket = socket(connection).map_err(gone)?;
    socket.write_all(&command(statement)).map_err(gone)?;
    let (mut buffer, mut filled) = (vec![0; BUFFER_BYTES], 0);
    while !answer.is_over() {
        if filled == buffer.len() {
            buffer.resize(2 * filled, 0);
        }
        match socket.read(buffer.get_mut(filled..).unwrap_or_default()) {
            Ok(0) => return Err(gone(ErrorKind::UnexpectedEof.into())),
            Ok(more) => filled += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(gone(error)),
        }
        let used = answer.take(buffer.get(..filled).unwrap_or_default(), see)?;
        buffer.copy_within(used..filled, 0);
        filled -= used;
    }
    if filled > 0 { Err(malformed("more follows its end")) } else { Ok(()) }
}

/// The packet that executes a statement: its number, no cursor, once.
fn command(statement: u32) -> [u8; 14] {
    let [a, b, c, d] = statement.to_le_bytes();
    [10, 0, 0, 0, COM_STMT_EXECUTE, a, b, c, d, 0, 1, 0, 0, 0]
}

/// True where the driver lends its socket.
pub const IS_POSSIBLE: bool = cfg!(unix);

/// It is not lent here.
#[cfg(not(unix))]
fn socket(_: &mut Conn) -> std::io::Result<TcpStream> {
    Err(ErrorKind::Unsupported.into())
}

/// The connection's socket, once more.
#[cfg(unix)]
#[allow(unsafe_code, reason = "the driver lends the number of its socket, not the socket")]
fn socket(connection: &mut Conn) -> std::io::Result<TcpStream> {
    use std::os::fd::{AsRawFd as _, BorrowedFd};

    // SAFETY: the descriptor is the connection's, which is open, and no other code may use or
    // close it meanwhile: it is borrowed here for longer than this descriptor is.
    let borrowed = unsafe { BorrowedFd::borrow_raw(connection.as_raw_fd()) };
    // Those of all families are read and written by the same calls.
    Ok(TcpStream::from(borrowed.try_clone_to_owned()?))
}
