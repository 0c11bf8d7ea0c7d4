//! What a replica has that its source has not, and what depends on the order and the ways of changes: a second replica that follows
//! natively says what is to come of it.

use crate::support::{Kind, Oracle};

const KINDS: [Kind; 2] = [Kind::Mariadb, Kind::Mysql];

/// In one batch, and transaction by transaction.
const WAYS: [&[&str]; 2] = [&[], &["--batch-transactions", "1"]];

#[test]
fn columns_only_on_the_replica_keep_their_values() {
    for kind in KINDS {
        Oracle::new(kind, &[], &[]).in_ways(&WAYS, |oracle, way, d| {
            oracle.site.source.sql(&format!(
                "SET sql_log_bin=0; CREATE DATABASE {d}; USE {d}; CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE, v INT); \
                 CREATE TABLE n (id INT PRIMARY KEY, v INT)",
            ));
            oracle.replicas(&format!(
                "CREATE DATABASE {d}; USE {d}; CREATE TABLE t (id INT PRIMARY KEY, u INT UNIQUE, v INT, own INT NOT NULL DEFAULT 7, \
                 at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP); \
                 CREATE TABLE n (id INT PRIMARY KEY, v INT, number INT AUTO_INCREMENT, KEY (number))",
            ));
            oracle.site.source.sql(&format!(
                "USE {d}; INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4); INSERT INTO n VALUES (5, 1), (3, 1), (4, 1)",
            ));
            oracle.catch_up(way);
            // As if somebody had filled them in.
            oracle.replicas(&format!("UPDATE {d}.t SET own = id * 100, at = '2020-01-01 00:00:00'"));
            oracle.site.source.sql(&format!(
                "USE {d}; UPDATE t SET id = 10 WHERE id = 1; UPDATE t SET u = 20 WHERE id = 2; DELETE FROM t WHERE id = 3; \
                 INSERT INTO t VALUES (3, 3, 30); UPDATE t SET v = v + 1 WHERE id = 4; DELETE FROM n WHERE id = 3; \
                 INSERT INTO n VALUES (3, 2), (1, 2); UPDATE n SET id = 9 WHERE id = 5; REPLACE INTO n VALUES (9, 8)",
            ));
            oracle.catch_up(way);
            assert_eq!(oracle.both_say(&format!("SELECT own FROM {d}.t ORDER BY id")), "200\n7\n400\n100", "{kind:?}");
            let site = &oracle.site;
            let verified = site.run(site.command("verify", &["--schema", d]));
            verified.assert_says(&[
                "identical; the replica's own columns (own, at) were left out",
                "identical; the replica's own columns (number)",
            ]);
            assert!(verified.status.success(), "{}", verified.output);
            // Their values are compared but for these.
            site.replica.sql(&format!("UPDATE {d}.t SET v = 77, at = at WHERE id = 4"));
            let verified = site.run(site.command("verify", &["--schema", d]));
            verified.assert_says(&["1 rows differ", "id=4"]);
            site.replica.sql(&format!("UPDATE {d}.t SET v = 5, at = at WHERE id = 4"));
        });
    }
}

#[test]
fn auto_increment_counters_equal_native() {
    for kind in KINDS {
        Oracle::new(kind, &[], &[]).in_ways(&WAYS, |oracle, way, d| {
            let on_source = |sql: &str| {
                oracle.site.source.sql(&format!("USE {d}; {sql}"));
                oracle.catch_up(way);
            };
            oracle.site.source.sql(&format!("CREATE DATABASE {d}"));
            on_source(
                "CREATE TABLE apart (id INT PRIMARY KEY, n INT AUTO_INCREMENT, v INT, KEY (n)); \
                 CREATE TABLE tall (id INT AUTO_INCREMENT PRIMARY KEY, v INT, u INT UNIQUE); \
                 CREATE TABLE second (a INT, id INT AUTO_INCREMENT, v INT, PRIMARY KEY (a, id), KEY (id)); \
                 INSERT INTO apart (id, v) VALUES (1, 1), (2, 2); INSERT INTO tall (v, u) VALUES (1, 1), (2, 2), (3, 3); \
                 INSERT INTO second (a, v) VALUES (1, 1), (1, 2)",
            );
            on_source(
                "UPDATE apart SET n = 50 WHERE id = 1; UPDATE apart SET n = 1 WHERE id = 1; INSERT INTO apart VALUES (3, 70, 1); \
                 UPDATE apart SET n = 4 WHERE id = 3; UPDATE tall SET id = 90 WHERE id = 1; UPDATE tall SET id = 1 WHERE id = 90; \
                 INSERT INTO second VALUES (2, 30, 3); DELETE FROM second WHERE id = 30",
            );
            // By REPLACE, which is logged as an update of the key.
            on_source("REPLACE INTO tall (v, u) VALUES (7, 2); REPLACE INTO tall (v, u) VALUES (8, 2)");
            on_source("UPDATE tall SET id = 500 WHERE u = 3; INSERT INTO tall (v, u) VALUES (9, 9)");
            on_source("UPDATE tall SET id = 700 WHERE u = 3");
        });
    }
}

/// What a server keeps of a counter on disk is not always what it has in memory: MariaDB's goes one further after an update.
#[test]
fn auto_increment_counters_equal_native_after_a_restart() {
    for kind in KINDS {
        let mut oracle = Oracle::new(kind, &[], &[]);
        for (number, way) in [WAYS[0], WAYS[1], &["--dialect", "sql"]].into_iter().enumerate() {
            oracle.site.source.sql(&format!("CREATE DATABASE d{number}"));
            for table in ["a", "b", "c", "e", "f", "g"] {
                oracle.site.source.sql(&format!(
                    "USE d{number}; CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, u INT UNIQUE, v INT DEFAULT 7); \
                     INSERT INTO {table} (u) VALUES (1), (2), (3)",
                ));
            }
            oracle.catch_up(way);
            oracle.site.source.sql(&format!(
                "USE d{number}; REPLACE INTO a (u) VALUES (1), (2); REPLACE INTO a (u) VALUES (2), (3); \
                 UPDATE b SET id = 60 WHERE id = 2; INSERT INTO b (id) VALUES (61); \
                 UPDATE c SET id = 60 WHERE id = 2; DELETE FROM c; INSERT INTO c (id, u) VALUES (2, 2); \
                 INSERT INTO e (u) VALUES (4); REPLACE INTO e (u) VALUES (4); UPDATE e SET u = 40 WHERE u = 4; INSERT INTO e VALUES (2, 4, 4) \
                 ON DUPLICATE KEY UPDATE u = 5, v = 6; REPLACE INTO e (u) VALUES (40); DELETE FROM e WHERE u = 40; \
                 SET binlog_row_image=MINIMAL; REPLACE INTO f (u) VALUES (1); UPDATE f SET id = id + 30 WHERE u = 2; \
                 INSERT INTO f (u) VALUES (9); UPDATE f SET id = 99 WHERE u = 9; UPDATE f SET id = 8 WHERE u = 9; \
                 INSERT INTO g (u) VALUES (9); UPDATE g SET id = 99 WHERE u = 9; INSERT INTO g (id) VALUES (100)",
            ));
            oracle.catch_up(way);
        }
        for replica in [&mut oracle.site.replica, &mut oracle.native] {
            replica.kill();
            replica.begin();
        }
        oracle.assert_equal();
    }
}

/// MariaDB's counters of floating-point columns.
#[test]
fn auto_increment_counters_of_other_types_equal_native() {
    for way in WAYS {
        let oracle = Oracle::new(Kind::Mariadb, &[], &[]);
        oracle.site.source.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE f (id FLOAT AUTO_INCREMENT PRIMARY KEY, v INT); \
             INSERT INTO f (v) VALUES (1), (2), (3); INSERT INTO f VALUES (40, 4); DELETE FROM f WHERE id = 40",
        );
        oracle.catch_up(way);
    }
}

/// With slave_run_triggers_for_rbr, a replica's triggers see every change.
#[test]
fn triggers_fired_by_rows_equal_native() {
    for way in WAYS {
        let oracle = Oracle::new(Kind::Mariadb, &[], &["--slave-run-triggers-for-rbr=YES"]);
        oracle.site.source.sql(
            "SET sql_log_bin=0; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); CREATE TABLE d.other (id INT PRIMARY KEY, v INT)",
        );
        oracle.replicas(
            "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE TABLE other (id INT PRIMARY KEY, v INT); \
             CREATE TABLE log (n INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(50), other INT); \
             CREATE TRIGGER i AFTER INSERT ON t FOR EACH ROW INSERT INTO log (what, other) SELECT CONCAT('insert ', NEW.id), SUM(v) FROM other; \
             CREATE TRIGGER u AFTER UPDATE ON t FOR EACH ROW INSERT INTO log (what) VALUES (CONCAT(OLD.v, ' becomes ', NEW.v)); \
             CREATE TRIGGER w AFTER DELETE ON t FOR EACH ROW INSERT INTO log (what) VALUES (CONCAT('delete ', OLD.v)); \
             CREATE TABLE p (a INT PRIMARY KEY); CREATE TABLE c (a INT PRIMARY KEY, FOREIGN KEY (a) REFERENCES p (a) ON DELETE CASCADE); \
             CREATE TRIGGER x BEFORE DELETE ON t FOR EACH ROW DELETE FROM p WHERE a = OLD.id; \
             INSERT INTO p VALUES (1), (2), (3); INSERT INTO c VALUES (1), (2), (3)",
        );
        oracle.site.source.sql(
            "USE d; INSERT INTO other VALUES (1, 1); INSERT INTO t VALUES (1, 1), (2, 2); INSERT INTO other VALUES (2, 10); \
             INSERT INTO t VALUES (3, 3); UPDATE t SET v = v + 1; UPDATE t SET v = v + 1; DELETE FROM t WHERE id = 2; \
             INSERT INTO t VALUES (2, 9); UPDATE t SET id = 7 WHERE id = 1",
        );
        oracle.catch_up(way);
        assert_eq!(oracle.both_say("SELECT COUNT(*), (SELECT GROUP_CONCAT(a) FROM d.c) FROM d.log"), "12\t1,3");
    }
}

/// Somebody changes that setting while Spate runs.
#[test]
fn triggers_that_begin_to_fire_equal_native() {
    let oracle = Oracle::new(Kind::Mariadb, &[], &[]);
    let source = &oracle.site.source;
    source.sql("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT); INSERT INTO d.t VALUES (1, 1)");
    let running = oracle.site.spawn(oracle.site.replicate(&["--start", "earliest", "--batch-seconds", "1"]));
    oracle.native_catches_up();
    oracle.site.wait_applied();
    oracle.replicas(
        "CREATE TABLE d.log (n INT AUTO_INCREMENT PRIMARY KEY, v INT); \
         CREATE TRIGGER d.u AFTER UPDATE ON d.t FOR EACH ROW INSERT INTO d.log (v) VALUES (NEW.v); \
         SET GLOBAL slave_run_triggers_for_rbr=YES",
    );
    let_spate_look();
    source.sql("USE d; UPDATE t SET v = 2; UPDATE t SET v = 3; UPDATE t SET v = 4");
    oracle.native_catches_up();
    oracle.site.wait_applied();
    oracle.assert_equal();
    assert_eq!(oracle.both_say("SELECT GROUP_CONCAT(v ORDER BY n) FROM d.log"), "2,3,4");
    running.terminate();
}

/// MySQL's sessions say whether triggers see what foreign keys change and delete.
#[test]
fn triggers_under_cascades_equal_native() {
    for replica in ["ON", "OFF"] {
        let cascades = "--innodb-native-foreign-keys=OFF";
        let unlike = format!("--enable-cascade-triggers={replica}");
        let oracle = Oracle::new(Kind::Mysql, &["--binlog-format=STATEMENT", cascades], &[cascades, &unlike]);
        oracle.site.source.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE p (a INT PRIMARY KEY); CREATE TABLE log (a INT PRIMARY KEY); \
             CREATE TABLE c (a INT PRIMARY KEY, b INT, FOREIGN KEY (b) REFERENCES p (a) ON DELETE CASCADE); \
             CREATE TRIGGER t AFTER DELETE ON c FOR EACH ROW INSERT INTO log VALUES (OLD.a); \
             INSERT INTO p VALUES (1), (2), (3); INSERT INTO c VALUES (10, 1), (20, 2), (30, 3); \
             SET enable_cascade_triggers=ON; DELETE FROM p WHERE a = 1; \
             SET enable_cascade_triggers=OFF; DELETE FROM p WHERE a = 2; \
             SET enable_cascade_triggers=ON, binlog_format=ROW; DELETE FROM p WHERE a = 3",
        );
        oracle.catch_up(&[]);
        assert_eq!(oracle.both_say("SELECT GROUP_CONCAT(a ORDER BY a) FROM d.log"), "10,30");
    }
}

/// Somebody alters the replica by hand while both follow: what Spate has read of the tables is out of date.
#[test]
fn alterations_by_hand_are_noticed() {
    for kind in KINDS {
        let oracle = Oracle::new(kind, &[], &[]);
        let source = &oracle.site.source;
        source.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE t (id INT PRIMARY KEY, u INT, v INT); CREATE TABLE p (id INT PRIMARY KEY); \
             CREATE TABLE c (id INT PRIMARY KEY, p INT); INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3), (4, 4, 4); \
             INSERT INTO p VALUES (1), (2); INSERT INTO c VALUES (1, 1), (2, 2)",
        );
        oracle.native_catches_up();
        let running = oracle.site.spawn(oracle.site.replicate(&["--start", "earliest"]));
        oracle.site.wait_applied();
        oracle.replicas("USE d; ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (u), ADD UNIQUE (v)");
        let_spate_look();
        source.sql(
            "USE d; UPDATE t SET id = 9 WHERE id = 1; UPDATE t SET id = 1 WHERE id = 2; BEGIN; UPDATE t SET v = 10 WHERE id = 3; \
             UPDATE t SET v = 3 WHERE id = 4; UPDATE t SET v = 4 WHERE id = 3; COMMIT",
        );
        oracle.site.wait_applied();
        oracle.native_catches_up();
        oracle.assert_equal();
        oracle.replicas("USE d; ALTER TABLE t ADD own INT AUTO_INCREMENT, ADD KEY (own)");
        let_spate_look();
        source
            .sql("USE d; UPDATE t SET u = 20 WHERE u = 2; DELETE FROM t WHERE u = 3; INSERT INTO t VALUES (7, 3, 50)");
        oracle.site.wait_applied();
        oracle.native_catches_up();
        oracle.assert_equal();
        assert!(running.terminate().status.success());
    }
}

/// Who may only create routines gets EXECUTE and ALTER ROUTINE on what it creates, on a replica, too.
/// A replica that passes over rows that are missing, and overwrites those that are there already.
#[test]
fn idempotent_replica_equals_native() {
    let acts = [
        "UPDATE t SET id = 30 WHERE id = 3",
        "UPDATE t SET a = 50 WHERE id = 5",
        "INSERT INTO t VALUES (10, 11, 11); DELETE FROM t WHERE id = 10",
        "DELETE FROM t WHERE id = 2; INSERT INTO t VALUES (2, 20, 7)",
    ];
    Oracle::new(Kind::Mariadb, &[], &["--slave-exec-mode=IDEMPOTENT"]).in_ways(&WAYS, |oracle, way, d| {
        oracle.site.source.sql(&format!(
            "CREATE DATABASE {d}; USE {d}; CREATE TABLE t (id INT PRIMARY KEY, a INT UNIQUE, b INT); \
             INSERT INTO t VALUES (1, 1, 1), (2, 2, 2), (3, 3, 3), (5, 5, 5)"
        ));
        oracle.catch_up(way);
        oracle.replicas(&format!("DELETE FROM {d}.t WHERE id IN (2, 3, 5); INSERT INTO {d}.t VALUES (10, 10, 10)"));
        oracle.site.source.sql(&format!("USE {d}; {}", acts.join("; ")));
        oracle.catch_up(way);
    });
}

/// A replica that leaves out the rest of an event with a row that is there already.
#[test]
fn replica_that_skips_errors_equals_native() {
    for (kind, option) in [(Kind::Mariadb, "--slave-skip-errors=1062"), (Kind::Mysql, "--replica-skip-errors=1062")] {
        Oracle::new(kind, &[], &[option]).in_ways(&WAYS, |oracle, way, d| {
            oracle.site.source.sql(&format!("CREATE DATABASE {d}; CREATE TABLE {d}.t (id INT PRIMARY KEY, a INT)"));
            oracle.catch_up(way);
            oracle.replicas(&format!("INSERT INTO {d}.t VALUES (1, 0), (7, 0)"));
            let inserts: String = (1..30).map(|id| format!("INSERT INTO {d}.t VALUES ({id}, 1);")).collect();
            oracle.site.source.sql(&format!("{inserts} INSERT INTO {d}.t VALUES (40, 1), (41, 1)"));
            oracle.catch_up(way);
        });
    }
}

/// MySQL's events do not always say how TIMESTAMP columns get their defaults: as the last one did that has said it. The native replica goes
/// on; Spate starts again each time.
#[test]
fn definitions_after_explicit_time_stamps_equal_native() {
    let unlike = ["--explicit-defaults-for-timestamp=OFF", "--sql-mode=STRICT_ALL_TABLES,NO_ZERO_DATE"];
    for is_one_run in [true, false] {
        let oracle = Oracle::new(Kind::Mysql, &["--binlog-format=STATEMENT"], &unlike);
        for sql in [
            "CREATE DATABASE d; CREATE TABLE d.a (id INT PRIMARY KEY, p TIMESTAMP NOT NULL, q TIMESTAMP NOT NULL)",
            "CREATE TABLE d.b LIKE d.a",
            "ALTER TABLE d.b ADD n INT, ALGORITHM=COPY",
            "INSERT INTO d.b VALUES (1, '2020-01-01', '2020-01-01', 1); UPDATE d.b SET n = 2",
            "SET explicit_defaults_for_timestamp=OFF; CREATE TABLE d.e (id INT PRIMARY KEY, p TIMESTAMP)",
            "SET explicit_defaults_for_timestamp=OFF; CREATE TABLE d.f LIKE d.e; INSERT INTO d.e VALUES (1, NULL)",
            "CREATE TEMPORARY TABLE d.t (a INT, p TIMESTAMP); INSERT INTO d.t (a) VALUES (1); \
             CREATE TABLE d.g (a INT, p TIMESTAMP NULL); INSERT INTO d.g SELECT a, p FROM d.t",
            "ALTER TABLE d.b MODIFY n BIGINT, ALGORITHM=COPY",
            "SET explicit_defaults_for_timestamp=OFF; CREATE TEMPORARY TABLE d.t (a INT, p TIMESTAMP); \
             INSERT INTO d.t (a) VALUES (2); INSERT INTO d.g SELECT a, p FROM d.t",
            "SET explicit_defaults_for_timestamp=OFF; INSERT INTO d.e VALUES (2, NULL)",
        ] {
            oracle.site.source.sql(&format!("SET timestamp=1700000000; {sql}"));
            if !is_one_run {
                oracle.catch_up(&[]);
            }
        }
        oracle.catch_up(&[]);
        assert_eq!(oracle.both_say("SELECT GROUP_CONCAT(p IS NULL ORDER BY a) FROM d.g"), "1,0");
    }
}

/// What is gone on the replica is dropped already.
#[test]
fn drops_of_missing_objects_equal_native() {
    Oracle::new(Kind::Mariadb, &[], &[]).in_ways(&WAYS, |oracle, way, d| {
        oracle.site.source.sql(&format!(
            "CREATE DATABASE {d}; CREATE DATABASE {d}x; CREATE TABLE {d}.t (a INT); \
             CREATE TRIGGER {d}.tr BEFORE INSERT ON {d}.t FOR EACH ROW SET @a = 1"
        ));
        oracle.catch_up(way);
        oracle.replicas(&format!("DROP DATABASE {d}x; DROP TRIGGER {d}.tr"));
        oracle.site.source.sql(&format!("DROP DATABASE {d}x; DROP TRIGGER {d}.tr; INSERT INTO {d}.t VALUES (1)"));
        oracle.catch_up(way);
    });
}

/// The server's own appliers delay nothing.
#[test]
fn delayed_inserts_equal_native() {
    let oracle = Oracle::new(Kind::Mariadb, &["--binlog-format=STATEMENT"], &["--binlog-format=MIXED"]);
    oracle.site.source.sql("CREATE DATABASE d; CREATE TABLE d.m (x INT) ENGINE=MyISAM; CREATE TABLE d.l (n INT)");
    for _ in 0..20 {
        oracle.site.source.sql("INSERT DELAYED INTO d.m (x) VALUES (1), (2); INSERT INTO d.l SELECT COUNT(*) FROM d.m");
    }
    oracle.catch_up(&[]);
}

#[test]
fn creators_of_routines_get_their_privileges() {
    for kind in KINDS {
        let oracle =
            Oracle::new(kind, &["--log-bin-trust-function-creators=1"], &["--log-bin-trust-function-creators=1"]);
        let source = &oracle.site.source;
        source.sql(
            "CREATE DATABASE d; CREATE DATABASE d_2; CREATE USER maker@localhost IDENTIFIED BY 'x'; GRANT CREATE ROUTINE ON d.* TO maker@localhost; \
             CREATE USER has@localhost IDENTIFIED BY 'x'; GRANT CREATE ROUTINE, EXECUTE, ALTER ROUTINE ON `d\\_2`.* TO has@localhost; \
             SET sql_log_bin=0; CREATE USER unknown@localhost IDENTIFIED BY 'x'; GRANT CREATE ROUTINE ON d.* TO unknown@localhost",
        );
        let create = |user: &str, sql: &str| {
            let mut client = source.client();
            client.args(["-u", user, "-px", "--protocol=socket", "-e", sql]);
            let done = client.output().unwrap();
            assert!(done.status.success(), "{done:?}");
        };
        create("maker", "CREATE PROCEDURE d.p() SELECT 1");
        create("maker", "CREATE FUNCTION d.`f x`() RETURNS INT DETERMINISTIC RETURN 1");
        create("maker", "CREATE PROCEDURE d.gone() SELECT 1; DROP PROCEDURE d.gone");
        if kind == Kind::Mariadb {
            create(
                "maker",
                "SET sql_mode=ORACLE;\nDELIMITER //\nCREATE PACKAGE d.k AS PROCEDURE p; END //\n\
                 CREATE PACKAGE BODY d.k AS PROCEDURE p AS BEGIN SELECT 1; END; END //\nDELIMITER ;",
            );
        }
        create("has", "CREATE PROCEDURE d_2.p() SELECT 1");
        create("unknown", "CREATE PROCEDURE d.of_unknown() SELECT 1");
        // The vendors differ in whom they take for the creator.
        source.sql("CREATE DEFINER=maker@localhost PROCEDURE d.by_root() SELECT 1");
        // Not the account of these letters.
        source.sql("CREATE DEFINER='MAKER'@localhost PROCEDURE d.by_another() SELECT 1");
        oracle.native_catches_up();
        oracle.site.catch_up(&["--start", "earliest"]);
        let privileges =
            "SELECT User, Host, Db, Routine_name, Routine_type, Proc_priv FROM mysql.procs_priv ORDER BY 1, 2, 3, 4";
        let all = oracle.both_say(privileges);
        assert_eq!(all.lines().count(), if kind == Kind::Mariadb { 5 } else { 2 }, "{all}");
        oracle.both_say("SELECT User, Host FROM mysql.user ORDER BY 1, 2");
    }
}

/// Waits much longer than Spate does between two looks at what others have done on the replica: it looks when it has nothing else to do, and the machine
/// may be busy.
fn let_spate_look() {
    std::thread::sleep(std::time::Duration::from_secs(3));
}
