//! Web servers and mail servers are told of events: real ones, in Python.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::alerts::{program, tell, told};
use crate::machine::Machine;
use crate::panel::free_port;
use crate::tls::certificates;
use crate::world::{World, until};

/// A server of `receivers`, killed with its test.
pub struct Receiver {
    child: Child,
    pub port: String,
}

impl Receiver {
    fn start(world: &World, script: &str, arguments: &[&str]) -> Receiver {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/program/receivers");
        let mut command = Command::new("/usr/bin/python3");
        command.arg(folder.join(script)).args(arguments).current_dir(&world.folder);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        assert!(!port.is_empty(), "{script} needs the package python3-aiosmtpd");
        Receiver { child, port: port.trim().into() }
    }

    fn web(world: &World) -> Receiver {
        Receiver::web_at(world, 0)
    }

    pub fn web_at(world: &World, port: u16) -> Receiver {
        Receiver::start(world, "web.py", &["posted", &port.to_string()])
    }

    /// With the certificate of this folder.
    fn https(world: &World, pki: &str) -> Receiver {
        let [certificate, key] = ["cert", "key"].map(|it| format!("{pki}/server-{it}.pem"));
        Receiver::start(world, "web.py", &["posted", "0", &certificate, &key])
    }

    fn mail(world: &World, encryption: &str) -> Receiver {
        let port = free_port().to_string();
        let arguments = ["mails", &port, "pki/server-cert.pem", "pki/server-key.pem", encryption];
        Receiver::start(world, "mail.py", &arguments)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The lines that a receiver has recorded.
pub fn recorded(world: &World, file: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(world.path(file)).unwrap_or_default();
    let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
    whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The documents that were posted to this path.
pub fn posted(world: &World, path: &str) -> Vec<Value> {
    let posts = recorded(world, "posted").into_iter().filter(|post| post["path"] == path);
    posts.map(|post| serde_json::from_str(post["body"].as_str().unwrap()).unwrap()).collect()
}

#[test]
fn a_webhook_and_ntfy_are_told_of_a_failure_but_not_of_routine() {
    let world = World::new();
    world.create("1", 2, &[]);
    let web = Receiver::web(&world);
    let hook = format!("http://127.0.0.1:{}/hook", web.port);
    let ntfy = format!("ntfy://127.0.0.1:{}/raid?secure=false", web.port);
    let server = world.serve(&["tank", "m0", "m1", "--notify", &hook, "--notify", &ntfy]);
    world.order(&["fail", "tank", "m1"]);
    world.order(&["events", "tank", "--test"]);
    until(|| posted(&world, "/hook").len() == 2 && posted(&world, "/").len() == 2);
    let hooks = posted(&world, "/hook");
    hooks.iter().for_each(crate::schema::check);
    let (first, second) = (&hooks[0]["data"], &hooks[1]["data"]);
    assert_eq!((&first["array"], &first["event"]), (&"tank".into(), &"DegradedArray".into()));
    assert_eq!((&first["severity"], &first["lost"]), (&"warning".into(), &0.into()));
    assert_eq!(second["event"], "TestMessage");
    let published = &posted(&world, "/")[0];
    assert_eq!((&published["topic"], &published["priority"]), (&"raid".into(), &4.into()));
    assert_eq!(published["title"], "tank: DegradedArray");
    assert!(published["message"].as_str().unwrap().contains("the array is critical"));
    // The end of the problem is told, though it is no warning.
    world.file("m2", 16 << 20);
    world.order(&["add", "tank", "m2"]);
    until(|| posted(&world, "/hook").iter().any(|it| it["data"]["event"] == "Healthy"));
    let alerts = world.order(&["status", "tank"])["alerts"].clone();
    let troubles: Vec<&Value> =
        alerts.as_array().unwrap().iter().map(|channel| &channel["trouble"]).collect();
    assert_eq!(troubles, [&Value::Null, &Value::Null]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn status_warns_when_nobody_is_told_or_can_be() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    let control = format!("--control=unix:{}", world.path("control.sock").display());
    let status = || world.ok(&["status", "tank", &control]);
    assert!(status().contains("nobody is told of events"), "{}", status());
    assert_eq!(server.terminate(), 0);
    let web = Receiver::web(&world);
    let broken = format!("http://127.0.0.1:{}/broken", web.port);
    let server = world.serve(&["tank", "m0", "m1", "--notify", &broken]);
    assert!(!status().contains("alerts"), "{}", status());
    world.order(&["events", "tank", "--test"]);
    until(|| status().contains("not delivered: HTTP status 500; 1 waiting"));
    assert_eq!(server.terminate(), 0);
    let log = world.log();
    assert!(log.contains("TestMessage") && log.contains("not delivered: 1 message"), "{log}");
}

/// The path of a URL may be a secret: no message has it.
#[test]
fn notify_test_reports_each_channel() {
    let world = World::new();
    let web = Receiver::web(&world);
    let port = &web.port;
    std::fs::write(world.path("token"), "tk_1\n").unwrap();
    let config = format!(
        "[[notify]]\nkind = \"webhook\"\nname = \"chat\"\nurl = \"http://127.0.0.1:{port}/chat\"\n\
         token_file = \"token\"\n[[notify]]\nkind = \"webhook\"\n\
         url = \"http://127.0.0.1:{port}/broken\"\n[[notify]]\nkind = \"exec\"\n\
         program = \"/bin/true\"\n"
    );
    std::fs::write(world.path("p.toml"), config).unwrap();
    let start = ["notify", "test", "--config", "p.toml"];
    let sent = world.json(&[&start[..], &["chat"]].concat());
    assert_eq!(sent["delivered"], serde_json::json!(["chat"]));
    let post = recorded(&world, "posted").pop().unwrap();
    assert_eq!((&post["path"], &post["token"]), (&"/chat".into(), &"Bearer tk_1".into()));
    let said = world.refused(&start, 1, "PPT-1001");
    assert!(said.contains(&format!("webhook 127.0.0.1:{port}: HTTP status 500")), "{said}");
    assert!(!said.contains("broken") && !said.contains("chat:"), "{said}");
    assert_eq!(posted(&world, "/chat").len(), 2, "the others are tried all the same");
    let said = world.refused(&[&start[..], &["pager"]].concat(), 2, "PPT-2001");
    assert!(said.contains("choose one of: chat"), "{said}");
    std::fs::write(world.path("bad.toml"), "[[notify]]\nkind = \"pager\"\n").unwrap();
    let said = world.refused(&["notify", "test", "--config", "bad.toml"], 2, "PPT-2001");
    assert!(said.contains("bad.toml:1: kind: \"pager\" is none of"), "{said}");
}

#[test]
fn a_mail_reaches_a_server_with_starttls_and_login_and_no_other() {
    let world = World::new();
    certificates(&world);
    let mail = Receiver::mail(&world, "starttls");
    let port = &mail.port;
    std::fs::write(world.path("password"), "secret\n").unwrap();
    let config = |password: &str, ca: &str| {
        let text = format!(
            "[[notify]]\nkind = \"smtp\"\nserver = \"127.0.0.1\"\nport = {port}\n\
             from = \"Parapet <raid@example.com>\"\nto = [\"a@example.com\", \"b@example.com\"]\n\
             user = \"raid\"\n{password}\n{ca}\n"
        );
        std::fs::write(world.path("p.toml"), text).unwrap();
    };
    let test = ["notify", "test", "--config", "p.toml"];
    let (right, trusted) = ("password_file = \"password\"", "ca = \"pki/ca-cert.pem\"");
    config(right, trusted);
    world.ok(&test);
    let mails = recorded(&world, "mails");
    let [mail] = &mails[..] else { panic!("{mails:?}") };
    assert_eq!(mail["to"], serde_json::json!(["a@example.com", "b@example.com"]));
    assert_eq!((&mail["from"], &mail["encrypted"]), (&"raid@example.com".into(), &true.into()));
    let text = mail["text"].as_str().unwrap();
    assert!(text.contains("test: TestMessage: test, by command"), "{text}");
    assert!(text.contains("parapet status test"), "{text}");
    config(right, "");
    let said = world.refused(&test, 1, "PPT-1001");
    assert!(said.contains("certificate"), "{said}");
    std::fs::write(world.path("password"), "wrong").unwrap();
    config(right, trusted);
    let said = world.refused(&test, 1, "PPT-1001");
    assert!(said.contains("535"), "{said}");
    assert!(!said.contains("wrong"), "{said}");
    config("password_env = \"NO_SUCH_VARIABLE\"", trusted);
    let said = world.refused(&test, 1, "PPT-1001");
    assert!(said.contains("NO_SUCH_VARIABLE"), "{said}");
    assert_eq!(recorded(&world, "mails").len(), 1);
}

#[test]
fn the_progress_of_a_rebuild_is_told_in_the_words_of_mdadm() {
    let world = World::new();
    world.create("1", 2, &[]);
    let hook = program(&world, "hook", &tell(&world));
    let hook = hook.to_str().unwrap();
    let server = world.serve(&["tank", "m0", "m1", "--notify", hook, "--speed-max", "1M"]);
    world.order(&["fail", "tank", "m1"]);
    world.file("m2", 16 << 20);
    world.order(&["add", "tank", "m2"]);
    let events = || world.order(&["events", "tank"])["events"].as_array().unwrap().clone();
    let is_step = |event: &Value| {
        let word = event["event"].as_str().unwrap();
        ["Rebuild20", "Rebuild40", "Rebuild60", "Rebuild80"].contains(&word)
    };
    until(|| events().iter().any(is_step));
    world.order(&["speed", "tank", "--speed-max", "off"]);
    world.wait_until_idle();
    let step = events().into_iter().find(is_step).unwrap();
    assert_eq!(step["severity"], "info");
    assert!(step["message"].as_str().unwrap().starts_with("rebuild: "), "{step}");
    assert_eq!(server.terminate(), 0);
    let line = format!("{} tank [info]", step["event"].as_str().unwrap());
    assert!(told(&world).contains(&line), "{}", told(&world));
}

#[test]
fn a_mail_over_tls_from_the_first_byte_reaches_only_a_server_that_is_trusted() {
    let world = World::new();
    certificates(&world);
    let mail = Receiver::mail(&world, "tls");
    std::fs::write(world.path("password"), "secret\n").unwrap();
    let test = |server: &str, encryption: &str, ca: &str, port: &str| {
        let text = format!(
            "[[notify]]\nkind = \"smtp\"\nserver = \"{server}\"\nport = {port}\n\
             encryption = \"{encryption}\"\nfrom = \"raid@example.com\"\n\
             to = [\"a@example.com\"]\nuser = \"raid\"\npassword_file = \"password\"\n{ca}\n"
        );
        std::fs::write(world.path("p.toml"), text).unwrap();
        world.run(&["notify", "test", "--config", "p.toml"])
    };
    let trusted = "ca = \"pki/ca-cert.pem\"";
    for (server, ca, why) in [
        ("127.0.0.1", "", "certificate"),
        ("127.0.0.1", "ca = \"pki/client-cert.pem\"", "certificate"),
        // An address that the certificate does not have.
        ("127.0.0.2", trusted, ""),
    ] {
        let ran = test(server, "tls", ca, &mail.port);
        assert!(ran.code == 1 && ran.err.contains(why), "{ran:?}");
    }
    // A server that offers no TLS gets neither mail nor password.
    let plain = Receiver::mail(&world, "none");
    let ran = test("127.0.0.1", "starttls", trusted, &plain.port);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(recorded(&world, "mails").is_empty());
    let ran = test("127.0.0.1", "tls", trusted, &mail.port);
    assert_eq!(ran.code, 0, "{ran:?}");
    let mails = recorded(&world, "mails");
    assert_eq!((mails.len(), &mails[0]["encrypted"]), (1, &true.into()), "{mails:?}");
    assert!(mails[0]["text"].as_str().unwrap().contains("test: TestMessage"), "{mails:?}");
}

/// The daemon tells a webhook and calls a heartbeat over HTTPS, both with a CA of their own. With a
/// wrong one nothing is sent, and `status` says why; the corrected file needs a reload only.
#[test]
fn a_webhook_and_the_heartbeat_go_to_a_trusted_server_only() {
    let machine = Machine::new("");
    let world = &machine.world;
    certificates(world);
    std::fs::rename(world.path("pki"), world.path("other")).unwrap();
    certificates(world);
    let web = Receiver::https(world, "pki");
    let configure = |host: &str, ca: &str| {
        let url = format!("url = \"https://{host}:{}", web.port);
        let ca = format!("ca = \"{ca}\"");
        machine.configure(&format!(
            "[[notify]]\nkind = \"webhook\"\n{url}/hook\"\n{ca}\n[heartbeat]\n{url}/beat\"\n\
             every = \"10 s\"\n{ca}\n"
        ));
    };
    configure("localhost", "other/ca-cert.pem");
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let server = machine.start();
    until(|| machine.is_healthy("tank"));
    let channel = || machine.array("tank").unwrap()["alerts"][0].clone();
    let trouble = || channel()["trouble"].as_str().unwrap_or_default().to_owned();
    world.order(&["events", "tank", "--test"]);
    until(|| trouble().contains("certificate"));
    until(|| world.log().contains("heartbeat: "));
    // The right CA, but an address that the certificate does not name.
    configure("127.0.0.2", "pki/ca-cert.pem");
    server.signal("HUP");
    until(|| channel()["channel"].as_str().unwrap().contains("127.0.0.2"));
    world.order(&["events", "tank", "--test"]);
    until(|| !trouble().is_empty());
    assert!(recorded(world, "posted").is_empty());

    configure("localhost", "pki/ca-cert.pem");
    server.signal("HUP");
    let of = |path: &str| recorded(world, "posted").iter().filter(|it| it["path"] == path).count();
    until(|| of("/beat") > 0);
    world.order(&["events", "tank", "--test"]);
    until(|| of("/hook") > 0);
    let told = posted(world, "/hook");
    crate::schema::check(&told[0]);
    assert_eq!(told[0]["data"]["event"], "TestMessage", "{told:?}");
    assert_eq!(trouble(), "");
    // It goes on as long as the server works.
    let before = of("/beat");
    until(|| of("/beat") > before);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn a_heartbeat_that_is_refused_is_logged_once() {
    let machine = Machine::new("");
    let world = &machine.world;
    let web = Receiver::web(world);
    let port = &web.port;
    machine.configure(&format!("[heartbeat]\nurl = \"http://127.0.0.1:{port}/broken\"\n"));
    machine.create("tank", "1", &["t0", "t1"], &[]);
    let server = machine.start();
    until(|| world.log().contains("heartbeat: HTTP status 500"));
    assert!(!world.log().contains("broken"), "the path may be a secret: {}", world.log());
    assert_eq!(recorded(world, "posted")[0]["body"], "");
    assert_eq!(server.terminate(), 0);
}
