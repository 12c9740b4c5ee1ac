//! The subset of HTTP/1.1 for the control API: one request, one answer, JSON both ways.
//!
//! Owns the format of requests and answers, and their limits. Strict on purpose: no chunked bodies,
//! no continuation lines, no keep-alive, no ambiguous syntax (RFC 9112). Never touches a socket.
//! See `docs/decisions/0003-control-api.md`.

/// Maximum bytes of a request line with its headers.
pub(crate) const HEAD_BYTES: usize = 8 << 10;
/// Maximum bytes of a request's body.
pub(crate) const BODY_BYTES: usize = 64 << 10;
/// Maximum bytes of an answer that the client reads.
pub(crate) const ANSWER_BYTES: u64 = 64 << 20;

/// A complete request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Request {
    /// `GET` or `POST`.
    pub(crate) method: Method,
    /// The parts of the path, decoded: `/v1/arrays/a%20b` is `["v1", "arrays", "a b"]`.
    pub(crate) path: Vec<String>,
    /// The body; empty if there is none.
    pub(crate) body: Vec<u8>,
}

/// The methods of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    /// Read only.
    Get,
    /// Execute.
    Post,
}

/// Why a request is refused: the status of the answer, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bad(pub(crate) u16, pub(crate) &'static str);

/// Parses a request from the bytes received so far; none if it is incomplete.
///
/// # Errors
/// The answer to send instead.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<Request>, Bad> {
    let Some(end) = find(bytes, b"\r\n\r\n") else {
        return if bytes.len() > HEAD_BYTES {
            Err(Bad(431, "the head is too long"))
        } else {
            Ok(None)
        };
    };
    if end > HEAD_BYTES {
        return Err(Bad(431, "the head is too long"));
    }
    let head = std::str::from_utf8(&bytes[..end]).map_err(|_| Bad(400, "the head is not UTF-8"))?;
    let mut lines = head.split("\r\n");
    let (method, path) = request_line(lines.next().unwrap_or_default())?;
    let length = body_length(lines)?;
    let body = &bytes[end + 4..];
    if body.len() < length {
        return Ok(None);
    }
    if body.len() > length {
        return Err(Bad(400, "more bytes than Content-Length says"));
    }
    Ok(Some(Request { method, path, body: body.to_vec() }))
}

fn request_line(line: &str) -> Result<(Method, Vec<String>), Bad> {
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return Err(Bad(400, "not a request line"));
    };
    if !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(Bad(505, "only HTTP/1.1 is spoken here"));
    }
    let method = match method {
        "GET" => Method::Get,
        "POST" => Method::Post,
        _ => return Err(Bad(405, "only GET and POST are known")),
    };
    let path = target.strip_prefix('/').ok_or(Bad(400, "the target is no path"))?;
    let parts: Option<Vec<String>> = path.split('/').map(decoded).collect();
    Ok((method, parts.ok_or(Bad(400, "the path is badly encoded"))?))
}

fn body_length<'a>(lines: impl Iterator<Item = &'a str>) -> Result<usize, Bad> {
    let mut length = None;
    for line in lines {
        let (name, value) = line.split_once(':').ok_or(Bad(400, "a header without a colon"))?;
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if name.is_empty() || !name.bytes().all(token) {
            return Err(Bad(400, "a header without a proper name"));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Bad(501, "say Content-Length instead of Transfer-Encoding"));
        }
        if name.eq_ignore_ascii_case("content-length") {
            let digits = value.trim_matches([' ', '\t']);
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let value = digits.parse::<usize>().ok().filter(|_| plain && length.is_none());
            length = Some(value.ok_or(Bad(400, "Content-Length is no number, or comes twice"))?);
        }
    }
    let length = length.unwrap_or(0);
    if length > BODY_BYTES { Err(Bad(413, "the body is too long")) } else { Ok(length) }
}

/// Formats an answer with a JSON body.
pub(crate) fn answer(status: u16, body: &[u8]) -> Vec<u8> {
    let reason = match status {
        200 => "OK",
        400 => "Bad Request",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        409 => "Conflict",
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        505 => "HTTP Version Not Supported",
        _ => "Internal Server Error",
    };
    let head = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Formats a request of the client.
pub(crate) fn ask(method: Method, path: &[&str], body: &[u8]) -> Vec<u8> {
    let method = match method {
        Method::Get => "GET",
        Method::Post => "POST",
    };
    let path: String = path.iter().map(|part| format!("/{}", encoded(part))).collect();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: parapet\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// Parses status and body of an answer that ended with its connection.
pub(crate) fn answered(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let end = find(bytes, b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let body = &bytes[end + 4..];
    let length = lines.find_map(|line| line.strip_prefix("Content-Length: "))?;
    (length.parse() == Ok(body.len())).then_some((status, body))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

fn encoded(part: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    part.bytes()
        .map(|b| if plain(b) { char::from(b).into() } else { format!("%{b:02X}") })
        .collect()
}

fn decoded(part: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push((high << 4 | low) as u8);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(text: &str) -> u16 {
        read(text.as_bytes()).expect_err(text).0
    }

    #[test]
    fn what_the_client_asks_the_server_reads() {
        let bytes = ask(Method::Post, &["v1", "arrays", "a b/ü%", "fail"], b"{}");
        for end in 0..bytes.len() {
            assert_eq!(read(&bytes[..end]), Ok(None), "{end} bytes are not all");
        }
        let request = read(&bytes).unwrap().unwrap();
        assert_eq!(request.path, ["v1", "arrays", "a b/ü%", "fail"]);
        assert_eq!((request.method, &request.body[..]), (Method::Post, &b"{}"[..]));
    }

    #[test]
    fn what_the_server_answers_the_client_reads() {
        let bytes = answer(404, b"{\"a\":1}");
        assert_eq!(answered(&bytes), Some((404, &b"{\"a\":1}"[..])));
        assert_eq!(answered(&bytes[..bytes.len() - 1]), None, "cut short");
        assert_eq!(answered(b"HTTP/1.1 200"), None);
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_not_read_at_all() {
        assert_eq!(bad("GET  / HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(bad("GET / HTTP/2\r\n\r\n"), 505);
        assert_eq!(bad("PUT / HTTP/1.1\r\n\r\n"), 405);
        assert_eq!(bad("GET x HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(bad("GET /%zz HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(bad("GET /%ff HTTP/1.1\r\n\r\n"), 400);
        assert_eq!(bad("GET / HTTP/1.1\r\nno colon\r\n\r\n"), 400);
        assert_eq!(bad("GET / HTTP/1.1\r\nContent-Length : 1\r\n\r\n"), 400);
        assert_eq!(bad("GET / HTTP/1.1\r\nContent-Length: +1\r\n\r\n"), 400);
        assert_eq!(bad("GET / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n"), 400);
        assert_eq!(bad("GET / HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n"), 413);
        assert_eq!(bad("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"), 501);
        assert_eq!(bad("GET / HTTP/1.1\r\n\r\nmore"), 400);
        assert_eq!(bad(&"x".repeat(HEAD_BYTES + 1)), 431);
    }
}
