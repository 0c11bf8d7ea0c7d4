//! What a server's own applier makes of a statement beyond executing it, done to the statement's text: another session has no other
//! way to say it.
//!
//! - An event of the event scheduler is the source's to run: the replica keeps it, switched off.
//! - Who alters an event becomes its definer.
//! - `CURRENT_USER` in a statement about accounts is who executed it on the source.

use spate_binlog::query::StatusVariables;

use crate::words::Words;

/// The statement as a replica is to execute it; `None` if that is what it says.
pub(crate) fn replicated(sql: &[u8], status: &StatusVariables) -> Option<Vec<u8>> {
    let mut words = Words::new(sql);
    let first = words.next()?;
    if first.is("CREATE") || first.is("ALTER") {
        let is_user = words.peek().is_some_and(|word| word.is("USER"));
        return if is_user { with_invoker(sql, status) } else { event(sql, words, first.is("CREATE"), status) };
    }
    let is_about_accounts =
        first.is("GRANT") || first.is("REVOKE") || first.is("SET") || words.next().is_some_and(|word| word.is("USER"));
    if is_about_accounts { with_invoker(sql, status) } else { None }
}

/// CREATE EVENT or ALTER EVENT. `words` follow the first.
fn event(sql: &[u8], mut words: Words<'_>, creates: bool, status: &StatusVariables) -> Option<Vec<u8>> {
    // What may stand before is short: OR REPLACE, and a definer.
    const WORDS_BEFORE_MAX: usize = 12;
    let verb_end = words.place(sql);
    let is_anonymous = words.peek().is_some_and(|word| word.is("EVENT"));
    if !words.by_ref().take(WORDS_BEFORE_MAX).any(|word| word.is("EVENT")) {
        return None;
    }
    let changed = switched_off(sql, words, creates);
    match &status.invoker {
        // The server itself writes the definer of an event that it creates.
        Some((user, host)) if !creates && is_anonymous => {
            let definer = [b"DEFINER=".as_slice(), &quoted(user), b"@", &quoted(host), b" "].concat();
            let (verb, rest) = sql.split_at(verb_end);
            // What comes after the verb is not moved by what is changed behind it.
            let rest = changed.as_deref().map_or(rest, |changed| &changed[verb_end..]);
            Some([verb, &definer, rest].concat())
        }
        _ => changed,
    }
}

/// The same, with the state that events have on a replica. `words` follow EVENT.
fn switched_off(sql: &[u8], mut words: Words<'_>, creates: bool) -> Option<Vec<u8>> {
    const STATE: &[u8] = b"DISABLE ON SLAVE ";
    if words.accept("IF") {
        words.accept("NOT");
        words.accept("EXISTS");
    }
    words.next()?.identifier()?;
    if words.accept_mark(b'.') {
        words.next()?;
    }
    loop {
        let begin = words.place(sql);
        let word = words.next()?;
        if word.is("ENABLE") || word.is("DISABLE") {
            // The last of them may stand at the statement's end.
            if words.accept("ON") {
                words.next()?;
            }
            return Some([&sql[..begin], STATE, &sql[words.place(sql)..]].concat());
        }
        if creates && (word.is("COMMENT") || word.is("DO")) {
            return Some([&sql[..begin], STATE, &sql[begin..]].concat());
        }
        if word.is("DO") {
            return None;
        }
    }
}

fn with_invoker(sql: &[u8], status: &StatusVariables) -> Option<Vec<u8>> {
    let (user, host) = status.invoker.as_ref()?;
    let mut rewritten = Vec::new();
    let mut taken = 0;
    let mut words = Words::new(sql);
    loop {
        let begin = words.place(sql);
        let Some(word) = words.next() else { break };
        if word.is("CURRENT_USER") {
            if words.accept_mark(b'(') {
                words.accept_mark(b')');
            }
            rewritten.extend_from_slice(&sql[taken..begin]);
            rewritten.extend_from_slice(&[quoted(user), quoted(host)].join(&b'@'));
            taken = words.place(sql).min(sql.len());
            // What was passed over before the next word.
            rewritten.push(b' ');
        }
    }
    if taken == 0 {
        return None;
    }
    rewritten.extend_from_slice(&sql[taken..]);
    Some(rewritten.trim_ascii_end().to_vec())
}

fn quoted(name: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'`'];
    for &byte in name {
        quoted.extend_from_slice(if byte == b'`' { b"``" } else { std::slice::from_ref(&byte) });
    }
    quoted.push(b'`');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewritten(sql: &str) -> String {
        let status = StatusVariables { invoker: Some((b"o'brien".to_vec(), b"10.%".to_vec())), ..Default::default() };
        replicated(sql.as_bytes(), &status).map_or_else(|| "as it is".to_owned(), |sql| String::from_utf8(sql).unwrap())
    }

    #[test]
    fn events_are_switched_off() {
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
            ("ALTER EVENT e ENABLE", "ALTER DEFINER=`o'brien`@`10.%` EVENT e DISABLE ON SLAVE "),
            ("ALTER DEFINER=a@b EVENT e DISABLE COMMENT 'x'", "ALTER DEFINER=a@b EVENT e DISABLE ON SLAVE COMMENT 'x'"),
            (
                "ALTER DEFINER=a@b EVENT e DISABLE ON SLAVE DO SELECT 1",
                "ALTER DEFINER=a@b EVENT e DISABLE ON SLAVE DO SELECT 1",
            ),
            ("ALTER DEFINER=a@b EVENT e RENAME TO f DO BEGIN UPDATE t SET enable = 1; END", "as it is"),
            ("ALTER EVENT e RENAME TO f", "ALTER DEFINER=`o'brien`@`10.%` EVENT e RENAME TO f"),
            ("CREATE TABLE event (enable INT)", "as it is"),
            ("DROP EVENT e", "as it is"),
            ("CREATE EVENT", "as it is"),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
    }

    #[test]
    fn accounts_are_those_of_the_source() {
        for (sql, expected) in [
            ("GRANT SELECT ON d.* TO CURRENT_USER", "GRANT SELECT ON d.* TO `o'brien`@`10.%`"),
            ("GRANT r TO a, current_user( ) WITH ADMIN OPTION", "GRANT r TO a, `o'brien`@`10.%` WITH ADMIN OPTION"),
            ("ALTER USER CURRENT_USER() IDENTIFIED BY 'x'", "ALTER USER `o'brien`@`10.%` IDENTIFIED BY 'x'"),
            ("DROP USER a, CURRENT_USER", "DROP USER a, `o'brien`@`10.%`"),
            ("RENAME USER CURRENT_USER TO b", "RENAME USER `o'brien`@`10.%` TO b"),
            ("GRANT SELECT ON d.* TO 'CURRENT_USER'", "as it is"),
            ("CREATE VIEW v AS SELECT CURRENT_USER()", "as it is"),
            ("INSERT INTO t VALUES (CURRENT_USER())", "as it is"),
        ] {
            assert_eq!(rewritten(sql), expected, "{sql}");
        }
        assert_eq!(replicated(b"GRANT r TO CURRENT_USER", &StatusVariables::default()), None);
    }
}
