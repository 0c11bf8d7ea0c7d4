//! A session of Spate's is in the state of a native applier's thread: statements that write down every variable of the session that
//! executes them say so, on replicas whose global settings are all unusual.

use std::collections::{BTreeMap, HashSet};
use std::io::Write;

use crate::support::{Kind, Oracle, Server};

/// Variables that no change of a table or definition may depend on, or that are the same in effect.
const OTHERWISE: &[&str] = &[
    // Which server it is, and where its files are.
    "aria_log_dir_path",
    "datadir",
    "general_log_file",
    "hostname",
    "pid_file",
    "port",
    "relay_log",
    "replica_load_tmpdir",
    "relay_log_basename",
    "relay_log_index",
    "report_port",
    "server_uid",
    "server_uuid",
    "slave_load_tmpdir",
    "slow_query_log_file",
    "socket",
    "tmpdir",
    "wsrep_data_home_dir",
    // Which transaction it is: what Spate commits has GTIDs of the replica's own, and its server's number.
    "gtid_current_pos",
    "gtid_executed",
    "gtid_next",
    "gtid_owned",
    "gtid_purged",
    "gtid_seq_no",
    "gtid_slave_pos",
    "original_commit_timestamp",
    "original_server_version",
    "server_id",
    "statement_id",
    // Drawn anew in each session: a source says what its RAND() began with.
    "rand_seed1",
    "rand_seed2",
    // A source says the fraction only where a statement asks for it; native appliers count it up.
    "timestamp",
    // What is written to a server's own logs, and what a client gets to see.
    "character_set_results",
    "log_slow_query",
    "show_create_table_verbosity",
    "show_gipk_in_create_table_and_information_schema",
    "slow_query_log",
    "sql_quote_show_create",
    // How long a silent client is borne with, and a statement let run: Spate lets it run.
    "max_execution_time",
    "net_read_timeout",
    "net_write_timeout",
    "wait_timeout",
    "sql_select_limit",
    "information_schema_stats_expiry",
    // Spate has its transactions begun by autocommit=0 on one vendor, by BEGIN on the other.
    "autocommit",
    // What was logged as a statement may refuse to run with less than REPEATABLE READ. Nobody else writes.
    "transaction_isolation",
    "tx_isolation",
    // Native appliers of MariaDB 11.8 have the replica's own. The source's rows fit, or were said to be let in.
    "check_constraint_checks",
    // The old name of alter_algorithm.
    "old_alter_table",
    "sql_slave_skip_counter",
];

/// What rows say nothing of: native appliers have what the last statement before them has said.
const OF_STATEMENTS: &[&str] = &[
    "auto_increment_increment",
    "auto_increment_offset",
    "character_set_collations",
    "explicit_defaults_for_timestamp",
    "pseudo_thread_id",
];

/// Sets every global variable that sessions begin with to another value, where the server says what else it may be; how many there are.
fn make_unusual(server: &Server, kind: Kind) -> usize {
    /// What both replicas' own work depends on, or what changes the definition of what is made.
    const LEFT: [&str; 10] = [
        "sql_require_primary_key",
        "sql_generate_invisible_primary_key",
        "sql_safe_updates",
        "gtid_domain_id",
        "server_id",
        "max_allowed_packet",
        // Needs keys that a test has not.
        "default_table_encryption",
        // Native appliers stop.
        "transaction_read_only",
        "tx_read_only",
        // One more than its greatest value, which it has, is allowed by the server, and allows nothing any more.
        "max_session_mem_used",
    ];
    let metadata = server.sql(match kind {
        Kind::Mysql => {
            "SELECT i.VARIABLE_NAME, g.VARIABLE_VALUE, i.MAX_VALUE, '' FROM performance_schema.variables_info i \
             JOIN performance_schema.global_variables g USING (VARIABLE_NAME)"
        }
        _ => {
            "SELECT LOWER(VARIABLE_NAME), GLOBAL_VALUE, NUMERIC_MAX_VALUE, ENUM_VALUE_LIST FROM information_schema.SYSTEM_VARIABLES \
             WHERE VARIABLE_TYPE <> 'SET'"
        }
    });
    let of_sessions = variables_of_sessions(server, &metadata);
    let mut statements = String::new();
    for line in metadata.lines() {
        let mut columns = line.split('\t');
        let [name, value, highest, values] = [(); 4].map(|()| columns.next().unwrap_or_default());
        let another =
            values.split(',').find(|other| !other.eq_ignore_ascii_case(value)).filter(|_| values.contains(','));
        let other = match (value, value.parse::<u64>(), highest.parse::<u64>()) {
            ("ON", _, _) => "OFF".to_owned(),
            ("OFF", _, _) => "ON".to_owned(),
            // Limits: far enough to let the test's own statements through.
            (_, Ok(0), Ok(highest)) => highest.min(100_000).to_string(),
            (_, Ok(number), Ok(highest)) if number < highest => (number + 1).to_string(),
            (_, Ok(number), _) => (number - 1).to_string(),
            _ => match another {
                Some(other) => format!("'{other}'"),
                None => continue,
            },
        };
        if of_sessions.contains(name) && !LEFT.contains(&name) {
            statements.push_str(&format!("SET GLOBAL {name}={other};\n"));
        }
    }
    let before = server.sql("SHOW GLOBAL VARIABLES");
    by_force(server, &statements);
    let after = server.sql("SHOW GLOBAL VARIABLES");
    before.lines().zip(after.lines()).filter(|(before, after)| before != after).count()
}

/// The names of those variables that a session may set to what they are globally.
fn variables_of_sessions(server: &Server, metadata: &str) -> HashSet<String> {
    let names: Vec<&str> = metadata.lines().filter_map(|line| line.split('\t').next()).collect();
    let statements: Vec<String> = names.iter().map(|name| format!("SET SESSION {name}=@@GLOBAL.{name};\n")).collect();
    let refused = by_force(server, &statements.concat());
    let refused: HashSet<usize> =
        refused.lines().filter_map(|line| line.split_once(" at line ")?.1.split(':').next()?.parse().ok()).collect();
    let of_sessions = names.iter().enumerate().filter(|(line, _)| !refused.contains(&(line + 1)));
    of_sessions.map(|(_, &name)| name.to_owned()).collect()
}

/// Executes statements, one a line, whatever fails; what the client said of these.
fn by_force(server: &Server, statements: &str) -> String {
    let mut client = server.client().arg("--force").spawn().unwrap();
    client.stdin.take().unwrap().write_all(statements.as_bytes()).unwrap();
    String::from_utf8_lossy(&client.wait_with_output().unwrap().stderr).into_owned()
}

fn written_down(server: &Server, table: &str) -> BTreeMap<String, String> {
    let rows = server.sql(&format!("SELECT LOWER(name), value FROM d.{table}"));
    rows.lines().filter_map(|line| line.split_once('\t')).map(|(name, value)| (name.into(), value.into())).collect()
}

fn sessions_are_alike(kind: Kind) {
    let triggers: &[&str] = if kind == Kind::Mysql { &[] } else { &["--slave-run-triggers-for-rbr=YES"] };
    let oracle = Oracle::new(kind, &["--binlog-format=STATEMENT"], triggers);
    let from = match kind {
        Kind::Mysql => "performance_schema.session_variables",
        _ => "information_schema.SESSION_VARIABLES",
    };
    let all = format!("SELECT VARIABLE_NAME AS name, VARIABLE_VALUE AS value FROM {from}");
    let columns = "(name VARCHAR(100), value TEXT) ENGINE=InnoDB";
    let tables = format!(
        "CREATE DATABASE d; CREATE TABLE d.changes {columns}; CREATE TABLE d.rows_of {columns}; CREATE TABLE d.fires (id INT PRIMARY KEY)",
    );
    oracle.site.source.sql(&format!("SET sql_log_bin=0; {tables}"));
    // A trigger of the replica's own writes down with which session rows are replayed; MySQL's appliers fire none.
    let trigger = format!("CREATE TRIGGER d.t AFTER INSERT ON d.fires FOR EACH ROW INSERT INTO d.rows_of {all}");
    oracle.replicas(&format!("{tables}; {trigger}"));
    oracle.site.source.sql(&format!(
        "INSERT INTO d.changes {all}; CREATE TABLE d.definitions ENGINE=InnoDB {all}; SET binlog_format=ROW; \
         INSERT INTO d.fires VALUES (1)",
    ));
    for server in [&oracle.native, &oracle.site.replica] {
        let set = make_unusual(server, kind);
        assert!(set > 40, "{set}");
    }
    oracle.native_catches_up();
    oracle.site.catch_up(&["--start", "earliest"]);
    let mut different = vec![];
    for table in ["changes", "definitions", "rows_of"] {
        let (ours, theirs) = (written_down(&oracle.site.replica, table), written_down(&oracle.native, table));
        assert!(theirs.is_empty() == (kind == Kind::Mysql && table == "rows_of"), "{table}");
        for (name, native) in &theirs {
            let ours = ours.get(name);
            let is_left_over = table == "rows_of" && OF_STATEMENTS.contains(&name.as_str());
            if ours != Some(native) && !OTHERWISE.contains(&name.as_str()) && !is_left_over {
                different.push(format!("{table}: {name} is {native} in native replication, and {ours:?} here"));
            }
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn session_variables_arrive_on_mariadb() {
    sessions_are_alike(Kind::Mariadb);
}

#[test]
fn session_variables_arrive_on_mariadb_11_8() {
    sessions_are_alike(Kind::Mariadb118);
}

#[test]
fn session_variables_arrive_on_mysql() {
    sessions_are_alike(Kind::Mysql);
}
