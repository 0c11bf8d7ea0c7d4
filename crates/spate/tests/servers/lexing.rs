//! The lexer against running servers: texts made at random over the characters that mislead lexers, in random modes and character
//! sets. What the server answers shows how it read a text: each string as a value, each quoted name as a column's.
//!
//! `SPATE_TEST_LEXING_SECONDS=3600` lets it run for longer than the few seconds of an ordinary test.

use std::time::{Duration, Instant};

use spate_connection::{ConnectOptions, Connection, Error, ResultSet, ServerVersion, Vendor};
use spate_sql::reading::{Reading, Server as Reader, Servers, Vendor as ReaderVendor};
use spate_sql::{Lexer, Token, TokenKind, charset};

use crate::support::{Kind, Random, Server};

const SECONDS_VARIABLE: &str = "SPATE_TEST_LEXING_SECONDS";
const SECONDS: u64 = 8;

/// Refusals that have nothing to do with where a token ends: a text that is none in its character set, a name that is too long or
/// ends with a space, a column's name that cannot be shown, a repeated one, bad numbers of characters.
const OTHER_REFUSALS: [u16; 8] = [1059, 1166, 1300, 1366, 3854, 3988, 1267, 1115];

/// A session's settings, and how its texts are read.
struct Mode {
    sql_mode: u64,
    charset: &'static str,
}

const MODES: [(u64, &str); 6] = [
    (1 << 1, "PIPES_AS_CONCAT"),
    (1 << 2, "ANSI_QUOTES"),
    (1 << 3, "IGNORE_SPACE"),
    (1 << 9, "ORACLE"),
    (1 << 10, "MSSQL"),
    (1 << 20, "NO_BACKSLASH_ESCAPES"),
];

const CHARSETS: [(&str, u32); 16] = [
    ("utf8mb4", 45),
    ("utf8mb3", 33),
    ("latin1", 8),
    ("latin2", 9),
    ("cp1251", 51),
    ("koi8r", 7),
    ("greek", 25),
    ("binary", 63),
    ("ascii", 11),
    ("sjis", 13),
    ("cp932", 95),
    ("gbk", 28),
    ("big5", 1),
    ("euckr", 19),
    ("ujis", 12),
    ("gb18030", 248),
];

/// What stands between tokens.
const GAPS: [&[u8]; 35] = [
    b" ",
    b"\t",
    b"\n",
    b"\x0b",
    b"\x0c",
    b"\r",
    b"",
    b"\xa0",
    b"\xc2\xa0",
    b"-- x'\n",
    b"--\t'\n",
    b"--\n",
    b"--\x01`\n",
    b"--\xa0'\n",
    b"#'\n",
    b"#\\\n",
    b"/*'*/",
    b"/**/",
    b"/* /* */",
    b"/*!40101 */",
    b"/*!50701 */",
    b"/*!50701 'x'*/",
    b"/*!99999 ' */",
    b"/*M!*/",
    b"/*M!100100 */",
    b"/*M!50701 'm'*/",
    b"/*!*/",
    b"/*!123 */",
    b"/*!080000 'y'*/",
    b"/*!080000'y'*/",
    b"/*!100000 'z' */",
    b"/*! /* ' */ 'w'*/",
    b"/*!999999 /* ' */ ' */",
    b"/*+ */",
    b"--",
];

/// What strings and names are made of.
const PIECES: [&[u8]; 38] = [
    b"a",
    b"b",
    b"1",
    b" ",
    b"'",
    b"''",
    b"\"",
    b"\"\"",
    b"`",
    b"``",
    b"\\",
    b"\\\\",
    b"\\'",
    b"\\\"",
    b"\\`",
    b"--",
    b"-- ",
    b"--\t",
    b"/*",
    b"*/",
    b"/*!",
    b"#",
    b";",
    b"\n",
    b"\x95\x5c",
    b"\x95",
    b"\xbf\x5c",
    b"\xbf\x27",
    b"\x81\x30\x81\x30",
    b"\x81\x30\x81\x5c",
    b"\xa5\x5c",
    b"\x83\x60",
    b"\xc3\xa4",
    b"\xe4",
    b"\xf0\x9f\x98\x80",
    b"\xff",
    b"[",
    b"]",
];

fn pick<'a>(random: &mut Random, from: &[&'a [u8]]) -> &'a [u8] {
    from[random.below(from.len() as u64) as usize]
}

/// A text that is a SELECT more often than not.
fn text(random: &mut Random) -> Vec<u8> {
    let mut sql = b"SELECT".to_vec();
    for item in 0..=random.below(3) {
        if item > 0 {
            gap(random, &mut sql);
            sql.push(b',');
        }
        gap(random, &mut sql);
        match random.below(6) {
            0 => sql.extend_from_slice(pick(
                random,
                &[b"1", b"12", b"x'41'", b"N'n'", b"@v", b"@`v w`", b"@'v'", b"2*/*x*/3"],
            )),
            _ => quoted(random, &mut sql, true),
        }
        gap(random, &mut sql);
        if random.below(2) == 0 {
            sql.extend_from_slice(b"AS");
            gap(random, &mut sql);
        }
        match random.below(3) {
            0 => sql.extend_from_slice(pick(random, &[b"n", b"n1", b"t\xe4", b"t\xc3\xa4", b"1n", b"n$", b"_n"])),
            _ => quoted(random, &mut sql, false),
        }
    }
    gap(random, &mut sql);
    // One byte in a while is another.
    if random.below(8) == 0 {
        let at = random.below(sql.len() as u64) as usize;
        sql[at] = pick(random, &PIECES)[0];
    }
    sql
}

fn gap(random: &mut Random, sql: &mut Vec<u8>) {
    if random.below(3) == 0 {
        sql.push(b' ');
    }
    for _ in 0..random.below(3) {
        sql.extend_from_slice(pick(random, &GAPS));
    }
}

/// A string or a quoted name; sometimes its quotes are closed within it.
fn quoted(random: &mut Random, sql: &mut Vec<u8>, is_text: bool) {
    let quote = match random.below(4) {
        0 => b'"',
        1 if !is_text => b'[',
        _ if is_text => b'\'',
        _ => b'`',
    };
    sql.push(quote);
    for _ in 0..random.below(5) {
        sql.extend_from_slice(pick(random, &PIECES));
    }
    sql.push(if quote == b'[' { b']' } else { quote });
}

/// A column as the tokens say that the server shows it.
#[derive(Debug, PartialEq)]
struct Column {
    /// `None`: not known.
    value: Option<Vec<u8>>,
    name: Option<String>,
}

/// The columns of a SELECT of strings and numbers with names; `None` if the tokens are something else.
fn columns(tokens: &[Token<'_>], reading: &Reading) -> Option<Vec<Column>> {
    let (first, items) = tokens.split_first()?;
    if !first.is("SELECT") {
        return None;
    }
    items.split(|token| token.is_mark(b',')).map(|item| column(item, reading)).collect()
}

fn column(item: &[Token<'_>], reading: &Reading) -> Option<Column> {
    let (name, values) = item.split_last()?;
    let values = match values {
        [values @ .., keyword] if keyword.is("AS") => values,
        values => values,
    };
    let name = match name.kind {
        TokenKind::Word | TokenKind::Quoted if !name.is_one_of(&["AS", "SELECT"]) && !name.is_number() => {
            name.name()?
        }
        _ => return None,
    };
    let value = match values {
        [number] if number.is_number() => {
            let zeros = number.text.iter().take_while(|digit| **digit == b'0').count();
            Some(number.text[zeros.min(number.text.len() - 1)..].to_vec())
        }
        [first, ..] if values.iter().all(|token| token.kind == TokenKind::Text) => {
            let _is_text = first;
            Some(values.iter().flat_map(|text| unescaped(text.text, reading)).collect())
        }
        [prefix, text] if prefix.is("x") || prefix.is("N") => {
            let is_hexadecimal = text.text[1..text.text.len() - 1].iter().all(u8::is_ascii_hexdigit);
            if text.kind != TokenKind::Text || prefix.is("x") && (!is_hexadecimal || text.text.len() % 2 == 1) {
                return None;
            }
            None
        }
        [at, name] if at.is_mark(b'@') && !name.text.is_empty() => {
            let is_quoted = matches!(name.text[0], b'`' | b'"' | b'\'');
            if name.kind != TokenKind::Variable && !is_quoted {
                return None;
            }
            None
        }
        [one, star, other] if one.is_number() && star.is_mark(b'*') && other.is_number() => None,
        _ => return None,
    };
    Some(Column { value, name: Some(name) })
}

/// The value of a string.
fn unescaped(text: &[u8], reading: &Reading) -> Vec<u8> {
    let (quote, body) = (text[0], &text[1..text.len() - 1]);
    let mut value = Vec::new();
    let mut at = 0;
    while at < body.len() {
        let length = reading.encoding.character_bytes(&body[at..]);
        if length > 1 {
            value.extend_from_slice(&body[at..at + length]);
            at += length;
        } else if body[at] == b'\\' && !reading.plain_backslashes && at + 1 < body.len() {
            match body[at + 1] {
                b'n' => value.push(b'\n'),
                b't' => value.push(b'\t'),
                b'r' => value.push(b'\r'),
                b'b' => value.push(8),
                b'0' => value.push(0),
                b'Z' => value.push(26),
                other @ (b'_' | b'%') => value.extend_from_slice(&[b'\\', other]),
                other => value.push(other),
            }
            at += 2;
        } else {
            value.push(body[at]);
            at += if body[at] == quote { 2 } else { 1 };
        }
    }
    value
}

struct Session {
    connection: Connection,
    servers: Servers,
}

impl Session {
    fn open(server: &Server) -> Session {
        let endpoint = format!("root@{}", server.socket().display()).parse().unwrap();
        let connection = Connection::connect(&endpoint, &ConnectOptions::new("replica")).unwrap();
        let servers = Servers::only(reader(connection.server_version()));
        Session { connection, servers }
    }

    /// Sets the session up; its sql_mode, since some modes switch others on.
    fn set(&mut self, sql_mode: u64, charset: &str) -> u64 {
        let sql = format!(
            "SET sql_mode={sql_mode}, character_set_connection={charset}, character_set_results=NULL, character_set_client={charset}"
        );
        self.connection.execute(sql.as_bytes()).unwrap();
        let set = self.connection.query("SELECT @@sql_mode").unwrap().single_text().unwrap_or_default();
        MODES.iter().filter(|(_, name)| set.split(',').any(|one| one == *name)).map(|(bit, _)| bit).sum()
    }

    /// What the server makes of a text; the error's number if it refuses it.
    fn answer(&mut self, sql: &[u8]) -> Result<ResultSet, (u16, String)> {
        self.connection.send_single(sql).unwrap();
        match self.connection.receive_rows() {
            Ok(set) => Ok(set),
            Err(Error::Server { error, .. }) => Err((error.code, error.message)),
            Err(error) => panic!("{error}, after {}", sql.escape_ascii()),
        }
    }
}

fn reader(version: &ServerVersion) -> Reader {
    let vendor = match version.vendor {
        Vendor::MariaDb => ReaderVendor::MariaDb,
        Vendor::MySql => ReaderVendor::MySql,
    };
    Reader { vendor, version: version.number() }
}

/// Compares what the lexer and the server make of a text. True if both made something of it.
fn compare(session: &mut Session, sql: &[u8], mode: &Mode, reading: &Reading) -> bool {
    let mut lexer = Lexer::new(sql, reading);
    let tokens: Vec<Token<'_>> = lexer.by_ref().collect();
    let answer = session.answer(sql);
    if lexer.doubt().is_some() {
        return false;
    }
    let told = || {
        let set = MODES.iter().filter(|(bit, _)| mode.sql_mode & bit != 0).map(|(_, name)| *name).collect::<Vec<_>>();
        format!("{} in {} with {set:?}; tokens {tokens:?}", sql.escape_ascii(), mode.charset)
    };
    let expected = columns(&tokens, reading);
    match (answer, expected) {
        (Ok(set), Some(expected)) => {
            assert_eq!(set.columns.len(), expected.len(), "another number of columns: {}", told());
            for (place, column) in expected.iter().enumerate() {
                if let Some(name) = &column.name {
                    // Whatever counts as white space is left out around a column's name, and only there.
                    let trimmed = |name: &str| name.trim_matches(|c| matches!(c, '\t'..='\r' | ' ')).to_owned();
                    assert_eq!(trimmed(&set.columns[place]), trimmed(name), "another name: {}", told());
                }
                if let Some(value) = &column.value {
                    let actual = set.rows[0][place].as_deref().unwrap_or_default();
                    assert_eq!(
                        actual.escape_ascii().to_string(),
                        value.escape_ascii().to_string(),
                        "another value: {}",
                        told()
                    );
                }
            }
            true
        }
        (Err((code, message)), Some(_)) => {
            assert!(OTHER_REFUSALS.contains(&code), "the server refuses with {code} {message}: {}", told());
            false
        }
        // The server takes what is no SELECT of this form: an expression, or a name without AS that is a string.
        (Ok(_) | Err(_), None) => false,
    }
}

fn against(kind: Kind, modes: &[u64]) {
    let server = Server::replica(kind, &[]);
    let mut session = Session::open(&server);
    let seconds = std::env::var(SECONDS_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random::new(seconds);
    let (mut texts, mut understood) = (0_u64, 0_u64);
    while Instant::now() < end {
        let (charset, collation) = CHARSETS[random.below(CHARSETS.len() as u64) as usize];
        assert_eq!(charset::of_collation(collation), Some(charset));
        if charset == "gb18030" && kind != Kind::Mysql {
            continue;
        }
        let sql_mode = modes.iter().filter(|_| random.below(4) == 0).sum();
        let mode = Mode { sql_mode: session.set(sql_mode, charset), charset };
        let reading = Reading::new(Some(mode.sql_mode), Some(collation), session.servers);
        for _ in 0..100 {
            let sql = text(&mut random);
            texts += 1;
            understood += u64::from(compare(&mut session, &sql, &mode, &reading));
        }
    }
    #[expect(clippy::print_stdout, reason = "what the test has seen")]
    {
        println!("{kind:?}: {texts} texts, {understood} of them understood by both");
    }
    assert!(understood * 20 > texts, "of {texts} texts, only {understood} were understood");
}

#[test]
fn lexer_reads_as_mariadb() {
    against(Kind::Mariadb, &MODES.map(|(bit, _)| bit));
}

#[test]
fn lexer_reads_as_mysql() {
    against(Kind::Mysql, &[1 << 1, 1 << 2, 1 << 3, 1 << 20]);
}
