//! Servers elsewhere must prove who they are. Here "elsewhere" is an address of the
//! loopback network that no other program uses, and the certificate is our own.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use pagewarden_db::engine;
use pagewarden_db::location::Location;
use pagewarden_scratch::mariadb::{self, Server};
use pagewarden_scratch::postgres::{self, Cluster};
use tempfile::TempDir;

const ADDRESS: &str = "127.83.21.7";

/// A certificate for the address, and its key, readable by every user: tests may run as
/// root, and servers do not. Nothing, said aloud, where there is no openssl.
fn certificate() -> Option<TempDir> {
    let folder = tempfile::Builder::new().prefix("pagewarden-").tempdir_in("/tmp").unwrap();
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args([
            "-nodes", "-days", "2", "-subj", "/CN=test", "-keyout", "key.pem", "-out", "cert.pem",
        ])
        .args(["-addext", &format!("subjectAltName=IP:{ADDRESS}")])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(folder.path())
        .output();
    let Ok(made) = made else {
        let required = std::env::var("PAGEWARDEN_REQUIRE").unwrap_or_default();
        assert!(!required.contains("openssl"), "PAGEWARDEN_REQUIRE names openssl");
        eprintln!("SKIPPED: no openssl");
        return None;
    };
    assert!(made.status.success(), "{made:?}");
    Some(folder)
}

fn try_all(scheme: &str, port: u16, user: &str, database: &str, certificate: &Path) {
    let connect = |options: &str| {
        let url = format!("{scheme}://{user}:secret@{ADDRESS}:{port}/{database}?{options}");
        let location = Location::parse(&url).unwrap();
        (engine::of(&location).unwrap().connect)(&location).map(|mut connection| {
            connection.tables().unwrap();
        })
    };
    let error = connect("tls=verify").unwrap_err().to_string();
    assert!(error.contains("certificate") || error.contains("UnknownIssuer"), "{error}");
    connect("tls=require").unwrap();
    connect(&format!("tls=verify&ca={}", certificate.display())).unwrap();
    // The server takes no connection without encryption: so all the others had it.
    let error = connect("tls=off").unwrap_err().to_string();
    assert!(!error.contains("secret"), "{error}");
    assert!(scheme != "mysql" || error.contains("?tls=require"), "{error}");
}

/// A user that must show a certificate gets in with it only.
fn try_certificate(url: &str, certificate: &Path, hint: &str) {
    let connect = |options: &str| {
        let location = Location::parse(&format!("{url}?{options}")).unwrap();
        (engine::of(&location).unwrap().connect)(&location).map(drop)
    };
    let key = certificate.with_file_name("key.pem");
    let (certificate, key) = (certificate.display(), key.display());
    connect(&format!("tls=verify&ca={certificate}&cert={certificate}&key={key}")).unwrap();
    connect(&format!("tls=require&sslcert={certificate}&sslkey={key}")).unwrap();
    // A URL that names a certificate asks for encryption.
    connect(&format!("cert={certificate}&key={key}")).unwrap();
    let error = connect("tls=require").unwrap_err().to_string();
    assert!(error.contains(hint), "{error}");
    let error = connect(&format!("cert={certificate}&key=/nowhere/key")).unwrap_err().to_string();
    assert!(error.contains("/nowhere/key"), "{error}");
}

#[test]
fn postgres_server_must_prove_itself() {
    let (Some(installation), Some(folder)) =
        (postgres::Installation::for_test("15").unwrap(), certificate())
    else {
        return;
    };
    let options = postgres::Options::default()
        .with("listen_addresses", &format!("'{ADDRESS}'"))
        .with("ssl", "on")
        .with("ssl_cert_file", "'cert.pem'")
        .with("ssl_key_file", "'key.pem'")
        .with("ssl_ca_file", "'cert.pem'");
    let mut cluster = Cluster::init(&installation, &options).unwrap();
    for name in ["cert.pem", "key.pem"] {
        // Written over files that the server's user owns: its key must be its own.
        let place = cluster.data_dir().join(name);
        fs::copy(cluster.data_dir().join("PG_VERSION"), &place).unwrap();
        own_as(&cluster.data_dir().join("PG_VERSION"), &place);
        fs::write(&place, fs::read(folder.path().join(name)).unwrap()).unwrap();
    }
    fs::write(
        cluster.data_dir().join("pg_hba.conf"),
        "local all all trust\nhostssl all all all scram-sha-256\n",
    )
    .unwrap();
    cluster.start().unwrap();
    cluster
        .psql("SET password_encryption = 'scram-sha-256'; CREATE ROLE ann LOGIN PASSWORD 'secret'")
        .unwrap();
    let certificate = folder.path().join("cert.pem");
    try_all("postgres", cluster.port(), "ann", "postgres", &certificate);
    fs::write(
        cluster.data_dir().join("pg_hba.conf"),
        "local all all trust\nhostssl all all all trust clientcert=verify-ca\n",
    )
    .unwrap();
    cluster.psql("SELECT pg_reload_conf()").unwrap();
    let url = format!("postgres://ann@{ADDRESS}:{}/postgres", cluster.port());
    try_certificate(&url, &certificate, "certificate");
}

/// Gives a file the owner of another, and keeps everybody else out.
fn own_as(model: &Path, file: &Path) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let owner = fs::metadata(model).unwrap();
    chown(file, Some(owner.uid()), Some(owner.gid())).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn mariadb_server_must_prove_itself() {
    let (Some(installation), Some(folder)) =
        (mariadb::Installation::for_test().unwrap(), certificate())
    else {
        return;
    };
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(folder.path().join("key.pem"), fs::Permissions::from_mode(0o644)).unwrap();
    let port = TcpListener::bind((ADDRESS, 0)).unwrap().local_addr().unwrap().port();
    let options = [
        "skip-networking=0".to_owned(),
        format!("bind-address={ADDRESS}"),
        format!("port={port}"),
        format!("ssl-cert={}", folder.path().join("cert.pem").display()),
        format!("ssl-key={}", folder.path().join("key.pem").display()),
        format!("ssl-ca={}", folder.path().join("cert.pem").display()),
    ];
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let mut server = Server::install(&installation, &options).unwrap();
    server.start().unwrap();
    server
        .sql("CREATE USER ann IDENTIFIED BY 'secret' REQUIRE SSL; CREATE DATABASE d; GRANT SELECT ON d.* TO ann")
        .unwrap();
    let certificate = folder.path().join("cert.pem");
    try_all("mysql", port, "ann", "d", &certificate);
    server
        .sql("CREATE USER bob IDENTIFIED BY 'secret' REQUIRE X509; GRANT SELECT ON d.* TO bob")
        .unwrap();
    let url = format!("mysql://bob:secret@{ADDRESS}:{port}/d");
    try_certificate(&url, &certificate, "cert=FILE&key=FILE");
}
