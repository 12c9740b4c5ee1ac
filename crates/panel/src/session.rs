//! Sessions of browsers: who may give commands, and from which page.
//!
//! ```text
//!   cookie  ── random, 256 bits, HttpOnly, SameSite=Strict ──▶ browser
//!   token   ── keyed hash of the cookie ──▶ a hidden field of each form
//! ```
//!
//! A page elsewhere can make a browser send a form, and with it the cookie; it can neither read the
//! token nor compute it. Where a login is needed, only cookies that a login gave out count, for a
//! limited time; the server keeps their hashes. Where none is needed (a unix socket), a cookie only
//! binds the token, and nothing is kept.

use std::collections::VecDeque;
use std::time::Duration;

use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};
use tokio::time::Instant;

/// Lifetime of a login.
pub(crate) const LIFETIME: Duration = Duration::from_secs(8 * 3600);
/// Maximum number of logins at a time; one more ends the oldest.
pub const MOST_SESSIONS: usize = 64;
/// Maximum number of failed logins within a minute; then none is tried.
pub const MOST_FAILED_LOGINS: usize = 5;
/// See [`MOST_FAILED_LOGINS`].
pub(crate) const ATTEMPT_WINDOW: Duration = Duration::from_secs(60);

/// Bytes of a cookie.
const COOKIE_BYTES: usize = 32;

/// The sessions of a page.
pub(crate) struct Sessions {
    /// Lost with the process, and all sessions with it.
    key: hmac::Key,
    /// Hashes of the cookies that a login gave out, the oldest first.
    logins: VecDeque<(hmac::Tag, Instant)>,
    /// Times of the latest failed logins.
    failed: VecDeque<Instant>,
}

/// Purposes of a hash: one never stands for the other.
const LOGIN: &[u8] = b"login";
const TOKEN: &[u8] = b"token";

impl Sessions {
    pub(crate) fn new() -> Sessions {
        let key = hmac::Key::new(HMAC_SHA256, &random::<COOKIE_BYTES>());
        Sessions { key, logins: VecDeque::new(), failed: VecDeque::new() }
    }

    /// Makes a cookie that belongs to no login.
    pub(crate) fn cookie() -> String {
        hex(&random::<COOKIE_BYTES>())
    }

    /// Makes the cookie of a login.
    pub(crate) fn begin(&mut self, now: Instant) -> String {
        let cookie = Sessions::cookie();
        if self.logins.len() == MOST_SESSIONS {
            self.logins.pop_front();
        }
        self.logins.push_back((self.hash(LOGIN, &cookie), now + LIFETIME));
        self.failed.clear();
        cookie
    }

    /// Returns the end of the login of this cookie.
    pub(crate) fn end_of(&self, cookie: &str, now: Instant) -> Option<Instant> {
        let login = self.logins.iter().find(|(hash, _)| self.is_login(hash, cookie))?;
        Some(login.1).filter(|&end| now < end)
    }

    /// Ends the login of this cookie.
    pub(crate) fn end(&mut self, cookie: &str) {
        if let Some(at) = self.logins.iter().position(|(hash, _)| self.is_login(hash, cookie)) {
            self.logins.remove(at);
        }
    }

    fn is_login(&self, hash: &hmac::Tag, cookie: &str) -> bool {
        self.is_hash(LOGIN, cookie, hash.as_ref())
    }

    /// Counts an attempt to log in as failed, until a login succeeds; false if there were too many.
    pub(crate) fn may_try(&mut self, now: Instant) -> bool {
        self.failed.retain(|&then| now < then + ATTEMPT_WINDOW);
        let may = self.failed.len() < MOST_FAILED_LOGINS;
        if may {
            self.failed.push_back(now);
        }
        may
    }

    /// The token of the forms on a page that was sent to the browser with this cookie.
    pub(crate) fn token(&self, cookie: &str) -> String {
        hex(self.hash(TOKEN, cookie).as_ref())
    }

    /// Returns true if the token belongs to this cookie.
    pub(crate) fn is_token(&self, cookie: &str, token: &str) -> bool {
        unhex(token).is_some_and(|bytes| self.is_hash(TOKEN, cookie, &bytes))
    }

    fn hash(&self, purpose: &[u8], cookie: &str) -> hmac::Tag {
        hmac::sign(&self.key, &[purpose, cookie.as_bytes()].concat())
    }

    /// Compares in constant time.
    fn is_hash(&self, purpose: &[u8], cookie: &str, hash: &[u8]) -> bool {
        hmac::verify(&self.key, &[purpose, cookie.as_bytes()].concat(), hash).is_ok()
    }
}

/// Returns random bytes of the kernel.
pub(crate) fn random<const BYTES: usize>() -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    SystemRandom::new().fill(&mut bytes).expect("the kernel has random numbers");
    bytes
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| Some(c.to_digit(16)? as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_ends_after_its_time_by_command_and_by_many_others() {
        let (mut sessions, now) = (Sessions::new(), Instant::now());
        let cookie = sessions.begin(now);
        assert_eq!(cookie.len(), 64);
        assert!(sessions.end_of(&cookie, now).is_some());
        assert!(sessions.end_of(&cookie, now + LIFETIME).is_none());
        for other in ["", &cookie[1..], &Sessions::cookie()] {
            assert!(sessions.end_of(other, now).is_none(), "{other}");
        }
        let second = sessions.begin(now);
        sessions.end(&cookie);
        assert!(sessions.end_of(&cookie, now).is_none());
        for _ in 1..MOST_SESSIONS {
            sessions.begin(now);
        }
        assert!(sessions.end_of(&second, now).is_some(), "the limit itself");
        sessions.begin(now);
        assert!(sessions.end_of(&second, now).is_none(), "one more");
    }

    #[test]
    fn a_token_belongs_to_one_cookie_of_one_process() {
        let (sessions, other) = (Sessions::new(), Sessions::new());
        let (one, two) = (Sessions::cookie(), Sessions::cookie());
        let token = sessions.token(&one);
        assert!(sessions.is_token(&one, &token));
        assert!(!sessions.is_token(&two, &token) && !other.is_token(&one, &token));
        let longer = format!("{token}00");
        for wrong in ["", "zz", "0", &token[2..], &longer, &one, "€€"] {
            assert!(!sessions.is_token(&one, wrong), "{wrong}");
        }
    }

    #[test]
    fn failed_logins_are_limited_until_time_has_passed_or_one_succeeds() {
        let (mut sessions, now) = (Sessions::new(), Instant::now());
        let tries =
            |sessions: &mut Sessions, now| (0..100).take_while(|_| sessions.may_try(now)).count();
        assert_eq!(tries(&mut sessions, now), MOST_FAILED_LOGINS);
        assert!(!sessions.may_try(now + ATTEMPT_WINDOW - Duration::from_nanos(1)));
        assert_eq!(tries(&mut sessions, now + ATTEMPT_WINDOW), MOST_FAILED_LOGINS);
        sessions.begin(now + ATTEMPT_WINDOW);
        assert!(sessions.may_try(now + ATTEMPT_WINDOW));
    }
}
