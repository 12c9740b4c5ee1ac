//! What a certificate says: its subject, for logs; its URIs, for a cluster; its lifetime.

use std::ops::Range;

use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Returns the subject of a verified certificate (DER) in the form of RFC 4514, such as
/// `CN=host-7,O=Example`; none if it has none.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let subject = certificate.tbs_certificate().subject().to_string();
    (!subject.is_empty()).then_some(subject)
}

/// Returns the URIs among the subject alternative names of a verified certificate (DER).
pub(crate) fn uris(certificate: &[u8]) -> Vec<String> {
    let Ok(certificate) = Certificate::from_der(certificate) else { return Vec::new() };
    let Ok(Some((_, names))) = certificate.tbs_certificate().get_extension::<SubjectAltName>()
    else {
        return Vec::new();
    };
    let uri = |name: &GeneralName| match name {
        GeneralName::UniformResourceIdentifier(uri) => Some(uri.to_string()),
        _ => None,
    };
    names.0.iter().filter_map(uri).collect()
}

/// Returns when a certificate (DER) is valid, in seconds of the Unix epoch.
pub(crate) fn lifetime(certificate: &[u8]) -> Option<Range<u64>> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let validity = certificate.tbs_certificate().validity();
    let [begin, end] =
        [validity.not_before, validity.not_after].map(|time| time.to_unix_duration().as_secs());
    Some(begin..end)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::{lifetime, subject, uris};

    /// Made by `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -utf8
    /// -days 36500 -subj "/O=Älter, Söhne/CN=host-7"`.
    const PEM: &[u8] = include_bytes!("subject.pem");

    #[test]
    fn the_subject_is_found_and_no_cut_or_flipped_byte_causes_a_panic() {
        let bytes = CertificateDer::from_pem_slice(PEM).expect("a certificate").to_vec();
        assert_eq!(subject(&bytes).as_deref(), Some("CN=host-7,O=Älter\\, Söhne"));
        assert!(uris(&bytes).is_empty());
        let days = lifetime(&bytes).map(|range| (range.end - range.start) / 86_400);
        assert_eq!(days, Some(36_500));
        for end in 0..bytes.len() {
            assert_eq!(subject(&bytes[..end]), None);
        }
        for index in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[index] ^= 0xff;
            let _ = (subject(&bytes), uris(&bytes), lifetime(&bytes));
        }
    }
}
