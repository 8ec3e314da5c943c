//! Real object stores, each by its own program: S3 (versitygw, with TLS, and MinIO, which both test
//! signatures; moto, which answers as Amazon does and tests none), Azure (Azurite) and Google
//! (fake-gcs-server). `cargo xtask servers versitygw minio moto azurite fake-gcs-server`.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use pagewarden_scratch::postgres::servers_dir;
use pagewarden_scratch::required;
use serde_json::Value;
use tempfile::TempDir;

use super::{comparable, repository};
use crate::runner::{pagewarden, run};

const KEY: &str = "canarykey";
const SECRET: &str = "canarysecret12";
/// The account that Azurite has; it is no secret.
const AZURE: (&str, &str) = (
    "devstoreaccount1",
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
);
const REPOSITORIES: [(&str, &str); 4] = [
    ("pgbackrest-2.60-block-zst-pageerror", "repo"),
    ("walg-zstd", "repo"),
    ("barman-3.19-tar-zstd", "demo"),
    ("barman-cloud-gz", "gz"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Versity,
    Minio,
    Moto,
    Azure,
    Google,
}

pub(super) const KINDS: [Kind; 5] =
    [Kind::Versity, Kind::Minio, Kind::Moto, Kind::Azure, Kind::Google];

impl Kind {
    pub(super) fn is_s3(self) -> bool {
        matches!(self, Self::Versity | Self::Minio | Self::Moto)
    }

    /// What `cargo xtask servers` calls it, and its program there.
    fn program(self) -> (&'static str, &'static str) {
        match self {
            Self::Versity => ("versitygw", "bin/versitygw"),
            Self::Minio => ("minio", "bin/minio"),
            Self::Moto => ("moto", "moto/server.py"),
            Self::Azure => ("azurite", "node_modules/.bin/azurite-blob"),
            Self::Google => ("fake-gcs-server", "bin/fake-gcs-server"),
        }
    }
}

/// A store that runs, with a bucket. It ends with this.
pub(super) struct Store {
    kind: Kind,
    process: Child,
    folder: TempDir,
    pub(super) port: u16,
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

pub(super) fn silent(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A certificate of an authority of its own: `ca.crt`, `leaf.crt`, `leaf.key`.
fn make_certificates(folder: &Path) {
    let openssl = |arguments: &str| {
        silent(Command::new("openssl").current_dir(folder).args(arguments.split(' ')));
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";
    let of_authority = "-out ca.crt -days 2 -subj /CN=ca -addext basicConstraints=critical,CA:TRUE";
    openssl(&format!("req -x509 {key} -keyout ca.key {of_authority}"));
    openssl(&format!("req {key} -keyout leaf.key -out leaf.csr -subj /CN=store"));
    let names = "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n";
    fs::write(folder.join("names"), names).unwrap();
    let signed = "-CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out leaf.crt";
    openssl(&format!("x509 -req -in leaf.csr {signed}"));
}

impl Store {
    /// Begins one. `None`, said aloud, where its program was not installed.
    pub(super) fn start(kind: Kind) -> Option<Self> {
        let (name, program) = kind.program();
        let program = servers_dir().join(name).join(program);
        if !program.exists() {
            assert!(!required("stores"), "PAGEWARDEN_REQUIRE names stores: no {name}");
            eprintln!("SKIPPED: no {name} (cargo xtask servers {name})");
            return None;
        }
        // The port was free; another process may have taken it since.
        (0..10).find_map(|_| Self::try_start(kind, &program)).or_else(|| panic!("no {name}"))
    }

    fn try_start(kind: Kind, program: &Path) -> Option<Self> {
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new(program);
        match kind {
            Kind::Versity => {
                make_certificates(folder.path());
                fs::create_dir(folder.path().join("root")).unwrap();
                let place = |name: &str| folder.path().join(name);
                command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
                command.args(["--quiet", "--port", &format!("127.0.0.1:{port}")]);
                command.arg("--cert").arg(place("leaf.crt"));
                command.arg("--key").arg(place("leaf.key"));
                command.arg("posix").arg(place("root"));
            }
            Kind::Minio => {
                command.env("MINIO_ROOT_USER", KEY).env("MINIO_ROOT_PASSWORD", SECRET);
                command.env("MINIO_BROWSER", "off").env("HOME", folder.path());
                command.args(["server", "--quiet", "--address", &format!("127.0.0.1:{port}")]);
                command.arg(folder.path().join("root"));
            }
            Kind::Moto => {
                command = Command::new("python3");
                command.env("PYTHONPATH", program.ancestors().nth(2).unwrap());
                command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
            }
            Kind::Azure => {
                command.args(["--silent", "--skipApiVersionCheck", "--blobHost", "127.0.0.1"]);
                command.args(["--blobPort", &port.to_string(), "--location"]).arg(folder.path());
            }
            Kind::Google => {
                command.args(["-scheme", "http", "-host", "127.0.0.1", "-backend", "memory"]);
                command.args(["-port", &port.to_string()]);
                command.args(["-public-host", &format!("127.0.0.1:{port}")]);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let mut store = Self { kind, process, folder, port };
        let begin = Instant::now();
        while !store.makes_bucket() {
            if store.process.try_wait().unwrap().is_some() {
                return None;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{kind:?} does not answer");
            thread::sleep(Duration::from_millis(50));
        }
        Some(store)
    }

    fn endpoint(&self) -> String {
        let port = self.port;
        match self.kind {
            Kind::Versity => format!("https://127.0.0.1:{port}"),
            Kind::Azure => format!("http://127.0.0.1:{port}/{}", AZURE.0),
            Kind::Minio | Kind::Moto | Kind::Google => format!("http://127.0.0.1:{port}"),
        }
    }

    fn curl(&self) -> Command {
        let mut curl = Command::new("curl");
        curl.args(["-sS", "--fail-with-body", "-o", "/dev/null"]);
        if self.kind == Kind::Versity {
            curl.arg("--cacert").arg(self.folder.path().join("ca.crt"));
        }
        if self.kind.is_s3() {
            curl.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user"]);
            curl.arg(format!("{KEY}:{SECRET}"));
            curl.args(["-H", "x-amz-content-sha256: UNSIGNED-PAYLOAD"]);
        }
        if self.kind == Kind::Azure {
            curl.args(["-H", "x-ms-blob-type: BlockBlob"]);
        }
        curl
    }

    /// False while it does not answer, or says that it is not ready.
    fn makes_bucket(&self) -> bool {
        if TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            return false;
        }
        let (endpoint, mut curl) = (self.endpoint(), self.curl());
        match self.kind {
            Kind::Versity | Kind::Minio | Kind::Moto => {
                curl.args(["-X", "PUT", &format!("{endpoint}/bucket")])
            }
            Kind::Azure => {
                let url = format!("{endpoint}/bucket?restype=container&{}", signature());
                curl.args(["-X", "PUT", "-H", "Content-Length: 0", &url])
            }
            Kind::Google => {
                curl.args(["-H", "Content-Type: application/json", "-d", r#"{"name":"bucket"}"#]);
                curl.arg(format!("{endpoint}/storage/v1/b?project=x"))
            }
        };
        curl.output().unwrap().status.success()
    }

    /// Puts files there, each under its key.
    pub(super) fn put(&self, files: &[(String, PathBuf)]) {
        let mut list = String::new();
        let (endpoint, signature) = (self.endpoint(), signature());
        for (key, path) in files {
            let key = escaped(key);
            let url = match self.kind {
                Kind::Versity | Kind::Minio | Kind::Moto => format!("{endpoint}/bucket/{key}"),
                Kind::Azure => format!("{endpoint}/bucket/{key}?{signature}"),
                Kind::Google => {
                    let key = key.replace('/', "%2F");
                    format!("{endpoint}/upload/storage/v1/b/bucket/o?uploadType=media&name={key}")
                }
            };
            writeln!(list, "url = \"{url}\"\nupload-file = \"{}\"", path.display()).unwrap();
            writeln!(list, "output = \"/dev/null\"").unwrap();
        }
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(list.as_bytes()).unwrap();
        let mut curl = self.curl();
        if self.kind == Kind::Google {
            curl.args(["-X", "POST"]);
        }
        silent(curl.arg("-K").arg(file.path()));
    }

    /// Puts a folder there.
    pub(super) fn put_folder(&self, prefix: &str, folder: &Path) {
        let mut files = Vec::new();
        list(folder, prefix, &mut files);
        self.put(&files);
    }

    pub(super) fn address(&self, key: &str) -> String {
        let scheme = match self.kind {
            Kind::Versity | Kind::Minio | Kind::Moto => "s3",
            Kind::Azure => "az",
            Kind::Google => "gs",
        };
        format!("{scheme}://bucket/{key}")
    }

    /// The program, with this store's credentials.
    pub(super) fn command(&self, name: &str, arguments: &[&str]) -> Command {
        self.command_by(&self.endpoint(), name, arguments)
    }

    /// The same, by a port of this machine that leads to the store.
    pub(super) fn command_by_port(&self, port: u16, name: &str, arguments: &[&str]) -> Command {
        let (own, other) = (format!(":{}", self.port), format!(":{port}"));
        self.command_by(&self.endpoint().replace(&own, &other), name, arguments)
    }

    fn command_by(&self, endpoint: &str, name: &str, arguments: &[&str]) -> Command {
        let mut command = pagewarden();
        match self.kind {
            Kind::Versity | Kind::Minio | Kind::Moto => {
                command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
                if self.kind == Kind::Versity {
                    command.env("SSL_CERT_FILE", self.folder.path().join("ca.crt"));
                }
            }
            Kind::Azure => {
                command.env("AZURE_STORAGE_ACCOUNT_NAME", AZURE.0);
                command.env("AZURE_STORAGE_ACCOUNT_KEY", AZURE.1);
            }
            Kind::Google => {
                let account = self.folder.path().join("account.json");
                let text = r#"{"client_email":"","private_key":"","private_key_id":"","#;
                fs::write(&account, format!("{text}\"disable_oauth\":true}}")).unwrap();
                command.env("GOOGLE_SERVICE_ACCOUNT", account);
            }
        }
        command.args([name, "--endpoint", endpoint]).args(arguments);
        command
    }
}

fn list(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let key = format!("{prefix}/{}", path.file_name().unwrap().to_str().unwrap());
        match path.is_dir() {
            true => list(&path, &key, files),
            false => files.push((key, path)),
        }
    }
}

/// A key as it stands in an address.
fn escaped(key: &str) -> String {
    let mut text = String::new();
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'_' | b'.' | b'~' => {
                text.push(char::from(byte));
            }
            _ => write!(text, "%{byte:02X}").unwrap(),
        }
    }
    text
}

/// A shared access signature for Azurite, which lets its bearer do everything.
fn signature() -> String {
    let (version, end) = ("2020-04-08", "2099-01-01T00:00:00Z");
    let text = format!("{}\nrwdlac\nb\nsco\n\n{end}\n\n\n{version}\n", AZURE.0);
    let python = "import sys,hmac,hashlib,base64,urllib.parse as u\n\
                  key=base64.b64decode(sys.argv[1])\n\
                  mac=hmac.new(key,sys.argv[2].encode(),hashlib.sha256).digest()\n\
                  print(u.quote(base64.b64encode(mac).decode(),safe=''),end='')";
    let output = Command::new("python3").args(["-c", python, AZURE.1, &text]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let signature = String::from_utf8(output.stdout).unwrap();
    let end = end.replace(':', "%3A");
    format!("sv={version}&ss=b&srt=sco&sp=rwdlac&se={end}&sig={signature}")
}

#[test]
fn real_stores_give_the_reports_that_a_disk_gives() {
    for kind in KINDS {
        let Some(store) = Store::start(kind) else { continue };
        for (name, folder) in REPOSITORIES {
            let Some(path) = repository(name, folder) else { return };
            store.put_folder(&format!("backups of/{name}+x"), &path);
            let here = run(pagewarden().args(["check", "--json"]).arg(&path));
            let address = store.address(&format!("backups of/{name}+x"));
            let there = run(&mut store.command("check", &["--json", &address]));
            let case = format!("{kind:?} {name}: {} {}", there.stdout, there.stderr);
            assert_eq!(there.status, here.status, "{case}");
            assert_eq!(
                comparable(&there.report().json, &address),
                comparable(&here.report().json, path.to_str().unwrap()),
                "{case}"
            );
            assert!(!format!("{}{}", there.stdout, there.stderr).contains(SECRET), "{case}");
        }
        // All of them at once.
        let all = store.address("backups of");
        let all = run(&mut store.command("check", &["--json", &all]));
        let found = all.report().json["targets"].as_array().unwrap().len();
        assert!(found > 10, "{kind:?}: {found} {}", all.stderr);
    }
}

#[test]
fn packs_are_sent_to_real_stores_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("shop.sqlite");
    let make = "CREATE TABLE t (id INTEGER PRIMARY KEY, b BLOB);
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 8000)
        INSERT INTO t SELECT i, randomblob(3000) FROM n;";
    silent(Command::new("sqlite3").arg(&source).arg(make));
    // fake-gcs-server takes no object by Google's XML interface, which is the one that is spoken here.
    for kind in KINDS.into_iter().filter(|kind| *kind != Kind::Google) {
        let Some(store) = Store::start(kind) else { continue };
        let address = store.address("packs/a b+c/shop.pwk");
        let pack = ["-q", "--json", source.to_str().unwrap(), "-o", &address];
        let packed = run(&mut store.command("pack", &pack));
        let case = format!("{kind:?}: {}{}", packed.stdout, packed.stderr);
        assert_eq!(packed.status, Some(0), "{case}");
        let report: Value = serde_json::from_str(&packed.stdout).unwrap();
        assert!(report["storage"]["sent_bytes"].as_u64().unwrap() > 20 << 20, "{case}");
        let again = run(&mut store.command("pack", &pack));
        assert_eq!(again.status, Some(2), "{kind:?}: {}", again.stderr);
        assert!(again.stdout.contains("not overwritten"), "{kind:?}: {}", again.stdout);
        let checked = run(&mut store.command("check", &["--json", &store.address("packs")]));
        assert_eq!(checked.status, Some(0), "{kind:?}: {}{}", checked.stdout, checked.stderr);
        let out = folder.path().join(format!("{kind:?}"));
        let unpack = [address.as_str(), out.to_str().unwrap(), "-q"];
        let unpacked = run(&mut store.command("unpack", &unpack));
        assert_eq!(unpacked.status, Some(0), "{kind:?}: {}", unpacked.stderr);
        assert!(
            fs::read(out.join(source.file_name().unwrap())).unwrap() == fs::read(&source).unwrap()
        );
    }
}

#[test]
fn real_stores_that_refuse_or_are_not_trusted_are_told_in_words() {
    for kind in [Kind::Versity, Kind::Minio, Kind::Azure] {
        let Some(store) = Store::start(kind) else { continue };
        let wrong = "d3JvbmctY2FuYXJ5LXNlY3JldA==";
        let mut refused = store.command("check", &[&store.address("x")]);
        refused.env("AWS_SECRET_ACCESS_KEY", wrong).env("AZURE_STORAGE_ACCOUNT_KEY", wrong);
        let refused = run(&mut refused);
        assert_eq!(refused.status, Some(2), "{kind:?}: {}", refused.stderr);
        assert!(refused.stderr.contains("check that the credentials"), "{}", refused.stderr);
        assert!(!refused.stderr.contains(wrong), "{}", refused.stderr);
        let absent = run(&mut store.command("check", &[&store.address("absent")]));
        assert_eq!(absent.status, Some(2), "{kind:?}: {}", absent.stderr);
        assert!(absent.stderr.contains("there is no such object"), "{}", absent.stderr);
    }
    for kind in KINDS.into_iter().filter(|kind| kind.is_s3()) {
        let Some(store) = Store::start(kind) else { continue };
        let nowhere = run(&mut store.command("check", &["s3://nowhere/x"]));
        assert_eq!(nowhere.status, Some(2), "{kind:?}: {}", nowhere.stderr);
        assert!(nowhere.stderr.contains("there is no such bucket"), "{}", nowhere.stderr);
    }
    let Some(store) = Store::start(Kind::Versity) else { return };
    let mut unknown = store.command("check", &[&store.address("x")]);
    let unknown = run(unknown.env_remove("SSL_CERT_FILE"));
    assert_eq!(unknown.status, Some(2), "{}", unknown.stderr);
    assert!(unknown.stderr.contains("SSL_CERT_FILE"), "{}", unknown.stderr);
}
