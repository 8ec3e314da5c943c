//! The answer to a statement of MariaDB or MySQL, cut anywhere: the same rows come of it.
//!
//! The first byte of the input is the count of columns, the second the length of its pieces.

use pagewarden_db::engine::mysql::packets::Answer;

/// Runs one input.
pub(crate) fn run(input: &[u8]) {
    let [columns, piece, bytes @ ..] = input else { return };
    let read = |length: usize| {
        let (mut answer, mut waiting, mut rows) =
            (Answer::new(usize::from(*columns)), Vec::new(), Vec::new());
        let result = bytes.chunks(length).try_for_each(|piece| {
            waiting.extend_from_slice(piece);
            let used = answer.take(&waiting, &mut |row| {
                assert_eq!(row.first(), Some(&0));
                rows.push(row.to_vec());
                Ok(())
            })?;
            waiting.drain(..used);
            Ok::<(), pagewarden_db::error::Error>(())
        });
        // What follows the end, or what is malformed, is not read; else what is left waits.
        let left = if answer.is_over() || result.is_err() { 0 } else { waiting.len() };
        (result.is_ok(), rows, answer.is_over(), left, answer.into_refusal())
    };
    assert_eq!(read(bytes.len().max(1)), read(usize::from(*piece) + 1));
}
