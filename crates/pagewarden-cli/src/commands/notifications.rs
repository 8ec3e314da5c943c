//! Hands messages to the network, for the notifications of `scrub` and `serve`.

use std::sync::atomic::AtomicBool;

use pagewarden_guard::notify::deliver::Request;

/// Posts a message.
///
/// # Errors
/// Why it was not taken.
#[cfg(feature = "cloud")]
pub fn post(request: &Request<'_>, stop: &AtomicBool) -> Result<(), String> {
    let Request { url, link_local, headers, body } = request;
    pagewarden_cloud::post(url, *link_local, headers, body, stop)
}

/// This program was built without what speaks to the network.
///
/// # Errors
/// Always.
#[cfg(not(feature = "cloud"))]
pub fn post(_: &Request<'_>, _: &AtomicBool) -> Result<(), String> {
    Err("this pagewarden was built without `cloud`, and cannot post to a webhook".to_owned())
}
