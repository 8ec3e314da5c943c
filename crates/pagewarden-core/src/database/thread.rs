//! Steps that a thread of its own finds: what it did not look at is never counted as good.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use crate::database::Step;
use crate::verdict::Unread;

/// What is said of a thread that ended before its work was done.
pub const FAILED: &str =
    "the program failed while it looked at this: that is an error of Pagewarden, please report it";

/// A thread that is running, and what it hands on.
struct Running {
    steps: Receiver<Step>,
    thread: JoinHandle<()>,
}

/// The steps of `work`, which begins when the first is asked for and may be `ahead` steps before those that
/// were taken. When no more are taken, what it sends comes to nothing.
///
/// A thread that fails is `unread`, under the name of a file, and so is one that could not begin.
pub fn steps_of(
    file: String,
    ahead: usize,
    work: impl FnOnce(&SyncSender<Step>) + Send + 'static,
) -> impl Iterator<Item = Step> + Send {
    let mut waiting = Some(work);
    let mut running: Option<Running> = None;
    std::iter::from_fn(move || {
        if let Some(work) = waiting.take() {
            let (sender, steps) = sync_channel(ahead);
            match Builder::new().name("steps".to_owned()).spawn(move || work(&sender)) {
                Ok(thread) => running = Some(Running { steps, thread }),
                Err(error) => {
                    let why = format!("there is no thread to look at it: {error}");
                    return Some(Step::Unread(Unread::of_file(file.clone(), why)));
                }
            }
        }
        if let Ok(step) = running.as_ref()?.steps.recv() {
            return Some(step);
        }
        let has_failed = running.take()?.thread.join().is_err();
        has_failed.then(|| Step::Unread(Unread::of_file(file.clone(), FAILED)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Note;

    #[test]
    #[allow(clippy::panic, reason = "as an error would")]
    fn thread_that_fails_is_unread_and_one_that_ends_is_not() {
        for fails in [false, true] {
            let steps = steps_of("a".to_owned(), 1, move |steps| {
                let note = Note { file: String::new(), text: "b".to_owned() };
                steps.send(Step::Note(note)).unwrap();
                if fails {
                    panic!("as an error would");
                }
            });
            let steps: Vec<_> = steps.collect();
            let expected = if fails { 2 } else { 1 };
            assert_eq!(steps.len(), expected);
            if let Some(Step::Unread(unread)) = steps.get(1) {
                assert_eq!((unread.file.as_str(), unread.error.as_str()), ("a", FAILED));
            } else {
                assert!(!fails);
            }
        }
    }
}
