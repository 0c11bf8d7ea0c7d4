//! Scripts of statements, in the vendors' clients' format: the delimiter ends a statement unless it is in quotes or in
//! a comment.

use spate_sql::{Lexer, Reading, TokenKind};

use crate::torture::step::{Action, Step};

/// Where the statements that follow are executed.
#[derive(Debug, Clone, Copy)]
enum Place {
    Source(usize),
    Replicas,
}

/// The script's statements.
pub(super) fn parse(script: &str) -> Vec<Step> {
    let mut reader = Reader { steps: vec![], place: Place::Source(0), session: 0 };
    let (mut delimiter, mut rest) = (";", script);
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.find('\n').map_or(rest.len(), |end| end + 1));
        if let Some(word) = delimiter_line(line) {
            (delimiter, rest) = (word, after);
        } else if line.trim().is_empty() || reader.direct(line) {
            rest = after;
        } else {
            let (statement, after) = rest.split_at(end_of_statement(rest, delimiter));
            reader.end(statement);
            rest = after.strip_prefix(delimiter).unwrap_or_default();
        }
    }
    reader.steps
}

/// Where the delimiter is first that is in no quotes and no comment; without any, the text's end.
fn end_of_statement(text: &str, delimiter: &str) -> usize {
    let tokens = Lexer::new(text.as_bytes(), &Reading::plain());
    let mut places = tokens.filter(|token| !matches!(token.kind, TokenKind::Text | TokenKind::Quoted));
    let begins = |at: &usize| text.as_bytes()[*at..].starts_with(delimiter.as_bytes());
    places.find_map(|token| token.range().find(begins)).unwrap_or(text.len())
}

fn delimiter_line(line: &str) -> Option<&str> {
    let (word, rest) = line.trim().split_once(char::is_whitespace)?;
    (word.eq_ignore_ascii_case("delimiter") && !rest.trim().is_empty()).then(|| rest.trim())
}

struct Reader {
    steps: Vec<Step>,
    place: Place,
    /// The session of the source that the last comment named.
    session: usize,
}

impl Reader {
    /// True if the line is a comment that directs the script.
    fn direct(&mut self, line: &str) -> bool {
        let Some(comment) = line.trim().strip_prefix("-- ") else { return false };
        let words: Vec<&str> = comment.split_whitespace().collect();
        match words.as_slice() {
            ["session", number] => match number.parse() {
                Ok(number) => {
                    self.session = number;
                    self.place = Place::Source(number);
                }
                Err(_) => return false,
            },
            ["on", "the", "replicas"] => self.place = Place::Replicas,
            ["on", "the", "source"] => self.place = Place::Source(self.session),
            _ => return false,
        }
        true
    }

    fn end(&mut self, statement: &str) {
        let sql = statement.trim().to_owned();
        // A comment alone is no statement.
        if sql.is_empty() || sql.lines().all(|line| line.trim().is_empty() || line.trim().starts_with("--")) {
            return;
        }
        self.steps.push(match self.place {
            Place::Source(session) => Step { session, action: Action::Sql(sql) },
            Place::Replicas => Step { session: self.session, action: Action::OnReplicas(sql) },
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<String> {
        parse(script).iter().map(|step| format!("{}: {}", step.session, step.text())).collect()
    }

    #[test]
    fn delimiter_in_quotes_or_comment_ends_no_statement() {
        let script = "SELECT ';', \"a\\\";\", `;`; -- no; end\nSELECT /* ; */ 1 # ;\n; INSERT INTO t VALUES ('it''s;')";
        assert_eq!(
            texts(script),
            [
                "0: SELECT ';', \"a\\\";\", `;`",
                "0: -- no; end\nSELECT /* ; */ 1 # ;",
                "0: INSERT INTO t VALUES ('it''s;')"
            ]
        );
    }

    #[test]
    fn delimiter_command_changes_the_delimiter() {
        let script = "DELIMITER //\nCREATE PROCEDURE p() BEGIN SELECT 1; END //\ndelimiter ;\nCALL p();\n";
        assert_eq!(texts(script), ["0: CREATE PROCEDURE p() BEGIN SELECT 1; END", "0: CALL p()"]);
        assert_eq!(texts("DELIMITER $$\nBEGIN; END$$\nSELECT 1 $$"), ["0: BEGIN; END", "0: SELECT 1"]);
    }

    #[test]
    fn directive_comments_are_parsed() {
        let script = "SELECT 1;\n-- session 2\nSELECT 2;\n-- on the replicas\nSELECT 3;\n-- on the source\nSELECT 4;\n-- just a comment\n";
        assert_eq!(texts(script), ["0: SELECT 1", "2: SELECT 2", "2: SELECT 3", "2: SELECT 4"]);
        assert!(matches!(parse(script)[2].action, Action::OnReplicas(_)));
    }
}
