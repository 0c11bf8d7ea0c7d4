//! What a certificate says, read just as far as webpki does not go: certificates of X.509 version 1, which the vendors'
//! manuals taught people to make with openssl, names in the subject instead of the extension for names, and whether an
//! authority's own certificate is valid, which webpki does not ask.
//!
//! The encoding is DER, the structure that of RFC 5280, section 4.1. Nothing here trusts anything: [`super::verifier`] does.

use std::fmt;

const BOOLEAN: u8 = 0x01;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_IDENTIFIER: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
/// The version, where it is not the first.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
/// As they stand in every certificate that has the extension, with tag and length: RFC 5280, sections 4.2.1.6 and 4.2.1.10.
const ALTERNATIVE_NAMES: &[u8] = &[OBJECT_IDENTIFIER, 3, 0x55, 0x1d, 0x11];
const NAME_CONSTRAINTS: &[u8] = &[OBJECT_IDENTIFIER, 3, 0x55, 0x1d, 0x1e];

/// The parts of a certificate, where they lie.
#[derive(Debug, Clone, Copy)]
pub(super) struct Certificate<'a> {
    der: &'a [u8],
    /// The signed part, with its header.
    pub(super) signed: &'a [u8],
    /// The algorithm of the signature, without the header.
    pub(super) signature_algorithm: &'a [u8],
    pub(super) signature: &'a [u8],
    pub(super) is_first_version: bool,
    pub(super) issuer: &'a [u8],
    pub(super) subject: &'a [u8],
    /// Seconds since 1970.
    pub(super) not_before: u64,
    /// Seconds since 1970.
    pub(super) not_after: u64,
    /// The key with its algorithm and its header.
    pub(super) key_info: &'a [u8],
    /// The algorithm of the key, without the header.
    pub(super) key_algorithm: &'a [u8],
    pub(super) key: &'a [u8],
    /// Says that it may issue certificates. Version 1 cannot say it, so one that issued itself counts.
    pub(super) is_authority: bool,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate; `None` if it is malformed.
    pub(super) fn parse(der: &'a [u8]) -> Option<Certificate<'a>> {
        let mut outer = Reader(Reader(der).take(SEQUENCE)?);
        let (signed, body) = outer.take_whole(SEQUENCE)?;
        let signature_algorithm = outer.take(SEQUENCE)?;
        let signature = whole_bytes(outer.take(BIT_STRING)?)?;
        let mut body = Reader(body);
        let version = body.take(VERSION);
        body.take(INTEGER)?;
        body.take(SEQUENCE)?;
        let issuer = body.take(SEQUENCE)?;
        let mut validity = Reader(body.take(SEQUENCE)?);
        let (not_before, not_after) = (validity.time()?, validity.time()?);
        let subject = body.take(SEQUENCE)?;
        let (key_info, key) = body.take_whole(SEQUENCE)?;
        let mut key = Reader(key);
        let (key_algorithm, key) = (key.take(SEQUENCE)?, whole_bytes(key.take(BIT_STRING)?)?);
        let is_authority = match version {
            None => subject == issuer,
            Some(_) => is_marked_as_authority(body),
        };
        Some(Certificate {
            der,
            signed,
            signature_algorithm,
            signature,
            is_first_version: version.is_none(),
            issuer,
            subject,
            not_before,
            not_after,
            key_info,
            key_algorithm,
            key,
            is_authority,
        })
    }

    /// True if its names are in the extension for them, so that the subject names no host. Looks at the bytes, not at the
    /// structure, so that no unusual encoding hides the extension.
    pub(super) fn has_alternative_names(&self) -> bool {
        contains(self.der, ALTERNATIVE_NAMES)
    }
}

/// The last common name in a subject or an issuer.
pub(super) fn common_name(name: &[u8]) -> Option<String> {
    let mut parts = Reader(name);
    let mut found = None;
    while let Some(part) = parts.take(SET) {
        let mut attribute = Reader(Reader(part).take(SEQUENCE)?);
        if attribute.take(OBJECT_IDENTIFIER)? == COMMON_NAME {
            let (_, value) = attribute.any()?;
            found = std::str::from_utf8(value).ok().map(str::to_owned);
        }
    }
    found
}

/// True if an authority's certificate may limit the names in the certificates that it issues. Looks at the bytes, as
/// [`Certificate::has_alternative_names`] does.
pub(super) fn may_constrain_names(der: &[u8]) -> bool {
    contains(der, NAME_CONSTRAINTS)
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// RFC 5280, section 4.2.1.9: the extension's content is a sequence that begins with TRUE.
fn is_marked_as_authority(mut rest: Reader<'_>) -> bool {
    const TRUE: &[u8] = &[0xff];
    let mut found = None;
    while let Some((tag, value)) = rest.any() {
        if tag != EXTENSIONS {
            continue;
        }
        let mut extensions = Reader(Reader(value).take(SEQUENCE).unwrap_or_default());
        while let Some(extension) = extensions.take(SEQUENCE) {
            let mut extension = Reader(extension);
            if extension.take(OBJECT_IDENTIFIER) == Some(BASIC_CONSTRAINTS) {
                let _is_critical = extension.take(BOOLEAN);
                let content = extension.take(OCTET_STRING).and_then(|octets| Reader(octets).take(SEQUENCE));
                found = content.and_then(|content| Reader(content).take(BOOLEAN));
            }
        }
    }
    found == Some(TRUE)
}

/// The content of a bit string that ends with a whole byte.
fn whole_bytes(bits: &[u8]) -> Option<&[u8]> {
    bits.strip_prefix(&[0])
}

/// Takes element after element off the front.
#[derive(Debug, Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// The next element's tag, the element with its header, and its content.
    fn element(&mut self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, content) = match first {
            0..=0x7f => (usize::from(first), rest),
            // Lengths of up to three bytes: a handshake message is no longer.
            0x81..=0x83 => {
                let (bytes, content) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), content)
            }
            _ => return None,
        };
        let (content, after) = content.split_at_checked(length)?;
        let whole = &self.0[..self.0.len() - after.len()];
        self.0 = after;
        Some((tag, whole, content))
    }

    fn any(&mut self) -> Option<(u8, &'a [u8])> {
        self.element().map(|(tag, _, content)| (tag, content))
    }

    /// The next element, with its header and without, if it has this tag; else nothing is taken.
    fn take_whole(&mut self, tag: u8) -> Option<(&'a [u8], &'a [u8])> {
        let mut ahead = *self;
        let (found, whole, content) = ahead.element()?;
        (found == tag).then(|| {
            *self = ahead;
            (whole, content)
        })
    }

    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.take_whole(tag).map(|(_, content)| content)
    }

    /// A time, in seconds since 1970; what lies before counts as 0.
    fn time(&mut self) -> Option<u64> {
        let (tag, text) = self.any()?;
        let text = std::str::from_utf8(text).ok()?.strip_suffix('Z')?;
        let (year, rest) = match tag {
            UTC_TIME => {
                let year: u64 = text.get(..2)?.parse().ok()?;
                (if year < 50 { 2000 + year } else { 1900 + year }, text.get(2..)?)
            }
            GENERALIZED_TIME => (text.get(..4)?.parse().ok()?, text.get(4..)?),
            _ => return None,
        };
        let two = |at: usize| rest.get(at..at + 2)?.parse::<u64>().ok();
        let date = Date { year, month: two(0)?, day: two(2)? };
        let seconds = (two(4)? * 60 + two(6)?) * 60 + two(8)?;
        Some(date.days_since_1970()? * 86_400 + seconds)
    }
}

/// A day of the Gregorian calendar, from 1970 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    year: u64,
    month: u64,
    day: u64,
}

impl Date {
    /// The day in which this second since 1970 lies, in UTC.
    pub(super) fn of_seconds(seconds: u64) -> Date {
        let mut date = Date { year: 1970, month: 1, day: 1 };
        let mut days = seconds / 86_400;
        while days >= date.days_of_year() {
            days -= date.days_of_year();
            date.year += 1;
        }
        while days >= date.days_of_month() {
            days -= date.days_of_month();
            date.month += 1;
        }
        date.day += days;
        date
    }

    fn days_since_1970(self) -> Option<u64> {
        /// Certificates "for ever" end in 9999.
        const YEAR_MAX: u64 = 9999;
        if !(1..=12).contains(&self.month) || !(1..=31).contains(&self.day) || self.year > YEAR_MAX {
            return None;
        }
        let years = (1970..self.year).map(|year| Date { year, month: 1, day: 1 }.days_of_year()).sum::<u64>();
        let months = (1..self.month).map(|month| Date { month, ..self }.days_of_month()).sum::<u64>();
        Some(if self.year < 1970 { 0 } else { years + months + self.day - 1 })
    }

    fn is_leap(self) -> bool {
        self.year.is_multiple_of(4) && !self.year.is_multiple_of(100) || self.year.is_multiple_of(400)
    }

    fn days_of_year(self) -> u64 {
        if self.is_leap() { 366 } else { 365 }
    }

    fn days_of_month(self) -> u64 {
        match self.month {
            2 if self.is_leap() => 29,
            2 => 28,
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (seconds, text) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_251_199, "2024-02-29"),
            (1_709_251_200, "2024-03-01"),
            (4_107_542_400, "2100-03-01"),
            (253_402_300_799, "9999-12-31"),
        ] {
            let date = Date::of_seconds(seconds);
            assert_eq!(date.to_string(), text);
            assert_eq!(date.days_since_1970(), Some(seconds / 86_400), "{text}");
        }
        let utc = |text: &[u8]| Reader(&[&[UTC_TIME, text.len() as u8], text].concat()).time();
        assert_eq!(utc(b"240229235959Z"), Some(1_709_251_199));
        assert_eq!(utc(b"500101000000Z"), Some(0));
        for wrong in [b"241301000000Z".as_slice(), b"240229235959", b"2402", b"24022923595xZ", b""] {
            assert_eq!(utc(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_certificate_cut_anywhere_is_malformed_and_nothing_worse() {
        let key = rcgen::generate_simple_self_signed(vec!["db1".to_owned()]).unwrap();
        let der = key.cert.der().to_vec();
        let whole = Certificate::parse(&der).unwrap();
        assert!(whole.has_alternative_names() && !whole.is_first_version && !whole.is_authority);
        for length in 0..der.len() {
            assert!(Certificate::parse(&der[..length]).is_none(), "{length}");
        }
        for at in 0..der.len() {
            for value in [0, 0x7f, 0x80, 0x84, 0xff] {
                let mut damaged = der.clone();
                damaged[at] = value;
                let parsed = Certificate::parse(&damaged);
                let _name = parsed.and_then(|certificate| common_name(certificate.subject));
            }
        }
    }
}
