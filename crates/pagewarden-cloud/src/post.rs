//! Posts a message to an address, for notifications.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pagewarden::words::printable;
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;

use crate::io_thread::IoThread;

/// A receiver takes a message within this, or it has not taken it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Posts `body` with these lines in its head, and waits for an answer of 2xx. No redirect is followed:
/// it could lead a message that is signed for one receiver to another.
///
/// # Errors
/// Why it was not taken, or not for sure, in words that do not have the address, which may be a
/// password.
pub fn post(
    url: &str,
    headers: &[(&'static str, String)],
    body: &str,
    stop: &AtomicBool,
) -> Result<(), String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let told = |error: reqwest::Error| printable(&causes(&error.without_url()));
    let client = reqwest::Client::builder().redirect(Policy::none()).timeout(PATIENCE).build();
    let mut request = client.map_err(told)?.post(url).body(body.to_owned());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| error.to_string())?;
        let value = HeaderValue::from_str(value).map_err(|error| error.to_string())?;
        request = request.header(name, value);
    }
    let io = IoThread::begin().map_err(|error| error.to_string())?;
    // Its time begins to run when it is sent, which is for the runtime's own thread to do.
    let answer = io.wait(stop, async move { request.send().await });
    let answer = answer.ok_or("stopped before an answer came")?;
    let status = answer.map_err(told)?.status();
    if status.is_success() { Ok(()) } else { Err(format!("the receiver answered {status}")) }
}

/// An error with what caused it.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
