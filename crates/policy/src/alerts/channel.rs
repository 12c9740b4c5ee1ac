//! The sections `[[notify]]` and `[heartbeat]`: whom to tell, and how.
//!
//! A section is flat, so that its keys read well in TOML. [`Channel`] has only those of its kind.

use serde::{Deserialize, Serialize};

use super::{Event, Severity};
use crate::period::Period;

/// A section `[[notify]]`: whom to tell, of which events.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(try_from = "Section", into = "Section")]
pub struct Channel {
    /// Its name in messages and commands; by default its kind and where it leads.
    pub name: String,
    /// How to tell.
    pub kind: Kind,
    /// The least severity of events.
    pub least: Severity,
    /// The words of the events; empty for all. A test message always passes.
    pub events: Vec<String>,
    /// Repeat the state of a degraded or failed array so often, while it lasts.
    pub remind: Option<Period>,
    /// Tell the same event of the same member at most once in this time, with a count.
    pub quiet: Option<Period>,
}

/// How to tell.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// A program runs, as mdadm's: `PROGRAM EVENT ARRAY [MEMBER]`.
    Exec {
        /// Its path.
        program: String,
    },
    /// All programs of a folder run, in the order of their names.
    Folder {
        /// Its path.
        folder: String,
    },
    /// A JSON document is posted to a web server.
    Webhook(Web),
    /// A message is published by an ntfy server.
    Ntfy(Web),
    /// A mail server gets a mail.
    Smtp(Mail),
}

/// A web server that is told.
#[derive(Clone, Debug, PartialEq)]
pub struct Web {
    /// Where to post; for ntfy, the address of the topic.
    pub url: String,
    /// Sent as `Authorization: Bearer`.
    pub token: Option<Secret>,
    /// CA certificate (PEM) to trust in addition to the system's.
    pub ca: Option<String>,
}

/// A mail, and the server that takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mail {
    /// Name or address of the server.
    pub server: String,
    /// Its port; none for the usual one of the encryption.
    pub port: Option<u16>,
    /// How the connection is encrypted.
    pub encryption: Encryption,
    /// Sender.
    pub from: String,
    /// Recipients.
    pub to: Vec<String>,
    /// Login: name and password.
    pub login: Option<(String, Secret)>,
    /// CA certificate (PEM) to trust in addition to the system's.
    pub ca: Option<String>,
}

/// How a connection to a mail server is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Encryption {
    /// The server must offer STARTTLS; port 587.
    Starttls,
    /// TLS from the first byte; port 465.
    Tls,
    /// None; port 25.
    None,
}

/// Where a secret is kept: never in the configuration itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Secret {
    /// The first line of this file.
    File(String),
    /// This environment variable of the server.
    Variable(String),
}

/// The section `[heartbeat]`: a web server that is called while all is well. Silence is its alarm.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Heartbeat {
    /// Where to send an empty POST.
    #[serde(deserialize_with = "read_web_url")]
    pub url: String,
    /// How often; 5 min by default.
    #[serde(default = "every_five_minutes")]
    pub every: Period,
    /// CA certificate (PEM) to trust in addition to the system's.
    pub ca: Option<String>,
}

const fn every_five_minutes() -> Period {
    Period::seconds(300)
}

fn read_web_url<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    web_url(Some(String::deserialize(from)?)).map_err(serde::de::Error::custom)
}

/// The section as it is written.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
struct Section {
    kind: String,
    name: Option<String>,
    least: Option<Severity>,
    events: Vec<String>,
    remind: Option<Period>,
    quiet: Option<Period>,
    program: Option<String>,
    folder: Option<String>,
    url: Option<String>,
    token_file: Option<String>,
    token_env: Option<String>,
    server: Option<String>,
    port: Option<u16>,
    encryption: Option<Encryption>,
    from: Option<String>,
    to: Vec<String>,
    user: Option<String>,
    password_file: Option<String>,
    password_env: Option<String>,
    ca: Option<String>,
}

impl Channel {
    /// A channel of this kind, with its defaults.
    ///
    /// Programs hear each event, as from mdadm. People get warnings and errors, and no event twice
    /// an hour.
    pub fn new(kind: Kind) -> Channel {
        let is_program = matches!(kind, Kind::Exec { .. } | Kind::Folder { .. });
        let (least, quiet) = match is_program {
            true => (Severity::Info, None),
            false => (Severity::Warning, Some(Period::seconds(3600))),
        };
        Channel { name: kind.usual_name(), kind, least, events: Vec::new(), remind: None, quiet }
    }

    /// True if it is told of this event.
    pub fn wants(&self, event: &Event) -> bool {
        let is_listed = self.events.is_empty() || self.events.contains(&event.word);
        event.word == super::outbox::TEST || is_listed && event.severity >= self.least
    }

    /// True if a message that was not delivered is sent again. A program may have done half of
    /// its work: it runs once.
    pub fn retries(&self) -> bool {
        !matches!(self.kind, Kind::Exec { .. } | Kind::Folder { .. })
    }
}

impl Kind {
    /// Its word in the configuration.
    pub fn word(&self) -> &'static str {
        match self {
            Kind::Exec { .. } => "exec",
            Kind::Folder { .. } => "folder",
            Kind::Webhook(_) => "webhook",
            Kind::Ntfy(_) => "ntfy",
            Kind::Smtp(_) => "smtp",
        }
    }

    /// Where it leads, whatever else is set: messages that wait for one channel may be sent by
    /// another of this destination.
    pub fn destination(&self) -> String {
        let target = match self {
            Kind::Exec { program } => program.clone(),
            Kind::Folder { folder } => folder.clone(),
            Kind::Webhook(web) | Kind::Ntfy(web) => web.url.clone(),
            Kind::Smtp(mail) => format!("{} {}", mail.server, mail.to.join(",")),
        };
        format!("{} {target}", self.word())
    }

    /// The kind and where it leads, without what may be a secret in a URL.
    fn usual_name(&self) -> String {
        let target = match self {
            Kind::Exec { program } => program,
            Kind::Folder { folder } => folder,
            Kind::Webhook(web) | Kind::Ntfy(web) => host_of(&web.url),
            Kind::Smtp(mail) => &mail.server,
        };
        format!("{} {target}", self.word())
    }
}

/// The host of a URL, with its port.
fn host_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    host.rsplit_once('@').map_or(host, |(_, host)| host)
}

/// Checks the URL of a web server.
fn web_url(url: Option<String>) -> Result<String, String> {
    let url = url.ok_or("url is missing")?;
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    match is_web && !host_of(&url).is_empty() && !url.contains(char::is_whitespace) {
        true => Ok(url),
        false => Err(format!("url: {url:?} does not begin with https:// or http:// and a host")),
    }
}

fn secret(
    what: &str,
    file: Option<String>,
    variable: Option<String>,
) -> Result<Option<Secret>, String> {
    match (file, variable) {
        (Some(_), Some(_)) => Err(format!("give {what}_file or {what}_env, not both")),
        (Some(file), None) => Ok(Some(Secret::File(file))),
        (None, Some(variable)) => Ok(Some(Secret::Variable(variable))),
        (None, None) => Ok(None),
    }
}

impl TryFrom<Section> for Channel {
    type Error = String;

    fn try_from(mut section: Section) -> Result<Channel, String> {
        let kind = section.take_kind()?;
        if let Some(key) = section.left_over() {
            return Err(format!("{key} is no key of the kind {}", section.kind));
        }
        let usual = Channel::new(kind);
        Ok(Channel {
            name: section.name.unwrap_or(usual.name),
            kind: usual.kind,
            least: section.least.unwrap_or(usual.least),
            events: section.events,
            remind: section.remind,
            quiet: section.quiet.or(usual.quiet),
        })
    }
}

impl Section {
    /// Takes the keys of its kind.
    fn take_kind(&mut self) -> Result<Kind, String> {
        Ok(match self.kind.as_str() {
            "exec" => Kind::Exec { program: self.program.take().ok_or("program is missing")? },
            "folder" => Kind::Folder { folder: self.folder.take().ok_or("folder is missing")? },
            "webhook" => Kind::Webhook(self.take_web()?),
            "ntfy" => {
                let web = self.take_web()?;
                let path = web.url.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
                if path.is_none_or(|(_, topic)| topic.trim_end_matches('/').is_empty()) {
                    return Err("url: no topic: write it as https://ntfy.sh/TOPIC".into());
                }
                Kind::Ntfy(web)
            }
            "smtp" => Kind::Smtp(self.take_mail()?),
            "" => return Err("kind is missing: exec, folder, webhook, ntfy or smtp".into()),
            other => {
                return Err(format!(
                    "kind: {other:?} is none of exec, folder, webhook, ntfy and smtp"
                ));
            }
        })
    }

    fn take_web(&mut self) -> Result<Web, String> {
        let url = web_url(self.url.take())?;
        let token = secret("token", self.token_file.take(), self.token_env.take())?;
        if token.is_some() && !url.starts_with("https://") && !is_local(host_of(&url)) {
            return Err("url: a token needs https://".into());
        }
        Ok(Web { url, token, ca: self.ca.take() })
    }

    fn take_mail(&mut self) -> Result<Mail, String> {
        let server = self.server.take().ok_or("server is missing")?;
        let encryption = self.encryption.take().unwrap_or(Encryption::Starttls);
        let from = self.from.take().ok_or("from is missing")?;
        let to = std::mem::take(&mut self.to);
        if to.is_empty() {
            return Err("to is missing: a list of addresses".into());
        }
        let password = secret("password", self.password_file.take(), self.password_env.take())?;
        let login = match (self.user.take(), password) {
            (Some(user), Some(password)) => Some((user, password)),
            (None, None) => None,
            (Some(_), None) => return Err("user needs password_file or password_env".into()),
            (None, Some(_)) => return Err("a password needs user".into()),
        };
        if login.is_some() && encryption == Encryption::None && !is_local(&server) {
            return Err("a login needs encryption: starttls or tls".into());
        }
        let (port, ca) = (self.port.take(), self.ca.take());
        Ok(Mail { server, port, encryption, from, to, login, ca })
    }

    /// A key that no part of its kind took.
    fn left_over(&self) -> Option<&'static str> {
        let keys = [
            ("program", self.program.is_some()),
            ("folder", self.folder.is_some()),
            ("url", self.url.is_some()),
            ("token_file", self.token_file.is_some()),
            ("token_env", self.token_env.is_some()),
            ("server", self.server.is_some()),
            ("port", self.port.is_some()),
            ("encryption", self.encryption.is_some()),
            ("from", self.from.is_some()),
            ("to", !self.to.is_empty()),
            ("user", self.user.is_some()),
            ("password_file", self.password_file.is_some()),
            ("password_env", self.password_env.is_some()),
            ("ca", self.ca.is_some()),
        ];
        keys.into_iter().find(|(_, is_there)| *is_there).map(|(key, _)| key)
    }
}

/// True for this machine itself: nobody reads along.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |ip: core::net::IpAddr| ip.is_loopback();
    name == "localhost" || name.parse().is_ok_and(is_loopback)
}

impl From<Channel> for Section {
    fn from(channel: Channel) -> Section {
        let section = Section {
            kind: channel.kind.word().into(),
            name: Some(channel.name),
            least: Some(channel.least),
            events: channel.events,
            remind: channel.remind,
            quiet: channel.quiet,
            ..Section::default()
        };
        match channel.kind {
            Kind::Exec { program } => Section { program: Some(program), ..section },
            Kind::Folder { folder } => Section { folder: Some(folder), ..section },
            Kind::Webhook(web) | Kind::Ntfy(web) => {
                let (token_file, token_env) = written(web.token);
                Section { url: Some(web.url), token_file, token_env, ca: web.ca, ..section }
            }
            Kind::Smtp(mail) => {
                let (user, password) = mail.login.unzip();
                let (password_file, password_env) = written(password);
                Section {
                    server: Some(mail.server),
                    port: mail.port,
                    encryption: Some(mail.encryption),
                    from: Some(mail.from),
                    to: mail.to,
                    user,
                    password_file,
                    password_env,
                    ca: mail.ca,
                    ..section
                }
            }
        }
    }
}

/// The keys of a secret: file and variable.
fn written(secret: Option<Secret>) -> (Option<String>, Option<String>) {
    match secret {
        Some(Secret::File(file)) => (Some(file), None),
        Some(Secret::Variable(variable)) => (None, Some(variable)),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Document, load};

    fn read(text: &str) -> Result<Vec<Channel>, String> {
        let document = Document { name: "f".into(), text: text.into() };
        load(&[document]).map(|loaded| loaded.config.notify).map_err(|problem| problem.to_string())
    }

    #[test]
    fn each_kind_is_read_and_written_back() {
        let text = r#"
            [[notify]]
            kind = "exec"
            program = "/usr/local/sbin/hook"
            [[notify]]
            kind = "folder"
            folder = "/etc/parapet/notify.d"
            events = ["Fail"]
            [[notify]]
            kind = "webhook"
            url = "https://user@hooks.example.com:8443/a/secret/path"
            [[notify]]
            kind = "ntfy"
            name = "phone"
            url = "https://ntfy.example.com/raid"
            token_file = "/etc/parapet/ntfy.token"
            least = "error"
            remind = "1 day"
            [[notify]]
            kind = "smtp"
            server = "smtp.example.com"
            from = "raid@example.com"
            to = ["admin@example.com"]
            user = "raid"
            password_env = "SMTP_PASSWORD"
        "#;
        let channels = read(text).unwrap();
        let names: Vec<&str> = channels.iter().map(|channel| channel.name.as_str()).collect();
        let expected = [
            "exec /usr/local/sbin/hook",
            "folder /etc/parapet/notify.d",
            "webhook hooks.example.com:8443",
            "phone",
            "smtp smtp.example.com",
        ];
        assert_eq!(names, expected);
        assert_eq!((channels[0].least, channels[0].quiet), (Severity::Info, None));
        assert_eq!(channels[2].quiet, Some(Period::seconds(3600)));
        assert_eq!(
            (channels[3].least, channels[3].remind),
            (Severity::Error, Some(Period::days(1)))
        );
        for channel in channels {
            let written = toml::to_string(&channel).unwrap();
            assert_eq!(toml::from_str::<Channel>(&written).unwrap(), channel, "{written}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, part) in [
            ("", "kind is missing"),
            ("kind = \"pager\"", "\"pager\" is none of"),
            ("kind = \"exec\"", "program is missing"),
            ("kind = \"exec\"\nprogram = \"a\"\nurl = \"b\"", "url is no key of the kind exec"),
            ("kind = \"webhook\"\nurl = \"ftp://x\"", "does not begin with"),
            ("kind = \"webhook\"\nurl = \"https:///x\"", "does not begin with"),
            ("kind = \"ntfy\"\nurl = \"https://ntfy.sh/\"", "no topic"),
            (
                "kind = \"webhook\"\nurl = \"http://a/b\"\ntoken_env = \"T\"",
                "a token needs https://",
            ),
            ("kind = \"smtp\"\nserver = \"a\"\nfrom = \"b@c\"", "to is missing"),
            (
                "kind = \"smtp\"\nserver = \"a\"\nfrom = \"b@c\"\nto = [\"d@e\"]\nuser = \"u\"",
                "user needs password_file",
            ),
            (
                "kind = \"smtp\"\nserver = \"a\"\nencryption = \"none\"\nfrom = \"b@c\"\n\
                 to = [\"d@e\"]\nuser = \"u\"\npassword_env = \"P\"",
                "a login needs encryption",
            ),
            ("kind = \"exec\"\nprogram = \"a\"\npassword = \"b\"", "unknown field `password`"),
            ("kind = \"exec\"\nprogram = \"a\"\nleast = \"bad\"", "unknown variant `bad`"),
        ] {
            let problem = read(&format!("[[notify]]\n{text}\n")).unwrap_err();
            assert!(problem.contains(part), "{text:?}: {problem}");
        }
        let heartbeat = |text: &str| read(&format!("[heartbeat]\n{text}\n"));
        assert!(heartbeat("url = \"https://hc.example.com/id\"").is_ok());
        assert!(heartbeat("url = \"hc.example.com\"").unwrap_err().contains("does not begin"));
        for host in ["localhost:25", "127.0.0.1", "[::1]:80"] {
            assert!(is_local(host), "{host}");
        }
        assert!(!is_local("127.example.com") && !is_local("10.0.0.1"));
    }

    #[test]
    fn a_channel_gets_the_events_that_it_wants() {
        let event = |word: &str, severity| Event {
            array: "tank".into(),
            uuid: "u".into(),
            word: word.into(),
            severity,
            member: None,
            message: String::new(),
            time: jiff::Timestamp::UNIX_EPOCH,
        };
        let kind = Kind::Exec { program: "p".into() };
        let channel = Channel { least: Severity::Warning, ..Channel::new(kind) };
        assert!(channel.wants(&event("Fail", Severity::Error)));
        assert!(!channel.wants(&event("NewArray", Severity::Info)));
        assert!(channel.wants(&event("TestMessage", Severity::Info)));
        let only = Channel { events: vec!["DegradedArray".into()], ..channel };
        assert!(!only.wants(&event("Fail", Severity::Error)));
        assert!(only.wants(&event("DegradedArray", Severity::Warning)));
    }
}
