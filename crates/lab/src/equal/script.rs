//! Scripts of statements, in the vendors' clients' format: the delimiter ends a statement unless it is in quotes or in
//! a comment.

use crate::torture::step::{Action, Step};

/// Where the statements that follow are executed.
#[derive(Debug, Clone, Copy)]
enum Place {
    Source(usize),
    Replicas,
}

/// The script's statements.
pub(super) fn parse(script: &str) -> Vec<Step> {
    let mut reader = Reader { steps: vec![], place: Place::Source(0), session: 0, statement: String::new() };
    let (mut delimiter, mut inside) = (";".to_owned(), Inside::Nothing);
    for line in script.split_inclusive('\n') {
        let is_between = matches!(inside, Inside::Nothing) && reader.statement.trim().is_empty();
        if is_between && let Some(word) = delimiter_line(line) {
            word.clone_into(&mut delimiter);
            continue;
        }
        if is_between && reader.direct(line) {
            continue;
        }
        let mut rest = line;
        while !rest.is_empty() {
            if matches!(inside, Inside::Nothing) && rest.starts_with(&delimiter) {
                reader.end();
                rest = &rest[delimiter.len()..];
                continue;
            }
            let length = inside.step(rest);
            reader.statement.push_str(&rest[..length]);
            rest = &rest[length..];
        }
    }
    reader.end();
    reader.steps
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
    statement: String,
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

    fn end(&mut self) {
        let statement = std::mem::take(&mut self.statement);
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

/// The quote or comment that the reader is in.
#[derive(Debug, Clone, Copy)]
enum Inside {
    Nothing,
    Quotes(char),
    LineComment,
    Comment,
}

impl Inside {
    /// The length of the token at the start of `rest`, in bytes. Sets `self` to the state after the token.
    fn step(&mut self, rest: &str) -> usize {
        let mut characters = rest.chars();
        let Some(first) = characters.next() else { return 0 };
        let second = characters.next();
        let both = first.len_utf8() + second.map_or(0, char::len_utf8);
        match (*self, first) {
            (Inside::Nothing, '\'' | '"' | '`') => *self = Inside::Quotes(first),
            (Inside::Nothing, '#') => *self = Inside::LineComment,
            (Inside::Nothing, '-') if rest.starts_with("-- ") || rest.starts_with("--\n") => {
                *self = Inside::LineComment
            }
            (Inside::Nothing, '/') if second == Some('*') => {
                *self = Inside::Comment;
                return both;
            }
            (Inside::Quotes('\'' | '"'), '\\') => return both,
            (Inside::Quotes(quote), _) if first == quote => *self = Inside::Nothing,
            (Inside::LineComment, '\n') => *self = Inside::Nothing,
            (Inside::Comment, '*') if second == Some('/') => {
                *self = Inside::Nothing;
                return both;
            }
            _ => {}
        }
        first.len_utf8()
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
    }

    #[test]
    fn directive_comments_are_parsed() {
        let script = "SELECT 1;\n-- session 2\nSELECT 2;\n-- on the replicas\nSELECT 3;\n-- on the source\nSELECT 4;\n-- just a comment\n";
        assert_eq!(texts(script), ["0: SELECT 1", "2: SELECT 2", "2: SELECT 3", "2: SELECT 4"]);
        assert!(matches!(parse(script)[2].action, Action::OnReplicas(_)));
    }
}
