//! Connections to the members of an array.
//!
//! Machines repeat what has no answer. A connection delivers everything or ends, so a request that
//! it carries already is not sent on it again: a repetition matters on the next connection only.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::io::{Error, Result};
use std::rc::Rc;

use cluster::ids::{ArrayId, MemberId, OpId};
use cluster::message::{FromMember, ToMember};
use cluster::session::{Hello, Speaker};
use io::Stream;

use super::line::{self, Line};

struct Link {
    line: Rc<Line>,
    /// Requests on it without an answer.
    sent: BTreeSet<OpId>,
}

/// At most one connection to each member.
pub(super) struct Links {
    speaker: Speaker,
    array: ArrayId,
    links: RefCell<Vec<Option<Link>>>,
}

impl Links {
    pub(super) fn new(speaker: Speaker, array: ArrayId, members: usize) -> Links {
        let links = RefCell::new((0..members).map(|_| None).collect());
        Links { speaker, array, links }
    }

    /// Uses this connection until it ends, or `each` refuses a message; then says why. Calls
    /// `opened` when messages can be sent.
    pub(super) async fn run(
        &self,
        member: MemberId,
        stream: Box<dyn Stream>,
        opened: impl FnOnce(),
        mut each: impl FnMut(FromMember) -> Result<()>,
    ) -> Error {
        let (line, inbox) = Line::open(stream);
        line.send(&Hello { speaker: self.speaker, array: self.array, member });
        let place = usize::from(member.0);
        self.links.borrow_mut()[place] = Some(Link { line, sent: BTreeSet::new() });
        opened();
        let ended = inbox.run(|frame| {
            let message: FromMember = line::read(frame)?;
            if let FromMember::Done(op, _) | FromMember::Refused(op, _) = &message
                && let Some(link) = &mut self.links.borrow_mut()[place]
            {
                link.sent.remove(op);
            }
            each(message)
        });
        let ended = ended.await;
        self.links.borrow_mut()[place] = None;
        ended
    }

    /// Sends to a member, if it is connected.
    pub(super) fn send(&self, member: MemberId, message: &ToMember) {
        let mut links = self.links.borrow_mut();
        let Some(Some(link)) = links.get_mut(usize::from(member.0)) else { return };
        if let ToMember::Data(stamp, _) = message {
            link.sent = link.sent.split_off(&stamp.floor);
            if !link.sent.insert(stamp.op) {
                return;
            }
        }
        link.line.send(message);
    }
}
