//! The register as a key of etcd, over the JSON gateway of its v3 API.
//!
//! ```text
//!   read      POST /v3/kv/range    linearizable: a majority confirms the answer
//!   replace   POST /v3/kv/txn      if mod_revision = version: put, else get
//!   create    POST /v3/kv/txn      if create_revision = 0: put
//! ```
//!
//! Source: <https://etcd.io/docs/v3.4/dev-guide/api_grpc_gateway/>. Numbers of 64 bits are strings
//! in it, keys and values are base64, and a field of value zero is left out.
//!
//! An endpoint that fails is asked last from then on. A read goes on to the next endpoint after any
//! failure, a change only if no connection came about: a change that was sent may take effect
//! later. No connection is used twice, so none can end under a request for its age.
//!
//! Version: the key's `mod_revision`, which etcd increments with each change of any key.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use cluster::decisions::{Value, Version};
use cluster::ids::ArrayId;
use cluster::session::Decided;
use cluster::wire;
use serde_json::{Value as Json, json};
use ureq::tls::{Certificate, ClientCert, PrivateKey};
use ureq::{Agent, Timeout};

use super::{Register, Replaced, decoded};
use crate::failure::{Failure, Id, Result};
use crate::{https, tls};

/// Most bytes of an answer.
const ANSWER_BYTES: u64 = 4 << 20;
/// Most endpoints.
const MOST_ENDPOINTS: usize = 16;

/// The address of an etcd cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Endpoints {
    /// `http://HOST:PORT` or `https://HOST:PORT`; not empty.
    urls: Vec<String>,
    /// The folder with `ca-cert.pem`, and `client-cert.pem` with `client-key.pem`.
    certificates: Option<PathBuf>,
}

impl Endpoints {
    /// Parses `URL[,URL…][?tls-certificates=DIR]`.
    ///
    /// # Errors
    /// The fault, in words, with the form that is meant.
    pub(super) fn parse(text: &str) -> std::result::Result<Endpoints, String> {
        let wrong = "write it as etcd:http://HOST:PORT,http://HOST2:PORT";
        let (list, query) = text.split_once('?').unwrap_or((text, ""));
        let urls: Vec<String> = list.split(',').map(str::to_owned).collect();
        if !urls.iter().all(|url| is_endpoint(url)) {
            return Err(wrong.into());
        }
        if urls.len() > MOST_ENDPOINTS {
            return Err(format!("etcd: at most {MOST_ENDPOINTS} endpoints"));
        }
        let certificates = match query.split_once('=') {
            None if query.is_empty() => None,
            Some(("tls-certificates", folder)) if !folder.is_empty() => {
                if !urls.iter().all(|url| url.starts_with("https:")) {
                    return Err("etcd: certificates are for https endpoints".into());
                }
                let folder = PathBuf::from(folder);
                Some(std::path::absolute(&folder).unwrap_or(folder))
            }
            _ => return Err("etcd: the only parameter is tls-certificates=DIR".into()),
        };
        Ok(Endpoints { urls, certificates })
    }
}

/// Whether this is a scheme, a host and a port, and nothing else.
fn is_endpoint(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    let Some((host, port)) = rest.and_then(|rest| rest.rsplit_once(':')) else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    let named = !host.is_empty() && host.chars().all(plain) && (bracketed || !host.contains(':'));
    named && digits && port.parse::<u16>().is_ok_and(|port| port > 0)
}

impl fmt::Display for Endpoints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.urls.join(","))?;
        match &self.certificates {
            Some(folder) => write!(f, "?tls-certificates={}", folder.display()),
            None => Ok(()),
        }
    }
}

/// See the module.
pub(super) struct EtcdRegister {
    agent: Agent,
    urls: Vec<String>,
    /// The endpoint to ask first, modulo their number.
    first: AtomicUsize,
    /// In base64.
    key: String,
    /// For messages about the register.
    place: String,
}

/// A request without an answer.
struct Trouble {
    /// It may have taken effect.
    sent: bool,
    failure: Failure,
}

impl EtcdRegister {
    /// The register of this array, with this time for a request to one endpoint. Connects to
    /// nothing.
    ///
    /// # Errors
    /// If a certificate is of no use.
    pub(super) fn new(
        endpoints: &Endpoints,
        array: ArrayId,
        patience: Duration,
    ) -> Result<EtcdRegister> {
        let (roots, identity) = match &endpoints.certificates {
            Some(folder) => certificates(folder)?,
            None => (https::system_roots(), None),
        };
        let key = format!("/parapet/{:032x}/config", array.0);
        Ok(EtcdRegister {
            agent: https::agent(roots, identity, patience),
            urls: endpoints.urls.clone(),
            first: AtomicUsize::new(0),
            key: BASE64_STANDARD.encode(&key),
            place: format!("etcd:{key}"),
        })
    }

    /// Sends a request to one endpoint after the other, until one answers.
    fn call(&self, path: &str, body: &Json, repeatable: bool) -> Result<Json> {
        let body = body.to_string();
        let mut last = None;
        for _ in &self.urls {
            let first = self.first.load(Ordering::Relaxed) % self.urls.len();
            match self.post(&self.urls[first], path, &body) {
                Ok(answer) => return Ok(answer),
                Err(trouble) => {
                    self.first.store(first + 1, Ordering::Relaxed);
                    last = Some(trouble.failure);
                    if trouble.sent && !repeatable {
                        break;
                    }
                }
            }
        }
        Err(last.expect("there is an endpoint"))
    }

    fn post(&self, url: &str, path: &str, body: &str) -> std::result::Result<Json, Trouble> {
        let failed = |id: Id, what: String, sent: bool| {
            let failure = Failure::new(id, format!("etcd: {url}: {what}"), "check that etcd runs");
            Trouble { sent, failure }
        };
        let request = self.agent.post(format!("{url}{path}")).content_type("application/json");
        let mut answer = request.send(body).map_err(|error| {
            let sent = !is_unconnected(&error);
            failed(Id::Unreachable, format!("no answer: {error}"), sent)
        })?;
        let status = answer.status().as_u16();
        let bytes = answer.body_mut().with_config().limit(ANSWER_BYTES).read_to_vec();
        let bytes = bytes
            .map_err(|error| failed(Id::Unreachable, format!("half an answer: {error}"), true))?;
        let json: Json = serde_json::from_slice(&bytes).unwrap_or_default();
        match status {
            200 => Ok(json),
            _ => {
                let id = if matches!(status, 401 | 403) { Id::Denied } else { Id::Unreachable };
                let why = json["error"].as_str().unwrap_or("no reason is given");
                Err(failed(id, format!("HTTP status {status}: {why}"), true))
            }
        }
    }

    /// Reads the pairs that a range found.
    fn found(&self, pairs: &Json) -> Result<(Version, Value)> {
        let Some(pair) = pairs.as_array().and_then(|pairs| pairs.first()) else {
            let message = format!("{}: there is no such key", self.place);
            let action = "name the etcd in which the array was created, or restore its backup";
            return Err(Failure::new(Id::Missing, message, action));
        };
        let version = self.number(&pair["mod_revision"])?;
        let text = pair["value"].as_str().unwrap_or_default();
        let bytes = BASE64_STANDARD.decode(text).unwrap_or_default();
        Ok((Version(version), decoded(&self.place, &bytes)?.value))
    }

    fn number(&self, json: &Json) -> Result<u64> {
        json.as_str().and_then(|text| text.parse().ok()).ok_or_else(|| {
            let message = format!("{}: the answer is not one of etcd's v3 API", self.place);
            Failure::new(Id::Unreachable, message, "name endpoints of etcd 3.4 or later")
        })
    }

    fn put(&self, version: Version, value: &Value) -> Json {
        let frame = wire::encode(&Decided { version, value: value.clone() });
        json!([{ "requestPut": { "key": self.key, "value": BASE64_STANDARD.encode(frame) } }])
    }
}

impl Register for EtcdRegister {
    fn create(&self, value: &Value) -> Result<()> {
        let body = json!({
            "compare": [{
                "target": "CREATE", "key": self.key, "result": "EQUAL", "create_revision": "0",
            }],
            "success": self.put(Version(0), value),
        });
        let answer = self.call("/v3/kv/txn", &body, false)?;
        self.number(&answer["header"]["revision"])?;
        if answer["succeeded"] == true {
            return Ok(());
        }
        let message = format!("{}: the key exists", self.place);
        Err(Failure::new(Id::Signature, message, "choose another array id, or remove the key"))
    }

    fn read(&self) -> Result<(Version, Value)> {
        let answer = self.call("/v3/kv/range", &json!({ "key": self.key }), true)?;
        self.number(&answer["header"]["revision"])?;
        self.found(&answer["kvs"])
    }

    fn replace(&self, version: Version, value: &Value) -> Result<Replaced> {
        let body = json!({
            "compare": [{
                "target": "MOD", "key": self.key, "result": "EQUAL",
                "mod_revision": version.0.to_string(),
            }],
            "success": self.put(version, value),
            "failure": [{ "requestRange": { "key": self.key } }],
        });
        let answer = self.call("/v3/kv/txn", &body, false)?;
        let revision = self.number(&answer["header"]["revision"])?;
        if answer["succeeded"] == true {
            return Ok(Replaced::Done(Version(revision)));
        }
        let (version, value) = self.found(&answer["responses"][0]["response_range"]["kvs"])?;
        Ok(Replaced::Conflict(version, value))
    }

    fn remove(&self) -> Result<()> {
        let answer = self.call("/v3/kv/deleterange", &json!({ "key": self.key }), false)?;
        self.number(&answer["header"]["revision"]).map(drop)
    }
}

/// Whether the request never left this host.
fn is_unconnected(error: &ureq::Error) -> bool {
    match error {
        ureq::Error::Io(error) => error.kind() == ErrorKind::ConnectionRefused,
        ureq::Error::Timeout(timeout) => matches!(timeout, Timeout::Resolve | Timeout::Connect),
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed => true,
        _ => false,
    }
}

type Credentials = (Vec<Certificate<'static>>, Option<ClientCert>);

/// Reads the files of a folder, named as for NBD: `ca-cert.pem`, and optionally `client-cert.pem`
/// with `client-key.pem`.
fn certificates(folder: &Path) -> Result<Credentials> {
    let bad = |path: &Path, why: String| {
        let action = "put ca-cert.pem, and client-cert.pem with client-key.pem, into the folder \
                      that tls-certificates names";
        Failure::new(Id::Tls, format!("{}: {why}", path.display()), action)
    };
    let load = |path: &Path| -> Result<Vec<Certificate<'static>>> {
        let found = tls::certificates(path).map_err(|why| bad(path, why))?;
        Ok(found.iter().map(|der| Certificate::from_der(der).to_owned()).collect())
    };
    let [ca, certificate, key] =
        ["ca-cert.pem", "client-cert.pem", "client-key.pem"].map(|name| folder.join(name));
    let roots = load(&ca)?;
    if !certificate.exists() {
        return Ok((roots, None));
    }
    let chain = load(&certificate)?;
    let pem = std::fs::read(&key).map_err(|error| bad(&key, error.to_string()))?;
    let secret = PrivateKey::from_pem(&pem).map_err(|error| bad(&key, error.to_string()))?;
    Ok((roots, Some(ClientCert::new_with_certs(&chain, secret))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_as_they_are_written() {
        for text in [
            "http://127.0.0.1:2379",
            "http://a:1,https://b.example:2379,http://[::1]:65535",
            "https://a:2379,https://b:2379?tls-certificates=/etc/pki/etcd",
        ] {
            assert_eq!(Endpoints::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "",
            "a:2379",
            "http://a",
            "http://a:0",
            "http://a:65536",
            "http://a:+1",
            "http://:2379",
            "http://::1:2379",
            "http://a:2379/",
            "http://a:2379,",
            "http://user@a:2379",
            "ftp://a:2379",
            "http://a:2379?tls-certificates=/etc",
            "https://a:2379?tls-certificates=",
            "https://a:2379?user=x",
        ] {
            assert!(Endpoints::parse(text).is_err(), "{text}");
        }
        assert!(Endpoints::parse(&["http://a:1"; MOST_ENDPOINTS + 1].join(",")).is_err());
    }
}
