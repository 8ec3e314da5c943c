//! The pages of `serve` in a real browser: Debian's Chromium, without a window, driven over its
//! debugging pipe. Skipped aloud where there is none.

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::runner::{pagewarden, run};
use crate::scrub::make_summed;
use crate::serve::Serving;
use crate::sqlite::{has_shell, shell};

/// No page and no step takes this long.
const LIMIT: Duration = Duration::from_secs(60);

/// The lowest part of a page that a picture shows.
const PICTURE_HEIGHT: u64 = 1000;

/// The least contrast between a text and what is behind it, as the guidelines for accessibility
/// compute it.
const CONTRAST: &str = r#"(() => {
  const parts = colour => colour.match(/[\d.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = parts(colour).slice(0, 3)
      .map(part => part / 255)
      .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = light(getComputedStyle(document.body).backgroundColor);
  const texts = [...document.querySelectorAll('main *')]
    .filter(element => [...element.childNodes].some(node => node.nodeType == 3 && node.data.trim()));
  return Math.min(...texts.filter(element => !element.closest('svg')).map(element => {
    const text = light(getComputedStyle(element).color);
    return (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05);
  }));
})()"#;

/// A browser with one page, ended with the test.
struct Browser {
    child: Child,
    asks: ChildStdin,
    answers: BufReader<ChildStdout>,
    session: Option<String>,
    number: u64,
    /// What the browser complained about.
    complaints: Vec<String>,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Browser {
    /// `None` where there is no Chromium.
    fn start() -> Option<Self> {
        let found = Command::new("chromium").arg("--version").output();
        if !found.is_ok_and(|output| output.status.success()) {
            eprintln!("SKIPPED: no chromium here\nhint: apt-get install chromium");
            return None;
        }
        let profile = TempDir::new().unwrap();
        // The pipe is its third and fourth file.
        let mut child = Command::new("sh")
            .args(["-c", "exec chromium \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1", "sh"])
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let asks = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        let mut browser = Self {
            child,
            asks,
            answers,
            session: None,
            number: 0,
            complaints: Vec::new(),
            _profile: profile,
        };
        let page = browser.call("Target.createTarget", &json!({"url": "about:blank"}));
        let attach = json!({"targetId": page["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &attach);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Log.enable", &json!({}));
        Some(browser)
    }

    /// Calls a method of the debugging protocol.
    fn call(&mut self, method: &str, params: &Value) -> Value {
        self.number += 1;
        let mut ask = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            ask["sessionId"] = session.as_str().into();
        }
        self.asks.write_all(format!("{ask}\0").as_bytes()).unwrap();
        loop {
            let mut bytes = Vec::new();
            self.answers.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has ended at {method}");
            let answer: Value = serde_json::from_slice(&bytes).unwrap();
            // Of events, only complaints are of interest: a style that was refused, a broken link.
            if answer["method"] == "Log.entryAdded" {
                self.complaints.push(answer["params"]["entry"].to_string());
            }
            if answer["id"] == self.number {
                assert!(answer["error"].is_null(), "{method}: {answer}");
                return answer["result"].clone();
            }
        }
    }

    fn evaluate(&mut self, script: &str) -> Value {
        let asked = json!({"expression": script, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", &asked);
        assert!(answer["exceptionDetails"].is_null(), "{script}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until this is true on the page, whichever it then is.
    fn wait(&mut self, condition: &str) {
        let begin = Instant::now();
        let script = format!("document.readyState == 'complete' && ({condition})");
        while self.evaluate(&script) != true {
            assert!(begin.elapsed() < LIMIT, "never: {condition}; {}", self.text());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn open(&mut self, address: &str) {
        self.call("Page.navigate", &json!({"url": address}));
        self.wait(&format!("location.href == '{address}'"));
    }

    fn text(&mut self) -> String {
        self.evaluate("document.body ? document.body.innerText : ''").as_str().unwrap().to_owned()
    }

    /// Presses a key and lets it go.
    fn press(&mut self, key: &str, code: u32) {
        let text = if key == "Enter" { "\r" } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "text": text,
                "windowsVirtualKeyCode": code});
            self.call("Input.dispatchKeyEvent", &event);
        }
    }

    /// Presses Tab until this element has the focus, and Enter.
    fn go_by_keyboard(&mut self, selector: &str) {
        for _ in 0..50 {
            self.press("Tab", 9);
            let is_there =
                format!("document.activeElement == document.querySelector('{selector}')");
            if self.evaluate(&is_there) == true {
                let seen = "getComputedStyle(document.activeElement).outlineStyle != 'none'";
                assert_eq!(self.evaluate(seen), true, "the focus cannot be seen");
                self.press("Enter", 13);
                return;
            }
        }
        panic!("Tab does not lead to {selector}: {}", self.text());
    }

    /// Fails if it complained about a page.
    fn is_quiet(&self) {
        let real: Vec<_> = self.complaints.iter().filter(|one| !one.contains("favicon")).collect();
        assert!(real.is_empty(), "{real:?}");
    }

    /// The window, and what its user likes.
    fn look(&mut self, width: u32, scheme: &str) {
        let window = json!({"width": width, "height": 900, "deviceScaleFactor": 1,
            "mobile": width < 800});
        self.call("Emulation.setDeviceMetricsOverride", &window);
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", &json!({"features": features}));
    }

    /// A picture of the top of the page.
    fn picture(&mut self, file: &Path) {
        let sizes = "[document.documentElement.clientWidth, document.documentElement.scrollHeight]";
        let sizes = self.evaluate(sizes);
        let height = sizes[1].as_u64().unwrap().min(PICTURE_HEIGHT);
        let clip = json!({"x": 0, "y": 0, "width": sizes[0], "height": height, "scale": 1});
        let asked = json!({"format": "webp", "quality": 50, "clip": clip,
            "captureBeyondViewport": true});
        let picture = self.call("Page.captureScreenshot", &asked);
        let mut decode = Command::new("base64");
        decode.arg("-d").stdin(Stdio::piped()).stdout(fs::File::create(file).unwrap());
        let mut decode = decode.spawn().unwrap();
        let text = picture["data"].as_str().unwrap().as_bytes();
        decode.stdin.take().unwrap().write_all(text).unwrap();
        assert!(decode.wait().unwrap().success());
    }
}

/// Changes a bit of a page, or changes it back.
fn flip(path: &Path, page: u64) {
    let file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, page * 4096 - 4000).unwrap();
    file.write_all_at(&[byte[0] ^ 8], page * 4096 - 4000).unwrap();
}

/// Four databases, one of them without sums, and one that is not there.
fn place() -> Option<TempDir> {
    if !has_shell() {
        return None;
    }
    let folder = TempDir::new().unwrap();
    let root = folder.path();
    for (name, pages) in [("orders", 900), ("billing", 900), ("shop", 300)] {
        make_summed(&root.join(format!("{name}.sqlite")), pages);
    }
    shell(
        root,
        &format!("ATTACH '{}' AS d; CREATE TABLE d.t (a);", root.join("old.sqlite").display()),
    );
    let mut config = String::new();
    for name in ["orders", "billing", "shop", "old", "missing"] {
        let _ = writeln!(config, "[[database]]\nname = \"{name}\"\npath = \"{name}.sqlite\"");
    }
    fs::write(root.join("pagewarden.toml"), config).unwrap();
    Some(folder)
}

/// Run in the folder, so that the paths that are shown are short.
fn here(folder: &Path, words: &[&str]) -> Command {
    let mut command = pagewarden();
    command.args(words).args(["--config", "pagewarden.toml", "--state", "state"]);
    command.current_dir(folder);
    command
}

fn serve(folder: &Path) -> Serving {
    Serving::of(here(folder, &["serve", "--listen", "127.0.0.1:0"]))
}

fn scrub(folder: &Path) {
    thread::sleep(Duration::from_millis(100));
    let outcome = run(&mut here(folder, &["scrub", "-q", "--every", "0s"]));
    assert!(outcome.stderr.contains("cannot open"), "{outcome:?}");
}

/// The text of the state's sign in the line of a database.
fn state_of(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('tbody tr')]\
         .find(row => row.querySelector('a').innerText == '{name}')\
         .querySelector('.badge').innerText"
    )
}

#[test]
fn a_browser_opens_filters_drills_down_and_sees_a_finding_appear_and_go() {
    let Some(mut browser) = Browser::start() else { return };
    let Some(folder) = place() else { return };
    let shop = folder.path().join("shop.sqlite");
    for page in [101, 102, 301] {
        flip(&folder.path().join("billing.sqlite"), page);
    }
    scrub(folder.path());
    let serving = serve(folder.path());
    let home = format!("http://{}", serving.address);
    browser.look(1280, "light");
    browser.open(&format!("{home}/"));
    // What needs someone comes first.
    let first = "document.querySelector('tbody tr a').innerText";
    assert_eq!(browser.evaluate(first), "billing");
    assert_eq!(browser.evaluate(&state_of("shop")), "\u{2713} intact");
    assert!(browser.text().contains("No such file"), "{}", browser.text());
    // By keyboard: the damaged ones, and one of them.
    browser.go_by_keyboard(".filters a.bad");
    browser.wait("location.search == '?state=damaged'");
    assert_eq!(browser.evaluate("document.querySelectorAll('tbody tr').length"), 1);
    browser.go_by_keyboard("tbody a");
    browser.wait("location.pathname == '/targets/billing'");
    assert!(browser.text().contains("Open findings (3)"), "{}", browser.text());
    let marked = "document.querySelectorAll('.map .t-bad path').length > 0";
    assert_eq!(browser.evaluate(marked), true, "damage has a pattern");
    browser.go_by_keyboard("nav a[href*=age]");
    browser.wait("location.search == '?map=age'");
    // A finding appears, and goes.
    let target = format!("{home}/targets/shop");
    browser.open(&target);
    assert!(browser.text().contains("Open findings (0)"), "{}", browser.text());
    serving.end();
    for (bit, state, open) in [("set", "damaged", 1), ("put back", "intact", 0)] {
        flip(&shop, 40);
        scrub(folder.path());
        let serving = serve(folder.path());
        browser.open(&format!("http://{}/targets/shop", serving.address));
        let text = browser.text();
        assert!(text.contains(&format!("Open findings ({open})")), "{bit}: {text}");
        assert!(text.contains(state), "{bit}: {text}");
        assert_eq!(text.contains("Closed findings"), open == 0, "{bit}: {text}");
        serving.end();
    }
    browser.is_quiet();
}

#[test]
fn no_page_is_wider_than_its_window() {
    let Some(mut browser) = Browser::start() else { return };
    let Some(folder) = place() else { return };
    for page in [101, 102, 301] {
        flip(&folder.path().join("billing.sqlite"), page);
        scrub(folder.path());
    }
    let serving = serve(folder.path());
    // Where pictures for the documentation go: `PAGEWARDEN_PICTURES=docs`.
    let pictures = std::env::var_os("PAGEWARDEN_PICTURES").map(PathBuf::from);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    for (width, scheme) in [(1280, "light"), (400, "light"), (1280, "dark"), (400, "dark")] {
        browser.look(width, scheme);
        for (name, path) in [
            ("all", "/"),
            ("one", "/targets/billing"),
            ("age", "/targets/billing?map=age"),
            ("none", "/targets/missing"),
        ] {
            browser.open(&format!("http://{}{path}", serving.address));
            let fits =
                "document.documentElement.scrollWidth <= document.documentElement.clientWidth";
            assert_eq!(browser.evaluate(fits), true, "{path} at {width}");
            // Dark and light are there, and text stands out from what is behind it.
            let contrast = browser.evaluate(CONTRAST).as_f64().unwrap();
            assert!(contrast >= 4.5, "{path}, {width}, {scheme}: contrast {contrast}");
            let picture = match (name, width, scheme) {
                ("all", 1280, "light") => "serve-all.webp",
                ("one", 1280, "dark") => "serve-one.webp",
                ("all", 400, "dark") => "serve-narrow.webp",
                _ => continue,
            };
            if let Some(folder) = &pictures {
                browser.picture(&root.join(folder).join(picture));
            }
        }
    }
    browser.is_quiet();
}
