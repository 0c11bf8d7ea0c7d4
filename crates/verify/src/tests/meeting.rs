//! Comparisons of a live source and a live replica, and clients that disturb them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use spate_binlog::{Gtid, GtidPosition};

use super::*;
use spate_connection::endpoint::Secret;
use spate_replica::hold_request::{HOLD_QUERY, HoldLimit, HoldRequest};
use spate_replica::lock_names::LockNames;

#[test]
fn resting_servers_at_different_positions_are_refused() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)");
    assert!(matches!(run(&pair.options(), &|_| {}), Err(Error::ReplicaPositionUnknown)));
    pair.align();
    pair.at_source.execute(b"INSERT INTO s.t VALUES (1)").unwrap();
    let error = run(&pair.options(), &|_| {}).unwrap_err();
    assert!(matches!(error, Error::PositionsDiffer { .. }), "{error}");
    assert!(error.to_string().contains("0-1-3") && error.to_string().contains("0-1-2"), "{error}");

    let anyway = VerifyOptions { without_position: true, ..pair.options() };
    let report = run(&anyway, &|_| {}).unwrap();
    assert!(!report.position.is_exact && !report.is_identical());

    // The same place by file and offset, although the GTIDs differ.
    let status = pair.at_source.query("SHOW MASTER STATUS").unwrap();
    let (file, offset) = (status.text(0, "File").unwrap(), status.text(0, "Position").unwrap());
    pair.on_replica(&format!(
        "REPLACE INTO spate.checkpoint VALUES (0, '', '{file}', {offset}, 0, 0); INSERT INTO s.t VALUES (1)"
    ));
    assert!(run(&pair.options(), &|_| {}).unwrap().is_identical());

    // A replica with the server's own replication.
    pair.on_replica("DELETE FROM spate.checkpoint; SET GLOBAL gtid_slave_pos = '0-1-3'");
    assert!(run(&pair.options(), &|_| {}).unwrap().is_identical());
    pair.on_replica("SET GLOBAL gtid_slave_pos = '0-1-2'");
    assert!(matches!(run(&pair.options(), &|_| {}), Err(Error::PositionsDiffer { .. })));

    let swapped = VerifyOptions::new(pair.replica.root(), pair.source.root());
    assert!(matches!(run(&swapped, &|_| {}), Err(Error::SourcePositionUnknown { .. })));
}

#[test]
fn source_user_with_only_select_can_verify() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)");
    pair.at_source
        .execute(b"CREATE USER reader@'%' IDENTIFIED BY 'geheim'; GRANT SELECT ON *.* TO reader@'%'")
        .unwrap();
    pair.align();
    let reader = Endpoint::tcp("reader", "127.0.0.1", pair.source.port).with_password(Secret::new("geheim"));
    let options = VerifyOptions { source: reader, ..pair.options() };
    assert!(run(&options, &|_| {}).unwrap().is_identical());
}

/// Stops the writer even if the test fails: the threads' scope would wait for it without end.
struct StopWhenDropped<'a>(&'a AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Writes to the source without pause and sends each transaction's GTID, until `done` is set.
fn write(mut source: Connection, done: &AtomicBool, sender: &Sender<(Gtid, u64)>) {
    for id in 1.. {
        source.execute(format!("INSERT INTO s.t VALUES ({id}, MD5({id}))").as_bytes()).unwrap();
        let gtid = source.query("SELECT @@last_gtid").unwrap().single_text().unwrap().parse().unwrap();
        sender.send((gtid, id)).unwrap();
        if done.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// An applier that obeys holds and applies one transaction at a time.
fn apply(mut replica: Connection, transactions: &Receiver<(Gtid, u64)>, stops: &AtomicU64) {
    let lock = LockNames::make(&mut replica).unwrap().applier();
    replica.query(&format!("SELECT GET_LOCK({lock}, 0)")).unwrap();
    let mut position = GtidPosition::default();
    for (gtid, id) in transactions {
        loop {
            let request = HoldRequest::parse(&replica.query(HOLD_QUERY).unwrap()).unwrap();
            if let Some(sql) = request.acknowledgement() {
                replica.execute(sql.as_bytes()).unwrap();
                stops.fetch_add(1, Ordering::Relaxed);
            }
            if request.limit.allows(gtid) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        position.advance(gtid);
        let sql = format!(
            "BEGIN; INSERT INTO s.t VALUES ({id}, MD5({id})); UPDATE spate.checkpoint SET gtid_position = '{position}'; COMMIT"
        );
        replica.execute(sql.as_bytes()).unwrap();
    }
}

#[test]
fn live_source_and_replica_meet_at_one_position() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY, v VARCHAR(50))");
    pair.align();
    let (done, stops) = (AtomicBool::new(false), AtomicU64::new(0));
    // The bounded channel keeps the source from running ahead of its slow applier.
    let (sender, receiver) = bounded(200);
    let (writing, applying) = (pair.source.connect(), pair.replica.connect());
    thread::scope(|scope| {
        let stop = StopWhenDropped(&done);
        let applier = scope.spawn(|| apply(applying, &receiver, &stops));
        let is_done = &done;
        let writer = scope.spawn(move || write(writing, is_done, &sender));
        let deadline = Instant::now() + Duration::from_secs(20);
        let lock = LockNames::make(&mut pair.at_replica).unwrap().applier();
        let present = format!("SELECT IS_USED_LOCK({lock}) IS NOT NULL AND (SELECT COUNT(*) FROM s.t) > 20");
        while pair.at_replica.query(&present).unwrap().single_text().as_deref() != Some("1") {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        let mut positions = Vec::new();
        for _ in 0..5 {
            let report = run(&pair.options(), &|_| {}).unwrap();
            assert!(report.is_identical() && report.position.is_exact && report.hold_seconds > 0.0, "{report:#?}");
            assert_eq!(report.position.source_gtid, report.position.replica_gtid);
            assert!(report.rows_compared > 20);
            positions.push(report.position.source_offset);
        }
        positions.dedup();
        assert!(positions.len() > 1, "the source was live");
        // Verify also finds a difference, and a failed verify leaves no request behind.
        pair.on_replica("UPDATE s.t SET v = '' WHERE id = 7");
        let report = run(&pair.options(), &|_| {}).unwrap();
        assert!(matches!(&report.tables[0].verdict, Verdict::RowsDiffer(rows) if rows.keys[0].key == "id=7"));
        let mut held = pair.replica.connect();
        let lock = LockNames::make(&mut held).unwrap().verify();
        held.query(&format!("SELECT GET_LOCK({lock}, 0)")).unwrap();
        assert!(matches!(run(&pair.options(), &|_| {}), Err(Error::Busy)));
        drop(stop);
        writer.join().unwrap();
        applier.join().unwrap();
    });
    assert_eq!(stops.load(Ordering::Relaxed), 6);
    assert_eq!(pair.at_replica.query("SELECT COUNT(*) FROM spate.hold").unwrap().single_text().unwrap(), "0");
}

#[test]
fn hold_request_without_answer_fails_and_expires() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY)");
    pair.align();
    let mut deaf = pair.replica.connect();
    let lock = LockNames::make(&mut deaf).unwrap().applier();
    deaf.query(&format!("SELECT GET_LOCK({lock}, 0)")).unwrap();
    let options = VerifyOptions { catch_up_timeout: Duration::from_millis(100), ..pair.options() };
    assert!(matches!(run(&options, &|_| {}), Err(Error::HoldIgnored { .. })));

    let limit = |pair: &mut Pair| HoldRequest::parse(&pair.at_replica.query(HOLD_QUERY).unwrap()).unwrap().limit;
    assert_eq!(limit(&mut pair), HoldLimit::None);
    pair.on_replica("INSERT INTO spate.hold VALUES (1, 18446744073709551615, NULL, UTC_TIMESTAMP(6), NULL)");
    assert_eq!(limit(&mut pair), HoldLimit::NowStop);
    pair.on_replica("SET time_zone = '+05:00'; UPDATE spate.hold SET until_position = '0-1-9'");
    assert_eq!(limit(&mut pair), HoldLimit::Until("0-1-9".parse().unwrap()));
    pair.on_replica("UPDATE spate.hold SET heartbeat = UTC_TIMESTAMP(6) - INTERVAL 31 SECOND");
    assert_eq!(limit(&mut pair), HoldLimit::None);
}

#[test]
fn altering_table_during_comparison_does_not_wait_and_is_reported() {
    let mut pair = Pair::start();
    pair.on_both(
        "CREATE SCHEMA s; CREATE TABLE s.a (id INT PRIMARY KEY); INSERT INTO s.a SELECT seq FROM mysql.seq_1_to_50; \
         CREATE TABLE s.b LIKE s.a; INSERT INTO s.b SELECT id FROM s.a; CREATE TABLE s.old (id INT PRIMARY KEY) ENGINE=MyISAM",
    );
    pair.align();
    let altering = Mutex::new((pair.source.connect(), false));
    let alter = |progress: &Progress| {
        let mut altering = altering.lock().unwrap();
        if matches!(progress, Progress::Comparing { rows_compared: 50.., .. }) && !altering.1 {
            altering.1 = true;
            // The comparison has read the first table in a snapshot that is still open: it must keep no metadata lock.
            altering.0.execute(b"SET lock_wait_timeout = 5; ALTER TABLE s.a FORCE; ALTER TABLE s.b FORCE").unwrap();
        }
    };
    let options = VerifyOptions { connections: 1, ..pair.options() };
    let error = run(&options, &alter).unwrap_err();
    assert!(matches!(&error, Error::TableAltered { table } if table == "s.b"), "{error}");

    let report = pair.verify();
    assert!(report.is_identical());
    let outside: Vec<&str> =
        report.tables.iter().filter(|table| !table.is_in_snapshot).map(|table| table.table.as_str()).collect();
    assert_eq!(outside, ["old"]);
}

#[test]
fn busy_source_still_gives_snapshots_at_one_position() {
    let mut pair = Pair::start();
    pair.on_both("CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY, v VARCHAR(50))");
    pair.at_source.execute(b"CREATE USER reader@'%'; GRANT SELECT ON *.* TO reader@'%'").unwrap();
    let done = AtomicBool::new(false);
    let (sender, receiver) = unbounded();
    let writing = pair.source.connect();
    let reader = Endpoint::unix("reader", pair.source.socket());
    thread::scope(|scope| {
        let stop = StopWhenDropped(&done);
        let is_done = &done;
        scope.spawn(move || write(writing, is_done, &sender));
        for (endpoint, may_hold_up_commits) in [(pair.source.root(), true), (reader, false)] {
            let options = spate_connection::ConnectOptions::new("source");
            let mut control = snapshot::open_session(&endpoint, &options).unwrap();
            let mut sessions = snapshot::open_sessions(&endpoint, &options, 3).unwrap();
            // Each session's snapshot has another position.
            for session in sessions.chunks_mut(1) {
                snapshot::start_snapshots(session).unwrap();
                receiver.try_iter().count();
                // The first transaction may have been committed before the snapshot, and its GTID received later.
                receiver.recv().unwrap();
                receiver.recv().unwrap();
            }
            let position = snapshot::start_on_busy_source(&mut control, &mut sessions).unwrap();
            assert_eq!(sessions.len(), if may_hold_up_commits { 3 } else { 1 });
            let counts: Vec<String> = sessions
                .iter_mut()
                .map(|session| session.query("SELECT COUNT(*) FROM s.t").unwrap().single_text().unwrap())
                .collect();
            // The source began with four transactions, and each of the others was one row.
            let sequence = position.gtid.domains().next().unwrap().sequence;
            assert!(counts.iter().all(|count| *count == (sequence - 4).to_string()), "{counts:?} at {sequence}");
        }
        // The commits continue.
        receiver.try_iter().count();
        receiver.recv_timeout(Duration::from_secs(20)).unwrap();
        drop(stop);
    });
}

#[test]
fn snapshot_position_is_its_own_while_other_sessions_read_status() {
    let pair = Pair::start();
    let (mut writing, mut asking) = (pair.source.connect(), pair.source.connect());
    writing.execute(b"CREATE SCHEMA s; CREATE TABLE s.t (id INT PRIMARY KEY AUTO_INCREMENT)").unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let stop = StopWhenDropped(&done);
        let is_done = &done;
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                writing.execute(b"INSERT INTO s.t VALUES ()").unwrap();
            }
        });
        scope.spawn(move || {
            while !is_done.load(Ordering::Relaxed) {
                asking.query("SHOW GLOBAL STATUS LIKE 'binlog_snapshot_%'").unwrap();
            }
        });
        let mut sessions = vec![pair.source.connect()];
        snapshot::start_snapshots(&mut sessions).unwrap();
        let mut settled = Vec::new();
        for _ in 0..100 {
            // A session whose answers do not agree is read again; agreeing answers must be right.
            settled.extend(snapshot::read_settled_coordinates(&mut sessions).unwrap().pop().unwrap());
        }
        assert!(settled.len() > 50, "{}", settled.len());
        settled.dedup();
        assert_eq!(settled.len(), 1, "{settled:?}");
        drop(stop);
    });
}
