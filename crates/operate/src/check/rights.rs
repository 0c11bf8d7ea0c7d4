//! What the accounts may do, and the GRANT for what they may not.

use super::facts::Facts;
use super::{CheckOptions, Finding, Place};
use spate_connection::{Connection, Vendor};
use spate_replica::choice::{Dialect, DialectChoice};
use spate_replica::privileges::Rights;
use spate_replica::{Error, Result};

const CHECK: &str = "privileges";

/// What most definitions need; each statement may need another.
const DEFINITIONS: [&str; 14] = [
    "CREATE",
    "ALTER",
    "DROP",
    "INDEX",
    "REFERENCES",
    "CREATE VIEW",
    "SHOW VIEW",
    "TRIGGER",
    "CREATE ROUTINE",
    "ALTER ROUTINE",
    "EXECUTE",
    "EVENT",
    "RELOAD",
    "PROCESS",
];

pub(super) fn source(source: &mut Connection, facts: &Facts) -> Result<Vec<Finding>> {
    let rights = Rights::read(source)?;
    let grant = |privilege: &str| format!("GRANT {privilege} ON *.* TO {}", facts.account);
    let mut found = Vec::new();
    if !rights.has("REPLICATION SLAVE") && !rights.has("REPLICATION REPLICA") {
        let message = format!("{} may not read the binlog: REPLICATION SLAVE is missing", facts.account);
        found.push(Finding::error(CHECK, Place::Source, message).advise(grant("REPLICATION SLAVE")));
    }
    let monitor = if facts.is_mysql() { "REPLICATION CLIENT" } else { "BINLOG MONITOR" };
    if !rights.has(monitor) && !rights.has("SUPER") {
        let message = format!(
            "{} may not list the binlog's files, as --start earliest needs it: {monitor} is missing",
            facts.account
        );
        found.push(Finding::warning(CHECK, Place::Source, message).advise(grant(monitor)));
    }
    if found.is_empty() {
        found.push(Finding::ok(CHECK, Place::Source, format!("{} may do what Spate does there", facts.account)));
    }
    Ok(found)
}

pub(super) fn replica(
    replica: &mut Connection,
    facts: &Facts,
    source: Vendor,
    options: &CheckOptions,
) -> Result<Vec<Finding>> {
    let rights = Rights::read(replica)?;
    let account = &facts.account;
    let mut found: Vec<Finding> = rights
        .missing_on_replica(facts.is_on("read_only"))
        .into_iter()
        .map(|missing| {
            let message = format!("{account} cannot {}: {} is missing", missing.action, missing.privilege);
            Finding::error(CHECK, Place::Replica, message).advise(format!("{} TO {account}", missing.grant))
        })
        .collect();
    found.extend(dialect(rights.choice(options.dialect, replica.peer().to_string()), source, account));
    let grant = |privilege: &str| format!("GRANT {privilege} ON *.* TO {account}");
    if let Some(option) = lacks_silence(&rights, facts, options) {
        let message = format!("{account} lacks BINLOG ADMIN, which {option} needs");
        found.push(Finding::error(CHECK, Place::Replica, message).advise(grant("BINLOG ADMIN")));
    }
    if options.repairs && !rights.has("TRIGGER") {
        let message = format!("{account} lacks TRIGGER, which --on-conflict repair needs for some rows");
        found.push(Finding::warning(CHECK, Place::Replica, message).advise(grant("TRIGGER")));
    }
    found.extend(definitions(&rights, facts));
    if found.is_empty() {
        found.push(Finding::ok(CHECK, Place::Replica, format!("{account} may do what Spate does there")));
    }
    Ok(found)
}

/// Whether rows can be written as they are to be.
fn dialect(choice: DialectChoice, source: Vendor, account: &str) -> Option<Finding> {
    match choice.choose(source) {
        Err(Error::Privilege { action, grant, .. }) => {
            let message = format!("{account} cannot {action}");
            let grant = grant.replace("<the user of Spate>", account);
            Some(Finding::error(CHECK, Place::Replica, message).advise(grant))
        }
        Err(error) => Some(Finding::error(CHECK, Place::Replica, error.to_string())),
        Ok(Dialect::Sql) if choice.wanted.is_none() && source == choice.replica => {
            let message =
                format!("{account} may not replay row changes: they are written as SQL statements, which is slower");
            let grant = format!("GRANT {} ON *.* TO {account}", choice.replay_privilege());
            Some(Finding::warning(CHECK, Place::Replica, message).advise(grant))
        }
        Ok(_) => None,
    }
}

/// The option of this run that needs to keep sessions out of the replica's binlog, if the account may not. (On MySQL, every run
/// needs what this needs.)
fn lacks_silence(rights: &Rights, facts: &Facts, options: &CheckOptions) -> Option<&'static str> {
    let may = facts.is_mysql() || rights.has("BINLOG ADMIN") || rights.has("SUPER");
    match (may, options.is_ring, options.without_replica_binlog) {
        (true, _, _) | (false, false, false) => None,
        (false, true, _) => Some("--ignore-server-ids"),
        (false, false, true) => Some("--no-replica-binlog"),
    }
}

fn definitions(rights: &Rights, facts: &Facts) -> Option<Finding> {
    let definer = match (facts.is_mysql(), facts.version.is_at_least(8, 2)) {
        (false, _) => "SET USER",
        (true, true) => "SET_ANY_DEFINER",
        (true, false) => "SET_USER_ID",
    };
    let lacking: Vec<&str> =
        DEFINITIONS.into_iter().chain([definer]).filter(|privilege| !rights.has(privilege)).collect();
    if lacking.is_empty() {
        return None;
    }
    let lacking = lacking.join(", ");
    let message = format!("{} will stop at definitions that need what it lacks: {lacking}", facts.account);
    let advice = format!(
        "GRANT {lacking} ON *.* TO {} WITH GRANT OPTION, if the source changes definitions; or what `spate check --grants` prints",
        facts.account
    );
    Some(Finding::warning(CHECK, Place::Replica, message).advise(advice))
}
