//! Whole messages over a [`Stream`], and a deadline for them.
//!
//! Owns nothing between calls: it reads exactly the requested bytes, so that the next reader of the
//! stream (TLS, the transmission phase) finds every byte that belongs to it.

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice, Result};
use std::pin::{Pin, pin};
use std::task::Poll;

use io::{Clock, Stream, Time};

/// Fills `into`.
///
/// # Errors
/// `UnexpectedEof` if the stream ends before that, and whatever the stream says.
pub(crate) async fn fill(stream: &dyn Stream, into: &mut [u8]) -> Result<()> {
    let mut done = 0;
    while done < into.len() {
        match poll_fn(|cx| stream.poll_read(cx, &mut into[done..])).await? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            count => done += count,
        }
    }
    Ok(())
}

/// Reads `count` bytes and forgets them.
///
/// # Errors
/// As [`fill`].
pub(crate) async fn skip(stream: &dyn Stream, mut count: u64) -> Result<()> {
    let mut scratch = [0; 4096];
    while count > 0 {
        let part = count.min(scratch.len() as u64) as usize;
        fill(stream, &mut scratch[..part]).await?;
        count -= part as u64;
    }
    Ok(())
}

/// Sends all of `bytes`.
///
/// # Errors
/// `WriteZero` if the stream takes nothing more, and whatever the stream says.
pub(crate) async fn send(stream: &dyn Stream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|cx| stream.poll_write(cx, &[IoSlice::new(bytes)])).await? {
            0 => return Err(ErrorKind::WriteZero.into()),
            count => bytes = bytes.get(count..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Says that nothing more will be sent.
///
/// # Errors
/// Whatever the stream says.
pub(crate) async fn close(stream: &dyn Stream) -> Result<()> {
    poll_fn(|cx| stream.poll_close(cx)).await
}

/// The outcome of `work`, or nothing if it is not there at `deadline`; then `work` is dropped.
pub(crate) async fn before<T>(
    clock: &dyn Clock,
    deadline: Time,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut work = pin!(work);
    let mut alarm = clock.sleep_until(deadline);
    poll_fn(|cx| match work.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => Pin::new(&mut alarm).poll(cx).map(|()| None),
    })
    .await
}
