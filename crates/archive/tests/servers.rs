//! The archive against real MariaDB servers: it reads their binlogs and relay logs unchanged. A copy made of their
//! events equals them byte for byte, and the servers' own tools can read it.
// A helper of a test may unwrap as the test itself may.
#![allow(clippy::unwrap_used)]

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use spate_archive::{
    Appended, Archive, ArchiveWriter, DirectoryOptions, FileSystem, ReadOptions, RealFileSystem, Seek, SyncPolicy,
};
use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::{Boundary, EventHeader, EventType, FormatDescription, GtidPosition};
use support::server::Server;

/// A sample of the statements that a source's binlog can hold.
const WORK: &str = "
    CREATE DATABASE work; USE work;
    CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, text LONGTEXT) ENGINE=InnoDB;
    CREATE TABLE m (id INT PRIMARY KEY) ENGINE=MyISAM;
    INSERT INTO t (text) VALUES ('one'), ('two');
    INSERT INTO m VALUES (1), (2);
    BEGIN; INSERT INTO t (text) VALUES ('three'); SAVEPOINT s; INSERT INTO t (text) VALUES ('four');
    ROLLBACK TO s; UPDATE t SET text = 'five'; COMMIT;
    BEGIN; INSERT INTO m VALUES (3); INSERT INTO t (text) VALUES ('x'); ROLLBACK;
    XA START 'a'; INSERT INTO t (text) VALUES ('xa'); XA END 'a'; XA PREPARE 'a'; XA COMMIT 'a';
    XA START 'b'; INSERT INTO t (text) VALUES ('xa'); XA END 'b'; XA PREPARE 'b'; XA ROLLBACK 'b';
    XA START 'c'; INSERT INTO t (text) VALUES ('xa'); XA END 'c'; XA COMMIT 'c' ONE PHASE;
    CREATE TABLE copy AS SELECT * FROM t;
    SET binlog_format = 'STATEMENT'; SET @v = 7; INSERT INTO t (text) VALUES (@v + RAND());
    UPDATE m SET id = id + 10; SET binlog_format = 'ROW';
    SET gtid_domain_id = 3; INSERT INTO t (text) VALUES ('other domain'); SET gtid_domain_id = 0;
    INSERT INTO t (text) VALUES (REPEAT('long', 500000));
    CREATE TEMPORARY TABLE tmp (a INT); INSERT INTO tmp VALUES (1); DROP TEMPORARY TABLE tmp;
    ALTER TABLE t ADD COLUMN extra INT DEFAULT 5; TRUNCATE TABLE m; ANALYZE TABLE t;
    CREATE USER someone; GRANT SELECT ON work.* TO someone; DROP USER someone;";

fn real() -> Arc<dyn FileSystem> {
    Arc::new(RealFileSystem)
}

/// The GTID, the number of changing events, and the source's position of every transaction.
fn read(archive: &Archive) -> Vec<(String, usize, String)> {
    let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default()).unwrap();
    let mut seen: Vec<(String, usize, String)> = Vec::new();
    while let Some(event) = reader.next_event().unwrap() {
        if matches!(event.boundary, Boundary::Begin | Boundary::Whole) {
            let gtid = event.gtid().expect("MariaDB gives every transaction a GTID");
            seen.push((gtid.gtid.to_string(), 0, String::new()));
        }
        // Native replicas do not ask for annotations, and put their own events even into transactions.
        let is_change = !matches!(
            event.header.event_type,
            EventType::ANNOTATE_ROWS | EventType::FORMAT_DESCRIPTION | EventType::ROTATE | EventType::GTID_LIST
        );
        if event.boundary != Boundary::Outside && is_change {
            let last = seen.last_mut().unwrap();
            last.1 += 1;
            last.2 = format!("{}:{}", event.source_file, event.source_end_position);
        }
    }
    seen
}

fn open(dir: &Path) -> Archive {
    Archive::open(real(), dir, DirectoryOptions::default()).unwrap()
}

/// The GTIDs that the server's own tool finds in a file.
fn gtids_by_mariadb_binlog(path: &Path) -> Vec<String> {
    let output =
        Command::new("mariadb-binlog").args(["--no-defaults", "--verify-binlog-checksum"]).arg(path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let gtids =
        text.lines().filter_map(|line| line.split_once("\tGTID ")?.1.split_whitespace().next().map(str::to_owned));
    gtids.collect()
}

/// Gives a binlog file's events to the writer, as an intake would.
fn send(writer: &mut ArchiveWriter, path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    let name = path.file_name().unwrap().to_str().unwrap();
    let mut at = 4;
    let mut transactions = 0;
    while at + HEADER_LENGTH <= bytes.len() {
        let length = EventHeader::parse(&bytes[at..]).unwrap().event_length as usize;
        let event = &bytes[at..at + length];
        if at == 4 {
            writer.begin_file(name, event).unwrap();
        } else if let Appended::Stored(Boundary::End | Boundary::Whole) = writer.append(event).unwrap() {
            transactions += 1;
        }
        at += length;
    }
    writer.flush().unwrap();
    transactions
}

fn binlogs(server: &Server) -> Vec<String> {
    let logs = server.sql("SHOW BINARY LOGS");
    logs.lines().map(|line| line.split('\t').next().unwrap().to_owned()).collect()
}

/// Waits until the server has written to its newest file, in the background, that crash recovery needs no older one.
fn wait_for_checkpoint(server: &Server) {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
    const LOOK_EVERY: std::time::Duration = std::time::Duration::from_millis(10);
    let (newest, deadline) = (binlogs(server).pop().unwrap(), std::time::Instant::now() + PATIENCE);
    let noted =
        |events: &str| events.lines().any(|event| event.contains("Binlog_checkpoint") && event.ends_with(&newest));
    while !noted(&server.sql(&format!("SHOW BINLOG EVENTS IN '{newest}'"))) {
        assert!(std::time::Instant::now() < deadline, "no checkpoint in {newest}");
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn servers_binlog_is_read_in_place_and_copied_byte_for_byte() {
    for options in [
        &["--binlog-checksum=CRC32"][..],
        &["--binlog-checksum=NONE"],
        &["--log-bin-compress=1", "--log-bin-compress-min-len=10", "--binlog-annotate-row-events=0"],
    ] {
        let server = Server::start(1, options);
        server.sql(WORK);
        server.sql("FLUSH BINARY LOGS");
        wait_for_checkpoint(&server);
        server.sql("INSERT INTO work.t (text) VALUES ('in the second file')");
        let archive = open(&server.binlog_dir());
        let seen = read(&archive);
        let state = server.sql("SELECT @@gtid_binlog_pos");
        assert_eq!(archive.tail().received().gtid_position.to_string(), state);
        let names = binlogs(&server);
        let by_tool: Vec<_> =
            names.iter().flat_map(|name| gtids_by_mariadb_binlog(&server.binlog_dir().join(name))).collect();
        assert_eq!(seen.iter().map(|seen| seen.0.clone()).collect::<Vec<_>>(), by_tool, "{options:?}");
        let place = server.sql("SHOW MASTER STATUS").split('\t').take(2).collect::<Vec<_>>().join(":");
        assert_eq!(seen.last().unwrap().2, place);

        server.sql("INSERT INTO work.t (text) VALUES ('later'); FLUSH BINARY LOGS");
        assert!(archive.refresh().unwrap());
        assert_eq!(read(&archive).len(), seen.len() + 1);
        for (seqno, name) in [(1, &names[0]), (seen.len() as u64, &names[1])] {
            let reader = archive.reader(&Seek::Seqno(seqno), ReadOptions::default()).unwrap();
            assert_eq!(reader.file().unwrap().name().as_ref(), name);
        }

        let copy = tempfile::tempdir().unwrap();
        let mut writer = ArchiveWriter::open(real(), copy.path(), support::options(SyncPolicy::Always)).unwrap();
        let sent: usize = names.iter().map(|name| send(&mut writer, &server.binlog_dir().join(name))).sum();
        assert_eq!(sent, seen.len() + 1);
        assert_eq!(read(writer.archive()), read(&archive));
        for name in &names {
            let (source, local) = (server.binlog_dir().join(name), copy.path().join(name));
            assert!(std::fs::read(source).unwrap() == std::fs::read(&local).unwrap(), "{name}");
            gtids_by_mariadb_binlog(&local);
        }
        drop(writer);
        let writer = ArchiveWriter::open(real(), copy.path(), support::options(SyncPolicy::Always)).unwrap();
        assert_eq!(writer.end().seqno, sent as u64);
        check_format(&copy.path().join(&names[0]));
    }
}

/// Checks the entry of the format description in its own list of types, on which the codec relies.
fn check_format(path: &Path) {
    let bytes = std::fs::read(path).unwrap();
    let length = EventHeader::parse(&bytes[4..]).unwrap().event_length as usize;
    let format = FormatDescription::parse(&bytes[4..4 + length]).unwrap();
    assert_eq!(usize::from(format.post_header_lengths[14]), 57 + format.post_header_lengths.len());
}

#[test]
fn killed_servers_binlog_is_read() {
    let mut server = Server::start(1, &[]);
    server.sql(WORK);
    server.kill();
    assert!(read(&open(&server.binlog_dir())).len() > 20);
}

#[test]
fn native_replicas_relay_log_is_read() {
    let source = Server::start(1, &["--max-binlog-size=1M"]);
    let relay_options = ["--relay-log=relay", "--relay-log-purge=0", "--max-relay-log-size=64K", "--skip-slave-start"];
    let replica = Server::start(2, &relay_options);
    source.sql("CREATE USER replica IDENTIFIED BY 'secret'; GRANT REPLICATION SLAVE ON *.* TO replica");
    replica.sql(&format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={}, MASTER_USER='replica', MASTER_PASSWORD='secret', \
         MASTER_USE_GTID=slave_pos; START SLAVE IO_THREAD",
        source.port
    ));
    source.sql(WORK);
    let position = |text: &str| text.parse::<GtidPosition>().unwrap();
    let caught_up = |source: &Server, replica: &Server| {
        let end = position(&source.sql("SELECT @@gtid_binlog_pos"));
        replica.wait(|replica| position(&replica.replica_status("Gtid_IO_Pos")) == end);
    };
    caught_up(&source, &replica);
    // The replica disconnects and reconnects, between and within files.
    for round in 0..3 {
        replica.sql("STOP SLAVE IO_THREAD");
        source.sql(&format!("INSERT INTO work.t (text) VALUES ('round {round}'); FLUSH BINARY LOGS"));
        source.sql("USE work; INSERT INTO t (text) SELECT REPEAT('x', 50000) FROM seq_1_to_30");
        replica.sql("START SLAVE IO_THREAD");
        source.sql("INSERT INTO work.t (text) VALUES ('after')");
        caught_up(&source, &replica);
    }
    replica.sql("STOP SLAVE IO_THREAD");
    let options = DirectoryOptions { base_name: Some("relay".into()) };
    let relay = Archive::open(real(), &replica.dir().join("data"), options).unwrap();
    let from_relay = read(&relay);
    let from_source = read(&open(&source.binlog_dir()));
    assert_eq!(from_relay, from_source);
    assert!(relay.files().len() > 5);
    let seqno = from_relay.len() as u64 / 2;
    let place = from_relay[seqno as usize - 1].2.rsplit_once(':').unwrap();
    let seek = Seek::Source { file: place.0.into(), position: place.1.parse().unwrap() };
    for seek in [Seek::Seqno(seqno + 1), seek] {
        let mut reader = relay.reader(&seek, ReadOptions::default()).unwrap();
        loop {
            let event = reader.next_event().unwrap().unwrap();
            if event.boundary == Boundary::Begin {
                assert_eq!(event.gtid().unwrap().gtid.to_string(), from_relay[seqno as usize].0);
                break;
            }
        }
    }
}
