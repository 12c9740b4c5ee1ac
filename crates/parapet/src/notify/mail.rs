//! Mail, handed to a mail server directly: no MTA on this machine is needed.

use std::io::ErrorKind;
use std::time::Duration;

use lettre::message::Mailbox;
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Certificate, Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Message, SmtpTransport, Transport};
use policy::alerts::{Encryption, Mail, Notice};
use ring::rand::{SystemRandom, generate};
use rustls::pki_types::ServerName;

use super::{Undelivered, secret, text};

/// How long each step of the dialogue with the server may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Replies that complain of the login: it may be corrected.
const LOGIN: std::ops::RangeInclusive<u16> = 530..=538;

/// Sends the message.
///
/// # Errors
/// The server did not take it.
pub(super) fn send(mail: &Mail, notice: &Notice) -> Result<(), Undelivered> {
    let host = text::host();
    let subject = format!("[{host}] {}: {}", text::title(notice), text::message(notice));
    let random =
        generate(&SystemRandom::new()).map_err(|_| Undelivered::yet("no random numbers"))?;
    let id = format!("<{:032x}@{host}>", u128::from_ne_bytes(random.expose()));
    let mut message = Message::builder()
        .from(mailbox(&mail.from)?)
        .subject(subject)
        .message_id(Some(id))
        .date_now();
    for to in &mail.to {
        message = message.to(mailbox(to)?);
    }
    let unusable = |error: lettre::error::Error| Undelivered::yet(error.to_string());
    let message = message.body(text::lines(notice)).map_err(unusable)?;
    transport(mail, host)?.send(&message).map(drop).map_err(|error| {
        let is_login = error.status().is_some_and(|code| LOGIN.contains(&u16::from(code)));
        let why = cause(&error);
        Undelivered { why, for_good: error.is_permanent() && !is_login }
    })
}

/// The cause of an error, once.
fn cause(error: &lettre::transport::smtp::Error) -> String {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    match io.map(std::io::Error::kind) {
        Some(ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            "the server did not answer in time".into()
        }
        _ => error.to_string(),
    }
}

/// Checks addresses, certificate and password, without a connection.
///
/// # Errors
/// What cannot be used.
pub(super) fn check(mail: &Mail) -> Result<(), Undelivered> {
    mailbox(&mail.from)?;
    mail.to.iter().try_for_each(|to| mailbox(to).map(drop))?;
    transport(mail, "localhost".into()).map(drop)
}

fn mailbox(address: &str) -> Result<Mailbox, Undelivered> {
    address.parse().map_err(|error| Undelivered::yet(format!("{address:?}: {error}")))
}

fn transport(mail: &Mail, host: String) -> Result<SmtpTransport, Undelivered> {
    let tls = || parameters(mail);
    let (tls, port) = match mail.encryption {
        Encryption::Starttls => (Tls::Required(tls()?), 587),
        Encryption::Tls => (Tls::Wrapper(tls()?), 465),
        Encryption::None => (Tls::None, 25),
    };
    let transport = SmtpTransport::builder_dangerous(&mail.server)
        .hello_name(ClientId::Domain(host))
        .port(mail.port.unwrap_or(port))
        .tls(tls)
        .timeout(Some(PATIENCE));
    let Some((user, password)) = &mail.login else { return Ok(transport.build()) };
    let password = secret::read(password).map_err(Undelivered::yet)?;
    Ok(transport.credentials(Credentials::new(user.clone(), password)).build())
}

fn parameters(mail: &Mail) -> Result<TlsParameters, Undelivered> {
    let server = &mail.server;
    ServerName::try_from(server.as_str()).map_err(|error| {
        let hint = if server.is_ascii() { "" } else { "; write it in ASCII, as xn--…" };
        Undelivered::yet(format!("{server}: no certificate has this name: {error}{hint}"))
    })?;
    let mut parameters = TlsParameters::builder(server.clone());
    if let Some(path) = &mail.ca {
        let unusable = |why: String| Undelivered::yet(format!("{path}: {why}"));
        let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
        let found = Certificate::from_pem(&pem).map_err(|error| unusable(error.to_string()))?;
        parameters = parameters.add_root_certificate(found);
    }
    parameters.build_rustls().map_err(|error| Undelivered::yet(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_leave_ascii_but_the_name_of_a_server_may_not() {
        let checked = |server: &str, to: &str| {
            check(&Mail {
                server: server.into(),
                port: None,
                encryption: Encryption::Starttls,
                from: "parapet@xn--mller-kva.example".into(),
                to: vec![to.into()],
                login: None,
                ca: None,
            })
        };
        for server in ["mail.example", "xn--mller-kva.example", "192.0.2.1", "::1"] {
            checked(server, "Jörg <jörg@müller.example>").unwrap();
        }
        let why = checked("müller.example", "a@b.example").unwrap_err().why;
        assert!(why.starts_with("müller.example: ") && why.ends_with("as xn--…"), "{why}");
        let why = checked("a b", "a@b.example").unwrap_err().why;
        assert!(!why.contains("xn--"), "{why}");
        assert!(checked("mail.example", "nobody").is_err());
    }
}
