//! A real browser, driven over WebDriver: JSON over HTTP to Debian's `chromedriver`.

use std::io::{BufRead, BufReader, Result, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::world::{World, until};

/// Chromium without a window; ends with its test.
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    pub fn start(world: &World) -> Browser {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.spawn().expect("install the package chromium-driver");
        let mut lines = BufReader::new(driver.stdout.take().unwrap()).lines().map_while(Result::ok);
        let port = lines.find_map(|line| {
            let port = line.split("started successfully on port ").nth(1)?;
            port.trim_end_matches('.').parse().ok()
        });
        std::thread::spawn(move || lines.for_each(drop));
        let port = port.expect("chromedriver prints its port");
        let mut browser = Browser { driver, port, session: String::new() };
        let profile = format!("--user-data-dir={}", world.path("profile").display());
        // Root has no sandbox, and /dev/shm may be small.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--disable-gpu",
            &profile,
        ];
        let capabilities = json!({
            "goog:chromeOptions": { "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
            // The CA of a test is not the system's.
            "acceptInsecureCerts": true,
        });
        let body = json!({ "capabilities": { "alwaysMatch": capabilities } });
        let created = browser.send("POST", "/session", &body);
        browser.session = created["sessionId"].as_str().expect("a session").to_owned();
        browser
    }

    /// Sends a command of the session.
    fn command(&self, path: &str, body: &Value) -> Value {
        self.send("POST", &format!("/session/{}/{path}", self.session), body)
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, body) = self.exchange(method, path, &body.to_string()).unwrap();
        let mut answer: Value = serde_json::from_slice(&body).unwrap();
        assert!(status.contains(" 200 "), "{path}: {answer}");
        answer["value"].take()
    }

    /// Sends a request to the driver; returns status line and body of the answer.
    fn exchange(&self, method: &str, path: &str, body: &str) -> Result<(String, Vec<u8>)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost:{}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all((head + body).as_bytes())?;
        answer_of(BufReader::new(stream))
    }

    /// Opens a page.
    pub fn open(&self, url: &str) {
        self.command("url", &json!({ "url": url }));
    }

    /// Waits until an open page has its first live event.
    pub fn until_live(&self) {
        until(|| {
            let connection = "return document.getElementById('connection')?.innerText";
            self.script(connection) == "Live"
        });
    }

    /// Evaluates a script, such as `return document.title`.
    pub fn script(&self, script: &str) -> Value {
        self.command("execute/sync", &json!({ "script": script, "args": [] }))
    }

    /// Sends a command of Chromium's own protocol.
    pub fn devtools(&self, name: &str, parameters: &Value) -> Value {
        self.command("goog/cdp/execute", &json!({ "cmd": name, "params": parameters }))
    }

    /// Sets the width of the window, and the colour scheme that the user prefers.
    pub fn set_view(&self, width: u32, scheme: &str) {
        let size = json!({ "width": width, "height": 800, "deviceScaleFactor": 1,
            "mobile": width < 500 });
        self.devtools("Emulation.setDeviceMetricsOverride", &size);
        let feature = json!({ "name": "prefers-color-scheme", "value": scheme });
        self.devtools("Emulation.setEmulatedMedia", &json!({ "features": [feature] }));
    }

    /// The nodes of the page as JSON, without running a script in it.
    pub fn nodes(&self) -> String {
        self.devtools("DOM.getDocument", &json!({ "depth": -1 })).to_string()
    }

    /// Gives an element the focus, without running a script in the page.
    fn focus(&self, selector: &str) {
        let root = self.devtools("DOM.getDocument", &json!({ "depth": 0 }));
        let query = json!({ "nodeId": root["root"]["nodeId"], "selector": selector });
        let found = self.devtools("DOM.querySelector", &query);
        assert_ne!(found["nodeId"], 0, "{selector}");
        self.devtools("DOM.focus", &json!({ "nodeId": found["nodeId"] }));
    }

    /// Presses a button or a link, or unfolds an element, with the Enter key.
    pub fn press(&self, selector: &str) {
        self.focus(selector);
        self.press_enter();
    }

    /// Types into a field and sends its form.
    pub fn enter(&self, selector: &str, text: &str) {
        self.focus(selector);
        self.devtools("Input.insertText", &json!({ "text": text }));
        self.press_enter();
    }

    fn press_enter(&self) {
        let key = |kind: &str| {
            json!({ "type": kind, "key": "Enter", "code": "Enter", "text": "\r",
                "windowsVirtualKeyCode": 13 })
        };
        self.devtools("Input.dispatchKeyEvent", &key("keyDown"));
        self.devtools("Input.dispatchKeyEvent", &key("keyUp"));
    }

    /// Errors on the browser's console: scripts, and violations of the content security policy.
    pub fn errors(&self) -> Vec<String> {
        let log = self.command("se/log", &json!({ "type": "browser" }));
        let severe = |entry: &&Value| entry["level"] == "SEVERE";
        log.as_array().unwrap().iter().filter(severe).map(Value::to_string).collect()
    }

    /// Saves the whole page as PNG in the target folder, for people.
    pub fn screenshot(&self, name: &str) {
        let shot =
            self.devtools("Page.captureScreenshot", &json!({ "captureBeyondViewport": true }));
        let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("panel");
        std::fs::create_dir_all(&folder).unwrap();
        let png = from_base64(shot["data"].as_str().unwrap());
        assert!(png.starts_with(b"\x89PNG"));
        std::fs::write(folder.join(format!("{name}.png")), png).unwrap();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Without this the browser outlives its driver.
        let _ = self.exchange("DELETE", &format!("/session/{}", self.session), "{}");
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Reads status line and body. The driver keeps the connection open after its answer.
fn answer_of(mut stream: impl BufRead) -> Result<(String, Vec<u8>)> {
    let (mut status, mut length) = (String::new(), None);
    stream.read_line(&mut status)?;
    let heads = stream.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
    for line in heads {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok();
        }
    }
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body)?;
    Ok((status, body))
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits: Vec<usize> = text.chars().filter_map(|c| DIGITS.find(c)).collect();
    let bytes = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().enumerate().map(|(at, digit)| digit << (18 - 6 * at)).sum::<usize>();
        let count = four.len() * 6 / 8;
        [bits >> 16, bits >> 8, bits].into_iter().map(|byte| byte as u8).take(count)
    });
    bytes.collect()
}
