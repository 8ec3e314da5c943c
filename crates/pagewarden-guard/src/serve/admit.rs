//! Which requests are answered: by the names they were sent to and come from, and by a token.

use std::path::Path;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::Settings;
use super::http::{Answer, Asked};
use crate::notify::way::secret;

/// A secret that requests must have, as `Authorization: Bearer TOKEN`, or as the password of a browser's
/// question.
#[derive(Clone)]
pub struct Token(String);

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Reads it from a file that only its owner can read.
    ///
    /// # Errors
    /// It cannot be read, others can read it, or it is too short.
    pub fn read(file: &Path) -> Result<Self> {
        secret(file).map(Self)
    }

    /// True if a value of `Authorization` has it.
    fn is_in(&self, value: &str) -> bool {
        let Some((scheme, rest)) = value.split_once(' ') else { return false };
        let rest = rest.trim();
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.is(rest.as_bytes());
        }
        let pair = scheme.eq_ignore_ascii_case("basic").then(|| STANDARD.decode(rest).ok());
        let pair = pair.flatten().unwrap_or_default();
        // The name before the colon is of no interest.
        let mut parts = pair.splitn(2, |byte| *byte == b':');
        parts.next();
        parts.next().is_some_and(|password| self.is(password))
    }

    /// Takes the same time whatever is wrong.
    fn is(&self, given: &[u8]) -> bool {
        let digest = |text: &[u8]| {
            let mac = Hmac::<Sha256>::new_from_slice(b"pagewarden token").ok();
            mac.map(|mac| mac.chain_update(text).finalize())
        };
        // The comparison of such results is that of the library, in constant time.
        digest(given).zip(digest(self.0.as_bytes())).is_some_and(|(one, other)| one == other)
    }
}

/// Whether a request may be answered; an error is what it gets instead.
pub(super) fn admit(settings: &Settings, asked: &Asked) -> Result<(), Answer> {
    let refused = |words| Err(Answer::plain(403, words));
    let mut hosts = asked.values("Host");
    let host = hosts.next();
    if hosts.next().is_some() {
        return refused("one Host is enough");
    }
    let is_known = |authority: &str| {
        let name = name_of(authority);
        matches!(name, "127.0.0.1" | "localhost" | "[::1]")
            || settings.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
            || (settings.behind_proxy && settings.hosts.is_empty())
    };
    match host {
        Some(host) if is_known(host) => {}
        Some(_) => return refused("this name is not known here (--host NAME makes it known)"),
        None => return refused("a request needs a Host"),
    }
    for origin in asked.values("Origin") {
        let authority = origin.split_once("://").map_or("", |(_, authority)| authority);
        if !is_known(authority) {
            return refused("pages of other sites get no answer here");
        }
    }
    if let Some(token) = &settings.token
        && !asked.values("Authorization").any(|value| token.is_in(value))
    {
        return Err(Answer::plain(401, "a token is needed: the one in --token-file"));
    }
    Ok(())
}

/// The name in `name:port`.
fn name_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(behind_proxy: bool, hosts: &[&str], token: Option<&str>) -> Settings {
        Settings {
            listen: ([127, 0, 0, 1], 0).into(),
            behind_proxy,
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            token: token.map(|token| Token(token.to_owned())),
            tls: None,
            state: std::path::PathBuf::new(),
            stop: std::sync::Arc::default(),
        }
    }

    fn answer(settings: &Settings, headers: &[(&str, &str)]) -> u16 {
        let headers =
            headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let asked = Asked { headers, ..Asked::default() };
        admit(settings, &asked).map_or_else(|answer| answer.status, |()| 200)
    }

    fn admits(settings: &Settings, headers: &[(&str, &str)]) -> bool {
        answer(settings, headers) == 200
    }

    #[test]
    fn only_known_names_are_answered() {
        let here = settings(false, &[], None);
        for host in ["127.0.0.1:9750", "localhost", "[::1]:9750", "localhost:1"] {
            assert!(admits(&here, &[("Host", host)]), "{host}");
        }
        for host in
            ["evil.example", "127.0.0.1.evil.example", "localhost.", "", "a:b:1", "127.0.0.2"]
        {
            assert!(!admits(&here, &[("Host", host)]), "{host}");
        }
        assert!(!admits(&here, &[]));
        assert!(!admits(&here, &[("Host", "localhost"), ("host", "localhost")]));
        assert!(!admits(&here, &[("Host", "localhost"), ("Origin", "https://evil.example")]));
        assert!(!admits(&here, &[("Host", "localhost"), ("Origin", "null")]));
        assert!(admits(&here, &[("Host", "localhost"), ("Origin", "http://localhost:9750")]));
        assert!(admits(&settings(false, &["db.example"], None), &[("Host", "DB.example:80")]));
        assert!(admits(&settings(true, &[], None), &[("Host", "anything.example")]));
        let named = settings(true, &["db.example"], None);
        assert!(!admits(&named, &[("Host", "anything.example")]));
    }

    #[test]
    fn token_is_asked_for_and_nothing_but_it_is_taken() {
        let with = settings(false, &[], Some("0123456789abcdef"));
        let host = ("Host", "localhost");
        assert_eq!(answer(&with, &[host]), 401);
        assert!(admits(&with, &[host, ("authorization", "Bearer 0123456789abcdef")]));
        let basic = STANDARD.encode("any:0123456789abcdef");
        assert!(admits(&with, &[host, ("Authorization", &format!("Basic {basic}"))]));
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer ",
            "Bearer",
            "0123456789abcdef",
            "Digest 0123456789abcdef",
            "Basic MDEyMzQ1Njc4OWFiY2RlZg==",
            "Basic =",
        ] {
            assert_eq!(answer(&with, &[host, ("Authorization", wrong)]), 401, "{wrong}");
        }
        // A name that is not known is refused before any token is looked at.
        let elsewhere = ("Host", "evil.example");
        let good = ("Authorization", "Bearer 0123456789abcdef");
        assert_eq!(answer(&with, &[elsewhere, good]), 403);
        assert!(!format!("{with:?}").contains("0123456789abcdef"));
    }
}
