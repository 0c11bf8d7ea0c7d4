//! A JSON text, parsed only as far as changes of it need: numbers and strings stay unparsed text.

use std::borrow::Cow;

use super::{DEPTH_MAX, append_string, malformed};
use crate::Result;

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leg<'a> {
    /// The member of this name of an object.
    Member(Cow<'a, str>),
    /// An element of an array, counted from its beginning.
    Element(usize),
    /// An element of an array, counted back from the last one.
    Last(usize),
}

impl Leg<'_> {
    /// The index of the element in an array of this length; `None` if the array has no such element.
    pub(super) fn place(&self, count: usize) -> Option<usize> {
        match self {
            Leg::Element(place) if *place < count => Some(*place),
            Leg::Last(before) if *before < count => Some(count - 1 - before),
            _ => None,
        }
    }

    /// The index at which an element is inserted: a place beyond an end means that end.
    pub(super) fn place_to_insert(&self, count: usize) -> usize {
        self.place(count).unwrap_or(if matches!(self, Leg::Last(_)) { 0 } else { count })
    }
}

/// A value in a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Node<'a> {
    /// A string, number or literal, as written.
    Scalar(&'a [u8]),
    /// An array's elements.
    Array(Vec<Node<'a>>),
    /// An object's members.
    Object(Vec<(Key<'a>, Node<'a>)>),
}

/// The name of a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Key<'a> {
    /// The name as written, with its quotes.
    text: Cow<'a, [u8]>,
    /// The name without quotes and escapes.
    pub(super) name: Cow<'a, str>,
}

impl<'a> Node<'a> {
    /// The value that a step leads to.
    pub(super) fn child(&mut self, leg: &Leg<'_>) -> Option<&mut Node<'a>> {
        match (self, leg) {
            (Node::Object(members), Leg::Member(name)) => {
                members.iter_mut().find(|(key, _)| key.name == *name).map(|(_, value)| value)
            }
            (Node::Array(elements), leg) => {
                let place = leg.place(elements.len())?;
                elements.get_mut(place)
            }
            _ => None,
        }
    }

    /// Writes the value in MySQL's form.
    pub(super) fn append_to(&self, text: &mut Vec<u8>) {
        match self {
            Node::Scalar(scalar) => text.extend_from_slice(scalar),
            Node::Array(elements) => {
                text.push(b'[');
                for (number, element) in elements.iter().enumerate() {
                    if number > 0 {
                        text.extend_from_slice(b", ");
                    }
                    element.append_to(text);
                }
                text.push(b']');
            }
            Node::Object(members) => {
                text.push(b'{');
                for (number, (key, value)) in members.iter().enumerate() {
                    if number > 0 {
                        text.extend_from_slice(b", ");
                    }
                    text.extend_from_slice(&key.text);
                    text.extend_from_slice(b": ");
                    value.append_to(text);
                }
                text.push(b'}');
            }
        }
    }
}

impl Key<'_> {
    /// The key of a new member.
    pub(super) fn new(name: String) -> Key<'static> {
        let mut text = Vec::with_capacity(name.len() + 2);
        append_string(&mut text, &name);
        Key { text: text.into(), name: name.into() }
    }

    /// MySQL sorts members by the lengths of their names, then by their bytes.
    pub(super) fn is_after(&self, other: &Key<'_>) -> bool {
        (self.name.len(), &*self.name) > (other.name.len(), &*other.name)
    }
}

/// Parses a JSON text.
///
/// # Errors
/// [`crate::Error::Malformed`] if it is not JSON.
pub(super) fn parse(text: &[u8]) -> Result<Node<'_>> {
    let mut parser = Parser { text, at: 0 };
    let root = parser.parse_value(0)?;
    parser.skip_space();
    if parser.at < text.len() { Err(malformed("its text continues after it")) } else { Ok(root) }
}

/// Removes the quotes and escapes of a string.
///
/// # Errors
/// As [`parse`].
pub(super) fn unquoted(quoted: &[u8]) -> Result<Cow<'_, str>> {
    let no_string = || malformed("a string is none");
    let text = std::str::from_utf8(quoted).map_err(|_| no_string())?;
    let inside = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).ok_or_else(no_string)?;
    if !inside.contains('\\') {
        return Ok(inside.into());
    }
    let mut name = String::with_capacity(inside.len());
    let mut characters = inside.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            name.push(character);
            continue;
        }
        name.push(match characters.next() {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => read_unicode(&mut characters).ok_or_else(no_string)?,
            Some(other @ ('"' | '\\' | '/')) => other,
            _ => return Err(no_string()),
        });
    }
    Ok(name.into())
}

/// Reads the character after `\u`: four digits, and an escape of four more if the first are half of a surrogate pair.
fn read_unicode(characters: &mut std::str::Chars<'_>) -> Option<char> {
    fn read_unit(characters: &mut std::str::Chars<'_>) -> Option<u32> {
        let (digits, rest) = characters.as_str().split_at_checked(4)?;
        *characters = rest.chars();
        u32::from_str_radix(digits, 16).ok()
    }
    let first = read_unit(characters)?;
    if !(0xd800..0xdc00).contains(&first) {
        return char::from_u32(first);
    }
    *characters = characters.as_str().strip_prefix("\\u")?.chars();
    let second = read_unit(characters)?;
    let low = second.checked_sub(0xdc00).filter(|&low| low < 0x400)?;
    char::from_u32(0x10000 + (first - 0xd800) * 0x400 + low)
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Parser<'a> {
    fn parse_value(&mut self, depth: usize) -> Result<Node<'a>> {
        if depth > DEPTH_MAX {
            return Err(malformed("it is nested too deeply"));
        }
        self.skip_space();
        match self.peek() {
            Some(b'{') => self
                .parse_elements(b'}', |parser| {
                    parser.skip_space();
                    let text = parser.parse_string()?;
                    let name = unquoted(text)?;
                    parser.skip_space();
                    parser.take(b':')?;
                    Ok((Key { text: text.into(), name }, parser.parse_value(depth + 1)?))
                })
                .map(Node::Object),
            Some(b'[') => self.parse_elements(b']', |parser| parser.parse_value(depth + 1)).map(Node::Array),
            Some(b'"') => self.parse_string().map(Node::Scalar),
            _ => self.parse_scalar().map(Node::Scalar),
        }
    }

    /// Parses the items between brackets, separated by commas.
    fn parse_elements<T>(&mut self, close: u8, mut element: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        self.at += 1;
        let mut elements = Vec::new();
        self.skip_space();
        if self.peek() == Some(close) {
            self.at += 1;
            return Ok(elements);
        }
        loop {
            elements.push(element(self)?);
            self.skip_space();
            if self.peek() == Some(close) {
                self.at += 1;
                return Ok(elements);
            }
            self.take(b',')?;
        }
    }

    /// Takes a string with its quotes.
    fn parse_string(&mut self) -> Result<&'a [u8]> {
        let start = self.at;
        self.take(b'"')?;
        loop {
            match self.peek() {
                None => return Err(malformed("a string does not end")),
                Some(b'"') => break,
                Some(b'\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        self.at += 1;
        Ok(&self.text[start..self.at])
    }

    /// Takes a number or a literal.
    fn parse_scalar(&mut self) -> Result<&'a [u8]> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let scalar = &rest[..rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len())];
        self.at += scalar.len();
        let is_number = || {
            let text = std::str::from_utf8(scalar).unwrap_or_default();
            scalar.iter().any(u8::is_ascii_digit) && text.parse::<f64>().is_ok()
        };
        match scalar {
            b"null" | b"true" | b"false" => Ok(scalar),
            _ if is_number() => Ok(scalar),
            _ => Err(malformed("a value is none")),
        }
    }

    fn skip_space(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Result<()> {
        if self.peek() != Some(byte) {
            return Err(malformed("its text is no JSON"));
        }
        self.at += 1;
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(text: &str) -> String {
        let mut written = Vec::new();
        parse(text.as_bytes()).unwrap().append_to(&mut written);
        String::from_utf8(written).unwrap()
    }

    #[test]
    fn json_of_mysql_is_encoded_to_the_same_bytes() {
        for text in [
            "null",
            "-1.50",
            "1e100",
            r#""a\"\\ \u0001ä""#,
            "[]",
            "{}",
            r#"{"": [{}, [true, false], "]"], "a\"b": {"c": "}"}}"#,
            "123456789012345678901234567890.5",
        ] {
            assert_eq!(again(text), text);
        }
        assert_eq!(again(" {\"a\":\n[1 ,2 ] } "), r#"{"a": [1, 2]}"#);
    }

    #[test]
    fn malformed_json_is_refused() {
        for text in
            ["", "{", "[1,]", "{\"a\"}", "{a: 1}", "1 2", "nul", "inf", "NaN", "\"a", "\"a\\", "[1 2]", "e", "--1"]
        {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
        assert!(parse("[".repeat(1000).as_bytes()).is_err());
    }

    #[test]
    fn event_type_names_equal_their_numbers() {
        let name = |quoted: &str| unquoted(quoted.as_bytes()).unwrap().into_owned();
        assert_eq!(name(r#""a\"\\\/\n\u00e4""#), "a\"\\/\nä");
        assert_eq!(name(r#""\ud83c\udf0a!""#), "🌊!");
        for text in [r#""\ud83c""#, r#""\ud83c\u0041""#, r#""\u12""#, r#""\x""#, "a"] {
            assert!(unquoted(text.as_bytes()).is_err(), "{text}");
        }
    }
}
