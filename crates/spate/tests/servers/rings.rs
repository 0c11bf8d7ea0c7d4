//! `--ignore-server-ids`: servers that replicate from each other.

use crate::support::program::{Running, program};
use crate::support::server::ACCOUNT;
use crate::support::{Kind, Server, Site, wait_until};

/// One direction of a ring.
struct Way {
    running: Running,
    archive: std::path::PathBuf,
}

fn way(site: &Site, from: &Server, to: &Server, ignored: &str, archive: &str) -> Way {
    let archive = site.archive().with_file_name(archive);
    let mut command = program();
    command.args(["replicate", "--start", "gtid:", "--ignore-server-ids", ignored, "--archive"]).arg(&archive);
    command.arg("--source").arg(format!("{ACCOUNT}@127.0.0.1:{}", from.port));
    command.arg("--replica").arg(format!("{ACCOUNT}@127.0.0.1:{}", to.port));
    Way { running: site.spawn(command), archive }
}

fn binlog_end(server: &Server) -> String {
    server.sql("SHOW MASTER STATUS")
}

fn position(server: &Server) -> String {
    server.sql("SELECT @@gtid_binlog_pos")
}

/// The checkpoint on `to` covers all that `from` has now.
fn has_reached(from: &Server, to: &Server) -> bool {
    to.try_sql("SELECT gtid_position FROM spate.checkpoint").is_ok_and(|applied| applied == position(from))
}

#[test]
fn ring_of_two_servers_converges() {
    let site = Site::new(&[], &["--log-bin=other", "--binlog-format=ROW"]);
    let (a, b) = (&site.source, &site.replica);
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL DEFAULT 0)");
    let there = way(&site, a, b, "2", "there");
    let back = way(&site, b, a, "1", "back");
    for round in 0..20 {
        a.sql(&format!("INSERT INTO d.t (id) VALUES ({}); UPDATE d.t SET v = v + 1 WHERE id % 2 = 1", round * 2 + 1));
        b.sql(&format!("INSERT INTO d.t (id) VALUES ({}); UPDATE d.t SET v = v + 1 WHERE id % 2 = 0", round * 2 + 2));
    }
    a.sql("CREATE TABLE d.of_a (id INT PRIMARY KEY)");
    b.sql("CREATE TABLE d.of_b (id INT PRIMARY KEY)");
    wait_until("both tables on both servers", || {
        [a, b].iter().all(|server| server.sql("SHOW TABLES FROM d") == "of_a\nof_b\nt")
    });
    wait_until("both ways at the end", || has_reached(a, b) && has_reached(b, a));
    assert_eq!(a.checksums(), b.checksums());
    // 1 + 2 + … + 20 updates of the rows of each side.
    assert_eq!(a.sql("SELECT COUNT(*), SUM(v) FROM d.t WHERE id % 2 = 1"), "20\t210");
    assert_eq!(b.sql("SELECT COUNT(*), SUM(v) FROM d.t WHERE id % 2 = 0"), "20\t210");
    // Nothing goes round: with nobody writing, both binlogs stay as they are, though both programs do their rounds.
    let quiet = (binlog_end(a), binlog_end(b));
    let looks = std::time::Instant::now();
    wait_until("a few seconds without any write", || looks.elapsed().as_secs() >= 3);
    assert_eq!(quiet, (binlog_end(a), binlog_end(b)));
    // A write after the silence still arrives, and its way ends at home.
    a.sql("INSERT INTO d.of_a VALUES (1)");
    wait_until("it to arrive", || b.sql("SELECT COUNT(*) FROM d.of_a") == "1");
    wait_until("both ways at the end", || has_reached(a, b) && has_reached(b, a));
    assert_eq!(a.checksums(), b.checksums());
    let output = program().args(["status", "--json", "--archive"]).arg(&back.archive).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(status["ignored_transactions"].as_u64() >= Some(3), "{status}");
    for way in [there, back] {
        let ended = way.running.terminate();
        assert!(ended.status.success(), "{}", ended.output);
    }
}

#[test]
fn ring_of_three_servers_converges() {
    let site = Site::new(&[], &["--log-bin=b", "--binlog-format=ROW"]);
    let third = Server::replica(Kind::Mariadb, &["--server-id=3", "--log-bin=c", "--binlog-format=ROW"]);
    let servers = [&site.source, &site.replica, &third];
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL DEFAULT 0)");
    third.sql("SET sql_log_bin=0; CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY, v INT NOT NULL DEFAULT 0)");
    // Rows of all three are in one batch wherever two of them meet.
    for (index, server) in servers.iter().enumerate() {
        for round in 0..10 {
            server.sql(&format!("INSERT INTO d.t (id) VALUES ({})", round * 3 + index));
        }
    }
    let ways = [(0, 1, "2", "ab"), (1, 2, "3", "bc"), (2, 0, "1", "ca")]
        .map(|(from, to, ignored, archive)| way(&site, servers[from], servers[to], ignored, archive));
    for (index, server) in servers.iter().enumerate() {
        server.sql(&format!("UPDATE d.t SET v = v + 1 WHERE id % 3 = {index}"));
    }
    wait_until("all rows everywhere", || {
        servers.iter().all(|server| server.sql("SELECT COUNT(*), SUM(v) FROM d.t") == "30\t30")
    });
    wait_until("all ways at the end", || (0..3).all(|from| has_reached(servers[from], servers[(from + 1) % 3])));
    assert_eq!(servers[0].checksums(), servers[1].checksums());
    assert_eq!(servers[1].checksums(), servers[2].checksums());
    for way in ways {
        let ended = way.running.terminate();
        assert!(ended.status.success(), "{}", ended.output);
    }
}

#[test]
fn rows_that_cannot_roll_back_keep_their_origin_in_a_ring() {
    let site = Site::new(&[], &["--log-bin=other", "--binlog-format=ROW"]);
    let (a, b) = (&site.source, &site.replica);
    site.both("CREATE DATABASE d; CREATE TABLE d.t (id INT PRIMARY KEY); CREATE TABLE d.m (v INT) ENGINE=MyISAM");
    b.sql("SET SESSION sql_log_bin=0; INSERT INTO d.t VALUES (2)");
    // One batch is divided before the rows of MyISAM. What came from the other server follows them.
    a.sql(
        "INSERT INTO d.t VALUES (1); INSERT INTO d.m VALUES (100); SET SESSION server_id=2; INSERT INTO d.t VALUES (2)",
    );
    for (from, to, ignored, archive) in [(a, b, "2", "there"), (b, a, "1", "back")] {
        let way = way(&site, from, to, ignored, archive);
        wait_until("the way at its end", || has_reached(from, to));
        let ended = way.running.terminate();
        assert!(ended.status.success(), "{}", ended.output);
    }
    assert_eq!(b.sql("SELECT * FROM d.m"), "100");
    assert_eq!(a.sql("SELECT * FROM d.m"), "100");
    assert_eq!(a.checksums(), b.checksums());
}
