//! Requests of browsers and their answers.
//!
//! A request that changes anything is a `POST` with a form. It must pass, in this order:
//!
//! ```text
//!   Host of this machine ─▶ same origin ─▶ login, where one is needed ─▶ token ─▶ ladder
//!      (DNS rebinding;      (Origin,            (cookie)               (CSRF)   (typed name)
//!        without TLS)     Sec-Fetch-Site)
//! ```
//!
//! Its answer is a redirect to a page that shows the outcome: a reload repeats nothing.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::action::{Form, order_of};
use crate::forms::Outcome;
use crate::html::Offer;
use crate::password::PasswordFile;
use crate::server::{Body, Panel, typed};
use crate::session::{LIFETIME, Sessions};
use crate::{disk, forms, html, metrics, source};

/// Maximum bytes of a form.
pub const MOST_FORM_BYTES: usize = 16 << 10;
/// Time limit to receive a form.
const FORM_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of outcomes that are kept to be shown.
const MOST_OUTCOMES: usize = 64;

/// No script, style, image or connection from anywhere else; no frame around it. Forms only where
/// there are any.
const READ_ONLY_POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; \
                                frame-ancestors 'none'";
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; \
                      frame-ancestors 'none'";
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The latest outcomes, each with its number in the address of the page that shows it.
#[derive(Default)]
pub(crate) struct Outcomes {
    kept: VecDeque<(u64, Outcome)>,
    last: u64,
}

impl Outcomes {
    fn keep(&mut self, outcome: Outcome) -> u64 {
        self.last += 1;
        if self.kept.len() == MOST_OUTCOMES {
            self.kept.pop_front();
        }
        self.kept.push_back((self.last, outcome));
        self.last
    }

    fn get(&self, number: u64) -> Option<Outcome> {
        self.kept.iter().find(|(its, _)| *its == number).map(|(_, outcome)| outcome.clone())
    }
}

/// Who sends a request.
struct Visitor {
    /// The value of the cookie; empty on a page that needs none.
    cookie: String,
    /// The browser does not have the cookie yet.
    is_new: bool,
    /// End of the login.
    end: Option<Instant>,
}

impl Panel {
    /// Answers a request of `who`, a name for the log.
    pub(crate) async fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
        who: &str,
    ) -> Response<Body> {
        let posts = self.access.actions || self.access.login.is_some();
        let mut answer = if self.checks_host && !is_local(request.headers()) {
            text(StatusCode::MISDIRECTED_REQUEST, "the Host of the request is not this machine\n")
        } else {
            match *request.method() {
                Method::GET | Method::HEAD => self.get(&request).await,
                Method::POST if posts => self.post(request, who).await,
                _ => text(StatusCode::METHOD_NOT_ALLOWED, "this page is read-only\n"),
            }
        };
        // Under no-referrer a browser sends no origin with a form.
        let referrer = if posts { "same-origin" } else { "no-referrer" };
        let policy = if posts { POLICY } else { READ_ONLY_POLICY };
        for (name, value) in [
            (header::CONTENT_SECURITY_POLICY, policy),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, referrer),
            (header::CACHE_CONTROL, "no-store"),
        ] {
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        answer
    }

    async fn get(self: &Arc<Self>, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path();
        match path {
            "/metrics" if !self.hides_metrics => return self.metrics().await,
            "/style.css" => {
                return content("text/css; charset=utf-8", include_str!("../assets/style.css"));
            }
            "/panel.js" => {
                let script = include_str!("../assets/panel.js");
                return content("text/javascript; charset=utf-8", script);
            }
            "/icon.svg" => return content("image/svg+xml", include_str!("../assets/icon.svg")),
            "/login" if self.access.login.is_some() => return page(forms::login(None)),
            "/" | "/events" | "/act" | "/disk" | "/metrics" => {}
            _ => return text(StatusCode::NOT_FOUND, "no such page\n"),
        }
        let Some(visitor) = self.visitor(request.headers()) else {
            return match path {
                "/events" | "/metrics" => text(StatusCode::UNAUTHORIZED, "log in first\n"),
                _ => redirect("login"),
            };
        };
        let mut answer = match path {
            "/" => self.overview(&visitor).await,
            "/events" => return self.events(visitor.end),
            "/metrics" => return self.metrics().await,
            "/disk" => self.disk(request.uri(), &visitor).await,
            _ if self.access.actions => self.actions(request.uri(), &visitor).await,
            _ => return text(StatusCode::NOT_FOUND, "no such page\n"),
        };
        if visitor.is_new {
            self.set_cookie(&mut answer, &visitor.cookie, None);
        }
        answer
    }

    /// Returns who sends the request; nobody if a login is needed.
    fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        let cookie = cookie_of(headers, &self.cookie_name);
        if self.access.login.is_some() {
            let cookie = cookie?.to_owned();
            let end = self.sessions().end_of(&cookie, Instant::now())?;
            return Some(Visitor { cookie, is_new: false, end: Some(end) });
        }
        let (cookie, is_new) = match cookie {
            _ if !self.access.actions => (String::new(), false),
            Some(cookie) => (cookie.to_owned(), false),
            None => (Sessions::cookie(), true),
        };
        Some(Visitor { cookie, is_new, end: None })
    }

    async fn metrics(&self) -> Response<Body> {
        let snapshot = self.servers.read().await;
        content(metrics::CONTENT_TYPE, metrics::text(&snapshot))
    }

    async fn overview(&self, visitor: &Visitor) -> Response<Body> {
        let snapshot = self.servers.read_with_events(&self.timelines).await;
        let token = self.sessions().token(&visitor.cookie);
        let logout = self.access.login.as_ref().map(|_| token.as_str());
        let offer = Offer { actions: self.access.actions, logout };
        page(html::page(&snapshot, Timestamp::now(), offer))
    }

    async fn disk(&self, uri: &Uri, visitor: &Visitor) -> Response<Body> {
        let query = Form::parse(uri.query().unwrap_or_default().as_bytes());
        let snapshot = self.servers.read().await;
        let found = disk::find(&snapshot.arrays, query.field("array"), query.field("member"));
        let Some((array, member)) = found else {
            return refused(StatusCode::NOT_FOUND, "No served array has this disk.");
        };
        let disks = source::disks(array, member).await;
        let subject = disk::Subject { array, member, disks };
        let token = self.access.actions.then(|| self.sessions().token(&visitor.cookie));
        let outcome = self.outcome(&query);
        page(disk::page(&subject, outcome.as_ref(), Timestamp::now(), token.as_deref()))
    }

    /// The outcome that a redirect has named.
    fn outcome(&self, query: &Form) -> Option<Outcome> {
        let number = query.field("outcome").parse().ok()?;
        lock(&self.outcomes).get(number)
    }

    async fn actions(&self, uri: &Uri, visitor: &Visitor) -> Response<Body> {
        let query = Form::parse(uri.query().unwrap_or_default().as_bytes());
        let outcome = self.outcome(&query);
        let snapshot = self.servers.read().await;
        let token = self.sessions().token(&visitor.cookie);
        match snapshot.arrays.iter().find(|array| array.uuid == query.field("array")) {
            Some(array) => page(forms::actions(array, outcome.as_ref(), &token)),
            None => refused(StatusCode::NOT_FOUND, NOT_SERVED),
        }
    }

    async fn post(self: &Arc<Self>, request: Request<Incoming>, who: &str) -> Response<Body> {
        let (parts, body) = request.into_parts();
        if !is_same_origin(&parts.headers, self.access.tls.is_some()) {
            let why = "The request comes from another web page. Nothing was changed.";
            return refused(StatusCode::FORBIDDEN, why);
        }
        let form = match read_form(&parts.headers, body).await {
            Ok(form) => form,
            Err((status, why)) => return text(status, why),
        };
        match (parts.uri.path(), &self.access.login) {
            ("/login", Some(file)) => return self.log_in(file.clone(), &form, who).await,
            ("/logout", Some(_)) | ("/act", _) => {}
            _ => return text(StatusCode::NOT_FOUND, "no such page\n"),
        }
        let Some(visitor) = self.visitor(&parts.headers) else {
            return refused(StatusCode::UNAUTHORIZED, "Log in first. Nothing was changed.");
        };
        if !self.sessions().is_token(&visitor.cookie, form.field("token")) {
            let why = "The form is not of this session: open the page again, and repeat. Nothing \
                       was changed.";
            return refused(StatusCode::FORBIDDEN, why);
        }
        match parts.uri.path() {
            "/logout" => {
                self.sessions().end(&visitor.cookie);
                redirect("login")
            }
            _ if self.access.actions => self.act(&form, who).await,
            _ => text(StatusCode::NOT_FOUND, "no such page\n"),
        }
    }

    async fn log_in(&self, file: PasswordFile, form: &Form, who: &str) -> Response<Body> {
        let page = |status, why: &str| {
            let mut answer = page(forms::login(Some(why)));
            *answer.status_mut() = status;
            answer
        };
        if !self.sessions().may_try(Instant::now()) {
            return page(StatusCode::TOO_MANY_REQUESTS, "Too many failed logins: wait a minute.");
        }
        let password = form.raw("password").to_owned();
        let verified = tokio::task::spawn_blocking(move || file.verify(&password)).await;
        match verified {
            Ok(Ok(true)) => {
                let cookie = self.sessions().begin(Instant::now());
                let mut answer = redirect("./");
                self.set_cookie(&mut answer, &cookie, Some(LIFETIME));
                answer
            }
            Ok(Ok(false)) => {
                tracing::warn!("the page: a login of {who} was refused: wrong password");
                page(StatusCode::FORBIDDEN, "The password is wrong.")
            }
            Ok(Err(error)) => {
                tracing::error!("the page: the password file cannot be read: {error}");
                let why = "The password file cannot be read; the server's log says why.";
                page(StatusCode::INTERNAL_SERVER_ERROR, why)
            }
            Err(_) => page(StatusCode::INTERNAL_SERVER_ERROR, "The login has failed."),
        }
    }

    /// Carries out the command of a form.
    async fn act(&self, form: &Form, who: &str) -> Response<Body> {
        let snapshot = self.servers.read().await;
        let array = snapshot.arrays.iter().find(|array| array.uuid == form.field("array"));
        let Some(array) = array else { return refused(StatusCode::NOT_FOUND, NOT_SERVED) };
        let outcome = match order_of(form, array) {
            Err(why) => Outcome::Refused(why, None),
            Ok((verb, order)) => {
                // The server logs the command itself.
                tracing::info!("{}: {who} orders by the page: {verb}", array.name);
                match source::command(array, verb, &order).await {
                    Ok(message) => Outcome::Done(message),
                    Err(refusal) => Outcome::Refused(refusal.message, Some(refusal.action)),
                }
            }
        };
        let number = lock(&self.outcomes).keep(outcome);
        let shows_disk = form.field("verb") == "locate";
        let member = array.members().find(|member| member.uuid == form.field("member"));
        match member.filter(|_| shows_disk) {
            Some(member) => redirect(&format!("{}&outcome={number}", disk::address(array, member))),
            None => redirect(&format!("act?array={}&outcome={number}", array.uuid)),
        }
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        lock(&self.sessions)
    }

    fn set_cookie(&self, answer: &mut Response<Body>, cookie: &str, age: Option<Duration>) {
        let age = age.map_or(String::new(), |age| format!("; Max-Age={}", age.as_secs()));
        let (name, secure) = (&self.cookie_name, self.access.tls.as_ref().map(|_| "; Secure"));
        let secure = secure.unwrap_or_default();
        let text = format!("{name}={cookie}; HttpOnly; SameSite=Strict; Path=/{age}{secure}");
        let value = HeaderValue::try_from(text).expect("cookies are made of letters and digits");
        answer.headers_mut().insert(header::SET_COOKIE, value);
    }
}

const NOT_SERVED: &str = "The array is not served any more.";

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn read_form(
    headers: &HeaderMap,
    body: Incoming,
) -> Result<Form, (StatusCode, &'static str)> {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    if kind != Some("application/x-www-form-urlencoded") {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, "send a form\n"));
    }
    let whole = Limited::new(body, MOST_FORM_BYTES).collect();
    match tokio::time::timeout(FORM_TIMEOUT, whole).await {
        Ok(Ok(body)) => Ok(Form::parse(&body.to_bytes())),
        Ok(Err(_)) => Err((StatusCode::PAYLOAD_TOO_LARGE, "the form is too long\n")),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, "the form did not arrive\n")),
    }
}

fn header_text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Returns the value of a cookie, if it has the form of ours.
fn cookie_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(its, _)| its.trim() == name).map(|(_, value)| value.trim());
    values.find(|value| value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns true if the browser says that a page of this server sends the request. Each browser of
/// today sends at least one of the two headers with a form. Without TLS here, there may be TLS at a
/// web server in front.
fn is_same_origin(headers: &HeaderMap, has_tls: bool) -> bool {
    let site = header_text(headers, SEC_FETCH_SITE);
    if site.is_some_and(|site| site != "same-origin") {
        return false;
    }
    if !headers.contains_key(header::ORIGIN) {
        return site.is_some();
    }
    let origin = header_text(headers, header::ORIGIN).unwrap_or_default();
    let schemes = if has_tls { &["https://"][..] } else { &["http://", "https://"] };
    let address = schemes.iter().find_map(|scheme| origin.strip_prefix(scheme));
    let host = header_text(headers, header::HOST);
    address.zip(host).is_some_and(|(address, host)| address.eq_ignore_ascii_case(host))
}

/// Returns true if the request names this machine by a name that nobody else can use.
fn is_local(headers: &HeaderMap) -> bool {
    header_text(headers, header::HOST).is_some_and(names_loopback)
}

fn names_loopback(host: &str) -> bool {
    let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    address || name.eq_ignore_ascii_case("localhost")
}

fn content(kind: &'static str, text: impl Into<Bytes>) -> Response<Body> {
    typed(kind, Full::new(text.into()).boxed())
}

fn page(html: String) -> Response<Body> {
    content("text/html; charset=utf-8", html)
}

fn refused(status: StatusCode, why: &str) -> Response<Body> {
    let mut answer = page(forms::refused(why));
    *answer.status_mut() = status;
    answer
}

/// Sends the browser to a page beside this one.
fn redirect(place: &str) -> Response<Body> {
    let mut answer = text(StatusCode::SEE_OTHER, "");
    let place = HeaderValue::try_from(place).unwrap_or(HeaderValue::from_static("./"));
    answer.headers_mut().insert(header::LOCATION, place);
    answer
}

fn text(status: StatusCode, words: &'static str) -> Response<Body> {
    let mut answer = content("text/plain; charset=utf-8", words);
    *answer.status_mut() = status;
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::try_from(*value).unwrap())
        };
        lines.iter().map(pair).collect()
    }

    #[test]
    fn only_names_of_this_machine_are_local() {
        for good in ["localhost", "LOCALHOST:7580", "127.0.0.1:7580", "[::1]:7580", "127.1.2.3"] {
            assert!(names_loopback(good), "{good}");
        }
        for bad in ["", "example.org", "localhost.example.org:7580", "192.0.2.1", "127.0.0.1.x"] {
            assert!(!names_loopback(bad), "{bad}");
        }
    }

    #[test]
    fn a_form_comes_from_a_page_of_this_server() {
        let host = ("host", "127.0.0.1:7580");
        let is_same_over = |has_tls, more: &[(&'static str, &str)]| {
            is_same_origin(&headers(&[&[host], more].concat()), has_tls)
        };
        let is_same = |more: &[(&'static str, &str)]| is_same_over(false, more);
        let (origin, site) = ("origin", "sec-fetch-site");
        assert!(is_same_over(true, &[(origin, "https://127.0.0.1:7580")]));
        assert!(!is_same_over(true, &[(origin, "http://127.0.0.1:7580")]));
        assert!(is_same(&[(origin, "http://127.0.0.1:7580")]));
        assert!(is_same(&[(origin, "https://127.0.0.1:7580"), (site, "same-origin")]));
        assert!(is_same(&[(site, "same-origin")]));
        assert!(!is_same(&[]), "no browser of today");
        for other in ["null", "", "http://127.0.0.1:7581", "http://127.0.0.1", "127.0.0.1:7580"] {
            assert!(!is_same(&[(origin, other)]), "{other}");
            assert!(!is_same(&[(origin, other), (site, "same-origin")]), "{other}");
        }
        for other in ["same-site", "cross-site", "none", ""] {
            assert!(!is_same(&[(site, other)]), "{other}");
            assert!(!is_same(&[(site, other), (origin, "http://127.0.0.1:7580")]), "{other}");
        }
    }

    #[test]
    fn a_cookie_is_found_among_others_by_its_whole_name() {
        let (one, two) = ("a".repeat(64), "b".repeat(64));
        let line = format!("parapet-70={two}; x=y; parapet-7={one}");
        let found = headers(&[("cookie", &line)]);
        assert_eq!(cookie_of(&found, "parapet-7"), Some(one.as_str()));
        assert_eq!(cookie_of(&found, "parapet"), None);
        for bad in ["", "parapet", "parapet=", "parapet=abc"] {
            assert_eq!(cookie_of(&headers(&[("cookie", bad)]), "parapet"), None, "{bad}");
        }
    }

    #[test]
    fn the_latest_outcomes_are_kept() {
        let mut outcomes = Outcomes::default();
        let first = outcomes.keep(Outcome::Done("first".into()));
        for _ in 1..MOST_OUTCOMES {
            outcomes.keep(Outcome::Done("more".into()));
        }
        assert_eq!(outcomes.get(first), Some(Outcome::Done("first".into())));
        let last = outcomes.keep(Outcome::Done("last".into()));
        assert_eq!(outcomes.get(first), None);
        assert_eq!(outcomes.get(last), Some(Outcome::Done("last".into())));
    }
}
