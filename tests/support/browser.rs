//! A real headless browser, driven over its debugging protocol: opens pages, finds elements by role, records console
//! errors.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tungstenite::{Message, WebSocket, stream::MaybeTlsStream};

/// Time limit for the browser to start and answer, on a machine that compiles at the same time.
const LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// The browser with one page.
pub struct Browser {
    process: Child,
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: String,
    next_id: u64,
    /// Console errors and uncaught exceptions since the last query.
    complaints: Vec<String>,
    events: VecDeque<Value>,
    _profile: TempDir,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The path of the browser; `None` if the machine has none.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .flat_map(|directory| {
            ["chromium", "chromium-browser", "google-chrome"].map(|name| directory.join(name))
        })
        .find(|path| path.is_file())
}

impl Browser {
    /// Returns `None`, with a reported skip, if the machine has no browser.
    pub fn open() -> Option<Self> {
        let Some(program) = program() else {
            benchmesh_testing::skip("chromium", "the page is looked at in a real browser");
            return None;
        };
        let profile = TempDir::new().unwrap();
        let process = Command::new(program)
            .args([
                "--headless=new",
                "--remote-debugging-port=0",
                "--no-sandbox",
            ])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-extensions"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let file = profile.path().join("DevToolsActivePort");
        let address = super::wait::until("the browser listens", LIMIT, || {
            let text = std::fs::read_to_string(&file).ok()?;
            let mut lines = text.lines();
            let (port, path) = (lines.next()?, lines.next()?);
            Some(format!("ws://127.0.0.1:{port}{path}"))
        });
        let (socket, _) = tungstenite::connect(&address).unwrap();
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream.set_read_timeout(Some(PAUSE)).unwrap();
        }
        let mut browser = Self {
            process,
            socket,
            session: String::new(),
            next_id: 0,
            complaints: Vec::new(),
            events: VecDeque::new(),
            _profile: profile,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser.call(
            "Target.attachToTarget",
            json!({ "targetId": target["targetId"], "flatten": true }),
        );
        browser.session = attached["sessionId"].as_str().unwrap().to_owned();
        for domain in ["Page", "Runtime", "Log", "DOM", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// One call of the protocol and its result.
    fn call(&mut self, method: &str, params: Value) -> Value {
        self.next_id += 1;
        let id = self.next_id;
        let mut request = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            request["sessionId"] = json!(self.session);
        }
        self.socket
            .send(Message::text(request.to_string()))
            .unwrap();
        let deadline = Instant::now() + LIMIT;
        loop {
            assert!(Instant::now() < deadline, "no answer to {method}");
            let Some(message) = self.read() else { continue };
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.note(message);
        }
    }

    fn read(&mut self) -> Option<Value> {
        match self.socket.read() {
            Ok(Message::Text(text)) => Some(serde_json::from_str(&text).unwrap()),
            Ok(_) => None,
            Err(tungstenite::Error::Io(error))
                if matches!(
                    error.kind(),
                    // A read with a time limit is not restarted after a signal.
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted
                ) =>
            {
                None
            }
            Err(error) => panic!("the browser is gone: {error}"),
        }
    }

    fn note(&mut self, event: Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Runtime.exceptionThrown" => {
                self.complaints.push(params["exceptionDetails"].to_string())
            }
            "Runtime.consoleAPICalled" if params["type"] == "error" => {
                self.complaints.push(params["args"].to_string());
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"].to_string());
            }
            _ => {}
        }
        self.events.push_back(event);
        if self.events.len() > 1000 {
            self.events.pop_front();
        }
    }

    /// Console errors and uncaught exceptions so far.
    pub fn complaints(&mut self) -> Vec<String> {
        // An answer delivers the events before it.
        self.evaluate("1");
        std::mem::take(&mut self.complaints)
    }

    /// Opens an address and waits until it has loaded.
    pub fn open_page(&mut self, url: &str) {
        self.events.clear();
        self.call("Page.navigate", json!({ "url": url }));
        self.until("the page is loaded", "document.readyState === 'complete'");
    }

    /// Follows a link within the page.
    pub fn go(&mut self, hash: &str) {
        self.evaluate(&format!("location.hash = {}", json!(hash)));
    }

    pub fn size(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 }),
        );
    }

    pub fn dark(&mut self, is_dark: bool) {
        let value = if is_dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] }),
        );
    }

    /// One event of the mouse's left button, as if from a user: `mousePressed`, `mouseMoved` or `mouseReleased`, with
    /// the number of clicks so far.
    pub fn mouse(&mut self, kind: &str, (x, y): (f64, f64), clicks: u32) {
        let buttons = u32::from(kind != "mouseReleased");
        self.call(
            "Input.dispatchMouseEvent",
            json!({ "type": kind, "x": x, "y": y, "button": "left", "buttons": buttons, "clickCount": clicks }),
        );
    }

    /// The value of an expression, which may be a promise.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let answer = self.call(
            "Runtime.evaluate",
            json!({ "expression": expression, "awaitPromise": true, "returnByValue": true }),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true.
    pub fn until(&mut self, what: &str, expression: &str) {
        let deadline = Instant::now() + LIMIT;
        while self.evaluate(&format!("Boolean({expression})")) != true {
            assert!(
                Instant::now() < deadline,
                "{what}, in vain; the page says: {}",
                self.evaluate("document.body ? document.body.innerText.slice(0, 2000) : ''")
            );
            // Waits for the next check of the page, or an earlier message.
            if let Some(event) = self.read() {
                self.note(event);
            }
        }
    }

    /// The names of all elements of a role, as for a screen reader.
    pub fn names_of(&mut self, role: &str) -> Vec<String> {
        let document = self.call("DOM.getDocument", json!({ "depth": 0 }));
        let found = self.call(
            "Accessibility.queryAXTree",
            json!({ "nodeId": document["root"]["nodeId"], "role": role }),
        );
        found["nodes"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|node| node["ignored"] != true)
            .map(|node| {
                node["name"]["value"]
                    .as_str()
                    .unwrap_or_default()
                    .to_owned()
            })
            .collect()
    }

    /// Saves a screenshot of the whole page.
    pub fn picture(&mut self, path: &Path) {
        let shot = self.call(
            "Page.captureScreenshot",
            json!({ "format": "png", "captureBeyondViewport": true }),
        );
        let bytes = decoded(shot["data"].as_str().unwrap());
        std::fs::write(path, bytes).unwrap();
    }
}

/// Decodes Base64 without a crate: only the browser's screenshots need it.
fn decoded(text: &str) -> Vec<u8> {
    let value = |c: u8| match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bits, mut count, mut bytes) = (0_u32, 0, Vec::new());
    for six in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(six);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
            bits &= (1 << count) - 1;
        }
    }
    bytes
}
