//! Passwords, and the places where the engines' own programs keep them.
//!
//! | engine | in this order |
//! |---|---|
//! | all | `--password-file`, the URL |
//! | PostgreSQL | `service=` (`PGSERVICE`) in `PGSERVICEFILE`, `~/.pg_service.conf` or `PGSYSCONFDIR`; `PGHOST`, `PGPORT`, `PGUSER`, `PGPASSWORD`, `PGDATABASE`, `PGSSLMODE`, `PGSSLROOTCERT`, `PGSSLCERT`, `PGSSLKEY`; `PGPASSFILE` or `~/.pgpass` |
//! | MySQL, MariaDB | `MYSQL_TCP_PORT`, `MYSQL_UNIX_PORT`, `MYSQL_PWD`; `[client]` and its kin in `~/.my.cnf` |
//!
//! Files that hold passwords and are open to others are refused, or not read, as the
//! engines' own programs do.

use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use pagewarden::system::MetadataExt as _;

use crate::error::{Error, Result};
use crate::location::{Location, Tls};

/// A password. Neither `Debug` nor anything else shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Keeps a password.
    pub fn new(password: String) -> Self {
        Self(password)
    }

    /// The password, for the server only.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("(hidden)")
    }
}

/// Reads a file that holds a password and nothing else.
///
/// # Errors
/// It cannot be read, or others can.
pub fn read_password_file(path: &Path) -> Result<Secret> {
    let shown = path.display();
    let metadata = fs::metadata(path)
        .map_err(|error| Error::Secret(format!("cannot read {shown}: {error}")))?;
    if metadata.mode() & 0o077 != 0 {
        return Err(Error::Secret(format!(
            "{shown} holds a password and others may read it\nhint: chmod 600 {shown}"
        )));
    }
    let text = fs::read_to_string(path)
        .map_err(|error| Error::Secret(format!("cannot read {shown}: {error}")))?;
    Ok(Secret::new(text.lines().next().unwrap_or_default().to_owned()))
}

/// What to say of an address that is no URL.
pub(crate) fn hint_of_url(text: &str) -> String {
    if Path::new(text).is_file() {
        "for a SQLite database: sqlite: and its path; for a Parquet file: parquet: and its path"
            .to_owned()
    } else {
        "postgres://user@host/database, mysql://user@host/database, sqlite:PATH or parquet:PATH"
            .to_owned()
    }
}

/// Completes what a URL leaves open.
pub(crate) fn complete(location: &mut Location, service: Option<&str>) -> Result<()> {
    let has_place = location.host.is_some() || location.socket.is_some();
    match location.scheme.as_str() {
        "postgres" => {
            let service = service.map(str::to_owned).or_else(|| variable("PGSERVICE"));
            if let Some(service) = service {
                let text = read_services()?;
                let settings = section(&text, &[&service]);
                if settings.is_empty() {
                    return Err(Error::Secret(format!("there is no service '{service}'")));
                }
                for (name, value) in settings {
                    set(location, &name, value, has_place);
                }
            }
            for (name, setting) in [
                ("PGHOST", "host"),
                ("PGPORT", "port"),
                ("PGUSER", "user"),
                ("PGPASSWORD", "password"),
                ("PGDATABASE", "dbname"),
                ("PGSSLMODE", "sslmode"),
                ("PGSSLROOTCERT", "sslrootcert"),
                ("PGSSLCERT", "sslcert"),
                ("PGSSLKEY", "sslkey"),
            ] {
                if let Some(value) = variable(name) {
                    set(location, setting, value, has_place);
                }
            }
            from_pgpass(location);
        }
        "mysql" => {
            for (name, setting) in [
                ("MYSQL_UNIX_PORT", "socket"),
                ("MYSQL_TCP_PORT", "port"),
                ("MYSQL_PWD", "password"),
            ] {
                if let Some(value) = variable(name) {
                    set(location, setting, value, has_place);
                }
            }
            from_option_file(location, has_place);
        }
        _ => {}
    }
    if location.user.is_none() && !location.is_file() {
        location.user = variable("USER").or_else(|| variable("LOGNAME"));
    }
    Ok(())
}

/// Sets what is not known yet.
fn set(location: &mut Location, name: &str, value: String, has_place: bool) {
    match name {
        "host" if !has_place && location.host.is_none() && location.socket.is_none() => {
            location.set_host(value);
        }
        "socket" if !has_place && location.host.is_none() && location.socket.is_none() => {
            location.socket = Some(PathBuf::from(value));
        }
        "port" if location.port.is_none() => location.port = value.parse().ok(),
        "user" if location.user.is_none() => location.user = Some(value),
        "password" if location.password.is_none() => location.password = Some(Secret::new(value)),
        "dbname" | "database" if location.database.is_none() => location.database = Some(value),
        // Others' settings may ask for more protection, not for less.
        "sslmode" if location.tls.is_none() => {
            location.tls = match value.as_str() {
                "require" => Some(Tls::Require).filter(|_| location.is_local()),
                "verify-ca" | "verify-full" => Some(Tls::Verify),
                _ => None,
            };
        }
        "sslrootcert" | "ssl-ca" if location.authorities.is_none() => {
            location.authorities = Some(PathBuf::from(value));
        }
        "sslcert" | "ssl-cert" if location.certificate.is_none() => {
            location.certificate = Some(PathBuf::from(value));
        }
        "sslkey" | "ssl-key" if location.key.is_none() => {
            location.key = Some(PathBuf::from(value));
        }
        _ => {}
    }
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn home() -> Option<PathBuf> {
    variable("HOME").map(PathBuf::from)
}

fn read_services() -> Result<String> {
    let named = variable("PGSERVICEFILE").map(PathBuf::from);
    let own = home().map(|home| home.join(".pg_service.conf"));
    let system = variable("PGSYSCONFDIR").map(|folder| Path::new(&folder).join("pg_service.conf"));
    let texts = [named, own, system].into_iter().flatten();
    let texts: Vec<String> = texts.filter_map(|path| fs::read_to_string(path).ok()).collect();
    if texts.is_empty() {
        return Err(Error::Secret(
            "a service is named, and there is no service file\nhint: ~/.pg_service.conf, or \
             PGSERVICEFILE"
                .to_owned(),
        ));
    }
    Ok(texts.join("\n"))
}

/// The settings of sections of a file in the manner of `.ini` files.
pub fn section(text: &str, wanted: &[&str]) -> Vec<(String, String)> {
    let mut settings = Vec::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            inside = wanted.contains(&name.trim());
        } else if let Some((name, value)) = line.split_once('=')
            && inside
            && !line.starts_with(['#', ';'])
        {
            settings.push((name.trim().to_owned(), unquote(value.trim())));
        }
    }
    settings
}

fn unquote(value: &str) -> String {
    for quote in ['"', '\''] {
        let inner = value.strip_prefix(quote).and_then(|value| value.strip_suffix(quote));
        if let Some(inner) = inner {
            return inner.to_owned();
        }
    }
    value.to_owned()
}

/// A file with passwords, unless others may read it.
fn private_file(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    (metadata.is_file() && metadata.mode() & 0o077 == 0).then(|| fs::read_to_string(path).ok())?
}

fn from_pgpass(location: &mut Location) {
    if location.password.is_some() {
        return;
    }
    let path = variable("PGPASSFILE").map(PathBuf::from);
    let path = path.or_else(|| home().map(|home| home.join(".pgpass")));
    let Some(text) = path.and_then(|path| private_file(&path)) else { return };
    let host = location.host.clone().unwrap_or_else(|| "localhost".to_owned());
    let port = location.port.unwrap_or(5432).to_string();
    let user = location.user.clone().or_else(|| variable("USER")).unwrap_or_default();
    let database = location.database.clone().unwrap_or_else(|| user.clone());
    let wanted = [host, port, database, user];
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields = pgpass_fields(line);
        let Some((password, known)) = fields.split_last() else { continue };
        let fits = known.iter().zip(&wanted).all(|(known, wanted)| known == "*" || known == wanted);
        if known.len() == wanted.len() && fits {
            location.password = Some(Secret::new(password.clone()));
            return;
        }
    }
}

/// Fields between colons; a backslash takes the next character's meaning away.
pub fn pgpass_fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        let literal = match character {
            '\\' => characters.next(),
            ':' => {
                fields.push(String::new());
                None
            }
            other => Some(other),
        };
        if let (Some(literal), Some(last)) = (literal, fields.last_mut()) {
            last.push(literal);
        }
    }
    fields
}

fn from_option_file(location: &mut Location, has_place: bool) {
    let Some(path) = home().map(|home| home.join(".my.cnf")) else { return };
    // It may hold a user and no password; then it is open to all, and that is no matter.
    let private = private_file(&path);
    let Some(text) = private.clone().or_else(|| fs::read_to_string(&path).ok()) else { return };
    for (name, value) in section(&text, &["client", "client-server", "client-mariadb", "mysql"]) {
        let name = name.replace('_', "-");
        if name != "password" || private.is_some() {
            set(location, &name, value, has_place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pagewarden::system::PermissionsExt as _;

    #[test]
    fn password_file_that_others_may_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        fs::write(&path, "hunter2\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let message = read_password_file(&path).unwrap_err().to_string();
        assert!(message.contains("chmod 600") && !message.contains("hunter2"), "{message}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(read_password_file(&path).unwrap().reveal(), "hunter2");
    }

    #[test]
    fn fields_of_pgpass_may_hold_colons() {
        assert_eq!(pgpass_fields(r"h:5432:*:u:a\:b\\c"), ["h", "5432", "*", "u", r"a:b\c"]);
        assert_eq!(pgpass_fields(""), [""]);
    }

    #[test]
    fn sections_are_kept_apart() {
        let text = "[a]\nhost = x\n# password=no\n[b]\nhost=y\npassword=\"a b\"\n";
        assert_eq!(section(text, &["a"]), [("host".to_owned(), "x".to_owned())]);
        assert_eq!(section(text, &["b"]).last().unwrap().1, "a b");
        assert!(section(text, &["c"]).is_empty());
    }
}
