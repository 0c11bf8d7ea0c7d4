//! A source that is itself a replica of Spate logs changes of Spate's own tables there, as rows or as statements. They are left out, and
//! nothing that a source logs changes these tables on its replica.

use crate::support::program::program;
use crate::support::server::ACCOUNT;
use crate::support::{Kind, Server, Site, wait_until};

const IN_STATEMENTS: [&str; 1] = ["--binlog-format=STATEMENT"];
const CHECKPOINT: &str = "SELECT * FROM spate.checkpoint";

/// An earlier version may be at work.
#[test]
fn tables_are_not_altered_under_who_applies() {
    const TYPE: &str =
        "SELECT DATA_TYPE FROM information_schema.COLUMNS WHERE TABLE_SCHEMA='spate' AND COLUMN_NAME='until_position'";
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        let running = site.spawn(site.replicate(&["--start", "earliest"]));
        site.source.sql("CREATE DATABASE d");
        wait_until("it applies", || site.replica.sql("SHOW DATABASES LIKE 'd'") == "d");
        site.replica.sql("ALTER TABLE spate.hold MODIFY until_position TEXT CHARACTER SET ascii NULL");
        site.run(site.replica_command("handover")).assert_failed_saying(&["another Spate applies"]);
        assert_eq!(site.replica.sql(TYPE), "text");
        assert!(running.terminate().status.success());
        let told = site.run(site.replica_command("handover"));
        assert!(told.status.success(), "{}", told.output);
        assert_eq!(site.replica.sql(TYPE), "text", "it only reads");
        site.catch_up(&[]);
        assert_eq!(site.replica.sql(TYPE), "mediumtext");
    }
}

fn a_chain(kind: Kind, format: &str) {
    let format = format!("--binlog-format={format}");
    let site = Site::between((kind, &[&format]), (kind, &["--log-bin=between", &format]));
    let last = Server::replica(kind, &["--server-id=3"]);
    let mut command = program();
    command.args(["replicate", "--start", "earliest", "--archive"]).arg(site.archive().with_file_name("second"));
    command.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", site.replica.port));
    command.arg("--replica").arg(format!("{ACCOUNT}@127.0.0.1:{}", last.port));
    for side in ["source", "replica"] {
        last.allow_password(&mut command, side);
    }
    let following = site.spawn(command);
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT)");
    // MySQL refuses to log these as statements from within a transaction.
    let keeps_temporary = kind == Kind::Mariadb || format != "--binlog-format=STATEMENT";
    for round in 0..5 {
        site.source.sql(&format!(
            "INSERT INTO d.t VALUES ({round}, 0); UPDATE d.t SET v=v+1; CREATE TABLE d.t{round} (id INT PRIMARY KEY)"
        ));
        site.source.sql(&match keeps_temporary {
            true => format!(
                "USE d; CREATE TEMPORARY TABLE x (a INT); INSERT INTO x VALUES ({round}); INSERT INTO d.t SELECT 100 + a, 0 FROM x"
            ),
            false => format!("INSERT INTO d.t VALUES (100 + {round}, 0)"),
        });
        site.catch_up(&["--start", "earliest"]);
    }
    wait_until("the last one to have all", || {
        last.try_sql("SELECT COUNT(*), SUM(v) FROM d.t").is_ok_and(|told| told == "10\t25")
            && last.sql("SHOW TABLES FROM d").lines().count() == 6
    });
    site.source.sql("DROP TABLE d.t0");
    site.catch_up(&[]);
    wait_until("the last one to have the end", || last.sql("SHOW TABLES FROM d").lines().count() == 5);
    let ended = following.terminate();
    assert!(ended.status.success(), "{}", ended.output);
    assert_eq!(site.source.checksums(), last.checksums());
    assert_ne!(site.replica.sql(CHECKPOINT), last.sql(CHECKPOINT), "each has a position of its own");
}

#[test]
fn replica_behind_a_replica_keeps_its_own_schema() {
    for format in ["ROW", "MIXED", "STATEMENT"] {
        a_chain(Kind::Mariadb, format);
    }
}

#[test]
fn replica_behind_a_replica_keeps_its_own_schema_on_mysql() {
    for format in ["ROW", "MIXED", "STATEMENT"] {
        a_chain(Kind::Mysql, format);
    }
}

/// What a source has in a schema of that name stays there, whoever writes it.
#[test]
fn schema_spate_of_the_source_is_not_replicated() {
    let site = Site::between((Kind::Mariadb, &IN_STATEMENTS), (Kind::Mariadb, &[]));
    site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
    site.catch_up(&["--start", "earliest"]);
    let (checkpoint, tables) = (site.replica.sql(CHECKPOINT), site.replica.sql("SHOW TABLES FROM spate"));
    site.source.sql(
        "CREATE DATABASE spate; CREATE TABLE spate.checkpoint (applier INT PRIMARY KEY, seqno INT, gtid_position TEXT); \
         INSERT INTO spate.checkpoint VALUES (0, 1, '9-9-9'); USE spate; UPDATE checkpoint SET seqno=7; \
         DELETE FROM spate.checkpoint WHERE applier=0; TRUNCATE TABLE checkpoint; DROP TABLE spate.checkpoint; DROP DATABASE spate; \
         INSERT INTO d.t VALUES (1)",
    );
    site.catch_up(&[]);
    assert_eq!(site.replica.sql("SELECT * FROM d.t"), "1");
    assert_eq!(site.replica.sql("SHOW TABLES FROM spate"), tables);
    assert_ne!(site.replica.sql(CHECKPOINT), checkpoint, "the position has moved on");
}

/// Whatever names that schema beside something else is refused before anything is applied.
#[test]
fn statements_of_the_source_do_not_reach_the_schema() {
    for hostile in [
        "UPDATE spate.checkpoint, d.t SET seqno=0, id=5",
        "INSERT INTO d.t SELECT 7 FROM spate.checkpoint",
        "INSERT INTO spate.checkpoint VALUES (d.f(), 0)",
        "CREATE VIEW d.v AS SELECT * FROM spate.checkpoint",
        "CREATE TRIGGER d.r BEFORE INSERT ON d.t FOR EACH ROW UPDATE spate.checkpoint SET seqno=0",
        "ALTER TABLE spate.checkpoint RENAME TO d.u",
        "USE spate; CREATE TABLE d.u LIKE checkpoint",
        "INSERT INTO spate.checkpoint SELECT a, 0 FROM d.calls",
    ] {
        let site = Site::between((Kind::Mariadb, &IN_STATEMENTS), (Kind::Mariadb, &[]));
        site.source
            .sql("SET sql_log_bin=0; CREATE DATABASE spate; CREATE TABLE spate.checkpoint (applier INT, seqno INT)");
        site.source.sql("INSERT INTO spate.checkpoint VALUES (0, 0)");
        site.source.sql(
            "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); INSERT INTO d.t VALUES (1); \
             CREATE FUNCTION d.f() RETURNS INT DETERMINISTIC MODIFIES SQL DATA RETURN 3; CREATE VIEW d.calls AS SELECT d.f() AS a",
        );
        site.catch_up(&["--start", "earliest"]);
        let (checkpoint, tables) = (site.replica.sql(CHECKPOINT), site.replica.sql("SHOW TABLES FROM d"));
        site.source.sql(hostile);
        let ended = site.run(site.replicate(&["--until", "caught-up"]));
        ended.assert_failed_saying(&["the schema spate"]);
        assert_eq!(site.replica.sql(CHECKPOINT), checkpoint, "{hostile}");
        assert_eq!(site.replica.sql("SHOW TABLES FROM d"), tables, "{hostile}");
        assert_eq!(site.replica.sql("SELECT * FROM d.t"), "1", "{hostile}");
    }
}

/// Reading it would execute its functions with the rights of Spate's account.
#[test]
fn view_in_the_place_of_an_own_table_is_not_read() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::between((kind, &[]), (kind, &["--log-bin-trust-function-creators=1"]));
        site.source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY)");
        site.catch_up(&["--start", "earliest"]);
        site.replica.sql(
            "CREATE DATABASE other; CREATE TABLE other.called (n INT); RENAME TABLE spate.skipped TO spate.real_skipped;\n\
             DELIMITER //\nCREATE FUNCTION spate.f() RETURNS INT SQL SECURITY INVOKER MODIFIES SQL DATA \
             BEGIN INSERT INTO other.called VALUES (1); RETURN 1; END//",
        );
        site.replica.sql(
            "CREATE SQL SECURITY INVOKER VIEW spate.skipped AS SELECT * FROM spate.real_skipped WHERE spate.f() = 1 \
             UNION ALL SELECT 'x', 'x', spate.f(), NULL, NULL",
        );
        let ended = site.run(site.replicate(&["--until", "caught-up"]));
        ended.assert_failed_saying(&["the view \"skipped\"", "DROP VIEW"]);
        assert_eq!(site.replica.sql("SELECT COUNT(*) FROM other.called"), "0");
    }
}
