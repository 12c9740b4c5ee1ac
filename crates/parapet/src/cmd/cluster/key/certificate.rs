//! Keys (ECDSA over P-256), and the certificates that they sign.
//!
//! `x509-cert` has the structures of RFC 5280, `ring` the keys. Knows neither files nor the time,
//! and depends on nothing else in the program: a test compiles this file by itself.

use std::net::IpAddr;
use std::ops::Range;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use der::asn1::{Any, BitString, GeneralizedTime, Ia5String, OctetString, SetOfVec, Utf8StringRef};
use der::oid::AssociatedOid;
use der::oid::db::rfc4519::COMMON_NAME;
use der::oid::db::rfc5280::{ID_KP_CLIENT_AUTH, ID_KP_SERVER_AUTH};
use der::oid::db::rfc5912::{ECDSA_WITH_SHA_256, ID_EC_PUBLIC_KEY, SECP_256_R_1};
use der::{Encode, Sequence};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages,
    SubjectAltName, SubjectKeyIdentifier,
};
use x509_cert::serial_number::SerialNumber;
use x509_cert::time::{Time, Validity};
use x509_cert::{AlgorithmIdentifier, SubjectPublicKeyInfo, Version};

/// Why there is no key or certificate.
pub(crate) type Result<T> = std::result::Result<T, String>;

/// Bytes of a serial number (RFC 5280) and of a key's identifier (RFC 7093).
const ID_BYTES: usize = 20;
/// Characters of base64 in a line of PEM (RFC 7468).
const PEM_COLUMNS: usize = 64;

/// A private key with its public key.
pub(crate) struct Key {
    pkcs8: Vec<u8>,
    pair: EcdsaKeyPair,
}

impl Key {
    /// Makes a new key.
    ///
    /// # Errors
    /// If there are no random numbers.
    pub(crate) fn generate() -> Result<Key> {
        let made =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new());
        Key::from_pkcs8(made.map_err(|_| "no random numbers")?.as_ref())
    }

    /// Reads a key from its PEM text (PKCS #8).
    ///
    /// # Errors
    /// If the text has no such key.
    pub(crate) fn from_pem(text: &str) -> Result<Key> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes());
        Key::from_pkcs8(key.map_err(|error| error.to_string())?.secret_pkcs8_der())
    }

    fn from_pkcs8(pkcs8: &[u8]) -> Result<Key> {
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &random);
        Ok(Key { pkcs8: pkcs8.into(), pair: pair.map_err(|error| error.to_string())? })
    }

    /// Returns its PEM text (PKCS #8).
    pub(crate) fn pem(&self) -> String {
        pem("PRIVATE KEY", &self.pkcs8)
    }

    fn public(&self) -> der::Result<SubjectPublicKeyInfo> {
        let curve = Any::encode_from(&SECP_256_R_1)?;
        let algorithm = AlgorithmIdentifier { oid: ID_EC_PUBLIC_KEY, parameters: Some(curve) };
        let point = BitString::from_bytes(self.pair.public_key().as_ref())?;
        Ok(SubjectPublicKeyInfo { algorithm, subject_public_key: point })
    }

    /// The identifier of the public key in certificates.
    fn id(&self) -> der::Result<OctetString> {
        OctetString::new(&digest(&SHA256, &self.public()?.to_der()?).as_ref()[..ID_BYTES])
    }

    fn sign(&self, message: &[u8]) -> Result<BitString> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        BitString::from_bytes(signature.map_err(|_| "no random numbers")?.as_ref()).map_err(text)
    }
}

/// Contents of a certificate.
pub(crate) struct Contents<'a> {
    /// Common name of its subject.
    pub(crate) name: &'a str,
    /// Validity, in whole seconds of the Unix epoch.
    pub(crate) lifetime: Range<Duration>,
    /// Permitted use.
    pub(crate) purpose: Purpose,
}

/// Permitted use of a certificate.
pub(crate) enum Purpose {
    /// Signs certificates of hosts.
    Authority,
    /// Is shown in connections.
    Host {
        /// Addresses of the host.
        addresses: Vec<IpAddr>,
        /// Further names.
        uris: Vec<String>,
        /// Others may connect to it.
        serves: bool,
    },
}

/// The part of a certificate that is signed (TBSCertificate in RFC 5280, section 4.1). The struct
/// of x509-cert can be made only with signers of its own family of crates.
#[derive(Sequence)]
struct Body {
    #[asn1(context_specific = "0")]
    version: Version,
    serial_number: SerialNumber,
    signature: AlgorithmIdentifier,
    issuer: Name,
    validity: Validity,
    subject: Name,
    subject_public_key_info: SubjectPublicKeyInfo,
    #[asn1(context_specific = "3")]
    extensions: Vec<Extension>,
}

/// The same as Name in RFC 5280.
type Name = Vec<SetOfVec<AttributeTypeAndValue>>;

/// A certificate (RFC 5280, section 4.1).
#[derive(Sequence)]
struct Certificate {
    body: Body,
    signature_algorithm: AlgorithmIdentifier,
    signature: BitString,
}

/// Returns the certificate of `key`, signed by the key of `issuer`, as a PEM text.
///
/// # Errors
/// If the contents have no encoding.
pub(crate) fn certificate(contents: &Contents, key: &Key, issuer: (&str, &Key)) -> Result<String> {
    let (issuer_name, issuer_key) = issuer;
    let body = body(contents, key, issuer_name, issuer_key).map_err(text)?;
    let signature = issuer_key.sign(&body.to_der().map_err(text)?)?;
    let signature_algorithm = body.signature.clone();
    let made = Certificate { body, signature_algorithm, signature };
    Ok(pem("CERTIFICATE", &made.to_der().map_err(text)?))
}

fn body(contents: &Contents, key: &Key, issuer: &str, issuer_key: &Key) -> der::Result<Body> {
    let mut serial = digest(&SHA256, key.pair.public_key().as_ref()).as_ref()[..ID_BYTES].to_vec();
    // Positive, and as short as RFC 5280 demands.
    serial[0] &= 0x7f;
    let time =
        |since_epoch| GeneralizedTime::from_unix_duration(since_epoch).map(Time::GeneralTime);
    let Range { start, end } = contents.lifetime;
    Ok(Body {
        version: Version::V3,
        serial_number: SerialNumber::new(&serial)?,
        signature: AlgorithmIdentifier { oid: ECDSA_WITH_SHA_256, parameters: None },
        issuer: common_name(issuer)?,
        validity: Validity::new(time(start)?, time(end)?),
        subject: common_name(contents.name)?,
        subject_public_key_info: key.public()?,
        extensions: extensions(&contents.purpose, key, issuer_key)?,
    })
}

fn common_name(name: &str) -> der::Result<Name> {
    let value = Any::encode_from(&Utf8StringRef::new(name)?)?;
    let set = SetOfVec::try_from(vec![AttributeTypeAndValue { oid: COMMON_NAME, value }])?;
    Ok(vec![set])
}

fn extensions(purpose: &Purpose, key: &Key, issuer: &Key) -> der::Result<Vec<Extension>> {
    let own_id = SubjectKeyIdentifier(key.id()?);
    match purpose {
        Purpose::Authority => {
            let usage = KeyUsage(KeyUsages::KeyCertSign | KeyUsages::CRLSign);
            let constraints = BasicConstraints { ca: true, path_len_constraint: Some(0) };
            Ok(vec![
                extension(true, &usage)?,
                extension(false, &own_id)?,
                extension(true, &constraints)?,
            ])
        }
        Purpose::Host { addresses, uris, serves } => {
            let mut names: Vec<GeneralName> = addresses.iter().map(|&it| it.into()).collect();
            for uri in uris {
                names.push(GeneralName::UniformResourceIdentifier(Ia5String::new(uri)?));
            }
            let mut uses = vec![ID_KP_CLIENT_AUTH];
            uses.extend(serves.then_some(ID_KP_SERVER_AUTH));
            let issuer =
                AuthorityKeyIdentifier { key_identifier: Some(issuer.id()?), ..Default::default() };
            let constraints = BasicConstraints { ca: false, path_len_constraint: None };
            Ok(vec![
                extension(false, &issuer)?,
                extension(false, &SubjectAltName(names))?,
                extension(true, &KeyUsage(KeyUsages::DigitalSignature.into()))?,
                extension(false, &ExtendedKeyUsage(uses))?,
                extension(false, &own_id)?,
                extension(true, &constraints)?,
            ])
        }
    }
}

fn extension<E: AssociatedOid + Encode>(critical: bool, value: &E) -> der::Result<Extension> {
    Ok(Extension { extn_id: E::OID, critical, extn_value: OctetString::new(value.to_der()?)? })
}

fn pem(label: &str, der: &[u8]) -> String {
    let base64 = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in base64.as_bytes().chunks(PEM_COLUMNS) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}

fn text(error: der::Error) -> String {
    error.to_string()
}
