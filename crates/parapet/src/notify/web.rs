//! Web servers: webhooks, ntfy, and the heartbeat's.
//!
//! Never logs a URL: its path may be a secret.

use std::time::Duration;

use policy::alerts::{Heartbeat, Notice, Severity, Web};
use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::Certificate;

use super::{Undelivered, secret, text};
use crate::api::{Notified, Report};
use crate::https;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Statuses that refuse this very message; others may pass with time or a corrected configuration.
const FOR_GOOD: [u16; 4] = [400, 413, 415, 422];

/// Posts the message as JSON, `parapet/notify/1`.
///
/// # Errors
/// It was not taken.
pub(super) fn post(web: &Web, notice: &Notice) -> Result<(), Undelivered> {
    let event = &notice.event;
    let data = Notified {
        host: text::host(),
        array: event.array.clone(),
        uuid: event.uuid.clone(),
        event: event.word.clone(),
        severity: super::severity(event),
        member: event.member.clone(),
        message: event.message.clone(),
        time: event.time,
        count: notice.count,
        since: notice.since,
        lost: notice.lost,
    };
    deliver(web, &web.url, &json!({ "schema": Notified::SCHEMA, "data": data }))
}

/// Publishes the message at a topic of ntfy.
///
/// # Errors
/// It was not taken.
pub(super) fn publish(web: &Web, notice: &Notice) -> Result<(), Undelivered> {
    let url = web.url.trim_end_matches('/');
    let (server, topic) = url.rsplit_once('/').unwrap_or((url, ""));
    let (priority, tag) = match notice.event.severity {
        Severity::Info => (3, "information_source"),
        Severity::Warning => (4, "warning"),
        Severity::Error => (5, "rotating_light"),
    };
    let document = json!({
        "topic": topic,
        "title": text::title(notice),
        "message": text::lines(notice),
        "priority": priority,
        "tags": [tag],
    });
    deliver(web, &format!("{server}/"), &document)
}

/// Sends an empty POST.
///
/// # Errors
/// It was not taken.
pub(super) fn call(heartbeat: &Heartbeat) -> Result<(), Undelivered> {
    let sent = agent(heartbeat.ca.as_deref())?.post(&heartbeat.url).send_empty();
    outcome(sent.map(|answer| answer.status().as_u16()))
}

fn deliver(web: &Web, url: &str, document: &Value) -> Result<(), Undelivered> {
    let mut request = agent(web.ca.as_deref())?.post(url).content_type("application/json");
    if let Some(token) = &web.token {
        let token = secret::read(token).map_err(Undelivered::yet)?;
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let sent = request.send(document.to_string());
    outcome(sent.map(|answer| answer.status().as_u16()))
}

fn outcome(answer: Result<u16, ureq::Error>) -> Result<(), Undelivered> {
    match answer {
        Ok(200..=299) => Ok(()),
        Ok(status) => {
            let why = format!("HTTP status {status}");
            Err(Undelivered { why, for_good: FOR_GOOD.contains(&status) })
        }
        // This error has the URL in it.
        Err(ureq::Error::BadUri(_)) => Err(Undelivered::yet("the URL is malformed")),
        Err(error) => Err(Undelivered::yet(error.to_string())),
    }
}

/// A client that trusts the system's authorities, and this one.
fn agent(ca: Option<&str>) -> Result<Agent, Undelivered> {
    let mut roots = https::system_roots();
    roots.extend(authority(ca)?);
    Ok(https::agent(roots, None, PATIENCE))
}

/// Reads a CA certificate.
///
/// # Errors
/// The file cannot be read, or has none.
pub(super) fn authority(ca: Option<&str>) -> Result<Option<Certificate<'static>>, Undelivered> {
    let Some(path) = ca else { return Ok(None) };
    let unusable = |why: String| Undelivered::yet(format!("{path}: {why}"));
    let pem = std::fs::read(path).map_err(|error| unusable(error.to_string()))?;
    let found = Certificate::from_pem(&pem).map_err(|error| unusable(error.to_string()))?;
    Ok(Some(found))
}
