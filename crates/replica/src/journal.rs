//! Exactly once for what cannot be part of a transaction: a note of the intention is committed before, and removed together
//! with the checkpoint's move after. A run that finds a note looks at the replica to know whether the intention took effect.
//!
//! | intention | it took effect if |
//! | --- | --- |
//! | a statement that commits by itself | the objects that it names are not what they were (see `fingerprint`) |
//! | CREATE TABLE … SELECT in row format | never: its table, which was not there before, is dropped, and it is executed again |
//! | XA PREPARE | the server lists the XID as prepared |
//! | XA COMMIT, XA ROLLBACK | the server no longer lists it (it did when the note was made) |
//! | row changes of tables that cannot roll back | some may have: each row becomes as on the source |
//! | other changes of such tables | not, if the replica has no such table; else nobody knows |
//!
//! A note is for recognition only. It holds no statement: those hold passwords, and everyone who may write to the schema `spate`
//! could have one executed. Spate looks at, or drops, only objects that the archive's transaction at the note's place names
//! (`settle.rs` of the applier).

mod objects;

use spate_binlog::Xid;
use spate_schedule::needs::CreatedRoutine;
use spate_schedule::statement::{self, Created, Exchanged, Object};
use spate_sql::{Doubt, Reading, SqlText};

use crate::checkpoint::{APPLIER, COLUMNS, Checkpoint, column_definitions, columns_of};
use crate::error::{Error, Result};
use spate_connection::Connection;
use spate_connection::quote::{self, NO_VIEW};

pub(crate) use objects::without_counter;
use objects::{fingerprint, fingerprint_if_stable, fingerprint_of_absence, is_absent, is_readable, quoted};

/// What a person found out about an interrupted statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterruptedStatement {
    /// It took effect.
    Done,
    /// It did not, and is to be executed again.
    Repeat,
}

/// The table of notes: at most one for each applier.
pub(crate) const CREATE_TABLE: &str = concat!(
    "CREATE TABLE IF NOT EXISTS spate.intent (applier INT UNSIGNED NOT NULL PRIMARY KEY, \
     kind VARCHAR(20) CHARACTER SET ascii NOT NULL, ",
    column_definitions!(),
    ", gtid VARCHAR(100) CHARACTER SET ascii NOT NULL, \
     default_schema VARBINARY(256) NOT NULL, \
     statement LONGBLOB NOT NULL COMMENT 'its beginning, without literals, or the XID', \
     fingerprint VARCHAR(64) CHARACTER SET ascii NOT NULL COMMENT 'of the objects named, before') ENGINE=InnoDB \
     COMMENT='statements that cannot be rolled back and may or may not have been executed; the position is that after it'"
);

/// A row for each prepared XA transaction: one without any change the server would forget.
pub(crate) const CREATE_PREPARED_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.prepared (\
     xid VARCHAR(600) CHARACTER SET ascii NOT NULL PRIMARY KEY) ENGINE=InnoDB \
     COMMENT='XA transactions that are prepared'";

/// The change that every XA transaction has.
pub fn prepare_sql(xid: &Xid) -> String {
    format!("INSERT INTO spate.prepared VALUES ({})", quote::text(&xid.to_string()))
}

/// True if this session has written, changed or deleted a row since it began, or tried to.
///
/// # Errors
/// Any error of the connection.
pub fn has_changed_rows(connection: &mut Connection) -> Result<bool> {
    let counts = connection
        .query("SHOW SESSION STATUS WHERE Variable_name IN ('Handler_delete', 'Handler_update', 'Handler_write')")?;
    Ok((0..counts.rows.len()).any(|row| counts.text_at(row, 1).as_deref() != Some("0")))
}

/// The statement that undoes [`prepare_sql`] once the XA transaction has ended.
pub fn ended_sql(xid: &Xid) -> String {
    unmark_sql(&xid.to_string())
}

fn unmark_sql(xid: &str) -> String {
    format!("DELETE FROM spate.prepared WHERE xid={}", quote::text(xid))
}

/// The kind of an intention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IntentKind {
    /// A statement that commits by itself.
    Definition,
    /// CREATE TABLE … SELECT in row format.
    CreateSelect,
    /// An XA transaction up to XA PREPARE.
    XaPrepare,
    /// XA COMMIT or XA ROLLBACK.
    XaEnd,
    /// Changes of rows that can be told apart.
    IrrevocableRows,
    /// Any others.
    Irrevocable,
}

/// An intention.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// What it is of.
    pub kind: IntentKind,
    /// Where the replica is once it is done.
    pub checkpoint: Checkpoint,
    /// The transaction.
    pub gtid: String,
    /// Default schema of the statement.
    pub database: String,
    /// How the statement's text is to be read.
    pub reading: Reading,
    /// The statement, or the XID.
    pub statement: Vec<u8>,
    /// Of the objects that it names, before it is executed. Empty: it is not known.
    pub fingerprint: String,
    /// The routine that it creates.
    pub routine: Option<CreatedRoutine>,
}

/// What the replica shows of a note that an earlier run left, and what follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finding {
    /// It took effect: go on after it.
    Done,
    /// It did not: execute it again.
    NotDone,
    /// A part of it may have taken effect: execute it again, and repair each row that differs.
    Repairable,
    /// A part of it may have taken effect, and nobody knows which.
    Unknown,
}

impl IntentKind {
    const ALL: [IntentKind; 6] = [
        IntentKind::Definition,
        IntentKind::CreateSelect,
        IntentKind::XaPrepare,
        IntentKind::XaEnd,
        IntentKind::IrrevocableRows,
        IntentKind::Irrevocable,
    ];

    /// True if it is of one transaction alone, which the archive tells, too. Others are of all that a batch has done.
    pub fn is_of_one_transaction(self) -> bool {
        !matches!(self, IntentKind::IrrevocableRows | IntentKind::Irrevocable)
    }

    fn name(self) -> &'static str {
        match self {
            IntentKind::Definition => "definition",
            IntentKind::CreateSelect => "create-select",
            IntentKind::XaPrepare => "xa-prepare",
            IntentKind::XaEnd => "xa-end",
            IntentKind::IrrevocableRows => "irrevocable-rows",
            IntentKind::Irrevocable => "irrevocable",
        }
    }
}

impl Intent {
    /// Notes the intention, with the fingerprint of the objects that it names, and makes the note durable. `connection` is not
    /// the one that executes it, and commits by itself.
    ///
    /// # Errors
    /// [`Error::NotPrepared`]; any error of the connection.
    pub fn note(&self, connection: &mut Connection) -> Result<()> {
        // Once there is a note, an XA transaction that is not prepared has ended.
        if self.kind == IntentKind::XaEnd && !self.is_prepared(connection)? {
            return Err(Error::NotPrepared {
                gtid: self.gtid.clone(),
                place: format!("{}:{}", self.checkpoint.source_file, self.checkpoint.source_position),
                xid: String::from_utf8_lossy(&self.statement).into_owned(),
                replica: connection.peer().to_string(),
            });
        }
        let sql = self.note_sql(connection)?;
        connection.execute(sql.as_bytes())?;
        Ok(())
    }

    /// True if what the note says of the objects that the statement names are their definitions, and nothing of rows: so no change of rows
    /// before it, committed or not, makes a difference.
    pub fn is_of_definitions_only(&self) -> bool {
        let is_shown = |object: &Object| matches!(object, Object::Table(_) | Object::Trigger(_) | Object::Schema(_));
        let are_shown = self.objects().is_ok_and(|objects| objects.iter().all(is_shown));
        are_shown && statement::exchanges(self.text()) == Exchanged::Nothing
    }

    /// The statement that makes the note, with the fingerprint that the objects have now, if it is not known already.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn note_sql(&self, connection: &mut Connection) -> Result<String> {
        let fingerprint = match self.fingerprint.is_empty() {
            true => self.fingerprint_now(connection)?,
            false => self.fingerprint.clone(),
        };
        Ok(format!(
            "REPLACE INTO spate.intent (applier,kind,{COLUMNS},gtid,default_schema,statement,fingerprint) \
             VALUES ({APPLIER},'{}',{},{},{},{},'{}')",
            self.kind.name(),
            self.checkpoint.values_sql(),
            quote::text(&self.gtid),
            quote::bytes(self.database.as_bytes()),
            quote::bytes(&self.excerpt()),
            fingerprint,
        ))
    }

    /// The part of it that a person may see. An XID is no secret: every account may ask for those that are prepared.
    fn excerpt(&self) -> Vec<u8> {
        match self.kind {
            IntentKind::XaPrepare | IntentKind::XaEnd => self.statement.clone(),
            _ => spate_sql::excerpt(&self.statement).into_bytes(),
        }
    }

    pub(crate) fn fingerprint_now(&self, connection: &mut Connection) -> Result<String> {
        match self.kind {
            IntentKind::Definition | IntentKind::CreateSelect => match self.objects() {
                Ok(objects) => fingerprint(connection, &objects, statement::exchanges(self.text())),
                Err(_) => Ok(String::new()),
            },
            _ => Ok(String::new()),
        }
    }

    /// The fingerprint of one that [`Intent::is_of_definitions_only`], if it stays until the definitions before this one and all rows are in effect,
    /// as far as those do not concern the same names.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn fingerprint_ahead(&self, connection: &mut Connection) -> Result<Option<String>> {
        match self.objects() {
            Ok(objects) => fingerprint_if_stable(connection, &objects),
            Err(_) => Ok(None),
        }
    }

    fn text(&self) -> SqlText<'_> {
        SqlText { sql: &self.statement, reading: &self.reading }
    }

    /// The objects that it names.
    ///
    /// # Errors
    /// That is not certain.
    fn objects(&self) -> std::result::Result<Vec<Object>, Doubt> {
        statement::touched(self.text(), &self.database)
    }

    /// True if it is not certain which objects it names, so that Spate cannot find out whether it took effect.
    pub(crate) fn is_unclear(&self) -> bool {
        self.objects().is_err()
    }

    /// True if nothing of the statement stays when a server refuses it, or nothing that would do harm when it is executed again.
    pub fn is_whole_or_nothing(&self) -> bool {
        statement::is_whole_or_nothing(self.text())
    }

    /// Looks whether the intention took effect.
    ///
    /// # Errors
    /// Any error of the connection; [`Error::TableLost`].
    pub fn look(&self, connection: &mut Connection) -> Result<Finding> {
        match self.kind {
            IntentKind::Definition | IntentKind::CreateSelect if self.is_unclear() => Ok(Finding::Unknown),
            IntentKind::Definition => {
                if self.replaces() && self.may_query() {
                    return self.look_at_replaced(connection);
                }
                // MySQL refuses to drop several again, of which the first time has left none.
                if statement::drops_tables(self.text()) && self.is_all_gone(connection)? {
                    return Ok(Finding::Done);
                }
                // It drops the rest, or replaces an object, even if some of its objects are gone.
                let is_repeatable = statement::drops_tables(self.text()) || self.replaces();
                if !is_repeatable {
                    self.find_tables(connection)?;
                }
                let has_changed = !is_repeatable
                    && self.fingerprint_now(connection)? != self.fingerprint
                    && self.is_usable(connection)?;
                Ok(if has_changed { Finding::Done } else { Finding::NotDone })
            }
            IntentKind::CreateSelect => {
                let was_absent = self.fingerprint == fingerprint_of_absence(connection)?;
                if (was_absent || self.replaces()) && self.fingerprint_now(connection)? != self.fingerprint {
                    self.drop_created(connection)?;
                }
                Ok(Finding::NotDone)
            }
            // Another of this name, which is not ours, is refused when it is begun again.
            IntentKind::XaPrepare => Ok(match self.is_prepared(connection)? && self.is_marked(connection)? {
                true => Finding::Done,
                false => Finding::NotDone,
            }),
            IntentKind::XaEnd => Ok(if self.is_prepared(connection)? { Finding::NotDone } else { Finding::Done }),
            IntentKind::IrrevocableRows => Ok(Finding::Repairable),
            IntentKind::Irrevocable => {
                Ok(if is_all_revocable(connection)? { Finding::NotDone } else { Finding::Unknown })
            }
        }
    }

    /// True if it names tables or views, and the replica has none of them.
    fn is_all_gone(&self, connection: &mut Connection) -> Result<bool> {
        let objects = self.objects().unwrap_or_default();
        for object in &objects {
            let Object::Table(table) = object else { return Ok(false) };
            if !is_absent(connection, table)? {
                return Ok(false);
            }
        }
        Ok(!objects.is_empty())
    }

    /// False if it was to create or rename a table or sequence that cannot be read, or a view is in its place. A server that is killed while it
    /// executes that may come back with a part of it: something in the engine and no table, or a sequence that has no row, which goes.
    fn is_usable(&self, connection: &mut Connection) -> Result<bool> {
        /// What a hint for an index gets of a view.
        const NO_SUCH_INDEX: u16 = 1176;
        if statement::renames_tables(self.text()) {
            let Some(Object::Table(table)) = self.objects().unwrap_or_default().into_iter().last() else {
                return Ok(true);
            };
            return is_readable(connection, &table);
        }
        let Some(kind) = statement::creates(self.text()) else { return Ok(true) };
        let Some(Object::Table(table)) = self.objects().unwrap_or_default().into_iter().next() else { return Ok(true) };
        let rows = match connection.query(&format!("SELECT 1 FROM {} {NO_VIEW} LIMIT 1", quoted(&table))) {
            Ok(answer) => answer.rows.len(),
            // The statement has not made it, and will say so when it is executed.
            Err(error) if error.server_error().is_some_and(|refusal| refusal.code == NO_SUCH_INDEX) => {
                return Ok(false);
            }
            Err(error) if error.server_error().is_some() && !error.is_transient() => 0,
            Err(error) => return Err(error.into()),
        };
        match kind {
            Created::Sequence if rows == 0 => self.drop_created(connection).map(|()| false),
            Created::Sequence => Ok(true),
            Created::Table => is_readable(connection, &table),
        }
    }

    /// Fails if a table that the server knows is unknown to its engine: MySQL that is killed at the end of an ALTER TABLE does not
    /// find the table's file when it starts, only when it starts again. Until then nobody can tell what became of the statement.
    fn find_tables(&self, connection: &mut Connection) -> Result<()> {
        const TABLESPACE_MISSING: u16 = 1812;
        const NO_SUCH_TABLE_IN_ENGINE: u16 = 1932;
        for object in self.objects().unwrap_or_default() {
            let Object::Table(table) = object else { continue };
            let Err(error) = connection.query(&format!("SELECT 1 FROM {} {NO_VIEW} LIMIT 0", quoted(&table))) else {
                continue;
            };
            match error.server_error().map(|refusal| refusal.code) {
                Some(TABLESPACE_MISSING | NO_SUCH_TABLE_IN_ENGINE) => {
                    let (statement, table) = (self.described(), table.to_string());
                    return Err(Error::TableLost { statement, table, source: error });
                }
                Some(_) if !error.is_transient() => {}
                _ => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Removes the table of an interrupted CREATE TABLE … SELECT, or the sequence of which a part is there. Only if it was not there
    /// before, or the statement replaces it.
    fn drop_created(&self, connection: &mut Connection) -> Result<()> {
        let Some(Object::Table(table)) = self.objects().unwrap_or_default().into_iter().next() else { return Ok(()) };
        connection.execute(format!("DROP TABLE IF EXISTS {}", quoted(&table)).as_bytes())?;
        Ok(())
    }

    /// Looks at a table that was to be replaced by a query's result. Other effects of an interrupted query may have stayed.
    fn look_at_replaced(&self, connection: &mut Connection) -> Result<Finding> {
        if self.fingerprint_now(connection)? == self.fingerprint {
            return Ok(Finding::NotDone);
        }
        let is_there = match self.objects().unwrap_or_default().into_iter().next() {
            Some(Object::Table(table)) => is_readable(connection, &table)?,
            _ => true,
        };
        Ok(if is_there { Finding::Done } else { Finding::Unknown })
    }

    fn replaces(&self) -> bool {
        statement::replaces(self.text())
    }

    fn may_query(&self) -> bool {
        self.text().has_letters("SELECT")
    }

    /// True if an XA transaction of ours has this XID: its mark ([`prepare_sql`]) is there, and not committed.
    fn is_marked(&self, connection: &mut Connection) -> Result<bool> {
        connection.execute(b"SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED")?;
        let xid = quote::text(&String::from_utf8_lossy(&self.statement));
        Ok(!connection.query(&format!("SELECT 1 FROM spate.prepared WHERE xid = {xid}"))?.rows.is_empty())
    }

    fn is_prepared(&self, connection: &mut Connection) -> Result<bool> {
        let xid = String::from_utf8_lossy(&self.statement).into_owned();
        Ok(prepared_xids(connection)?.iter().any(|prepared| prepared.to_string() == xid))
    }

    /// For messages.
    pub fn described(&self) -> String {
        match self.kind {
            IntentKind::Definition | IntentKind::CreateSelect => spate_sql::excerpt(&self.statement),
            IntentKind::XaPrepare => format!("XA PREPARE {}", String::from_utf8_lossy(&self.statement)),
            IntentKind::XaEnd => format!("the end of XA transaction {}", String::from_utf8_lossy(&self.statement)),
            IntentKind::IrrevocableRows | IntentKind::Irrevocable => {
                "changes of tables whose engine cannot roll back".to_owned()
            }
        }
    }
}

/// True if whatever was interrupted has been rolled back, since no table of users could keep it. MySQL does not log whether a
/// transaction can roll back: one that changed nothing looks like one of other engines. MariaDB does, but a transaction that creates or
/// drops a temporary table counts as one that cannot.
fn is_all_revocable(connection: &mut Connection) -> Result<bool> {
    let others = connection.query(
        "SELECT 1 FROM information_schema.TABLES WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') \
         AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') \
         AND ENGINE NOT IN (SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES') LIMIT 1",
    )?;
    Ok(others.rows.is_empty())
}

/// The statement that removes the note.
pub fn forget_sql() -> String {
    format!("DELETE FROM spate.intent WHERE applier={APPLIER}")
}

/// The content of a note. Any account that may write to the schema `spate` may have written it: see `settle.rs` of the applier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What it is of.
    pub kind: IntentKind,
    /// Where the replica is once it is done.
    place: Checkpoint,
    /// Of the objects that the statement names, before it was executed.
    pub fingerprint: String,
    /// For messages.
    excerpt: String,
}

impl Note {
    /// The note that is made of an intention. `fingerprint`: of the objects that it names, before it is executed.
    pub fn of(intent: &Intent, fingerprint: String) -> Note {
        let excerpt = String::from_utf8_lossy(&intent.excerpt()).into_owned();
        Note { kind: intent.kind, place: intent.checkpoint.clone(), fingerprint, excerpt }
    }

    /// True if a replica at this position has done it, and nothing beyond. By GTID where there are any: another source of the same
    /// transactions has other files.
    pub fn is_at(&self, position: &Checkpoint) -> bool {
        let is_in_place = || {
            (&self.place.source_file, self.place.source_position) == (&position.source_file, position.source_position)
        };
        match self.place.gtid_position.is_empty() {
            true => position.gtid_position.is_empty() && is_in_place(),
            false => self.place.gtid_position == position.gtid_position,
        }
    }

    /// True if a replica at this position is beyond it.
    pub fn is_before(&self, position: &Checkpoint) -> bool {
        match self.place.gtid_position.is_empty() {
            true => {
                !position.gtid_position.is_empty()
                    || self.place.source_file == position.source_file
                        && self.place.source_position < position.source_position
            }
            false => position.gtid_position.covers_all(&self.place.gtid_position) && !self.is_at(position),
        }
    }

    /// For messages.
    pub fn described(&self) -> String {
        let Note { kind, place, excerpt, .. } = self;
        let (gtid, file, position) = (&place.gtid_position, &place.source_file, place.source_position);
        format!("a note of the kind {} for GTID position '{gtid}' ({file}:{position}): {excerpt:?}", kind.name())
    }
}

/// The note that an earlier run left, if any.
///
/// # Errors
/// Any error of the connection; [`Error::Checkpoint`] if the note cannot be read.
pub fn read(connection: &mut Connection) -> Result<Option<Note>> {
    let rows = connection
        .query(&format!("SELECT kind,{COLUMNS},statement,fingerprint FROM spate.intent WHERE applier = {APPLIER}"))?;
    if rows.rows.is_empty() {
        return Ok(None);
    }
    let text = |column| rows.text_at(0, column).unwrap_or_default();
    let wrong = |why: String| Error::Checkpoint {
        replica: connection.peer().to_string(),
        why: format!("the note in spate.intent: {why}"),
    };
    let kind = IntentKind::ALL.into_iter().find(|kind| kind.name() == text(0));
    let fingerprint = text(7);
    if !fingerprint.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong(format!("{fingerprint:?} is no fingerprint")));
    }
    Ok(Some(Note {
        kind: kind.ok_or_else(|| wrong(format!("unknown kind {:?}", text(0))))?,
        place: Checkpoint::parse(columns_of(&rows, 0, 1)).map_err(wrong)?,
        fingerprint,
        // One of an earlier version holds the whole statement.
        excerpt: match text(6) {
            short if short.starts_with("statement '") || kind.is_some_and(|kind| kind.name().starts_with("xa-")) => {
                short
            }
            whole => spate_sql::excerpt(whole.as_bytes()),
        },
    }))
}

/// Moves the checkpoint past an intention that took effect.
///
/// # Errors
/// Any error of the connection.
pub fn accept(connection: &mut Connection, from: &Checkpoint, intent: &Intent) -> Result<Checkpoint> {
    let mut sql = format!("BEGIN;{};{}", forget_sql(), intent.checkpoint.update_sql(from));
    if intent.kind == IntentKind::XaEnd {
        sql = format!("{sql};{}", unmark_sql(&String::from_utf8_lossy(&intent.statement)));
    }
    connection.execute(format!("{sql};COMMIT").as_bytes())?;
    Ok(intent.checkpoint.clone())
}

/// The XA transactions that XA RECOVER lists.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn prepared_xids(connection: &mut Connection) -> Result<Vec<Xid>> {
    let rows = connection.query("XA RECOVER")?;
    let xid = |row: &Vec<Option<Vec<u8>>>| {
        let number = |column: usize| {
            let value = row.get(column)?.as_deref()?;
            std::str::from_utf8(value).ok()?.parse::<usize>().ok()
        };
        let (format_id, global_length) = (number(0)?, number(1)?);
        let data = row.get(3)?.as_deref()?;
        let (global, branch) = data.split_at_checked(global_length)?;
        Some(Xid { format_id: format_id as u32, global: global.to_vec(), branch: branch.to_vec() })
    };
    Ok(rows.rows.iter().filter_map(xid).collect())
}
