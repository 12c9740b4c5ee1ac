//! Metrics and the web page over HTTP, and a real Prometheus server that scrapes them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::world::{Server, World, until};

/// Serves all named members with a web page; returns the page's `ADDRESS:PORT` too.
pub fn with_page(world: &World, members: &[String], more: &[&str]) -> (Server, String) {
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let page = ["--page", "127.0.0.1:0"];
    let server = world.serve(&[&["tank"], &names[..], &page, more].concat());
    let address = server.ready["page"].as_str().unwrap();
    let address = address.trim_start_matches("http://").trim_end_matches('/').to_owned();
    (server, address)
}

/// Sends a request of one line and reads the answer to its end: head and body.
fn exchange(mut stream: impl Read + Write, line: &str, host: &str) -> (String, String) {
    // Version 1.0: the answer comes in one piece.
    write!(stream, "{line} HTTP/1.0\r\nHost: {host}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect(&answer);
    (head.to_ascii_lowercase(), body.to_owned())
}

/// Gets a page that must exist.
pub fn get(address: &str, path: &str) -> String {
    let stream = TcpStream::connect(address).unwrap();
    let (head, body) = exchange(stream, &format!("GET {path}"), address);
    assert!(head.starts_with("http/1.0 200") || head.starts_with("http/1.1 200"), "{head}\n{body}");
    body
}

/// Returns a port that is free now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn value_of(metrics: &str, series: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(series))?;
    line.trim().parse().ok()
}

#[test]
fn metrics_have_the_facts_right_after_a_failure() {
    let world = World::new();
    let members = world.create("6", 4, &["--chunk", "16K"]);
    let (server, page) = with_page(&world, &members, &[]);
    let metrics = get(&page, "/metrics");
    let value = |series: &str| value_of(&metrics, series);
    assert_eq!(value("parapet_array_state{array=\"tank\",state=\"healthy\"}"), Some(1.0));
    assert_eq!(value("parapet_array_redundancy_left{array=\"tank\"}"), Some(2.0));
    let scrub = "parapet_array_scrub_last_completed_timestamp_seconds{array=\"tank\"}";
    assert_eq!(value(scrub), None);
    world.order(&["fail", "tank", "1"]);
    let metrics = get(&page, "/metrics");
    let value = |series: &str| value_of(&metrics, series);
    assert_eq!(value("parapet_array_state{array=\"tank\",state=\"degraded\"}"), Some(1.0));
    assert_eq!(value("parapet_array_disks{array=\"tank\",state=\"active\"}"), Some(3.0));
    assert_eq!(value("parapet_array_disks{array=\"tank\",state=\"failed\"}"), Some(1.0));
    assert_eq!(value("parapet_array_redundancy_left{array=\"tank\"}"), Some(1.0));
    assert_eq!(value("parapet_array_problem{array=\"tank\",id=\"PPT-8001\"}"), Some(1.0));
    world.order(&["re-add", "tank", "m1"]);
    world.wait_until_idle();
    world.order(&["scrub", "tank"]);
    world.wait_until_idle();
    assert!(value_of(&get(&page, "/metrics"), scrub).unwrap() > 1.7e9);
    std::fs::write(world.path("metrics"), get(&page, "/metrics")).unwrap();
    world.tool("prometheus", &["sh", "-c", "promtool check metrics < metrics"]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_durations_of_writes_are_counted_for_each_disk() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let (server, page) = with_page(&world, &members, &[]);
    world.qemu_io(&["write -P 3 0 1M", "flush"]);
    let metrics = get(&page, "/metrics");
    for member in &members {
        let path = world.path(member).display().to_string();
        let of = format!("array=\"tank\",disk=\"{path}\",operation=\"write\"");
        let count = value_of(&metrics, &format!("parapet_io_duration_seconds_count{{{of}}}"));
        assert!(count.unwrap() >= 1.0, "{metrics}");
        let all = format!("parapet_io_duration_seconds_bucket{{{of},le=\"+Inf\"}}");
        assert_eq!(value_of(&metrics, &all), count);
        let sum = value_of(&metrics, &format!("parapet_io_duration_seconds_sum{{{of}}}"));
        // Writes to the page cache may end as they are sent, and count as zero.
        assert!(sum.is_some(), "{metrics}");
    }
    std::fs::write(world.path("metrics"), metrics).unwrap();
    world.tool("prometheus", &["sh", "-c", "promtool check metrics < metrics"]);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn connections_to_an_export_are_counted_on_all_threads() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let (server, page) = with_page(&world, &members, &["--threads", "3"]);
    let count =
        || value_of(&get(&page, "/metrics"), "parapet_export_connections{array=\"tank\"}").unwrap();
    assert_eq!(count(), 0.0);
    let uri = world.uri();
    let connect = || {
        let mut client = Command::new("qemu-io");
        client.args(["-f", "raw", &uri]).stdin(Stdio::piped()).stdout(Stdio::null());
        client.spawn().expect("qemu-utils is installed")
    };
    let mut clients: Vec<Child> = (0..4).map(|_| connect()).collect();
    until(|| count() == 4.0);
    assert_eq!(world.order(&["status", "tank"])["clients"], 4);
    clients.iter_mut().for_each(|client| client.kill().unwrap());
    clients.iter_mut().for_each(|client| assert!(!client.wait().unwrap().success()));
    until(|| count() == 0.0);
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_map_shows_what_is_out_of_sync_and_what_is_not_rebuilt() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve_members(&members);
    world.pattern("data", 8 << 20);
    world.nbdcopy("data", &world.uri());
    server.kill();
    // Slow enough to be seen at work.
    let (server, page) = with_page(&world, &members, &["--speed-max", "64K"]);
    let status = world.order(&["status", "tank"]);
    let ranges = status["unsynced_ranges"].as_array().unwrap();
    let bytes: u64 = ranges.iter().map(|range| range["bytes"].as_u64().unwrap()).sum();
    assert!(bytes > 0 && bytes >= status["unsynced_bytes"].as_u64().unwrap(), "{status}");
    assert!(get(&page, "/").contains(" out of sync "));
    world.order(&["speed", "tank", "--speed-max", "off"]);
    world.wait_until_idle();
    world.order(&["fail", "tank", "1"]);
    world.order(&["remove", "tank", "m1"]);
    world.file("new", 16 << 20);
    world.order(&["speed", "tank", "--speed-max", "64K"]);
    world.order(&["add", "tank", "new"]);
    until(|| world.order(&["status", "tank"])["slots"][1]["state"] == "rebuilding");
    let status = world.order(&["status", "tank"]);
    let filled = status["slots"][1]["filled_bytes"].as_u64().unwrap();
    assert!(filled < status["capacity_bytes"].as_u64().unwrap(), "{status}");
    assert!(get(&page, "/").contains("to be rebuilt"));
    assert_eq!(server.terminate(), 0);
}

#[test]
fn the_page_is_read_only_and_only_for_this_machine() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let (server, page) = with_page(&world, &members, &[]);
    let ask = |line: &str, host: &str| exchange(TcpStream::connect(&page).unwrap(), line, host);
    let (head, body) = ask("GET /", &page);
    assert!(head.contains("content-security-policy: default-src 'self'"), "{head}");
    assert!(body.contains("tank: healthy, one disk may fail"), "{body}");
    assert!(ask("POST /", &page).0.contains(" 405 "));
    assert!(ask("GET /v1/arrays/tank/stop", &page).0.contains(" 404 "));
    // A web page elsewhere whose name points to this machine.
    assert!(ask("GET /", "example.org").0.contains(" 421 "));
    drop(server);
    for listen in ["0.0.0.0:0", "[::]:7580", "192.0.2.1:1"] {
        let said = world.refused(&["page", "--listen", listen], 2, "PPT-2001");
        assert!(said.contains("not a loopback address, and the page has no TLS"), "{said}");
        world.refused(&["serve", "tank", "m0", "m1", "--page", listen], 2, "PPT-2001");
    }
}

#[test]
fn a_page_of_its_own_shows_all_servers_and_those_that_do_not_answer() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    // In the default folder of control sockets.
    let nbd = ["--nbd", "unix:nbd.sock", "--json"];
    let server = world.start(&[&["serve", "tank"], &names[..], &nbd].concat());
    let page = world.start(&["page", "--listen", "unix:page.sock", "--json"]);
    assert!(page.ready["address"].as_str().unwrap().starts_with("unix:"), "{}", page.ready);
    let ask = |path: &str| {
        let stream = UnixStream::connect(world.path("page.sock")).unwrap();
        exchange(stream, &format!("GET {path}"), "any.name").1
    };
    assert!(ask("/").contains("tank: healthy"));
    // Commands would ask the page as if it were a server.
    world.refused(&["page", "--listen", "unix:run/page.sock"], 2, "PPT-2001");
    server.kill();
    let control = world.path("run/tank.sock").display().to_string();
    let down = format!("parapet_server_up{{control=\"{control}\"}} 0");
    assert!(ask("/metrics").contains(&down));
    assert!(ask("/").contains("<title>Parapet: a server does not answer</title>"));
    assert_eq!(page.terminate(), 0);
    assert!(!world.path("page.sock").exists());
}

/// A Prometheus server; killed with its test.
struct Prometheus {
    process: Child,
    address: String,
}

impl Prometheus {
    /// Scrapes this page every second and evaluates our rules as often.
    fn start(world: &World, page: &str) -> Prometheus {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/prometheus");
        let configuration = format!(
            "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\n\
             rule_files: ['{root}/parapet.rules.yml']\n\
             scrape_configs: [{{job_name: parapet, static_configs: [{{targets: ['{page}']}}]}}]\n"
        );
        std::fs::write(world.path("prometheus.yml"), configuration).unwrap();
        world.tool("prometheus", &["promtool", "check", "config", "prometheus.yml"]);
        let address = format!("127.0.0.1:{}", free_port());
        let mut command = Command::new("prometheus");
        command.current_dir(&world.folder).stdout(Stdio::null()).stderr(Stdio::piped());
        let listen = format!("--web.listen-address={address}");
        command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=tsdb", &listen]);
        let mut process = command.spawn().expect("install the package prometheus");
        let log = BufReader::new(process.stderr.take().unwrap());
        let mut lines = log.lines().map_while(Result::ok);
        let ready = lines.find(|line| line.contains("ready to receive web requests"));
        ready.expect("prometheus has started");
        // Its log must not fill the pipe.
        std::thread::spawn(move || lines.for_each(drop));
        Prometheus { process, address }
    }

    fn ask(&self, path: &str) -> Value {
        serde_json::from_str(&get(&self.address, path)).unwrap()
    }

    /// Names of the alerts that fire.
    fn firing(&self) -> Vec<String> {
        let alerts = self.ask("/api/v1/alerts");
        let alerts = alerts["data"]["alerts"].as_array().unwrap();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.map(|alert| alert["labels"]["alertname"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_prometheus_server_scrapes_an_array_and_alerts_on_a_failure() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let (server, page) = with_page(&world, &members, &[]);
    let prometheus = Prometheus::start(&world, &page);
    let up = || prometheus.ask("/api/v1/query?query=parapet_array_redundancy_left");
    until(|| up()["data"]["result"][0]["value"][1] == "1");
    assert_eq!(prometheus.firing(), [""; 0]);
    world.order(&["fail", "tank", "0"]);
    let fires = |name: &str| prometheus.firing().iter().any(|alert| alert == name);
    until(|| fires("ParapetNoRedundancyLeft") && fires("ParapetDiskFailed"));
    world.order(&["re-add", "tank", "m0"]);
    until(|| prometheus.firing().is_empty());
    let targets = prometheus.ask("/api/v1/targets");
    assert_eq!(targets["data"]["activeTargets"][0]["lastError"], "", "{targets}");
    assert_eq!(server.terminate(), 0);
}

#[test]
fn alert_rules_and_the_dashboard_name_metrics_that_exist() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let rules = read("contrib/prometheus/parapet.rules.yml");
    let dashboard = read("contrib/grafana/parapet.json");
    serde_json::from_str::<Value>(&dashboard).unwrap();
    let world = World::new();
    std::fs::write(world.path("rules.yml"), &rules).unwrap();
    world.tool("prometheus", &["promtool", "check", "rules", "rules.yml"]);
    let source = read("crates/panel/src/metrics.rs");
    let word = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let names = [&rules, &dashboard].into_iter().flat_map(|text| text.split(word));
    let names: Vec<&str> = names.filter(|name| name.starts_with("parapet_")).collect();
    assert!(names.len() > 20, "{names:?}");
    for name in names {
        assert!(source.contains(&format!("\"{name}\"")), "{name}");
    }
}
