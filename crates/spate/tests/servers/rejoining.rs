//! `spate follow` and `spate promote` where servers, channels and GTIDs are not as one would expect: each of these cases once ended in a silent difference.

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use spate_lab::vendor::Vendor;

use crate::failover::{Trio, follow, promote, replication, succeeds, write_as_client};
use crate::support::server::{ACCOUNT, PASSWORD};
use crate::support::{Ended, Kind, Server, wait_until};

/// Stops what receives, or starts it again.
fn receive(server: &Server, verb: &str) {
    replication(server, verb, "IO_THREAD");
}

fn count(server: &Server) -> String {
    server.sql("SELECT COUNT(*) FROM d.t")
}

fn same_rows(servers: &[&Server]) {
    let rows = |server: &Server| server.sql("SELECT * FROM d.t ORDER BY id");
    for server in &servers[1..] {
        wait_until("the same rows", || rows(server) == rows(servers[0]));
    }
}

/// The source has transactions that only the third server has got; then it dies, and the replica is promoted.
fn lose(trio: &mut Trio, rows: &str, third_has_them: bool) {
    receive(&trio.site.replica, "STOP");
    if !third_has_them {
        receive(&trio.third, "STOP");
    }
    trio.site.source.sql(&format!("INSERT INTO d.t (k, v) VALUES {rows}"));
    if third_has_them {
        trio.third.wait_followed(&trio.site.source.position());
    }
    trio.site.source.kill();
}

/// `spate follow` with a directory where surplus is saved.
fn follow_saving(trio: &Trio, server: &Server, source: &Server) -> Ended {
    let directory = trio.site.archive();
    trio.site.run(follow(server, source, &["--save", directory.to_str().unwrap()]))
}

/// A server that already follows the source, which takes writes: what comes while the two are looked at is no surplus.
fn follow_again(kind: Kind) {
    let trio = Trio::begin(kind);
    let (source, replica) = (&trio.site.source, &trio.site.replica);
    let mut writing = source.begin_script(&"INSERT INTO d.t (k) VALUES (1); DO SLEEP(0.002);\n".repeat(3000));
    for _ in 0..4 {
        succeeds(&trio.site.run(follow(replica, source, &[])));
        succeeds(&follow_saving(&trio, replica, source));
    }
    writing.kill().unwrap();
    writing.wait().unwrap();
    same_rows(&[source, replica]);
}

#[test]
fn what_comes_meanwhile_is_no_surplus() {
    follow_again(Kind::Mariadb);
}

#[test]
fn what_comes_meanwhile_is_no_surplus_on_mysql() {
    follow_again(Kind::Mysql);
}

/// Numbers of undone transactions are used again, while a third server still has the old ones.
fn numbers_used_again(kind: Kind) {
    let mut trio = Trio::begin(kind);
    lose(&mut trio, "(100, 'lost'), (101, 'lost'), (102, 'lost')", true);
    receive(&trio.site.replica, "START");
    // The third server is left out.
    let ended = trio.site.run(trio.promote(&["--source-is-dead", "--accept-loss"]));
    ended.assert_failed_saying(&["does not follow it"]);
    write_as_client(&trio.site.replica, "INSERT INTO d.t (id, k) VALUES (1000, 1)").unwrap();
    trio.site.source.begin();
    succeeds(&follow_saving(&trio, &trio.site.source, &trio.site.replica));
    same_rows(&[&trio.site.replica, &trio.site.source]);
    // The old source is the source again, and writes under the numbers that were undone.
    succeeds(&trio.site.run(promote(&trio.site.replica, &trio.site.source, &[], &[])));
    for number in 0..6 {
        trio.site.source.sql(&format!("INSERT INTO d.t (id, k) VALUES ({}, 2)", 2000 + number));
    }
    let dry = trio.site.run(follow(&trio.third, &trio.site.source, &["--dry-run", "--json"]));
    dry.assert_says(&["\"transactions\": 1"]);
    succeeds(&follow_saving(&trio, &trio.third, &trio.site.source));
    succeeds(&trio.site.run(follow(&trio.site.replica, &trio.site.source, &[])));
    trio.site.source.sql("INSERT INTO d.t (id, k) VALUES (3000, 3)");
    same_rows(&[&trio.site.source, &trio.third, &trio.site.replica]);
}

#[test]
fn numbers_that_are_used_again_hide_nothing() {
    numbers_used_again(Kind::Mariadb);
}

#[test]
fn numbers_that_are_used_again_hide_nothing_on_mysql() {
    numbers_used_again(Kind::Mysql);
}

/// An old surplus was undone, and pointing failed, so that a person ended it; the note of that must not hide the next surplus. Into the same directory.
fn left_over_note(kind: Kind) {
    let mut trio = Trio::begin(kind);
    lose(&mut trio, "(100, 'lost')", false);
    succeeds(&trio.site.run(trio.promote(&["--source-is-dead"])));
    trio.site.source.begin();
    let directory = trio.site.archive();
    let mut command = follow(&trio.site.source, &trio.site.replica, &["--save", directory.to_str().unwrap()]);
    command.env("SPATE_REPLICATION_PASSWORD", "wrong");
    assert!(!trio.site.run(command).status.success());
    trio.site.source.sql(&match kind.vendor() {
        Vendor::MySql => {
            format!("STOP REPLICA; CHANGE REPLICATION SOURCE TO SOURCE_PASSWORD='{PASSWORD}'; START REPLICA")
        }
        Vendor::MariaDb => format!("STOP SLAVE; CHANGE MASTER TO MASTER_PASSWORD='{PASSWORD}'; START SLAVE"),
    });
    same_rows(&[&trio.site.replica, &trio.site.source]);
    let back = promote(&trio.site.replica, &trio.site.source, &[&trio.third], &["--replication-user", ACCOUNT]);
    succeeds(&trio.site.run(with_password(back)));
    succeeds(&trio.site.run(follow(&trio.site.replica, &trio.site.source, &[])));
    same_rows(&[&trio.site.source, &trio.site.replica, &trio.third]);
    lose(&mut trio, "(400, 'lost too')", false);
    succeeds(&trio.site.run(trio.promote(&["--source-is-dead"])));
    trio.site.source.begin();
    let ended = follow_saving(&trio, &trio.site.source, &trio.site.replica);
    succeeds(&ended);
    ended.assert_says(&["surplus-2"]);
    write_as_client(&trio.site.replica, "INSERT INTO d.t (id, k) VALUES (1000, 1)").unwrap();
    same_rows(&[&trio.site.replica, &trio.site.source, &trio.third]);
}

fn with_password(mut command: Command) -> Command {
    command.env("SPATE_REPLICATION_PASSWORD", PASSWORD);
    command
}

#[test]
fn note_of_an_earlier_surplus_hides_nothing() {
    left_over_note(Kind::Mariadb);
}

#[test]
fn note_of_an_earlier_surplus_hides_nothing_on_mysql() {
    left_over_note(Kind::Mysql);
}

/// A surplus was undone for one source; then another one, which has less, is to be followed.
#[cfg(feature = "failpoints")]
fn another_source(kind: Kind) {
    let mut trio = Trio::begin(kind);
    receive(&trio.third, "STOP");
    trio.site.source.sql("INSERT INTO d.t (k, v) VALUES (10, 'the replica has it')");
    trio.site.replica.wait_followed(&trio.site.source.position());
    lose(&mut trio, "(20, 'lost')", false);
    succeeds(&trio.site.run(promote(&trio.site.source, &trio.site.replica, &[], &["--source-is-dead"])));
    trio.site.source.begin();
    let directory = trio.site.archive();
    let mut command = follow(&trio.site.source, &trio.site.replica, &["--save", directory.to_str().unwrap()]);
    command.env("SPATE_STOP_AT", "follow-position-set");
    trio.site.run(command).assert_says(&["stopped at"]);
    trio.site.replica.kill();
    succeeds(&trio.site.run(promote(&trio.site.replica, &trio.third, &[], &["--source-is-dead"])));
    write_as_client(&trio.third, "INSERT INTO d.t (id, k) VALUES (1000, 1)").unwrap();
    // What it has and the third lacks went with its binlog, when that was reset: it stays as it is, and says so.
    let rows = count(&trio.site.source);
    follow_saving(&trio, &trio.site.source, &trio.third).assert_failed_saying(&["cannot be undone", "Rebuild"]);
    assert_eq!(count(&trio.site.source), rows);
}

#[cfg(feature = "failpoints")]
#[test]
fn what_was_undone_for_one_source_is_looked_at_for_another() {
    another_source(Kind::Mariadb);
}

#[cfg(feature = "failpoints")]
#[test]
fn what_was_undone_for_one_source_is_looked_at_for_another_on_mysql() {
    another_source(Kind::Mysql);
}

/// Servers that are named in the wrong roles: nothing is changed.
fn wrong_roles(kind: Kind) {
    let trio = Trio::begin(kind);
    let (source, replica, third) = (&trio.site.source, &trio.site.replica, &trio.third);
    let from = format!("127.0.0.1:{}", source.port);
    let ended = trio.site.run(promote(third, replica, &[], &[]));
    ended.assert_failed_saying(&["does not replicate from --source", &from]);
    trio.site.run(follow(source, replica, &[])).assert_failed_saying(&["swapped"]);
    receive(replica, "STOP");
    replication(replica, "STOP", "");
    source.sql("INSERT INTO d.t (k) VALUES (5)");
    let rows = count(source);
    assert!(!follow_saving(&trio, source, replica).status.success());
    assert_eq!((source.sql("SELECT @@GLOBAL.read_only"), count(source)), ("0".to_owned(), rows));
    assert_eq!(replica.sql("SELECT @@GLOBAL.read_only"), "1");
    // A chain: what is named as the source is a replica itself.
    replication(replica, "START", "");
    same_rows(&[source, replica]);
    succeeds(&trio.site.run(follow(third, replica, &[])));
    trio.site.run(promote(replica, third, &[], &[])).assert_failed_saying(&["is a replica itself"]);
}

#[test]
fn servers_in_wrong_roles_stay_as_they_are() {
    wrong_roles(Kind::Mariadb);
}

#[test]
fn servers_in_wrong_roles_stay_as_they_are_on_mysql() {
    wrong_roles(Kind::Mysql);
}

/// A promotion was killed when its replica was detached; the old source is back and open: it is fenced.
#[cfg(feature = "failpoints")]
fn open_again(kind: Kind) {
    let mut trio = Trio::begin(kind);
    let mut command = trio.promote(&[]);
    command.env("SPATE_STOP_AT", "promote-detached");
    trio.site.run(command).assert_says(&["stopped at"]);
    trio.site.source.kill();
    trio.site.source.begin();
    assert!(write_as_client(&trio.site.source, "SELECT 1").is_ok());
    succeeds(&trio.site.run(trio.promote(&[])));
    assert!(write_as_client(&trio.site.source, "INSERT INTO d.t (k) VALUES (1)").unwrap_err().contains("read"));
    write_as_client(&trio.site.replica, "INSERT INTO d.t (k) VALUES (1)").unwrap();
}

#[cfg(feature = "failpoints")]
#[test]
fn old_source_that_is_open_again_is_fenced() {
    open_again(Kind::Mariadb);
}

#[cfg(feature = "failpoints")]
#[test]
fn old_source_that_is_open_again_is_fenced_on_mysql() {
    open_again(Kind::Mysql);
}

/// MariaDB tells no GTIDs of what was received by file and position: it counts when it is applied.
#[test]
fn what_was_received_by_position_is_not_lost() {
    let mut trio = Trio::begin(Kind::Mariadb);
    for server in [&trio.site.replica, &trio.third] {
        server.sql("STOP SLAVE; CHANGE MASTER TO MASTER_USE_GTID=no; START SLAVE");
    }
    receive(&trio.site.replica, "STOP");
    let mut lock = trio.third.begin_script("LOCK TABLES d.t READ; SELECT SLEEP(600)");
    wait_until("the lock", || trio.third.sql("SHOW PROCESSLIST").contains("SLEEP(600)"));
    trio.site.source.sql("INSERT INTO d.t (k) VALUES (10), (11), (12)");
    let place = trio.site.source.sql("SHOW MASTER STATUS");
    let offset = place.split('\t').nth(1).unwrap();
    wait_until("the rows", || trio.third.replication_status().contains(&format!("\t{offset}\t")));
    trio.site.source.kill();
    let mut command = trio.promote(&["--source-is-dead"]);
    command.arg("--drain-seconds").arg("3");
    assert!(!trio.site.run(command).status.success());
    assert_eq!(trio.site.replica.sql("SELECT @@read_only"), "1");
    lock.kill().unwrap();
    lock.wait().unwrap();
    let instead = format!("promote 127.0.0.1:{} instead", trio.third.port);
    trio.site.run(trio.promote(&["--source-is-dead"])).assert_failed_saying(&[&instead]);
}

/// A source that nobody has ever received anything from: all of its own transactions are saved and undone.
#[test]
fn surplus_of_an_unknown_server_is_undone_whole() {
    let mut trio = Trio::begin(Kind::Mariadb);
    receive(&trio.site.replica, "STOP");
    trio.site.source.kill();
    succeeds(&trio.site.run(promote(&trio.site.source, &trio.third, &[], &["--source-is-dead"])));
    trio.third.sql("SET GLOBAL binlog_format=ROW");
    for number in 0..10 {
        write_as_client(&trio.third, &format!("INSERT INTO d.t (k) VALUES ({number})")).unwrap();
    }
    trio.third.kill();
    succeeds(&trio.site.run(promote(&trio.site.source, &trio.site.replica, &[], &["--source-is-dead"])));
    write_as_client(&trio.site.replica, "INSERT INTO d.t (id, k) VALUES (1000, 1)").unwrap();
    trio.third.begin();
    let dry = trio.site.run(follow(&trio.third, &trio.site.replica, &["--dry-run"]));
    dry.assert_says(&["10 transactions"]);
    succeeds(&follow_saving(&trio, &trio.third, &trio.site.replica));
    same_rows(&[&trio.site.replica, &trio.third]);
}

/// What commits an XA transaction has no rows: it cannot be undone, and is not passed over.
fn xa(kind: Kind) {
    let mut trio = Trio::begin(kind);
    trio.site.source.sql("XA START 'x'; INSERT INTO d.t (k) VALUES (7); XA END 'x'; XA PREPARE 'x'");
    trio.third.wait_followed(&trio.site.source.position());
    for server in [&trio.site.replica, &trio.third] {
        receive(server, "STOP");
    }
    trio.site.source.sql("XA COMMIT 'x'");
    trio.site.source.kill();
    succeeds(&trio.site.run(promote(&trio.site.source, &trio.site.replica, &[], &["--source-is-dead"])));
    trio.site.source.begin();
    follow_saving(&trio, &trio.site.source, &trio.site.replica)
        .assert_failed_saying(&["cannot be undone", "XA COMMIT"]);
}

#[test]
fn surplus_commit_of_a_prepared_transaction_is_refused() {
    xa(Kind::Mariadb);
}

#[test]
fn surplus_commit_of_a_prepared_transaction_is_refused_on_mysql() {
    xa(Kind::Mysql);
}

/// Two people promote different replicas at the same moment: one of the promotions, or none, is carried out.
fn two_promotions(kind: Kind) {
    let mut trio = Trio::begin(kind);
    trio.site.source.kill();
    let (replica, third) = (&trio.site.replica, &trio.third);
    let one = trio.site.spawn(promote(&trio.site.source, replica, &[third], &["--source-is-dead"]));
    let other = trio.site.spawn(promote(&trio.site.source, third, &[replica], &["--source-is-dead"]));
    let (one, other) = (one.wait(), other.wait());
    let open = [replica, third].iter().filter(|server| server.sql("SELECT @@GLOBAL.read_only") == "0").count();
    assert!(open < 2, "{} {}", one.output, other.output);
}

#[test]
fn two_promotions_do_not_open_two_servers() {
    two_promotions(Kind::Mariadb);
}

#[test]
fn two_promotions_do_not_open_two_servers_on_mysql() {
    two_promotions(Kind::Mysql);
}

/// Events of root, which a read-only server does not keep from writing, end with the fence.
#[test]
fn events_do_not_write_to_a_fenced_server() {
    let mut trio = Trio::begin(Kind::Mariadb);
    let source = &trio.site.source;
    source.sql(
        "SET GLOBAL event_scheduler=ON; CREATE EVENT d.ticks ON SCHEDULE EVERY 1 SECOND DO INSERT INTO d.t (k) VALUES (77)",
    );
    wait_until("the event", || source.sql("SELECT COUNT(*) FROM d.t WHERE k = 77") != "0");
    succeeds(&trio.site.run(trio.promote(&[])));
    let rows = count(&trio.site.source);
    sleep(Duration::from_millis(2500));
    assert_eq!(count(&trio.site.source), rows);
    succeeds(&trio.site.run(follow(&trio.site.source, &trio.site.replica, &[])));
    same_rows(&[&trio.site.replica, &trio.site.source, &trio.third]);
    trio.site.source.kill();
}

/// Somebody has locked tables on the source: he is ended, and the promotion goes on.
#[test]
fn locked_tables_do_not_hold_up_a_fence() {
    let trio = Trio::begin(Kind::Mariadb);
    let mut lock = trio.site.source.begin_script("LOCK TABLES d.t WRITE; SELECT SLEEP(600)");
    wait_until("the lock", || trio.site.source.sql("SHOW PROCESSLIST").contains("SLEEP(600)"));
    succeeds(&trio.site.run(trio.promote(&[])));
    lock.wait().unwrap();
}

/// Replication from elsewhere goes on beside the new source's.
fn unrelated_channel(kind: Kind) {
    let trio = Trio::begin(kind);
    let options: &[&str] = match kind.vendor() {
        Vendor::MySql => &["--server-id=9"],
        Vendor::MariaDb => &["--server-id=9", "--gtid-domain-id=9"],
    };
    let other = Server::source(kind, options);
    let (old, new) = (&trio.site.source, &trio.site.replica);
    let port = other.port;
    old.sql(&match kind.vendor() {
        Vendor::MySql => format!(
            "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='{ACCOUNT}', SOURCE_PASSWORD='{PASSWORD}', \
             GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION=1 FOR CHANNEL 'zz'; CHANGE REPLICATION FILTER REPLICATE_DO_DB=(z) FOR CHANNEL 'zz'; \
             START REPLICA FOR CHANNEL 'zz'"
        ),
        Vendor::MariaDb => format!(
            "CHANGE MASTER 'zz' TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{ACCOUNT}', \
             MASTER_PASSWORD='{PASSWORD}', MASTER_USE_GTID=slave_pos; SET default_master_connection='zz'; SET GLOBAL replicate_do_db='z'; \
             START SLAVE 'zz'"
        ),
    });
    other.sql("CREATE DATABASE z; USE z; CREATE TABLE z.t (id INT PRIMARY KEY); INSERT INTO z.t VALUES (1)");
    let has_z =
        |server: &Server, rows: &str| server.try_sql("SELECT COUNT(*) FROM z.t").is_ok_and(|found| found == rows);
    wait_until("the other server's first row", || has_z(old, "1") && has_z(new, "1"));
    succeeds(&trio.site.run(trio.promote(&[])));
    trio.site.run(follow(old, new, &[])).assert_failed_saying(&["'zz'", "--channel"]);
    succeeds(&trio.site.run(follow(old, new, &["--channel", ""])));
    other.sql("INSERT INTO z.t VALUES (2)");
    wait_until("the other server's next row", || has_z(old, "2"));
    write_as_client(new, "INSERT INTO d.t (k) VALUES (8)").unwrap();
    same_rows(&[new, old]);
}

#[test]
fn replication_from_elsewhere_goes_on() {
    unrelated_channel(Kind::Mariadb);
}

#[test]
fn replication_from_elsewhere_goes_on_on_mysql() {
    unrelated_channel(Kind::Mysql);
}

/// What others have written into the table of interrupted runs is not executed.
#[test]
fn notes_of_others_are_not_executed() {
    let mut trio = Trio::begin(Kind::Mariadb);
    lose(&mut trio, "(100, 'lost')", false);
    succeeds(&trio.site.run(trio.promote(&["--source-is-dead"])));
    trio.site.source.begin();
    trio.site.source.sql(
        "SET sql_log_bin=0; CREATE DATABASE IF NOT EXISTS spate; CREATE TABLE spate.undone (id TINYINT UNSIGNED PRIMARY KEY, gtid_position MEDIUMTEXT, \
         gtid_state MEDIUMTEXT, gtids_before MEDIUMTEXT); INSERT INTO spate.undone VALUES (0, '0-1-1', '''; DROP DATABASE d; SELECT ''', '')",
    );
    let ended = follow_saving(&trio, &trio.site.source, &trio.site.replica);
    ended.assert_failed_saying(&["no GTID"]);
    assert_ne!(count(&trio.site.source), "0");
}

/// A promotion that is interrupted by a person undoes what it has changed.
#[test]
fn interrupted_promotion_opens_the_source_again() {
    let trio = Trio::begin(Kind::Mariadb);
    let mut lock = trio.site.replica.begin_script("LOCK TABLES d.t READ; SELECT SLEEP(600)");
    wait_until("the lock", || trio.site.replica.sql("SHOW PROCESSLIST").contains("SLEEP(600)"));
    trio.site.source.sql("INSERT INTO d.t (k) VALUES (10)");
    let promotion = trio.site.spawn(trio.promote(&[]));
    wait_until("the wait", || promotion.said().contains("applies what it has received"));
    promotion.signal("TERM");
    let ended = promotion.wait();
    ended.assert_failed_saying(&["interrupted", "all is as it was"]);
    assert_eq!(trio.site.source.sql("SELECT @@read_only"), "0");
    lock.kill().unwrap();
    lock.wait().unwrap();
}
