//! The handshake: from the greeting to an export chosen.
//!
//! ```text
//!    negotiate ──▶ Negotiation ──options──▶ Chosen ──▶ session
//!                     ▲  │
//!                     └──┘ STARTTLS: a new one over the secured stream; nothing of the old is kept
//! ```
//!
//! Straight-line async; each phase is a type that the next one consumes. Reads exactly the bytes of
//! one message at a time: nothing that came in plain text is ever left for the secured phase, and
//! nothing of the transmission phase is read here.
//!
//! Invariant: every option but EXPORT_NAME is answered, unknown ones too; an export is opened only
//! when the client enters transmission.

use std::rc::Rc;

use io::Stream;

use super::context::MetaContext;
use super::export::{Client, Denial, Export, Exports};
use super::limits::{MAX_OPTION_BYTES, MAX_OPTION_DRAIN, MAX_OPTIONS, MAX_QUERIES};
use super::server::{Ending, Tls};
use super::wire::{self, Choice, Malformed, Queries, Style, answer, handshake, info, option};
use crate::transfer::{close, fill, send, skip};

/// The host's part of a handshake.
pub(super) struct Host<'a> {
    pub(super) exports: &'a dyn Exports,
    /// If there is one, nothing goes without it.
    pub(super) tls: Option<&'a dyn Tls>,
}

/// The agreed parameters of transmission.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Terms {
    pub(super) style: Style,
    pub(super) contexts: Vec<MetaContext>,
    /// The client asked for block sizes, and so has to keep to them.
    pub(super) sized: bool,
}

/// The end of a successful handshake.
pub(super) struct Chosen {
    pub(super) stream: Box<dyn Stream>,
    pub(super) export: Rc<Export>,
    pub(super) terms: Terms,
}

/// Options are being exchanged.
struct Negotiation {
    stream: Box<dyn Stream>,
    client: Client,
    /// The client's flags: does it understand replies, and does it want zeros?
    fixed: bool,
    zeroes: bool,
    options_left: usize,
    agreed: Agreed,
    /// Replies to the option at hand.
    out: Vec<u8>,
}

/// State that STARTTLS discards.
#[derive(Default)]
struct Agreed {
    style: Style,
    /// The export that contexts were set for, and the contexts.
    contexts: Option<(String, Vec<MetaContext>)>,
}

/// The step after an option.
enum Next {
    Again,
    Secure,
    Transmit(Rc<Export>, Terms),
    End(Ending),
}

/// Runs the whole handshake.
///
/// # Errors
/// How the connection ended instead.
pub(super) async fn run(
    stream: Box<dyn Stream>,
    client: Client,
    host: &Host<'_>,
) -> Result<Chosen, Ending> {
    let mut negotiation = negotiate(stream, client).await?;
    loop {
        match negotiation.next(host).await? {
            Next::Again => {}
            Next::Secure => negotiation = negotiation.secure(host).await?,
            Next::Transmit(export, terms) => {
                return Ok(Chosen { stream: negotiation.stream, export, terms });
            }
            Next::End(ending) => {
                // A goodbye under TLS wants one in return; whether it arrives is no matter.
                let _ = close(&*negotiation.stream).await;
                return Err(ending);
            }
        }
    }
}

async fn negotiate(stream: Box<dyn Stream>, client: Client) -> Result<Negotiation, Ending> {
    send(&*stream, &wire::greeting()).await?;
    let mut flags = [0; 4];
    fill(&*stream, &mut flags).await?;
    let flags = u32::from_be_bytes(flags);
    let known = handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES;
    if flags & !u32::from(known) != 0 {
        return Err(Ending::Misbehaved("unknown client flags"));
    }
    Ok(Negotiation {
        stream,
        client,
        fixed: flags & u32::from(handshake::FIXED_NEWSTYLE) != 0,
        zeroes: flags & u32::from(handshake::NO_ZEROES) == 0,
        options_left: MAX_OPTIONS,
        agreed: Agreed::default(),
        out: Vec::new(),
    })
}

impl Negotiation {
    /// Reads one option, answers it, and returns the next step.
    async fn next(&mut self, host: &Host<'_>) -> Result<Next, Ending> {
        let mut header = [0; wire::OPTION_HEADER_BYTES];
        fill(&*self.stream, &mut header).await?;
        let Ok((option, length)) = wire::option_header(&header) else {
            return Err(Ending::Misbehaved("an option without its magic number"));
        };
        if length > MAX_OPTION_DRAIN {
            return Err(Ending::Misbehaved("an option of more bytes than are read"));
        }
        self.options_left = match self.options_left.checked_sub(1) {
            Some(left) => left,
            None => return Err(Ending::Misbehaved("too many options")),
        };
        if !self.fixed && option != option::EXPORT_NAME {
            return Err(Ending::Misbehaved("an option from a client that cannot read its answer"));
        }
        self.out.clear();
        let next = if length > MAX_OPTION_BYTES {
            skip(&*self.stream, u64::from(length)).await?;
            self.refuse_long(option)
        } else {
            let mut data = vec![0; length as usize];
            fill(&*self.stream, &mut data).await?;
            self.take(option, &data, host)
        };
        send(&*self.stream, &self.out).await?;
        Ok(next)
    }

    /// Continues under TLS: only the client's identity and its style are kept.
    async fn secure(self, host: &Host<'_>) -> Result<Negotiation, Ending> {
        let Negotiation { stream, mut client, fixed, zeroes, options_left, .. } = self;
        let Some(tls) = host.tls else { return Err(Ending::Misbehaved("TLS is off")) };
        let (stream, identity) = tls.accept(stream).await.map_err(Ending::TlsFailed)?;
        client.secure = true;
        client.identity = identity;
        let (agreed, out) = (Agreed::default(), Vec::new());
        Ok(Negotiation { stream, client, fixed, zeroes, options_left, agreed, out })
    }

    fn refuse_long(&mut self, option: u32) -> Next {
        match option {
            option::EXPORT_NAME => return Next::End(Ending::Misbehaved("a name that is too long")),
            option::SET_META_CONTEXT => self.agreed.contexts = None,
            _ => {}
        }
        self.refuse(option, answer::TOO_BIG, "the option is too long")
    }

    fn take(&mut self, option: u32, data: &[u8], host: &Host<'_>) -> Next {
        let in_plain_text = host.tls.is_some() && !self.client.secure;
        match option {
            option::ABORT => {
                self.answer(option, answer::ACK, &[]);
                Next::End(Ending::Finished)
            }
            option::STARTTLS => self.take_starttls(data, host),
            option::EXPORT_NAME if in_plain_text => {
                Next::End(Ending::Misbehaved("an export in plain text where TLS is required"))
            }
            _ if in_plain_text => self.refuse(option, answer::TLS_REQUIRED, "TLS comes first"),
            option::EXPORT_NAME => self.take_export_name(data, host),
            option::LIST => self.take_list(data, host),
            option::INFO | option::GO => self.take_choice(option, data, host),
            option::STRUCTURED_REPLY | option::EXTENDED_HEADERS => self.take_style(option, data),
            option::LIST_META_CONTEXT => self.take_list_contexts(data, host),
            option::SET_META_CONTEXT => self.take_set_contexts(data, host),
            _ => self.refuse(option, answer::UNSUPPORTED, "unknown option"),
        }
    }

    fn take_starttls(&mut self, data: &[u8], host: &Host<'_>) -> Next {
        let option = option::STARTTLS;
        if !data.is_empty() {
            return self.refuse(option, answer::INVALID, "STARTTLS takes no data");
        }
        if self.client.secure {
            return self.refuse(option, answer::INVALID, "TLS is in use already");
        }
        if host.tls.is_none() {
            return self.refuse(option, answer::POLICY, "TLS is off");
        }
        self.answer(option, answer::ACK, &[]);
        Next::Secure
    }

    fn take_export_name(&mut self, data: &[u8], host: &Host<'_>) -> Next {
        if self.agreed.style == Style::Extended {
            return Next::End(Ending::Misbehaved("EXPORT_NAME after extended headers"));
        }
        let Ok(name) = wire::Reader::new(data).text() else {
            return Next::End(Ending::Misbehaved("a name that is none"));
        };
        let Ok(export) = host.exports.open(name, &self.client) else {
            return Next::End(Ending::Denied);
        };
        let terms = self.terms(&export, false);
        let flags = export.flags(terms.style, !terms.contexts.is_empty());
        let bytes = export.limits().bytes;
        self.out.extend_from_slice(&wire::export_name_answer(bytes, flags, self.zeroes));
        Next::Transmit(export, terms)
    }

    fn take_list(&mut self, data: &[u8], host: &Host<'_>) -> Next {
        if !data.is_empty() {
            return self.refuse(option::LIST, answer::INVALID, "LIST takes no data");
        }
        let out = &mut self.out;
        host.exports.list(&self.client, &mut |name, description| {
            let entry = wire::server_entry(name, description);
            wire::put_answer(out, option::LIST, answer::SERVER, &entry);
        });
        self.acknowledge(option::LIST)
    }

    fn take_choice(&mut self, option: u32, data: &[u8], host: &Host<'_>) -> Next {
        let choice = match Choice::decode(data) {
            Ok(choice) => choice,
            Err(fault) => return self.refuse_malformed(option, fault),
        };
        let go = option == option::GO;
        let exports = host.exports;
        let found = if go {
            exports.open(choice.name, &self.client)
        } else {
            exports.find(choice.name, &self.client)
        };
        let export = match found {
            Ok(export) => export,
            Err(denial) => return self.refuse_denied(option, denial),
        };
        let asked = |kind| choice.requests.contains(&kind);
        let terms = self.terms(&export, asked(info::BLOCK_SIZE));
        let flags = export.flags(terms.style, !terms.contexts.is_empty());
        self.answer(option, answer::INFO, &wire::info_export(export.limits().bytes, flags));
        if asked(info::NAME) {
            self.answer(option, answer::INFO, &wire::info_text(info::NAME, export.name()));
        }
        if asked(info::DESCRIPTION) && !export.description().is_empty() {
            let data = wire::info_text(info::DESCRIPTION, export.description());
            self.answer(option, answer::INFO, &data);
        }
        if asked(info::BLOCK_SIZE) {
            self.answer(option, answer::INFO, &wire::info_block_size(export.block_sizes()));
        }
        self.answer(option, answer::ACK, &[]);
        if go { Next::Transmit(export, terms) } else { Next::Again }
    }

    fn take_style(&mut self, option: u32, data: &[u8]) -> Next {
        if !data.is_empty() {
            return self.refuse(option, answer::INVALID, "this option takes no data");
        }
        let style = match option {
            option::EXTENDED_HEADERS => Style::Extended,
            _ if self.agreed.style == Style::Extended => {
                let message = "extended headers are in use";
                return self.refuse(option, answer::EXTENDED_REQUIRED, message);
            }
            _ => Style::Structured,
        };
        self.agreed.style = style;
        self.acknowledge(option)
    }

    fn take_list_contexts(&mut self, data: &[u8], host: &Host<'_>) -> Next {
        let option = option::LIST_META_CONTEXT;
        let queries = match self.queries(option, data, host) {
            Ok((_, queries)) => queries,
            Err(refusal) => return refusal,
        };
        for context in MetaContext::ALL {
            let matches = |query: &&str| MetaContext::matching(query).any(|one| one == context);
            if queries.is_empty() || queries.iter().any(matches) {
                let data = wire::meta_context(0, context.name());
                self.answer(option, answer::META_CONTEXT, &data);
            }
        }
        self.acknowledge(option)
    }

    fn take_set_contexts(&mut self, data: &[u8], host: &Host<'_>) -> Next {
        let option = option::SET_META_CONTEXT;
        // Whatever comes of it, the earlier set is gone.
        self.agreed.contexts = None;
        let (export, queries) = match self.queries(option, data, host) {
            Ok(found) => found,
            Err(refusal) => return refusal,
        };
        let mut contexts = Vec::new();
        for context in queries.into_iter().filter_map(MetaContext::named) {
            if !contexts.contains(&context) {
                let data = wire::meta_context(context.id(), context.name());
                self.answer(option, answer::META_CONTEXT, &data);
                contexts.push(context);
            }
        }
        self.agreed.contexts = Some((export.name().to_owned(), contexts));
        self.acknowledge(option)
    }

    fn queries<'a>(
        &mut self,
        option: u32,
        data: &'a [u8],
        host: &Host<'_>,
    ) -> Result<(Rc<Export>, Vec<&'a str>), Next> {
        if self.agreed.style == Style::Simple {
            let message = "metadata needs structured replies or extended headers";
            return Err(self.refuse(option, answer::INVALID, message));
        }
        let decoded = Queries::decode(data, MAX_QUERIES);
        let queries = decoded.map_err(|fault| self.refuse_malformed(option, fault))?;
        let found = host.exports.find(queries.name, &self.client);
        let export = found.map_err(|denial| self.refuse_denied(option, denial))?;
        Ok((export, queries.queries))
    }

    /// The parameters if transmission begins with this export now.
    fn terms(&self, export: &Export, sized: bool) -> Terms {
        let same = self.agreed.contexts.as_ref().filter(|(name, _)| name == export.name());
        let contexts = same.map(|(_, contexts)| contexts.clone()).unwrap_or_default();
        Terms { style: self.agreed.style, contexts, sized }
    }

    fn answer(&mut self, option: u32, kind: u32, data: &[u8]) {
        wire::put_answer(&mut self.out, option, kind, data);
    }

    fn acknowledge(&mut self, option: u32) -> Next {
        self.answer(option, answer::ACK, &[]);
        Next::Again
    }

    fn refuse(&mut self, option: u32, kind: u32, message: &str) -> Next {
        self.answer(option, kind, message.as_bytes());
        Next::Again
    }

    fn refuse_malformed(&mut self, option: u32, fault: Malformed) -> Next {
        match fault {
            Malformed::Long => self.refuse(option, answer::TOO_BIG, "too long"),
            _ => self.refuse(option, answer::INVALID, "the option's data is malformed"),
        }
    }

    fn refuse_denied(&mut self, option: u32, denial: Denial) -> Next {
        match denial {
            Denial::Unknown => self.refuse(option, answer::UNKNOWN, "no such export"),
            Denial::Forbidden => self.refuse(option, answer::POLICY, "not for this client"),
        }
    }
}
