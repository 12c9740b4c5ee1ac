//! Asking the wire who is there.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::Result;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use io::{Clock, Frame, Link, Mac};

use super::wire::query::{Directive, Query};
use super::wire::{Address, HEADER_BYTES, Header, VERSION, command};

/// The tag of our questions: bit 31 marks tags that are not counted.
const TAG: u32 = 1 << 31 | 0x5041_5241;
/// How long an answer may take, and when the question is repeated: ample on one segment.
const PATIENCE: Duration = Duration::from_millis(60);
const AGAIN: Duration = Duration::from_millis(20);

/// A target that answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Found {
    /// Its address.
    pub address: Address,
    /// The port that answered.
    pub mac: Mac,
    /// How it describes itself.
    pub query: Query,
}

/// Asks for targets of this address, and returns those that answered, each port once. The port must
/// be open for answers.
///
/// # Errors
/// The port is gone.
pub async fn discover(link: &dyn Link, clock: &dyn Clock, address: Address) -> Result<Vec<Found>> {
    let mut found: Vec<Found> = Vec::new();
    let start = clock.now();
    for turn in 0..PATIENCE.as_millis() / AGAIN.as_millis() {
        let mut frames = VecDeque::from([question(link.address(), address)]);
        poll_fn(|cx| link.poll_send(cx, &mut frames)).await?;
        let until = start + AGAIN * (turn as u32 + 1);
        let mut alarm = pin!(clock.sleep_until(until));
        loop {
            let mut frames = Vec::new();
            let received = poll_fn(|cx| match link.poll_receive(cx, &mut frames) {
                Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
                Poll::Pending => Pin::new(&mut alarm).poll(cx).map(|()| None),
            });
            match received.await {
                None => break,
                Some(outcome) => outcome?,
            }
            for answer in frames.iter().filter_map(answer) {
                if !found.iter().any(|it| (it.address, it.mac) == (answer.address, answer.mac)) {
                    found.push(answer);
                }
            }
        }
    }
    Ok(found)
}

fn question(source: Mac, address: Address) -> Frame {
    let header = Header {
        destination: Mac::BROADCAST,
        source,
        version: VERSION,
        response: false,
        error: None,
        address,
        command: command::QUERY,
        tag: TAG,
    };
    let mut bytes = vec![0; HEADER_BYTES];
    header.put(&mut bytes);
    Query::request(Directive::Read, &[]).put(false, &mut bytes);
    Frame::new(&bytes)
}

fn answer(frame: &Frame) -> Option<Found> {
    let header = Header::parse(frame.head())?;
    if !header.response || header.error.is_some() || header.command != command::QUERY {
        return None;
    }
    let argument = frame.to_vec();
    let query = Query::parse(argument.get(HEADER_BYTES..)?)?;
    Some(Found { address: header.address, mac: header.source, query })
}
