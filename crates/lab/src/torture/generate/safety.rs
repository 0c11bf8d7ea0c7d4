//! Statements that the server's own replication is known to replicate wrongly are not generated. The generator draws
//! similar statements that it replicates correctly, because a wrong native replica proves nothing.
//!
//! - The server rewrites many definitions in its binlog in UTF-8, but labels them with the client's character set:
//!   `über` becomes `Ã¼ber`.
//! - It also rewrites LOAD DATA with backslashes, even for a session with NO_BACKSLASH_ESCAPES.
//! - A session keeps the character set that a schema had at its USE; a replica executes USE again for each statement.
//! - A statement that changes a key of several rows succeeds or fails depending on the order in which it visits them.
//! - If a statement gives AUTO_INCREMENT values for some of its rows only, the others depend on the engine's
//!   reservation.
//! - A sequence may be dropped while another session's transaction has changed it; its rows are logged after the DROP.
//! - Rows that a foreign key changes in a system-versioned table get another history, which DELETE HISTORY then does
//!   not find.
//! - A temporary table that is created within a transaction is not always logged.
//! - A table that cannot roll back changes at once, but in a transaction that logs statements its change is logged at
//!   the end.
//! - An XA transaction that scans a table locks it for longer on a replica than on the source.
//! - A statement that finds its rows by a key on the source may scan the whole table on a replica, whose statistics are
//!   younger or older, and then waits for an XA transaction that stays prepared.
//! - A server that is killed while it alters a partitioned table may lose the file that lists its partitions.
//! - A table in a foreign key that gets another name leaves MariaDB with a name that is gone: a later change of its
//!   rows, or ALTER, ends the server.
//! - Without explicit_defaults_for_timestamp, whether ALTER TABLE gives a TIMESTAMP column that it does not mention a
//!   default, and ON UPDATE, depends on what the server has done with the table since it opened it.
//! - MySQL that is killed while others commit forgets prepared XA transactions whose format is not 1.
//! - A REPLACE may replace a row to which another table refers; it is logged as a DELETE of the row, which the key
//!   refuses.
//! - With unique_checks and foreign_key_checks off, MariaDB fills an empty table without a look at its unique keys, and
//!   logs what it refuses when the transaction ends.
//! - MariaDB drops the index of a foreign key while foreign_key_checks is off, and the key with it; a replica keeps the
//!   key.
//! - MySQL does not log an XA transaction's statements that change nothing, and its own replication then takes the end
//!   of the transaction for one that filters have left out; or waits for locks that the source did not need.
//! - MariaDB's replicas refuse a sequence's row beyond its last value, and what a procedure says with a parameter of
//!   two or four bytes a character.
//! - A session may be in a database that others have dropped; only the server's own appliers can do the same.
//! - A system-versioned table with a long unique key: a replica does not find the rows that REPLACE and UPDATE IGNORE
//!   leave.
//! - A server that is killed soon after CREATE SEQUENCE comes back with a sequence without a row, and ends when that is
//!   dropped.
//! - A server that replaces an event which its scheduler has just executed may end.
//! - A server that restarts empties its tables in memory by TRUNCATE, which system-versioned tables refuse.

use super::super::driver::CLIENTS;
use super::super::feature::Feature;
use super::super::settings::Failure;
use super::super::step::{Action, Step};
use super::super::world::{Column, Table};
use super::{Generator, Xa};
use crate::binlog_format::Format;
use crate::vendor::Vendor;

/// The settings that change how a server parses a session's statements.
#[derive(Debug, Clone, Default)]
pub(super) struct Language {
    /// The client's character set is not UTF-8.
    is_foreign: bool,
    /// NO_BACKSLASH_ESCAPES is on.
    pub(super) has_plain_backslash: bool,
    /// TIMESTAMP columns get implicit defaults.
    has_implicit_defaults: bool,
    /// The default database may be dropped by others.
    is_passing: bool,
}

impl Language {
    /// Notes the effect of a statement that has succeeded.
    pub(super) fn note(&mut self, sql: &str) {
        if let Some(charset) = sql.strip_prefix("SET NAMES ").or(sql.strip_prefix("SET character_set_client = ")) {
            self.is_foreign = !charset.trim_matches('\'').starts_with("utf8");
        } else if let Some(database) = sql.strip_prefix("USE ") {
            self.is_passing = database == "`passing`";
        } else if let Some(mode) = sql.strip_prefix("SET sql_mode = ") {
            self.has_plain_backslash = mode.contains("NO_BACKSLASH_ESCAPES");
        } else if let Some(value) = sql.strip_prefix("SET explicit_defaults_for_timestamp = ") {
            self.has_implicit_defaults = value == "0";
        }
    }
}

impl Generator {
    /// False if a replica would misread the step.
    pub(super) fn is_replicated_faithfully(&self, step: &Step) -> bool {
        let Action::Sql(sql) = &step.action else { return true };
        let is_foreign = self.sessions[step.session].language.is_foreign;
        // The server rewrites the definition: members of an ENUM may even become equal.
        let is_written_anew = sql.starts_with("CREATE") && (sql.contains(" SELECT ") || sql.contains(" LIKE "));
        // In a chain, servers rewrite programs each time that they log them.
        let is_told_whole = is_about_accounts(sql) || sql.starts_with("CREATE") || sql.starts_with("ALTER");
        let is_misread =
            is_foreign && (is_written_anew || !outside_literals(sql).is_ascii() || (is_told_whole && !sql.is_ascii()));
        // The creator of a role becomes its administrator; on a replica that is the replica's own account.
        let is_of_another =
            !step.session.is_multiple_of(CLIENTS.len() + 1) && self.has(Feature::Clients) && sql.contains(" ROLE ");
        let is_too_early = ends_sequence(sql) && self.sessions.iter().any(|session| session.in_transaction);
        let is_at_random = self.sessions[step.session].language.has_implicit_defaults && alters_table(sql);
        // Only the server's own appliers can be in a database that does not exist.
        let needs_database = self.logs_statements()
            && self.sessions[step.session].language.is_passing
            && (sql.contains(" FROM seq_") || sql.starts_with("DELETE x") || sql.starts_with("DELETE y"));
        let is_held = self.logs_statements() && self.is_held_by_another(step.session, sql);
        !is_misread
            && !is_held
            && !needs_database
            && !is_at_random
            && !is_too_early
            && !is_of_another
            && !self.is_logged_too_late(step.session, sql)
    }

    /// Notes the tables that a statement within an XA transaction has changed.
    pub(super) fn note_held(&mut self, session: usize, sql: &str) {
        let Some(Xa::Active(id)) = &self.sessions[session].xa else { return };
        let tables = self.world.tables.iter().map(Table::quoted).filter(|table| sql.contains(table));
        self.held.extend(tables.map(|table| (id.clone(), table)));
    }

    /// True if the statement mentions a table that an open XA transaction, not of this session, has changed.
    fn is_held_by_another(&self, session: usize, sql: &str) -> bool {
        let own = match &self.sessions[session].xa {
            Some(Xa::Active(id) | Xa::Idle(id) | Xa::Prepared(id)) => id,
            None => "",
        };
        self.held.iter().any(|(holder, table)| holder != own && sql.contains(table))
    }

    fn is_logged_too_late(&self, session: usize, sql: &str) -> bool {
        let state = &self.sessions[session];
        let is_in_transaction = state.in_transaction || state.xa.is_some();
        let mentions = |table: &Table| table.engine != "InnoDB" && sql.contains(&table.quoted());
        self.logs_statements() && is_in_transaction && self.world.tables.iter().any(mentions)
    }

    /// A table that programs and views may change for any caller.
    pub(super) fn table_for_programs(&mut self) -> Option<Table> {
        let usable: Vec<&Table> =
            self.world.tables.iter().filter(|table| !self.logs_statements() || table.engine == "InnoDB").collect();
        self.random.pick(&usable).map(|table| (*table).clone())
    }

    /// A REPLACE into this table that may not name all columns; INSERT where the binlog would not tell what becomes of
    /// the others, or a replica would refuse what it tells. MariaDB logs one that meets a row as an update, and of
    /// partial images without the columns that get their defaults.
    pub(super) fn replacing(&self, verb: &'static str, table: &Table) -> &'static str {
        let is_image = |(name, value): &(String, String)| name == "binlog-row-image" && value != "FULL";
        let has_images = self.settings.source_options.iter().any(is_image);
        // A reference that remains on the replica could delete the row later.
        let matters = self.is_shared() || !table.foreign_keys.is_empty();
        let is_lost = has_images && matters || table.keeps_rows;
        match verb {
            "REPLACE" if is_lost => "INSERT",
            "REPLACE " if is_lost => "",
            _ => verb,
        }
    }

    /// True if a server may lose XA transactions with their own format number.
    pub(super) fn loses_formats(&self) -> bool {
        let kills_servers = [Failure::SourceKilled, Failure::ReplicaKilled]
            .iter()
            .any(|failure| self.settings.failures.contains(failure));
        self.settings.pair.speaks_mysql() && kills_servers
    }

    /// Steps with which every session executes USE of a schema again.
    pub(super) fn use_again(&self, schema: &str) -> Vec<Step> {
        let using = |session: usize, schema: &str| Step::sql(session, format!("USE {schema}"));
        // What comes first stands last. To use the schema that is used already changes nothing on MariaDB.
        (0..self.sessions.len()).flat_map(|session| [using(session, schema), using(session, "mysql")]).collect()
    }

    /// True unless a killed server may restart with a partitioned table that it cannot open.
    pub(super) fn may_alter_partitions(&self) -> bool {
        let failures = &self.settings.failures;
        !failures.contains(&Failure::SourceKilled) && !failures.contains(&Failure::ReplicaKilled)
    }

    /// True unless a killed server may restart with a sequence without a row.
    pub(super) fn may_create_sequences(&self) -> bool {
        !self.settings.failures.contains(&Failure::SourceKilled)
    }

    /// True if changes are, or may be, logged as statements.
    pub(super) fn logs_statements(&self) -> bool {
        self.settings.format != Format::Row
    }

    /// ` ORDER BY …` for a statement whose success depends on the order in which it visits rows.
    pub(super) fn needed_order(&self, table: &Table, changes_keys: bool) -> Option<String> {
        let is_order_seen = changes_keys || table.engine != "InnoDB" || self.settings.format == Format::Statement;
        (self.logs_statements() && is_order_seen).then(|| table.order().map(|order| format!(" {order}")))?
    }

    /// False if the server may crash over the table once it has another name.
    pub(super) fn may_change_name(&self, table: &Table) -> bool {
        self.settings.pair.source == Vendor::MySql || (table.foreign_keys.is_empty() && !table.is_parent)
    }

    /// The engines that a table may get.
    pub(super) fn may_be_in_memory(&self, is_versioned: bool) -> bool {
        !(is_versioned && self.settings.failures.contains(&Failure::SourceKilled))
    }
}

/// True if the assignment to this column may collide with another row.
pub(super) fn is_in_unique_key(table: &Table, column: &Column) -> bool {
    table.keys.iter().any(|key| key.is_unique && key.columns.contains(&column.name))
}

fn ends_sequence(sql: &str) -> bool {
    sql.starts_with("DROP SEQUENCE") || sql.starts_with("CREATE OR REPLACE SEQUENCE")
}

fn alters_table(sql: &str) -> bool {
    // The generator also writes it in small letters after a comment.
    let is_disguised = sql.starts_with("/*") && sql.contains("alter table");
    let is_about_index = ["CREATE", "DROP"].iter().any(|word| sql.starts_with(word))
        && sql.split_once(" INDEX ").is_some_and(|(before, _)| !before.contains('('));
    // InnoDB executes these as an ALTER.
    let rebuilds = sql.starts_with("OPTIMIZE") || sql.starts_with("REPAIR");
    is_disguised || sql.starts_with("ALTER") && sql.contains(" TABLE ") || is_about_index || rebuilds
}

fn is_about_accounts(sql: &str) -> bool {
    const WORDS: [&str; 9] = [
        "CREATE USER",
        "CREATE OR REPLACE USER",
        "DROP USER",
        "ALTER USER",
        "RENAME USER",
        "GRANT",
        "REVOKE",
        "SET PASSWORD",
        "SET DEFAULT",
    ];
    WORDS.iter().any(|word| sql.starts_with(word))
}

/// The statement without its texts in single quotes.
fn outside_literals(sql: &str) -> String {
    let mut outside = String::new();
    let (mut in_text, mut in_name) = (false, false);
    for character in sql.chars() {
        match character {
            '\'' if !in_name => in_text = !in_text,
            '`' if !in_text => in_name = !in_name,
            _ if !in_text => outside.push(character),
            _ => {}
        }
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_names_are_told_from_texts() {
        assert_eq!(outside_literals("SELECT `a'b`, 'ä''ö', `ü` x"), "SELECT a'b, , ü x");
        assert!(is_about_accounts("SET PASSWORD FOR 'ü3'@'%' = ''") && !is_about_accounts("SET sql_mode = ''"));
    }

    #[test]
    fn index_statement_names_its_table() {
        for sql in [
            "ALTER ONLINE TABLE t ADD a INT",
            "/* why */ alter table t ADD a INT",
            "CREATE UNIQUE INDEX i ON t (a)",
            "DROP INDEX i ON t",
            "OPTIMIZE TABLE t",
        ] {
            assert!(alters_table(sql), "{sql}");
        }
        assert!(!alters_table("ALTER USER u") && !alters_table("CREATE TABLE t (a INT, INDEX (a))"));
    }

    #[test]
    fn session_language_is_the_last_one_set() {
        let mut language = Language::default();
        language.note("SET NAMES latin1");
        language.note("SET sql_mode = 'NO_BACKSLASH_ESCAPES'");
        language.note("SET explicit_defaults_for_timestamp = 0");
        assert!(language.is_foreign && language.has_plain_backslash && language.has_implicit_defaults);
        language.note("SET explicit_defaults_for_timestamp = 1");
        language.note("SET character_set_client = utf8mb4");
        language.note("SET sql_mode = ''");
        assert!(!language.is_foreign && !language.has_plain_backslash && !language.has_implicit_defaults);
    }
}
