//! Events of a binary log.
//!
//! ```text
//! offset  size  field
//!      0     4  time, in seconds since 1970
//!      4     1  kind
//!      5     4  server
//!      9     4  bytes of the event, this header included
//!     13     4  where it ends in the file, modulo 2^32; of a relay log: in the file of the source
//!     17     2  flags: 0x1 the file is in use (on the first event), 0x40 it is a relay log
//!     19        the body; at last, with `log_event_checksum = CRC32`, the CRC-32 of all before
//! ```
//!
//! The first event of a file describes it: the version of the form (2 bytes), the server (50), a time (4),
//! the length of headers (1), those of the kinds, how events are summed (1: 0 not, 1 by CRC-32), and its
//! own sum, which it always has, made while the file was not in use.
//!
//! Facts from the public documentation of MySQL and MariaDB, and from files of MariaDB 10.11 and MySQL 9.7.

/// A file begins with this.
pub(super) const MAGIC: [u8; 4] = *b"\xfebin";
/// One that MySQL has encrypted.
pub(super) const ENCRYPTED_MAGIC: [u8; 4] = *b"\xfdbin";
/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 19;
/// Bytes of a sum.
pub(super) const SUM_BYTES: u64 = 4;
/// Where the flags of an event are.
const FLAGS_AT: usize = 17;
const IN_USE: u16 = 1;
const RELAY_LOG: u16 = 0x40;
/// The version of the form, the server and a time.
const SERVER_AT: usize = HEADER_BYTES + 2;
const SERVER_BYTES: usize = 50;
/// Behind it in a description: a time, the length of headers, and the lengths of kinds.
const DESCRIPTION_BYTES_MIN: usize = SERVER_AT + SERVER_BYTES + 5;
/// How events are summed, and the event's own sum, from its end.
const ALGORITHM_FROM_END: usize = 5;

pub(super) const QUERY: u8 = 2;
pub(super) const STOP: u8 = 3;
pub(super) const ROTATE: u8 = 4;
pub(super) const DESCRIPTION: u8 = 15;
const XID: u8 = 16;
const XA_PREPARE: u8 = 38;
const TRANSACTION_PAYLOAD: u8 = 40;
/// MariaDB: what follows is encrypted.
pub(super) const BEGIN_ENCRYPTION: u8 = 164;
/// MariaDB: a statement, compressed.
const QUERY_COMPRESSED: u8 = 165;
/// The text of a statement stands behind these: thread, time, length of the database's name, error, length
/// of the variables.
const QUERY_FIELDS_BYTES: usize = 13;
/// Statements that end no transaction.
const INNER: [&[u8]; 5] = [b"BEGIN", b"SAVEPOINT", b"ROLLBACK TO", b"XA START", b"XA END"];

/// What an event says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) time: u32,
    pub(super) kind: u8,
    pub(super) bytes: u32,
    pub(super) end: u32,
    pub(super) flags: u16,
}

impl Header {
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| {
            let field = bytes.get(at..)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*field))
        };
        let flags = bytes.get(FLAGS_AT..)?.first_chunk::<2>()?;
        Some(Self {
            time: number(0)?,
            kind: *bytes.get(4)?,
            bytes: number(9)?,
            end: number(13)?,
            flags: u16::from_le_bytes(*flags),
        })
    }

    /// True if it ends where its length says, in a file in which it begins at `at`.
    pub(super) fn agrees(&self, at: u64) -> bool {
        at.saturating_add(u64::from(self.bytes)) & u64::from(u32::MAX) == u64::from(self.end)
    }

    pub(super) fn is_in_use(&self) -> bool {
        self.flags & IN_USE != 0
    }

    pub(super) fn is_of_relay_log(&self) -> bool {
        self.flags & RELAY_LOG != 0
    }
}

/// What the first event of a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Description {
    /// The server's version.
    pub(super) server: String,
    /// `None`: by an algorithm that is not known.
    pub(super) has_sums: Option<bool>,
    /// It has a sum itself: by its version, or by the algorithm that it names.
    pub(super) is_summed: bool,
}

impl Description {
    pub(super) fn parse(event: &[u8]) -> Option<Self> {
        if event.len() < DESCRIPTION_BYTES_MIN {
            return None;
        }
        let server = event.get(SERVER_AT..)?.get(..SERVER_BYTES)?;
        let server = server.split(|byte| *byte == 0).next().unwrap_or_default();
        let server = server.iter().filter(|byte| matches!(byte, b' '..=b'~'));
        let algorithm = event.len().checked_sub(ALGORITHM_FROM_END).and_then(|at| event.get(at));
        let server: String = server.map(|byte| char::from(*byte)).collect();
        let has_sums = match algorithm {
            Some(0) => Some(false),
            Some(1) => Some(true),
            _ => None,
        };
        let is_summed = has_sums.is_some() || has_algorithm(&server);
        Some(Self { server, has_sums, is_summed })
    }
}

/// True for a server that says how it sums events: MySQL 5.6.1, MariaDB 5.3, and later ones.
fn has_algorithm(server: &str) -> bool {
    let mut numbers = server.split(|letter: char| !letter.is_ascii_digit());
    let mut number = || numbers.next().and_then(|number| number.parse::<u32>().ok()).unwrap_or(0);
    let version = (number(), number(), number());
    version >= if server.contains("MariaDB") { (5, 3, 0) } else { (5, 6, 1) }
}

/// The first event as it was when its sum was made.
pub(super) fn without_use(event: &mut [u8]) {
    if let Some(flags) = event.get_mut(FLAGS_AT) {
        *flags &= !1;
    }
}

/// True if a transaction ends with this event, of which `begin` is the beginning.
pub(super) fn ends_transaction(kind: u8, begin: &[u8]) -> bool {
    match kind {
        XID | XA_PREPARE | TRANSACTION_PAYLOAD | QUERY_COMPRESSED => true,
        QUERY => statement(begin).is_none_or(|text| !INNER.iter().any(|it| text.starts_with(it))),
        _ => false,
    }
}

/// The text of a statement, as far as it is here.
fn statement(event: &[u8]) -> Option<&[u8]> {
    let body = event.get(HEADER_BYTES..)?;
    let database = usize::from(*body.get(8)?);
    let variables = u16::from_le_bytes(*body.get(11..)?.first_chunk::<2>()?);
    body.get(QUERY_FIELDS_BYTES..)?.get(usize::from(variables)..)?.get(database..)?.get(1..)
}

/// The file that a rotation leads to.
pub(super) fn next_file(event: &[u8], has_sums: bool) -> Option<String> {
    const POSITION_BYTES: usize = 8;
    let end = event.len().checked_sub(if has_sums { 4 } else { 0 })?;
    let name = event.get(..end)?.get(HEADER_BYTES..)?.get(POSITION_BYTES..)?;
    let name = std::str::from_utf8(name).ok()?;
    Some(name.rsplit('/').next().unwrap_or(name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_statements_that_end_a_transaction_do() {
        let event = |text: &str| {
            let mut event = vec![0; HEADER_BYTES + QUERY_FIELDS_BYTES];
            event[HEADER_BYTES + 8] = 4;
            event[HEADER_BYTES + 11] = 3;
            event.extend(b"varshop\0");
            event.extend(text.as_bytes());
            event
        };
        assert!(ends_transaction(QUERY, &event("COMMIT")));
        assert!(ends_transaction(QUERY, &event("CREATE TABLE t (a INT)")));
        assert!(!ends_transaction(QUERY, &event("BEGIN")));
        assert!(!ends_transaction(QUERY, &event("SAVEPOINT a")));
        assert!(ends_transaction(XID, &[]) && !ends_transaction(ROTATE, &[]));
    }

    #[test]
    fn ends_are_counted_modulo_four_gibibytes() {
        let header = Header { time: 0, kind: 2, bytes: 100, end: 44, flags: 0 };
        assert!(header.agrees((1 << 32) - 56) && !header.agrees(56));
    }
}
