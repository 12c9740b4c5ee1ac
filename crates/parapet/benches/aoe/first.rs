//! When a target that is being started answers IDENTIFY for the first time.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use io::{Clock, Frame, Link, Mac, Pool};
use net::aoe::wire::ata::{Ata, opcode};
use net::aoe::wire::{ATA_HEADER_BYTES, Address, HEADER_BYTES, Header, VERSION, command};
use os::Executor;
use serde_json::json;

use super::Result;

/// The interval of the questions.
const EVERY: Duration = Duration::from_millis(1);
/// How long the target may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Asks until an answer comes; prints the time of day of the answer.
pub(super) fn measure(port: &str, address: &str) -> Result<serde_json::Value> {
    let address: Address = address.parse()?;
    let on = Executor::new(os::Config::default())?;
    let link = super::open(port, &Pool::new(1 << 20), &on)?;
    println!("{}", json!({ "asking": address.to_string() }));
    let clock = on.clock();
    let question = question(&*link, address);
    let start = clock.now();
    on.block_on(async {
        while clock.now() - start < PATIENCE {
            let mut frames = VecDeque::from([question.clone()]);
            poll_fn(|cx| link.poll_send(cx, &mut frames)).await?;
            let mut alarm = clock.sleep_until(clock.now() + EVERY);
            let mut answers = Vec::new();
            poll_fn(|cx| match link.poll_receive(cx, &mut answers) {
                Poll::Ready(outcome) => Poll::Ready(outcome),
                Poll::Pending => Pin::new(&mut alarm).poll(cx).map(Ok),
            })
            .await?;
            let is_identity = |it: Header| it.address == address && it.command == command::ATA;
            if answers.iter().filter_map(|it| Header::parse(it.head())).any(is_identity) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
                return Ok(json!({ "answered_us": now.as_micros() as u64 }));
            }
        }
        Err(format!("{address} did not answer").into())
    })
}

/// IDENTIFY, to whoever has this address.
fn question(link: &dyn Link, address: Address) -> Frame {
    let header = Header {
        destination: Mac::BROADCAST,
        source: link.address(),
        version: VERSION,
        response: false,
        error: None,
        address,
        command: command::ATA,
        tag: 1,
    };
    let mut bytes = [0; ATA_HEADER_BYTES];
    header.put(&mut bytes);
    Ata::plain(opcode::IDENTIFY).put(&mut bytes[HEADER_BYTES..]);
    Frame::new(&bytes)
}
