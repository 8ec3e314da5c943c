//! Work that is shared between threads.

use std::sync::atomic::{AtomicUsize, Ordering};

/// Does the pieces of some work, counted from 0, by this number of threads: each takes the next piece, until there
/// is none. What came of them, in their order.
pub(super) fn side_by_side<T: Send>(
    threads: usize,
    piece: impl Fn(usize) -> Option<T> + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = piece(number) else { return done };
            done.push((number, one));
        }
    };
    let mut done = std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut done = work();
        for other in others {
            match other.join() {
                Ok(more) => done.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        done
    });
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_piece_is_done_once_and_stands_in_its_place() {
        for threads in [0, 1, 2, 5] {
            let done = side_by_side(threads, |number| (number < 100).then_some(number * 3));
            assert_eq!(done, (0..100).map(|number| number * 3).collect::<Vec<_>>());
        }
        assert!(side_by_side(2, |_| None::<u8>).is_empty());
    }
}
