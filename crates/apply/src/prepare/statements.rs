//! Statements of the source: what surrounds each in the session, how it should end, and which of them this replica must not execute.

use spate_binlog::Xid;
use spate_schedule::item::LoadFile;
use spate_schedule::statement::{
    Object, StatementClass, drops_schema_or_trigger, leaves_session_alone, may_concern_accounts, replaces,
    temporary_tables,
};
use spate_schedule::temporary::TemporaryTable;
use spate_schedule::{Alone, Item, Statement};
use spate_sql::edit::Refusal;

use super::{Pending, Preparer, origin_sql};
use crate::Part;
use crate::command::{Change, Command, Definition, Execution, Expected};
use crate::default_databases::NO_DATABASE;
use crate::half_load::HalfLoad;
use crate::halt::{Halt, Result};
use crate::outlet::Outlet;
use crate::unnamed::UnnamedTables;
use spate_replica::Error;
use spate_replica::choice::{self, Dialect};
use spate_replica::creator;
use spate_replica::dialect::{Executing, StatementSql, definition_sql, load_sql, source_version_sql, statement_sql};
use spate_replica::journal;
use spate_replica::statement_state::DefinerState;
use spate_replica::told_defaults;
use spate_replica::translate;

/// Lock wait timeout, deadlock, and a deadlock in an XA transaction.
const CONCURRENCY_CODES: [u16; 3] = [1205, 1213, 1614];

impl<'a> Preparer<'a> {
    /// True if the source is of another vendor than the replica.
    pub(super) fn is_foreign(&self, part: &Part) -> bool {
        choice::vendor_of(&part.format) != self.choice.replica
    }

    /// A statement of the other vendor, in this one's words. `None`: it is of this vendor.
    fn translate(&self, statement: &Statement, part: &Part) -> Result<Option<Statement>> {
        if !self.is_foreign(part) {
            return Ok(None);
        }
        let source = spate_connection::ServerVersion::parse(&part.format.server_version);
        let translated = translate::translated(statement, self.choice.replica, &source);
        translated.map(Some).map_err(|why| refused(statement, part, why))
    }

    /// Refuses an alteration by which the replica would convert values in another way than the source, of another vendor, did.
    pub(super) fn refuse_conversions(&self, part: &Part, pending: &mut Pending<'a>) -> Result<()> {
        if !self.is_foreign(part) || part.batch.alone != Some(Alone::Definition) {
            return Ok(());
        }
        for item in &part.batch.items {
            let Item::Statement(statement) = item else { continue };
            let redefinitions =
                translate::redefinitions(statement.text()).map_err(|why| refused(statement, part, why))?;
            let objects = spate_schedule::statement::touched(statement.text(), &statement.database);
            let objects = objects.map_err(|doubt| refused(statement, part, Refusal::Doubtful(doubt).to_string()))?;
            let (Some(Object::Table(table)), false) = (objects.first(), redefinitions.is_empty()) else { continue };
            let question = translate::question(table, &redefinitions, self.choice.replica);
            let types = pending.outlet.ask(question.into_bytes(), None)?.unwrap_or_default();
            // Some of a session's settings cannot be made in a transaction, and a question begins one.
            pending.outlet.plain(b"ROLLBACK")?;
            for (place, redefinition) in redefinitions.iter().enumerate() {
                let present = types.get(place).and_then(|value| value.as_deref()).map(String::from_utf8_lossy);
                redefinition.check(present.as_deref()).map_err(|why| refused(statement, part, why))?;
            }
        }
        Ok(())
    }

    /// Refuses statements of a source's session with temporary tables if one of them could not be made again: the statement would go to a
    /// table of the same name, or find none.
    fn refuse_lost(&self, statement: &Statement, part: &Part, pending: &mut Pending<'a>) -> Result<()> {
        if let Some(why) = pending.temporary.unnamed.refusal(statement) {
            return Err(refused(statement, part, why));
        }
        if pending.temporary.lost.is_empty() {
            return Ok(());
        }
        if statement.class == StatementClass::Temporary {
            let (creates, names) = temporary_tables(statement.text(), &statement.database).unwrap_or_default();
            if !creates || replaces(statement.text()) {
                pending
                    .temporary
                    .lost
                    .retain(|table| table.thread_id != statement.thread_id || !names.contains(&table.name));
            }
            if !creates {
                return Ok(());
            }
        }
        let is_of_session = |table: &&TemporaryTable| table.thread_id == statement.thread_id;
        let needs_one = part.batch.temporary.needed_by.contains(&statement.thread_id);
        let Some(table) = pending.temporary.lost.iter().find(is_of_session).filter(|_| needs_one) else {
            return Ok(());
        };
        let why = format!(
            "it uses temporary tables of the source's session {}, whose temporary table {} could not be kept: execute it on the \
             replica by hand, and leave the transaction out (--skip)",
            table.thread_id, table.name
        );
        Err(refused(statement, part, why))
    }

    pub(super) fn prepare_statement(
        &self,
        statement: &Statement,
        part: &Part,
        pending: &mut Pending<'a>,
    ) -> Result<()> {
        self.refuse_lost(statement, part, pending)?;
        pending.end_rows()?;
        pending.outlet.flush(None)?;
        // What is asked for the statement begins a transaction already.
        if !matches!(
            part.batch.alone,
            Some(Alone::Definition | Alone::CreateSelect | Alone::XaPrepare(_) | Alone::XaEnd(_))
        ) {
            pending.tell_gtid()?;
        }
        pending.batch.net_row_changes += 1;
        let change = self.one_by_one.then(|| change(statement, part));
        if statement.class == StatementClass::Definition && may_concern_accounts(statement.text()) {
            pending.outlet.send(Command::WatchAccount(self::change(statement, part)))?;
        }
        if let Some(Alone::XaEnd(xid)) = &part.batch.alone {
            return self.prepare_end_of_xa(statement, xid, part, change, pending);
        }
        let translated = self.translate(statement, part)?;
        let statement = translated.as_ref().unwrap_or(statement);
        let without_database = self.leave_database(statement, part, change.as_ref(), pending)?;
        if without_database.is_none() && self.may_define_apart(statement, part, pending) {
            return self.define(statement, part, change, pending);
        }
        if statement.class == StatementClass::Definition {
            pending.definer.define_elsewhere();
        }
        let statement = without_database.as_ref().unwrap_or(statement);
        self.execute(statement, part, change.as_ref(), pending)
    }

    /// True if this is a definition that needs nothing of the session that applies, which then need not be brought into the state of the source's.
    fn may_define_apart(&self, statement: &Statement, part: &Part, pending: &Pending<'a>) -> bool {
        // What a source of MySQL says of this stays for what comes after, and is said to the session that applies.
        let explicit = statement.status.explicit_defaults_for_timestamp;
        let is_told = !self.found.collations.is_mysql() || explicit.is_none() || explicit == pending.told_defaults;
        is_told
            && matches!(part.batch.alone, Some(Alone::Definition | Alone::CreateSelect))
            && statement.error_code == 0
            && !self.is_in_ring
            && pending.temporary.are_none()
            && DefinerState::suits(statement)
    }

    /// Has a definition executed in the session for definitions.
    fn define(
        &self,
        statement: &Statement,
        part: &Part,
        change: Option<Change>,
        pending: &mut Pending<'a>,
    ) -> Result<()> {
        let sql = definition_sql(statement, &self.found.collations);
        if !pending.outlet.fits(sql.len()) {
            return Err(pending.outlet.too_large(sql.len(), change));
        }
        let told = pending.told_defaults.map(told_defaults::assignment).filter(|_| self.found.collations.is_mysql());
        let more = [self.source_version(part)?, told];
        let (collations, logs) = (&self.found.collations, self.found.logging.is_on);
        let mut before = pending.definer.bring(statement, collations, logs, more.into_iter().flatten());
        before.extend(std::mem::take(&mut pending.gtid).into_iter().map(String::into_bytes));
        pending.batch.is_own = true;
        let expected = expected(statement, self.found.collations.is_mysql());
        pending.batch.is_defined_apart = true;
        let seqno = part.reached.seqno;
        pending.outlet.send(Command::Define(Definition { seqno, before, sql, expected, change }))
    }

    /// What tells a session of MySQL which server the statement is of.
    fn source_version(&self, part: &Part) -> Result<Option<String>> {
        let source = spate_connection::ServerVersion::parse(&part.format.server_version);
        // An account that may not replay may not say this either.
        let is_told = self.choice.replica == spate_connection::Vendor::MySql
            && matches!(self.choice.choose(source.vendor)?, Dialect::Replay);
        Ok(is_told.then(|| source_version_sql(&source)))
    }

    /// The statement that ends an XA transaction: in a session whose changes are durable at once.
    fn prepare_end_of_xa(
        &self,
        statement: &Statement,
        xid: &Xid,
        part: &Part,
        change: Option<Change>,
        pending: &mut Pending<'a>,
    ) -> Result<()> {
        let ours = |sql: Vec<u8>| Command::ExecuteApart(Execution { sql, statements: 1, ..Execution::default() });
        let gtid = std::mem::take(&mut pending.gtid);
        pending.batch.is_own |= !gtid.is_empty();
        let gtid = gtid.into_iter().map(String::into_bytes);
        let before = self.is_in_ring.then(|| origin_sql(part)).into_iter().chain(gtid);
        let outlet = &mut pending.outlet;
        for sql in before {
            outlet.send(ours(sql))?;
        }
        let sql = statement.sql.clone();
        outlet.send(Command::ExecuteApart(Execution { sql, change, is_single: true, ..Execution::default() }))?;
        if let Some(sql) = self.gtids.end_sql() {
            outlet.send(ours(sql.into_bytes()))?;
        }
        outlet.plain(journal::ended_sql(xid).as_bytes())
    }

    /// Where the replica has no database of the name of the statement's default database, the session leaves its own, and the statement is
    /// executed without one. `None`: the replica has the database.
    fn leave_database(
        &self,
        statement: &Statement,
        part: &Part,
        change: Option<&Change>,
        pending: &mut Pending<'a>,
    ) -> Result<Option<Statement>> {
        if pending.databases.has(statement, &mut pending.outlet)? {
            return Ok(None);
        }
        pending.outlet.send(Command::Execute(setting(NO_DATABASE.to_vec(), change)))?;
        let changed = statement.without_database();
        Ok(Some(changed.map_err(|error| Error::Transaction { place: part.place.clone(), error })?))
    }

    /// The session's state, the statement, and what depends on its success.
    fn execute(
        &self,
        statement: &Statement,
        part: &Part,
        change: Option<&Change>,
        pending: &mut Pending<'a>,
    ) -> Result<()> {
        let StatementSql { before, sql, after } = self.surround(statement, part)?;
        // It commits by itself, and the session has only been asked something until now.
        let commits =
            matches!(part.batch.alone, Some(Alone::Definition | Alone::CreateSelect)) && !pending.gtid.is_empty();
        if commits {
            pending.outlet.plain(b"ROLLBACK")?;
            pending.tell_gtid()?;
            pending.batch.is_own = true;
        }
        let outlet = &mut pending.outlet;
        if let Some(large) = before.iter().chain([&sql]).find(|sql| !outlet.fits(sql.len())) {
            return Err(outlet.too_large(large.len(), change.cloned()));
        }
        let expected = expected(statement, self.found.collations.is_mysql());
        if let Expected::Failure(code) = expected
            && spate_connection::ServerError::is_transient_code(code)
        {
            let why = format!("it was interrupted on the source with error {code}, and nobody knows how far it got");
            return Err(refused(statement, part, why));
        }
        let created = UnnamedTables::count_before(statement, self.choice.replica, outlet)?;
        if let (true, StatementClass::Definition, Some(is_explicit)) =
            (self.found.collations.is_mysql(), statement.class, statement.status.explicit_defaults_for_timestamp)
        {
            pending.keep_defaults(is_explicit)?;
        }
        let outlet = &mut pending.outlet;
        for sql in before {
            outlet.send(Command::Execute(setting(sql, change)))?;
        }
        // A session that is inside an XA transaction or a plain one cannot do more than roll back; a definition can.
        let is_careful = part.batch.alone.is_some();
        let keeps_lock = leaves_session_alone(statement.text());
        let ending = |sql| Execution { expected, is_careful, keeps_lock, ..execution(sql, change) };
        match &statement.load {
            None => outlet.send(Command::Execute(ending(sql)))?,
            Some(load) => {
                let refused = |why: Refusal| self::refused(statement, part, why.to_string());
                let sql = load_sql(statement, load).map_err(refused)?;
                match statement.error_code {
                    0 => outlet.send(Command::Load(ending(sql), load.clone()))?,
                    _ => {
                        let half = HalfLoad::of(statement, load, &sql).map_err(refused)?;
                        send_half(half, load, |sql| execution(sql, change), ending, outlet)?;
                    }
                }
            }
        }
        outlet.send(Command::Execute(setting(after, change)))?;
        if let Some(sql) = self.gtids.end_sql().filter(|_| commits) {
            outlet.plain(sql.as_bytes())?;
        }
        self.give_to_creator(statement, part, outlet)?;
        if let Some(before) = created
            && pending.temporary.unnamed.note(statement, before, self.choice.replica, outlet)?
        {
            let what = spate_sql::excerpt(&statement.sql);
            let why = "a function or a trigger makes temporary tables, which are not kept over a restart";
            self.status.note("applier", &format!("{what} of the source's session {}: {why}", statement.thread_id));
        }
        Ok(())
    }

    /// The statement, and how its session is set up and left.
    fn surround(&self, statement: &Statement, part: &Part) -> Result<StatementSql> {
        let executing = match &part.batch.alone {
            Some(Alone::XaPrepare(_)) => Executing::Branch,
            _ => Executing::Main,
        };
        let sql = statement_sql(statement, &self.found.collations, executing);
        let mut sql = sql.map_err(|why| refused(statement, part, why))?;
        if let (Some(state), Some(version)) = (sql.before.last_mut(), self.source_version(part)?) {
            state.extend_from_slice(format!(", {version}").as_bytes());
        }
        Ok(sql)
    }

    /// A routine's definer gets the privileges that a server gives to its creator.
    fn give_to_creator(&self, statement: &Statement, part: &Part, outlet: &mut Outlet<'_>) -> Result<()> {
        if statement.class != StatementClass::Definition || statement.error_code != 0 {
            return Ok(());
        }
        let why = "it is not certain whether it creates a routine";
        let routine = creator::routine(statement, self.choice.replica);
        match routine.map_err(|_| refused(statement, part, why))? {
            Some(routine) => outlet.send(Command::GiveToCreator(routine)),
            None => Ok(()),
        }
    }
}

/// One statement that holds text of the source.
fn execution(sql: Vec<u8>, change: Option<&Change>) -> Execution {
    Execution { sql, statements: 1, change: change.cloned(), is_single: true, ..Execution::default() }
}

/// A statement that sets the session up: its values are literals.
fn setting(sql: Vec<u8>, change: Option<&Change>) -> Execution {
    Execution { keeps_lock: true, ..execution(sql, change) }
}

/// Sends half a LOAD DATA, by way of a scratch table. `ending`: the statement that is to end as the source's has ended.
fn send_half(
    half: HalfLoad,
    load: &LoadFile,
    execution: impl Fn(Vec<u8>) -> Execution,
    ending: impl FnOnce(Vec<u8>) -> Execution,
    outlet: &mut Outlet<'_>,
) -> Result<()> {
    outlet.send(Command::Execute(execution(half.create)))?;
    // Of the scratch table's rows none is there already.
    outlet.send(Command::Load(execution(half.load), load.clone()))?;
    for sql in half.numbering {
        outlet.send(Command::Execute(execution(sql)))?;
    }
    outlet.send(Command::Execute(ending(half.insert)))?;
    outlet.send(Command::Execute(execution(half.drop)))
}

fn expected(statement: &Statement, is_mysql: bool) -> Expected {
    // MySQL drops all tables or none: if one is gone, the others would stay.
    let drops_whole = is_mysql && statement.class == StatementClass::Definition && statement.sql.contains(&b',');
    match statement.error_code {
        0 if drops_whole => Expected::Success,
        0 if spate_schedule::statement::drops_tables(statement.text()) => Expected::Gone,
        0 if !is_mysql && drops_schema_or_trigger(statement.text()) => Expected::Gone,
        0 => Expected::Success,
        // Whether a statement had to wait for another's locks is nothing that it does.
        code if CONCURRENCY_CODES.contains(&code) => Expected::Success,
        code => Expected::Failure(code),
    }
}

/// The error of a statement that this replica must not execute.
fn refused(statement: &Statement, part: &Part, why: impl Into<String>) -> Halt {
    let what = spate_sql::excerpt(&statement.sql);
    let error = spate_schedule::Error::Refused { what, why: why.into() };
    Error::Transaction { place: part.place.clone(), error }.into()
}

fn change(statement: &Statement, part: &Part) -> Change {
    Change {
        has_shares: part.passes_over,
        place: part.place.clone(),
        what: spate_sql::excerpt(&statement.sql),
        row: None,
    }
}
