//! The two servers together: settings that have to fit.

use super::facts::Facts;
use super::server::logs_statements;
use super::{Finding, Level, Place};

const BOTH: Place = Place::Both;

pub(super) fn compare(source: &Facts, replica: &Facts, own_id: Option<u32>) -> Vec<Finding> {
    vec![
        versions(source, replica),
        server_ids(source, replica, own_id),
        packets(source, replica),
        letter_case(source, replica),
        settings(source, replica),
    ]
}

fn versions(source: &Facts, replica: &Facts) -> Finding {
    let check = "versions";
    let (from, to) = (&source.version, &replica.version);
    if from.vendor != to.vendor {
        return Finding::warning(
            check,
            BOTH,
            format!("from {from} to {to}: rows are converted and written as SQL, and not every statement means the same there"),
        )
        .advise("docs/compatibility.md says what works between the vendors");
    }
    let text = format!("{from} and {to}");
    match (to.major, to.minor) < (from.major, from.minor) {
        true => Finding::warning(
            check,
            BOTH,
            format!("{text}: the replica is older, and does not know all that the source does"),
        )
        .advise("Upgrade the replica first, as for the servers' own replication"),
        false => Finding::ok(check, BOTH, text),
    }
}

fn server_ids(source: &Facts, replica: &Facts, own_id: Option<u32>) -> Finding {
    let check = "server ids";
    let (of_source, of_replica) = (source.number("server_id"), replica.number("server_id"));
    let own = own_id.map(u64::from);
    let ids = match own {
        Some(own) => format!("source {of_source}, replica {of_replica}, Spate {own}"),
        None => format!("source {of_source}, replica {of_replica}"),
    };
    if of_source == 0 {
        return Finding::error(check, BOTH, "the source has server_id 0, with which it serves no replicas")
            .advise("Set server_id in its configuration");
    }
    if of_source == of_replica {
        return Finding::error(check, BOTH, format!("source and replica both have server_id {of_source}"))
            .advise("Each server of a replication needs its own: set another on the replica");
    }
    if own == Some(of_source) || own == Some(of_replica) {
        return Finding::error(check, BOTH, format!("Spate would have the id of a server: {ids}"))
            .advise("Choose another with --server-id");
    }
    if !source.text("server_uuid").is_empty() && source.text("server_uuid") == replica.text("server_uuid") {
        return Finding::error(check, BOTH, "source and replica have the same server_uuid: one is a copy of the other")
            .advise(
                "Stop the replica, remove auto.cnf from its data directory, and start it: it makes itself another",
            );
    }
    Finding::ok(check, BOTH, ids)
}

fn packets(source: &Facts, replica: &Facts) -> Finding {
    let check = "max_allowed_packet";
    let (of_source, of_replica) = (source.number(check), replica.number(check));
    match of_replica < of_source {
        true => Finding::warning(
            check,
            BOTH,
            format!("{of_source} on the source, {of_replica} on the replica: a large row may not fit"),
        )
        .advise(format!("SET GLOBAL max_allowed_packet={of_source} on the replica, and in its configuration")),
        false => Finding::ok(check, BOTH, format!("{of_source} on the source, {of_replica} on the replica")),
    }
}

fn letter_case(source: &Facts, replica: &Facts) -> Finding {
    let check = "lower_case_table_names";
    let (of_source, of_replica) = (source.text(check), replica.text(check));
    if of_source == of_replica {
        return Finding::ok(check, BOTH, of_source);
    }
    // A source that keeps names apart by their case has tables that become one on such a replica.
    let level = if of_source == "0" { Level::Error } else { Level::Warning };
    Finding::new(
        check,
        BOTH,
        level,
        format!("{of_source} on the source, {of_replica} on the replica: names mean different tables"),
    )
    .advise("It is chosen when a server's data directory is made: make the replica with the source's value")
}

/// Settings that decide what a statement does and that do not travel with it, and whether they matter to definitions too.
const OF_STATEMENTS: [(&str, bool); 9] = [
    ("default_storage_engine", true),
    ("innodb_default_row_format", true),
    ("innodb_page_size", true),
    ("innodb_strict_mode", true),
    ("old_mode", true),
    ("group_concat_max_len", false),
    ("div_precision_increment", false),
    ("default_week_format", false),
    ("explicit_defaults_for_timestamp", true),
];

fn settings(source: &Facts, replica: &Facts) -> Finding {
    let (check, place) = ("settings", Place::Replica);
    let has_statements = logs_statements(source);
    let mut problems: Vec<String> = OF_STATEMENTS
        .into_iter()
        .filter(|(_, in_definitions)| *in_definitions || has_statements)
        .filter(|(name, _)| source.has(name) && replica.has(name) && source.text(name) != replica.text(name))
        .map(|(name, _)| {
            format!(
                "{name} is {} on the source and {} on the replica",
                said(source.text(name)),
                said(replica.text(name))
            )
        })
        .collect();
    if replica.is_on("sql_require_primary_key") && !source.is_on("sql_require_primary_key") {
        problems.push("sql_require_primary_key=ON refuses tables that the source takes".to_owned());
    }
    let trusts = "log_bin_trust_function_creators";
    if replica.is_on("log_bin") && source.is_on(trusts) && !replica.is_on(trusts) {
        problems.push("log_bin_trust_function_creators=OFF refuses functions that the source takes".to_owned());
    }
    if has_statements && !replica.is_on("local_infile") {
        problems.push("local_infile=OFF refuses the source's LOAD DATA statements".to_owned());
    }
    match problems.is_empty() {
        true => Finding::ok(check, place, "those that do not travel with statements are the source's"),
        false => {
            Finding::warning(check, place, format!("statements may do something else there: {}", problems.join("; ")))
                .advise("Give the replica the source's settings")
        }
    }
}

fn said(value: &str) -> &str {
    if value.is_empty() { "''" } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: [(&str, &str); 6] = [
        ("server_id", "1"),
        ("max_allowed_packet", "67108864"),
        ("lower_case_table_names", "0"),
        ("binlog_format", "ROW"),
        ("innodb_strict_mode", "ON"),
        ("group_concat_max_len", "1024"),
    ];

    fn found(source: &[(&str, &str)], replica: &[(&str, &str)], own_id: u32) -> Vec<Finding> {
        let with = |own: &[(&str, &str)], id| {
            let all = [&SOURCE[..], &[("server_id", id)], own].concat();
            Facts::made_of("10.11.1-MariaDB", &all)
        };
        let found = compare(&with(source, "1"), &with(replica, "2"), Some(own_id));
        found.into_iter().filter(|finding| finding.level != Level::Ok).collect()
    }

    #[test]
    fn pair_check_accepts_good_and_reports_bad_pairs() {
        assert_eq!(found(&[], &[], 9), []);
        for (source, replica, own_id, check, level) in [
            (("server_id", "0"), ("server_id", "2"), 9, "server ids", Level::Error),
            (("server_id", "2"), ("server_id", "2"), 9, "server ids", Level::Error),
            (("server_id", "1"), ("server_id", "2"), 1, "server ids", Level::Error),
            (("server_id", "1"), ("server_id", "2"), 2, "server ids", Level::Error),
            (("server_uuid", "u"), ("server_uuid", "u"), 9, "server ids", Level::Error),
            (("max_allowed_packet", "2"), ("max_allowed_packet", "1"), 9, "max_allowed_packet", Level::Warning),
            (
                ("lower_case_table_names", "0"),
                ("lower_case_table_names", "1"),
                9,
                "lower_case_table_names",
                Level::Error,
            ),
            (
                ("lower_case_table_names", "1"),
                ("lower_case_table_names", "0"),
                9,
                "lower_case_table_names",
                Level::Warning,
            ),
            (("innodb_strict_mode", "OFF"), ("innodb_strict_mode", "ON"), 9, "settings", Level::Warning),
            (("binlog_format", "MIXED"), ("local_infile", "OFF"), 9, "settings", Level::Warning),
            (("log_bin_trust_function_creators", "ON"), ("log_bin", "ON"), 9, "settings", Level::Warning),
            (("innodb_strict_mode", "ON"), ("sql_require_primary_key", "ON"), 9, "settings", Level::Warning),
        ] {
            let found = found(&[source], &[replica], own_id);
            assert!(
                found.len() == 1 && found[0].check == check && found[0].level == level && !found[0].advice.is_empty(),
                "{source:?} {replica:?}: {found:?}"
            );
        }
        // What only statements that change rows depend on does not matter to rows.
        assert_eq!(found(&[("group_concat_max_len", "1")], &[], 9), []);
        assert_eq!(
            found(&[("group_concat_max_len", "1"), ("binlog_format", "MIXED")], &[("local_infile", "ON")], 9).len(),
            1
        );
    }

    #[test]
    fn pair_check_compares_versions_within_a_vendor() {
        let level = |source, replica| versions(&Facts::made_of(source, &[]), &Facts::made_of(replica, &[])).level;
        assert_eq!(level("10.11.1-MariaDB", "11.8.3-MariaDB"), Level::Ok);
        assert_eq!(level("11.8.3-MariaDB", "10.11.1-MariaDB"), Level::Warning);
        assert_eq!(level("9.7.0", "9.7.1"), Level::Ok);
        assert_eq!(level("9.7.0", "11.8.3-MariaDB"), Level::Warning);
    }
}
