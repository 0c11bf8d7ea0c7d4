//! Finds the privileges that a statement needs of the account that executes it, beyond reading and changing rows.
//!
//! It reads the statement's words, for people who want to give an account only the privileges that it needs. The server
//! decides: if this module misses a privilege, the server's error names it.

use std::collections::BTreeSet;

use spate_sql::{Lexer, SqlText, TokenKind};

use crate::Statement;
use crate::definition::TableName;
use crate::statement::{self, Object, StatementClass, kind, name, opened, skip_existence};

/// A privilege that a statement needs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A privilege on everything in a schema.
    Schema {
        /// The schema.
        schema: String,
        /// The privilege, as GRANT names it.
        privilege: &'static str,
    },
    /// A privilege on the server.
    Server(&'static str),
    /// To make objects that act with the rights of this account: user and host, as far as the statement names it.
    Definer(Option<(String, String)>),
    /// To give roles.
    Roles,
    /// To give, or take, the right to act as another account.
    Proxies,
    /// To make, alter or drop connections to other servers.
    Servers,
    /// To execute functions of this schema. The statement does not say if the schema has any.
    Functions(String),
    /// XA transactions.
    Xa,
    /// To hold privileges and to grant them, on a schema or on the server; none for USAGE.
    Give {
        /// The privileges, as GRANT names them, in upper case.
        privileges: BTreeSet<String>,
        /// The schema; `None` means the whole server.
        schema: Option<String>,
    },
}

/// The needs of a statement are unknown: its text is a doubt, or its kind is unknown here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Untold;

/// Finds the needs of a statement. `database` is the default database.
///
/// # Errors
/// [`Untold`].
pub fn needs(text: SqlText<'_>, database: &str) -> Result<BTreeSet<Need>, Untold> {
    let class = statement::classify(text).map_err(|_| Untold)?;
    if text.doubt().is_some() {
        return Err(Untold);
    }
    let mut needs = match class {
        StatementClass::Savepoint | StatementClass::XaEnd => BTreeSet::new(),
        StatementClass::Xa => BTreeSet::from([Need::Xa]),
        StatementClass::Change => functions(text, database),
        StatementClass::Temporary => {
            let (_, tables) = statement::temporary_tables(text, database).map_err(|_| Untold)?;
            in_schemas(tables.into_iter().map(|table| table.schema), &["CREATE TEMPORARY TABLES"])
        }
        StatementClass::Definition => definition(text, database)?,
    };
    // Without a default database, a name may be of any schema; that never means all of them.
    needs.retain(|need| !matches!(need, Need::Functions(schema) if schema.is_empty()));
    let is_of_no_schema = |need: &Need| match need {
        Need::Schema { schema, .. } | Need::Give { schema: Some(schema), .. } => schema.is_empty(),
        _ => false,
    };
    if needs.iter().any(is_of_no_schema) { Err(Untold) } else { Ok(needs) }
}

fn in_schemas(schemas: impl IntoIterator<Item = String>, privileges: &[&'static str]) -> BTreeSet<Need> {
    let of_schema =
        |schema: String| privileges.iter().map(move |privilege| Need::Schema { schema: schema.clone(), privilege });
    schemas.into_iter().flat_map(of_schema).collect()
}

/// A name before an opening parenthesis may be a function of the default schema, or of the schema that qualifies it.
fn functions(text: SqlText<'_>, database: &str) -> BTreeSet<Need> {
    let mut needs = BTreeSet::new();
    let words = text.tokens();
    let mut schema: Option<String> = None;
    let mut before: Option<String> = None;
    for word in words {
        if word.is_mark(b'(') && before.is_some() {
            needs.insert(Need::Functions(schema.take().unwrap_or_else(|| database.to_owned())));
        }
        match word.is_mark(b'.') {
            true => schema = before.take(),
            false => {
                if before.is_some() || !word.is_name() {
                    schema = None;
                }
                before = if word.is_name() { word.name() } else { None };
            }
        }
    }
    needs
}

fn definition(text: SqlText<'_>, database: &str) -> Result<BTreeSet<Need>, Untold> {
    let mut words = opened(text);
    let Some(verb) = words.next() else { return Ok(BTreeSet::new()) };
    if verb.is_one_of(&["GRANT", "REVOKE"]) {
        return grant(words, verb.is("REVOKE"), database);
    }
    if verb.is("SET") {
        return Ok(BTreeSet::from([Need::Server("CREATE USER")]));
    }
    if verb.is("FLUSH") {
        return Ok(BTreeSet::from([Need::Server("RELOAD")]));
    }
    if verb.is_one_of(&["ANALYZE", "OPTIMIZE", "REPAIR", "CHECK", "BEGIN", "COMMIT", "START"]) {
        return Ok(BTreeSet::new());
    }
    if verb.is("TRUNCATE") {
        words.accept("TABLE");
        let table = name(&mut words, database).ok_or(Untold)?;
        return Ok(in_schemas([table.schema], &["DROP"]));
    }
    let replaces = statement::replaces(text);
    let definer = definer(words.clone());
    if verb.is("RENAME") || verb.is_one_of(&["CREATE", "ALTER", "DROP"]) {
        let mut needs = object(text, database, words, verb_of(&verb), replaces, definer)?;
        // To find out, by the engine's numbers, if it was executed before an interruption.
        needs.insert(Need::Server("PROCESS"));
        return Ok(needs);
    }
    Err(Untold)
}

fn verb_of(verb: &spate_sql::Token<'_>) -> &'static str {
    ["CREATE", "ALTER", "DROP", "RENAME"].into_iter().find(|word| verb.is(word)).unwrap_or_default()
}

fn object(
    text: SqlText<'_>,
    database: &str,
    mut words: Lexer<'_>,
    verb: &str,
    replaces: bool,
    definer: Option<(String, String)>,
) -> Result<BTreeSet<Need>, Untold> {
    if verb == "RENAME" {
        return match words.accept("USER") {
            true => Ok(BTreeSet::from([Need::Server("CREATE USER")])),
            false => Ok(in_schemas(schemas(text, database)?, &["ALTER", "CREATE", "DROP"])),
        };
    }
    // One at a time, since the new name may be in another schema.
    let one = |words: &mut Lexer<'_>| {
        skip_existence(words);
        name(words, database).map(|name| name.schema).ok_or(Untold)
    };
    let with = |mut needs: BTreeSet<Need>, more: Need| {
        needs.insert(more);
        needs
    };
    let mut after_verb = words.clone();
    Ok(match kind(&mut words) {
        Some("TABLE") => table(text, database, verb, replaces)?,
        Some("SEQUENCE") => in_schemas(schemas(text, database)?, sequence(verb, replaces)),
        Some("INDEX") => in_schemas(schemas(text, database)?, &["INDEX"]),
        Some("VIEW") => {
            let schemas = schemas(text, database)?;
            match verb {
                "DROP" => in_schemas(schemas, &["DROP", "SHOW VIEW"]),
                _ if verb == "ALTER" || replaces => {
                    with(in_schemas(schemas, &["CREATE VIEW", "DROP", "SHOW VIEW"]), Need::Definer(definer))
                }
                _ => with(in_schemas(schemas, &["CREATE VIEW", "SHOW VIEW"]), Need::Definer(definer)),
            }
        }
        Some("TRIGGER") => {
            let needs = in_schemas([one(&mut words)?], &["TRIGGER"]);
            if verb == "CREATE" { with(needs, Need::Definer(definer)) } else { needs }
        }
        Some("EVENT") => {
            let needs = in_schemas([one(&mut words)?], &["EVENT"]);
            if verb == "DROP" { needs } else { with(needs, Need::Definer(definer)) }
        }
        Some("PROCEDURE" | "FUNCTION" | "PACKAGE") => {
            words.accept("BODY");
            let schema = one(&mut words)?;
            match verb {
                "CREATE" if replaces => {
                    with(in_schemas([schema], &["CREATE ROUTINE", "ALTER ROUTINE"]), Need::Definer(definer))
                }
                "CREATE" => with(in_schemas([schema], &["CREATE ROUTINE"]), Need::Definer(definer)),
                _ => in_schemas([schema], &["ALTER ROUTINE"]),
            }
        }
        Some("DATABASE" | "SCHEMA") => in_schemas(
            schemas(text, database)?,
            match verb {
                "CREATE" if replaces => &["CREATE", "DROP"],
                "CREATE" => &["CREATE"],
                "ALTER" => &["ALTER"],
                _ => &["DROP"],
            },
        ),
        Some("USER" | "ROLE") => BTreeSet::from([Need::Server("CREATE USER")]),
        Some("SERVER") => BTreeSet::from([Need::Servers]),
        _ if after_verb.accept("UNDO") || after_verb.accept("TABLESPACE") || after_verb.accept("LOGFILE") => {
            BTreeSet::from([Need::Server("CREATE TABLESPACE")])
        }
        _ => return Err(Untold),
    })
}

fn sequence(verb: &str, replaces: bool) -> &'static [&'static str] {
    match verb {
        "CREATE" if replaces => &["CREATE", "DROP"],
        "CREATE" => &["CREATE"],
        "ALTER" => &["ALTER"],
        _ => &["DROP"],
    }
}

fn table(text: SqlText<'_>, database: &str, verb: &str, replaces: bool) -> Result<BTreeSet<Need>, Untold> {
    let has = |words: &[&str]| text.tokens().any(|word| word.is_one_of(words));
    let mut needs = in_schemas(
        schemas(text, database)?,
        match verb {
            "CREATE" if replaces => &["CREATE", "DROP"],
            "CREATE" => &["CREATE"],
            "ALTER" if has(&["RENAME", "EXCHANGE", "PARTITION"]) => &["ALTER", "CREATE", "DROP"],
            "ALTER" => &["ALTER", "CREATE"],
            _ => &["DROP"],
        },
    );
    // The schema of parents without one.
    let objects = statement::touched(text, database).map_err(|_| Untold)?;
    let own = objects.iter().find_map(|object| match object {
        Object::Table(table) => Some(&*table.schema),
        _ => None,
    });
    let mut words = text.tokens();
    while let Some(word) = words.next() {
        if word.is_one_of(&["DATA", "INDEX"]) && names_directory(words.clone()) {
            needs.insert(Need::Server("FILE"));
        }
        if word.is("REFERENCES") {
            needs.extend(
                name(&mut words, own.unwrap_or(database))
                    .map(|parent| Need::Schema { schema: parent.schema, privilege: "REFERENCES" }),
            );
        }
    }
    Ok(needs)
}

/// True if `DIRECTORY [=] '…'` follows, as a table's option or a partition's.
fn names_directory(mut words: Lexer<'_>) -> bool {
    words.accept("DIRECTORY") && {
        words.accept_mark(b'=');
        words.next().is_some_and(|word| word.kind == TokenKind::Text)
    }
}

/// The schemas of the objects that a statement names.
fn schemas(text: SqlText<'_>, database: &str) -> Result<BTreeSet<String>, Untold> {
    let objects = statement::touched(text, database).map_err(|_| Untold)?;
    let schema = |object| match object {
        Object::Table(name) | Object::Trigger(name) => Some(name.schema),
        Object::Schema(name) => Some(name),
        Object::Accounts | Object::Routines | Object::Events => None,
    };
    Ok(objects.into_iter().filter_map(schema).collect())
}

/// A routine that a statement creates, and its creator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreatedRoutine {
    /// `PROCEDURE`, `FUNCTION`, `PACKAGE` or `PACKAGE BODY`.
    pub kind: &'static str,
    /// Its name.
    pub name: TableName,
    /// The creator's user.
    pub user: String,
    /// The creator's host.
    pub host: String,
}

/// The account that a server's own applier takes for a routine's creator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creator {
    /// MariaDB: the account that the statement names.
    Definer,
    /// MySQL: the account that the log names beside it.
    Invoker,
}

/// The routine that a statement creates; `None` if it creates none, or names no creator.
///
/// # Errors
/// [`Untold`].
pub fn created_routine(statement: &Statement, creator: Creator) -> Result<Option<CreatedRoutine>, Untold> {
    let mut words = opened(statement.text());
    if !words.accept("CREATE") {
        return Ok(None);
    }
    let definer = definer(words.clone());
    let kind = match kind(&mut words) {
        Some("PROCEDURE") => "PROCEDURE",
        // A function of a loaded library has no creator.
        Some("FUNCTION") if definer.is_some() => "FUNCTION",
        Some("PACKAGE") if words.accept("BODY") => "PACKAGE BODY",
        Some("PACKAGE") => "PACKAGE",
        _ => return Ok(None),
    };
    skip_existence(&mut words);
    let name = name(&mut words, &statement.database).ok_or(Untold)?;
    let account = match (creator, &statement.status.invoker) {
        (Creator::Definer, _) => definer,
        (Creator::Invoker, Some((user, host))) => {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| Untold);
            Some((text(user)?, text(host)?))
        }
        (Creator::Invoker, None) => None,
    };
    // An object that a role creates has no definer.
    let account = account.filter(|(user, host)| !user.is_empty() && !host.is_empty());
    Ok(account.map(|(user, host)| CreatedRoutine { kind, name, user, host }))
}

/// The account after DEFINER.
fn definer(mut words: Lexer<'_>) -> Option<(String, String)> {
    const AHEAD_MAX: usize = 8;
    for _ in 0..AHEAD_MAX {
        if words.accept("DEFINER") {
            words.accept_mark(b'=');
            let user = words.next()?.unquoted()?;
            let host = if words.accept_mark(b'@') { words.next()?.unquoted()? } else { "%".to_owned() };
            return Some((user, host));
        }
        words.next()?;
    }
    None
}

/// The needs of GRANT or REVOKE; `words` follow.
fn grant(mut words: Lexer<'_>, revokes: bool, database: &str) -> Result<BTreeSet<Need>, Untold> {
    let end = if revokes { "FROM" } else { "TO" };
    if revokes {
        words.accept_all(&["IF", "EXISTS"]);
    }
    let mut privileges = BTreeSet::new();
    let mut privilege = String::new();
    let mut depth = 0_usize;
    loop {
        let word = words.next().ok_or(Untold)?;
        depth = match () {
            () if word.is_mark(b'(') => depth + 1,
            () if word.is_mark(b')') => depth.saturating_sub(1),
            () => depth,
        };
        if depth > 0 || word.is_mark(b')') {
            continue;
        }
        let is_end = word.is_one_of(&["ON", end]);
        if is_end || word.is_mark(b',') {
            privileges.insert(std::mem::take(&mut privilege));
        } else {
            let word = word.name().filter(|word| word.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_'));
            if !privilege.is_empty() {
                privilege.push(' ');
            }
            // The name of a role may be anything, and is not shown.
            privilege.push_str(&word.unwrap_or_default().to_ascii_uppercase());
        }
        if word.is("ON") {
            break;
        }
        if is_end {
            // All privileges of an account, or roles.
            let everything = ["ALL PRIVILEGES", "ALL"].iter().any(|all| privileges.contains(*all));
            return Ok(BTreeSet::from([if everything { Need::Server("CREATE USER") } else { Need::Roles }]));
        }
    }
    if privileges.contains("PROXY") {
        return Ok(BTreeSet::from([Need::Proxies]));
    }
    privileges.retain(|privilege| !["GRANT OPTION", "USAGE", ""].contains(&&**privilege));
    Ok(BTreeSet::from([Need::Give { privileges, schema: scope(&mut words, database)? }]))
}

/// The schema of a GRANT; `None` for everything.
fn scope(words: &mut Lexer<'_>, database: &str) -> Result<Option<String>, Untold> {
    let _kind = ["TABLE", "FUNCTION", "PROCEDURE", "PACKAGE"].iter().any(|kind| {
        let mut ahead = words.clone();
        // The word may be the object's name.
        let is_kind = ahead.accept(kind) && (ahead.accept("BODY") || ahead.peek().is_some_and(|word| word.is_name()));
        is_kind && words.accept(kind)
    });
    words.accept("BODY");
    if words.accept_mark(b'*') {
        let is_everything = words.accept_mark(b'.');
        return Ok(if is_everything { None } else { Some(database.to_owned()) });
    }
    let first = words.name().ok_or(Untold)?;
    // The pattern of a schema's name is kept as written.
    Ok(Some(if words.accept_mark(b'.') { first.replace('\\', "") } else { database.to_owned() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(sql: &str) -> Vec<String> {
        let reading = spate_sql::Reading::new(None, Some(45), spate_sql::Servers::default());
        let told = |need| match need {
            Need::Schema { schema, privilege } => format!("{privilege} ON {schema}"),
            Need::Give { privileges, schema } => {
                let privileges: Vec<String> = privileges.into_iter().collect();
                format!("give {} ON {}", privileges.join(", "), schema.unwrap_or_else(|| "everything".to_owned()))
            }
            Need::Definer(Some((user, host))) => format!("definer {user}@{host}"),
            other => format!("{other:?}"),
        };
        match needs(SqlText { sql: sql.as_bytes(), reading: &reading }, "d") {
            Ok(needs) => needs.into_iter().map(told).filter(|need| need != "Server(\"PROCESS\")").collect(),
            Err(Untold) => vec!["untold".to_owned()],
        }
    }

    #[test]
    fn needs_of_names_without_a_schema_never_mean_all_schemas() {
        let reading = spate_sql::Reading::new(None, Some(45), spate_sql::Servers::default());
        let of = |sql: &str| needs(SqlText { sql: sql.as_bytes(), reading: &reading }, "");
        for sql in ["CREATE TABLE t (id INT)", "GRANT SELECT ON t TO a", "GRANT SELECT ON * TO a"] {
            assert_eq!(of(sql), Err(Untold), "{sql}");
        }
        let parent = Need::Schema { schema: "d".to_owned(), privilege: "REFERENCES" };
        assert!(of("CREATE TABLE d.t (p INT REFERENCES par(id))").unwrap().contains(&parent));
        assert_eq!(of("DO f()"), Ok(BTreeSet::new()));
    }

    #[test]
    fn needs_of_statements_are_told() {
        for (sql, expected) in [
            ("CREATE TABLE t (id INT)", vec!["CREATE ON d"]),
            ("CREATE OR REPLACE TABLE e.t (id INT)", vec!["CREATE ON e", "DROP ON e"]),
            ("CREATE TABLE t (a INT, FOREIGN KEY (a) REFERENCES e.p (id))", vec!["CREATE ON d", "REFERENCES ON e"]),
            ("ALTER TABLE t ADD x INT", vec!["ALTER ON d", "CREATE ON d"]),
            (
                "ALTER TABLE t RENAME e.u",
                vec!["ALTER ON d", "CREATE ON d", "DROP ON d", "ALTER ON e", "CREATE ON e", "DROP ON e"],
            ),
            ("CREATE UNIQUE INDEX i ON e.t (a)", vec!["INDEX ON e"]),
            ("TRUNCATE e.t", vec!["DROP ON e"]),
            ("DROP TABLE a, e.b", vec!["DROP ON d", "DROP ON e"]),
            (
                "CREATE DEFINER=`r`@`h` TRIGGER e.x BEFORE INSERT ON t FOR EACH ROW SET @a=1",
                vec!["TRIGGER ON e", "definer r@h"],
            ),
            ("CREATE DEFINER=r FUNCTION f() RETURNS INT RETURN 1", vec!["CREATE ROUTINE ON d", "definer r@%"]),
            ("DROP EVENT IF EXISTS e", vec!["EVENT ON d"]),
            ("CREATE DATABASE e", vec!["CREATE ON e"]),
            ("ALTER DATABASE CHARACTER SET latin1", vec!["ALTER ON d"]),
            ("SET PASSWORD FOR a = 'x'", vec!["Server(\"CREATE USER\")"]),
            (
                "GRANT SELECT, INSERT (a, b), create view ON e.t TO x WITH GRANT OPTION",
                vec!["give CREATE VIEW, INSERT, SELECT ON e"],
            ),
            ("GRANT EXECUTE ON PROCEDURE p TO x", vec!["give EXECUTE ON d"]),
            ("GRANT USAGE ON *.* TO x", vec!["give  ON everything"]),
            ("GRANT ALL PRIVILEGES ON `a\\_b`.* TO x", vec!["give ALL PRIVILEGES ON a_b"]),
            ("REVOKE ALL PRIVILEGES, GRANT OPTION FROM x", vec!["Server(\"CREATE USER\")"]),
            ("GRANT `a;b` TO x", vec!["Roles"]),
            ("GRANT PROXY ON a TO b", vec!["Proxies"]),
            ("INSERT INTO t VALUES (e.f(1), NOW())", vec!["Functions(\"d\")", "Functions(\"e\")"]),
            ("UPDATE t SET a = 1", vec![]),
            ("CREATE TEMPORARY TABLE e.t (a INT)", vec!["CREATE TEMPORARY TABLES ON e"]),
            ("XA COMMIT 'x'", vec!["Xa"]),
            ("CREATE TABLE t (a INT) DATA DIRECTORY '/x'", vec!["CREATE ON d", "Server(\"FILE\")"]),
            ("CREATE TABLE t (a INT) INDEX DIRECTORY = '/x'", vec!["CREATE ON d", "Server(\"FILE\")"]),
            (
                "CREATE TABLE t (a INT) PARTITION BY HASH (a) (PARTITION p DATA DIRECTORY '/x')",
                vec!["CREATE ON d", "Server(\"FILE\")"],
            ),
            ("CREATE TABLE t (data INT, directory INT, INDEX directory (directory))", vec!["CREATE ON d"]),
            ("CREATE TABLE e.t (p INT, FOREIGN KEY (p) REFERENCES par (id))", vec!["CREATE ON e", "REFERENCES ON e"]),
            ("MYSTERY", vec!["untold"]),
            ("CREATE TABLE t (a INT COMMENT 'never closed)", vec!["untold"]),
        ] {
            let mut expected: Vec<String> = expected.into_iter().map(str::to_owned).collect();
            let mut actual = told(sql);
            expected.sort();
            actual.sort();
            assert_eq!(actual, expected, "{sql}");
        }
    }
}
