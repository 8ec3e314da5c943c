//! The answer to `COM_STMT_EXECUTE`, as the description of the protocol by MariaDB and MySQL
//! has it, where the client did not ask for `DEPRECATE_EOF`.
//!
//! | part of a packet | bytes |
//! |---|---|
//! | length of the payload; if it is 2^24 - 1, it goes on in the next packet | 3, little-endian |
//! | number of the packet in the answer, from 1, modulo 256 | 1 |
//! | payload | the rest |
//!
//! | packet | payload |
//! |---|---|
//! | count of columns | the count; MariaDB may append 0: no definitions follow |
//! | definition of a column, as many | left out here: the types are known |
//! | end of these | 0xfe and 4 bytes |
//! | row | 0x00, a bit for each NULL, the values; the types tell how long they are |
//! | end of the rows | 0xfe and 4 bytes |
//! | an error instead of any of them | 0xff, code (2), `#` and a state (6), message |

use crate::error::{Error, Result};

const HEADER_BYTES: usize = 4;
/// A payload of this number of bytes goes on in the next packet.
const LONGEST: usize = (1 << 24) - 1;

/// No server sends a longer row: it is the most that `max_allowed_packet` can be. What is longer
/// would only take our memory.
const PAYLOAD_BYTES_MAX: usize = 1 << 30;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Count,
    Definitions(usize),
    EndOfDefinitions,
    Rows,
    Over,
}

/// What the server said instead of the rest of the rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its number of the error.
    pub code: u16,
    /// Its words.
    pub message: String,
}

/// An answer while it comes.
#[derive(Debug)]
pub struct Answer {
    columns: usize,
    stage: Stage,
    /// The number of the next packet.
    number: u8,
    /// A payload that goes on.
    begun: Vec<u8>,
    payload_bytes_max: usize,
    refusal: Option<Refusal>,
}

impl Answer {
    /// An answer with rows of `columns` columns.
    pub fn new(columns: usize) -> Self {
        let (stage, begun) = (Stage::Count, Vec::new());
        let payload_bytes_max = PAYLOAD_BYTES_MAX;
        Self { columns, stage, number: 1, begun, payload_bytes_max, refusal: None }
    }

    /// True if nothing more comes.
    pub fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// Why not all rows came, if the server said so.
    pub fn into_refusal(self) -> Option<Refusal> {
        self.refusal
    }

    /// Takes what has come as far as packets are whole, gives the rows, and tells how many
    /// bytes were taken. The others are to be given again, with more.
    ///
    /// # Errors
    /// The answer is not what it should be (`Unsupported`), or `see` gave the error.
    pub fn take(
        &mut self,
        bytes: &[u8],
        see: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<usize> {
        let mut used = 0;
        while !self.is_over() {
            let rest = bytes.get(used..).unwrap_or_default();
            let Some((header, rest)) = rest.split_first_chunk::<HEADER_BYTES>() else { break };
            let [low, middle, high, number] = *header;
            let length = usize::from(low) | usize::from(middle) << 8 | usize::from(high) << 16;
            let Some(payload) = rest.get(..length) else { break };
            if number != self.number {
                return Err(malformed("a packet is missing"));
            }
            self.number = number.wrapping_add(1);
            used += HEADER_BYTES + length;
            if self.begun.len().saturating_add(length) > self.payload_bytes_max {
                return Err(malformed("a packet is longer than any server sends"));
            }
            if length == LONGEST {
                self.begun.extend_from_slice(payload);
            } else if self.begun.is_empty() {
                self.packet(payload, see)?;
            } else {
                let mut whole = std::mem::take(&mut self.begun);
                whole.extend_from_slice(payload);
                self.packet(&whole, see)?;
            }
        }
        Ok(used)
    }

    fn packet(&mut self, payload: &[u8], see: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (kind, rest) = payload.split_first().ok_or_else(|| malformed("a packet is empty"))?;
        // An end has 5 bytes, and no row or definition begins like it.
        let is_end = *kind == 0xfe && rest.len() == 4;
        self.stage = match self.stage {
            _ if *kind == 0xff => {
                self.refusal = Some(refusal(rest).ok_or_else(|| malformed("an error is cut"))?);
                Stage::Over
            }
            Stage::Count => self.count(*kind, rest)?,
            Stage::Definitions(1) => Stage::EndOfDefinitions,
            Stage::Definitions(left) => Stage::Definitions(left.saturating_sub(1)),
            Stage::EndOfDefinitions if is_end => Stage::Rows,
            Stage::Rows if is_end => Stage::Over,
            Stage::Rows if *kind == 0 => {
                see(payload)?;
                Stage::Rows
            }
            _ => return Err(malformed("a packet is of another kind")),
        };
        Ok(())
    }

    /// What follows the count of columns.
    fn count(&self, first: u8, rest: &[u8]) -> Result<Stage> {
        let (count, rest) = match (first, rest) {
            (0xfc, [low, high, rest @ ..]) => {
                (usize::from(u16::from_le_bytes([*low, *high])), rest)
            }
            (1..=0xfa, rest) => (usize::from(first), rest),
            _ => return Err(malformed("it has no rows")),
        };
        if count != self.columns {
            return Err(malformed("it has another number of columns"));
        }
        match rest {
            [0] => Ok(Stage::EndOfDefinitions),
            [] | [1] => Ok(Stage::Definitions(count)),
            _ => Err(malformed("its begin is longer")),
        }
    }
}

fn refusal(payload: &[u8]) -> Option<Refusal> {
    let (code, rest) = payload.split_first_chunk::<2>()?;
    let message = match rest {
        [b'#', _, _, _, _, _, message @ ..] => message,
        other => other,
    };
    let message = String::from_utf8_lossy(message).into_owned();
    Some(Refusal { code: u16::from_le_bytes(*code), message })
}

/// What came is not what the protocol says.
pub fn malformed(what: &str) -> Error {
    Error::Unsupported(format!("the answer of rows is malformed: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: &[u8] = &[0xfe, 0, 0, 2, 0];

    fn packets(payloads: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut number = 1_u8;
        for payload in payloads {
            // One of exactly the longest has an empty one behind it.
            let parts = payload.len() / LONGEST + 1;
            for part in 0..parts {
                let part = &payload[part * LONGEST..payload.len().min((part + 1) * LONGEST)];
                bytes.extend_from_slice(&u32::try_from(part.len()).unwrap().to_le_bytes()[..3]);
                bytes.push(number);
                bytes.extend_from_slice(part);
                number = number.wrapping_add(1);
            }
        }
        bytes
    }

    fn plain() -> Vec<u8> {
        packets(&[&[2], b"\x03def1", b"\x03def2", END, &[0, 0, 7, 8], &[0, 4, 9], END])
    }

    /// The rows of an answer that comes in pieces.
    fn read(pieces: &[&[u8]]) -> Result<(Vec<Vec<u8>>, Answer)> {
        let (mut answer, mut waiting, mut rows) = (Answer::new(2), Vec::new(), Vec::new());
        for piece in pieces {
            waiting.extend_from_slice(piece);
            let used = answer.take(&waiting, &mut |row| {
                rows.push(row.to_vec());
                Ok(())
            })?;
            waiting.drain(..used);
        }
        Ok((rows, answer))
    }

    #[test]
    fn answer_may_be_cut_anywhere() {
        let bytes = plain();
        let wanted = vec![vec![0, 0, 7, 8], vec![0, 4, 9]];
        for cut in 0..=bytes.len() {
            let (one, other) = bytes.split_at(cut);
            let (rows, answer) = read(&[one, other]).unwrap();
            assert_eq!((&rows, answer.is_over()), (&wanted, true), "{cut}");
            assert_eq!(read(&[one]).unwrap().1.is_over(), cut == bytes.len(), "{cut}");
        }
    }

    #[test]
    fn definitions_may_be_left_out() {
        let (rows, answer) = read(&[&packets(&[&[2, 0], END, &[0, 0, 1], END])]).unwrap();
        assert_eq!((rows, answer.is_over()), (vec![vec![0, 0, 1]], true));
        let (rows, answer) = read(&[&packets(&[&[2, 0], END, END])]).unwrap();
        assert_eq!((rows, answer.is_over()), (vec![], true));
    }

    #[test]
    fn long_rows_are_put_together() {
        for more in [0, 1, LONGEST, LONGEST + 5] {
            let mut row = vec![5; LONGEST + more];
            row[0] = 0;
            let bytes = packets(&[&[2, 0], END, &row, &[0, 0, 1], END]);
            let (rows, answer) = read(&[&bytes]).unwrap();
            assert!(rows == [row, vec![0, 0, 1]], "{more}");
            assert!(answer.is_over());
        }
    }

    #[test]
    fn a_row_without_an_end_takes_no_memory_without_an_end() {
        let mut answer = Answer { payload_bytes_max: 3 * LONGEST, ..Answer::new(2) };
        let begin = packets(&[&[2, 0], END]);
        answer.take(&begin, &mut |_| Ok(())).unwrap();
        let mut piece = vec![0; HEADER_BYTES + LONGEST];
        piece[..3].copy_from_slice(&[0xff; 3]);
        for number in 3..6 {
            piece[3] = number;
            assert_eq!(answer.take(&piece, &mut |_| Ok(())).unwrap(), piece.len());
        }
        piece[3] = 6;
        let error = answer.take(&piece, &mut |_| Ok(())).unwrap_err().to_string();
        assert!(error.contains("longer than any server sends"), "{error}");
        assert_eq!(answer.begun.len(), 3 * LONGEST);
    }

    #[test]
    fn error_ends_the_rows_and_is_told() {
        let error = b"\xff\x25\x05#70100Query was killed";
        for before in [&[][..], &[&[2_u8][..]], &[&[2, 0], END, &[0, 0, 1]]] {
            let (_, answer) = read(&[&packets(&[before, &[error]].concat())]).unwrap();
            assert!(answer.is_over());
            let message = "Query was killed".to_owned();
            assert_eq!(answer.into_refusal(), Some(Refusal { code: 1317, message }));
        }
    }

    #[test]
    fn what_is_no_such_answer_is_refused() {
        for payloads in [
            &[&[3_u8][..]][..],
            &[&[0, 0, 0]],
            &[&[0xfb, b'f']],
            &[&[2, 7]],
            &[&[]],
            &[&[2, 0], &[0, 0, 1]],
            &[&[2, 0], END, &[1, 2]],
            &[&[2, 0], END, &[0xff]],
        ] {
            assert!(read(&[&packets(payloads)]).is_err(), "{payloads:?}");
        }
        // A packet that is not the next.
        let mut bytes = plain();
        bytes[3] = 2;
        assert!(read(&[&bytes]).is_err());
    }
}
