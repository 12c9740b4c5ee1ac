//! The subject of a certificate: its common name (RFC 5280, 4.1.2.6).
//!
//! Walks the outermost DER elements, for logs and access lists. The certificate is already
//! verified, but the code still checks every length.

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const VERSION: u8 = 0xa0;
const OBJECT: u8 = 0x06;
/// 2.5.4.3
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];

/// Returns the first common name of the certificate's subject, if it has one.
pub(crate) fn common_name(certificate: &[u8]) -> Option<String> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    if rest.first() == Some(&VERSION) {
        rest = element(rest)?.2;
    }
    // Skip serial number, signature algorithm, issuer, validity.
    for _ in 0..4 {
        rest = element(rest)?.2;
    }
    let (tag, mut names, _) = element(rest)?;
    if tag != SEQUENCE {
        return None;
    }
    while let Some((SET, name, next)) = element(names) {
        let (_, pair, _) = element(name)?;
        let (tag, object, value) = element(pair)?;
        if tag == OBJECT && object == COMMON_NAME {
            return element(value).map(|(_, text, _)| String::from_utf8_lossy(text).into_owned());
        }
        names = next;
    }
    None
}

/// Returns tag and content of the first element, and the remaining bytes.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (digits, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            (digits.iter().fold(0, |length, &byte| length << 8 | usize::from(byte)), rest)
        }
        _ => return None,
    };
    let (content, next) = rest.split_at_checked(length)?;
    Some((tag, content, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrap(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let mut bytes = vec![tag];
        match content.len() {
            short @ 0..128 => bytes.push(short as u8),
            long => bytes.extend([0x82, (long >> 8) as u8, long as u8]),
        }
        bytes.extend(content);
        bytes
    }

    fn sample(version: bool) -> Vec<u8> {
        let name = |object: &[u8], text: &str| {
            wrap(
                SET,
                &[&wrap(SEQUENCE, &[&wrap(OBJECT, &[object]), &wrap(12, &[text.as_bytes()])])],
            )
        };
        let subject = wrap(
            SEQUENCE,
            &[&name(&[0x55, 4, 10], &"x".repeat(200)), &name(&COMMON_NAME, "host-7")],
        );
        let filler = wrap(SEQUENCE, &[]);
        let version = if version { wrap(VERSION, &[&[2, 1, 2]]) } else { Vec::new() };
        let body =
            wrap(SEQUENCE, &[&version, &[2, 1, 9], &filler, &filler, &filler, &subject, &filler]);
        wrap(SEQUENCE, &[&body])
    }

    #[test]
    fn the_common_name_is_found() {
        assert_eq!(common_name(&sample(true)).as_deref(), Some("host-7"));
        assert_eq!(common_name(&sample(false)).as_deref(), Some("host-7"));
    }

    #[test]
    fn no_cut_or_flipped_byte_causes_a_panic() {
        let bytes = sample(true);
        for end in 0..bytes.len() {
            assert_eq!(common_name(&bytes[..end]), None);
        }
        for index in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[index] ^= 0xff;
            let _ = common_name(&bytes);
        }
    }
}
