//! Requests as they go over the network: counted, and repeated where the server asks for time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::BodyExt as _;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    ReqwestConnector,
};
use pagewarden::report::Traffic;
use reqwest::Method;

/// The answer "too many requests".
const TOO_MANY: u16 = 429;

/// How often a request is repeated, and how long is waited before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Patience {
    retries: u32,
    /// Before the first repetition; twice as long before each next one.
    first_wait: Duration,
    longest_wait: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            retries: 6,
            first_wait: Duration::from_millis(200),
            longest_wait: Duration::from_secs(20),
        }
    }
}

impl Patience {
    /// Takes our own settings out of the options, which the clouds do not know.
    ///
    /// # Errors
    /// Which one is wrong.
    pub(crate) fn take_from(options: &mut Vec<(String, String)>) -> Result<Self, String> {
        let mut patience = Self::default();
        let mut wrong = None;
        options.retain(|(key, value)| {
            let number = value.parse::<u32>();
            let taken = match key.as_str() {
                "retries" => number.map(|retries| patience.retries = retries),
                "retry_wait_ms" => number.map(|milliseconds| {
                    patience.first_wait = Duration::from_millis(u64::from(milliseconds));
                }),
                _ => return true,
            };
            if taken.is_err() {
                wrong = Some(format!("{key} is a number, and {value:?} is none"));
            }
            false
        });
        wrong.map_or(Ok(patience), Err)
    }

    fn wait(self, tries: u32) -> Duration {
        let factor = 2_u32.saturating_pow(tries.min(16));
        self.first_wait.saturating_mul(factor).min(self.longest_wait)
    }
}

/// What went over the network.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: AtomicU64,
    retries: AtomicU64,
    bytes: AtomicU64,
    sent_bytes: AtomicU64,
}

impl Counters {
    pub(crate) fn traffic(&self) -> Traffic {
        Traffic {
            requests: self.requests.load(Ordering::Relaxed),
            retries: self.retries.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            sent_bytes: self.sent_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Makes clients that count and repeat.
#[derive(Debug)]
pub(crate) struct Connector {
    counters: Arc<Counters>,
    patience: Patience,
}

impl Connector {
    pub(crate) fn new(counters: Arc<Counters>, patience: Patience) -> Self {
        Self { counters, patience }
    }
}

impl HttpConnector for Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        let counters = Arc::clone(&self.counters);
        Ok(HttpClient::new(Patient { client, counters, patience: self.patience }))
    }
}

#[derive(Debug)]
struct Patient {
    client: HttpClient,
    counters: Arc<Counters>,
    patience: Patience,
}

#[async_trait]
impl HttpService for Patient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut tries = 0;
        loop {
            self.counters.requests.fetch_add(1, Ordering::Relaxed);
            if request.method() == Method::PUT {
                let sent = request.body().content_length() as u64;
                self.counters.sent_bytes.fetch_add(sent, Ordering::Relaxed);
            }
            let answer = self.client.execute(request.clone()).await?;
            let status = answer.status();
            let asks_for_time = status.is_server_error() || status.as_u16() == TOO_MANY;
            if !asks_for_time || tries >= self.patience.retries {
                let (parts, body) = answer.into_parts();
                let counters = Arc::clone(&self.counters);
                let body = body.map_frame(move |frame| {
                    let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                    counters.bytes.fetch_add(bytes, Ordering::Relaxed);
                    frame
                });
                return Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)));
            }
            drop(answer);
            self.counters.retries.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(self.patience.wait(tries)).await;
            tries += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound() {
        let patience = Patience::default();
        assert_eq!(patience.wait(0), Duration::from_millis(200));
        assert_eq!(patience.wait(3), Duration::from_millis(1600));
        assert_eq!(patience.wait(u32::MAX), Duration::from_secs(20));
    }

    #[test]
    fn our_own_options_are_taken_and_the_others_left() {
        let option = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let mut options = vec![option("retries", "2"), option("region", "x")];
        assert_eq!(Patience::take_from(&mut options).unwrap().retries, 2);
        assert_eq!(options, [option("region", "x")]);
        assert!(Patience::take_from(&mut vec![option("retries", "many")]).is_err());
    }
}
