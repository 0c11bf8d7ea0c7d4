//! The form of a copy of a temporary table in Spate's schema. Any account that may write to that schema may have written it, so
//! Spate executes it only if it has exactly the form that Spate and `SHOW CREATE TABLE` give it.
//!
//! It is read in one mode only, that of the session which makes tables again: UTF-8, backslashes escape, double quotes are none.

use spate_schedule::TableName;
use spate_schedule::own_schema::OWN_SCHEMA;

use spate_connection::quote;

/// How the definition of a temporary table begins. (What is not temporary shows another beginning: a temporary table that is gone
/// may have hidden a table.)
pub(super) const BEGINNING: &str = "CREATE TEMPORARY TABLE ";

/// Others read files, or call other servers.
const ENGINES: [&str; 5] = ["InnoDB", "MyISAM", "Aria", "MEMORY", "HEAP"];

/// Options of a table that only say how it is kept.
const OPTIONS: [&str; 22] = [
    "AUTO_INCREMENT",
    "AVG_ROW_LENGTH",
    "CHARSET",
    "CHECKSUM",
    "COLLATE",
    "COMMENT",
    "COMPRESSION",
    "DELAY_KEY_WRITE",
    "ENCRYPTED",
    "ENCRYPTION",
    "ENGINE",
    "KEY_BLOCK_SIZE",
    "MAX_ROWS",
    "MIN_ROWS",
    "PACK_KEYS",
    "PAGE_CHECKSUM",
    "PAGE_COMPRESSED",
    "ROW_FORMAT",
    "STATS_AUTO_RECALC",
    "STATS_PERSISTENT",
    "STATS_SAMPLE_PAGES",
    "TRANSACTIONAL",
];

/// Words with which a query begins or goes on; no column has one outside of quotes.
const QUERY_WORDS: [&str; 9] =
    ["SELECT", "TABLE", "VALUES", "INTO", "UNION", "EXCEPT", "INTERSECT", "PROCEDURE", "DIRECTORY"];

/// Schemas in which no session of a source has reason to make a temporary table. One would hide a table that Spate itself uses.
const SYSTEM_SCHEMAS: [&str; 5] = [OWN_SCHEMA, "mysql", "sys", "information_schema", "performance_schema"];

/// Characters of a name.
const NAME_CHARACTERS_MAX: usize = 64;

type Checked = Result<(), String>;

/// Checks a table's name.
pub(super) fn check_name(name: &TableName) -> Checked {
    let is_name = |part: &str| (1..=NAME_CHARACTERS_MAX).contains(&part.chars().count()) && !part.contains('\0');
    if !is_name(&name.schema) || !is_name(&name.table) {
        return Err("that is no name of a table".to_owned());
    }
    match SYSTEM_SCHEMAS.iter().any(|schema| name.schema.eq_ignore_ascii_case(schema)) {
        true => Err("it would hide a table of the server's or of Spate's".to_owned()),
        false => Ok(()),
    }
}

/// Checks that a text can do nothing but create this temporary table, empty.
pub(super) fn check_definition(definition: &str, name: &TableName) -> Checked {
    let beginning = format!("{BEGINNING}{} (", quote::qualified(&name.schema, &name.table));
    let Some(rest) = definition.strip_prefix(&beginning) else {
        return Err(format!("its definition does not begin with {beginning}"));
    };
    let mut tokens = Tokens { rest, in_versioned_comment: false };
    // A query in parentheses begins with a word.
    if !matches!(tokens.next()?, Some(Token::Name(_))) {
        return Err("its definition does not begin with a column".to_owned());
    }
    let mut depth = 1;
    while depth > 0 {
        match tokens.next()?.ok_or("its definition has no end")? {
            Token::Mark('(') => depth += 1,
            Token::Mark(')') => depth -= 1,
            Token::Word(word) if is_any(word, &QUERY_WORDS) => {
                return Err(format!("its definition has the word {word}"));
            }
            _ => {}
        }
    }
    check_options(&mut tokens)
}

/// `NAME=value` and `DEFAULT NAME=value`, to the end.
fn check_options(tokens: &mut Tokens<'_>) -> Checked {
    while let Some(token) = tokens.next()? {
        let option = match token {
            Token::Word("DEFAULT") => continue,
            Token::Word(word) | Token::Name(word) if is_any(word, &OPTIONS) => word,
            token => return Err(format!("its definition has {token:?} among its options")),
        };
        let sign = tokens.next()?;
        let value = tokens.next()?;
        let is_known = match value {
            Some(Token::Word(engine)) if option.eq_ignore_ascii_case("ENGINE") => is_any(engine, &ENGINES),
            Some(Token::Word(_) | Token::Text) => !option.eq_ignore_ascii_case("ENGINE"),
            _ => false,
        };
        if sign != Some(Token::Mark('=')) || !is_known {
            return Err(format!("its definition gives {option} another value than Spate keeps"));
        }
    }
    Ok(())
}

fn is_any(word: &str, words: &[&str]) -> bool {
    words.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Checks that a row is a list of so many literals, each in a form that Spate writes: NULL, a number, a date or another plain text,
/// hexadecimal bytes, a document among those of the row.
pub(super) fn check_row(row: &[u8], columns: usize) -> Checked {
    let mut rest = row;
    for number in 0..columns {
        if number > 0 {
            rest = rest.strip_prefix(b",").ok_or(NO_ROW)?;
        }
        rest = &rest[literal_length(rest).ok_or(NO_ROW)?..];
    }
    if rest.is_empty() { Ok(()) } else { Err(NO_ROW.to_owned()) }
}

const NO_ROW: &str = "a row of it is none that Spate has written";

/// What stands around the number of a document.
const DOCUMENT: (&[u8], &[u8]) = (b"JSON_EXTRACT(documents,'$[", b"]')");

/// The length of the literal that the text begins with.
fn literal_length(text: &[u8]) -> Option<usize> {
    let count = |text: &[u8], is_part: fn(&u8) -> bool| text.iter().take_while(|byte| is_part(byte)).count();
    let quoted = |prefix: usize, is_part: fn(&u8) -> bool| {
        let inner = count(&text[prefix..], is_part);
        (text.get(prefix + inner) == Some(&b'\'')).then_some(prefix + inner + 1)
    };
    match text {
        [b'N', b'U', b'L', b'L', ..] => Some(4),
        [b'x', b'\'', ..] => quoted(2, u8::is_ascii_hexdigit),
        _ if text.starts_with(DOCUMENT.0) => {
            let digits = count(&text[DOCUMENT.0.len()..], u8::is_ascii_digit);
            let length = DOCUMENT.0.len() + digits;
            (digits > 0 && text[length..].starts_with(DOCUMENT.1)).then_some(length + DOCUMENT.1.len())
        }
        [b'\'', ..] => quoted(1, |byte| byte.is_ascii_alphanumeric() || b":.+- ".contains(byte)),
        _ => {
            let sign = usize::from(text.first() == Some(&b'-'));
            let digits = count(&text[sign..], |byte| byte.is_ascii_digit() || *byte == b'.');
            // `--1` would be a comment in some places.
            (digits > 0).then_some(sign + digits)
        }
    }
}

/// A piece of a definition.
#[derive(Debug, PartialEq, Eq)]
enum Token<'a> {
    /// A word or a number.
    Word(&'a str),
    /// A name in backticks, with its doubled backticks.
    Name(&'a str),
    /// A string in single quotes.
    Text,
    Mark(char),
}

struct Tokens<'a> {
    rest: &'a str,
    in_versioned_comment: bool,
}

impl<'a> Tokens<'a> {
    /// The next piece; what no SHOW CREATE TABLE shows is an error.
    fn next(&mut self) -> Result<Option<Token<'a>>, String> {
        self.skip()?;
        let Some(first) = self.rest.chars().next() else {
            return if self.in_versioned_comment { Err(self.unknown()) } else { Ok(None) };
        };
        let token = match first {
            '`' => Token::Name(self.quoted('`')?),
            '\'' => {
                self.quoted('\'')?;
                Token::Text
            }
            _ if is_word(first) => {
                let length = self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len());
                Token::Word(self.pass(length))
            }
            '(' | ')' | ',' | '.' | '=' | '+' | '*' | '/' | '%' | '<' | '>' | '!' | '&' | '|' | '^' | '~' => {
                self.pass(1);
                Token::Mark(first)
            }
            '-' if !self.rest.starts_with("--") => {
                self.pass(1);
                Token::Mark(first)
            }
            _ => return Err(self.unknown()),
        };
        Ok(Some(token))
    }

    /// Passes over white space, and the brackets of comments that only some versions execute: all count here.
    fn skip(&mut self) -> Checked {
        loop {
            self.rest = self.rest.trim_start_matches([' ', '\n']);
            if self.in_versioned_comment && self.rest.starts_with("*/") {
                self.in_versioned_comment = false;
                self.pass(2);
            } else if self.rest.starts_with("/*") {
                let versioned = ["/*!", "/*M!"].iter().find_map(|begin| self.rest.strip_prefix(begin));
                let digits = versioned
                    .map_or(0, |rest| rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len());
                match versioned {
                    Some(rest) if digits > 0 && rest[digits..].starts_with(' ') && !self.in_versioned_comment => {
                        self.in_versioned_comment = true;
                        self.rest = &rest[digits..];
                    }
                    _ => return Err(self.unknown()),
                }
            } else {
                return Ok(());
            }
        }
    }

    /// What stands before the closing quote.
    fn quoted(&mut self, quote: char) -> Result<&'a str, String> {
        let mut characters = self.rest.char_indices().skip(1).peekable();
        while let Some((at, character)) = characters.next() {
            if character == '\\' && quote == '\'' {
                characters.next();
            } else if character == quote && characters.next_if(|&(_, next)| next == quote).is_none() {
                let inner = &self.rest[1..at];
                self.pass(at + 1);
                return Ok(inner);
            }
        }
        Err("its definition has a quote that is never closed".to_owned())
    }

    fn pass(&mut self, length: usize) -> &'a str {
        let (passed, rest) = self.rest.split_at(length);
        self.rest = rest;
        passed
    }

    fn unknown(&self) -> String {
        let shown: String = self.rest.chars().take(10).collect();
        format!("its definition has, outside of quotes, what is not understood: {shown:?}")
    }
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> TableName {
        TableName { schema: "d".into(), table: "t".into() }
    }

    fn check(definition: &str) -> Checked {
        check_definition(definition, &name())
    }

    #[test]
    fn temporary_form_takes_what_servers_show() {
        for rest in [
            "(\n  `id` int(11) NOT NULL AUTO_INCREMENT,\n  `g` int(11) GENERATED ALWAYS AS (`z` + 1) STORED,\n  \
             `j` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin DEFAULT NULL CHECK (json_valid(`j`)),\n  \
             `n` enum('a','it''s \\\\','ü') DEFAULT 'a',\n  PRIMARY KEY (`id`),\n  KEY `z` (`z`) USING BTREE\n) \
             ENGINE=InnoDB AUTO_INCREMENT=43 DEFAULT CHARSET=latin1 COLLATE=latin1_swedish_ci COMMENT='it''s; SELECT'",
            "(\n  `a ``SELECT` int DEFAULT NULL COMMENT '*/ ; -- #',\n  `b` int DEFAULT NULL /*!80023 INVISIBLE */,\n  \
             `c` varchar(9) /*M!100301 COMPRESSED*/ DEFAULT NULL,\n  `d` double DEFAULT -1.5e-7\n) ENGINE=MEMORY ROW_FORMAT=DYNAMIC",
            "(\n  `a` int(11) DEFAULT NULL\n) ENGINE=Aria DEFAULT CHARSET=utf8mb4 PAGE_CHECKSUM=1 `PAGE_COMPRESSED`='ON'",
        ] {
            assert_eq!(check(&format!("CREATE TEMPORARY TABLE `d`.`t` {rest}")), Ok(()), "{rest}");
        }
    }

    #[test]
    fn temporary_form_refuses_statements_that_do_more() {
        for definition in [
            "DROP TABLE d.t",
            "CREATE TABLE `d`.`t` (`a` int) ENGINE=InnoDB",
            "CREATE TEMPORARY TABLE `d`.`other` (`a` int) ENGINE=InnoDB",
            "create temporary table `d`.`t` (`a` int) ENGINE=InnoDB",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB; DROP TABLE d.u",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB AS SELECT secret.f()",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB SELECT 1 AS a",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB REPLACE (SELECT secret.f())",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB TABLE secret.pay",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) VALUES ROW(secret.f())",
            "CREATE TEMPORARY TABLE `d`.`t` (SELECT secret.f())",
            "CREATE TEMPORARY TABLE `d`.`t` (TABLE secret.pay)",
            "CREATE TEMPORARY TABLE `d`.`t` (WITH a AS (SELECT secret.f()) SELECT * FROM a)",
            "CREATE TEMPORARY TABLE `d`.`t` (LIKE secret.pay)",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int DEFAULT (SELECT secret.f())) ENGINE=InnoDB",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int DEFAULT (@x := 1)) ENGINE=InnoDB",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int COMMENT 'x' '; DROP TABLE d.u; -- ') ENGINE=InnoDB; SELECT 1",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int COMMENT 'x\\\\'; DROP TABLE d.u; -- ') ENGINE=InnoDB",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=FEDERATED CONNECTION='mysql://u@h/d/t'",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=CONNECT `FILE_NAME`='/etc/passwd'",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=MyISAM DATA DIRECTORY='/tmp/'",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=MERGE UNION=(`secret`.`pay`)",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE='InnoDB'",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB /* x */",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB /*!50000 AS SELECT 1 */",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) /*!ENGINE=InnoDB */",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB /*!50000 COMMENT='x'",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB -- x",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int) ENGINE=InnoDB # x",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int COMMENT \"x\") ENGINE=InnoDB",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int COMMENT 'x) ENGINE=InnoDB",
            "CREATE TEMPORARY TABLE `d`.`t` (`a` int",
            "",
        ] {
            assert!(check(definition).is_err(), "{definition}");
        }
    }

    #[test]
    fn temporary_form_takes_only_plain_literals() {
        let row = "40,NULL,-12.50,00042,'2026-03-29 02:30:00.5','-838:59:59','1e-38','::1',x'00fF',x'','',18446744073709551615";
        assert_eq!(check_row(row.as_bytes(), 12), Ok(()));
        assert_eq!(check_row(b"JSON_EXTRACT(documents,'$[10]'),1", 2), Ok(()));
        for (row, columns) in [
            (row, 11),
            (row, 13),
            ("", 1),
            ("1,", 2),
            ("1)", 1),
            ("secret.f()", 1),
            ("(SELECT 1)", 1),
            ("'a' 'b'", 1),
            ("'a'';DROP TABLE d.t'", 1),
            ("'a\\'", 1),
            ("'ü'", 1),
            ("x'0g'", 1),
            ("0x41", 1),
            ("--1", 1),
            ("@x", 1),
            ("JSON_EXTRACT(documents,'$[]')", 1),
            ("JSON_EXTRACT(documents,'$[0]'", 1),
            ("JSON_EXTRACT(documents,'$[0]'||secret.f())", 1),
            ("CAST(secret.f() AS JSON)", 1),
            ("NULLIF(1,1)", 1),
            ("1 + 1", 1),
            ("1);DROP TABLE d.t;--", 1),
        ] {
            assert!(check_row(row.as_bytes(), columns).is_err(), "{row} {columns}");
        }
    }

    #[test]
    fn temporary_form_refuses_names_of_own_tables() {
        for (schema, table) in
            [("spate", "checkpoint"), ("MYSQL", "user"), ("", "t"), ("d", ""), ("d", &"x".repeat(65))]
        {
            let name = TableName { schema: schema.into(), table: table.into() };
            assert!(check_name(&name).is_err(), "{name}");
        }
        assert_eq!(check_name(&name()), Ok(()));
    }
}
