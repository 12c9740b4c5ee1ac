//! Connections over every kind of socket, with io_uring and without.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::cell::Cell;
use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Result};
use std::rc::Rc;
use std::task::Poll;

use io::Stream;
use os::{Address, Config, Engine, Executor, Listener, Peer, Socket};
use world::{Scratch, on_disk};

const ENGINES: [Engine; 2] = [Engine::Uring, Engine::Epoll];

fn executor(engine: Engine) -> Executor {
    Executor::new(Config { engine, ..Config::default() }).unwrap()
}

async fn read(stream: &impl Stream, into: &mut [u8]) -> Result<usize> {
    poll_fn(|cx| stream.poll_read(cx, into)).await
}

async fn write_all(stream: &impl Stream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        // As two slices: both must be sent, in order.
        let (head, tail) = bytes.split_at(bytes.len().min(1000));
        let slices = [IoSlice::new(head), IoSlice::new(tail)];
        let count = poll_fn(|cx| stream.poll_write(cx, &slices)).await?;
        bytes = &bytes[count..];
    }
    Ok(())
}

/// Accepts one connection and echoes its data until its end.
async fn echo(listener: Listener, on: os::Spawner) {
    let socket = Socket::from_fd(listener.accept().await.unwrap(), &on).unwrap();
    let mut buf = vec![0; 100_000];
    loop {
        let count = read(&socket, &mut buf).await.unwrap();
        if count == 0 {
            return;
        }
        write_all(&socket, &buf[..count]).await.unwrap();
    }
}

/// Sends far more than sockets hold before it reads: only if both sides wait does all come back.
async fn send_and_compare(socket: Rc<Socket>, on: &Executor) {
    let bytes: Vec<u8> = (0..8 << 20).map(|index: u32| (index ^ index >> 9) as u8).collect();
    let (sender, sent) = (Rc::clone(&socket), bytes.clone());
    on.spawn_local(async move {
        write_all(&*sender, &sent).await.unwrap();
        poll_fn(|cx| sender.poll_close(cx)).await.unwrap();
    });
    let (mut got, mut buf) = (Vec::new(), vec![0; 65536]);
    loop {
        match read(&*socket, &mut buf).await.unwrap() {
            0 => break,
            count => got.extend_from_slice(&buf[..count]),
        }
    }
    assert!(got == bytes, "{} bytes of {} came back", got.len(), bytes.len());
}

#[test]
fn large_writes_come_back_over_unix_and_tcp() {
    let scratch = Scratch::new(on_disk());
    for engine in ENGINES {
        let unix = Address::Unix(scratch.path("socket"));
        for address in [unix, Address::Tcp("127.0.0.1:0".parse().unwrap())] {
            let on = executor(engine);
            let spawner = on.spawner();
            let listener = Listener::bind(&address, &spawner).unwrap();
            let address = listener.address().unwrap();
            on.spawn_local(echo(listener, on.spawner()));
            on.block_on(async {
                let socket = Rc::new(Socket::connect(&address, &spawner).await.unwrap());
                match (&address, socket.peer()) {
                    (Address::Unix(_), Peer::Local { pid, .. }) => {
                        assert_eq!(pid, std::process::id());
                    }
                    (Address::Tcp(wanted), Peer::Remote(found)) => assert_eq!(*wanted, found),
                    (_, other) => panic!("{other:?}"),
                }
                send_and_compare(socket, &on).await;
            });
        }
        assert!(!scratch.path("socket").exists(), "the listener cleans up");
    }
}

#[test]
fn a_dropped_socket_ends_the_connection_despite_a_waiter() {
    for engine in ENGINES {
        let on = executor(engine);
        let (near, far) = Socket::pair(&on.spawner()).unwrap();
        let mut waiting = Box::pin(async move { read(&far, &mut [0; 10]).await });
        on.block_on(async {
            // Arms the far end's poll, and lets a turn hand it to the kernel.
            poll_fn(|cx| {
                assert!(waiting.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        });
        drop(waiting);
        assert_eq!(on.block_on(read(&near, &mut [0; 10])).unwrap(), 0);
        let written = on.block_on(write_all(&near, b"anybody there?"));
        assert_eq!(written.unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}

#[test]
fn a_stale_socket_is_replaced_and_a_living_one_is_not() {
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let (path, spawner) = (scratch.path("socket"), on.spawner());
    let address = Address::Unix(path.clone());
    // Its owner died without cleaning up.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let living = Listener::bind(&address, &spawner).unwrap();
    let error = Listener::bind(&address, &spawner).err().expect("a server already listens");
    assert_eq!(error.kind(), ErrorKind::AddrInUse);
    drop(living);
    assert!(!path.exists());
    std::fs::write(&path, "precious").unwrap();
    let error = Listener::bind(&address, &spawner).err().expect("it is not a socket");
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
}

/// A server was killed, and started again at once: the kernel still had its socket.
#[test]
fn a_socket_that_is_about_to_close_is_replaced() {
    let (scratch, on) = (Scratch::new(on_disk()), executor(Engine::Auto));
    let (path, spawner) = (scratch.path("socket"), on.spawner());
    let dying = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let kernel = std::thread::spawn(move || {
        let connection = dying.accept().unwrap();
        drop((dying, connection));
    });
    let living = Listener::bind(&Address::Unix(path), &spawner).unwrap();
    kernel.join().unwrap();
    drop(living);
}

#[test]
fn connecting_without_a_listener_is_an_error() {
    for engine in ENGINES {
        let on = executor(engine);
        let spawner = on.spawner();
        let listener = Listener::bind(&Address::Tcp("[::1]:0".parse().unwrap()), &spawner).unwrap();
        let address = listener.address().unwrap();
        drop(listener);
        let error =
            on.block_on(Socket::connect(&address, &spawner)).err().expect("no server listens");
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn both_directions_of_one_socket_wait_independently() {
    for engine in ENGINES {
        let on = executor(engine);
        let (near, far) = Socket::pair(&on.spawner()).unwrap();
        let (near, far) = (Rc::new(near), Rc::new(far));
        let read_bytes = Rc::new(Cell::new(0));
        // A reader with nothing to read, beside a writer that must wait for room.
        let (reader, count) = (Rc::clone(&near), Rc::clone(&read_bytes));
        on.spawn_local(async move {
            let mut buf = [0; 16];
            count.set(read(&*reader, &mut buf).await.unwrap());
        });
        let writer = Rc::clone(&near);
        on.spawn_local(async move { write_all(&*writer, &vec![1; 4 << 20]).await.unwrap() });
        on.block_on(async {
            let hears = |wanted| {
                let read_bytes = Rc::clone(&read_bytes);
                poll_fn(move |cx| {
                    cx.waker().wake_by_ref();
                    if read_bytes.get() == wanted { Poll::Ready(()) } else { Poll::Pending }
                })
            };
            // Lets both come to their wait.
            hears(0).await;
            hears(0).await;
            // The writer still waits when the reader's bytes come.
            write_all(&*far, b"hello").await.unwrap();
            hears(5).await;
            let (mut got, mut buf) = (0, vec![0; 65536]);
            while got < 4 << 20 {
                got += read(&*far, &mut buf).await.unwrap();
            }
        });
        assert_eq!(read_bytes.get(), 5);
    }
}
