//! Requests as they go over the network: counted, and repeated where the server asks for time, or where
//! the connection to a server that had answered before broke.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use http_body_util::{BodyExt as _, Limited};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use pagewarden::report::Traffic;
use reqwest::header::RANGE;
use reqwest::{Method, StatusCode};

/// The longest answer that is waited for as a whole: more than any list, or any part that is asked for.
const WHOLE_BYTES_MAX: usize = 64 << 20;

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
        let (patience, has_answered) = (self.patience, AtomicBool::new(false));
        Ok(HttpClient::new(Patient { client, counters, patience, has_answered }))
    }
}

#[derive(Debug)]
struct Patient {
    client: HttpClient,
    counters: Arc<Counters>,
    patience: Patience,
    /// An address from which no answer ever came is more likely to be a wrong one.
    has_answered: AtomicBool,
}

impl Patient {
    /// Asks once. What is read has come whole: a connection may break in the middle of it, too.
    async fn ask(&self, request: &HttpRequest) -> Result<HttpResponse, HttpError> {
        self.counters.requests.fetch_add(1, Ordering::Relaxed);
        if request.method() == Method::PUT {
            let sent = request.body().content_length() as u64;
            self.counters.sent_bytes.fetch_add(sent, Ordering::Relaxed);
        }
        let answer = self.client.execute(request.clone()).await?;
        self.has_answered.store(true, Ordering::Relaxed);
        let (parts, body) = answer.into_parts();
        let counters = Arc::clone(&self.counters);
        let body = HttpResponseBody::new(body.map_frame(move |frame| {
            let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
            counters.bytes.fetch_add(bytes, Ordering::Relaxed);
            frame
        }));
        // A server that gives a whole file where a part was asked for is turned down by its status.
        let is_bounded =
            parts.status == StatusCode::PARTIAL_CONTENT || !request.headers().contains_key(RANGE);
        let is_to_be_whole = *request.method() == Method::GET && parts.status.is_success();
        let body = match is_to_be_whole && is_bounded {
            true => whole(body).await?,
            false => body,
        };
        Ok(HttpResponse::from_parts(parts, body))
    }

    /// True if nothing came that could be used, and might when asked for again.
    fn is_worth_repeating(
        &self,
        request: &HttpRequest,
        answer: &Result<HttpResponse, HttpError>,
    ) -> bool {
        match answer {
            Ok(answer) => {
                let status = answer.status();
                status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
            }
            // A server that said nothing for a minute was given time enough. What is put may be there by
            // now: of a part the last one counts, and `Upload` looks whether an object is its own.
            Err(error) => {
                matches!(*request.method(), Method::GET | Method::HEAD | Method::PUT)
                    && self.has_answered.load(Ordering::Relaxed)
                    && error.kind() != HttpErrorKind::Timeout
            }
        }
    }
}

/// The same body, once all of it is here.
async fn whole(body: HttpResponseBody) -> Result<HttpResponseBody, HttpError> {
    match Limited::new(body, WHOLE_BYTES_MAX).collect().await {
        Ok(collected) => Ok(collected.to_bytes().into()),
        Err(error) => Err(match error.downcast::<HttpError>() {
            Ok(error) => *error,
            Err(error) => HttpError::new_boxed(HttpErrorKind::Decode, error),
        }),
    }
}

#[async_trait]
impl HttpService for Patient {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut tries = 0;
        loop {
            let answer = self.ask(&request).await;
            let is_last = tries >= self.patience.retries;
            if is_last || !self.is_worth_repeating(&request, &answer) {
                return answer;
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
