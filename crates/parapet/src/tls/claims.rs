//! What the certificates of a cluster say: their URIs, and their lifetime.

use std::ops::Range;

use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

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

    use super::{lifetime, uris};

    #[test]
    fn claims_are_found_and_no_cut_or_flipped_byte_causes_a_panic() {
        // See the tests of `subject`.
        let bytes = CertificateDer::from_pem_slice(include_bytes!("subject.pem")).expect("PEM");
        let bytes = bytes.to_vec();
        assert!(uris(&bytes).is_empty());
        let days = lifetime(&bytes).map(|range| (range.end - range.start) / 86_400);
        assert_eq!(days, Some(36_500));
        for index in 0..bytes.len() {
            assert_eq!(lifetime(&bytes[..index]), None);
            let mut bytes = bytes.clone();
            bytes[index] ^= 0xff;
            let _ = (uris(&bytes), lifetime(&bytes));
        }
    }
}
