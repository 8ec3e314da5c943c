//! Where a database is: URLs, and what other places say about it.
//!
//! | URL | what |
//! |---|---|
//! | `postgres://user:password@host:port/database?option=value` | PostgreSQL |
//! | `mysql://user:password@host:port/database?option=value` | MySQL, MariaDB |
//! | `sqlite:PATH` | a SQLite database, also one in a pack |
//! | `parquet:PATH` | a Parquet file, a folder of them, a Delta or Iceberg table, also in a store |
//!
//! Everything but the scheme may be left out. Options: `socket` (a Unix socket or, for
//! PostgreSQL, its folder; `host=/folder` too), `tls` (`verify`, `require`, `off`; also
//! as `sslmode`), `ca` (a file with certificates; also `sslrootcert`, `ssl-ca`), `cert` and
//! `key` (what we prove ourselves by; also `sslcert`, `sslkey`, `ssl-cert`, `ssl-key`),
//! `schema` (PostgreSQL), `service` (PostgreSQL), `table` (the only one that is looked at).
//!
//! Of a [`Location`] nothing shows the password: it is a [`Secret`].

use std::fmt;
use std::path::PathBuf;

use pagewarden::source::store::StorePath;

use crate::engine::elsewhere::{self, Elsewhere};
use crate::error::{Error, Result};
use crate::secret::{self, Secret};

/// How a connection is protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// The server proves who it is.
    Verify,
    /// Encrypted; the server need not prove who it is.
    Require,
    /// Not at all.
    Off,
}

/// Where a database is, and who we are there.
#[derive(Debug, Clone)]
pub struct Location {
    /// `postgres`, `mysql`, `sqlite` or `parquet`.
    pub scheme: String,
    /// The host.
    pub host: Option<String>,
    /// The port.
    pub port: Option<u16>,
    /// The Unix socket, or the folder that it is in.
    pub socket: Option<PathBuf>,
    /// The user.
    pub user: Option<String>,
    /// The password.
    pub password: Option<Secret>,
    /// The database, or SQLite's file.
    pub database: Option<String>,
    /// The schema.
    pub schema: Option<String>,
    /// The only table that is looked at.
    pub table: Option<String>,
    /// How the connection is protected, if it was said.
    pub tls: Option<Tls>,
    /// Certificates to trust besides the usual ones.
    pub authorities: Option<PathBuf>,
    /// The certificate by which we prove who we are, in PEM.
    pub certificate: Option<PathBuf>,
    /// Its private key.
    pub key: Option<PathBuf>,
    /// True if the password stood in the URL.
    pub password_in_url: bool,
    /// Where the file or folder is, if that is a store and not this machine.
    pub stored: Option<StorePath>,
    /// Who has the rows, if no server and no file does.
    pub elsewhere: Option<Elsewhere>,
}

/// Another way to give what a URL lacks.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// A file that holds the password and nothing else, readable by its owner only.
    pub password_file: Option<PathBuf>,
}

impl Location {
    /// Reads a URL and completes it from the environment and the files of the engines'
    /// own programs.
    ///
    /// # Errors
    /// The URL means nothing, or a file with a password is open to others.
    pub fn find(url: &str, given: &Given) -> Result<Self> {
        let mut location = Self::parse(url)?;
        if let Some(path) = &given.password_file {
            location.password = Some(secret::read_password_file(path)?);
        }
        secret::complete(&mut location, url_option(url, "service").as_deref())?;
        Ok(location)
    }

    /// Reads a URL.
    ///
    /// # Errors
    /// It means nothing. The error does not show it: it may hold a password.
    pub fn parse(url: &str) -> Result<Self> {
        let Some((scheme, rest)) = url.split_once(':') else {
            return Err(Error::Address(format!(
                "a database is named by a URL\nhint: {}",
                secret::hint_of_url(url)
            )));
        };
        let scheme = match scheme.to_ascii_lowercase().as_str() {
            "postgres" | "postgresql" => "postgres",
            "mysql" | "mariadb" => "mysql",
            "sqlite" | "sqlite3" => return Self::file("sqlite", rest),
            "parquet" => return Self::file("parquet", rest),
            other => {
                return Err(Error::Address(format!(
                    "unknown kind of database '{}'\nhint: postgres://, mysql://, sqlite:PATH or \
                     parquet:PATH",
                    other.chars().filter(char::is_ascii_alphanumeric).take(20).collect::<String>()
                )));
            }
        };
        let rest = rest
            .strip_prefix("//")
            .ok_or_else(|| Error::Address(format!("a {scheme} URL begins with {scheme}://")))?;
        let mut location = Self { scheme: scheme.to_owned(), ..Self::nowhere() };
        let (rest, options) = rest.split_once('?').unwrap_or((rest, ""));
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') || options.contains('@') {
            // What is behind them is a part of a password, and would be shown.
            return Err(Error::Address(
                "there is an @ behind the host\nhint: in a password, / is written %2F, ? %3F and \
                 @ %40"
                    .to_owned(),
            ));
        }
        location.read_authority(authority)?;
        if !path.is_empty() {
            location.database = Some(decode(path)?);
        }
        for option in options.split('&').filter(|option| !option.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            location.read_option(name, decode(value)?)?;
        }
        // A certificate is shown by encrypted connections only.
        if location.certificate.is_some() && location.socket.is_none() && location.is_local() {
            location.tls.get_or_insert(Tls::Require);
        }
        Ok(location)
    }

    /// Rows in others' hands, which are shown by this name.
    pub fn elsewhere(name: &str, elsewhere: Elsewhere) -> Self {
        Self {
            scheme: elsewhere::ENGINE.scheme.to_owned(),
            database: Some(name.to_owned()),
            elsewhere: Some(elsewhere),
            ..Self::nowhere()
        }
    }

    fn nowhere() -> Self {
        Self {
            scheme: String::new(),
            host: None,
            port: None,
            socket: None,
            user: None,
            password: None,
            database: None,
            schema: None,
            table: None,
            tls: None,
            authorities: None,
            certificate: None,
            key: None,
            password_in_url: false,
            stored: None,
            elsewhere: None,
        }
    }

    /// `sqlite:PATH`, `parquet:PATH`, also with slashes before the path as in other URLs.
    fn file(scheme: &str, path: &str) -> Result<Self> {
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.is_empty() {
            return Err(Error::Address(format!("{scheme}: names no file\nhint: {scheme}:PATH")));
        }
        let scheme = scheme.to_owned();
        Ok(Self { scheme, database: Some(path.to_owned()), ..Self::nowhere() })
    }

    fn read_authority(&mut self, authority: &str) -> Result<()> {
        // A password may hold what should have been written as %40.
        let (user, host) = match authority.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, authority),
        };
        if let Some(user) = user {
            let (name, password) = match user.split_once(':') {
                Some((name, password)) => (name, Some(password)),
                None => (user, None),
            };
            if !name.is_empty() {
                self.user = Some(decode(name)?);
            }
            if let Some(password) = password {
                self.password = Some(Secret::new(decode(password)?));
                self.password_in_url = true;
            }
        }
        let (host, port) = match host.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest
                    .split_once(']')
                    .ok_or_else(|| Error::Address("the host's ] is missing".to_owned()))?;
                (host, port.strip_prefix(':'))
            }
            None => match host.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (host, None),
            },
        };
        if let Some(port) = port.filter(|port| !port.is_empty()) {
            let number = port.parse();
            self.port =
                Some(number.map_err(|_| Error::Address("the port is not a number".to_owned()))?);
        }
        if !host.is_empty() {
            self.set_host(decode(host)?);
        }
        Ok(())
    }

    /// A host that begins with a slash is a socket's folder, as in the engines' own programs.
    pub(crate) fn set_host(&mut self, host: String) {
        if host.starts_with('/') {
            self.socket = Some(PathBuf::from(host));
        } else {
            self.host = Some(host);
        }
    }

    fn read_option(&mut self, name: &str, value: String) -> Result<()> {
        match name {
            "socket" => self.socket = Some(PathBuf::from(value)),
            "host" => self.set_host(value),
            "port" => {
                let number = value.parse();
                self.port = Some(
                    number.map_err(|_| Error::Address("the port is not a number".to_owned()))?,
                );
            }
            "user" => self.user = Some(value),
            "password" => {
                self.password = Some(Secret::new(value));
                self.password_in_url = true;
            }
            "dbname" | "database" => self.database = Some(value),
            "schema" => self.schema = Some(value),
            "table" => self.table = Some(value),
            "tls" | "sslmode" | "ssl-mode" => self.tls = read_tls(&value)?,
            "ca" | "sslrootcert" | "ssl-ca" => self.authorities = Some(PathBuf::from(value)),
            "cert" | "sslcert" | "ssl-cert" => self.certificate = Some(PathBuf::from(value)),
            "key" | "sslkey" | "ssl-key" => self.key = Some(PathBuf::from(value)),
            // Read where the environment is.
            "service" => {}
            other => {
                let known =
                    "socket, host, port, user, dbname, schema, table, tls, ca, cert, key, service";
                let shown: String = other
                    .chars()
                    .filter(|c| c.is_ascii_alphanumeric() || *c == '_')
                    .take(30)
                    .collect();
                return Err(Error::Address(format!(
                    "unknown option '{shown}' in the URL\nhint: there are {known}"
                )));
            }
        }
        Ok(())
    }

    /// True if it is a file or a folder, and no server.
    pub fn is_file(&self) -> bool {
        matches!(self.scheme.as_str(), "sqlite" | "parquet")
    }

    /// True if the server is on this machine, so that no other machine is between us.
    pub fn is_local(&self) -> bool {
        match &self.host {
            _ if self.socket.is_some() => true,
            None => true,
            Some(host) => {
                let address = host.parse::<std::net::IpAddr>();
                host == "localhost" || address.is_ok_and(|address| address.is_loopback())
            }
        }
    }

    /// How the connection is protected: verified, unless something else was said or the
    /// server is on this machine.
    pub fn tls(&self) -> Tls {
        self.tls.unwrap_or(if self.is_local() { Tls::Off } else { Tls::Verify })
    }
}

/// Without the password: this is what errors, reports and logs show.
impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.elsewhere.is_some() {
            return out.write_str(self.database.as_deref().unwrap_or_default());
        }
        if self.is_file() {
            let path = self.database.as_deref().unwrap_or_default();
            return write!(out, "{}:{path}", self.scheme);
        }
        write!(out, "{}://", self.scheme)?;
        if let Some(user) = &self.user {
            write!(out, "{user}@")?;
        }
        match (&self.host, &self.socket) {
            (_, Some(_)) => {}
            (Some(host), None) if host.contains(':') => write!(out, "[{host}]")?,
            (Some(host), None) => out.write_str(host)?,
            (None, None) => out.write_str("localhost")?,
        }
        if let Some(port) = self.port {
            write!(out, ":{port}")?;
        }
        write!(out, "/{}", self.database.as_deref().unwrap_or_default())?;
        let mut mark = '?';
        if let Some(socket) = &self.socket {
            write!(out, "?socket={}", socket.display())?;
            mark = '&';
        }
        match &self.table {
            Some(table) => write!(out, "{mark}table={table}"),
            None => Ok(()),
        }
    }
}

fn read_tls(value: &str) -> Result<Option<Tls>> {
    match value.to_ascii_lowercase().as_str() {
        "off" | "disable" | "disabled" => Ok(Some(Tls::Off)),
        "require" | "required" => Ok(Some(Tls::Require)),
        "verify" | "verify-ca" | "verify-full" | "verify_ca" | "verify_identity" => {
            Ok(Some(Tls::Verify))
        }
        // What merely prefers encryption is decided by where the server is.
        "allow" | "prefer" | "preferred" => Ok(None),
        _ => Err(Error::Address("unknown value of tls\nhint: verify, require or off".to_owned())),
    }
}

fn url_option(url: &str, wanted: &str) -> Option<String> {
    let (_, options) = url.split_once('?')?;
    let mut options = options.split('&').filter_map(|option| option.split_once('='));
    options.find(|(name, _)| *name == wanted).and_then(|(_, value)| decode(value).ok())
}

/// Takes `%20` and the like back.
fn decode(text: &str) -> Result<String> {
    let wrong = || Error::Address("a % in the URL is not followed by two digits".to_owned());
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let digits = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
            let digits = digits.ok_or_else(wrong)?;
            bytes.push(u8::from_str_radix(digits, 16).map_err(|_| wrong())?);
            rest = after.get(2..).unwrap_or_default();
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).map_err(|_| Error::Address("the URL is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let location = Location::parse(
            "postgresql://ann:s%40cret@db.example:6543/shop?sslmode=require&schema=s",
        )
        .unwrap();
        assert_eq!(location.scheme, "postgres");
        assert_eq!(location.user.as_deref(), Some("ann"));
        assert_eq!(location.password.as_ref().map(Secret::reveal), Some("s@cret"));
        assert_eq!(location.host.as_deref(), Some("db.example"));
        assert_eq!(location.port, Some(6543));
        assert_eq!(location.database.as_deref(), Some("shop"));
        assert_eq!(location.schema.as_deref(), Some("s"));
        assert_eq!(location.tls(), Tls::Require);
        let location = Location::parse("mysql:///shop?socket=/run/x.sock").unwrap();
        assert_eq!(location.socket, Some(PathBuf::from("/run/x.sock")));
        assert_eq!((location.host.clone(), location.tls()), (None, Tls::Off));
        let location = Location::parse("mariadb://[::1]:3307").unwrap();
        assert_eq!((location.host.as_deref(), location.port), (Some("::1"), Some(3307)));
        assert!(location.is_local());
        assert_eq!(Location::parse("mysql://db.example/x").unwrap().tls(), Tls::Verify);
        assert_eq!(
            Location::parse("sqlite:a file?.db").unwrap().database.as_deref(),
            Some("a file?.db")
        );
        assert_eq!(
            Location::parse("sqlite:///tmp/a.db").unwrap().database.as_deref(),
            Some("/tmp/a.db")
        );
    }

    /// A socket that is named wins over a host, as in the engines' own programs.
    #[test]
    fn socket_wins_over_host() {
        for url in [
            "postgres://ann@localhost:5433/shop?host=/run/pg",
            "postgres://ann@db.example:5433/shop?socket=/run/pg",
            "postgres://ann@%2Frun%2Fpg:5433/shop",
        ] {
            let location = Location::parse(url).unwrap();
            assert_eq!(location.socket, Some(PathBuf::from("/run/pg")));
            assert!(location.is_local());
            assert_eq!(location.to_string(), "postgres://ann@:5433/shop?socket=/run/pg");
        }
    }

    #[test]
    fn passwords_are_never_shown() {
        for url in [
            "postgres://ann:hunter2@db.example/shop",
            "postgres://ann:hunt@er2@db.example/shop",
            "mysql://:hunter2@db.example",
            "mysql://ann@db.example/shop?password=hunter2",
        ] {
            let location = Location::parse(url).unwrap();
            assert!(location.password_in_url);
            assert!(!location.to_string().contains("er2"), "{location}");
            assert!(!format!("{location:?}").contains("er2"), "{location:?}");
        }
        for url in [
            "hunter2",
            "oracle://ann:hunter2@x",
            "postgres://ann:hunter2@x:port/",
            "postgres://ann:hunter2%@x/",
            "mysql:ann:hunter2@x",
            "postgres://ann:12/hunter2@x/shop",
            "postgres://ann:12?hunter2@x/shop",
            "mysql://ann:hunter2@x/?tls=hunter2",
        ] {
            let message = Location::parse(url).unwrap_err().to_string();
            assert!(!message.contains("hunter2"), "{message}");
        }
    }
}
