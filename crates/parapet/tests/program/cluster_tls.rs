//! Clusters over TCP with TLS: who comes in, as what, and who stays outside.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ArrayId, CandidateId, ClientId, Incarnation, MemberId};
use cluster::session::{Ask, Hello, Speaker, Told};
use cluster::wire;
use net::nbd::limits::MAX_HANDSHAKES;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::world::{Server, World, until};

#[allow(dead_code)]
#[path = "../../src/cmd/cluster/key/certificate.rs"]
mod certificate;

use certificate::{Contents, Key, Purpose, certificate};

const MEMBER_BYTES: u64 = 28 << 20;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOPBACK: &str = "--address=127.0.0.1";
const OPERATOR: Speaker = Speaker::Operator;

/// Makes a certificate in a folder of keys.
fn key(world: &World, folder: &str, name: &str, roles: &[&str]) {
    let words = [&["cluster", "key", folder, name, LOOPBACK][..], roles].concat();
    world.ok(&words);
}

/// The options that name the certificate of a folder.
fn files(folder: &str) -> [String; 3] {
    ["cert", "key", "ca"].map(|name| format!("--tls-{name}={folder}/{name}.pem"))
}

fn disk(world: &World, index: usize, folder: &str) -> Server {
    world.file(&format!("m{index}"), MEMBER_BYTES);
    let disk = format!("m{index}");
    let [cert, key, ca] = files(folder);
    let listen = ["serve-disk", &disk, "--listen", "127.0.0.1:0", "--json"];
    world.start(&[&listen[..], &[&cert, &key, &ca]].concat())
}

fn address(server: &Server) -> String {
    server.ready["address"].as_str().unwrap().trim_start_matches("tcp:").to_owned()
}

/// What came of a connection to one of our processes: an answer, or an end without one and the
/// error of the transport, if there was one.
#[derive(Debug)]
struct Outcome(Result<Told, String>);

impl Outcome {
    fn is_refusal(&self) -> bool {
        match self {
            Outcome(Err(_)) => true,
            Outcome(Ok(Told::Failed(why))) => why.contains("does not allow this command"),
            Outcome(Ok(_)) => false,
        }
    }
}

/// Connects with a certificate, says these frames, and waits for the first answer or the end.
fn talk(world: &World, to: &str, folder: &str, hello: &Hello, ask: Option<&Ask>) -> Outcome {
    let pem = |name: &str| world.path(&format!("{folder}/{name}.pem"));
    let chain = CertificateDer::pem_file_iter(pem("cert")).unwrap().map(Result::unwrap).collect();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(world.path("keys/ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, PrivateKeyDer::from_pem_file(pem("key")).unwrap())
        .unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(to).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut stream = StreamOwned::new(connection, socket);
    let mut frames = wire::encode(hello);
    frames.extend(ask.map(wire::encode).unwrap_or_default());
    let wrote = stream.write_all(&frames).and_then(|()| stream.flush());
    outcome(wrote, &mut stream)
}

fn outcome(wrote: std::io::Result<()>, stream: &mut impl Read) -> Outcome {
    let (mut bytes, mut part) = (Vec::new(), [0; 4096]);
    loop {
        if let Ok((told, _)) = wire::decode::<Told>(&bytes) {
            return Outcome(Ok(told));
        }
        match stream.read(&mut part) {
            Ok(0) => return Outcome(Err(String::new())),
            Ok(count) => bytes.extend(&part[..count]),
            Err(error) => {
                assert_ne!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock,
                    "it neither ends nor answers"
                );
                let wrote = wrote.err().map(|error| error.to_string()).unwrap_or_default();
                return Outcome(Err(format!("{error} {wrote}")));
            }
        }
    }
}

/// A certificate of the CA in `keys` that nobody should accept any more.
fn expired(world: &World, name: &str, role: &str) {
    let folder = world.path(&format!("keys/{name}"));
    std::fs::create_dir(&folder).unwrap();
    let read = |name: &str| std::fs::read_to_string(world.path(&format!("keys/{name}"))).unwrap();
    let issuer = Key::from_pem(&read("ca-key.pem")).unwrap();
    let uris = vec![format!("parapet:{role}")];
    let purpose = Purpose::Host { addresses: Vec::new(), uris, serves: false };
    // Until 2026-01-02.
    let lifetime = Duration::ZERO..Duration::from_secs(1_767_312_000);
    let key = Key::generate().unwrap();
    let contents = Contents { name, lifetime, purpose };
    let certificate = certificate(&contents, &key, ("Parapet cluster CA", &issuer)).unwrap();
    std::fs::write(folder.join("cert.pem"), certificate).unwrap();
    std::fs::write(folder.join("ca.pem"), read("ca.pem")).unwrap();
    write_private(&folder.join("key.pem"), &key.pem());
}

fn write_private(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(path, mode).unwrap();
}

/// A whole cluster: members, coordinator and client 1 on host `a`, client 2 on host `b`.
struct Rig {
    world: World,
    members: Vec<Server>,
    array: ArrayId,
    coordinator: String,
    _running: Vec<Server>,
}

impl Rig {
    fn new() -> Rig {
        let world = World::new();
        key(&world, "keys", "a", &["member", "coordinator", "client-1"]);
        world.ok(&["cluster", "key", "keys", "b", "client-2"]);
        world.ok(&["cluster", "key", "keys", "admin", "admin"]);
        let members: Vec<Server> = (0..3).map(|index| disk(&world, index, "keys/a")).collect();
        let addresses: Vec<String> = members.iter().map(address).collect();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let coordinator = free.local_addr().unwrap().to_string();
        drop(free);
        let [cert, key, ca] = files("keys/admin");
        let create =
            "cluster create pool --level 3.5 --region 4M --yes --file keys/admin/pool.toml";
        let mut words: Vec<&str> = create.split(' ').collect();
        words.extend([&cert, &key, &ca, "--coordinator", &coordinator]);
        words.extend(addresses.iter().map(String::as_str));
        world.ok(&words);
        // Each host has the same file beside its own certificate.
        let text = std::fs::read_to_string(world.path("keys/admin/pool.toml")).unwrap();
        assert!(text.contains("cert = \"cert.pem\""), "{text}");
        for host in ["a", "b"] {
            std::fs::write(world.path(&format!("keys/{host}/pool.toml")), &text).unwrap();
        }
        let uuid = text.lines().find_map(|line| line.strip_prefix("uuid = ")).unwrap();
        let array = ArrayId(u128::from_str_radix(uuid.trim_matches('"'), 16).unwrap());
        let start = |words: &str| world.start(&words.split(' ').collect::<Vec<_>>());
        let running = [
            "cluster coordinator keys/a/pool.toml --json",
            "cluster client keys/a/pool.toml --id 1 --nbd unix:n1.sock --json",
            "cluster client keys/b/pool.toml --id 2 --nbd unix:n2.sock --json",
        ];
        let running = running.map(start).into();
        Rig { world, members, array, coordinator, _running: running }
    }

    /// Executes a command of qemu-io through a client.
    fn io(&self, client: u32, command: &str) -> bool {
        let socket = self.world.path(&format!("n{client}.sock"));
        let uri = format!("nbd+unix:///pool?socket={}", socket.display());
        let words = ["qemu-io", "-f", "raw", "-t", "none", "-c", command, "-c", "flush", &uri];
        let ran = self.world.try_tool("qemu-utils", &words);
        ran.code == 0 && !ran.out.contains("failed")
    }

    fn hello(&self, speaker: Speaker) -> Hello {
        Hello { speaker, array: self.array, member: MemberId(0) }
    }

    fn status(&self) -> Value {
        self.world.json(&["cluster", "status", "keys/b/pool.toml"])
    }
}

#[test]
fn a_cluster_works_over_tls_and_each_certificate_does_its_own_work_only() {
    let rig = Rig::new();
    assert!(rig.io(1, "write -P 1 0 1M"));
    assert!(rig.io(2, "read -P 1 0 1M"));
    assert!(rig.io(2, "write -P 2 1M 1M"));
    assert!(rig.io(1, "read -P 2 1M 1M"));
    assert_eq!(rig.status()["state"], "optimal");

    let member = address(&rig.members[0]);
    let talk = |to: &str, from: &str, speaker, ask: Option<&Ask>| {
        talk(&rig.world, to, &format!("keys/{from}"), &rig.hello(speaker), ask)
    };
    let one = Speaker::Client(ClientId(1), Incarnation(u32::MAX));
    let candidate = Speaker::Candidate(CandidateId(0));
    for to in [&member, &rig.coordinator] {
        for (from, speaker) in [("b", one), ("admin", one), ("b", candidate), ("admin", candidate)]
        {
            let outcome = talk(to, from, speaker, Some(&Ask::Report));
            assert!(outcome.is_refusal(), "{to} {from} {speaker:?}: {outcome:?}");
        }
    }
    let log = rig.world.log();
    assert!(log.contains("the certificate of client-2 does not allow the role client-1"), "{log}");
    // Commands that change something are for admins.
    let evict = Ask::Evict(ClientId(1));
    for from in ["a", "b"] {
        let outcome = talk(&rig.coordinator, from, OPERATOR, Some(&evict));
        assert!(outcome.is_refusal(), "{from}: {outcome:?}");
    }
    let report = talk(&rig.coordinator, "b", OPERATOR, Some(&Ask::Report));
    assert!(matches!(&report, Outcome(Ok(Told::Report(report))) if report.active), "{report:?}");
    let described = talk(&member, "b", OPERATOR, Some(&Ask::Describe));
    let Outcome(Ok(Told::Described(_, _, Some((label, _))))) = described else {
        panic!("no label")
    };
    let format = Ask::Format(label);
    assert!(talk(&member, "b", OPERATOR, Some(&format)).is_refusal());
    assert!(matches!(
        talk(&member, "admin", OPERATOR, Some(&format)),
        Outcome(Ok(Told::Formatted(_)))
    ));
    assert!(rig.io(1, "read -P 1 0 1M"), "nothing was evicted or erased");

    // Our own programs say so before they try.
    let client = ["cluster", "client", "keys/b/pool.toml", "--id", "1", "--nbd", "unix:x.sock"];
    let message = rig.world.refused(&client, 1, "PPT-1005");
    assert!(message.contains("certificate of client-2") && message.contains("client-1"));
    rig.world.refused(&["cluster", "coordinator", "keys/b/pool.toml"], 1, "PPT-1005");
    rig.world.refused(&["cluster", "evict", "keys/b/pool.toml", "1"], 1, "PPT-1005");
    rig.world.ok(&["cluster", "evict", "keys/admin/pool.toml", "1"]);
    assert!(!rig.io(1, "write -P 3 0 4k") && rig.io(2, "read -P 1 0 1M"));
}

#[test]
fn whoever_has_no_certificate_of_the_cluster_stays_outside() {
    let world = World::new();
    key(&world, "keys", "a", &["member"]);
    world.ok(&["cluster", "key", "keys", "admin", "admin"]);
    world.ok(&["cluster", "key", "keys", "two", "client-2"]);
    world.ok(&["cluster", "key", "foreign", "admin", "admin"]);
    expired(&world, "old", "admin");
    let servers: Vec<Server> = (0..3).map(|index| disk(&world, index, "keys/a")).collect();
    let [first, second, third] = [0, 1, 2].map(|index| address(&servers[index]));
    let hello = Hello { speaker: OPERATOR, array: ArrayId(0), member: MemberId(0) };
    let describe = |to: &str, from: &str| talk(&world, to, from, &hello, Some(&Ask::Describe));
    for (to, from, alert, logged) in [
        (&first, "keys/old", "CertificateExpired", "certificate expired"),
        (&second, "foreign/admin", "", "invalid peer certificate"),
    ] {
        let Outcome(Err(why)) = describe(to, from) else { panic!("{from} came in") };
        assert!(why.contains(alert), "{from}: {why}");
        until(|| world.log().contains(logged));
    }
    // Plain text: no byte of an answer that it could be after.
    let mut plain = TcpStream::connect(&third).unwrap();
    plain.set_read_timeout(Some(PATIENCE)).unwrap();
    let frames = [wire::encode(&hello), wire::encode(&Ask::Describe)].concat();
    let wrote = plain.write_all(&frames);
    assert!(outcome(wrote, &mut plain).is_refusal());
    assert!(matches!(describe(&first, "keys/admin"), Outcome(Ok(Told::Described(..)))));

    // Our own programs name the problem.
    let text = |keys: &str| {
        let head = "name = 'pool'\nuuid = '0123456789abcdef0123456789abcdef'\nstore = 'file:/x'\n";
        let addresses = format!("members = ['{second}', '{third}']\ncoordinators = ['{first}']\n");
        format!("{head}{addresses}{keys}")
    };
    let tls = "[tls]\ncert = 'cert.pem'\nkey = 'key.pem'\nca = 'ca.pem'\n";
    let status = |folder: &str, keys: &str, code, id| {
        let file = format!("{folder}/pool.toml");
        std::fs::write(world.path(&file), text(keys)).unwrap();
        world.refused(&["cluster", "status", &file], code, id)
    };
    assert!(status("keys/old", tls, 1, "PPT-1005").contains("expired on 2026-01-02"));
    let missing = tls.replace("'key.pem'", "'none.pem'");
    assert!(status("keys/admin", &missing, 1, "PPT-1005").contains("none.pem"));
    // A server of another CA, and one in another role: both are found out.
    assert!(status("foreign/admin", tls, 4, "PPT-4001").contains("certificate"));
    let wrong = status("keys/admin", tls, 4, "PPT-4001");
    assert!(wrong.contains("is no coordinator: it shows the certificate of member"), "{wrong}");
    status("keys/admin", "", 4, "PPT-4001");
    let [cert, key, ca] = files("keys/two");
    let serve = ["serve-disk", "m0", "--listen", "0.0.0.0:0", &cert, &key, &ca];
    world.refused(&serve, 1, "PPT-1005");
    world.refused(&serve[..4], 2, "PPT-2001");
    world.refused(&serve[..6], 2, "PPT-2001");

    // A new CA shuts out all old certificates, without a restart.
    let other = std::fs::read(world.path("foreign/ca.pem")).unwrap();
    std::fs::write(world.path("keys/a/ca.pem"), other).unwrap();
    assert!(describe(&first, "keys/admin").is_refusal());
    assert!(matches!(describe(&first, "foreign/admin"), Outcome(Ok(Told::Described(..)))));
}

#[test]
fn strangers_in_a_crowd_do_not_keep_others_out() {
    let world = World::new();
    key(&world, "keys", "a", &["member", "admin"]);
    let server = disk(&world, 0, "keys/a");
    let to = address(&server);
    let hello = Hello { speaker: OPERATOR, array: ArrayId(0), member: MemberId(0) };
    let silent = || TcpStream::connect(&to).unwrap();
    let mut oldest = silent();
    let crowd: Vec<TcpStream> = (0..MAX_HANDSHAKES).map(|_| silent()).collect();
    let outcome = talk(&world, &to, "keys/a", &hello, Some(&Ask::Describe));
    assert!(matches!(outcome, Outcome(Ok(Told::Described(..)))), "{outcome:?}");
    oldest.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(oldest.read(&mut [0; 1]).unwrap(), 0, "the oldest made room");
    drop(crowd);
}

#[test]
fn keys_are_made_for_their_owner_only() {
    let world = World::new();
    let make = |words: &[&str], code, id| {
        world.refused(&[&["cluster", "key", "keys"], words].concat(), code, id)
    };
    make(&["a", "member"], 2, "PPT-2001");
    for wrong in ["client", "client-0", "client-01", "root"] {
        make(&["a", wrong], 2, "PPT-2001");
    }
    make(&["../a", "admin"], 2, "PPT-2001");
    assert!(!world.path("keys").exists());
    key(&world, "keys", "a", &["member"]);
    make(&["a", "admin"], 3, "PPT-3001");
    for (name, mode) in [("", 0o700), ("a", 0o700), ("ca-key.pem", 0o600), ("a/key.pem", 0o600)] {
        let path = world.path("keys").join(name);
        let found = std::os::unix::fs::MetadataExt::mode(&std::fs::metadata(path).unwrap());
        assert_eq!(found & 0o777, mode, "{name}");
    }
    // openssl agrees with us about the certificate.
    let verify = ["openssl", "verify", "-CAfile", "keys/ca.pem", "keys/a/cert.pem"];
    world.tool("openssl", &verify);
    let shown = ["openssl", "x509", "-in", "keys/a/cert.pem", "-noout", "-ext", "subjectAltName"];
    let shown = world.tool("openssl", &shown);
    assert!(shown.contains("127.0.0.1") && shown.contains("URI:parapet:member"), "{shown}");
}
