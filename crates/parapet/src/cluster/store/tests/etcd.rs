//! The register in a real etcd of three processes, some of which die or stand still.

use std::fs::File;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;
use crate::https;

/// How long a step may take before the test counts as failed.
const LIMIT: Duration = Duration::from_secs(60);

/// An etcd cluster on loopback; its processes end with it.
struct Etcd {
    folder: Folder,
    /// Arguments of all processes.
    common: Vec<String>,
    /// Ports for clients and for peers.
    ports: Vec<(u16, u16)>,
    processes: Vec<Option<Child>>,
}

impl Etcd {
    fn start(name: &str, count: usize, common: &[String]) -> Etcd {
        // All at once, so that they differ.
        let ports: Vec<TcpListener> =
            (0..2 * count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let port = |index: usize| ports[index].local_addr().unwrap().port();
        let ports = (0..count).map(|index| (port(2 * index), port(2 * index + 1))).collect();
        let processes = (0..count).map(|_| None).collect();
        let folder = Folder::new(name);
        let mut etcd = Etcd { folder, common: common.to_vec(), ports, processes };
        (0..count).for_each(|index| etcd.run(index));
        etcd
    }

    fn scheme(&self) -> &str {
        if self.common.is_empty() { "http" } else { "https" }
    }

    fn run(&mut self, index: usize) {
        let peer = |port: u16| format!("http://127.0.0.1:{port}");
        let all = self.ports.iter().enumerate();
        let all: Vec<_> = all.map(|(at, ports)| format!("n{at}={}", peer(ports.1))).collect();
        let client = self.url(index);
        let log = File::create(self.folder.0.join(format!("log{index}"))).unwrap();
        let process = Command::new("etcd")
            .args(["--name", &format!("n{index}")])
            .arg("--data-dir")
            .arg(self.folder.0.join(format!("n{index}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer(self.ports[index].1)])
            .args(["--initial-advertise-peer-urls", &peer(self.ports[index].1)])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(&self.common)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd of the package etcd-server");
        self.processes[index] = Some(process);
    }

    fn url(&self, index: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme(), self.ports[index].0)
    }

    fn kill(&mut self, index: usize) {
        let mut process = self.processes[index].take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// `STOP` or `CONT`.
    fn signal(&self, index: usize, signal: &str) {
        let id = self.processes[index].as_ref().unwrap().id().to_string();
        assert!(Command::new("kill").args(["-s", signal, &id]).status().unwrap().success());
        if signal == "STOP" {
            // Its threads stop one by one; one of them could still take a request.
            until("a process that stands still", || stands_still(&id).then_some(()));
        }
    }

    /// The place with these endpoints, in this order.
    fn place(&self, indices: &[usize]) -> Place {
        let urls: Vec<String> = indices.iter().map(|&index| self.url(index)).collect();
        Place::parse(&format!("etcd:{}", urls.join(","))).unwrap()
    }
}

/// True if all threads of a process are stopped.
fn stands_still(process: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    tasks
        .map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).unwrap())
        .all(|stat| stat.rsplit_once(") ").is_some_and(|(_, fields)| fields.starts_with('T')))
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for index in 0..self.processes.len() {
            if self.processes[index].is_some() {
                self.kill(index);
            }
        }
    }
}

/// Repeats until there is a result.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(begun.elapsed() < LIMIT, "{what}: too late");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until a majority answers.
fn is_up(place: &Place) {
    until("etcd answers", || match place.read(ARRAY) {
        Ok(_) => Some(()),
        Err(failure) => (failure.id != Id::Unreachable).then_some(()),
    });
}

impl Desk {
    fn read_at_last(&self) -> (Version, Value) {
        until("a read", || match self.ask(Request::Read) {
            Outcome::Done(version, value) => Some((version, value)),
            _ => None,
        })
    }

    /// Writes this term, as the coordinator does: unknown outcomes lead to a reading.
    fn write_at_last(&self, term: u64) -> Version {
        until("a write", || {
            let (version, now) = self.read_at_last();
            if now.term == Term(term) {
                return Some(version);
            }
            match self.replace(version, term) {
                Outcome::Done(version, _) => Some(version),
                _ => None,
            }
        })
    }
}

#[test]
fn etcd_is_a_register() {
    let etcd = Etcd::start("contract", 3, &[]);
    let place = etcd.place(&[0, 1, 2]);
    is_up(&place);
    keeps_the_contract(&place);
    admits_one_racer_at_a_time(&place);
    candidates_take_over(&place);
}

#[test]
fn a_minority_of_etcd_may_die_or_stand_still() {
    let mut etcd = Etcd::start("minority", 3, &[]);
    let place = etcd.place(&[0, 1, 2]);
    is_up(&place);
    place.create(ARRAY, &value(0)).unwrap();
    let desk = Desk::at(&place);
    assert_eq!(desk.read_at_last().1, value(0));

    etcd.kill(0);
    desk.write_at_last(1);
    assert_eq!(Desk::at(&etcd.place(&[2])).read_at_last().1, value(1));
    etcd.run(0);
    is_up(&etcd.place(&[0]));

    // A request that was sent to an endpoint which stands still may take effect later.
    let desk = Desk::at(&place);
    let (version, _) = desk.read_at_last();
    etcd.signal(0, "STOP");
    assert_eq!(desk.replace(version, 2), Outcome::Unknown);
    let (version, now) = desk.read_at_last();
    assert_eq!(now, value(1), "another endpoint has not heard of it");
    // What the coordinator does about it.
    let settled = until("the same content", || match desk.replace(version, 1) {
        Outcome::Done(settled, _) | Outcome::Conflict(settled, _) => Some(settled),
        Outcome::Unknown => None,
    });
    assert!(settled > version);
    etcd.signal(0, "CONT");
    is_up(&etcd.place(&[0]));
    assert_eq!(desk.read_at_last(), (settled, value(1)), "it came too late");
}

#[test]
fn a_register_outlives_a_restart_and_a_compaction_of_etcd() {
    let mut etcd = Etcd::start("restart", 3, &[]);
    let place = etcd.place(&[2, 0, 1]);
    is_up(&place);
    place.create(ARRAY, &value(0)).unwrap();
    let desk = Desk::at(&place);
    let version = desk.write_at_last(1);
    (0..3).for_each(|index| etcd.kill(index));
    assert_eq!(desk.ask(Request::Read), Outcome::Unknown);
    assert_eq!(desk.replace(version, 2), Outcome::Unknown);
    assert_eq!(place.read(ARRAY).unwrap_err().id, Id::Unreachable);
    (0..3).for_each(|index| etcd.run(index));
    is_up(&place);
    assert_eq!(desk.read_at_last(), (version, value(1)));

    let agent = https::agent(Vec::new(), None, LIMIT);
    let body = format!("{{\"revision\": \"{}\", \"physical\": true}}", version.0);
    let url = format!("{}/v3/kv/compaction", etcd.url(1));
    assert_eq!(agent.post(url).send(body).unwrap().status(), 200);
    assert_eq!(desk.read_at_last(), (version, value(1)));
    assert!(desk.write_at_last(2) > version);
}

fn openssl(folder: &Path, arguments: &str) {
    let mut command = Command::new("openssl");
    command.current_dir(folder).args(arguments.split(' ')).stderr(Stdio::null());
    assert!(command.status().unwrap().success(), "openssl {arguments}");
}

#[test]
fn etcd_is_reached_over_tls_with_a_certificate_of_the_client() {
    let folder = Folder::new("certificates");
    let at = |name: &str| folder.0.join(name).display().to_string();
    let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2";
    openssl(&folder.0, &format!("{key} -subj /CN=ca -keyout ca.key -out ca-cert.pem"));
    for name in ["server", "client"] {
        let sign = "-CA ca-cert.pem -CAkey ca.key -addext subjectAltName=IP:127.0.0.1 \
                    -addext basicConstraints=critical,CA:FALSE";
        let names = format!("-subj /CN={name} -keyout {name}-key.pem -out {name}-cert.pem");
        openssl(&folder.0, &format!("{key} {sign} {names}"));
    }
    let common = [
        "--cert-file",
        &at("server-cert.pem"),
        "--key-file",
        &at("server-key.pem"),
        "--trusted-ca-file",
        &at("ca-cert.pem"),
        "--client-cert-auth",
    ];
    let etcd = Etcd::start("tls", 1, &common.map(str::to_owned));
    let text = format!("etcd:{}?tls-certificates={}", etcd.url(0), folder.0.display());
    let place = Place::parse(&text).unwrap();
    is_up(&place);
    candidates_take_over(&place);
    let failure = etcd.place(&[0]).read(ARRAY).unwrap_err();
    assert_eq!(failure.id, Id::Unreachable, "an untrusted certificate authority: {failure}");
    std::fs::remove_file(at("client-cert.pem")).unwrap();
    let failure = place.read(ARRAY).unwrap_err();
    assert_eq!(failure.id, Id::Unreachable, "without a certificate: {failure}");
}
