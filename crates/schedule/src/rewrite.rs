//! Changes that a server's own applier makes while it executes a statement, made in the statement's text: no session has another way
//! to say it.
//!
//! - Only the source runs an event of the event scheduler: the replica keeps it, switched off. A server does this in
//!   its own applier's thread, and no variable turns it on in a session. If Spate created the event and then switched
//!   it off, it could run in between.
//! - ALTER EVENT changes the definer to the account that executes it: in the applier's thread, the account that the log
//!   names.
//! - `CURRENT_USER` in a statement about accounts is the account that executed it on the source.
//! - MariaDB's INSERT DELAYED and REPLACE DELAYED are executed at once.
//!
//! There is one exception: for a role that is created without WITH ADMIN, the administrator is Spate's account instead
//! of the source's. Otherwise Spate could not grant the role later.
//!
//! The code finds each place by the statement's grammar, not by searching for words. If the lexer is not certain, or
//! the grammar is another, it refuses the statement.

use std::ops::Range;

use spate_binlog::query::StatusVariables;
use spate_sql::edit::{self, Edit, Refusal, certain, quoted_name};
use spate_sql::{Lexer, SqlText, Token, TokenKind};

use crate::statement::{kind, opened};

/// Whether the server is to execute the source's events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventStates {
    /// Only the source executes them, as with any replica.
    #[default]
    Disabled,
    /// The server becomes what the source was: they stay as they are.
    Kept,
}

/// The statement that a replica must execute; `None` if that is the unchanged one.
///
/// # Errors
/// The statement must be changed, and its text is a doubt.
pub(crate) fn rewrite_for_replica(
    text: SqlText<'_>,
    status: &StatusVariables,
    events: EventStates,
) -> Result<Option<Vec<u8>>, Refusal> {
    let may_be_event = text.has_letters("EVENT");
    let may_name_accounts = ["CURRENT_USER", "CURRENT_ROLE", "ROLE"].iter().any(|letters| text.has_letters(letters));
    if !may_be_event && !may_name_accounts && !text.has_letters("DELAYED") {
        return Ok(None);
    }
    // After `SET STATEMENT … FOR`, too.
    let mut words = opened(text);
    let Some(verb) = words.next() else { return certain(&words).map(|()| None) };
    let head = Head { verb, verb_end: words.end(), is_anonymous: words.peek().is_some_and(|word| word.is("EVENT")) };
    if verb.is_one_of(&["INSERT", "REPLACE"]) {
        return remove_delayed(text, words);
    }
    let changes_object = verb.is_one_of(&["CREATE", "ALTER", "DROP", "RENAME"]);
    let is_about_accounts = verb.is_one_of(&["GRANT", "REVOKE", "SET"]);
    if !changes_object && !is_about_accounts {
        return certain(&words).map(|()| None);
    }
    let behind_verb = words.clone();
    let kind = if changes_object { kind(&mut words) } else { None };
    certain(&words)?;
    if changes_object && kind.is_none() && may_be_unknown_event(behind_verb) {
        return Err(Refusal::Untold("it may be about an event, but its grammar is unknown"));
    }
    let mut edits = match kind {
        Some("EVENT") if !verb.is("DROP") => rewrite_event(text, &head, words.clone(), status, events)?,
        _ => vec![],
    };
    if is_about_accounts || matches!(kind, Some("USER" | "ROLE")) {
        edits.extend(replace_invokers(text, status)?);
    } else if kind == Some("EVENT") {
        edits.extend(replace_invokers(text, status)?.into_iter().filter(|edit| edit.range.end <= words.end()));
    }
    if edits.is_empty() {
        return Ok(None);
    }
    edits.sort_by_key(|edit| edit.range.start);
    edit::apply(text.sql, &edits, text.reading).map(Some)
}

/// INSERT or REPLACE without DELAYED. `words` follow the verb.
fn remove_delayed(text: SqlText<'_>, mut words: Lexer<'_>) -> Result<Option<Vec<u8>>, Refusal> {
    let delayed = words.next().filter(|word| word.is("DELAYED"));
    certain(&words)?;
    let edit = |delayed: Token<'_>| Edit { range: delayed.range(), text: vec![] };
    delayed.map(|delayed| edit::apply(text.sql, &[edit(delayed)], text.reading)).transpose()
}

/// True if one of the first words after the verb is EVENT, and not the name of something else.
fn may_be_unknown_event(words: Lexer<'_>) -> bool {
    const WORDS_MAX: usize = 24;
    const OTHER_KINDS: [&str; 7] = ["TABLESPACE", "UNDO", "LOGFILE", "RESOURCE", "LIBRARY", "INSTANCE", "CATALOG"];
    words.take(WORDS_MAX).take_while(|word| !word.is_one_of(&OTHER_KINDS)).any(|word| word.is("EVENT"))
}

/// The beginning of a statement.
struct Head<'a> {
    verb: Token<'a>,
    /// The offset at which the verb ends, in bytes.
    verb_end: usize,
    /// True if EVENT stands directly after the verb, so that there is no definer.
    is_anonymous: bool,
}

/// CREATE EVENT or ALTER EVENT. `words` follow EVENT.
fn rewrite_event(
    text: SqlText<'_>,
    head: &Head<'_>,
    mut words: Lexer<'_>,
    status: &StatusVariables,
    events: EventStates,
) -> Result<Vec<Edit>, Refusal> {
    const STATE: &str = "DISABLE ON SLAVE";
    let creates = head.verb.is("CREATE");
    let mut edits = Vec::new();
    // The server itself writes the definer of an event that it creates.
    if !creates && head.is_anonymous && status.invoker.is_some() {
        let definer = [b" DEFINER=".as_slice(), &quote_invoker(text, status)?].concat();
        edits.push(Edit { range: head.verb_end..head.verb_end, text: definer });
    }
    if events == EventStates::Kept {
        return Ok(edits);
    }
    // Always, as servers do: even an ALTER without a state may change the state, by a schedule that is in the past.
    edits.push(match find_state(&mut words, creates).ok_or(Refusal::Different)? {
        State::Said(range) => Edit { range, text: STATE.into() },
        State::Unsaid(place) => Edit { range: place..place, text: format!(" {STATE}").into() },
    });
    certain(&words)?;
    Ok(edits)
}

/// The place of the state (enabled or disabled) in an event's definition, or the place where it may be inserted.
enum State {
    Said(Range<usize>),
    Unsaid(usize),
}

/// Reads `[IF [NOT] EXISTS] name [ON SCHEDULE …] [ON COMPLETION [NOT] PRESERVE] [RENAME TO name] [state] [COMMENT 'x']
/// [DO …]`; `None` if it is something else. With `needs_body`, a definition without a DO is something else, too.
fn find_state(words: &mut Lexer<'_>, needs_body: bool) -> Option<State> {
    if words.accept("IF") {
        words.accept("NOT");
        words.accept("EXISTS").then_some(())?;
    }
    skip_qualified_name(words)?;
    if words.accept_all(&["ON", "SCHEDULE"]) {
        skip_schedule(words)?;
    }
    if words.accept_all(&["ON", "COMPLETION"]) {
        words.accept("NOT");
        words.accept("PRESERVE").then_some(())?;
    }
    if words.accept_all(&["RENAME", "TO"]) {
        skip_qualified_name(words)?;
    }
    let place = words.end();
    let said = words.peek().filter(|word| word.is_one_of(&["ENABLE", "DISABLE"]));
    if said.is_some() {
        words.next();
        if words.accept("ON") {
            words.next().filter(|word| word.is_one_of(&["SLAVE", "REPLICA"]))?;
        }
    }
    let end = words.end();
    if words.accept("COMMENT") {
        words.next().filter(|word| word.kind == TokenKind::Text)?;
    }
    // The body may be any text.
    if !words.accept("DO") {
        (!needs_body).then_some(())?;
        words.accept_mark(b';');
        words.peek().is_none().then_some(())?;
    }
    Some(said.map_or(State::Unsaid(place), |word| State::Said(word.start..end)))
}

/// `name` or `schema.name`.
fn skip_qualified_name(words: &mut Lexer<'_>) -> Option<()> {
    words.next().filter(Token::is_name)?;
    if words.accept_mark(b'.') {
        words.next().filter(Token::is_name)?;
    }
    Some(())
}

/// Skips `AT …` or `EVERY … [STARTS …] [ENDS …]`, with any expressions, up to the clause after the schedule. A keyword
/// of that clause ends the schedule only where an expression can end: after an operator it would be a name. A word that
/// would decide if the event runs is never taken for a name: then this returns `None`.
fn skip_schedule(words: &mut Lexer<'_>) -> Option<()> {
    const FOLLOWING: [&str; 6] = ["ON", "RENAME", "ENABLE", "DISABLE", "COMMENT", "DO"];
    const DECIDING: [&str; 3] = ["ENABLE", "DISABLE", "DO"];
    const OPERATORS: [&str; 31] = [
        "AT", "EVERY", "STARTS", "ENDS", "AND", "OR", "XOR", "NOT", "DIV", "MOD", "IS", "LIKE", "REGEXP", "RLIKE",
        "BETWEEN", "IN", "INTERVAL", "BINARY", "COLLATE", "CASE", "WHEN", "THEN", "ELSE", "ESCAPE", "FOR", "OF", "ANY",
        "ALL", "SOME", "EXISTS", "FROM",
    ];
    words.peek().filter(|word| word.is_one_of(&["AT", "EVERY"]))?;
    let (mut depth, mut can_end) = (0_usize, false);
    loop {
        let Some(word) = words.peek() else { return (depth == 0).then_some(()) };
        if depth == 0 && can_end && (word.is_one_of(&FOLLOWING) || word.is_mark(b';')) {
            return Some(());
        }
        if depth == 0 && word.is_one_of(&DECIDING) {
            return None;
        }
        words.next();
        can_end = match word.kind {
            // Braces: `{ts '…'}` of ODBC.
            TokenKind::Mark(b'(' | b'{') => {
                depth += 1;
                false
            }
            TokenKind::Mark(b')' | b'}') => {
                depth = depth.checked_sub(1)?;
                true
            }
            TokenKind::Mark(_) => false,
            TokenKind::Word => !word.is_one_of(&OPERATORS),
            TokenKind::Name | TokenKind::Quoted | TokenKind::Text | TokenKind::Variable => true,
        };
    }
}

/// Replaces each `CURRENT_USER`, which is a reserved word of both vendors, with the account that it was on the source.
fn replace_invokers(text: SqlText<'_>, status: &StatusVariables) -> Result<Vec<Edit>, Refusal> {
    let tokens = edit::tokens(text.sql, text.reading).map_err(Refusal::Doubtful)?;
    let mut edits = Vec::new();
    for (at, token) in tokens.iter().enumerate() {
        if token.is("CURRENT_ROLE") {
            return Err(Refusal::Untold("it names CURRENT_ROLE, and the binlog does not give that role"));
        }
        if !token.is("CURRENT_USER") {
            continue;
        }
        let is_call = matches!(&tokens[at + 1..], [open, close, ..] if open.is_mark(b'(') && close.is_mark(b')'));
        let last = if is_call { &tokens[at + 2] } else { token };
        edits.push(Edit { range: token.start..last.range().end, text: quote_invoker(text, status)? });
    }
    Ok(edits)
}

/// The account that executed the statement on the source, in the statement's own character set.
fn quote_invoker(text: SqlText<'_>, status: &StatusVariables) -> Result<Vec<u8>, Refusal> {
    const UNTOLD: &str = "it names CURRENT_USER, and the binlog does not give that account: name the account";
    let (user, host) = status.invoker.as_ref().ok_or(Refusal::Untold(UNTOLD))?;
    let quoted = |name: &[u8]| {
        let name = std::str::from_utf8(name).ok()?;
        quoted_name(name, text.reading)
    };
    let (user, host) = (quoted(user).ok_or(Refusal::Different)?, quoted(host).ok_or(Refusal::Different)?);
    Ok([user.as_slice(), b"@", &host].concat())
}

#[cfg(test)]
mod tests {
    use spate_sql::Reading;

    use super::*;

    fn rewritten_by(sql: &[u8], reading: &Reading) -> String {
        let status = StatusVariables { invoker: Some((b"o'brien".to_vec(), b"10.%".to_vec())), ..Default::default() };
        match rewrite_for_replica(SqlText { sql, reading }, &status, EventStates::Disabled) {
            Ok(None) => "as it is".to_owned(),
            Ok(Some(sql)) => String::from_utf8(sql).unwrap(),
            Err(_) => "refused".to_owned(),
        }
    }

    fn rewritten(sql: &str) -> String {
        rewritten_by(sql.as_bytes(), &Reading::plain())
    }

    #[test]
    fn rewritten_events_are_disabled() {
        for (sql, expected) in [
            (
                "CREATE DEFINER=`root`@`localhost` EVENT d.e ON SCHEDULE EVERY 1 SECOND DO DELETE FROM t",
                "CREATE DEFINER=`root`@`localhost` EVENT d.e ON SCHEDULE EVERY 1 SECOND DISABLE ON SLAVE DO DELETE FROM t",
            ),
            (
                "create or replace event if not exists `do` on schedule at '2030-01-01' + interval 1 day on completion preserve \
                 enable comment 'do' do begin end",
                "create or replace event if not exists `do` on schedule at '2030-01-01' + interval 1 day on completion preserve \
                 DISABLE ON SLAVE comment 'do' do begin end",
            ),
            (
                "CREATE EVENT comment ON SCHEDULE EVERY 1 DAY COMMENT 'enable' DO SELECT 1",
                "CREATE EVENT comment ON SCHEDULE EVERY 1 DAY DISABLE ON SLAVE COMMENT 'enable' DO SELECT 1",
            ),
            ("ALTER EVENT e ENABLE", "ALTER DEFINER=`o'brien`@`10.%` EVENT e DISABLE ON SLAVE"),
            ("ALTER DEFINER=a@b EVENT e DISABLE COMMENT 'x'", "ALTER DEFINER=a@b EVENT e DISABLE ON SLAVE COMMENT 'x'"),
            (
                "ALTER DEFINER=a@b EVENT e DISABLE ON SLAVE DO SELECT 1",
                "ALTER DEFINER=a@b EVENT e DISABLE ON SLAVE DO SELECT 1",
            ),
            (
                "ALTER DEFINER=a@b EVENT e RENAME TO f DO BEGIN UPDATE t SET enable = 1; END",
                "ALTER DEFINER=a@b EVENT e RENAME TO f DISABLE ON SLAVE DO BEGIN UPDATE t SET enable = 1; END",
            ),
            ("ALTER EVENT e RENAME TO f", "ALTER DEFINER=`o'brien`@`10.%` EVENT e RENAME TO f DISABLE ON SLAVE"),
            (
                "ALTER DEFINER=a@b EVENT d.e RENAME TO d.f;",
                "ALTER DEFINER=a@b EVENT d.e RENAME TO d.f DISABLE ON SLAVE;",
            ),
            ("ALTER DEFINER=a@b EVENT e COMMENT 'x'", "ALTER DEFINER=a@b EVENT e DISABLE ON SLAVE COMMENT 'x'"),
            ("ALTER DEFINER=a@b EVENT e DO DO 1", "ALTER DEFINER=a@b EVENT e DISABLE ON SLAVE DO DO 1"),
            (
                "ALTER DEFINER=a@b EVENT e4 ON SCHEDULE AT '2020-01-01' ON COMPLETION PRESERVE",
                "ALTER DEFINER=a@b EVENT e4 ON SCHEDULE AT '2020-01-01' ON COMPLETION PRESERVE DISABLE ON SLAVE",
            ),
            (
                "ALTER DEFINER=a@b EVENT e ON COMPLETION NOT PRESERVE RENAME TO f COMMENT 'x' DO DO 1 -- y",
                "ALTER DEFINER=a@b EVENT e ON COMPLETION NOT PRESERVE RENAME TO f DISABLE ON SLAVE COMMENT 'x' DO DO 1 -- y",
            ),
            ("CREATE TABLE event (enable INT)", "as it is"),
            ("CREATE TABLE t (id INT, event VARCHAR(20) COMMENT 'what happened')", "as it is"),
            ("CREATE TABLE t (event INT, enable INT COMMENT 'ENABLE')", "as it is"),
            (
                "CREATE EVENT e ON SCHEDULE AT NOW() + INTERVAL comment DAY DO SELECT 1",
                "CREATE EVENT e ON SCHEDULE AT NOW() + INTERVAL comment DAY DISABLE ON SLAVE DO SELECT 1",
            ),
            ("CREATE EVENT e ON SCHEDULE AT enable() + INTERVAL 1 DAY DO SELECT 1", "refused"),
            (
                "CREATE EVENT e ON SCHEDULE EVERY (SELECT 1 FROM t JOIN u ON do) DAY ON COMPLETION NOT PRESERVE DISABLE DO SELECT 1",
                "CREATE EVENT e ON SCHEDULE EVERY (SELECT 1 FROM t JOIN u ON do) DAY ON COMPLETION NOT PRESERVE DISABLE ON SLAVE DO SELECT 1",
            ),
            ("ALTER DEFINER=CURRENT_USER EVENT e DISABLE", "ALTER DEFINER=`o'brien`@`10.%` EVENT e DISABLE ON SLAVE"),
            (
                "CREATE EVENT e ON SCHEDULE AT NOW() nonsense DISABLED DO SELECT 1 -- event",
                "CREATE EVENT e ON SCHEDULE AT NOW() nonsense DISABLED DISABLE ON SLAVE DO SELECT 1 -- event",
            ),
            (
                "SET STATEMENT max_statement_time=(SELECT 1 FROM t FOR UPDATE) FOR ALTER EVENT e ENABLE DO UPDATE secret.pay SET a=1",
                "SET STATEMENT max_statement_time=(SELECT 1 FROM t FOR UPDATE) FOR ALTER DEFINER=`o'brien`@`10.%` EVENT e DISABLE ON SLAVE DO UPDATE secret.pay SET a=1",
            ),
            (
                "/*!50003 SET STATEMENT max_statement_time=3 FOR */ ALTER EVENT e DISABLE",
                "/*!50003 SET STATEMENT max_statement_time=3 FOR */ ALTER DEFINER=`o'brien`@`10.%` EVENT e DISABLE ON SLAVE",
            ),
            ("CREATE /*!99999 x */ EVENT e ON SCHEDULE AT NOW() DO SELECT 1", "refused"),
            ("CREATE EVENT e ON SCHEDULE AT NOW() COMMENT 'x", "refused"),
            ("CREATE EVENT e ON SCHEDULE AT NOW() ENABLE COMMENT x DO SELECT 1", "refused"),
            ("DROP EVENT e", "as it is"),
            ("CREATE EVENT", "refused"),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
    }

    #[test]
    fn event_schedules_end_after_any_expression() {
        for expression in [
            "{ts '2020-01-01 00:00:00'}",
            "{ d '2020-01-01' }",
            "{fn now()}",
            "ADDTIME({ts '2020-01-01 00:00:00'}, 1)",
            "TIMESTAMP'2020-01-01 00:00:00'",
            "'2020-01-01'",
            "_utf8mb4'2020' '-01-01'",
            "N'2020-01-01'",
            "20200101",
            "20200101.5",
            ".5",
            "0x32303230",
            "x'32'",
            "b'1'",
            "1e10",
            "@enable",
            "@`do`",
            "@'disable'",
            "@@timestamp",
            "@@session.timestamp",
            "NULL",
            "CASE 1 WHEN 1 THEN NOW() END",
            "NOW() + INTERVAL 1 DAY",
            "NOW() + INTERVAL '1:1' DAY_HOUR",
            "CURRENT_TIMESTAMP",
            "(SELECT enable FROM t WHERE do = disable)",
            "(SELECT `do` FROM t) + `f`()",
            "d.enable()",
            "`d`.`do`()",
            "'2020-01-01' COLLATE utf8mb4_bin",
            "NOW() COLLATE enable_ci",
        ] {
            for clause in ["EVERY 1 SECOND STARTS", "EVERY 1 SECOND STARTS NOW() ENDS", "AT"] {
                for (before, state, after) in [
                    ("CREATE EVENT e ON SCHEDULE", "", " DO INSERT INTO l SELECT 'e2' FROM a JOIN b"),
                    ("CREATE EVENT e ON SCHEDULE", " ENABLE", " COMMENT 'x' DO SELECT 1"),
                    ("CREATE EVENT e ON SCHEDULE", " DISABLE", " DO SELECT 1"),
                    ("ALTER DEFINER=a@b EVENT e ON SCHEDULE", " ENABLE", ""),
                    ("ALTER DEFINER=a@b EVENT e ON SCHEDULE", " ON COMPLETION NOT PRESERVE ENABLE", " DO SELECT 1"),
                ] {
                    let place = state.replace(" ENABLE", "").replace(" DISABLE", "") + " DISABLE ON SLAVE";
                    let sql = format!("{before} {clause} {expression}{state}{after}");
                    assert_eq!(rewritten(&sql), format!("{before} {clause} {expression}{place}{after}"), "{sql}");
                }
            }
        }
        for sql in [
            "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND STARTS NOW() ! DO INSERT INTO l SELECT 1 FROM a JOIN b",
            "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND STARTS NEXT VALUE FOR do DO SELECT 1",
            "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND STARTS (NOW() DO SELECT 1",
            "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND STARTS {ts '2020-01-01' DO SELECT 1",
            "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND",
            "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND;",
            "ALTER EVENT e ON SCHEDULE EVERY 1 SECOND STARTS NOW() ? ENABLE",
            "CREATE UNKNOWN EVENT e ON SCHEDULE EVERY 1 SECOND DO SELECT 1",
            "ALTER DEFINER=a@b UNKNOWN WORDS EVENT e ENABLE",
        ] {
            assert_eq!(rewritten(sql), "refused", "{sql}");
        }
        assert_eq!(
            rewritten("insert /* x */ DELAYED into t VALUES ('delayed')"),
            "insert /* x */  into t VALUES ('delayed')"
        );
        for sql in
            ["INSERT INTO `delayed` VALUES (1)", "INSERT `DELAYED` VALUES (1)", "INSERT LOW_PRIORITY t SELECT delayed"]
        {
            assert_eq!(rewritten(sql), "as it is", "{sql}");
        }
        assert_eq!(rewritten("CREATE TABLESPACE event ADD DATAFILE 'event.ibd'"), "as it is");
    }

    #[test]
    fn current_user_is_the_sources_account() {
        for (sql, expected) in [
            ("GRANT SELECT ON d.* TO CURRENT_USER", "GRANT SELECT ON d.* TO `o'brien`@`10.%`"),
            ("GRANT r TO a, current_user( ) WITH ADMIN OPTION", "GRANT r TO a, `o'brien`@`10.%` WITH ADMIN OPTION"),
            ("ALTER USER CURRENT_USER() IDENTIFIED BY 'x'", "ALTER USER `o'brien`@`10.%` IDENTIFIED BY 'x'"),
            ("DROP USER a, CURRENT_USER", "DROP USER a, `o'brien`@`10.%`"),
            ("RENAME USER CURRENT_USER TO b", "RENAME USER `o'brien`@`10.%` TO b"),
            ("GRANT SELECT ON d.* TO 'CURRENT_USER'", "as it is"),
            ("CREATE VIEW v AS SELECT CURRENT_USER()", "as it is"),
            ("INSERT INTO t VALUES (CURRENT_USER())", "as it is"),
            ("CREATE ROLE r, s", "as it is"),
            (
                "CREATE OR REPLACE ROLE r WITH ADMIN CURRENT_USER",
                "CREATE OR REPLACE ROLE r WITH ADMIN `o'brien`@`10.%`",
            ),
            ("CREATE ROLE r WITH ADMIN x", "as it is"),
            ("GRANT r TO a@current_user", "as it is"),
            (
                "SET STATEMENT max_statement_time=3 FOR GRANT SELECT ON d.* TO CURRENT_USER",
                "SET STATEMENT max_statement_time=3 FOR GRANT SELECT ON d.* TO `o'brien`@`10.%`",
            ),
            ("GRANT CURRENT_ROLE TO a", "refused"),
            ("GRANT r TO CURRENT_USER -- \u{1}\n\u{1}", "refused"),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
        let text = SqlText { sql: b"GRANT r TO CURRENT_USER", reading: &Reading::plain() };
        assert!(rewrite_for_replica(text, &StatusVariables::default(), EventStates::Disabled).is_err());
    }
}
