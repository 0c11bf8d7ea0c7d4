//! Each server alone: its version, its settings, what else runs there.

use super::facts::Facts;
use super::{Finding, Place, list_some_of};
use spate_connection::{Connection, Proof, Protection, Vendor};
use spate_replica::privileges::SUPER_READ_ONLY;
use spate_replica::{Error, Result};

pub(super) fn source(facts: &Facts) -> Vec<Finding> {
    let mut found = vec![version(facts, Place::Source), connection(facts, Place::Source), login(facts, Place::Source)];
    found.push(match facts.is_on("log_bin") {
        true => Finding::ok("binlog", Place::Source, "log_bin is ON"),
        false => Finding::error("binlog", Place::Source, "it writes no binlog")
            .advise("Set log_bin in its configuration and restart it"),
    });
    found.extend([format(facts), row_image(facts), checksum(facts), gtids(facts)]);
    found
}

pub(super) fn replica(facts: &Facts) -> Vec<Finding> {
    let mut found =
        vec![version(facts, Place::Replica), connection(facts, Place::Replica), login(facts, Place::Replica)];
    found.push(read_only(facts));
    found.extend(triggers(facts));
    found
}

fn triggers(facts: &Facts) -> Option<Finding> {
    let (check, place) = ("triggers", Place::Replica);
    match facts.text("slave_run_triggers_for_rbr") {
        "" => None,
        "NO" => Some(Finding::ok(check, place, "row changes fire none")),
        other => Some(
            Finding::warning(
                check,
                place,
                format!("slave_run_triggers_for_rbr is {other}: row changes fire the replica's triggers, so nothing is folded"),
            )
            .advise("SET GLOBAL slave_run_triggers_for_rbr=NO, if no trigger there is to see the source's changes"),
        ),
    }
}

fn version(facts: &Facts, place: Place) -> Finding {
    let version = &facts.version;
    let known = match version.vendor {
        Vendor::MariaDb => version.is_at_least(10, 5),
        Vendor::MySql => version.is_at_least(8, 0),
    };
    match known {
        true => Finding::ok("version", place, version.to_string()),
        false => Finding::error("version", place, format!("{version} is too old"))
            .advise("Spate works with MariaDB 10.5 and later and MySQL 8.0 and later"),
    }
}

fn connection(facts: &Facts, place: Place) -> Finding {
    let check = "connection";
    match &facts.protection {
        Protection::Local => Finding::ok(check, place, "over a Unix socket"),
        Protection::Tls { version, proof } => {
            let proved = match proof {
                Proof::None => "the server has not proven its identity",
                Proof::PublicAuthority => {
                    "an authority has issued the server's certificate, one of many or a public one, which proves nothing: \
                     everyone can get a certificate from such an authority"
                }
                Proof::Authority => "a known authority has issued the server's certificate",
                Proof::Identity => "the server's certificate is its own",
                Proof::Password => "the server has proved that it knows the account's password",
            };
            let found = format!("{version}; {proved}");
            match proof {
                Proof::PublicAuthority => Finding::warning(check, place, found).advise(format!(
                    "Use --{place}-tls-mode verify-identity, or name only the authority of its certificate with --{place}-tls-ca"
                )),
                Proof::None if !facts.is_near => Finding::warning(check, place, found).advise(format!(
                    "Somebody who redirects the connection can read and change what it carries. Name the authority of the \
                     server's certificate with --{place}-tls-ca, and use --{place}-tls-mode verify-identity if it names the host"
                )),
                _ => Finding::ok(check, place, found),
            }
        }
        Protection::None if facts.is_near => Finding::ok(check, place, "not encrypted, within this machine"),
        Protection::None => Finding::warning(check, place, "not encrypted, over a network").advise(format!(
            "Give the server a certificate and use --{place}-tls-mode verify-identity, or required where nobody can redirect \
             the connection"
        )),
    }
}

/// Whether the next login may need a secure connection that this one did not need.
fn login(facts: &Facts, place: Place) -> Finding {
    let check = "login";
    match &facts.withheld_password {
        None => Finding::ok(check, place, facts.account.clone()),
        Some(why) => Finding::warning(
            check,
            place,
            "the server knows a hash of the password until it restarts or forgets it (FLUSH PRIVILEGES); then Spate cannot log in",
        )
        .advise(format!("The server will want the password itself, {why}")),
    }
}

/// MySQL is about to lose the setting; without it, it is ROW.
pub(super) fn logs_statements(facts: &Facts) -> bool {
    !matches!(facts.text("binlog_format"), "ROW" | "")
}

fn format(facts: &Facts) -> Finding {
    let check = "binlog format";
    match (logs_statements(facts), facts.text("binlog_format")) {
        (false, _) => Finding::ok(check, Place::Source, "ROW"),
        (true, other) => Finding::warning(
            check,
            Place::Source,
            format!("{other}: statements are executed one by one, in their order, and do not fold"),
        )
        .advise("SET GLOBAL binlog_format=ROW, for new sessions, and in its configuration"),
    }
}

fn row_image(facts: &Facts) -> Finding {
    let check = "row image";
    match facts.text("binlog_row_image") {
        "FULL" | "" | "FULL_NODUP" => Finding::ok(check, Place::Source, "FULL"),
        other => Finding::warning(
            check,
            Place::Source,
            format!("{other}: folding is harder, and changes of unique or key columns stay in the source's order"),
        )
        .advise("SET GLOBAL binlog_row_image=FULL, for new sessions, and in its configuration"),
    }
}

fn checksum(facts: &Facts) -> Finding {
    match facts.text("binlog_checksum") {
        "CRC32" => Finding::ok("checksum", Place::Source, "CRC32"),
        _ => Finding::warning("checksum", Place::Source, "events have no checksums: damage would not be noticed")
            .advise("SET GLOBAL binlog_checksum=CRC32, and in its configuration"),
    }
}

fn gtids(facts: &Facts) -> Finding {
    let (check, place) = ("gtid mode", Place::Source);
    if !facts.is_mysql() {
        return match facts.is_on("gtid_strict_mode") {
            true => Finding::ok(check, place, "gtid_strict_mode is ON"),
            false => Finding::warning(
                check,
                place,
                "gtid_strict_mode is OFF: a client that writes to it beside its own replication can bring GTIDs out of order",
            )
            .advise("SET GLOBAL gtid_strict_mode=ON, and in its configuration"),
        };
    }
    let (mode, consistency) = (facts.text("gtid_mode"), facts.text("enforce_gtid_consistency"));
    if mode == "ON" && consistency == "ON" {
        return Finding::ok(check, place, "gtid_mode is ON, with enforce_gtid_consistency");
    }
    Finding::warning(
        check,
        place,
        format!("gtid_mode is {mode}, enforce_gtid_consistency {consistency}: Spate goes on by file and offset, which another \
                 source does not have"),
    )
    .advise(
        "SET GLOBAL enforce_gtid_consistency=ON, then gtid_mode=OFF_PERMISSIVE, ON_PERMISSIVE and ON, one after the other",
    )
}

fn read_only(facts: &Facts) -> Finding {
    let (check, place) = ("read_only", Place::Replica);
    if facts.is_on("super_read_only") {
        return Finding::error(check, place, SUPER_READ_ONLY);
    }
    match facts.is_on("read_only") {
        true => Finding::ok(check, place, "ON"),
        false => {
            let privilege = if facts.is_mysql() { "CONNECTION_ADMIN" } else { "READ_ONLY ADMIN" };
            Finding::warning(
                check,
                place,
                "the replica is writable by others: a change made there will stop replication one day",
            )
            .advise(format!("SET GLOBAL read_only=ON there, and GRANT {privilege} ON *.* TO {}", facts.account))
        }
    }
}

/// Filters of the binlog itself: no replica ever sees the transactions that they leave out.
pub(super) fn filters(source: &mut Connection, facts: &Facts) -> Result<Vec<Finding>> {
    let (check, place) = ("binlog filters", Place::Source);
    let privilege = if facts.is_mysql() { "REPLICATION CLIENT" } else { "BINLOG MONITOR" };
    let grant = format!("GRANT {privilege} ON *.* TO {}", facts.account);
    let rows = source
        .query(facts.version.binlog_status_sql())
        .map_err(|error| Error::from(error).with_missing_privilege("tell its binlog's filters", &grant))?;
    let filter = |column| rows.text(0, column).filter(|names| !names.is_empty());
    let filters: Vec<String> = [("Binlog_Do_DB", "binlog_do_db"), ("Binlog_Ignore_DB", "binlog_ignore_db")]
        .into_iter()
        .filter_map(|(column, option)| Some(format!("{option}={}", filter(column)?)))
        .collect();
    Ok(vec![match filters.is_empty() {
        true => Finding::ok(check, place, "none"),
        false => Finding::warning(
            check,
            place,
            format!("{}: what this leaves out of the binlog does not reach the replica", filters.join(", ")),
        )
        .advise("Take it out of its configuration, unless that is meant"),
    }])
}

/// Filters of a MariaDB replica's own replication, which mean nothing to Spate. (MySQL shows its own to few accounts.)
pub(super) fn own_filters(replica: &mut Connection) -> Result<Vec<Finding>> {
    let (check, place) = ("replication filters", Place::Replica);
    if replica.server_version().vendor == Vendor::MySql {
        return Ok(vec![]);
    }
    let rows = replica.query(
        "SHOW GLOBAL VARIABLES WHERE Variable_name LIKE 'replicate\\_%' AND Value NOT IN ('', 'REPLICATE') \
         AND Variable_name <> 'replicate_annotate_row_events'",
    )?;
    let filter = |row| Some(format!("{}={}", rows.text_at(row, 0)?, rows.text_at(row, 1)?));
    let filters: Vec<String> = (0..rows.rows.len()).filter_map(filter).collect();
    // The server applies this one to replayed rows too, and to nothing else.
    if let Some(rewrites) = filters.iter().find(|filter| filter.starts_with("replicate_rewrite_db=")) {
        let why = format!("{rewrites}: the server would put replayed rows into another schema than statements");
        return Ok(vec![Finding::error(check, place, why).advise("Take it out of its configuration, and restart it")]);
    }
    Ok(vec![match filters.is_empty() {
        true => Finding::ok(check, place, "none"),
        false => Finding::warning(
            check,
            place,
            format!("{}: these are of the replica's own replication, and Spate applies everything", filters.join(", ")),
        )
        .advise("Filter in the source's binlog, or let the replica's own replication go on"),
    }])
}

/// Whether the replica replicates by itself, too.
pub(super) fn own_replication(replica: &mut Connection, source: &Facts) -> Result<Vec<Finding>> {
    let (check, place) = ("own replication", Place::Replica);
    let (is_mysql, version) = (replica.server_version().vendor == Vendor::MySql, replica.server_version().clone());
    let sql = match is_mysql {
        false => "SHOW ALL SLAVES STATUS",
        true if version.is_at_least(8, 1) => "SHOW REPLICA STATUS",
        true => "SHOW SLAVE STATUS",
    };
    let grant = if is_mysql { "REPLICATION CLIENT" } else { "REPLICA MONITOR" };
    let rows = replica.query(sql).map_err(|error| {
        Error::from(error)
            .with_missing_privilege("show its own replication", &format!("GRANT {grant} ON *.* TO <the user of Spate>"))
    })?;
    let running = |row| {
        ["Slave_SQL_Running", "Replica_SQL_Running"]
            .iter()
            .any(|column| rows.text(row, column).as_deref() == Some("Yes"))
    };
    let ids = |row| ["Master_Server_Id", "Source_Server_Id"].iter().find_map(|column| rows.text(row, column));
    let running: Vec<usize> = (0..rows.rows.len()).filter(|&row| running(row)).collect();
    let stop = if is_mysql { "STOP REPLICA" } else { "STOP ALL SLAVES" };
    Ok(vec![if running.is_empty() {
        Finding::ok(check, place, "not running")
    } else if running.iter().any(|&row| ids(row).as_deref() == Some(source.text("server_id"))) {
        Finding::error(
            check,
            place,
            "the replica's own replication is running too, from the same source: each change would be made twice",
        )
        .advise(format!("{stop} there"))
    } else {
        Finding::warning(check, place, "the replica's own replication is running too")
            .advise(format!("{stop} there, unless it serves another source"))
    }])
}

/// Events that would run on the replica as well as on the source.
pub(super) fn events(replica: &mut Connection, facts: &Facts) -> Result<Vec<Finding>> {
    let (check, place) = ("events", Place::Replica);
    if !facts.is_on("event_scheduler") {
        return Ok(vec![Finding::ok(check, place, "the event scheduler is off")]);
    }
    let rows = replica
        .query("SELECT CONCAT(EVENT_SCHEMA, '.', EVENT_NAME) FROM information_schema.EVENTS WHERE STATUS = 'ENABLED' ORDER BY 1")?;
    let names: Vec<String> = (0..rows.rows.len()).filter_map(|row| rows.text_at(row, 0)).collect();
    Ok(vec![match names.is_empty() {
        true => Finding::ok(check, place, "none is enabled"),
        false => Finding::warning(
            check,
            place,
            format!(
                "the event scheduler is on, and these would change rows there by themselves: {}",
                list_some_of(&names)
            ),
        )
        .advise("SET GLOBAL event_scheduler=OFF there, until it takes the source's place"),
    }])
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    fn level_of(found: &[Finding], check: &str) -> Level {
        found.iter().find(|finding| finding.check == check).map(|finding| finding.level).unwrap()
    }

    const GOOD: [(&str, &str); 5] = [
        ("log_bin", "ON"),
        ("binlog_format", "ROW"),
        ("binlog_row_image", "FULL"),
        ("binlog_checksum", "CRC32"),
        ("gtid_strict_mode", "ON"),
    ];

    #[test]
    fn source_check_accepts_good_and_reports_bad_settings() {
        let good = source(&Facts::made_of("10.11.1-MariaDB", &GOOD));
        assert!(good.iter().all(|finding| finding.level == Level::Ok), "{good:?}");
        for (name, value, check, level) in [
            ("log_bin", "OFF", "binlog", Level::Error),
            ("binlog_format", "MIXED", "binlog format", Level::Warning),
            ("binlog_row_image", "MINIMAL", "row image", Level::Warning),
            ("binlog_checksum", "NONE", "checksum", Level::Warning),
            ("gtid_strict_mode", "OFF", "gtid mode", Level::Warning),
        ] {
            let mut variables = GOOD.to_vec();
            variables.push((name, value));
            let found = source(&Facts::made_of("10.11.1-MariaDB", &variables));
            assert_eq!(level_of(&found, check), level, "{name}={value}");
            let advised =
                found.iter().filter(|finding| finding.level != Level::Ok).all(|finding| !finding.advice.is_empty());
            assert!(advised, "{found:?}");
        }
        for old in ["10.4.30-MariaDB", "5.7.44"] {
            assert_eq!(level_of(&source(&Facts::made_of(old, &GOOD)), "version"), Level::Error);
        }
    }

    #[test]
    fn source_check_asks_for_gtids_on_mysql() {
        for (mode, consistency, level) in
            [("ON", "ON", Level::Ok), ("OFF", "OFF", Level::Warning), ("ON_PERMISSIVE", "ON", Level::Warning)]
        {
            let facts = Facts::made_of("8.4.3", &[("gtid_mode", mode), ("enforce_gtid_consistency", consistency)]);
            assert_eq!(gtids(&facts).level, level, "{mode}");
        }
    }

    #[test]
    fn connection_check_warns_of_clear_connections() {
        let mut facts = Facts::made_of("8.4.3", &[]);
        facts.protection = Protection::None;
        assert_eq!(connection(&facts, Place::Source).level, Level::Ok);
        facts.is_near = false;
        let found = connection(&facts, Place::Source);
        assert!(found.level == Level::Warning && found.advice.contains("--source-tls-mode"), "{found:?}");
    }

    #[test]
    fn connection_check_warns_of_encryption_without_proof() {
        let mut facts = Facts::made_of("8.4.3", &[]);
        for (proof, is_near, level) in [
            (Proof::None, true, Level::Ok),
            (Proof::None, false, Level::Warning),
            (Proof::PublicAuthority, true, Level::Warning),
            (Proof::PublicAuthority, false, Level::Warning),
            (Proof::Authority, false, Level::Ok),
            (Proof::Identity, false, Level::Ok),
            (Proof::Password, false, Level::Ok),
        ] {
            facts.protection = Protection::Tls { version: "TLSv1.3".to_owned(), proof };
            facts.is_near = is_near;
            let found = connection(&facts, Place::Replica);
            assert_eq!(found.level, level, "{proof:?} {is_near}");
            assert_eq!(found.advice.contains("--replica-tls-ca"), level == Level::Warning, "{found:?}");
        }
    }

    #[test]
    fn login_check_warns_of_a_password_that_will_not_be_sent() {
        let mut facts = Facts::made_of("8.4.3", &[]);
        assert_eq!(login(&facts, Place::Source).level, Level::Ok);
        facts.withheld_password = Some("and the connection is not encrypted: use a Unix socket".to_owned());
        let found = login(&facts, Place::Source);
        assert!(found.level == Level::Warning && found.advice.contains("use a Unix socket"), "{found:?}");
    }
}
