//! CREATE, ALTER, DROP and RENAME: which of them define data, and which the server.

use spate_sql::{Token, TokenKind};

/// What holds data. Stored programs are not among them: what they execute later, nothing looks at.
const OF_DATA: [&str; 8] = ["TABLE", "TABLES", "VIEW", "INDEX", "DATABASE", "SCHEMA", "SEQUENCE", "KEY"];
/// Words before what is defined.
const ADJECTIVES: [&str; 9] =
    ["OR", "REPLACE", "TEMPORARY", "UNIQUE", "FULLTEXT", "SPATIAL", "ONLINE", "OFFLINE", "IGNORE"];
/// Engines that keep their rows in files that the statement names, or at other servers.
const ENGINES_ELSEWHERE: [&str; 6] = ["CONNECT", "FEDERATED", "FEDERATEDX", "SPIDER", "S3", "CASSANDRA"];
/// Schemas that belong to the server.
const OF_SERVER: [&str; 3] = ["mysql", "sys", "performance_schema"];

/// True if it defines data; `tokens` begin behind the verb.
pub(crate) fn defines_data(tokens: &[Token<'_>]) -> bool {
    let mut rest = tokens;
    loop {
        let Some(first) = rest.first() else { return false };
        rest = match () {
            () if first.is_one_of(&ADJECTIVES) => &rest[1..],
            () if first.is("ALGORITHM") => rest.get(3..).unwrap_or_default(),
            () if first.is("SQL") => rest.get(3..).unwrap_or_default(),
            () if first.is("DEFINER") => behind_account(rest.get(2..).unwrap_or_default()),
            () => return first.is_one_of(&OF_DATA),
        };
    }
}

/// What is behind `user@host`, or `CURRENT_USER()`.
fn behind_account<'a, 'b>(tokens: &'a [Token<'b>]) -> &'a [Token<'b>] {
    let marks = |rest: &[Token<'_>], marks: &[u8]| {
        marks.iter().enumerate().all(|(at, mark)| rest.get(at).is_some_and(|token| token.is_mark(*mark)))
    };
    let rest = tokens.get(1..).unwrap_or_default();
    match () {
        () if marks(rest, b"@") => rest.get(2..).unwrap_or_default(),
        () if marks(rest, b"()") => &rest[2..],
        () => rest,
    }
}

/// True if a statement that writes touches files, or data of other servers.
pub(crate) fn is_outside(tokens: &[Token<'_>]) -> bool {
    tokens.iter().enumerate().any(|(at, token)| {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        let is_behind = |words: &[&str]| before.is_some_and(|before| before.is_one_of(words));
        match () {
            () if token.is_one_of(&["TABLESPACE", "SONAME"]) => true,
            () if token.is("DIRECTORY") => is_behind(&["DATA", "INDEX"]),
            () if token.is("ENGINE") => {
                let behind = tokens[at + 1..].iter().find(|token| !token.is_mark(b'='));
                let name = behind.and_then(Token::unquoted).unwrap_or_default();
                ENGINES_ELSEWHERE.iter().any(|engine| spells(&name, engine))
            }
            () => false,
        }
    })
}

/// True if this is a schema of the server's own.
pub(crate) fn is_schema_of_server(name: &str) -> bool {
    OF_SERVER.iter().any(|schema| spells(name, schema))
}

/// True if a statement names a schema of the server's own.
pub(crate) fn names_schema_of_server(tokens: &[Token<'_>]) -> bool {
    let is_it = |token: &Token<'_>| {
        let is_name = matches!(token.kind, TokenKind::Word | TokenKind::Name | TokenKind::Quoted);
        is_name && token.name().is_none_or(|name| is_schema_of_server(&name))
    };
    let is_qualified = |at: usize| tokens.get(at + 1).is_some_and(|token| token.is_mark(b'.'));
    let is_of_schema = tokens.iter().take(4).any(|token| token.is_one_of(&["DATABASE", "SCHEMA"]));
    tokens.iter().enumerate().any(|(at, token)| (is_of_schema || is_qualified(at)) && is_it(token))
}

/// True if a server may take a name for this one: collations fold letters beyond ASCII into those of ASCII.
fn spells(name: &str, other: &str) -> bool {
    name.chars().count() == other.len()
        && name.chars().zip(other.chars()).all(|(one, other)| !one.is_ascii() || one.eq_ignore_ascii_case(&other))
}
