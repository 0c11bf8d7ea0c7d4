//! The beginning of a statement, for messages, which go to logs, to the status page and to the replica.
//!
//! The secrets in a statement are literals: `IDENTIFIED BY '…'`, `VIA … USING '…'`, `AS 0x…`, `OPTIONS (PASSWORD '…')`,
//! `PASSWORD("…")`, a row's value. So nothing of a literal is shown: an excerpt ends before the first byte that may begin one, wherever
//! that byte stands. No lexer is asked where literals end, so none can be deceived: every character set that a client may
//! have begins a literal with the same byte as ASCII, and has that byte in no character of several bytes.
//!
//! The one exception is an account, which helps a reader: `'name'@'host'` of letters, digits and `_ . % -` only.

/// The number of characters shown.
const CHARACTERS_MAX: usize = 100;

/// The beginning of a statement, in one line, without anything that may be a password.
pub fn excerpt(sql: &[u8]) -> String {
    let shown = shown_length(sql).min(number_at(sql).unwrap_or(usize::MAX));
    let text = String::from_utf8_lossy(&sql[..shown]);
    let mut short: String = text.chars().take(CHARACTERS_MAX).map(printable).collect();
    if shown < sql.len() || short.chars().count() < text.chars().count() {
        short.push('…');
    }
    format!("statement '{short}'")
}

/// The servers' errors that repeat a part of the statement.
const SYNTAX_ERRORS: [u16; 2] = [1064, 1149];

/// Duplicate entry '…' for key '…'.
const DUPLICATE_ENTRY: u16 = 1062;

/// The servers' errors whose quotes hold only names: of schemas, tables, columns, keys, objects, variables, engines,
/// accounts and binlog files. The quotes of other errors may hold values or secrets: 1432 repeats the password of a
/// connection string.
const ERRORS_OF_NAMES: [u16; 72] = [
    1007, 1008, 1036, 1044, 1045, 1048, 1049, 1050, 1051, 1052, 1054, 1060, 1061, 1067, 1071, 1072, 1091, 1109, 1113,
    1115, 1118, 1130, 1132, 1141, 1142, 1143, 1146, 1147, 1151, 1171, 1191, 1193, 1195, 1214, 1227, 1235, 1236, 1238,
    1264, 1265, 1273, 1286, 1290, 1304, 1305, 1347, 1356, 1359, 1360, 1364, 1370, 1396, 1406, 1410, 1419, 1446, 1449,
    1471, 1477, 1537, 1539, 1553, 1698, 1785, 1792, 1820, 1822, 1826, 3118, 3619, 4031, 4151,
];

/// A server's message, without quotes that may hold a literal of the statement or a value of a row. (`near '…' at line
/// 1`, in the server's language, begins where the parser stopped, which may be at a password.)
pub fn without_literals(code: u16, message: &str) -> String {
    let cut = |text: &str| match shown_length(text.as_bytes()) {
        all if all == text.len() => text.to_owned(),
        shown => format!("{}…", &text[..shown]),
    };
    let near = message.find('\'').filter(|_| SYNTAX_ERRORS.contains(&code)).map(|quote| message.split_at(quote + 1));
    let shown = match near {
        Some((before, near)) => format!("{before}{}…", &near[..shown_length(near.as_bytes())]),
        None if code == DUPLICATE_ENTRY => cut(message) + &duplicate_key(message).unwrap_or_default(),
        None if ERRORS_OF_NAMES.contains(&code) => message.to_owned(),
        None => cut(message),
    };
    shown.chars().map(printable).collect()
}

/// Finds the part of an English message that names the key, after the key's value, which may hold any text.
fn duplicate_key(message: &str) -> Option<String> {
    const FOR_KEY: &str = "' for key '";
    let key = message.strip_suffix('\'')?.rsplit_once(FOR_KEY)?.1;
    key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte)).then(|| format!(" for key '{key}'"))
}

/// Replaces control characters: a line feed would begin another line of a log, and a terminal obeys others.
fn printable(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// The number of bytes before the first literal that is not an account.
fn shown_length(sql: &[u8]) -> usize {
    let mut at = 0;
    while at < sql.len() {
        if sql[at] == b'\''
            && let Some(length) = account_length(&sql[at..])
        {
            at += length;
        } else if may_begin_literal(sql, at) {
            return at;
        } else {
            at += 1;
        }
    }
    at
}

/// Finds the first number, unless the statement begins like a definition: numbers of other statements may be values of
/// rows.
fn number_at(sql: &[u8]) -> Option<usize> {
    const DEFINITIONS: [&[u8]; 8] = [b"CREATE", b"ALTER", b"DROP", b"RENAME", b"TRUNCATE", b"GRANT", b"REVOKE", b"XA"];
    let begins_with = |word: &&[u8]| {
        sql.get(..word.len()).is_some_and(|first| first.eq_ignore_ascii_case(word))
            && sql.get(word.len()).is_some_and(u8::is_ascii_whitespace)
    };
    if DEFINITIONS.iter().any(begins_with) {
        return None;
    }
    let is_of_name = |byte: &u8| is_word_byte(*byte) || b"`@'\"".contains(byte);
    let is_in_name = |before: &[u8]| before.strip_suffix(b".").unwrap_or(before).last().is_some_and(is_of_name);
    (0..sql.len()).find(|&at| sql[at].is_ascii_digit() && !is_in_name(&sql[..at]))
}

/// True for a quote, `0x…`, and the dollar of MySQL's `$$…$$`, also inside backticks.
fn may_begin_literal(sql: &[u8], at: usize) -> bool {
    let begins_word = at == 0 || !is_word_byte(sql[at - 1]);
    match sql[at] {
        b'\'' | b'"' => true,
        b'$' => begins_word,
        b'0' => begins_word && sql.get(at + 1).is_some_and(|next| next.eq_ignore_ascii_case(&b'x')),
        _ => false,
    }
}

/// The length of `'name'@'host'`; `None` if `sql` does not begin with one.
fn account_length(sql: &[u8]) -> Option<usize> {
    let name = plain_literal_length(sql)?;
    (sql.get(name) == Some(&b'@')).then_some(())?;
    Some(name + 1 + plain_literal_length(&sql[name + 1..])?)
}

/// The length of a literal in single quotes that is one in every mode and every character set.
fn plain_literal_length(sql: &[u8]) -> Option<usize> {
    let inner = sql.strip_prefix(b"'")?;
    let end = inner.iter().position(|byte| !(byte.is_ascii_alphanumeric() || b"_.%-".contains(byte)))?;
    (inner[end] == b'\'').then_some(end + 2)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(sql: &[u8]) -> String {
        excerpt(sql).strip_prefix("statement '").unwrap().strip_suffix('\'').unwrap().to_owned()
    }

    #[test]
    fn excerpt_shows_numbers_of_definitions_only() {
        assert_eq!(shown(b"CREATE TABLE t1 (a DECIMAL(10,2))"), "CREATE TABLE t1 (a DECIMAL(10,2))");
        assert_eq!(shown(b"xa end X"), "xa end X");
        for (sql, expected) in [
            ("INSERT INTO app.card2 VALUES (9,5500000000000004)", "INSERT INTO app.card2 VALUES (…"),
            ("UPDATE t1 SET a=-5", "UPDATE t1 SET a=-…"),
            ("UPDATE `1a`.t SET `2`=b", "UPDATE `1a`.t SET `2`=b"),
            ("/* CREATE */ INSERT INTO t VALUES (.5)", "/* CREATE */ INSERT INTO t VALUES (.…"),
            ("CREATED 7", "CREATED …"),
        ] {
            assert_eq!(shown(sql.as_bytes()), expected);
        }
    }

    #[test]
    fn excerpt_shows_no_literal_of_any_form() {
        for sql in [
            "CREATE USER a IDENTIFIED BY 'hunter2'",
            "CREATE USER 'a'@'%' IDENTIFIED BY 'hunter2'",
            "CREATE USER 'a'@'%' IDENTIFIED BY PASSWORD '*hunter2'",
            "CREATE USER a IDENTIFIED WITH mysql_native_password AS '*hunter2'",
            "CREATE USER a IDENTIFIED WITH caching_sha2_password AS 0xhunter2",
            "CREATE USER a IDENTIFIED WITH caching_sha2_password AS 0Xhunter2",
            "CREATE USER a IDENTIFIED WITH caching_sha2_password AS X'hunter2'",
            "CREATE USER a IDENTIFIED VIA mysql_native_password USING 'hunter2' OR unix_socket",
            "CREATE USER a IDENTIFIED VIA ed25519 USING PASSWORD('hunter2')",
            "ALTER USER a identified by 'x' REPLACE 'hunter2'",
            "GRANT ALL ON *.* TO 'a'@'10.0.0.%' IDENTIFIED BY 'hunter2'",
            "GRANT ALL ON *.* TO a/*!50000 IDENTIFIED*/BY'hunter2'",
            "SET PASSWORD FOR 'a'@'b' = 'hunter2'",
            "SET PASSWORD = PASSWORD(\"hunter2\")",
            "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (USER 'u', PASSWORD 'hunter2')",
            "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (PASSWORD N'hunter2')",
            "CHANGE MASTER TO MASTER_PASSWORD='hunter2'",
            "CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD = _utf8mb4'hunter2'",
            "SET @@global.wsrep_sst_auth = 'root:hunter2'",
            "UPDATE mysql.user SET authentication_string='hunter2'",
            "INSERT INTO app.login VALUES (1, 'hunter2')",
            "CREATE FUNCTION f() RETURNS INT LANGUAGE JAVASCRIPT AS $$ hunter2 $$",
            "CREATE FUNCTION f() RETURNS INT LANGUAGE JAVASCRIPT AS $body$ hunter2 $body$",
            "-- it's\nCREATE USER a IDENTIFIED BY 'hunter2'",
            "/* ' */ CREATE USER a IDENTIFIED BY 'hunter2'",
            "CREATE TABLE `a'b` (c INT) COMMENT 'hunter2'",
            "CREATE USER 'x\\'@'b' IDENTIFIED BY 'hunter2'",
            "CREATE USER 'a'@'b\\' IDENTIFIED BY 'hunter2'",
            "CREATE USER 'a'@'hunter2",
            "SELECT 'hunter2'",
            "'hunter2'",
        ] {
            let shown = shown(sql.as_bytes());
            assert!(!shown.contains("hunter2") && shown.ends_with('…'), "{sql}: {shown}");
        }
        let sjis = b"CREATE USER \x95\x5c IDENTIFIED BY '\x95\x5c' COMMENT 'hunter2'";
        assert!(!shown(sjis).contains("hunter2"));
    }

    #[test]
    fn excerpt_shows_accounts() {
        for (sql, expected) in [
            ("CREATE USER c IDENTIFIED BY 'secret'", "CREATE USER c IDENTIFIED BY …"),
            ("CREATE USER 'a_b'@'10.0.%' IDENTIFIED BY 'x'", "CREATE USER 'a_b'@'10.0.%' IDENTIFIED BY …"),
            ("DROP USER 'a'@'b','c'@'d'", "DROP USER 'a'@'b','c'@'d'"),
            ("GRANT SELECT ON `d`.* TO 'a'@''", "GRANT SELECT ON `d`.* TO 'a'@''"),
            ("CREATE DEFINER=`a`@`%` TRIGGER t", "CREATE DEFINER=`a`@`%` TRIGGER t"),
            ("SET PASSWORD FOR 'a'@'b' = 'secret'", "SET PASSWORD FOR 'a'@'b' = …"),
        ] {
            assert_eq!(shown(sql.as_bytes()), expected);
        }
    }

    #[test]
    fn excerpt_is_one_short_line() {
        assert_eq!(shown(b"ALTER TABLE t\n\tADD a INT \x1b[2J"), "ALTER TABLE t  ADD a INT  [2J");
        assert_eq!(shown("x".repeat(100).as_bytes()), "x".repeat(100));
        assert_eq!(shown("ü".repeat(101).as_bytes()), "ü".repeat(100) + "…");
        assert_eq!(shown(b""), "");
        assert_eq!(shown(b"GRANT 10, a0x5, $x"), "GRANT 10, a0x5, …");
    }

    #[test]
    fn server_message_shows_no_literal() {
        for near in
            ["'hunter2'", "BY 'hunter2' REQUIRE SSL", "\"hunter2\"", "'hunter2", "AS 0xhunter2", "' at line 1'hunter2'"]
        {
            for message in [format!("use near '{near}' at line 1"), format!("Fehler bei '{near}' in Zeile 1")] {
                let shown = without_literals(1064, &message);
                assert!(!shown.contains("hunter2") && shown.contains(" '") && shown.ends_with('…'), "{shown}");
            }
        }
        for (code, message, expected) in [
            (
                1432,
                "The data source connection string 'mysql://u:hunter2@h/d' is not in the correct format",
                "The data source connection string …",
            ),
            (1366, "Incorrect integer value: 'hunter2' for column `d`.`t`.`c` at row 1", "Incorrect integer value: …"),
            (1292, "Truncated incorrect DOUBLE value: 'hunter2'", "Truncated incorrect DOUBLE value: …"),
            (1062, "Duplicate entry 'hunter2' for key 't.PRIMARY'", "Duplicate entry … for key 't.PRIMARY'"),
            (1062, "Duplicate entry 'a' for key 'hunter2' for key 'k'", "Duplicate entry … for key 'k'"),
            (1062, "Duplicate entry 'hunter2", "Duplicate entry …"),
            (1062, "Doppelter Eintrag 'hunter2' f\u{fc}r Schl\u{fc}ssel 'k'", "Doppelter Eintrag …"),
            (1644, "a trigger says \"hunter2\"", "a trigger says …"),
            (1146, "Table 'd.t' doesn't exist", "Table 'd.t' doesn't exist"),
            (1054, "Unknown column 'x' in 'field list'", "Unknown column 'x' in 'field list'"),
            (
                1205,
                "Lock wait timeout exceeded; try restarting transaction",
                "Lock wait timeout exceeded; try restarting transaction",
            ),
            (
                1452,
                "Cannot add or update a child row: a foreign key constraint fails (`d`.`c`, CONSTRAINT `f`)",
                "Cannot add or update a child row: a foreign key constraint fails (`d`.`c`, CONSTRAINT `f`)",
            ),
            (
                1045,
                "Access denied for user 'a'@'b' (using password: YES)",
                "Access denied for user 'a'@'b' (using password: YES)",
            ),
        ] {
            assert_eq!(without_literals(code, message), expected);
        }
        assert!(ERRORS_OF_NAMES.is_sorted());
        let message = "use near 'FROBNICATE TABLE t' at line 1";
        assert_eq!(without_literals(1064, message), "use near 'FROBNICATE TABLE t…");
        assert_eq!(without_literals(1051, "Unknown table\n'd.t'\x1b"), "Unknown table 'd.t' ");
    }
}
