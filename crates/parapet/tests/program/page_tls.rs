//! The web page for other machines: TLS with curl and a real browser, with a login or client
//! certificates.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use crate::actions::{PASSWORD, set_password};
use crate::tls::certificates;
use crate::webdriver::Browser;
use crate::world::{Ran, Server, World, until};

const FILES: [&str; 4] =
    ["--page-tls-cert", "pki/server-cert.pem", "--page-tls-key", "pki/server-key.pem"];

/// Serves an array with a page that other machines reach; returns its port too.
pub fn with_tls(world: &World, members: &[String], more: &[&str]) -> (Server, String) {
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let page = ["--page", "0.0.0.0:0"];
    let server = world.serve(&[&["tank"], &names[..], &page, &FILES, more].concat());
    let address = server.ready["page"].as_str().unwrap();
    assert!(address.starts_with("https://0.0.0.0:"), "{address}");
    let port = address.trim_end_matches('/').rsplit(':').next().unwrap().to_owned();
    (server, port)
}

/// Runs curl, which trusts the CA of the folder; prints head and body.
fn try_curl(world: &World, words: &[&str]) -> Ran {
    let curl = ["curl", "--silent", "--show-error", "--include", "--cacert", "pki/ca-cert.pem"];
    world.try_tool("curl", &[&curl[..], words].concat())
}

fn curl(world: &World, words: &[&str]) -> String {
    let ran = try_curl(world, words);
    assert_eq!(ran.code, 0, "{words:?}: {ran:?}\n{}", world.log());
    ran.out
}

fn token_of(page: &str) -> &str {
    let rest = page.split("name=\"token\" value=\"").nth(1).expect(page);
    rest.split('"').next().unwrap()
}

#[test]
fn with_a_login_nothing_is_shown_before_it_and_the_cookie_is_for_tls_only() {
    let world = World::new();
    certificates(&world);
    let members = world.create("5", 3, &[]);
    assert_eq!(set_password(&world, "page.password", PASSWORD), 0);
    let login = ["--page-login", "page.password", "--page-actions"];
    let (server, port) = with_tls(&world, &members, &login);
    let url = |path: &str| format!("https://localhost:{port}/{path}");
    assert!(curl(&world, &[&url("")]).contains("location: login"));
    for path in ["metrics", "events"] {
        assert!(curl(&world, &[&url(path)]).starts_with("HTTP/1.1 401"), "{path}");
    }
    let origin = format!("Origin: https://localhost:{port}");
    let password = format!("password={PASSWORD}");
    let log_in = ["--header", &origin, "--cookie-jar", "jar", "--data-urlencode", &password];
    let answer = curl(&world, &[&log_in[..], &[&url("login")]].concat());
    let set = answer.lines().find(|line| line.starts_with("set-cookie: ")).expect(&answer);
    assert!(set.starts_with(&format!("set-cookie: __Host-parapet-{port}=")), "{set}");
    assert!(set.ends_with("; Path=/; Max-Age=28800; Secure"), "{set}");
    let jar = ["--cookie", "jar"];
    let page = curl(&world, &[&jar[..], &[&url("")]].concat());
    assert!(page.contains("tank: healthy, one disk may fail"), "{page}");
    let metrics = curl(&world, &[&jar[..], &[&url("metrics")]].concat());
    assert!(metrics.contains("parapet_array_state"), "{metrics}");
    // A page without TLS at the same address is another page.
    let uuid = world.order(&["status", "tank"])["uuid"].as_str().unwrap().to_owned();
    let forms = curl(&world, &[&jar[..], &[&url(&format!("act?array={uuid}"))]].concat());
    let form = format!("token={}&array={uuid}&verb=fail&member=0&name=tank", token_of(&forms));
    let plain = format!("Origin: http://localhost:{port}");
    let act = |origin: &str| {
        let act = url("act");
        curl(&world, &[&jar[..], &["--header", origin, "--data", &form, &act]].concat())
    };
    assert!(act(&plain).starts_with("HTTP/1.1 403"));
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert!(act(&origin).starts_with("HTTP/1.1 303"));
    assert_eq!(world.order(&["status", "tank"])["state"], "critical");
    // Who does not trust the CA, and who speaks no TLS.
    let stranger = world.try_tool("curl", &["curl", "--silent", &url("")]);
    assert_eq!(stranger.code, 60, "{stranger:?}");
    let plain = try_curl(&world, &[&format!("http://localhost:{port}/")]);
    assert_ne!(plain.code, 0, "{plain:?}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn with_a_ca_only_browsers_with_its_certificate_come_in() {
    let world = World::new();
    certificates(&world);
    let members = world.create("5", 3, &[]);
    let (server, port) =
        with_tls(&world, &members, &["--page-actions", "--page-tls-ca", "pki/ca-cert.pem"]);
    let url = |path: &str| format!("https://localhost:{port}/{path}");
    let refused = try_curl(&world, &[&url("")]);
    assert!(refused.code != 0 && !refused.out.contains("tank"), "{refused:?}");
    let own = ["--cert", "pki/client-cert.pem", "--key", "pki/client-key.pem"];
    // Prometheus comes in the same way.
    let metrics = curl(&world, &[&own[..], &[&url("metrics")]].concat());
    assert!(metrics.contains("parapet_array_state"), "{metrics}");
    let uuid = world.order(&["status", "tank"])["uuid"].as_str().unwrap().to_owned();
    let place = url(&format!("act?array={uuid}"));
    let forms = curl(&world, &[&own[..], &["--cookie-jar", "jar", &place]].concat());
    let origin = format!("Origin: https://localhost:{port}");
    let act = |token: &str| {
        let form = format!("token={token}&array={uuid}&verb=fail&member=0&name=tank");
        let act = url("act");
        let words = ["--cookie", "jar", "--header", &origin, "--data", &form, &act];
        curl(&world, &[&own[..], &words].concat())
    };
    assert!(act("").starts_with("HTTP/1.1 403"));
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert!(act(token_of(&forms)).starts_with("HTTP/1.1 303"));
    assert_eq!(world.order(&["status", "tank"])["state"], "critical");
    let said = world.log();
    assert!(said.contains("somebody") && said.contains("orders by the page: fail"), "{said}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_browser_logs_in_over_tls_and_the_page_is_live() {
    let world = World::new();
    certificates(&world);
    let members = world.create("5", 3, &[]);
    assert_eq!(set_password(&world, "page.password", PASSWORD), 0);
    let (server, port) = with_tls(&world, &members, &["--page-login", "page.password"]);
    let browser = Browser::start(&world);
    browser.open(&format!("https://localhost:{port}/"));
    until(|| browser.nodes().contains("Log in"));
    browser.enter("input[name=password]", PASSWORD);
    browser.until_live();
    world.order(&["fail", "tank", "1"]);
    until(|| browser.nodes().contains("tank: critical, one more failure loses data"));
    assert_eq!(browser.script("return document.cookie"), "", "scripts do not see the cookie");
    browser.press("footer button");
    until(|| browser.nodes().contains("Password"));
    assert_eq!(browser.errors(), [""; 0]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_renewed_certificate_needs_no_restart() {
    let world = World::new();
    certificates(&world);
    let members = world.create("1", 2, &[]);
    let (server, port) = with_tls(&world, &members, &["--page-tls-ca", "pki/ca-cert.pem"]);
    let own = ["--cert", "pki/client-cert.pem", "--key", "pki/client-key.pem"];
    let try_name = |name: &str| {
        let (to, url) =
            (format!("{name}:{port}:localhost:{port}"), format!("https://{name}:{port}/"));
        try_curl(&world, &[&own[..], &["--connect-to", &to, &url]].concat()).code
    };
    // 60: the name is not the certificate's.
    assert_eq!((try_name("localhost"), try_name("nas.example")), (0, 60));
    std::fs::write(world.path("new.ext"), "subjectAltName=DNS:nas.example\n").unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout new-key.pem";
    for words in [
        format!("req {key} -out new.csr -subj /CN=nas.example"),
        "x509 -req -in new.csr -CA pki/ca-cert.pem -CAkey ca-key.pem -CAcreateserial \
         -out new-cert.pem -days 30 -extfile new.ext"
            .into(),
    ] {
        let words: Vec<&str> = std::iter::once("openssl").chain(words.split(' ')).collect();
        world.tool("openssl", &words.into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>());
    }
    let renew = |name: &str| {
        std::fs::rename(
            world.path(&format!("new-{name}")),
            world.path(&format!("pki/server-{name}")),
        )
    };
    renew("cert.pem").unwrap();
    assert_eq!(try_name("localhost"), 0, "the old one holds until the key is there, too");
    assert!(world.log().contains("keeps its old certificate"), "{}", world.log());
    renew("key.pem").unwrap();
    assert_eq!((try_name("localhost"), try_name("nas.example")), (60, 0));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_page_without_the_protection_of_its_address_is_refused() {
    let world = World::new();
    certificates(&world);
    world.create("1", 2, &[]);
    assert_eq!(set_password(&world, "page.password", PASSWORD), 0);
    let key = "pki/server-key.pem";
    let tls = ["--tls-cert", "pki/server-cert.pem", "--tls-key", key];
    let (open, own) = (["page", "--listen", "0.0.0.0:0"], ["page", "--listen", "127.0.0.1:0"]);
    let login = ["--login", "page.password"];
    for (words, why) in [
        (open.to_vec(), "has no TLS"),
        ([&open[..], &login].concat(), "has no TLS"),
        ([&open[..], &tls].concat(), "neither a login nor a client certificate"),
        ([&own[..], &tls, &["--actions"]].concat(), "need a login or client certificates"),
        ([&["page", "--listen", "unix:p"], &tls[..]].concat(), "has no TLS"),
    ] {
        let said = world.refused(&words, 2, "PPT-2001");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    world.refused(&[&open[..], &login, &["--tls-cert", key]].concat(), 2, "PPT-2001");
    let missing = [&open[..], &login, &["--tls-cert", tls[1], "--tls-key", "none"]].concat();
    let said = world.refused(&missing, 1, "PPT-1005");
    assert!(said.contains("none: no private key"), "{said}");
    let mode = |mode| std::fs::set_permissions(world.path(key), PermissionsExt::from_mode(mode));
    mode(0o604).unwrap();
    let said = world.refused(&[&open[..], &login, &tls].concat(), 1, "PPT-1005");
    assert!(said.contains("other users can read the private key"), "{said}");
    let nbd = ["serve", "tank", "m0", "m1", "--control", "unix:c", tls[0], tls[1], tls[2], tls[3]];
    world.refused(&nbd, 1, "PPT-1005");
    mode(0o640).unwrap();
    let page = world.start(&[&open[..], &login, &tls, &["--json"]].concat());
    assert_eq!(page.terminate(), 0);
}

#[test]
fn a_configuration_names_what_protects_the_page() {
    let world = World::new();
    let check = |text: &str| {
        std::fs::write(world.path("p.toml"), text).unwrap();
        world.run(&["config", "check", "--config", "p.toml"])
    };
    let tls = "tls_cert = \"c\"\ntls_key = \"k\"\n";
    for (text, place, why) in [
        ("[page]\nlisten = \"192.0.2.1:7580\"\n", "p.toml:2: page.listen", "add page.tls_cert"),
        (&format!("[page]\nlisten = \"192.0.2.1:7580\"\n{tls}"), "p.toml:2", "add page.login or"),
        (&format!("[page]\nlisten = \"unix:/p\"\n{tls}"), "p.toml:2", "leave out page.tls_cert"),
        ("[page]\ntls_cert = \"c\"\n", "p.toml:2: page.tls_cert", "a certificate and its key"),
        ("[page]\ntls_ca = \"c\"\n", "p.toml:2: page.tls_ca", "a certificate and its key"),
        // Once this served NBD in plain text.
        ("[nbd]\ntls_cert = \"c\"\n", "p.toml:2: nbd.tls_cert", "a certificate and its key"),
        ("[nbd]\ntls_key = \"k\"\n", "p.toml:2: nbd.tls_key", "a certificate and its key"),
    ] {
        let ran = check(text);
        assert!(ran.code == 2 && ran.err.contains(place) && ran.err.contains(why), "{ran:?}");
    }
    let listen = "[page]\nactions = true\nlisten = \"192.0.2.1:7580\"\n";
    for more in ["login = \"p\"\n", "tls_ca = \"a\"\n"] {
        let ran = check(&format!("{listen}{tls}{more}"));
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

/// Clients that open connections and say nothing.
pub fn silent(port: &str) -> TcpStream {
    TcpStream::connect(format!("127.0.0.1:{port}")).unwrap()
}

/// True if the server has closed the connection. Waits for that, or not.
pub fn is_closed(stream: &mut TcpStream, waits: bool) -> bool {
    stream.set_nonblocking(!waits).unwrap();
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// A page request with a client certificate.
pub fn is_served(world: &World, port: &str) -> bool {
    let own = ["--cert", "pki/client-cert.pem", "--key", "pki/client-key.pem"];
    let url = format!("https://localhost:{port}/");
    try_curl(world, &[&own[..], &[&url]].concat()).code == 0
}

#[test]
fn a_client_that_breaks_off_harms_nobody() {
    let world = World::new();
    certificates(&world);
    let members = world.create("1", 2, &[]);
    let (server, port) = with_tls(&world, &members, &["--page-tls-ca", "pki/ca-cert.pem"]);
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff, 1], &[0; 4096]] {
        let mut stream = silent(&port);
        stream.write_all(bytes).unwrap();
        drop(stream);
    }
    assert!(is_served(&world, &port));
    assert_eq!(server.terminate(), 0);
}
