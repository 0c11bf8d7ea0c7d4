//! The privileges that Spate's account needs for what an archive holds, as GRANT statements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use spate_archive::{Archive, ArchivedEvent, DirectoryOptions, ReadOptions, RealFileSystem, Seek};
use spate_binlog::header::{EventHeader, EventType};
use spate_binlog::payload::PayloadEvents;
use spate_binlog::query::StatusVariables;
use spate_binlog::{QueryEvent, TableMap, compressed};
use spate_schedule::needs::{self, Need};
use spate_sql::excerpt;
use spate_sql::{Servers, SqlText};

use super::facts::Facts;
use super::{CheckOptions, connect_options};
use spate_connection::{Connection, ServerVersion, Vendor, quote};
use spate_replica::asking;
use spate_replica::choice::{Dialect, DialectChoice, vendor_of};
use spate_replica::privileges::Rights;
use spate_replica::{Error, Result};

/// Schemas that get privileges; further ones are left out, and counted.
const SCHEMAS_MAX: usize = 100;

/// Statements whose needs are unknown: so many are shown.
const UNTOLD_MAX: usize = 20;

/// Definers that are looked up.
const DEFINERS_MAX: usize = 1000;

/// One statement that gives privileges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Grant {
    /// The statement, without a semicolon.
    pub statement: String,
    /// What it is needed for.
    pub why: String,
}

/// What the account on the replica needs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Grants {
    /// The replica.
    pub replica: String,
    /// Spate's account there.
    pub account: String,
    /// The first and the last binlog file that was read.
    pub files: (String, String),
    /// How many statements were read, rows not counted.
    pub statements: u64,
    /// The statements that give the privileges.
    pub grants: Vec<Grant>,
    /// Statements whose needs are unknown, up to a limit.
    pub untold: Vec<String>,
    /// Schemas whose privileges are left out, since there are too many.
    pub schemas_left_out: usize,
}

/// What an archive's transactions need.
#[derive(Debug, Default)]
struct Found {
    source: Option<Vendor>,
    files: Option<(Arc<str>, Arc<str>)>,
    statements: u64,
    needs: BTreeSet<Need>,
    untold: Vec<String>,
    has_rows: bool,
    /// Rows of the server's own tables changed.
    has_system_rows: bool,
}

/// Reads the archive and says what its transactions need on the replica.
///
/// # Errors
/// There is no archive, or it holds nothing; any error of reading it, or of the replica's connection.
pub fn grants(options: &CheckOptions) -> Result<Grants> {
    let mut replica = asking::connect(&options.replica, &connect_options("replica"))?;
    let facts = Facts::read(&mut replica, &options.replica)?;
    let directory = options.archive_dir.as_deref().unwrap_or_else(|| std::path::Path::new("."));
    let archive = Archive::open(Arc::new(RealFileSystem), directory, DirectoryOptions::default())?;
    let found = Found::read(&archive, &facts.version)?;
    let Some((first, last)) = found.files.clone() else {
        return Err(Error::Unsuitable {
            peer: format!("archive {}", directory.display()),
            why: "it holds no transactions yet: fill it first, with `spate archive fetch` or `spate replicate`"
                .to_owned(),
        });
    };
    let mut list =
        List { account: facts.account.clone(), grants: vec![], untold: found.untold.clone(), schemas_left_out: 0 };
    let rights = Rights::read(&mut replica)?;
    list.rows(&found, &facts, &rights.choice(options.dialect, replica.peer().to_string()), options)?;
    list.statements(&found, &facts, &rights, &mut replica)?;
    Ok(Grants {
        replica: replica.peer().to_string(),
        account: list.account,
        files: (first.to_string(), last.to_string()),
        statements: found.statements,
        grants: list.grants,
        untold: list.untold,
        schemas_left_out: list.schemas_left_out,
    })
}

impl Found {
    fn read(archive: &Archive, replica: &ServerVersion) -> Result<Found> {
        let mut found = Found::default();
        let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default())?;
        while let Some(event) = reader.next_event()? {
            found.source = Some(vendor_of(event.format));
            let first = found.files.take().map_or_else(|| Arc::clone(event.source_file), |(first, _)| first);
            found.files = Some((first, Arc::clone(event.source_file)));
            let servers = Servers {
                source: Some(ServerVersion::parse(&event.format.server_version).reader()),
                replica: Some(replica.reader()),
            };
            found.event(&event, servers).map_err(|error| Error::Stream {
                peer: "archive".to_owned(),
                what: format!("an event at {}:{}", event.source_file, event.source_end_position),
                error,
            })?;
        }
        Ok(found)
    }

    fn event(&mut self, event: &ArchivedEvent<'_>, servers: Servers) -> spate_binlog::Result<()> {
        if event.header.event_type != EventType::TRANSACTION_PAYLOAD {
            return self.one(&event.header, event.body, servers);
        }
        let mut events = PayloadEvents::open(event.body)?;
        while let Some((header, body)) = events.next_event()? {
            self.one(&header, body, servers)?;
        }
        Ok(())
    }

    fn one(&mut self, header: &EventHeader, body: &[u8], servers: Servers) -> spate_binlog::Result<()> {
        match header.event_type {
            EventType::QUERY => self.query(&QueryEvent::parse(body)?, servers),
            EventType::QUERY_COMPRESSED => {
                let mut buffer = Vec::new();
                self.query(&compressed::parse_query(body, &mut buffer)?, servers)
            }
            EventType::XA_PREPARE => {
                self.needs.insert(Need::Xa);
                Ok(())
            }
            EventType::TABLE_MAP => {
                self.has_rows = true;
                self.has_system_rows |= TableMap::parse(body)?.schema.eq_ignore_ascii_case("mysql");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn query(&mut self, query: &QueryEvent<'_>, servers: Servers) -> spate_binlog::Result<()> {
        if query.begins_group() || query.ends_group() || query.rolls_group_back() {
            return Ok(());
        }
        self.statements += 1;
        let reading = StatusVariables::parse(query.status)?.reading(servers);
        let text = SqlText { sql: query.statement, reading: &reading };
        match needs::needs(text, &String::from_utf8_lossy(query.database)) {
            Ok(needs) => self.needs.extend(needs),
            Err(needs::Untold) if self.untold.len() < UNTOLD_MAX => self.untold.push(excerpt(query.statement)),
            Err(needs::Untold) => {}
        }
        Ok(())
    }
}

struct List {
    account: String,
    grants: Vec<Grant>,
    untold: Vec<String>,
    schemas_left_out: usize,
}

impl List {
    fn add(&mut self, what: &str, why: &str) {
        let statement = format!("GRANT {what} TO {}", self.account);
        self.grants.push(Grant { statement, why: why.to_owned() });
    }

    fn add_with_option(&mut self, what: &str, why: &str) {
        let statement = format!("GRANT {what} TO {} WITH GRANT OPTION", self.account);
        self.grants.push(Grant { statement, why: why.to_owned() });
    }

    /// What every run needs.
    fn rows(&mut self, found: &Found, facts: &Facts, choice: &DialectChoice, options: &CheckOptions) -> Result<()> {
        self.add("ALL PRIVILEGES ON spate.*", "Spate's own tables: its position, notes, copies of temporary tables");
        self.add(
            "SELECT, INSERT, UPDATE, DELETE ON *.*",
            "to see all tables with their foreign keys, and to change rows",
        );
        let source = found.source.unwrap_or(facts.version.vendor);
        // As if everything that will be printed were given already.
        let choice = DialectChoice { may_replay: true, sees_triggers: true, ..choice.clone() };
        match choice.choose(source)? {
            Dialect::Replay => self.add(&format!("{} ON *.*", choice.replay_privilege()), "to replay row changes"),
            Dialect::Sql => self.add("TRIGGER ON *.*", "rows as SQL statements: to see which tables have triggers"),
        }
        if facts.is_mysql() {
            self.add("SESSION_VARIABLES_ADMIN ON *.*", "to set sessions up as statements need them");
        } else if options.without_replica_binlog || options.is_ring {
            self.add("BINLOG ADMIN ON *.*", "--no-replica-binlog, --ignore-server-ids");
        }
        if facts.is_on("read_only") {
            let privilege = if facts.is_mysql() { "CONNECTION_ADMIN" } else { "READ_ONLY ADMIN" };
            self.add(&format!("{privilege} ON *.*"), "the replica is read_only");
        }
        if options.repairs {
            self.add("TRIGGER ON *.*", "--on-conflict repair");
        }
        Ok(())
    }

    /// What the statements need, and what need not be had for them.
    fn statements(&mut self, found: &Found, facts: &Facts, rights: &Rights, replica: &mut Connection) -> Result<()> {
        let mut needed = Needed::of(found, facts);
        if needed.proxies {
            self.add_with_option("PROXY ON ''@''", "GRANT PROXY and REVOKE PROXY");
        }
        for schema in std::mem::take(&mut needed.called) {
            let is_made = needed.schemas.get(schema).is_some_and(|privileges| privileges.contains("CREATE ROUTINE"));
            if is_made || has_functions(replica, schema)? {
                needed.schemas.entry(schema).or_default().insert("EXECUTE");
            }
        }
        needed.add_definers(facts, rights, replica);
        if !needed.server.is_empty() {
            let privileges = std::mem::take(&mut needed.server).into_iter().collect::<Vec<_>>().join(", ");
            self.add(&format!("{privileges} ON *.*"), "definitions, accounts, and other statements");
        }
        let is_given_everywhere = needed.given.contains_key(&None);
        self.by_schema(needed, facts);
        let may_be_kept_from_system_tables =
            facts.is_mysql() && !found.has_system_rows && !is_given_everywhere && facts.version.is_at_least(8, 0);
        if may_be_kept_from_system_tables {
            let on = if facts.is_on("partial_revokes") { "" } else { " (takes SET PERSIST partial_revokes=ON)" };
            let statement = format!("REVOKE INSERT, UPDATE, DELETE ON mysql.* FROM {}", self.account);
            let why = format!("no row of the server's own tables is changed{on}");
            self.grants.push(Grant { statement, why });
        }
        Ok(())
    }

    /// The privileges on single schemas.
    fn by_schema(&mut self, needed: Needed<'_>, facts: &Facts) {
        let Needed { mut schemas, mut given, .. } = needed;
        for schema in schemas.keys().chain(given.keys().flatten()).filter(|schema| schema.contains('\\')) {
            self.untold
                .push(format!("what the schema {} needs: its name holds a backslash", quote::identifier(schema)));
        }
        schemas.retain(|schema, _| !schema.contains('\\'));
        given.retain(|schema, _| !schema.is_some_and(|schema| schema.contains('\\')));
        self.schemas_left_out = schemas.len().saturating_sub(SCHEMAS_MAX) + given.len().saturating_sub(SCHEMAS_MAX);
        for (schema, privileges) in schemas.into_iter().take(SCHEMAS_MAX) {
            let privileges = privileges.into_iter().collect::<Vec<_>>().join(", ");
            self.add(&format!("{privileges} ON {}", on(Some(schema), facts)), "definitions");
        }
        for (schema, privileges) in given.iter().take(SCHEMAS_MAX) {
            let privileges = match privileges.iter().copied().collect::<Vec<_>>().join(", ") {
                none if none.is_empty() => "USAGE".to_owned(),
                some => some,
            };
            let scope = on(*schema, facts);
            self.add_with_option(&format!("{privileges} ON {scope}"), "what the source's statements give or take");
        }
    }
}

/// Privileges that statements need, by where they are given.
#[derive(Default)]
struct Needed<'n> {
    schemas: BTreeMap<&'n str, BTreeSet<&'n str>>,
    server: BTreeSet<&'n str>,
    /// Schemas whose functions are called.
    called: BTreeSet<&'n str>,
    /// Accounts that are named as definers: the first of them.
    definers: BTreeSet<(String, String)>,
    has_definers: bool,
    /// Privileges that the statements themselves give or take. `None`: everywhere.
    given: BTreeMap<Option<&'n str>, BTreeSet<&'n str>>,
    proxies: bool,
}

impl<'n> Needed<'n> {
    fn of(found: &'n Found, facts: &Facts) -> Needed<'n> {
        let mut needed = Needed::default();
        for need in &found.needs {
            match need {
                Need::Schema { schema, privilege } => drop(needed.schemas.entry(schema).or_default().insert(privilege)),
                Need::Server(privilege) => drop(needed.server.insert(privilege)),
                Need::Functions(schema) => drop(needed.called.insert(schema)),
                Need::Definer(definer) => {
                    needed.has_definers = true;
                    let has_room = needed.definers.len() < DEFINERS_MAX;
                    needed.definers.extend(definer.clone().filter(|_| has_room));
                }
                Need::Roles if facts.is_mysql() => drop(needed.server.insert("ROLE_ADMIN")),
                // MariaDB's has Spate for an administrator of the roles that it made.
                Need::Roles => {}
                Need::Proxies => needed.proxies = true,
                Need::Servers => {
                    needed.server.insert(if facts.is_mysql() { "SUPER" } else { "FEDERATED ADMIN" });
                }
                Need::Xa if facts.is_mysql() => drop(needed.server.insert("XA_RECOVER_ADMIN")),
                Need::Xa => {}
                Need::Give { privileges, schema } => {
                    let given = needed.given.entry(schema.as_deref()).or_default();
                    given.extend(privileges.iter().map(|one| &**one));
                }
            }
        }
        needed
    }

    /// To name others as definers is a privilege, and another for some of them.
    fn add_definers(&mut self, facts: &Facts, rights: &Rights, replica: &mut Connection) {
        if !self.has_definers {
            return;
        }
        self.server.insert(match (facts.is_mysql(), facts.version.is_at_least(8, 2)) {
            (false, _) => "SET USER",
            (true, true) => "SET_ANY_DEFINER",
            (true, false) => "SET_USER_ID",
        });
        let sees_accounts = rights.has("SELECT");
        for definer in self.definers.iter().filter(|_| facts.is_mysql()) {
            match is_protected(replica, definer) {
                Some(true) => drop(self.server.insert("SYSTEM_USER")),
                Some(false) => {}
                // Without a look at accounts, any may be met.
                None if !sees_accounts => drop(self.server.insert("SYSTEM_USER")),
                None if facts.version.is_at_least(8, 2) => drop(self.server.insert("ALLOW_NONEXISTENT_DEFINER")),
                None => {}
            }
        }
    }
}

/// `schema.*` as GRANT reads it; `None`: everything.
fn on(schema: Option<&str>, facts: &Facts) -> String {
    let Some(schema) = schema else { return "*.*".to_owned() };
    // Elsewhere, _ and % in a schema's name stand for others.
    let is_plain = facts.is_mysql() && facts.is_on("partial_revokes");
    let name = if is_plain { schema.to_owned() } else { schema.replace('_', "\\_").replace('%', "\\%") };
    format!("{}.*", quote::identifier(&name))
}

fn has_functions(replica: &mut Connection, schema: &str) -> Result<bool> {
    let schema = quote::text(schema);
    let sql = format!("SELECT 1 FROM information_schema.ROUTINES WHERE ROUTINE_SCHEMA = {schema} LIMIT 1");
    Ok(!replica.query(&sql)?.rows.is_empty())
}

/// True if the account is such that only its like may name it; `None` if it is not there.
fn is_protected(replica: &mut Connection, (user, host): &(String, String)) -> Option<bool> {
    let grantee = quote::text(&format!("'{user}'@'{host}'"));
    let sql = format!(
        "SELECT MAX(PRIVILEGE_TYPE = 'SYSTEM_USER') FROM information_schema.USER_PRIVILEGES WHERE GRANTEE = {grantee}"
    );
    match replica.query(&sql).ok()?.single_text().as_deref() {
        Some("1") => Some(true),
        Some("0") => Some(false),
        _ => None,
    }
}
