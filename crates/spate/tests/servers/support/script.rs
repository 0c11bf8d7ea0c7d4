//! Scripts of statements, read and executed as the servers' own client does.

use spate_connection::{Connection, Seen};
use spate_sql::{Lexer, Reading};

/// A statement of a script, and the line that it begins in, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Statement<'a> {
    pub line: usize,
    pub text: &'a str,
}

/// The statements of a script. `None` if the client would find more in it: comments, escapes, delimiters, files of its own.
pub fn statements(sql: &str) -> Option<Vec<Statement<'_>>> {
    const OF_THE_CLIENT: [&str; 6] = ["\\", "#", "--", "/*", "delimiter", "local infile"];
    let lower = sql.to_ascii_lowercase();
    if OF_THE_CLIENT.iter().any(|text| lower.contains(text)) {
        return None;
    }
    let mut lexer = Lexer::new(sql.as_bytes(), &Reading::plain());
    let mut ends: Vec<usize> = lexer.by_ref().filter(|token| token.is_mark(b';')).map(|token| token.start).collect();
    if lexer.doubt().is_some() {
        return None;
    }
    ends.push(sql.len());
    let (mut statements, mut start) = (Vec::new(), 0);
    for end in ends {
        let text = sql[start..end].trim_start();
        let line = 1 + sql[..end - text.len()].matches('\n').count();
        if !text.is_empty() {
            statements.push(Statement { line, text: text.trim_end() });
        }
        start = end + 1;
    }
    Some(statements)
}

/// Executes statements up to the first that fails. What they answer is as the client prints it, and so is the error.
pub fn execute(connection: &mut Connection, statements: &[Statement<'_>]) -> Result<String, String> {
    let mut text = Vec::new();
    for statement in statements {
        let outcome = connection.for_each_result_of_single(statement.text.as_bytes(), &mut |seen| {
            if let Seen::Row(row) = seen {
                for (number, value) in row.iter().enumerate() {
                    if number > 0 {
                        text.push(b'\t');
                    }
                    print(value.unwrap_or(b"NULL"), &mut text);
                }
                text.push(b'\n');
            }
        });
        outcome.map_err(|error| match error.server_error() {
            Some(told) => {
                format!("ERROR {} ({}) at line {}: {}", told.code, told.sql_state, statement.line, told.message)
            }
            None => format!("ERROR 2013 (HY000) at line {}: {error}", statement.line),
        })?;
    }
    Ok(String::from_utf8_lossy(&text).trim_end().to_owned())
}

fn print(value: &[u8], text: &mut Vec<u8>) {
    for &byte in value {
        match byte {
            b'\n' => text.extend_from_slice(b"\\n"),
            b'\t' => text.extend_from_slice(b"\\t"),
            b'\\' => text.extend_from_slice(b"\\\\"),
            0 => text.extend_from_slice(b"\\0"),
            byte => text.push(byte),
        }
    }
}

#[test]
fn scripts_are_taken_apart_as_by_the_client() {
    let texts = |sql| statements(sql).map(|found| found.iter().map(|one| (one.line, one.text)).collect::<Vec<_>>());
    assert_eq!(texts("SELECT 1"), Some(vec![(1, "SELECT 1")]));
    assert_eq!(texts("a;\n\n b 'x;''y' ;; c\n"), Some(vec![(1, "a"), (3, "b 'x;''y'"), (3, "c")]));
    assert_eq!(texts("`;`;\";\""), Some(vec![(1, "`;`"), (1, "\";\"")]));
    assert_eq!(texts(" ;\n"), Some(vec![]));
    for only_for_the_client in ["'", "SELECT '\\''", "a -- b", "DELIMITER //", "LOAD DATA LOCAL INFILE 'x'"] {
        assert_eq!(texts(only_for_the_client), None, "{only_for_the_client}");
    }
}
