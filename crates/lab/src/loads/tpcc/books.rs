//! The consistency conditions (clause 3.3.2): what holds between the tables in every state that a transaction leaves. On a replica they hold only if
//! its readers see states that the source had: a payment without its note, or an order without its lines, breaks one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde::Serialize;

use crate::sandbox::Sandbox;
use crate::sql::Session;
use crate::workload::{Shape, Workload};
use crate::{Error, Result, threads};

/// The conditions: their numbers in the clause, what they say, and a query that counts what breaks them. Condition 11 holds only at the beginning.
const CONDITIONS: [(u32, &str, &str); 11] = [
    (1, "a warehouse's sum is that of its districts", "
        SELECT COUNT(*) FROM warehouse LEFT JOIN (SELECT d_w_id, SUM(d_ytd) ytd FROM district GROUP BY d_w_id) d ON d_w_id = w_id
        WHERE NOT (w_ytd <=> ytd)"),
    (2, "a district's next order follows its last one", "
        SELECT COUNT(*) FROM district
        LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) last FROM orders GROUP BY o_w_id, o_d_id) o ON o_w_id = d_w_id AND o_d_id = d_id
        LEFT JOIN (SELECT no_w_id, no_d_id, MAX(no_o_id) newest FROM new_order GROUP BY no_w_id, no_d_id) n ON no_w_id = d_w_id AND no_d_id = d_id
        WHERE NOT (d_next_o_id - 1 <=> last) OR newest <> d_next_o_id - 1"),
    (3, "undelivered orders have no gaps", "
        SELECT COUNT(*) FROM (SELECT MAX(no_o_id) - MIN(no_o_id) + 1 wanted, COUNT(*) found FROM new_order GROUP BY no_w_id, no_d_id) n
        WHERE wanted <> found"),
    (4, "a district has as many lines as its orders say", "
        SELECT COUNT(*) FROM (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) wanted FROM orders GROUP BY o_w_id, o_d_id) o
        LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) found FROM order_line GROUP BY ol_w_id, ol_d_id) l ON ol_w_id = o_w_id AND ol_d_id = o_d_id
        WHERE NOT (wanted <=> found)"),
    (5, "an order has no carrier exactly while it is undelivered", "
        SELECT COUNT(*) FROM orders LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
        WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)"),
    (6, "an order has as many lines as it says", "
        SELECT COUNT(*) FROM orders LEFT JOIN (SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) found FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id) l
        ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE NOT (o_ol_cnt <=> found)"),
    (7, "a line is delivered exactly if its order has a carrier", "
        SELECT COUNT(*) FROM order_line LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
        WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)"),
    (8, "a warehouse's sum is that of its payments", "
        SELECT COUNT(*) FROM warehouse LEFT JOIN (SELECT h_w_id, SUM(h_amount) paid FROM history GROUP BY h_w_id) h ON h_w_id = w_id
        WHERE NOT (w_ytd <=> paid)"),
    (9, "a district's sum is that of its payments", "
        SELECT COUNT(*) FROM district LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) paid FROM history GROUP BY h_w_id, h_d_id) h
        ON h_w_id = d_w_id AND h_d_id = d_id WHERE NOT (d_ytd <=> paid)"),
    (10, "a customer owes what was delivered, less what was paid", "
        SELECT COUNT(*) FROM customer
        LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) delivered FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
            WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
        LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id) h
            ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
        WHERE c_balance <> COALESCE(delivered, 0) - COALESCE(paid, 0)"),
    (12, "a customer's balance and payments are what was delivered", "
        SELECT COUNT(*) FROM customer
        LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) delivered FROM orders JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
            WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id) o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
        WHERE c_balance + c_ytd_payment <> COALESCE(delivered, 0)"),
];

/// What was found of the conditions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Books {
    /// How often all conditions of all schemas were looked at, each time in one snapshot.
    pub looks: u64,
    /// Different states among those: what was looked at is a replica that moves.
    pub states: u64,
    /// What was broken, each condition once for each look; of many, the first.
    pub broken: Vec<String>,
}

/// Broken conditions that are told; as long as something stays broken, each look finds it.
const TOLD_MAX: usize = 100;

impl Books {
    /// What is broken of a server's books, if its load has some.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn audit_if_any(server: &Sandbox, shape: &Shape, role: &str) -> Result<Vec<String>> {
        if shape.workload != Workload::Tpcc {
            return Ok(Vec::new());
        }
        let broken = Books::audit(&mut server.connect()?, &shape.schema_names())?;
        Ok(broken.into_iter().map(|what| format!("{role}: {what}")).collect())
    }

    /// Looks once, at all schemas in one snapshot.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn audit(session: &mut Session, schemas: &[String]) -> Result<Vec<String>> {
        session.run("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")?;
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
        let mut broken = Vec::new();
        for schema in schemas {
            session.run(&format!("USE {schema}"))?;
            for (number, what, query) in CONDITIONS {
                let count: u64 = session.value(query)?;
                if count > 0 {
                    broken.push(format!("{schema}: condition {number} ({what}) is broken in {count} places"));
                }
            }
        }
        session.run("COMMIT")?;
        Ok(broken)
    }
}

/// Looks again and again, beside whatever happens to the server.
#[derive(Debug)]
pub struct Auditor {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Books>>>,
}

impl Auditor {
    /// Begins to look.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn start(server: &Sandbox, schemas: Vec<String>) -> Result<Auditor> {
        let (mut session, over) = (server.connect()?, Arc::new(AtomicBool::new(false)));
        let ending = Arc::clone(&over);
        let thread = thread::spawn(move || look_on(&mut session, &schemas, &ending));
        Ok(Auditor { over, thread: Some(thread) })
    }

    /// Looks once more, and says what was found.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn finish(mut self) -> Result<Books> {
        self.over.store(true, Ordering::Release);
        let nothing = || Error::UnexpectedResult { server: "replica".to_owned(), statement: "the books".to_owned() };
        let thread = self.thread.take().ok_or_else(nothing)?;
        threads::ended(thread.join())
    }
}

impl Drop for Auditor {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn look_on(session: &mut Session, schemas: &[String], over: &AtomicBool) -> Result<Books> {
    /// Pause between two looks, for the load.
    const PAUSE: Duration = Duration::from_millis(20);
    let (mut books, mut last_state) = (Books::default(), String::new());
    loop {
        let is_last = over.load(Ordering::Acquire);
        books.broken.extend(Books::audit(session, schemas)?);
        books.broken.truncate(TOLD_MAX);
        books.looks += 1;
        let first = schemas.first().map_or("bench1", String::as_str);
        let state: String =
            session.value(&format!("SELECT CONCAT(SUM(d_next_o_id), '/', SUM(d_ytd)) FROM {first}.district"))?;
        books.states += u64::from(state != last_state);
        last_state = state;
        if is_last {
            return Ok(books);
        }
        thread::sleep(PAUSE);
    }
}
