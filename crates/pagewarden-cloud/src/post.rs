//! Posts a message to an address, for notifications.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use pagewarden::words::printable;
use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{HeaderName, HeaderValue};
use reqwest::redirect::Policy;

use crate::io_thread::IoThread;

/// A receiver takes a message within this, or it has not taken it.
const PATIENCE: Duration = Duration::from_secs(10);
/// Where a cloud has the keys of its machines beside the link-local addresses.
const METADATA: Ipv6Addr = Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
const REFUSED: &str = "it is a link-local address, where clouds keep the keys of their machines\n\
                       hint: allow_link_local = true in its [[notify]], if it is meant";

/// Posts `body` with these lines in its head, and waits for an answer of 2xx. No redirect is followed:
/// it could lead a message that is signed for one receiver to another. A name that leads to a
/// link-local address is refused, unless `link_local`.
///
/// # Errors
/// Why it was not taken, or not for sure, in words that do not have the address, which may be a
/// password.
pub fn post(
    url: &str,
    link_local: bool,
    headers: &[(&'static str, String)],
    body: &str,
    stop: &AtomicBool,
) -> Result<(), String> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let told = |error: reqwest::Error| printable(&causes(&error.without_url()));
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let mut client = reqwest::Client::builder().redirect(Policy::none()).timeout(PATIENCE);
    if !link_local {
        // Numbers are not looked up; read by then, they have one form.
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        if host.parse().is_ok_and(is_link_local) {
            return Err(REFUSED.to_owned());
        }
        client = client.dns_resolver(Arc::new(Elsewhere));
    }
    let mut request = client.build().map_err(told)?.post(url).body(body.to_owned());
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

/// Looks names up as the system does, and leaves link-local addresses out.
#[derive(Debug)]
struct Elsewhere;

impl Resolve for Elsewhere {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let allowed: Vec<SocketAddr> = found.filter(|at| !is_link_local(at.ip())).collect();
            if allowed.is_empty() {
                return Err(REFUSED.into());
            }
            Ok(Box::new(allowed.into_iter()) as Addrs)
        })
    }
}

fn is_link_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local() || address == METADATA,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_local_addresses_are_refused_however_they_are_written() {
        let stop = AtomicBool::new(false);
        for host in [
            "169.254.169.254",
            "169.254.0.1:80",
            "0xa9fea9fe",
            "2852039166",
            "169.254.43518",
            "[fe80::1]",
            "[febf::1]:8080",
            "[::ffff:169.254.169.254]",
            "[fd00:ec2::254]",
        ] {
            let refused = post(&format!("http://{host}/x"), false, &[], "", &stop).unwrap_err();
            assert_eq!(refused, REFUSED, "{host}");
        }
        for address in ["127.0.0.1", "169.253.1.1", "10.0.0.1", "fec0::1", "::1", "fd00:ec2::1"] {
            assert!(!is_link_local(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn names_are_looked_up_and_reached() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = std::thread::spawn(move || {
            use std::io::{Read as _, Write as _};
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 4096]);
            stream.write_all(b"HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        let stop = AtomicBool::new(false);
        post(&format!("http://localhost:{port}/x"), false, &[], "x", &stop).unwrap();
        served.join().unwrap();
    }
}
