//! Clients that mix reads and writes of all sizes, at all depths, over unix and TCP sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::world::{Server, World, pattern};

/// Far longer than any answer takes: after this time the client counts as hung.
const HANG: Duration = Duration::from_secs(60);

/// Both directions of a connection, with [`HANG`] as the limit of each read.
pub struct Raw {
    from: Box<dyn Read>,
    to: Box<dyn Write + Send>,
}

impl Raw {
    pub fn unix(world: &World) -> Raw {
        let socket = UnixStream::connect(world.path("nbd.sock")).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        Raw { from: Box::new(socket.try_clone().unwrap()), to: Box::new(socket) }
    }

    pub fn tcp(server: &Server) -> Raw {
        let socket = TcpStream::connect(tcp_address(server)).unwrap();
        socket.set_read_timeout(Some(HANG)).unwrap();
        Raw { from: Box::new(socket.try_clone().unwrap()), to: Box::new(socket) }
    }

    /// Enters transmission with the export `tank`, with simple replies.
    pub fn transmit(mut self) -> Raw {
        assert_eq!(self.take(18), b"NBDMAGICIHAVEOPT\0\x03");
        // Send flags 3 (no zeroes), then EXPORT_NAME "tank": size and flags come back.
        self.send(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\x04tank");
        self.take(10);
        self
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.to.write_all(bytes).unwrap();
    }

    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.from.read_exact(&mut bytes).expect("the request completes without a hang");
        bytes
    }
}

pub const READ: u8 = 0;
pub const WRITE: u8 = 1;

/// Builds a request header with the cookie `cookie`.
pub fn header(command: u8, cookie: u64, offset: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0x25, 0x60, 0x95, 0x13, 0, 0, 0, command];
    bytes.extend(cookie.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(u32::try_from(length).unwrap().to_be_bytes());
    bytes
}

/// Returns the TCP port on which the server listens; the test requested one.
pub fn tcp_address(server: &Server) -> String {
    let addresses = server.ready["nbd"].as_array().unwrap();
    let tcp = addresses.iter().find_map(|address| address.as_str()?.strip_prefix("tcp:"));
    tcp.unwrap().to_owned()
}

/// Sends reads and writes together, in all combinations of sizes.
#[test]
fn reads_and_writes_sent_together_are_all_answered() {
    let world = World::new();
    let members = world.create("1", 2, &[]);
    let server = world.serve(&["tank", &members[0], &members[1], "--nbd", "tcp:127.0.0.1:0"]);
    for client in [Raw::unix(&world), Raw::tcp(&server)] {
        let mut client = client.transmit();
        for (round, (read_kib, write_kib)) in [4, 64, 256, 1024]
            .into_iter()
            .flat_map(|r| [4, 64, 256, 1024].map(|w| (r, w)))
            .enumerate()
        {
            let payload = pattern(write_kib << 10, round as u64);
            let mut bytes = Vec::new();
            for cookie in 0..8 {
                bytes.extend(header(READ, cookie, 0, read_kib << 10));
                bytes.extend(header(WRITE, 8 + cookie, (4 + cookie) << 20, write_kib << 10));
                bytes.extend(&payload);
            }
            let Raw { mut from, mut to } = client;
            // The client reads only replies that arrive while it is still sending, as libnbd does.
            let sending = std::thread::spawn(move || {
                to.write_all(&bytes).unwrap();
                to
            });
            let mut seen = [false; 16];
            for _ in 0..16 {
                let mut reply = [0; 16];
                from.read_exact(&mut reply).expect("the request completes without a hang");
                assert_eq!(reply[..8], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 0]);
                let cookie = usize::from(reply[15]);
                assert!(!std::mem::replace(&mut seen[cookie], true), "answered twice");
                if cookie < 8 {
                    let mut data = vec![0; read_kib << 10];
                    from.read_exact(&mut data).expect("the read completes with data");
                    assert!(data.iter().all(|&byte| byte == 0));
                }
            }
            client = Raw { from, to: sending.join().unwrap() };
            client.send(&header(READ, 99, 11 << 20, write_kib << 10));
            client.take(16);
            assert!(client.take(write_kib << 10) == payload);
        }
    }
    assert_eq!(server.terminate(), 0);
}

/// Runs random fio reads and writes, with each size at each depth in sequence.
#[test]
fn fio_mixes_sizes_and_depths() {
    let world = World::new();
    let members = world.create("5", 3, &[]);
    let members: Vec<&str> = members.iter().map(String::as_str).collect();
    let start = [&["tank"], &members[..], &["--nbd", "tcp:127.0.0.1:0", "--threads", "2"]].concat();
    let server = world.serve(&start);
    let tcp = format!("nbd://{}/tank", tcp_address(&server));
    for uri in [world.uri(), tcp] {
        let uri = format!("--uri={uri}");
        let mut words = vec!["fio".to_owned()];
        for size in ["4k", "64k", "128k", "256k", "1m"] {
            for depth in [1, 4, 16, 32] {
                let job = format!(
                    "--name=s{size}-{depth} --stonewall --ioengine=nbd --rw=randrw --bs={size} \
                     --iodepth={depth} --size=20m --io_size={} --randseed={depth}",
                    if size == "4k" { "1m" } else { "12m" }
                );
                words.extend(job.split_whitespace().map(str::to_owned));
                words.push(uri.clone());
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        world.tool("fio", &words);
    }
    assert_eq!(world.order(&["status", "tank"])["state"], "healthy");
    assert_eq!(server.terminate(), 0);
}
