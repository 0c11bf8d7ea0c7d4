//! What a server's own applier makes of statements beyond executing them: events that only the source runs, and accounts that are
//! not the applier's.

use crate::support::{Kind, Site, wait_until};

#[test]
fn events_are_switched_off_on_the_replica() {
    let site = Site::new(&["--event-scheduler=ON"], &["--event-scheduler=ON"]);
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY, at_server INT); USE d; \
         CREATE EVENT often ON SCHEDULE EVERY 1 SECOND COMMENT 'do' DO INSERT INTO t (at_server) VALUES (@@server_id); \
         CREATE EVENT once ON SCHEDULE AT CURRENT_TIMESTAMP + INTERVAL 1 SECOND ON COMPLETION PRESERVE \
         DO INSERT INTO t (at_server) VALUES (@@server_id + 100); \
         CREATE EVENT off ON SCHEDULE EVERY 1 SECOND DISABLE DO INSERT INTO t (at_server) VALUES (0); \
         ALTER EVENT off DO INSERT INTO t (at_server) VALUES (7); ALTER EVENT off ENABLE",
    );
    let running = site.spawn(site.replicate(&["--start", "earliest"]));
    wait_until("all events have been executed, one of them often", || {
        site.source.sql("SELECT COUNT(DISTINCT at_server) = 3 AND COUNT(*) > 8 FROM d.t") == "1"
    });
    site.source.sql("SET GLOBAL event_scheduler = OFF");
    wait_until("no event is executed", || {
        site.source.sql("SELECT COUNT(*) FROM information_schema.processlist WHERE command = 'Connect'") == "0"
    });
    site.wait_applied();
    assert!(running.terminate().status.success());
    site.assert_identical();
    let states =
        "SELECT GROUP_CONCAT(event_name, ' ', status ORDER BY 1 SEPARATOR ', ') FROM information_schema.events";
    assert_eq!(site.replica.sql(states), "off SLAVESIDE_DISABLED, often SLAVESIDE_DISABLED, once SLAVESIDE_DISABLED");
}

/// Schedules that end in unusual ways, and alterations that say nothing of the event's state.
#[test]
fn events_of_any_schedule_are_switched_off() {
    for kind in [Kind::Mariadb, Kind::Mysql] {
        let site = Site::of(kind);
        site.source.sql(
            "CREATE DATABASE d; USE d; CREATE TABLE l (c VARCHAR(10)); CREATE TABLE a (i INT); CREATE TABLE b (i INT); \
             CREATE EVENT e ON SCHEDULE EVERY 1 DAY DISABLE DO DO 1; \
             ALTER EVENT e ON SCHEDULE EVERY 1 SECOND STARTS {ts '2020-01-01 00:00:00'} ENABLE; \
             CREATE EVENT e2 ON SCHEDULE EVERY 1 SECOND STARTS {ts '2020-01-01 00:00:00'} DO INSERT INTO l(c) SELECT 'e2' FROM a JOIN b; \
             CREATE EVENT e3 ON SCHEDULE EVERY 1 DAY STARTS CASE 1 WHEN 1 THEN NOW() END ENDS NOW() + INTERVAL '9:1' DAY_HOUR DO DO 1; \
             CREATE EVENT e4 ON SCHEDULE EVERY 1 DAY DO DO 1; \
             ALTER EVENT e4 ON SCHEDULE AT '2020-01-01' ON COMPLETION PRESERVE; \
             CREATE EVENT e5 ON SCHEDULE EVERY 1 DAY DO DO 1; ALTER EVENT e5 RENAME TO e6; ALTER EVENT e6 COMMENT 'x'; \
             CREATE EVENT e7 ON SCHEDULE EVERY 1 DAY DISABLE DO DO 1; ALTER EVENT e7 DO DO 2; ALTER EVENT e7 ON COMPLETION PRESERVE",
        );
        site.catch_up_from_earliest();
        let states = "SELECT GROUP_CONCAT(event_name ORDER BY 1) FROM information_schema.events \
            WHERE status IN ('SLAVESIDE_DISABLED', 'REPLICA_SIDE_DISABLED')";
        assert_eq!(site.replica.sql(states), "e,e2,e3,e4,e6,e7", "{kind:?}");
    }
}

#[test]
fn current_user_means_the_sources_account() {
    let site = Site::plain();
    site.source.sql(
        "CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE ROLE r; CREATE EVENT d.f ON SCHEDULE EVERY 1 DAY DO SELECT 1; CREATE USER other@localhost; \
         GRANT ALL PRIVILEGES ON *.* TO other@localhost WITH GRANT OPTION; GRANT r TO other@localhost WITH ADMIN OPTION",
    );
    let as_other = |password: &str, sql: &str| {
        let mut client = site.source.client();
        let output = client.arg("-uother").env("MYSQL_PWD", password).arg("-e").arg(sql).output().unwrap();
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
    };
    as_other(
        "",
        "GRANT SELECT ON d.t TO CURRENT_USER; ALTER USER CURRENT_USER WITH MAX_USER_CONNECTIONS 7; \
         CREATE TRIGGER d.g BEFORE INSERT ON d.t FOR EACH ROW SET NEW.id = NEW.id + 1; \
         CREATE DEFINER=CURRENT_USER PROCEDURE d.p() SELECT 1; CREATE VIEW d.v AS SELECT 1; \
         CREATE EVENT d.e ON SCHEDULE EVERY 1 DAY DO SELECT 1; ALTER EVENT d.f DO SELECT 2; SET PASSWORD = PASSWORD('changed'); REVOKE SELECT ON d.t FROM CURRENT_USER",
    );
    site.catch_up(&["--start", "earliest"]);
    let accounts = "SELECT Host, User, Priv FROM mysql.global_priv WHERE User IN ('other', 'root'); \
        SELECT Host, Db, User, Table_name, Grantor, Table_priv FROM mysql.tables_priv WHERE User <> 'mariadb.sys'; \
        SELECT * FROM mysql.roles_mapping WHERE User = 'other'; \
        SELECT trigger_name, definer FROM information_schema.triggers WHERE trigger_schema = 'd'; \
        SELECT routine_name, definer FROM information_schema.routines WHERE routine_schema = 'd'; \
        SELECT table_name, definer FROM information_schema.views WHERE table_schema = 'd'; \
        SELECT event_name, definer FROM information_schema.events ORDER BY 1";
    let of_source = site.source.sql(accounts);
    assert_eq!(of_source, site.replica.sql(accounts));
    assert_eq!(of_source.matches("other@localhost").count(), 5, "{of_source}");
    assert!(of_source.contains("\"max_user_connections\":7"), "{of_source}");
    // Of a role, the source does not log who CURRENT_USER was; on the replica it would be Spate's own account.
    as_other("changed", "GRANT r TO CURRENT_USER()");
    site.run(site.replicate(&["--until", "caught-up"])).assert_failed_saying(&["CURRENT_USER", "name the account"]);
    assert_eq!(
        site.replica.sql("SELECT COUNT(*) FROM mysql.roles_mapping WHERE User = 'spate' AND Admin_option = 'N'"),
        "0"
    );
}

/// What the replica adds to a row by itself is dated as the source's change was.
#[test]
fn replayed_rows_carry_the_sources_time() {
    let site = Site::plain();
    site.both(
        "CREATE DATABASE d; CREATE TABLE d.p (id INT PRIMARY KEY); CREATE TABLE d.c (id INT PRIMARY KEY, f INT, \
         FOREIGN KEY (f) REFERENCES d.p (id) ON DELETE SET NULL) WITH SYSTEM VERSIONING",
    );
    let gtid = site.source.sql("SELECT @@gtid_binlog_pos");
    site.source.sql(
        "USE d; SET timestamp = 1700000000; INSERT INTO p VALUES (1), (2); INSERT INTO c VALUES (1, 1), (2, 1), (3, 2); \
         SET timestamp = 1700005000; DELETE FROM p WHERE id = 1",
    );
    site.catch_up(&["--start", &format!("gtid:{gtid}")]);
    let history =
        "SELECT id, f, UNIX_TIMESTAMP(ROW_START), UNIX_TIMESTAMP(ROW_END) FROM d.c FOR SYSTEM_TIME ALL ORDER BY 1, 4";
    let of_source = site.source.sql(history);
    assert!(of_source.contains("1700005000"), "{of_source}");
    assert_eq!(of_source, site.replica.sql(history));
}
