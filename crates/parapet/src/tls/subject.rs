//! The subject of a certificate, for logs.

use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Returns the subject of a verified certificate (DER) in the form of RFC 4514, such as
/// `CN=host-7,O=Example`; none if it has none.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let subject = certificate.tbs_certificate().subject().to_string();
    (!subject.is_empty()).then_some(subject)
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::subject;

    /// Made by `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -utf8
    /// -days 36500 -subj "/O=Älter, Söhne/CN=host-7"`.
    const PEM: &[u8] = include_bytes!("subject.pem");

    #[test]
    fn the_subject_is_found_and_no_cut_or_flipped_byte_causes_a_panic() {
        let bytes = CertificateDer::from_pem_slice(PEM).expect("a certificate").to_vec();
        assert_eq!(subject(&bytes).as_deref(), Some("CN=host-7,O=Älter\\, Söhne"));
        for end in 0..bytes.len() {
            assert_eq!(subject(&bytes[..end]), None);
        }
        for index in 0..bytes.len() {
            let mut bytes = bytes.clone();
            bytes[index] ^= 0xff;
            let _ = subject(&bytes);
        }
    }
}
