//! Logging in. The server chooses how; whatever it asks for, what cannot be done is an error
//! with a hint.
//!
//! | plugin | |
//! |---|---|
//! | `mysql_native_password`, `caching_sha2_password`, `client_ed25519`, `parsec` | supported |
//! | `mysql_old_password`, `mysql_clear_password` | refused: they give the password away |
//! | `sha256_password` | not known to the driver; the error has the statement that gives the user `caching_sha2_password` |
//! | GSSAPI, PAM, LDAP and others | not known to the driver |
//!
//! The driver (mysql 28) indexes packets of the server without looking at their length, and
//! unwraps what a server with a short nonce does not send: so a login is run where a panic ends
//! the login and nothing else.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::path::Path;
use std::sync::Once;

use mysql::error::DriverError;
use mysql::{ClientIdentity, Conn, OptsBuilder, SslOpts};

use super::said;
use crate::location::{Location, Tls};
use crate::tls;

/// Access denied: with a password that is wrong, and also for users that must use encryption
/// or show a certificate and do not.
const DENIED: u16 = 1045;
/// The server takes no user without encryption (`require_secure_transport`).
const INSECURE_TRANSPORT: u16 = 3159;
/// Characters of a plugin's name that are shown.
const NAME_CHARS: usize = 40;

/// The plugin that MySQL had before `caching_sha2_password`.
const SHA256: &str = "sha256_password";

const PLUGINS: &str = "hint: log in as a user of mysql_native_password, caching_sha2_password, \
     ed25519 or PARSEC";

thread_local! {
    static LOGGING_IN: Cell<bool> = const { Cell::new(false) };
}

/// How the connection is to be encrypted; none if it is not to be.
///
/// # Errors
/// It cannot be: the connection is by a socket, or a certificate cannot be read.
pub fn encryption(location: &Location, socket: Option<&Path>) -> Result<Option<SslOpts>, String> {
    let protected = match (location.tls(), socket) {
        (Tls::Off, _) => return Ok(None),
        (protected, None) => protected,
        (_, Some(socket)) => {
            return Err(format!(
                "encryption was asked for, and through the socket {} there is none\n\
                 hint: name the host, not the socket: {}",
                socket.display(),
                by_host(location)
            ));
        }
    };
    let authorities = location.authorities.clone().or_else(tls::system_bundle);
    let mut rules = SslOpts::default().with_root_cert_path(authorities);
    if protected == Tls::Require {
        rules =
            rules.with_danger_accept_invalid_certs(true).with_danger_skip_domain_validation(true);
    }
    if let Some((certificate, key)) = tls::identity_files(location)? {
        // Read here for the sake of the message: the driver's does not name the file.
        tls::identity(location)?;
        let identity = ClientIdentity::new(certificate.to_owned(), key.to_owned());
        rules = rules.with_client_identity(Some(identity));
    }
    Ok(Some(rules))
}

/// Connects and logs in.
///
/// # Errors
/// In words: what failed, and what to do.
pub fn log_in(
    options: OptsBuilder,
    location: &Location,
    socket: Option<&Path>,
) -> Result<Conn, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !LOGGING_IN.get() {
                before(panic);
            }
        }));
    });
    LOGGING_IN.set(true);
    let done = panic::catch_unwind(AssertUnwindSafe(|| Conn::new(options)));
    LOGGING_IN.set(false);
    match done {
        Ok(Ok(connection)) => Ok(connection),
        Ok(Err(error)) => Err(explained(&error, location, socket)),
        Err(_) => Err(format!(
            "the server's part of the login breaks the protocol, or the password is missing\n\
             {PLUGINS}"
        )),
    }
}

fn explained(error: &mysql::Error, location: &Location, socket: Option<&Path>) -> String {
    let refused = |name: &str| {
        let name: String = name.chars().filter(char::is_ascii_graphic).take(NAME_CHARS).collect();
        format!("the server asks for a login by '{name}', which is not supported\n{PLUGINS}")
    };
    match error {
        mysql::Error::DriverError(DriverError::UnknownAuthPlugin(name)) if name == SHA256 => {
            format!(
                "the server asks for a login by '{SHA256}', which is not supported\n\
                 hint: MySQL deprecates it; an administrator gives the user its successor by: {}",
                successor(location)
            )
        }
        mysql::Error::DriverError(DriverError::UnknownAuthPlugin(name)) => refused(name),
        mysql::Error::DriverError(DriverError::OldMysqlPasswordDisabled) => {
            refused("mysql_old_password")
        }
        mysql::Error::DriverError(DriverError::CleartextPluginDisabled) => {
            refused("mysql_clear_password")
        }
        mysql::Error::DriverError(DriverError::UnexpectedPacket) => {
            "the server answers the password with what the protocol does not have\n\
             hint: of a user with several ways to log in, give the password of the first"
                .to_owned()
        }
        mysql::Error::MySqlError(answer) if matches!(answer.code, DENIED | INSECURE_TRANSPORT) => {
            let said = said(error);
            let is_plain = socket.is_some() || location.tls() == Tls::Off;
            match is_plain {
                true => format!(
                    "{said}\nhint: if the user must use encryption (REQUIRE SSL): {}",
                    by_host(location)
                ),
                false if location.certificate.is_none() => format!(
                    "{said}\nhint: if the user must show a certificate (REQUIRE X509), add \
                     cert=FILE&key=FILE to the URL"
                ),
                false => said,
            }
        }
        other => said(other),
    }
}

/// The statement by which a user of `sha256_password` logs in as here. What host the user's name has
/// on the server is not known here.
fn successor(location: &Location) -> String {
    let user = location.user.as_deref().unwrap_or("USER");
    let user: String = user.chars().filter(|it| !it.is_control()).collect();
    let user = user.replace('\\', "\\\\").replace('\'', "''");
    format!(
        "ALTER USER '{user}'@'%' IDENTIFIED WITH caching_sha2_password BY 'PASSWORD'; (with the host \
         that mysql.user has in place of %)"
    )
}

/// The URL of the same database, encrypted and not by a socket.
fn by_host(location: &Location) -> String {
    let host = location.host.clone().filter(|host| host != "localhost");
    let place = Location {
        host: Some(host.unwrap_or_else(|| "127.0.0.1".to_owned())),
        socket: None,
        ..location.clone()
    };
    format!("'{place}?tls=require'")
}
