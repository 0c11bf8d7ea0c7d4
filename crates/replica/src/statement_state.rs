//! The state of a session while it executes a statement of the source: what is set before, and undone after.

use std::collections::HashMap;

use spate_schedule::item::Statement;
use spate_schedule::statement::{StatementClass, leaves_session_alone};

use crate::applier_lock::IDLE_SECONDS_MAX;
use crate::asking::own_sql;
use crate::dialect::{Collations, Executing, SESSION_MYSQL_9_7};
use spate_connection::{Vendor, quote};

/// How long the session inside an XA transaction may be silent.
const IDLE_SECONDS_BESIDE: u64 = 28800;

/// Undoes the settings of a statement on MySQL, before rows are replayed again.
///
/// No session of the source has the id 0: else Spate's own SQL would meet the temporary tables of the session that came last.
const AFTER_STATEMENT_MYSQL: &str = "pseudo_thread_id=0, timestamp=DEFAULT, sql_mode='', foreign_key_checks=1, unique_checks=1, \
    auto_increment_increment=1, auto_increment_offset=1, time_zone=DEFAULT, sql_auto_is_null=0, \
    lc_time_names=DEFAULT, character_set_client=utf8mb4, collation_connection=utf8mb4_general_ci, \
    collation_server=DEFAULT, collation_database=DEFAULT, default_collation_for_utf8mb4=DEFAULT";

/// The same for what matters to definitions only, and cannot be set within a transaction.
const AFTER_DEFINITION_MYSQL: &str = ", sql_require_primary_key=0, default_table_encryption=DEFAULT";

/// Undoes the settings of a statement, before rows are replayed again.
const AFTER_STATEMENT: &str = "pseudo_thread_id=0, timestamp=DEFAULT, sql_mode='', foreign_key_checks=1, unique_checks=1, \
    check_constraint_checks=1, auto_increment_increment=1, auto_increment_offset=1, time_zone=DEFAULT, \
    sql_auto_is_null=0, sql_if_exists=0, lc_time_names=DEFAULT, character_set_client=utf8mb4, collation_connection=utf8mb4_general_ci, \
    collation_server=DEFAULT, collation_database=DEFAULT";

/// The same, for what sessions can set since MariaDB 10.11.
const AFTER_STATEMENT_10_11: &str = ", explicit_defaults_for_timestamp=DEFAULT, system_versioning_insert_history=0";

/// The same, for what sessions can set since MariaDB 11.2.
const AFTER_STATEMENT_11_2: &str = ", character_set_collations=DEFAULT";

/// REPEATABLE-READ by its number: a session whose connection is in UTF-16 or UTF-32 may take names in quotes for something else.
const REPEATABLE_READ: u8 = 2;

/// The number of `en_US`, in which names of days and months are where a source does not say.
const LC_TIME_NAMES_EN_US: u16 = 0;

/// Bits of the status variable `flags2`, as the servers number them.
mod flags2 {
    pub(super) const AUTO_IS_NULL: u32 = 1 << 14;
    pub(super) const NO_CHECK_CONSTRAINT_CHECKS: u32 = 1 << 15;
    pub(super) const EXPLICIT_DEFAULTS_FOR_TIMESTAMP: u32 = 1 << 24;
    pub(super) const NO_FOREIGN_KEY_CHECKS: u32 = 1 << 26;
    pub(super) const RELAXED_UNIQUE_CHECKS: u32 = 1 << 27;
    pub(super) const IF_EXISTS: u32 = 1 << 28;
    pub(super) const INSERT_HISTORY: u32 = 1 << 30;
}

/// The statements that set a session up for a statement of the source, and undo that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StatementState {
    pub(crate) before: String,
    pub(crate) after: String,
}

impl StatementState {
    /// The state for `statement`.
    pub(crate) fn of(statement: &Statement, collations: &Collations, executing: Executing) -> StatementState {
        let (mut before, mut after) = (before(statement, collations), after(statement, collations, executing));
        // A definition commits by itself. Without autocommit, MariaDB would wait for locks of its own in some (EXCHANGE PARTITION).
        if statement.class == StatementClass::Definition {
            before.push("autocommit=1".to_owned());
            after.push_str(", autocommit=0");
        }
        StatementState { before: format!("SET SESSION {}", before.join(", ")), after: format!("SET SESSION {after}") }
    }
}

/// The state of a session that executes definitions of the source and nothing else. Only what is different is set: all of it costs as much as
/// a small definition.
#[derive(Debug, Default)]
pub struct DefinerState {
    /// Values by the names of variables. Empty: the session is new.
    values: HashMap<String, String>,
    /// Another session may have changed the default database since it was used.
    is_database_old: bool,
}

impl DefinerState {
    /// Another session executes a definition, perhaps of a database. MariaDB remembers the settings of the one that a session uses, also when it is
    /// told to use it again.
    pub fn define_elsewhere(&mut self) {
        self.is_database_old = true;
    }

    /// True if the session can be brought into a state from which this statement has the effect that it has on a native replica, and is in a
    /// known state after it. There must be no temporary tables, which another session has.
    pub fn suits(statement: &Statement) -> bool {
        // Without a default database, it would have the last one, whose settings a server may remember.
        statement.class == StatementClass::Definition
            && !statement.database.is_empty()
            && statement.context.is_empty()
            && leaves_session_alone(statement.text())
    }

    /// The statements that bring the session into the state of the source's. `logs`: the server logs what the session executes; `more`: further
    /// assignments. Each is to be sent as one statement.
    pub fn bring(
        &mut self,
        statement: &Statement,
        collations: &Collations,
        logs: bool,
        more: impl IntoIterator<Item = String>,
    ) -> Vec<Vec<u8>> {
        let mut wanted: Vec<(String, String)> = Vec::new();
        let after = after(statement, collations, Executing::Branch);
        let mut before = before(statement, collations);
        if !logs && !may_ask_for_thread(statement) {
            before.retain(|assignment| !assignment.starts_with("pseudo_thread_id="));
        }
        let assignments = after.split(", ").map(str::to_owned).chain(before).chain(more);
        for (name, value) in assignments.filter_map(|assignment| parted(&assignment)) {
            match wanted.iter_mut().find(|(known, _)| *known == name) {
                Some(known) => known.1 = value,
                None => wanted.push((name, value)),
            }
        }
        let mut statements = Vec::new();
        let is_plain = is_plain(&statement.database) && wanted.iter().all(|(_, value)| is_plain(value));
        if !is_plain && !self.values.is_empty() {
            statements.push(READS_OUR_TEXT.as_bytes().to_vec());
            let read = READS_OUR_TEXT.trim_start_matches("SET SESSION ").split(", ");
            self.values.extend(read.filter_map(parted));
        }
        if !statement.database.is_empty() {
            if std::mem::take(&mut self.is_database_old) {
                statements.push(b"USE information_schema".to_vec());
            }
            statements.push(format!("USE {}", quote::identifier(&statement.database)).into_bytes());
            if !self.values.is_empty() {
                self.values.insert("collation_database".to_owned(), "DEFAULT".to_owned());
            }
        }
        wanted.retain(|(name, value)| self.values.get(name) != Some(value));
        if !wanted.is_empty() {
            let assignments: Vec<String> = wanted.iter().map(|(name, value)| format!("{name}={value}")).collect();
            statements.push(format!("SET SESSION {}", assignments.join(", ")).into_bytes());
        }
        self.values.extend(wanted);
        // What a database makes of them goes by the one that is used.
        self.values.retain(|name, value| !(name.starts_with("collation_") && value == "DEFAULT"));
        statements
    }
}

/// True unless a statement that may be executed by this session has the same effect whatever the number of its thread is. (There are no temporary
/// tables, which are told apart by it.)
fn may_ask_for_thread(statement: &Statement) -> bool {
    let text = statement.text();
    text.doubt().is_some() || text.has_letters("CONNECTION") || text.has_letters("THREAD")
}

/// Lets a session read what Spate writes. It is itself read alike by sessions of every character set and mode.
const READS_OUR_TEXT: &str =
    "SET SESSION sql_mode='', character_set_client=utf8mb4, collation_connection=utf8mb4_general_ci";

/// True if sessions of every character set and mode read this alike. (Some character sets have other letters in the place of brackets.)
fn is_plain(text: &str) -> bool {
    const MARKS: &[u8] = b"_.@:+-/, ";
    // What is quoted is empty, or plain itself.
    let inner = text.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(text);
    inner.bytes().all(|byte| byte.is_ascii_alphanumeric() || MARKS.contains(&byte))
}

/// Name and value of an assignment.
fn parted(assignment: &str) -> Option<(String, String)> {
    let (name, value) = assignment.split_once('=')?;
    Some((name.to_owned(), value.to_owned()))
}

/// What undoes the settings of a statement, before rows are replayed again.
fn after(statement: &Statement, collations: &Collations, executing: Executing) -> String {
    let mut after = match collations.version() {
        _ if collations.is_mysql() && statement.class == StatementClass::Definition => {
            format!("{AFTER_STATEMENT_MYSQL}{AFTER_DEFINITION_MYSQL}")
        }
        _ if collations.is_mysql() => AFTER_STATEMENT_MYSQL.to_owned(),
        Some(version) if version.is_at_least(11, 2) => {
            format!("{AFTER_STATEMENT}{AFTER_STATEMENT_10_11}{AFTER_STATEMENT_11_2}")
        }
        Some(version) if version.is_at_least(10, 11) => format!("{AFTER_STATEMENT}{AFTER_STATEMENT_10_11}"),
        _ => AFTER_STATEMENT.to_owned(),
    };
    if collations.has_cascade_triggers() {
        after.push_str(SESSION_MYSQL_9_7);
    }
    after.push_str(&own_settings(collations, executing));
    after
}

/// The settings with which Spate's own SQL is executed, each after a comma.
fn own_settings(collations: &Collations, executing: Executing) -> String {
    let idle_seconds = match executing {
        Executing::Main => IDLE_SECONDS_MAX,
        Executing::Branch => IDLE_SECONDS_BESIDE,
    };
    let (vendor, transactions) = match collations.version() {
        _ if collations.is_mysql() => (Vendor::MySql, "transaction"),
        Some(version) if version.is_at_least(11, 1) => (Vendor::MariaDb, "transaction"),
        _ => (Vendor::MariaDb, "tx"),
    };
    format!(
        "{}, wait_timeout={idle_seconds}, {transactions}_isolation={REPEATABLE_READ}, \
         {transactions}_read_only=0",
        own_sql(vendor)
    )
}

/// The session's state, as assignments.
fn before(statement: &Statement, collations: &Collations) -> Vec<String> {
    let Statement { status, timestamp_seconds, thread_id, .. } = statement;
    let mut settings = vec![match status.microseconds {
        Some(microseconds) => format!("timestamp={timestamp_seconds}.{microseconds:06}"),
        None => format!("timestamp={timestamp_seconds}"),
    }];
    // Temporary tables of the source's sessions are told apart by it.
    settings.push(format!("pseudo_thread_id={thread_id}"));
    if let Some(flags) = status.flags2 {
        let is_set = |bit| u8::from(flags & bit != 0);
        settings.push(format!("foreign_key_checks={}", 1 - is_set(flags2::NO_FOREIGN_KEY_CHECKS)));
        settings.push(format!("unique_checks={}", 1 - is_set(flags2::RELAXED_UNIQUE_CHECKS)));
        settings.push(format!("sql_auto_is_null={}", is_set(flags2::AUTO_IS_NULL)));
        if !collations.is_mysql() {
            let explicit = is_set(flags2::EXPLICIT_DEFAULTS_FOR_TIMESTAMP);
            settings.push(format!("check_constraint_checks={}", 1 - is_set(flags2::NO_CHECK_CONSTRAINT_CHECKS)));
            settings.push(format!("sql_if_exists={}", is_set(flags2::IF_EXISTS)));
            settings.push(format!("explicit_defaults_for_timestamp={explicit}"));
            settings.push(format!("system_versioning_insert_history={}", is_set(flags2::INSERT_HISTORY)));
        }
    }
    if collations.is_mysql() && statement.class == StatementClass::Definition {
        let switches = [
            // It stays for what comes after: see `told_defaults.rs`.
            ("explicit_defaults_for_timestamp", status.explicit_defaults_for_timestamp),
            ("sql_require_primary_key", status.sql_require_primary_key),
            ("default_table_encryption", status.default_table_encryption),
        ];
        let told = |(name, value): (&str, Option<bool>)| Some(format!("{name}={}", u8::from(value?)));
        settings.extend(switches.into_iter().filter_map(told));
    }
    if collations.is_mysql()
        && let Some(collation) = status.default_collation_for_utf8mb4
    {
        settings.push(format!("default_collation_for_utf8mb4={collation}"));
    }
    if collations.has_cascade_triggers() {
        settings.push(format!("enable_cascade_triggers={}", u8::from(status.enable_cascade_triggers == Some(true))));
    }
    if let Some(mode) = status.sql_mode {
        settings.push(format!("sql_mode={mode}"));
    }
    // A setting that a source leaves out is not the replica's own, but the one that the servers' appliers assume.
    let (increment, offset) = status.auto_increment.unwrap_or((1, 1));
    settings.push(format!("auto_increment_increment={increment}"));
    settings.push(format!("auto_increment_offset={offset}"));
    if let Some(zone) = &status.time_zone {
        settings.push(format!("time_zone={}", quote::text(&String::from_utf8_lossy(zone))));
    }
    settings.push(format!("lc_time_names={}", status.lc_time_names.unwrap_or(LC_TIME_NAMES_EN_US)));
    settings.push(match status.charset_database {
        Some(collation) => format!("collation_database={collation}"),
        // The session may have another schema than the source's, which had none.
        None if statement.database.is_empty() => "collation_database=@@global.collation_server".to_owned(),
        // That of the default database.
        None => "collation_database=DEFAULT".to_owned(),
    });
    if collations.has_collations_of_charsets() {
        let pairs = status.charset_collations.as_deref().unwrap_or_default();
        settings.push(format!("character_set_collations={}", quote::text(&collations.of_charsets(pairs))));
    }
    if let Some((client, connection, server)) = status.charset {
        // The server takes the number of a collation, but for a character set only that of its default collation.
        let client = collations.charset(u32::from(client));
        settings.push(format!("character_set_client={client}"));
        settings.push(format!("collation_connection={connection}"));
        settings.push(format!("collation_server={server}"));
    }
    settings
}

#[cfg(test)]
mod tests {
    use spate_binlog::query::StatusVariables;
    use spate_sql::Reading;

    use super::*;

    fn statement() -> Statement {
        Statement {
            timestamp_seconds: 7,
            thread_id: 3,
            database: String::new(),
            status: StatusVariables::default(),
            context: vec![],
            sql: b"DROP TABLE t".to_vec(),
            reading: Reading::plain(),
            error_code: 0,
            is_thread_specific: false,
            class: StatementClass::Definition,
            load: None,
        }
    }

    fn sql(statements: &[Vec<u8>]) -> Vec<String> {
        statements.iter().map(|sql| String::from_utf8_lossy(sql).into_owned()).collect()
    }

    #[test]
    fn definer_is_set_only_what_is_different() {
        let (collations, mut definer) = (Collations::default(), DefinerState::default());
        let first = sql(&definer.bring(&statement(), &collations, true, None));
        assert!(first[0].contains("sql_mode=''") && first[0].contains("timestamp=7"), "{first:?}");
        assert!(!first[0].contains("timestamp=DEFAULT"), "{first:?}");
        let next = Statement { timestamp_seconds: 8, database: "d".to_owned(), ..statement() };
        let second = sql(&definer.bring(&next, &collations, true, None));
        assert_eq!(second, ["USE `d`", "SET SESSION timestamp=8, collation_server=DEFAULT"]);
        let collation = StatusVariables { charset_database: Some(8), ..StatusVariables::default() };
        let other = sql(&definer.bring(&Statement { status: collation, ..next.clone() }, &collations, true, None));
        assert!(other[1].contains("collation_database=8"), "{other:?}");
        let again = sql(&definer.bring(&next, &collations, true, None));
        assert!(!again.concat().contains("collation_database"), "USE has undone it: {again:?}");
        let mode = StatusVariables { sql_mode: Some(4), ..StatusVariables::default() };
        let third = sql(&definer.bring(&Statement { status: mode, ..next.clone() }, &collations, true, None));
        assert!(third[1].contains("sql_mode=4"), "{third:?}");
        let fourth = sql(&definer.bring(&next, &collations, true, None));
        assert!(fourth[1].contains("sql_mode=''"), "{fourth:?}");
    }

    #[test]
    fn definer_is_told_the_thread_where_something_may_show_it() {
        let (collations, mut definer) = (Collations::default(), DefinerState::default());
        let first = sql(&definer.bring(&statement(), &collations, false, None));
        assert!(first[0].contains("pseudo_thread_id=0"), "{first:?}");
        let asks = Statement { sql: b"CREATE TABLE t (a INT DEFAULT (connection_id()))".to_vec(), ..statement() };
        let second = sql(&definer.bring(&asks, &collations, false, None));
        assert!(second.concat().contains("pseudo_thread_id=3"), "{second:?}");
        let third = sql(&definer.bring(&statement(), &collations, false, None));
        assert!(third.concat().contains("pseudo_thread_id=0"), "{third:?}");
        let logged = sql(&definer.bring(&statement(), &collations, true, None));
        assert!(logged.concat().contains("pseudo_thread_id=3"), "{logged:?}");
    }

    #[test]
    fn definer_reads_our_text_before_names_that_are_not_plain() {
        let (collations, mut definer) = (Collations::default(), DefinerState::default());
        let latin1 = StatusVariables { sql_mode: Some(4), ..StatusVariables::default() };
        definer.bring(&Statement { status: latin1, ..statement() }, &collations, true, None);
        let next = Statement { database: "d\u{e9}".to_owned(), ..statement() };
        let second = sql(&definer.bring(&next, &collations, true, None));
        assert_eq!(second[0], READS_OUR_TEXT);
        assert_eq!(second[1], "USE `d\u{e9}`");
        assert!(!second[2].contains("sql_mode"), "{second:?}");
        assert!(is_plain("'Europe/Berlin'") && is_plain("''") && !is_plain("'a\\'") && !is_plain("a[b]"));
    }

    #[test]
    fn state_is_undone_with_what_a_statement_may_have_set() {
        let state = StatementState::of(&statement(), &Collations::default(), Executing::Main);
        assert!(state.before.contains("auto_increment_increment=1"));
        assert!(state.after.contains("sql_mode=''") && state.after.contains("completion_type=0"), "{}", state.after);
    }
}
