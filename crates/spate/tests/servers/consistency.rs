//! What readers of the replica see while it is being applied to: only states that the source once had.
//!
//! Money moves between accounts of several schemas, and into and out of a vault without a key; accounts are closed, opened
//! and renumbered. All of it together never changes, in any state that the source ever had. A reader who sees another sum
//! has seen a part of a transaction.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::support::session::Session;
use crate::support::{Random, Server, Site, wait_until};

const SCHEMAS: u64 = 3;
const ACCOUNTS: u64 = 60;
const BALANCE: u64 = 1_000;
const TOTAL: u64 = SCHEMAS * ACCOUNTS * BALANCE;

/// Batches small enough that there are many states to be seen.
const OPTIONS: [&str; 6] = ["--start", "earliest", "--memory", "64MiB", "--batch-transactions", "40"];

/// Between two transactions of a clerk, in milliseconds, at first.
const PAUSE_MS: u64 = 3;
/// The pause grows so often while the replica cannot follow: what is looked at is what the replica shows, not how fast a machine is that
/// does other things too.
const SLOWER_EVERY: Duration = Duration::from_secs(10);

fn tables() -> String {
    let schema = |number| {
        format!(
            "CREATE DATABASE bank_{number}; CREATE TABLE bank_{number}.account (id INT PRIMARY KEY, balance BIGINT NOT NULL); \
             CREATE TABLE bank_{number}.vault (amount BIGINT NOT NULL); \
             INSERT INTO bank_{number}.account SELECT seq, {BALANCE} FROM mysql.seq_1_to_{ACCOUNTS};"
        )
    };
    (0..SCHEMAS).map(schema).collect()
}

/// Moves money over several connections until stopped.
struct Clerks {
    stop: Arc<AtomicBool>,
    pause_ms: Arc<AtomicU64>,
    threads: Vec<JoinHandle<u64>>,
}

impl Clerks {
    fn start(source: &Server, count: u64) -> Clerks {
        let (stop, pause_ms) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(PAUSE_MS)));
        let threads = (0..count).map(|number| {
            let mut client = source.client().stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let (stop, pause_ms) = (Arc::clone(&stop), Arc::clone(&pause_ms));
            thread::spawn(move || {
                let mut random = Random::new(number);
                let mut input = client.stdin.take().unwrap();
                input.write_all(b"DELIMITER //\n").unwrap();
                let mut sent = 0;
                while !stop.load(Ordering::Acquire) {
                    input.write_all(transaction(&mut random).as_bytes()).unwrap();
                    sent += 1;
                    thread::sleep(Duration::from_millis(pause_ms.load(Ordering::Relaxed)));
                }
                drop(input);
                assert!(client.wait().unwrap().success());
                sent
            })
        });
        let threads = threads.collect();
        Clerks { stop, pause_ms, threads }
    }

    /// The longer the replica has not caught up, the longer the clerks rest.
    fn slow_down(&self, waited: Duration) {
        let factor = 1 + waited.as_secs() / SLOWER_EVERY.as_secs();
        self.pause_ms.store(PAUSE_MS * factor, Ordering::Relaxed);
    }

    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

/// A transaction that moves money or accounts; it is undone as a whole if the source ends it, as for a deadlock.
fn transaction(random: &mut Random) -> String {
    let (here, there) = (random.below(SCHEMAS), random.below(SCHEMAS));
    let (one, other) = (1 + random.below(ACCOUNTS), 1 + random.below(ACCOUNTS));
    let amount = 1 + random.below(90);
    let moves = match random.below(6) {
        // Closed here, and its money is put into another, which is opened if need be.
        0 => format!(
            "SET @b = (SELECT balance FROM bank_{here}.account WHERE id = {one} FOR UPDATE); \
             DELETE FROM bank_{here}.account WHERE id = {one}; \
             INSERT INTO bank_{there}.account VALUES ({other}, IFNULL(@b, 0)) \
                ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance);"
        ),
        1 => format!("UPDATE IGNORE bank_{here}.account SET id = {other} WHERE id = {one};"),
        2 => format!(
            "UPDATE bank_{here}.account SET balance = balance - {amount} WHERE id = {one}; \
             IF ROW_COUNT() > 0 THEN INSERT INTO bank_{there}.vault VALUES ({amount}); END IF;"
        ),
        3 => format!(
            "SET @v = (SELECT amount FROM bank_{there}.vault LIMIT 1 FOR UPDATE); \
             DELETE FROM bank_{there}.vault WHERE amount = @v LIMIT 1; \
             IF ROW_COUNT() > 0 THEN INSERT INTO bank_{here}.account VALUES ({one}, @v) \
                ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance); END IF;"
        ),
        _ => format!(
            "UPDATE bank_{here}.account SET balance = balance - {amount} WHERE id = {one}; \
             IF ROW_COUNT() > 0 THEN INSERT INTO bank_{there}.account VALUES ({other}, {amount}) \
                ON DUPLICATE KEY UPDATE balance = balance + VALUES(balance); END IF;"
        ),
    };
    // As statements, the halves of a transfer travel apart; as rows, in one.
    let format = if random.below(3) == 0 { "STATEMENT" } else { "ROW" };
    format!(
        "SET SESSION binlog_format = {format}// BEGIN NOT ATOMIC DECLARE EXIT HANDLER FOR SQLEXCEPTION ROLLBACK; START TRANSACTION; {moves} COMMIT; END//\n"
    )
}

/// How a reader looks.
#[derive(Debug, Clone, Copy)]
enum Look {
    /// At everything in one statement.
    AtOnce,
    /// At one table after the other, in a snapshot, with time in between.
    InASnapshot,
}

impl Look {
    /// What everything adds up to, and a number that differs between most states.
    fn look(self, session: &mut Session) -> (i64, String) {
        let account = |n| {
            format!("SELECT IFNULL(SUM(balance), 0) AS sum, IFNULL(SUM(balance * id), 0) AS mix FROM bank_{n}.account")
        };
        let vault = |n| format!("SELECT IFNULL(SUM(amount), 0) AS sum, COUNT(*) AS mix FROM bank_{n}.vault");
        let parts: Vec<String> = (0..SCHEMAS).flat_map(|n| [account(n), vault(n)]).collect();
        let lines = match self {
            Look::AtOnce => session.sql(&parts.join(" UNION ALL ")),
            Look::InASnapshot => {
                let apart = parts.join("; DO SLEEP(0.004); ");
                session.sql(&format!(
                    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION WITH CONSISTENT SNAPSHOT; \
                     {apart}; COMMIT"
                ))
            }
        };
        assert_eq!(lines.len(), parts.len(), "{lines:?}");
        let sums = lines.iter().map(|line| line.split('\t').next().unwrap().parse::<i64>().unwrap());
        (sums.sum(), lines.join(" "))
    }
}

/// What a reader has seen.
#[derive(Debug, Default)]
struct Seen {
    states: BTreeSet<String>,
    /// Sums that no state of the source has.
    torn: Vec<(i64, String)>,
}

impl Seen {
    fn add(&mut self, (sum, state): (i64, String)) {
        if sum != TOTAL as i64 {
            self.torn.push((sum, state.clone()));
        }
        self.states.insert(state);
    }
}

/// A reader, and how many states it has seen.
fn watch(replica: &Server, look: Look, stop: &Arc<AtomicBool>) -> (JoinHandle<Seen>, Arc<AtomicUsize>) {
    let (mut session, stop, count) = (Session::open(replica), Arc::clone(stop), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&count);
    let reader = thread::spawn(move || {
        let mut seen = Seen::default();
        while !stop.load(Ordering::Acquire) {
            seen.add(look.look(&mut session));
            counted.store(seen.states.len(), Ordering::Relaxed);
        }
        seen
    });
    (reader, count)
}

#[test]
fn readers_see_only_states_that_the_source_had() {
    const STATES_MIN: usize = 40;
    let site = Site::plain();
    site.source.sql(&tables());
    site.catch_up(&OPTIONS);
    let clerks = Clerks::start(&site.source, 3);
    wait_until("a backlog", || {
        let position = site.source.sql("SELECT @@gtid_binlog_pos");
        position.rsplit('-').next().unwrap().parse::<u64>().unwrap() > 2_000
    });
    let stop = Arc::new(AtomicBool::new(false));
    let readers = [Look::AtOnce, Look::InASnapshot].map(|look| watch(&site.replica, look, &stop));
    let running = site.spawn(site.replicate(&OPTIONS));
    let begun = Instant::now();
    site.wait_for_status("the replica to catch up", |status| {
        clerks.slow_down(begun.elapsed());
        status["transactions"].as_u64() > Some(2_000) && status["lag_transactions"].as_u64() < Some(50)
    });
    // And now it follows.
    let batches = site.status()["batches"].as_u64().unwrap();
    site.wait_for_status("the replica to follow", |status| status["batches"].as_u64() > Some(batches + 200));
    wait_until("the readers to see enough", || {
        readers.iter().all(|(_, count)| count.load(Ordering::Relaxed) >= STATES_MIN)
    });
    let moved = clerks.stop();
    site.wait_applied();
    stop.store(true, Ordering::Release);
    for (reader, _) in readers {
        let seen = reader.join().unwrap();
        assert!(seen.torn.is_empty(), "torn states of {}: {:?}", seen.states.len(), &seen.torn[..1]);
        assert!(seen.states.len() >= STATES_MIN, "only {} states of {moved} transactions", seen.states.len());
    }
    assert!(running.terminate().status.success());
    site.assert_identical();
    a_torn_state_is_noticed(&site);
}

/// The readers above prove something only if they would notice.
fn a_torn_state_is_noticed(site: &Site) {
    for look in [Look::AtOnce, Look::InASnapshot] {
        let mut session = Session::open(&site.replica);
        for (sql, is_torn) in [
            ("UPDATE bank_0.account SET balance = balance - 1 ORDER BY id LIMIT 1", true),
            ("UPDATE bank_1.account SET balance = balance + 1 ORDER BY id LIMIT 1", false),
            ("INSERT INTO bank_2.vault VALUES (7)", true),
            ("DELETE FROM bank_2.vault WHERE amount = 7 LIMIT 1", false),
        ] {
            site.replica.sql(sql);
            let mut seen = Seen::default();
            seen.add(look.look(&mut session));
            assert_eq!(!seen.torn.is_empty(), is_torn, "{look:?} after {sql}");
        }
    }
    // Of statements that are not in a snapshot, one may see what the one before it did not: that is noticed too.
    let (mut reader, mut torn) = (Session::open(&site.replica), Seen::default());
    let before = reader.sql("SELECT SUM(balance) FROM bank_0.account");
    site.replica.sql(
        "BEGIN; UPDATE bank_0.account SET balance = balance - 5 ORDER BY id LIMIT 1; \
         UPDATE bank_1.account SET balance = balance + 5 ORDER BY id LIMIT 1; COMMIT",
    );
    let whole = Look::AtOnce.look(&mut reader);
    let after = reader.sql("SELECT SUM(balance) FROM bank_0.account");
    let difference = before[0].parse::<i64>().unwrap() - after[0].parse::<i64>().unwrap();
    torn.add((whole.0 + difference, whole.1));
    assert_eq!(torn.torn.len(), 1);
}
