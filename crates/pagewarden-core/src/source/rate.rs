//! A ceiling on bytes read and written a second.

use std::num::NonZero;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How fast a run may read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Rate {
    /// [`Rate::Yielding`] where a server lives on the target, else [`Rate::Unlimited`].
    #[default]
    ByTarget,
    /// As fast as the device allows.
    Unlimited,
    /// At most this number of bytes a second, over all threads.
    AtMost(NonZero<u64>),
    /// As fast as the device allows while this run has it alone, and a share of it while others
    /// use it.
    Yielding,
}

impl Rate {
    /// The bytes a second that must not be exceeded; `None` if there is no such number.
    #[must_use]
    pub fn ceiling(self) -> Option<NonZero<u64>> {
        match self {
            Self::AtMost(bytes) => Some(bytes),
            Self::ByTarget | Self::Unlimited | Self::Yielding => None,
        }
    }
}

/// A ceiling that all threads share: bytes are paid for before they are moved.
#[derive(Debug)]
pub struct RateLimiter {
    bytes_per_second: Option<NonZero<u64>>,
    /// Up to when time is paid with.
    paid_to: Mutex<Instant>,
}

/// How long a sleeper does not look whether to stop.
const NAP: Duration = Duration::from_millis(100);

impl RateLimiter {
    /// `None`: no ceiling.
    #[must_use]
    pub fn new(bytes_per_second: Option<NonZero<u64>>) -> Self {
        Self { bytes_per_second, paid_to: Mutex::new(Instant::now()) }
    }

    /// How many bytes to move at once: small enough for eight steps a second.
    #[must_use]
    pub fn step_bytes(&self, most: usize) -> usize {
        let Some(rate) = self.bytes_per_second else { return most };
        usize::try_from(rate.get() / 8).unwrap_or(most).clamp(1, most)
    }

    /// Waits until `bytes` may be moved, or `stop` is set.
    pub fn pay(&self, bytes: u64, stop: &AtomicBool) {
        let Some(rate) = self.bytes_per_second else { return };
        let price = Duration::from_secs_f64(bytes as f64 / rate.get() as f64);
        let until = {
            let mut paid_to = self.paid_to.lock().unwrap_or_else(PoisonError::into_inner);
            // Time that no thread used is lost.
            let begin = (*paid_to).max(Instant::now());
            *paid_to = begin.checked_add(price).unwrap_or(begin);
            *paid_to
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || stop.load(Ordering::Relaxed) {
                return;
            }
            std::thread::sleep(left.min(NAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_rate_wait() {
        let limiter = RateLimiter::new(NonZero::new(1 << 20));
        let begin = Instant::now();
        for _ in 0..4 {
            limiter.pay(32 << 10, &AtomicBool::new(false));
        }
        assert!(begin.elapsed() >= Duration::from_millis(120));
        assert_eq!(limiter.step_bytes(4 << 20), 128 << 10);
    }

    #[test]
    fn nothing_waits_that_is_to_stop() {
        let limiter = RateLimiter::new(NonZero::new(1));
        let begin = Instant::now();
        limiter.pay(1 << 20, &AtomicBool::new(true));
        assert!(begin.elapsed() < Duration::from_secs(60));
    }
}
