//! What a certificate says of itself, for the questions that rustls does not answer: certificates of X.509 version 1, names in
//! the subject instead of the extension for names, and the mark and the dates of an authority's own certificate.
//!
//! `x509-cert` parses, by RFC 5280, section 4.1. Nothing here trusts anything: [`super::verifier`] does.

use std::time::Duration;

use rustls::pki_types::{AlgorithmIdentifier, SignatureVerificationAlgorithm, SubjectPublicKeyInfoDer, UnixTime};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::der::asn1::{Any, AnyRef, ObjectIdentifier};
use x509_cert::der::oid::AssociatedOid;
use x509_cert::der::oid::db::rfc4519::COMMON_NAME;
use x509_cert::der::{self, DateTime, Decode, Encode, Reader, SliceReader, Tag};
use x509_cert::ext::pkix::{BasicConstraints, NameConstraints, SubjectAltName};
use x509_cert::name::Name;
use x509_cert::spki;

/// A certificate that has been parsed. Its key and its signature are whole bytes.
#[derive(Debug)]
pub(super) struct Certificate {
    /// `Raw` takes serial numbers of any length and sign, as rustls does.
    parsed: CertificateInner<Raw>,
    /// The part under the signature, byte for byte.
    signed: Vec<u8>,
    is_first_version: bool,
}

impl Certificate {
    /// Parses a certificate; `None` if it is malformed.
    pub(super) fn parse(der: &[u8]) -> Option<Certificate> {
        let parsed = CertificateInner::<Raw>::from_der(der).ok()?;
        let key = &parsed.tbs_certificate().subject_public_key_info().subject_public_key;
        let (signed, is_first_version) = signed_part(der).ok()?;
        let is_whole = key.as_bytes().is_some() && parsed.signature().as_bytes().is_some();
        is_whole.then(|| Certificate { signed: signed.to_owned(), is_first_version, parsed })
    }

    /// True for X.509 version 1: the certificate leaves the version out.
    pub(super) fn is_first_version(&self) -> bool {
        self.is_first_version
    }

    /// True if the certificate says that it may issue certificates. Version 1 cannot say it, so one that issued itself counts.
    pub(super) fn is_authority(&self) -> bool {
        match self.is_first_version {
            true => self.subject() == self.issuer(),
            false => {
                let constraints = self.parsed.tbs_certificate().get_extension::<BasicConstraints>();
                constraints.ok().flatten().is_some_and(|(_, constraints)| constraints.ca)
            }
        }
    }

    pub(super) fn subject(&self) -> &Name {
        self.parsed.tbs_certificate().subject()
    }

    pub(super) fn issuer(&self) -> &Name {
        self.parsed.tbs_certificate().issuer()
    }

    pub(super) fn not_before(&self) -> UnixTime {
        UnixTime::since_unix_epoch(self.parsed.tbs_certificate().validity().not_before.to_unix_duration())
    }

    pub(super) fn not_after(&self) -> UnixTime {
        UnixTime::since_unix_epoch(self.parsed.tbs_certificate().validity().not_after.to_unix_duration())
    }

    /// The key's bits, without its algorithm.
    pub(super) fn key(&self) -> &[u8] {
        self.parsed.tbs_certificate().subject_public_key_info().subject_public_key.raw_bytes()
    }

    /// The key with its algorithm; `None` if the key cannot be encoded.
    pub(super) fn key_info(&self) -> Option<SubjectPublicKeyInfoDer<'static>> {
        self.parsed.tbs_certificate().subject_public_key_info().to_der().ok().map(SubjectPublicKeyInfoDer::from)
    }

    /// True if the certificate's key has signed the message.
    pub(super) fn has_signed(
        &self,
        message: &[u8],
        signature: &[u8],
        algorithm: &dyn SignatureVerificationAlgorithm,
    ) -> bool {
        let key = self.parsed.tbs_certificate().subject_public_key_info();
        is_same(&key.algorithm, algorithm.public_key_alg_id())
            && algorithm.verify_signature(self.key(), message, signature).is_ok()
    }

    /// True if the other certificate's key has signed this certificate.
    pub(super) fn is_signed_by(&self, other: &Certificate, algorithm: &dyn SignatureVerificationAlgorithm) -> bool {
        is_same(self.parsed.signature_algorithm(), algorithm.signature_alg_id())
            && other.has_signed(&self.signed, self.parsed.signature().raw_bytes(), algorithm)
    }

    /// True if the certificate's names are in the extension for them, so that the subject names no host.
    pub(super) fn has_alternative_names(&self) -> bool {
        self.has_extension(SubjectAltName::OID)
    }

    /// True if an authority's certificate may limit the names in the certificates that it issues.
    pub(super) fn may_limit_names(&self) -> bool {
        self.has_extension(NameConstraints::OID)
    }

    /// Compares numbers, not bytes: an encoding with superfluous bytes does not hide an extension.
    fn has_extension(&self, wanted: ObjectIdentifier) -> bool {
        let extensions = self.parsed.tbs_certificate().extensions();
        extensions.into_iter().flatten().any(|extension| extension.extn_id.arcs().eq(wanted.arcs()))
    }
}

/// The part of a certificate under the signature, and whether it leaves the version out, so that a serial number comes first.
/// A version that is written out is none of version 1 for rustls, whatever it says.
fn signed_part(der: &[u8]) -> der::Result<(&[u8], bool)> {
    let signed = SliceReader::new(der)?.sequence(|parts| {
        let signed = parts.tlv_bytes()?;
        parts.drain(parts.remaining_len())?;
        der::Result::Ok(signed)
    })?;
    let begins_with = Tag::peek(&SliceReader::new(AnyRef::from_der(signed)?.value())?)?;
    Ok((signed, begins_with == Tag::Integer))
}

fn is_same(algorithm: &spki::AlgorithmIdentifierOwned, known: AlgorithmIdentifier) -> bool {
    Any::encode_from(algorithm).is_ok_and(|encoded| encoded.value() == known.as_ref())
}

/// The last common name in a subject or an issuer. It counts where it is the first of its set, and the sets of one element are
/// all that is in use.
pub(super) fn common_name(name: &Name) -> Option<String> {
    let attributes = name.iter_rdn().filter_map(|set| set.iter().next());
    let last = attributes.filter(|attribute| attribute.oid == COMMON_NAME).last()?;
    std::str::from_utf8(last.value.value()).ok().map(str::to_owned)
}

/// The day of a moment in UTC, such as `2020-05-01`.
pub(super) fn day(moment: UnixTime) -> String {
    match DateTime::from_unix_duration(Duration::from_secs(moment.as_secs())) {
        Ok(date) => format!("{:04}-{:02}-{:02}", date.year(), date.month(), date.day()),
        Err(_) => "a day after the year 9999".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, CustomExtension, DnType, KeyPair, SerialNumber};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    fn made(extension: Option<CustomExtension>) -> Vec<u8> {
        let mut parameters = CertificateParams::default();
        parameters.distinguished_name.push(DnType::CommonName, "db1");
        parameters.custom_extensions.extend(extension);
        parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    /// `from` has to occur once.
    fn replaced(der: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
        let found: Vec<usize> = (0..der.len()).filter(|at| der[*at..].starts_with(from)).collect();
        assert_eq!((found.len(), from.len()), (1, to.len()));
        [&der[..found[0]], to, &der[found[0] + from.len()..]].concat()
    }

    #[test]
    fn days() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_251_199, "2024-02-29"),
            (1_709_251_200, "2024-03-01"),
            (4_107_542_400, "2100-03-01"),
            (253_402_300_799, "9999-12-31"),
            (253_402_300_800, "a day after the year 9999"),
            (u64::MAX, "a day after the year 9999"),
        ] {
            assert_eq!(day(UnixTime::since_unix_epoch(Duration::from_secs(seconds))), text);
        }
    }

    #[test]
    fn validity_out_of_the_calendar_is_malformed() {
        let mut parameters = CertificateParams::default();
        parameters.not_before = rcgen::date_time_ymd(2024, 2, 29);
        parameters.not_after = rcgen::date_time_ymd(9999, 12, 31);
        let der = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        let whole = Certificate::parse(&der).unwrap();
        assert_eq!(whole.not_before().as_secs(), 1_709_164_800);
        assert_eq!(day(whole.not_after()), "9999-12-31");
        for wrong in [b"241301000000Z", b"240230000000Z", b"240229240000Z", b"2402290000x0Z", b"240229000000+"] {
            assert!(Certificate::parse(&replaced(&der, b"240229000000Z", wrong)).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn a_serial_number_may_have_any_length_and_sign() {
        let mut parameters = CertificateParams::default();
        parameters.serial_number = Some(SerialNumber::from(vec![0x7f; 40]));
        let der = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec();
        assert!(Certificate::parse(&der).is_some());
        let negative = replaced(&der, b"\x02\x28\x7f", b"\x02\x28\xaf");
        assert!(Certificate::parse(&negative).is_some());
    }

    #[test]
    fn a_certificate_cut_or_damaged_anywhere_is_malformed_and_nothing_worse() {
        let made = rcgen::generate_simple_self_signed(vec!["db1".to_owned()]).unwrap();
        let made = made.cert.der().to_vec();
        let first_version = include_bytes!("first_version/server-cert.pem");
        let first_version = CertificateDer::from_pem_slice(first_version).unwrap().to_vec();
        let whole = Certificate::parse(&made).unwrap();
        assert!(whole.has_alternative_names() && !whole.is_first_version() && !whole.is_authority());
        let whole = Certificate::parse(&first_version).unwrap();
        assert!(!whole.has_alternative_names() && whole.is_first_version() && !whole.is_authority());
        for der in [made, first_version] {
            for length in 0..der.len() {
                assert!(Certificate::parse(&der[..length]).is_none(), "{length}");
            }
            assert!(Certificate::parse(&[der.as_slice(), &[0]].concat()).is_none());
            for at in 0..der.len() {
                let one_bit = (0..8).map(|bit| der[at] ^ (1 << bit));
                for value in one_bit.chain([0, 0x7f, 0x80, 0xff]) {
                    let mut damaged = der.clone();
                    damaged[at] = value;
                    let Some(parsed) = Certificate::parse(&damaged) else { continue };
                    let _ = (parsed.is_authority(), parsed.may_limit_names(), parsed.key_info());
                    let _ = (parsed.has_alternative_names(), common_name(parsed.subject()));
                }
            }
        }
    }

    #[test]
    fn an_unusual_encoding_does_not_hide_an_extension() {
        const NAMES: &[u64] = &[2, 5, 29, 17];
        let named = |content: &[u8]| made(Some(CustomExtension::from_oid_content(NAMES, content.to_vec())));
        let has_names = |der: &[u8]| Certificate::parse(der).map(|parsed| parsed.has_alternative_names());
        assert_eq!(has_names(&made(None)), Some(false));
        // What the extension holds does not matter.
        for content in [b"".as_slice(), b"\0", b"\x30\x80", b"\xff\xff\xff"] {
            assert_eq!(has_names(&named(content)), Some(true), "{content:?}");
        }
        // 157 takes two bytes; without its upper part it is 29 in two bytes.
        let other = made(Some(CustomExtension::from_oid_content(&[2, 5, 157, 17], b"\x30\0".to_vec())));
        assert_eq!(has_names(&other), Some(false));
        assert_eq!(has_names(&replaced(&other, b"\x55\x81\x1d\x11", b"\x55\x80\x1d\x11")), Some(true));
        // BER's lengths, and an extension that is none.
        let der = named(b"\x30\0");
        for damaged in [b"\x06\x81\x03\x55\x1d".as_slice(), b"\x06\x04\x55\x1d\x11", b"\x05\x03\x55\x1d\x11"] {
            let usual = &b"\x06\x03\x55\x1d\x11"[..damaged.len()];
            assert_eq!(has_names(&replaced(&der, usual, damaged)), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_version_that_is_written_out_is_not_version_1() {
        let der = replaced(&made(None), b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x00");
        assert!(Certificate::parse(&der).is_some_and(|parsed| !parsed.is_first_version()));
    }

    #[test]
    fn an_authority_is_marked_once_and_clearly() {
        let marked = |contents: &[&[u8]]| {
            let extension = |content: &&[u8]| CustomExtension::from_oid_content(&[2, 5, 29, 19], content.to_vec());
            let mut parameters = CertificateParams::default();
            parameters.custom_extensions.extend(contents.iter().map(extension));
            let certificate = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
            Certificate::parse(certificate.der()).unwrap().is_authority()
        };
        for yes in [b"\x30\x03\x01\x01\xff".as_slice(), b"\x30\x06\x01\x01\xff\x02\x01\x03"] {
            assert!(marked(&[yes]), "{yes:?}");
            assert!(!marked(&[yes, yes]), "{yes:?}");
        }
        for no in [b"".as_slice(), b"\x30\0", b"\x30\x03\x01\x01\0", b"\x30\x03\x01\x01\x01", b"\x30\x04\x01\x01\xff"] {
            assert!(!marked(&[no]), "{no:?}");
        }
        assert!(!marked(&[]));
    }
}
