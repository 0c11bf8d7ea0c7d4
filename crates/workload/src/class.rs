//! What a statement may do, by its words: what a replay leaves out.
//!
//! Only known forms are replayed. What is in doubt, and what is not known, is left out, even where writes are replayed.

use spate_sql::{Token, TokenKind};

use crate::definitions::{defines_data, is_outside, names_schema_of_server};
use crate::functions::{Calls, calls_of};
use crate::reading::SessionReading;
use crate::set_class::class_of_set;

/// A kind of statement. Those that may do more are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// It reads.
    Read,
    /// It changes the session, or begins or ends a transaction.
    Session,
    /// It writes rows, or definitions.
    Write,
    /// It concerns the server, its accounts, its replication, or its files, or executes what only the server sees. Never replayed.
    Server,
    /// It is in doubt how the server reads it, or it changes how the server reads what follows. Never replayed.
    Unclear,
}

/// What is known of a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Understood {
    pub(crate) class: Class,
    /// The order of its rows means something.
    pub(crate) is_ordered: bool,
    /// The schema that a USE chooses.
    pub(crate) uses: Option<String>,
    /// Behind it, the session may have no default schema any more.
    pub(crate) may_drop_schema: bool,
}

const READS: [&str; 6] = ["SELECT", "SHOW", "VALUES", "TABLE", "WITH", "CHECKSUM"];
const EXPLAINS: [&str; 3] = ["DESC", "DESCRIBE", "EXPLAIN"];
const WRITES: [&str; 12] =
    ["INSERT", "REPLACE", "UPDATE", "DELETE", "TRUNCATE", "CALL", "DO", "HANDLER", "XA", "OPTIMIZE", "REPAIR", "CHECK"];
const DEFINITIONS: [&str; 4] = ["CREATE", "ALTER", "DROP", "RENAME"];

/// What a statement may do, as the sessions of the replay read it. `tokens` are what they read, if that is sure.
pub(crate) fn understand(tokens: Option<&[Token<'_>]>, reading: &SessionReading) -> Understood {
    let Some(tokens) = tokens else {
        return Understood { class: Class::Unclear, is_ordered: false, uses: None, may_drop_schema: false };
    };
    let uses = match tokens {
        [verb, schema] if verb.is("USE") => schema.name(),
        _ => None,
    };
    Understood {
        class: class_of(tokens, reading),
        is_ordered: is_ordered(tokens),
        uses,
        may_drop_schema: tokens.first().is_some_and(|first| first.is_one_of(&["DROP", "CALL"])),
    }
}

fn class_of(tokens: &[Token<'_>], reading: &SessionReading) -> Class {
    let class = class_by_verb(tokens, reading);
    let writes_file = tokens.iter().any(|token| token.is_one_of(&["OUTFILE", "DUMPFILE"]));
    match calls_of(tokens) {
        Calls::OfServer => class.max(Class::Server),
        Calls::Unclear => Class::Unclear,
        // Several statements are none that a session executes as one.
        Calls::Harmless if tokens.iter().any(|token| token.is_mark(b';')) => Class::Unclear,
        // The values of a prepared statement are not there.
        Calls::Harmless if tokens.iter().any(|token| token.is_mark(b'?')) => Class::Unclear,
        Calls::Harmless if writes_file => class.max(Class::Server),
        Calls::Harmless if class == Class::Write && (is_outside(tokens) || names_schema_of_server(tokens)) => {
            Class::Server
        }
        Calls::Harmless => class,
    }
}

fn class_by_verb(tokens: &[Token<'_>], reading: &SessionReading) -> Class {
    let Some(verb) = tokens.iter().position(|token| !token.is_mark(b'(')) else { return Class::Session };
    let (first, rest) = (&tokens[verb], &tokens[verb + 1..]);
    let next_is = |words: &[&str]| rest.first().is_some_and(|token| token.is_one_of(words));
    match () {
        () if first.is_one_of(&READS) || first.is_one_of(&EXPLAINS) => class_of_read(tokens),
        // What is behind may be of a stored program.
        () if verb > 0 => Class::Unclear,
        // MariaDB's ANALYZE executes what is behind.
        () if first.is("ANALYZE") && next_is(&["TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG"]) => Class::Write,
        () if first.is("ANALYZE") => class_of_read(tokens),
        () if first.is("SET") => class_of_set(rest, reading),
        () if first.is("USE") => if_known(Class::Session, rest.len() == 1 && rest[0].is_name()),
        () if first.is("BEGIN") => if_known(Class::Session, is_of_words(rest, &["WORK"])),
        () if first.is("START") && next_is(&["TRANSACTION"]) => class_of_start(rest),
        () if first.is_one_of(&["COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE"]) => {
            if_known(Class::Session, ends_transaction(rest))
        }
        () if first.is_one_of(&WRITES) => Class::Write,
        () if first.is_one_of(&DEFINITIONS) => if_known(Class::Write, defines_data(rest)),
        () => Class::Server,
    }
}

fn if_known(class: Class, is_known: bool) -> Class {
    if is_known { class } else { Class::Server }
}

fn is_of_words(tokens: &[Token<'_>], words: &[&str]) -> bool {
    tokens.iter().all(|token| token.is_one_of(words))
}

/// What begins as a read: a write if its words may write. Nothing but a user variable may be behind INTO.
fn class_of_read(tokens: &[Token<'_>]) -> Class {
    let reads = tokens.iter().enumerate().all(|(at, token)| {
        let next_is = |mark| tokens.get(at + 1).is_some_and(|next| next.is_mark(mark));
        match () {
            () if token.is("INTO") => next_is(b'@'),
            () if token.is("UPDATE") => at > 0 && tokens[at - 1].is("FOR"),
            () if token.is("DELETE") => false,
            // Functions have these names, too.
            () if token.is_one_of(&["INSERT", "REPLACE"]) => next_is(b'('),
            () => true,
        }
    });
    if reads { Class::Read } else { Class::Write }
}

fn class_of_start(tokens: &[Token<'_>]) -> Class {
    let is_known = tokens.iter().all(|token| {
        token.is_one_of(&["TRANSACTION", "WITH", "CONSISTENT", "SNAPSHOT", "READ", "ONLY", "WRITE"])
            || token.is_mark(b',')
    });
    let writes = tokens.iter().any(|token| token.is("WRITE"));
    if_known(if writes { Class::Write } else { Class::Session }, is_known)
}

/// `[WORK] [AND [NO] CHAIN] [[NO] RELEASE]`, or what names a savepoint.
fn ends_transaction(tokens: &[Token<'_>]) -> bool {
    const WORDS: [&str; 7] = ["WORK", "AND", "NO", "CHAIN", "RELEASE", "TO", "SAVEPOINT"];
    let words = tokens.iter().take_while(|token| token.is_one_of(&WORDS)).count();
    match &tokens[words..] {
        [] => true,
        [name] => matches!(name.kind, TokenKind::Word | TokenKind::Quoted),
        _ => false,
    }
}

/// True if the order of a statement's rows means something.
fn is_ordered(tokens: &[Token<'_>]) -> bool {
    // The parentheses around a whole query do not matter.
    let outer = tokens.iter().take_while(|token| token.is_mark(b'(')).count() as i64;
    let mut depth = 0_i64;
    let (mut least, mut is_ordered) = (i64::MAX, false);
    for (at, token) in tokens.iter().enumerate() {
        depth += i64::from(token.is_mark(b'(')) - i64::from(token.is_mark(b')'));
        let is_order = token.is("ORDER") && tokens.get(at + 1).is_some_and(|next| next.is("BY"));
        if is_order && depth <= outer.min(least) {
            is_ordered = true;
        }
        // What is joined to others of its depth has no order of its own.
        if token.is_one_of(&["UNION", "EXCEPT", "INTERSECT", "MINUS"]) && depth <= outer {
            is_ordered = false;
            least = least.min(depth);
        }
    }
    is_ordered
}

#[cfg(test)]
mod tests;
