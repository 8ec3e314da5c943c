//! Logging in to MySQL and MariaDB: a server may ask for any plugin, with any bytes.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pagewarden_db::engine;
use pagewarden_db::error::Error;
use pagewarden_db::location::Location;

use crate::servers::{Database, Kind};

fn connect(url: &str) -> Result<(), Error> {
    let location = Location::parse(url).unwrap();
    (engine::of(&location).unwrap().connect)(&location).map(drop)
}

fn send(stream: &mut TcpStream, number: u8, payload: &[u8]) {
    let length = u32::try_from(payload.len()).unwrap().to_le_bytes();
    let mut packet = length[..3].to_vec();
    packet.push(number);
    packet.extend_from_slice(payload);
    // The client may have gone: that is what is tested.
    let _ = stream.write_all(&packet);
}

/// The payload and its number; none when the client has gone.
fn receive(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 4];
    stream.read_exact(&mut head).ok()?;
    let length = usize::from(head[0]) | usize::from(head[1]) << 8 | usize::from(head[2]) << 16;
    let mut payload = vec![0; length];
    stream.read_exact(&mut payload).ok()?;
    Some((head[3], payload))
}

/// The first packet of a server that offers a plugin.
fn greeting(plugin: &str) -> Vec<u8> {
    let mut payload = vec![10];
    payload.extend_from_slice(b"8.0.99\0");
    payload.extend_from_slice(&7_u32.to_le_bytes());
    payload.extend_from_slice(b"abcdefgh\0");
    // Protocol 4.1, secure connection, plugins; no encryption.
    let capabilities: u32 = 0x000a_8209;
    payload.extend_from_slice(&capabilities.to_le_bytes()[..2]);
    payload.push(45);
    payload.extend_from_slice(&2_u16.to_le_bytes());
    payload.extend_from_slice(&capabilities.to_le_bytes()[2..]);
    payload.push(21);
    payload.extend_from_slice(&[0; 10]);
    payload.extend_from_slice(b"ijklmnopqrst\0");
    payload.extend_from_slice(plugin.as_bytes());
    payload.push(0);
    payload
}

/// A server that asks one client for a plugin, and answers what comes with packets of its own.
/// Returns what the client sent after it was asked.
fn ask_for(plugin: &str, data: &[u8], answers: &[&[u8]]) -> (u16, JoinHandle<Vec<Vec<u8>>>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut request = vec![0xfe];
    request.extend_from_slice(plugin.as_bytes());
    request.push(0);
    request.extend_from_slice(data);
    let offered = plugin.to_owned();
    let answers: Vec<Vec<u8>> = answers.iter().map(|answer| answer.to_vec()).collect();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        send(&mut stream, 0, &greeting(&offered));
        let mut sent = Vec::new();
        let Some((number, _)) = receive(&mut stream) else { return sent };
        send(&mut stream, number + 1, &request);
        for answer in answers {
            let Some((number, payload)) = receive(&mut stream) else { return sent };
            sent.push(payload);
            send(&mut stream, number + 1, &answer);
        }
        sent
    });
    (port, server)
}

const PLUGINS: &[&str] = &[
    "mysql_native_password",
    "caching_sha2_password",
    "mysql_old_password",
    "mysql_clear_password",
    "client_ed25519",
    "parsec",
    "sha256_password",
    "dialog",
    "auth_gssapi_client",
    "authentication_ldap_sasl_client",
    "a plugin that\x1b[31m no client knows, with a name that is much longer than it should be",
    "",
];

/// The driver takes lengths and answers for granted. A panic would end the program.
#[test]
fn no_plugin_that_a_server_asks_for_ends_the_program() {
    let nonces: [&[u8]; 5] = [b"", b"\0", b"short", b"abcdefghijklmnopqrst\0", &[9; 33]];
    let answers: [&[&[u8]]; 7] = [
        &[],
        &[b"", b"", b""],
        &[b"\x01", b"\x01", b"\x01"],
        &[b"\x01\x04", b"not a key", b"\x00"],
        &[b"\x01\x04", b"\x01-----BEGIN PUBLIC KEY-----", b"\x00"],
        &[b"\x01P\x00abcdefghijklmnopqr", b"", b""],
        &[b"\xfe", b"\xfe", b"\xfe"],
    ];
    for plugin in PLUGINS {
        for (nonce, answers) in nonces.iter().flat_map(|nonce| answers.map(|list| (nonce, list))) {
            for password in ["", ":secret"] {
                let (port, server) = ask_for(plugin, nonce, answers);
                let url = format!("mysql://ann{password}@127.0.0.1:{port}/shop");
                let error = connect(&url).expect_err(plugin);
                server.join().unwrap();
                assert!(matches!(error, Error::Connect { .. }), "{plugin}: {error:?}");
                let text = error.to_string();
                assert!(!text.contains("secret") && !text.contains('\x1b'), "{plugin}: {text}");
            }
        }
    }
}

#[test]
fn plugin_that_is_not_supported_is_named_with_what_is() {
    for plugin in
        ["sha256_password", "auth_gssapi_client", "mysql_clear_password", "mysql_old_password"]
    {
        let (port, server) = ask_for(plugin, b"abcdefghijklmnopqrst\0", &[]);
        let text = connect(&format!("mysql://ann:secret@127.0.0.1:{port}/shop")).unwrap_err();
        let text = text.to_string();
        server.join().unwrap();
        assert!(text.contains(plugin) && text.contains("\nhint: "), "{text}");
    }
}

/// What a client sends for PARSEC: nothing, and then its nonce and its signature, 96 bytes.
#[test]
fn parsec_is_answered_as_the_protocol_has_it() {
    let salt = b"\x01P\x00abcdefghijklmnopqr";
    let denied = b"\xff\x15\x04#28000Access denied for user 'ann'";
    let (port, server) = ask_for("parsec", &[7; 32], &[salt, denied]);
    let text = connect(&format!("mysql://ann:secret@127.0.0.1:{port}/shop")).unwrap_err();
    let text = text.to_string();
    let sent = server.join().unwrap();
    assert_eq!(sent.iter().map(Vec::len).collect::<Vec<_>>(), [0, 96]);
    assert!(text.contains("Access denied") && text.contains("tls=require"), "{text}");
}

#[test]
fn user_of_ed25519_logs_in() {
    let Some(database) = Database::new(Kind::Mariadb) else { return };
    let name = database.location().database.unwrap();
    database.run(&format!(
        "INSTALL SONAME 'auth_ed25519'; \
         CREATE USER ed@localhost IDENTIFIED VIA ed25519 USING PASSWORD('se cret'); \
         CREATE USER either@localhost IDENTIFIED VIA ed25519 USING PASSWORD('se cret') \
         OR mysql_native_password USING PASSWORD('other'); \
         GRANT SELECT ON {name}.* TO ed@localhost, either@localhost"
    ));
    let socket = database.location().socket.unwrap();
    let url = |user: &str| format!("mysql://{user}@/{name}?socket={}", socket.display());
    for user in ["ed:se%20cret", "either:se%20cret"] {
        connect(&url(user)).unwrap();
    }
    for user in ["ed", "ed:wrong"] {
        let text = connect(&url(user)).unwrap_err().to_string();
        assert!(text.contains("Access denied for user 'ed'"), "{text}");
    }
    // The server asks by one plugin and then by the other: the driver answers once.
    let text = connect(&url("either:other")).unwrap_err().to_string();
    assert!(text.contains("\nhint: "), "{text}");
}

/// The driver would go on without encryption.
#[test]
fn encryption_by_a_socket_is_refused_with_a_way_that_works() {
    for tls in ["require", "verify"] {
        let url = format!("mysql://ann:secret@/shop?socket=/run/nowhere.sock&tls={tls}");
        let text = connect(&url).unwrap_err().to_string();
        assert!(
            text.contains(
                "hint: name the host, not the socket: 'mysql://ann@127.0.0.1/shop?tls=require'"
            ),
            "{text}"
        );
    }
    for url in ["mysql://ann@127.0.0.1/shop?cert=a", "mysql://ann@127.0.0.1/shop?key=a&tls=require"]
    {
        let text = connect(url).unwrap_err().to_string();
        assert!(text.contains("was named, and no") && text.contains("\nhint: "), "{text}");
    }
}
