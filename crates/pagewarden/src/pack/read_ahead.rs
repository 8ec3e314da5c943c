//! Detects sequential readers, and decides how far ahead of them to expand.
//!
//! A file may have several such readers at once (*streams*), and requests of one
//! reader may come a little out of order, since a kernel hands them to several
//! threads. What a stream has asked for is never asked for again: its mark only
//! moves forward.

use std::collections::HashMap;
use std::ops::Range;

/// What one thread expands at a time, and what the mark moves by.
pub(super) const JOB_BYTES: u64 = 256 << 10;
/// How far ahead a reader is served who has only just been found to be one.
const FIRST_WINDOW: u64 = 2 * JOB_BYTES;
/// Streams of a file that are remembered.
const STREAMS_MAX: usize = 8;
/// A reader may skip this much, or come this late; more if its requests are longer.
const SLACK_MIN: u64 = 16 << 10;
const SLACK_MAX: u64 = 4 << 20;
/// Requests one after the other that make a stream, and how far they must have come:
/// lookups in a small file lie close to each other, too.
const STEPS_MIN: u32 = 3;
const WAY_MIN: u64 = 64 << 10;

/// Tells streams from other readers.
#[derive(Debug)]
pub(super) struct Detector {
    files: HashMap<usize, Vec<Stream>>,
    window: u64,
    clock: u64,
}

#[derive(Debug)]
struct Stream {
    /// Where it began.
    begin: u64,
    /// Where the next request begins, if it is one of this stream.
    next: u64,
    /// Up to here blocks have been asked for.
    mark: u64,
    steps: u32,
    window: u64,
    last_seen: u64,
}

/// What follows from a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Advice {
    /// The reader goes through the file.
    pub(super) is_stream: bool,
    /// What to expand now, in whole jobs.
    pub(super) ahead: Option<Range<u64>>,
}

impl Detector {
    pub(super) fn new(window: u64) -> Self {
        Self { files: HashMap::new(), window, clock: 0 }
    }

    /// Learns of a request. `room` is how much may be expanded ahead at all.
    pub(super) fn request(
        &mut self,
        file: usize,
        file_bytes: u64,
        asked: Range<u64>,
        room: u64,
    ) -> Advice {
        self.clock = self.clock.saturating_add(1);
        let streams = self.files.entry(file).or_default();
        let bytes = asked.end.saturating_sub(asked.start);
        let slack = bytes.saturating_mul(4).clamp(SLACK_MIN, SLACK_MAX);
        let found = streams.iter_mut().find(|stream| {
            asked.start <= stream.next.saturating_add(slack)
                && asked.end.saturating_add(slack) >= stream.next
        });
        let Some(stream) = found else {
            let new = Stream {
                begin: asked.start,
                next: asked.end,
                mark: 0,
                steps: 1,
                window: FIRST_WINDOW.min(self.window),
                last_seen: self.clock,
            };
            let is_full = streams.len() >= STREAMS_MAX;
            match streams.iter_mut().min_by_key(|stream| stream.last_seen) {
                Some(oldest) if is_full => *oldest = new,
                _ => streams.push(new),
            }
            return Advice::default();
        };
        stream.last_seen = self.clock;
        if asked.end > stream.next {
            stream.next = asked.end;
            stream.steps = stream.steps.saturating_add(1);
        }
        // A reader that reads one place again and again does not go on.
        if stream.steps < STEPS_MIN || stream.next.saturating_sub(stream.begin) < WAY_MIN {
            return Advice::default();
        }
        stream.window = stream.window.max(bytes.saturating_mul(2)).min(self.window);
        Advice { is_stream: true, ahead: stream.advance(file_bytes, self.window, room) }
    }
}

impl Stream {
    fn advance(&mut self, file_bytes: u64, window_max: u64, room: u64) -> Option<Range<u64>> {
        let begin = self.mark.max(self.next) / JOB_BYTES * JOB_BYTES;
        let begin = if begin < self.mark { begin.saturating_add(JOB_BYTES) } else { begin };
        let goal = self.next.saturating_add(self.window).min(file_bytes);
        // Whole jobs, but for the file's last one.
        let whole = goal / JOB_BYTES * JOB_BYTES;
        let end = if goal == file_bytes { file_bytes } else { whole };
        let end = end.min(begin.saturating_add(room / JOB_BYTES * JOB_BYTES));
        if end <= begin {
            return None;
        }
        self.mark = end;
        self.window = self.window.saturating_mul(2).min(window_max);
        Some(begin..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 100 << 20;
    const WINDOW: u64 = 4 << 20;
    const ROOM: u64 = 32 << 20;

    /// All that is asked for while these requests are made.
    fn ahead(requests: impl IntoIterator<Item = Range<u64>>) -> Vec<Range<u64>> {
        let mut detector = Detector::new(WINDOW);
        let asked = |request| detector.request(3, FILE, request, ROOM).ahead;
        requests.into_iter().filter_map(asked).collect()
    }

    fn steps(begin: u64, step: u64, count: u64) -> impl Iterator<Item = Range<u64>> {
        (0..count).map(move |number| begin + number * step..begin + (number + 1) * step)
    }

    #[test]
    fn a_scan_is_served_ahead_and_nothing_twice() {
        for step in [4096, 8192, 128 << 10, 1 << 20] {
            let asked = ahead(steps(0, step, FILE / step));
            assert_eq!(asked.last().unwrap().end, FILE, "{step}");
            for pair in asked.windows(2) {
                assert_eq!(pair[0].end, pair[1].start, "{step}");
            }
            // At its full width it is a window ahead.
            let mut detector = Detector::new(WINDOW);
            for request in steps(0, step, (20 << 20) / step) {
                detector.request(0, FILE, request, ROOM);
            }
            let mark = detector.files[&0][0].mark;
            assert!((20 << 20) + WINDOW - mark < JOB_BYTES + step, "{step}: {mark}");
        }
    }

    #[test]
    fn requests_out_of_order_are_one_stream() {
        let mut requests: Vec<_> = steps(0, 128 << 10, 64).collect();
        for pair in requests.chunks_mut(3) {
            pair.reverse();
        }
        let asked = ahead(requests);
        for pair in asked.windows(2) {
            assert_eq!(pair[0].end, pair[1].start);
        }
        assert!(asked.last().unwrap().end >= 11 << 20);
    }

    #[test]
    fn streams_beside_each_other_are_told_apart() {
        let (one, other) = (steps(0, 8192, 500), steps(50 << 20, 8192, 500));
        let asked = ahead(one.zip(other).flat_map(|(one, other)| [one, other]));
        let low: Vec<_> = asked.iter().filter(|range| range.start < 40 << 20).collect();
        let high: Vec<_> = asked.iter().filter(|range| range.start >= 50 << 20).collect();
        assert!(low.len() > 3 && high.len() > 3 && low.len() + high.len() == asked.len());
    }

    #[test]
    fn lookups_are_no_stream() {
        let mut state = 7_u64;
        let requests: Vec<_> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 20) % (FILE / 8192) * 8192;
            at..at + 8192
        })
        .take(2000)
        .collect();
        let wasted: u64 = ahead(requests).iter().map(|range| range.end - range.start).sum();
        // By chance some lie beside another one; they must not cost more than they read.
        assert!(wasted < 2000 * 8192, "{wasted}");
        assert_eq!(ahead(std::iter::repeat_n(0..8192, 100)), []);
    }

    #[test]
    fn no_room_is_no_advice_but_the_stream_stays() {
        let mut detector = Detector::new(WINDOW);
        for request in steps(0, 128 << 10, 20) {
            assert_eq!(detector.request(0, FILE, request, 0).ahead, None);
        }
        let advice = detector.request(0, FILE, 20 * (128 << 10)..21 * (128 << 10), ROOM);
        assert!(advice.is_stream && advice.ahead.is_some());
    }

    #[test]
    fn the_end_of_a_file_is_the_end() {
        let file_bytes = (1 << 20) + 5000;
        let mut detector = Detector::new(WINDOW);
        let mut asked = Vec::new();
        for request in steps(0, 8192, file_bytes / 8192) {
            asked.extend(detector.request(0, file_bytes, request, ROOM).ahead);
        }
        assert_eq!(asked.last().unwrap().end, file_bytes);
    }
}
