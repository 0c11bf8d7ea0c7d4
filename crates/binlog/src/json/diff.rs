//! MySQL's changes of JSON documents, which an update can hold instead of a column's new document
//! (`binlog_row_value_options=PARTIAL_JSON`), and how to apply them to a document's text.
//!
//! Format: MySQL internals, the comment of `Json_diff_vector::write_binary`: for each change its operation, its path
//! with the length before it, and (but for removals) its value in binary with the length before it.

pub use super::tree::Leg;
use super::tree::{self, Key, Node};
use crate::cursor::Cursor;
use crate::{Error, Result};

const WHAT: &str = "change of a JSON document";

/// The operation of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Replaces an existing value.
    Replace,
    /// Adds a member to an object that has none of that name, or an element to an array before the element at that
    /// place.
    Insert,
    /// Removes an existing value.
    Remove,
}

/// One change of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diff<'a> {
    /// The operation.
    pub operation: Operation,
    /// The path of the value, in MySQL's form: `$.member."other member"[3]`.
    pub path: &'a str,
    /// The path of the object or array that holds the value: without the last step.
    pub parent_path: &'a str,
    /// The path, parsed.
    pub legs: Vec<Leg<'a>>,
    /// The new value in binary, as [`super::text`] takes it; empty for removals.
    pub value: &'a [u8],
}

/// The reason why changes cannot be applied to a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// A change does not decode.
    #[error(transparent)]
    Binlog(#[from] Error),
    /// The document is not the one that the change was made for.
    #[error("its JSON document is not what the source changed: {0}")]
    Misfit(String),
}

/// Parses the changes of a column in an image, in order.
///
/// # Errors
/// [`Error::Truncated`], [`Error::Malformed`]; [`Error::Unsupported`] for an unknown operation.
pub fn diffs(bytes: &[u8]) -> Result<Vec<Diff<'_>>> {
    let mut cursor = Cursor::new(bytes, WHAT);
    let mut diffs = Vec::new();
    while cursor.left() > 0 {
        let operation = match cursor.u8()? {
            0 => Operation::Replace,
            1 => Operation::Insert,
            2 => Operation::Remove,
            other => return Err(Error::unsupported(WHAT, format!("the operation {other}"))),
        };
        let length = cursor.length_encoded_count()?;
        let path = std::str::from_utf8(cursor.take(length)?).map_err(|_| malformed("its path is not UTF-8"))?;
        let (legs, parent_path) = parse_legs(path)?;
        if legs.is_empty() && operation != Operation::Replace {
            return Err(malformed("it adds or removes the whole document"));
        }
        let value = match operation {
            Operation::Remove => &[][..],
            Operation::Replace | Operation::Insert => {
                let length = cursor.length_encoded_count()?;
                cursor.take(length)?
            }
        };
        diffs.push(Diff { operation, path, parent_path, legs, value });
    }
    Ok(diffs)
}

/// Applies changes to the text of a document. If that text is from [`super::text`], the result is the text that
/// [`super::text`] would return for MySQL's changed document.
///
/// # Errors
/// [`ApplyError::Misfit`] if the changes do not fit the document, by the rules of MySQL's own replication.
pub fn apply(document: &[u8], diffs: &[Diff<'_>]) -> std::result::Result<Vec<u8>, ApplyError> {
    let no_value = |diff: &&Diff<'_>| diff.operation == Operation::Remove;
    let value = |diff: &Diff<'_>| if no_value(&diff) { Ok(vec![]) } else { Ok(super::text(diff.value)?.text) };
    let values = diffs.iter().map(value).collect::<Result<Vec<_>>>()?;
    let misfit = |why: &str| ApplyError::Misfit(why.to_owned());
    let mut root = tree::parse(document).map_err(|_| misfit("it is none"))?;
    for (diff, value) in diffs.iter().zip(&values) {
        let new = match diff.operation {
            Operation::Remove => None,
            Operation::Replace | Operation::Insert => Some(tree::parse(value)?),
        };
        let changed = change(&mut root, diff, new);
        changed.ok_or_else(|| misfit(&format!("{} cannot be changed in it", diff.path)))?;
    }
    let mut text = Vec::with_capacity(document.len());
    root.append_to(&mut text);
    Ok(text)
}

/// `None` if the change does not fit.
fn change<'a>(root: &mut Node<'a>, diff: &Diff<'_>, new: Option<Node<'a>>) -> Option<()> {
    let Some((last, way)) = diff.legs.split_last() else {
        *root = new?;
        return Some(());
    };
    let parent = way.iter().try_fold(root, |node, leg| node.child(leg))?;
    match (diff.operation, new) {
        (Operation::Replace, Some(new)) => *parent.child(last)? = new,
        (Operation::Insert, Some(new)) => match (parent, last) {
            (Node::Array(elements), Leg::Element(_) | Leg::Last(_)) => {
                elements.insert(last.place_to_insert(elements.len()), new);
            }
            (Node::Object(members), Leg::Member(name)) => {
                if members.iter().any(|(key, _)| key.name == *name) {
                    return None;
                }
                let key = Key::new(name.clone().into_owned());
                let place = members.iter().position(|(other, _)| other.is_after(&key)).unwrap_or(members.len());
                members.insert(place, (key, new));
            }
            _ => return None,
        },
        (Operation::Remove, None) => match (parent, last) {
            (Node::Array(elements), Leg::Element(_) | Leg::Last(_)) => {
                elements.remove(last.place(elements.len())?);
            }
            (Node::Object(members), Leg::Member(name)) => {
                let place = members.iter().position(|(key, _)| key.name == *name)?;
                members.remove(place);
            }
            _ => return None,
        },
        _ => return None,
    }
    Some(())
}

/// Parses a path; also returns it without its last step.
fn parse_legs(path: &str) -> Result<(Vec<Leg<'_>>, &str)> {
    let unknown = || Error::unsupported(WHAT, format!("the path {path}"));
    let mut rest = path.strip_prefix('$').ok_or_else(unknown)?;
    let mut legs = Vec::new();
    let mut parent = path;
    while !rest.is_empty() {
        parent = &path[..path.len() - rest.len()];
        if let Some(member) = rest.strip_prefix(".\"") {
            let end = find_closing_quote(member).ok_or_else(unknown)?;
            // A quoted member is a JSON string.
            let quoted = &rest[1..end + 3];
            let name = tree::unquoted(quoted.as_bytes()).map_err(|_| unknown())?;
            legs.push(Leg::Member(name));
            rest = &member[end + 1..];
        } else if let Some(member) = rest.strip_prefix('.') {
            let (name, after) = member.split_at(member.find(['.', '[']).unwrap_or(member.len()));
            if name.is_empty() || name == "*" {
                return Err(unknown());
            }
            legs.push(Leg::Member(name.into()));
            rest = after;
        } else if let Some((place, after)) = rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            legs.push(parse_element(place).ok_or_else(unknown)?);
            rest = after;
        } else {
            return Err(unknown());
        }
    }
    Ok((legs, parent))
}

/// Finds the first quote that no backslash escapes.
fn find_closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let is_it = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_it
    })
}

/// `3`, `last` or `last-3`.
fn parse_element(place: &str) -> Option<Leg<'static>> {
    match place.strip_prefix("last") {
        None => Some(Leg::Element(place.parse().ok()?)),
        Some("") => Some(Leg::Last(0)),
        Some(before) => Some(Leg::Last(before.strip_prefix('-')?.parse().ok()?)),
    }
}

fn malformed(why: &str) -> Error {
    Error::malformed(WHAT, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRING_Z: &[u8] = &[12, 1, b'z'];
    const SEVEN: &[u8] = &[5, 7, 0];

    fn encoded(changes: &[(u8, &str, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (operation, path, value) in changes {
            bytes.extend([*operation, path.len() as u8]);
            bytes.extend_from_slice(path.as_bytes());
            if *operation != 2 {
                bytes.push(value.len() as u8);
                bytes.extend_from_slice(value);
            }
        }
        bytes
    }

    fn applied(document: &str, changes: &[(u8, &str, &[u8])]) -> std::result::Result<String, ApplyError> {
        let bytes = encoded(changes);
        apply(document.as_bytes(), &diffs(&bytes)?).map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn xids_of_logged_statements_are_read() {
        // JSON_SET(j2, '$[last]', 'z', '$[9]', 1.5) of MySQL 9.7, of ["x", {"k": 1}].
        let logged = b"\x00\x07$[last]\x03\x0c\x01z\x01\x04$[9]\x07\x0f\xf6\x04\x02\x01\x81\x05";
        let changes = diffs(logged).unwrap();
        assert_eq!(changes.len(), 2);
        let text = apply(br#"["x", {"k": 1}]"#, &changes).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), r#"["x", "z", 1.5]"#);
        for length in 1..logged.len() {
            assert!(length == 13 || diffs(&logged[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn json_changes_are_applied_in_order() {
        let document = r#"{"a": 1, "b": [1, 2, 3], "sp ace": {"x\"y": "long"}}"#;
        let changes: [(u8, &str, &[u8]); 4] = [
            (0, r#"$."sp ace"."x\"y""#, STRING_Z),
            (0, "$.a", SEVEN),
            (2, "$.b[0]", &[]),
            (1, "$.b[last-1]", STRING_Z),
        ];
        let expected = r#"{"a": 7, "b": ["z", 2, 3], "sp ace": {"x\"y": "z"}}"#;
        assert_eq!(applied(document, &changes).unwrap(), expected);
        assert_eq!(applied(document, &[(0, "$", STRING_Z)]).unwrap(), r#""z""#);
        assert_eq!(
            applied("[]", &[(1, "$[0]", SEVEN), (1, "$[7]", STRING_Z), (1, "$[last-9]", SEVEN)]).unwrap(),
            r#"[7, 7, "z"]"#
        );
        assert_eq!(applied(document, &[]).unwrap(), document);
    }

    #[test]
    fn json_new_member_is_inserted_in_mysqls_order() {
        let document = r#"{"b": 1, "ä": 2, "ccc": 3}"#;
        let changes: [(u8, &str, &[u8]); 4] =
            [(1, "$.a", SEVEN), (1, "$.dddd", SEVEN), (1, "$.zz", SEVEN), (1, r#"$."\n""#, SEVEN)];
        let expected = r#"{"\n": 7, "a": 7, "b": 1, "zz": 7, "ä": 2, "ccc": 3, "dddd": 7}"#;
        assert_eq!(applied(document, &changes).unwrap(), expected);
    }

    #[test]
    fn json_change_of_unfitting_document_is_an_error() {
        for (document, operation, path) in [
            ("{}", 0, "$.a"),
            ("{}", 2, "$.a"),
            (r#"{"a": 1}"#, 1, "$.a"),
            (r#"{"a": 1}"#, 1, "$[0]"),
            (r#"{"a": 1}"#, 0, "$.a[0]"),
            (r#"{"a": 1}"#, 1, "$.b.c"),
            ("[1]", 1, "$.a"),
            ("[1]", 0, "$[1]"),
            ("[1]", 2, "$[last-1]"),
            ("[1", 0, "$"),
            ("", 0, "$"),
        ] {
            let error = applied(document, &[(operation, path, SEVEN)]).unwrap_err();
            assert!(matches!(error, ApplyError::Misfit(_)), "{document} {path}: {error}");
        }
    }

    #[test]
    fn json_change_with_unknown_path_or_operation_is_refused() {
        for path in ["", "a", "$.", "$.*", "$**.a", "$[*]", "$[1 to 2]", "$.\"a", "$[1"] {
            assert!(diffs(&encoded(&[(0, path, SEVEN)])).is_err(), "{path}");
        }
        assert!(diffs(&encoded(&[(3, "$.a", SEVEN)])).is_err());
        assert!(diffs(&encoded(&[(2, "$", &[])])).is_err());
    }
}
