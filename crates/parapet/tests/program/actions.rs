//! Commands on the web page: by forms in a real browser, and what is refused.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::json;

use crate::panel::with_page;
use crate::webdriver::Browser;
use crate::world::{Server, World, until};

pub const PASSWORD: &str = "correct horse";

/// Makes a password file.
pub fn set_password(world: &World, file: &str, password: &str) -> i32 {
    let mut command = world.command(&["page", "password", file]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = command.spawn().unwrap();
    writeln!(process.stdin.take().unwrap(), "{password}").unwrap();
    process.wait().unwrap().code().unwrap()
}

/// Serves an array with a page that takes commands after a login; returns its address too.
pub fn with_actions(world: &World, members: &[String], more: &[&str]) -> (Server, String) {
    assert_eq!(set_password(world, "page.password", PASSWORD), 0);
    let login = ["--page-actions", "--page-login", "page.password"];
    with_page(world, members, &[&login, more].concat())
}

/// An answer to a raw request.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// The cookie that it sets, as a browser sends it.
    pub fn cookie(&self) -> Option<&str> {
        self.header("set-cookie")?.split(';').next()
    }

    /// The token of its forms.
    pub fn token(&self) -> &str {
        let rest = self.body.split("name=\"token\" value=\"").nth(1).expect(&self.body);
        rest.split('"').next().unwrap()
    }
}

/// Sends a request with these headers; a form makes it a `POST`.
pub fn send(
    mut stream: impl Read + Write,
    path: &str,
    headers: &[(&str, &str)],
    form: Option<&str>,
) -> Answer {
    let method = if form.is_some() { "POST" } else { "GET" };
    let form = form.unwrap_or_default();
    let lines: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(
        stream,
        "{method} {path} HTTP/1.0\r\n{lines}Content-Length: {}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}",
        form.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect(head);
    Answer { status, head: head.into(), body: body.into() }
}

/// Sends a form from a page of the same server.
pub fn post(page: &str, path: &str, cookie: &str, form: &str) -> Answer {
    let origin = format!("http://{page}");
    let headers = [("Host", page), ("Origin", &origin), ("Cookie", cookie)];
    send(TcpStream::connect(page).unwrap(), path, &headers, Some(form))
}

pub fn get(page: &str, path: &str, cookie: &str) -> Answer {
    send(TcpStream::connect(page).unwrap(), path, &[("Host", page), ("Cookie", cookie)], None)
}

pub fn log_in(page: &str, password: &str) -> Answer {
    post(page, "/login", "", &format!("password={}", password.replace(' ', "+")))
}

fn uuid(world: &World) -> String {
    world.order(&["status", "tank"])["uuid"].as_str().unwrap().to_owned()
}

/// Logs in by the form, which has the focus.
fn log_in_by_hand(browser: &Browser, page: &str) {
    browser.open(&format!("http://{page}/"));
    until(|| browser.nodes().contains("Log in"));
    browser.enter("input[name=password]", PASSWORD);
    until(|| browser.nodes().contains("tank: healthy"));
}

#[test]
fn commands_by_forms_work_without_javascript_and_a_loss_needs_the_name() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let (server, page) = with_actions(&world, &members, &[]);
    let state = || world.order(&["status", "tank"])["state"].as_str().unwrap().to_owned();
    let browser = Browser::start(&world);
    browser.devtools("Emulation.setScriptExecutionDisabled", &json!({ "value": true }));
    browser.set_view(1280, "light");
    log_in_by_hand(&browser, &page);
    let uuid = uuid(&world);
    assert!(browser.nodes().contains(&format!("act?array={uuid}")));
    let open = || {
        browser.open(&format!("http://{page}/act?array={uuid}"));
        until(|| browser.nodes().contains("Add a disk"));
    };
    open();
    browser.screenshot("actions-light");
    // The disk of slot 1, unfolded.
    let unfold = || browser.press(".disks li:nth-child(2) summary");
    let name = ".disks li:nth-child(2) form.fail input[name=name]";
    for wrong in ["", "TANK"] {
        unfold();
        browser.enter(name, wrong);
        until(|| browser.nodes().contains("Not confirmed: type tank into the form"));
        assert_eq!(state(), "healthy");
        // The same words again must come from the next form.
        open();
        assert!(!browser.nodes().contains("Not confirmed"));
    }
    unfold();
    browser.screenshot("actions-unfolded-light");
    browser.enter(name, "tank");
    until(|| browser.nodes().contains("marked faulty"));
    until(|| state() == "critical");
    browser.set_view(1280, "dark");
    browser.screenshot("actions-done-dark");
    // The words of the control API: two more would be lost.
    browser.press(".disks li:nth-child(1) summary");
    browser.enter(".disks li:nth-child(1) form.fail input[name=name]", "tank");
    until(|| browser.nodes().contains("outcome critical"));
    let said = world.order_refused(&["fail", "tank", "0"], 3, "PPT-3006");
    let (message, _) = said.split_once(" parapet replace tank ").expect(&said);
    assert!(browser.nodes().contains(message), "{said}");
    assert!(browser.nodes().contains("copies it to another disk first"));
    assert_eq!(state(), "critical");
    for scheme in ["dark", "light"] {
        browser.set_view(375, scheme);
        browser.press(".disks li:nth-child(2) summary");
        browser.screenshot(&format!("actions-refused-narrow-{scheme}"));
    }
    // The failed member is the last of the list.
    browser.press(".disks li:last-child summary");
    browser.press(".disks li:last-child form.re-add button");
    until(|| browser.nodes().contains("is back"));
    until(|| state() == "healthy");
    browser.press("form.scrub button");
    until(|| !world.order(&["status", "tank"])["last_scrub"].is_null());
    assert_eq!(server.terminate(), 0);
}

#[test]
fn forms_without_login_token_or_origin_are_refused() {
    let world = World::new();
    let members = world.create("6", 4, &[]);
    let (server, page) = with_actions(&world, &members, &[]);
    let uuid = uuid(&world);
    let place = format!("/act?array={uuid}");
    let logged_in = [(); 2].map(|()| log_in(&page, PASSWORD));
    assert_eq!(logged_in[0].status, 303, "{:?}", logged_in[0]);
    let set = logged_in[0].header("set-cookie").unwrap();
    assert!(set.contains("; HttpOnly; SameSite=Strict; Path=/; Max-Age="), "{set}");
    let [cookie, other] = logged_in.each_ref().map(|answer| answer.cookie().unwrap());
    let (forms, foreign) = (get(&page, &place, cookie), get(&page, &place, other));
    let policy = forms.header("content-security-policy").unwrap();
    assert!(policy.contains("form-action 'self'"), "{policy}");
    let fail = |token: &str| {
        format!("token={token}&array={}&verb=fail&member=0&name=tank", uuid.replace(':', "%3A"))
    };
    let token = forms.token();
    assert_ne!(token, foreign.token());
    let of = |origin: &str, site: &str| {
        let stream = TcpStream::connect(&page).unwrap();
        let headers = [("Host", page.as_str()), ("Cookie", cookie), ("Sec-Fetch-Site", site)];
        let headers = [&headers[..], &[("Origin", origin)]].concat();
        send(stream, "/act", &headers, Some(&fail(token)))
    };
    let own = format!("http://{page}");
    let bare = [("Host", page.as_str()), ("Cookie", cookie)];
    let bare = send(TcpStream::connect(&page).unwrap(), "/act", &bare, Some(&fail(token)));
    for (answer, status, why) in [
        (post(&page, "/act", "", &fail(token)), 401, "Log in first"),
        (post(&page, "/act", &cookie.replace('=', "=0"), &fail(token)), 401, "Log in first"),
        (post(&page, "/act", cookie, &fail("")), 403, "not of this session"),
        (post(&page, "/act", cookie, &fail(foreign.token())), 403, "not of this session"),
        (of("http://example.org", "same-origin"), 403, "another web page"),
        (of("null", "same-origin"), 403, "another web page"),
        (of(&own, "cross-site"), 403, "another web page"),
        (of(&own, "same-site"), 403, "another web page"),
        (bare, 403, "another web page"),
        (get(&page, &format!("/act?{}", fail(token)), cookie), 200, "Add a disk"),
    ] {
        assert!(answer.status == status && answer.body.contains(why), "{why}: {answer:?}");
        assert_eq!(world.order(&["status", "tank"])["redundancy_left"], 2, "{why}");
    }
    assert_eq!(get(&page, &place, "").header("location"), Some("login"));
    assert_eq!(get(&page, "/events", "").status, 401);
    // All is right.
    let done = of(&own, "same-origin");
    assert_eq!(done.status, 303, "{done:?}");
    assert_eq!(world.order(&["status", "tank"])["redundancy_left"], 1);
    let place = format!("/{}", done.header("location").unwrap());
    assert!(get(&page, &place, cookie).body.contains("marked faulty"));
    // A login that was ended is worth nothing.
    assert_eq!(post(&page, "/logout", cookie, &format!("token={token}")).status, 303);
    assert_eq!(post(&page, "/act", cookie, &fail(token)).status, 401);
    assert_eq!(get(&page, &place, other).status, 200, "the other login goes on");
    assert_eq!(server.terminate(), 0);
}

/// A web page on another port of the same host: browsers send it the same cookies.
#[test]
fn a_form_of_another_page_in_the_same_browser_is_refused() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let (server, page) = with_actions(&world, &members, &[]);
    let browser = Browser::start(&world);
    log_in_by_hand(&browser, &page);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hostile = listener.local_addr().unwrap();
    let body = format!(
        "<form method=post action='http://{page}/act'><input name=array value='{}'>\
         <input name=verb value=fail><input name=member value=0><input name=name value=tank>\
         </form><script>document.forms[0].submit()</script>",
        uuid(&world)
    );
    let answer = move |stream: TcpStream, body: String| {
        let lines = BufReader::new(stream.try_clone().unwrap()).lines();
        lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
        let head = "HTTP/1.0 200 OK\r\nContent-Type: text/html\r\n";
        let _ = write!(&stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len());
    };
    std::thread::spawn(move || {
        // A browser may open connections ahead, and send nothing on them.
        for stream in listener.incoming().flatten() {
            let body = body.clone();
            std::thread::spawn(move || answer(stream, body));
        }
    });
    browser.open(&format!("http://{hostile}/"));
    until(|| browser.nodes().contains("The request comes from another web page"));
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn actions_over_tcp_need_a_login_and_a_good_password_file() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let page = ["page", "--listen", "127.0.0.1:0", "--actions"];
    let said = world.refused(&page, 2, "PPT-2001");
    assert!(said.contains("actions over TCP need a login"), "{said}");
    let serve = ["serve", "tank", &members[0], &members[1], "--page", "127.0.0.1:0"];
    world.refused(&[&serve[..], &["--page-actions"]].concat(), 2, "PPT-2001");
    let with = |file: &str| world.refused(&[&page[..], &["--login", file]].concat(), 1, "PPT-1002");
    assert!(with("page.password").contains("No such file"));
    assert_eq!(set_password(&world, "page.password", PASSWORD), 0);
    let path = world.path("page.password");
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    assert!(with("page.password").contains("other users can read it"));
    let toml = "[page]\nlisten = \"127.0.0.1:7580\"\nactions = true\n";
    std::fs::write(world.path("p.toml"), toml).unwrap();
    let said = world.refused(&["config", "check", "--config", "p.toml"], 2, "PPT-2001");
    assert!(said.contains("p.toml:3") && said.contains("page.login"), "{said}");
}

/// The socket's mode is the login.
#[test]
fn a_page_on_a_unix_socket_takes_commands_without_a_login() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let server = world.serve_members(&members);
    let control = format!("--control=unix:{}", world.path("control.sock").display());
    let page = ["page", "--listen", "unix:page", "--actions", "--json", &control];
    let page = world.start(&page);
    let host = ("Host", "nas.example");
    let ask = |path: &str, headers: &[(&str, &str)], form: Option<&str>| {
        let stream = UnixStream::connect(world.path("page")).unwrap();
        send(stream, path, &[&[host], headers].concat(), form)
    };
    let uuid = uuid(&world);
    let forms = ask(&format!("/act?array={uuid}"), &[], None);
    let cookie = forms.cookie().unwrap();
    let form = format!("token={}&array={uuid}&verb=fail&member=1", forms.token());
    // A web server with TLS in front passes on the host that the browser named.
    let own = [("Origin", "https://nas.example"), ("Cookie", cookie)];
    let refused = ask("/act", &own, Some(&form));
    let outcome = format!("/{}", refused.header("location").unwrap());
    assert!(ask(&outcome, &own[1..], None).body.contains("Not confirmed: type tank"));
    assert_eq!(ask("/act", &own[..1], Some(&form)).status, 403, "without the cookie");
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert_eq!(ask("/act", &own, Some(&format!("{form}&name=tank"))).status, 303);
    assert_eq!(world.order(&["status", "tank"])["state"], "critical");
    assert_eq!(page.terminate(), 0);
    assert_eq!(server.terminate(), 0);
}
