//! The beginning of a statement, for messages, which go to logs, to the status page and to the replica.
//!
//! What is secret in a statement is a literal: `IDENTIFIED BY '…'`, `VIA … USING '…'`, `AS 0x…`, `OPTIONS (PASSWORD '…')`,
//! `PASSWORD("…")`, a row's value. So nothing of a literal is shown: an excerpt ends before the first byte that may begin one, wherever
//! that byte stands. No lexer is asked where literals end, so none can be deceived: every character set that a client may
//! have begins a literal with the same byte as ASCII, and has that byte in no character of several bytes.
//!
//! The one exception are accounts, which a reader wants to see: `'name'@'host'` of letters, digits and `_ . % -` alone.

/// Characters shown.
const CHARACTERS_MAX: usize = 100;

/// The beginning of a statement, in one line, without anything that may be a password.
pub fn excerpt(sql: &[u8]) -> String {
    let shown = shown_length(sql);
    let text = String::from_utf8_lossy(&sql[..shown]);
    let mut short: String = text.chars().take(CHARACTERS_MAX).map(printable).collect();
    if shown < sql.len() || short.chars().count() < text.chars().count() {
        short.push('…');
    }
    format!("statement '{short}'")
}

/// The servers' errors that repeat a part of the statement.
const SYNTAX_ERRORS: [u16; 2] = [1064, 1149];

/// A server's message without what may be a literal of the statement. (`near '…' at line 1`, in the server's language, begins where the
/// parser stopped, which may be at a password.)
pub fn without_literals(code: u16, message: &str) -> String {
    let near = message.find('\'').filter(|_| SYNTAX_ERRORS.contains(&code)).map(|quote| message.split_at(quote + 1));
    let shown = match near {
        None => message.to_owned(),
        Some((before, near)) => format!("{before}{}…", &near[..shown_length(near.as_bytes())]),
    };
    shown.chars().map(printable).collect()
}

/// A line feed would begin another line of a log, and other control characters are orders to a terminal.
fn printable(character: char) -> char {
    if character.is_control() { ' ' } else { character }
}

/// Bytes before the first literal that is not an account.
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

/// True for a quote, `0x…`, and the dollar of MySQL's `$$…$$`. In backticks, too: nobody asks what stands there.
fn may_begin_literal(sql: &[u8], at: usize) -> bool {
    let begins_word = at == 0 || !is_word_byte(sql[at - 1]);
    match sql[at] {
        b'\'' | b'"' => true,
        b'$' => begins_word,
        b'0' => begins_word && sql.get(at + 1).is_some_and(|next| next.eq_ignore_ascii_case(&b'x')),
        _ => false,
    }
}

/// The length of `'name'@'host'`, if `sql` begins with one.
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
    fn no_literal_is_shown_in_whatever_form() {
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
    fn accounts_are_shown() {
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
    fn an_excerpt_is_one_short_line() {
        assert_eq!(shown(b"ALTER TABLE t\n\tADD a INT \x1b[2J"), "ALTER TABLE t  ADD a INT  [2J");
        assert_eq!(shown("x".repeat(100).as_bytes()), "x".repeat(100));
        assert_eq!(shown("ü".repeat(101).as_bytes()), "ü".repeat(100) + "…");
        assert_eq!(shown(b""), "");
        assert_eq!(shown(b"SELECT 10, a0x5, $x"), "SELECT 10, a0x5, …");
    }

    #[test]
    fn a_servers_message_repeats_no_literal() {
        for near in
            ["'hunter2'", "BY 'hunter2' REQUIRE SSL", "\"hunter2\"", "'hunter2", "AS 0xhunter2", "' at line 1'hunter2'"]
        {
            for message in [format!("use near '{near}' at line 1"), format!("Fehler bei '{near}' in Zeile 1")] {
                let shown = without_literals(1064, &message);
                assert!(!shown.contains("hunter2") && shown.contains(" '") && shown.ends_with('…'), "{shown}");
            }
        }
        let message = "use near 'FROBNICATE TABLE t' at line 1";
        assert_eq!(without_literals(1064, message), "use near 'FROBNICATE TABLE t…");
        assert_eq!(without_literals(1051, "Unknown table\n'd.t'\x1b"), "Unknown table 'd.t' ");
    }
}
