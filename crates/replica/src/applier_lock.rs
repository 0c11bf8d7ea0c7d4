//! The named lock of the one Spate that applies, and what becomes of its sessions when a connection dies on one side only.
//!
//! A session of its own holds the lock, the *guard*: it asks questions and never executes a text of the source, which could release
//! any lock. The lock belongs to that session of the replica's server. If the network swallows the connection, the server may not
//! notice for hours: the session stays, and with it the lock. Two things end it:
//! - *this* process comes back on a new connection: it recognises the session as its own, by a second lock whose name no
//!   other process has, and ends it;
//! - *another* process, on another machine, wants to take over: a session that says nothing for `IDLE_SECONDS_MAX` is ended
//!   by the server itself, and one that is alive says something more often.
//!
//! Everything is executed in other sessions: the one that applies, one for notes, and parts of XA transactions. The server finishes what they
//! are at even if their client is gone. So the Spate that has taken the lock first waits until those that an earlier applier left have ended, and
//! ends those that do nothing. They are known by their ids, which the guard has written down before they execute anything, and by a lock
//! that each holds.
//!
//! So the holder of the lock reads a checkpoint that nobody else will move, and sees what became of whatever a note is of. And a batch commits
//! only if the checkpoint is still where it began.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::lock_names::{self, LockNames};
use spate_connection::{Connection, quote};

/// The server ends an applier's session that is silent for this long.
pub(crate) const IDLE_SECONDS_MAX: u64 = 60;

/// How often a session without work says something: four times before its silence would end it.
pub const PING_EVERY: Duration = Duration::from_secs(IDLE_SECONDS_MAX / 4);

/// How long to wait for a lock: after a crash the server may still be ending the old session, and its last commit.
const WAIT_SECONDS: u32 = 10;

/// The locks of the sessions that apply to one replica.
#[derive(Debug, Clone)]
pub struct ApplierLock {
    names: LockNames,
}

/// How long to wait for the end of sessions that an earlier applier left.
const END_TIME_MAX: Duration = Duration::from_secs(WAIT_SECONDS as u64);
const END_LOOK_EVERY: Duration = Duration::from_millis(10);

/// The table of the sessions that execute.
pub(crate) const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.session (\
     what VARCHAR(20) CHARACTER SET ascii NOT NULL PRIMARY KEY, connection_id BIGINT UNSIGNED NOT NULL) ENGINE=InnoDB \
     COMMENT='what the next Spate ends before it begins'";

/// The table of the account whose sessions those are.
pub(crate) const CREATE_ACCOUNT: &str = "CREATE TABLE IF NOT EXISTS spate.account (\
     id TINYINT UNSIGNED NOT NULL PRIMARY KEY, user_name VARCHAR(300) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL) ENGINE=InnoDB \
     COMMENT='whose sessions the next Spate ends before it begins'";

/// The name of the account of this session. (It may hold an @.)
const OWN_ACCOUNT: &str = "LEFT(USER(), CHAR_LENGTH(USER()) - CHAR_LENGTH(SUBSTRING_INDEX(USER(), '@', -1)) - 1)";

/// A session that executes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Applies.
    Main,
    /// For notes, and for statements that end an XA transaction.
    Journal,
    /// Executes definitions.
    Definer,
    /// Inside an XA transaction.
    Branch,
}

impl ApplierLock {
    /// Takes the lock for this session, the guard, ending one of this same process that still has it, and every session that an
    /// earlier applier left. Spate's own tables must be there.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds it, or one of its sessions does not end; any error of the connection.
    pub fn take(guard: &mut Connection) -> Result<ApplierLock> {
        let lock = ApplierLock { names: LockNames::make(guard)? };
        let (own, applier) = (own_name(), lock.names.applier());
        let holder = guard
            .query(&format!("SELECT IF(IS_USED_LOCK({applier}) = IS_USED_LOCK({own}), IS_USED_LOCK({own}), NULL)"))?;
        if let Some(abandoned) = holder.single_text() {
            end_session(guard, &abandoned);
        }
        take(guard, &applier, WAIT_SECONDS)?;
        await_known_sessions(guard)?;
        for role in [Role::Main, Role::Journal, Role::Definer, Role::Branch] {
            lock.end_left(role, guard)?;
        }
        take(guard, &own, WAIT_SECONDS)?;
        guard.execute(format!("SET SESSION wait_timeout={IDLE_SECONDS_MAX}").as_bytes())?;
        Ok(lock)
    }

    /// Makes it known, by way of `other`, that this session will execute, and takes its lock.
    ///
    /// # Errors
    /// [`Error::Locked`] if another session holds it; any error of the connections.
    pub fn begin(&self, role: Role, session: &mut Connection, other: &mut Connection) -> Result<()> {
        make_known(role.name(), session.connection_id(), other)?;
        // Nobody says anything in a branch while its transaction is read.
        if role == Role::Main {
            session.execute(format!("SET SESSION wait_timeout={IDLE_SECONDS_MAX}").as_bytes())?;
        }
        self.take_for(role, session)
    }

    /// Makes it known that this session will execute rows, and nothing else, beside others.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn announce(what: &str, session: &mut Connection) -> Result<()> {
        make_known(what, session.connection_id(), session)?;
        session.execute(format!("SET SESSION wait_timeout={IDLE_SECONDS_MAX}").as_bytes())?;
        Ok(())
    }

    /// Takes the lock of a session that executes for this one; it ends with the session.
    ///
    /// # Errors
    /// [`Error::Locked`] if another session holds it; any error of the connection.
    pub fn take_for(&self, role: Role, connection: &mut Connection) -> Result<()> {
        take(connection, &self.name(role), WAIT_SECONDS)
    }

    /// Takes the lock again after a statement of the source has released it.
    ///
    /// # Errors
    /// [`Error::Locked`] if another session has taken it meanwhile; any error of the connection.
    pub fn keep(&self, role: Role, connection: &mut Connection) -> Result<()> {
        keep(connection, &self.name(role))
    }

    /// Ends the session that an earlier applier left, if it still has its lock.
    fn end_left(&self, role: Role, guard: &mut Connection) -> Result<()> {
        let name = self.name(role);
        if let Some(holder) = guard.query(&format!("SELECT IS_USED_LOCK({name})"))?.single_text() {
            end_session(guard, &holder);
        }
        take(guard, &name, WAIT_SECONDS)?;
        guard.query(&format!("SELECT RELEASE_LOCK({name})"))?;
        Ok(())
    }

    fn name(&self, role: Role) -> String {
        match role {
            Role::Main => self.names.main(),
            Role::Journal => self.names.journal(),
            Role::Definer => self.names.definer(),
            Role::Branch => self.names.branch(),
        }
    }
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Main => "main",
            Role::Journal => "journal",
            Role::Definer => "definer",
            Role::Branch => "branch",
        }
    }
}

/// Waits until no session is left that an earlier applier has made known. One that is at nothing, or at rows that can be rolled back, is ended; what
/// another is at may be such that half of it stays. (The server gives the same ids after a restart: only sessions of that applier's account, and of
/// this one, count.)
///
/// # Errors
/// [`Error::Locked`] if one does not end; [`Error::Privilege`] if this account may not see those of another; any error of the connection.
fn await_known_sessions(guard: &mut Connection) -> Result<()> {
    let own = guard.query(&format!("SELECT {OWN_ACCOUNT}"))?.single_text().unwrap_or_default();
    let account = guard.query("SELECT user_name FROM spate.account WHERE id = 0")?.single_text();
    let is_of_other = account.as_ref().is_some_and(|account| *account != own);
    if is_of_other {
        may_see_others(guard)?;
    }
    let left_sessions = format!(
        "SELECT ID, COMMAND, (SELECT COUNT(*) FROM spate.session WHERE connection_id = ID \
         AND (what LIKE 'rows-%' OR what LIKE 'share-%' OR what LIKE 'turn-%')) FROM information_schema.PROCESSLIST \
         WHERE ID IN (SELECT connection_id FROM spate.session) \
         AND USER IN ({}, {}) AND ID <> CONNECTION_ID()",
        quote::text(&own),
        quote::text(account.as_ref().unwrap_or(&own))
    );
    let deadline = Instant::now() + END_TIME_MAX;
    loop {
        let left = guard.query(&left_sessions)?;
        let Some(id) = left.text_at(0, 0) else { break };
        if Instant::now() > deadline {
            return Err(Error::Locked { replica: guard.peer().to_string(), holder: id });
        }
        for row in 0..left.rows.len() {
            let is_at_rows = left.text_at(row, 2).is_some_and(|count| count != "0");
            if is_at_rows || left.text_at(row, 1).as_deref() == Some("Sleep") {
                end_session(guard, &left.text_at(row, 0).unwrap_or_default());
            }
        }
        std::thread::sleep(END_LOOK_EVERY);
    }
    if account.as_ref() != Some(&own) {
        // A value, no function: a replica of this replica must see at once that the statement is of Spate's own table.
        let sql = format!("REPLACE INTO spate.account (id, user_name) VALUES (0, {})", quote::text(&own));
        guard.execute(sql.as_bytes())?;
    }
    Ok(())
}

/// Fails if this account cannot find out whether sessions of another account are left.
fn may_see_others(guard: &mut Connection) -> Result<()> {
    let seen = guard.query("SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1");
    let grant = "GRANT PROCESS ON *.* TO <the user of Spate>";
    let action = "see whether sessions are left of the account that Spate had before, to go on as another";
    seen.map(drop).map_err(|error| Error::from(error).with_missing_privilege(action, grant))
}

/// Writes down that a session will execute, so that the next holder of the applier's lock waits for its end.
fn make_known(what: &str, id: u32, by: &mut Connection) -> Result<()> {
    let what = quote::text(what);
    by.execute(format!("REPLACE INTO spate.session (what, connection_id) VALUES ({what}, {id})").as_bytes())?;
    Ok(())
}

/// True if an applier runs on the replica.
///
/// # Errors
/// Any error of the connection.
pub fn is_applier_present(replica: &mut Connection) -> Result<bool> {
    let Some(names) = LockNames::read(replica)? else { return Ok(false) };
    let holder = replica.query(&format!("SELECT IS_USED_LOCK({})", names.applier()))?;
    Ok(holder.single_text().is_some())
}

/// Takes a lock for this session; `name` is quoted.
fn take(connection: &mut Connection, name: &str, wait_seconds: u32) -> Result<()> {
    let answer = connection.query(&format!("SELECT GET_LOCK({name}, {wait_seconds})"))?;
    if answer.single_text().as_deref() == Some("1") {
        return Ok(());
    }
    let holder = connection.query(&format!("SELECT IS_USED_LOCK({name})"))?.single_text();
    let replica = connection.peer().to_string();
    Err(Error::Locked { replica, holder: holder.unwrap_or_else(|| "unknown".to_owned()) })
}

/// Takes a lock if this session has it no more. Taken twice, it would have to be released twice. (CONNECTION_ID() is what
/// `pseudo_thread_id` says.)
fn keep(connection: &mut Connection, name: &str) -> Result<()> {
    let id = connection.connection_id();
    let is_held = connection.query(&format!("SELECT IS_USED_LOCK({name}) = {id}"))?;
    if is_held.single_text().as_deref() == Some("1") { Ok(()) } else { take(connection, name, 0) }
}

fn end_session(connection: &mut Connection, id: &str) {
    // It may end by itself at just this moment.
    let _ended = connection.execute(format!("KILL CONNECTION {id}").as_bytes());
}

/// A name that no other process has, quoted.
fn own_name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    quote::text(NAME.get_or_init(|| format!("spate.process.{}", lock_names::random())))
}
