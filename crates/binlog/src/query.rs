//! Query events: a statement, with the session state that decides its effect.

use std::ops::Range;

use spate_sql::edit::{self, Edit, Refusal};
use spate_sql::{Lexer, Reading, Servers};

use crate::cursor::Cursor;
use crate::{Error, Result};

const WHAT: &str = "Query event";

/// A Query event, borrowed from its body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryEvent<'a> {
    /// Connection id on the source; temporary tables belong to it.
    pub thread_id: u32,
    /// Error that the statement ended with on the source, or 0.
    pub error_code: u16,
    /// Default database; empty if none.
    pub database: &'a [u8],
    /// The raw status variables: see [`StatusVariables::parse`].
    pub status: &'a [u8],
    /// The statement, in the client's character set.
    pub statement: &'a [u8],
}

impl<'a> QueryEvent<'a> {
    /// Parses an event's body.
    ///
    /// # Errors
    /// [`Error::Truncated`] or [`Error::Malformed`].
    pub fn parse(body: &'a [u8]) -> Result<QueryEvent<'a>> {
        QueryEvent::parse_with(body, &mut [])
    }

    /// Parses the body of an event that has additional bytes after the lengths; they are copied to `extra`.
    pub(crate) fn parse_with(body: &'a [u8], extra: &mut [u8]) -> Result<QueryEvent<'a>> {
        let mut cursor = Cursor::new(body, WHAT);
        let thread_id = cursor.u32()?;
        let _execution_seconds = cursor.u32()?;
        let database_length = usize::from(cursor.u8()?);
        let error_code = cursor.u16()?;
        let status_length = usize::from(cursor.u16()?);
        extra.copy_from_slice(cursor.take(extra.len())?);
        let status = cursor.take(status_length)?;
        let database = cursor.take(database_length)?;
        if cursor.u8()? != 0 {
            return Err(Error::malformed(WHAT, "the database name is not terminated"));
        }
        Ok(QueryEvent { thread_id, error_code, database, status, statement: cursor.rest() })
    }

    /// The statement for messages and parsing; bytes that are not UTF-8 are replaced.
    pub fn statement_text(&self) -> String {
        String::from_utf8_lossy(self.statement).into_owned()
    }

    /// True if the statement only ends the group of events before it.
    pub fn ends_group(&self) -> bool {
        const ENDINGS: [&[u8]; 2] = [b"COMMIT", b"ROLLBACK"];
        const XA_ENDINGS: [&[u8]; 2] = [b"XA COMMIT ", b"XA ROLLBACK "];
        ENDINGS.iter().any(|ending| self.statement.eq_ignore_ascii_case(ending))
            || XA_ENDINGS.iter().any(|ending| starts_with_ignore_case(self.statement, ending))
    }

    /// True if the statement undoes the group of events before it, as far as that can be undone.
    pub fn rolls_group_back(&self) -> bool {
        self.statement.eq_ignore_ascii_case(b"ROLLBACK")
    }

    /// True if the statement only begins a group of events.
    pub fn begins_group(&self) -> bool {
        self.statement.eq_ignore_ascii_case(b"BEGIN")
    }

    /// True if on MySQL, after a GTID event, the statement begins a group of events: of a transaction, of a branch of
    /// an XA transaction, or of a CREATE TABLE … SELECT, whose rows follow.
    pub fn begins_mysql_group(&self) -> bool {
        self.begins_group() || starts_with_ignore_case(self.statement, b"XA START ") || self.is_create_select()
    }

    /// True if on MySQL the statement creates a table that is filled within the same transaction.
    pub fn is_create_select(&self) -> bool {
        starts_with_ignore_case(self.statement, b"CREATE TABLE ")
            && self.start_transaction(&self.reading(Servers::default())).is_some()
    }

    /// The statement without the option that says that rows follow ([`QueryEvent::is_create_select`]). MySQL accepts
    /// that option from its own applier only.
    ///
    /// # Errors
    /// [`Refusal`] if the lexer is not sure of the text.
    pub fn without_start_transaction(&self, servers: Servers) -> std::result::Result<Vec<u8>, Refusal> {
        let reading = self.reading(servers);
        match self.start_transaction(&reading) {
            Some(range) => edit::apply(self.statement, &[Edit { range, text: vec![] }], &reading),
            None => Ok(self.statement.to_vec()),
        }
    }

    /// Finds `START TRANSACTION` as the first option of CREATE TABLE: the server writes it directly after the list of
    /// columns. Elsewhere the words are names: a table and its alias in the SELECT.
    fn start_transaction(&self, reading: &Reading) -> Option<Range<usize>> {
        const FILLING: [&str; 8] = ["AS", "SELECT", "TABLE", "VALUES", "WITH", "LIKE", "IGNORE", "REPLACE"];
        let mut words = Lexer::new(self.statement, reading);
        words.accept_all(&["CREATE", "TABLE"]).then_some(())?;
        let mut depth = 0_usize;
        loop {
            let word = words.next()?;
            if word.is_mark(b'(') {
                depth += 1;
            } else if word.is_mark(b')') {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    break;
                }
            } else if depth == 0 && word.is_one_of(&FILLING) {
                return None;
            }
        }
        let start = words.peek()?.start;
        words.accept_all(&["START", "TRANSACTION"]).then(|| start..words.end())
    }

    /// How these servers read the statement's text.
    fn reading(&self, servers: Servers) -> Reading {
        StatusVariables::parse(self.status).unwrap_or_default().reading(servers)
    }
}

fn starts_with_ignore_case(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|head| head.eq_ignore_ascii_case(prefix))
}

/// The session state that a Query event carries. `None` means that the event does not say.
/// Flat, since each field is one status variable of the event.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StatusVariables {
    /// `OPTION_…` bits: autocommit, foreign_key_checks, unique_checks, sql_auto_is_null …
    pub flags2: Option<u32>,
    /// `sql_mode` as a bit set.
    pub sql_mode: Option<u64>,
    /// `auto_increment_increment`, `auto_increment_offset`.
    pub auto_increment: Option<(u16, u16)>,
    /// Ids of `character_set_client`, `collation_connection`, `collation_server`.
    pub charset: Option<(u16, u16, u16)>,
    /// `time_zone`.
    pub time_zone: Option<Vec<u8>>,
    /// Number of `lc_time_names`.
    pub lc_time_names: Option<u16>,
    /// Id of `collation_database`.
    pub charset_database: Option<u16>,
    /// User and host of the definer that the source filled in.
    pub invoker: Option<(Vec<u8>, Vec<u8>)>,
    /// Microseconds of the statement's time stamp.
    pub microseconds: Option<u32>,
    /// MariaDB: the extra flags of the GTID event before the statement (`FL_EXTRA_…`): phases of a two-phase ALTER
    /// TABLE.
    pub flags3: Option<u16>,
    /// MariaDB: sequence number of the GTID that began the two-phase ALTER TABLE that this statement completes.
    pub two_phase_alter_start: Option<u64>,
    /// MariaDB 11.2 and later: `character_set_collations` as pairs of two-byte ids.
    pub charset_collations: Option<Vec<u8>>,
    /// MySQL: `explicit_defaults_for_timestamp`.
    pub explicit_defaults_for_timestamp: Option<bool>,
    /// MySQL: id of `default_collation_for_utf8mb4`.
    pub default_collation_for_utf8mb4: Option<u16>,
    /// MySQL: `sql_require_primary_key`.
    pub sql_require_primary_key: Option<bool>,
    /// MySQL: `default_table_encryption`.
    pub default_table_encryption: Option<bool>,
    /// MySQL 9.7 and later, of changes of rows: `enable_cascade_triggers`.
    pub enable_cascade_triggers: Option<bool>,
}

impl StatusVariables {
    /// Parses [`QueryEvent::status`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an unknown variable: the variables after it cannot be read, and a guess would risk
    /// data that differs from the source's.
    pub fn parse(status: &[u8]) -> Result<StatusVariables> {
        let mut variables = StatusVariables::default();
        let mut cursor = Cursor::new(status, "Query event status");
        while !cursor.is_empty() {
            let code = cursor.u8()?;
            variables.parse_one(code, &mut cursor)?;
        }
        Ok(variables)
    }

    /// How these servers read the text of a statement with this session.
    pub fn reading(&self, servers: Servers) -> Reading {
        Reading::new(self.sql_mode, self.charset.map(|(client, _, _)| u32::from(client)), servers)
    }

    fn parse_one(&mut self, code: u8, cursor: &mut Cursor<'_>) -> Result<()> {
        match code {
            0 => self.flags2 = Some(cursor.u32()?),
            1 => self.sql_mode = Some(cursor.u64()?),
            2 => {
                short_text(cursor)?;
                cursor.take(1)?;
            }
            3 => self.auto_increment = Some((cursor.u16()?, cursor.u16()?)),
            4 => self.charset = Some((cursor.u16()?, cursor.u16()?, cursor.u16()?)),
            5 => self.time_zone = Some(short_text(cursor)?.to_vec()),
            6 => drop(short_text(cursor)?),
            7 => self.lc_time_names = Some(cursor.u16()?),
            8 => self.charset_database = Some(cursor.u16()?),
            9 => drop(cursor.u64()?),
            10 => drop(cursor.u32()?),
            11 => self.invoker = Some((short_text(cursor)?.to_vec(), short_text(cursor)?.to_vec())),
            12 => {
                // The source does not name more than this many.
                const TOO_MANY: u8 = 254;
                let count = cursor.u8()?;
                for _ in 0..if count == TOO_MANY { 0 } else { count } {
                    while cursor.u8()? != 0 {}
                }
            }
            13 => self.microseconds = Some(cursor.u24()?),
            16 => self.explicit_defaults_for_timestamp = Some(cursor.u8()? != 0),
            17 => drop(cursor.u64()?),
            18 => self.default_collation_for_utf8mb4 = Some(cursor.u16()?),
            19 => self.sql_require_primary_key = Some(cursor.u8()? != 0),
            20 => self.default_table_encryption = Some(cursor.u8()? != 0),
            21 => self.enable_cascade_triggers = Some(cursor.u8()? != 0),
            128 => self.microseconds = Some(cursor.u24()?),
            129 => drop(cursor.u64()?),
            130 => self.parse_gtid_flags(cursor)?,
            131 => {
                let pairs = usize::from(cursor.u8()?);
                self.charset_collations = Some(cursor.take(pairs * 4)?.to_vec());
            }
            other => return Err(Error::unsupported("Query event status variable", format!("code {other}"))),
        }
        Ok(())
    }

    /// Reads one byte of the GTID event's extra flags. The COMMIT and ROLLBACK phases of an ALTER TABLE also name its
    /// START.
    fn parse_gtid_flags(&mut self, cursor: &mut Cursor<'_>) -> Result<()> {
        const COMMIT_OR_ROLLBACK_ALTER: u8 = 0x04 | 0x08;
        let flags = cursor.u8()?;
        self.flags3 = Some(u16::from(flags));
        if flags & COMMIT_OR_ROLLBACK_ALTER != 0 {
            self.two_phase_alter_start = Some(cursor.u64()?);
        }
        Ok(())
    }
}

fn short_text<'a>(cursor: &mut Cursor<'a>) -> Result<&'a [u8]> {
    let length = usize::from(cursor.u8()?);
    cursor.take(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_phase_alter_commit_names_its_start() {
        // As MariaDB 10.11 writes it with binlog_alter_two_phase=ON: XID, then flags COMMIT ALTER and GTID sequence 13.
        let status = [0x81, 0x1b, 0, 0, 0, 0, 0, 0, 0, 0x82, 4, 13, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x04];
        let variables = StatusVariables::parse(&status).unwrap();
        assert_eq!(variables.flags3, Some(4));
        assert_eq!(variables.two_phase_alter_start, Some(13));
        assert_eq!(variables.flags2, Some(0x0400_0000));
        let start = StatusVariables::parse(&[0x82, 2]).unwrap();
        assert_eq!((start.flags3, start.two_phase_alter_start), (Some(2), None));
    }

    #[test]
    fn status_variables_tell_cascades_meet_triggers() {
        // As MySQL 9.7 writes it: the default collation of utf8mb4, then whether they do.
        let told = |on| StatusVariables::parse(&[0x12, 0xff, 0, 0x15, on]).unwrap().enable_cascade_triggers;
        assert_eq!((told(0), told(1)), (Some(false), Some(true)));
    }

    #[test]
    fn create_select_is_told_by_its_options() {
        let query = |statement: &'static str| QueryEvent {
            thread_id: 0,
            error_code: 0,
            database: b"",
            // The client's character set is utf8mb4.
            status: &[4, 45, 0, 45, 0, 45, 0],
            statement: statement.as_bytes(),
        };
        for (statement, without) in [
            ("CREATE TABLE `t` (a int) START TRANSACTION", "CREATE TABLE `t` (a int)"),
            ("CREATE TABLE `t` (a int) START TRANSACTION ENGINE=InnoDB", "CREATE TABLE `t` (a int) ENGINE=InnoDB"),
            (
                "CREATE TABLE `x START TRANSACTION` (a int) START TRANSACTION COMMENT=' START TRANSACTION'",
                "CREATE TABLE `x START TRANSACTION` (a int) COMMENT=' START TRANSACTION'",
            ),
            (
                r"CREATE TABLE `t` (a int COMMENT 'it\'s') START TRANSACTION COMMENT='\' START TRANSACTION'",
                r"CREATE TABLE `t` (a int COMMENT 'it\'s')  COMMENT='\' START TRANSACTION'",
            ),
        ] {
            assert!(query(statement).is_create_select(), "{statement}");
            let actual =
                String::from_utf8(query(statement).without_start_transaction(Servers::default()).unwrap()).unwrap();
            assert_eq!(actual.replace("  ", " ").trim_end(), without.replace("  ", " "));
        }
        for other in [
            "CREATE PROCEDURE p() START TRANSACTION",
            "CREATE TABLE t (a int) COMMENT=' START TRANSACTION'",
            r"CREATE TABLE t (a int) COMMENT 'it\'s START TRANSACTION'",
            "CREATE TABLE t (a int, start int, transaction int)",
            "CREATE TABLE t SELECT a FROM start transaction",
            "CREATE TABLE t (b int) SELECT a FROM start transaction",
            "CREATE TABLE t (b int) ENGINE=InnoDB AS SELECT a FROM start transaction",
            "CREATE TABLE t (b int) IGNORE SELECT a FROM start transaction",
            "CREATE TABLE t (b int) REPLACE SELECT a FROM start transaction",
            "CREATE TABLE t (b int) TABLE start transaction",
            "CREATE TABLE t (b int) WITH c AS (SELECT 1) SELECT a FROM start transaction",
            "CREATE TABLE t (b int) PARTITION BY HASH (b) SELECT a FROM start transaction",
            "CREATE TABLE t LIKE start transaction",
            "CREATE TABLE t (SELECT a FROM x) UNION SELECT a FROM start transaction",
            "CREATE TABLE t START TRANSACTION",
            "CREATE TABLE t (b int) ENGINE=InnoDB START TRANSACTION",
        ] {
            assert!(!query(other).is_create_select(), "{other}");
        }
    }

    #[test]
    fn status_variable_unknown_is_refused() {
        assert!(matches!(StatusVariables::parse(&[99, 0]), Err(Error::Unsupported { .. })));
    }

    #[test]
    fn group_end_is_only_an_exact_statement() {
        let ends = |statement: &'static [u8]| {
            QueryEvent { thread_id: 0, error_code: 0, database: b"", status: b"", statement }.ends_group()
        };
        assert!(ends(b"COMMIT") && ends(b"ROLLBACK") && ends(b"XA COMMIT X'78',X'',1") && ends(b"xa rollback 'x'"));
        assert!(!ends(b"ROLLBACK TO `s`") && !ends(b"COMMIT_LOG") && !ends(b"XA END X'78',X'',1"));
    }
}
