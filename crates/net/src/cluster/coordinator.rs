//! A coordinator: the machine `cluster::coordinator` over connections and a decision store.
//!
//! Invariant: an operator's eviction is answered only after all members have fenced the client.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::io::{Error, ErrorKind};
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use cluster::coordinator::{Action, Coordinator, Event, NotEvicted};
use cluster::decisions::{Outcome, Request};
use cluster::ids::{ArrayId, CandidateId, ClientId, Incarnation, MemberId, Ms, Term};
use cluster::roles::Holder;
use cluster::session::{Ask, FromCoordinator, Report, Speaker, Told, Welcome};
use cluster::timing::Timing;
use io::{Boxed, Clock, Stream};

use super::door;
use super::line::{self, Inbox, Line};
use super::links::Links;
use super::{Spawn, milliseconds};

/// The register of decisions: a file here, etcd for several hosts later.
pub trait Store {
    /// Executes a request.
    fn ask(&self, request: Request) -> Pin<Box<dyn Future<Output = Outcome>>>;
}

/// The array that is coordinated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Duty {
    /// This candidate.
    pub me: CandidateId,
    /// The array.
    pub array: ArrayId,
    /// Its name.
    pub name: String,
    /// The address of each member.
    pub addresses: Vec<String>,
    /// Intervals.
    pub timing: Timing,
}

/// A candidate that is running. Clones are the same one.
#[derive(Clone)]
pub struct CoordinatorServer(Rc<Shared>);

struct Shared {
    duty: Duty,
    machine: RefCell<Coordinator>,
    store: Rc<dyn Store>,
    clock: Rc<dyn Clock>,
    spawn: Spawn,
    members: Links,
    clients: RefCell<BTreeMap<u64, Session>>,
    next_line: Cell<u64>,
    /// Operators that wait for an eviction.
    waiting: RefCell<Vec<Session>>,
}

/// A connection, and the client that it concerns.
struct Session {
    client: ClientId,
    incarnation: Incarnation,
    line: Rc<Line>,
}

impl CoordinatorServer {
    /// A candidate that stands by.
    pub fn new(duty: Duty, store: Rc<dyn Store>, clock: Rc<dyn Clock>, spawn: Spawn) -> Self {
        let now = milliseconds(&*clock);
        let count = duty.addresses.len();
        let members = Links::new(Speaker::Candidate(duty.me), duty.array, count);
        let machine = RefCell::new(Coordinator::start(duty.me, count, duty.timing, now));
        CoordinatorServer(Rc::new(Shared {
            duty,
            machine,
            store,
            clock,
            spawn,
            members,
            clients: RefCell::default(),
            next_line: Cell::new(0),
            waiting: RefCell::default(),
        }))
    }

    /// Ticks for ever.
    pub fn run(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            let tick = Duration::from_millis(self.0.duty.timing.tick_ms);
            loop {
                self.0.clock.sleep_until(self.0.clock.now() + tick).await;
                self.step(|machine, now, out| machine.tick(now, out));
            }
        })
    }

    /// Another candidate says that it leads in this term, and can serve the array.
    pub fn beat(&self, term: Term) {
        self.handle(Event::Beat(term));
    }

    /// Another candidate stands by, and hears a leader.
    pub fn led(&self) {
        self.handle(Event::Led);
    }

    /// The state of the reign.
    pub fn report(&self) -> Report {
        self.0.machine.borrow().report()
    }

    /// Uses this connection to a member until it ends; then says why.
    pub fn connect(&self, member: MemberId, stream: Box<dyn Stream>) -> Boxed<'_, Error> {
        Box::pin(async move {
            let each = |message| {
                self.handle(Event::Member(member, message));
                Ok(())
            };
            self.0.members.run(member, stream, || {}, each).await
        })
    }

    /// Serves a client or operator until its session ends; then says why.
    pub fn serve(&self, session: door::Session) -> Boxed<'_, Error> {
        Box::pin(async move {
            let door::Session { hello, holder, line, inbox, place: _place } = session;
            let (client, incarnation) = match hello.speaker {
                Speaker::Operator => return self.operate(&holder, &line, inbox).await,
                Speaker::Client(client, incarnation) if hello.array == self.0.duty.array => {
                    (client, incarnation)
                }
                _ => {
                    return Error::new(ErrorKind::PermissionDenied, "the peer means another array");
                }
            };
            let number = self.0.next_line.replace(self.0.next_line.get() + 1);
            self.0.clients.borrow_mut().insert(number, Session { client, incarnation, line });
            let ended = inbox.run(|frame| {
                self.handle(Event::Client(client, incarnation, line::read(frame)?));
                Ok(())
            });
            let ended = ended.await;
            self.0.clients.borrow_mut().remove(&number);
            ended
        })
    }

    async fn operate(&self, holder: &Holder, line: &Rc<Line>, mut inbox: Inbox) -> Error {
        let report = self.report();
        match inbox.next().await {
            Ok(ask) if !holder.may_ask(&ask) => line.send(&door::forbidden(holder)),
            Ok(Ask::Report) => line.send(&Told::Report(report)),
            Ok(Ask::Welcome) => line.send(&match report.config {
                Some(config) => {
                    let Duty { name, addresses, .. } = self.0.duty.clone();
                    Told::Welcome(Welcome { name, config, addresses })
                }
                None => Told::Failed("this candidate does not lead yet".into()),
            }),
            Ok(Ask::Evict(client)) => self.evict(client, line),
            Ok(Ask::AcceptLoss) => {
                let regions = self.step(|machine, now, out| machine.accept_loss(now, out));
                line.send(&Told::Accepted(u32::try_from(regions.len()).unwrap_or(u32::MAX)));
            }
            Ok(_) => line.send(&Told::Failed("a coordinator does not have this command".into())),
            Err(error) => return error,
        }
        let second = || Error::new(ErrorKind::PermissionDenied, "one command for each connection");
        inbox.run(|_| Err(second())).await
    }

    fn evict(&self, client: ClientId, line: &Rc<Line>) {
        let begun = self.step(|machine, now, out| {
            let upto = machine.evict(now, client, out)?;
            // Before the actions are carried out: one of them may be the answer.
            let line = Rc::clone(line);
            self.0.waiting.borrow_mut().push(Session { client, incarnation: upto, line });
            Ok(())
        });
        let why = match begun {
            Ok(()) => return,
            Err(NotEvicted::NeverJoined) => Told::NeverJoined,
            Err(NotEvicted::Standby) => Told::Failed("this coordinator does not lead".into()),
            Err(NotEvicted::TakingOver) => {
                Told::Failed("this coordinator has just taken over".into())
            }
        };
        line.send(&why);
    }

    fn handle(&self, event: Event) {
        self.step(|machine, now, out| machine.handle(now, event, out));
    }

    fn step<T>(&self, work: impl FnOnce(&mut Coordinator, Ms, &mut Vec<Action>) -> T) -> T {
        let (mut out, now) = (Vec::new(), milliseconds(&*self.0.clock));
        let value = work(&mut self.0.machine.borrow_mut(), now, &mut out);
        out.into_iter().for_each(|action| self.act(action));
        value
    }

    fn act(&self, action: Action) {
        match action {
            Action::Client(client, incarnation, term, message) => {
                let message = FromCoordinator(term, message);
                for session in self.0.clients.borrow().values() {
                    if (session.client, session.incarnation) == (client, incarnation) {
                        session.line.send(&message);
                    }
                }
            }
            Action::Member(member, message) => self.0.members.send(member, &message),
            Action::Store(number, request) => {
                let (server, answer) = (self.clone(), self.0.store.ask(request));
                (self.0.spawn)(Box::pin(async move {
                    let outcome = answer.await;
                    server.handle(Event::Store(number, outcome));
                }));
            }
            // The other candidates ask for the report, and `beat` tells their machines.
            Action::Beat(_) => {}
            Action::Evicted(client, upto) => {
                self.0.waiting.borrow_mut().retain(|waiting| {
                    let done = waiting.client == client && waiting.incarnation <= upto;
                    if done {
                        waiting.line.send(&Told::Evicted(upto));
                    }
                    !done
                });
            }
        }
    }
}
