//! Which forms of SQL statements write many rows fastest: decision 8 has the numbers that this printed.
//!
//! `cargo run --release -p spate-replica --example statement_forms -- user@/path/to/socket`, against a server of its own: it
//! makes, fills and drops the schema `spate_forms`.

use std::fmt::Write as _;
use std::time::Instant;

use spate_connection::{ConnectOptions, Connection, Vendor};

/// Rows in the table, and rows that each form changes.
const ROWS: u64 = 400_000;
const CHANGED: u64 = 100_000;

/// Statements on their way at the same time.
const IN_FLIGHT: usize = 3;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let endpoint = std::env::args().nth(1).ok_or("say where the server is: user@/path/to/socket")?.parse()?;
    let mut connection = Connection::connect(&endpoint, &ConnectOptions::new("replica"))?;
    let is_mariadb = connection.server_version().vendor == Vendor::MariaDb;
    connection.execute(b"SET SESSION autocommit=0, foreign_key_checks=0, sql_mode='STRICT_ALL_TABLES'")?;
    for form in FORMS.iter().filter(|form| form.is_for(is_mariadb)) {
        // Many answers at once would fill the socket, and both sides would wait for each other.
        let sizes: &[usize] = if form.name.ends_with("one by one") { &[100] } else { &[100, 1000, 4000] };
        for &rows in sizes {
            let keys = if form.two_keys { 2 } else { 1 };
            fill(&mut connection, keys)?;
            let statements = statements(form, rows);
            let bytes: usize = statements.iter().map(Vec::len).sum();
            let began = Instant::now();
            let affected = send_all(&mut connection, &statements)?;
            connection.execute(b"COMMIT")?;
            let seconds = began.elapsed().as_secs_f64();
            let per_row = seconds * 1e6 / CHANGED as f64;
            #[expect(clippy::print_stdout, reason = "this is what it is for")]
            {
                println!(
                    "{:32} {rows:5} rows: {seconds:6.3} s, {per_row:5.2} µs a row, {affected} affected, {bytes} bytes",
                    form.name
                );
            }
        }
    }
    connection.execute(b"DROP DATABASE spate_forms")?;
    Ok(())
}

struct Form {
    name: &'static str,
    /// The table's key has two columns.
    two_keys: bool,
    mariadb: bool,
    mysql: bool,
    /// Writes a statement for rows with these ids.
    write: fn(&mut String, &[u64]),
}

impl Form {
    fn is_for(&self, is_mariadb: bool) -> bool {
        if is_mariadb { self.mariadb } else { self.mysql }
    }
}

const FORMS: &[Form] = &[
    Form { name: "insert", two_keys: false, mariadb: true, mysql: true, write: insert },
    Form { name: "update, one by one", two_keys: false, mariadb: true, mysql: true, write: update_each },
    Form { name: "update, VALUES(c)", two_keys: false, mariadb: true, mysql: true, write: upsert },
    Form { name: "update, AS new", two_keys: false, mariadb: false, mysql: true, write: upsert_alias },
    Form { name: "update, replace", two_keys: false, mariadb: true, mysql: true, write: replace },
    Form { name: "update, joined values", two_keys: false, mariadb: true, mysql: false, write: update_joined },
    Form { name: "update, joined VALUES ROW", two_keys: false, mariadb: false, mysql: true, write: update_joined_rows },
    Form { name: "delete, IN", two_keys: false, mariadb: true, mysql: true, write: delete_in },
    Form { name: "delete, one by one", two_keys: false, mariadb: true, mysql: true, write: delete_each },
    Form { name: "delete, joined values", two_keys: false, mariadb: true, mysql: false, write: delete_joined },
    Form { name: "delete of two, one by one", two_keys: true, mariadb: true, mysql: true, write: delete_each_of_two },
    Form { name: "delete of two, OR", two_keys: true, mariadb: true, mysql: true, write: delete_or },
    Form { name: "delete of two, row IN", two_keys: true, mariadb: false, mysql: true, write: delete_row_in },
    Form {
        name: "delete of two, joined values",
        two_keys: true,
        mariadb: true,
        mysql: false,
        write: delete_joined_two,
    },
];

fn fill(connection: &mut Connection, keys: u32) -> Result<(), Failure> {
    let key = if keys == 2 { "PRIMARY KEY (a, id)" } else { "PRIMARY KEY (id)" };
    connection.execute(
        format!(
            "CREATE DATABASE IF NOT EXISTS spate_forms; USE spate_forms; DROP TABLE IF EXISTS t; \
             CREATE TABLE t (a INT NOT NULL, id INT NOT NULL, k INT NOT NULL, c CHAR(120) NOT NULL, pad CHAR(60) NOT NULL, \
             {key}, KEY (k)) CHARACTER SET utf8mb4"
        )
        .as_bytes(),
    )?;
    let mut sql = String::from("INSERT INTO t VALUES (1,1,1,'x','y')");
    // Rows that are there: those with even numbers.
    connection.execute(sql.as_bytes())?;
    let mut statements = Vec::new();
    for start in (2..=ROWS).step_by(2000) {
        sql.clear();
        sql.push_str("INSERT INTO t VALUES ");
        for id in (start..(start + 2000).min(ROWS + 1)).step_by(2) {
            let _ = write!(sql, "({},{id},{},'{}','{}'),", id % 7, id * 7919 % ROWS, text(id, 119), text(id + 1, 59));
        }
        sql.pop();
        statements.push(sql.clone().into_bytes());
    }
    send_all(connection, &statements)?;
    connection.execute(b"COMMIT; ANALYZE TABLE t")?;
    Ok(())
}

/// Digits, as sysbench writes them.
fn text(seed: u64, length: usize) -> String {
    let mut text = String::with_capacity(length + 12);
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while text.len() < length {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let _ = write!(text, "{:011}-", (state >> 24) % 100_000_000_000);
    }
    text.truncate(length);
    text
}

/// Every second of the even ids (or, to insert, the odd ones), in order.
fn statements(form: &Form, rows: usize) -> Vec<Vec<u8>> {
    let offset = if form.name == "insert" { 3 } else { 2 };
    let ids: Vec<u64> = (0..CHANGED).map(|number| number * 4 + offset).collect();
    let mut statements = Vec::new();
    for chunk in ids.chunks(rows) {
        let mut sql = String::new();
        (form.write)(&mut sql, chunk);
        if sql.ends_with(';') {
            sql.pop();
        }
        statements.push(sql.into_bytes());
    }
    statements
}

fn send_all(connection: &mut Connection, statements: &[Vec<u8>]) -> Result<u64, Failure> {
    let mut affected = 0;
    for sql in statements {
        while connection.in_flight() >= IN_FLIGHT {
            affected += connection.receive_result()?.affected_rows;
        }
        connection.send_query(sql)?;
    }
    while connection.in_flight() > 0 {
        affected += connection.receive_result()?.affected_rows;
    }
    Ok(affected)
}

fn row(sql: &mut String, id: u64) {
    let _ =
        write!(sql, "{},{id},{},_binary'{}',_binary'{}'", id % 7, id * 31 % ROWS, text(id + 2, 119), text(id + 3, 59));
}

fn rows(sql: &mut String, head: &str, open: &str, ids: &[u64]) {
    sql.push_str(head);
    for &id in ids {
        sql.push_str(open);
        row(sql, id);
        sql.push_str("),");
    }
    sql.pop();
}

fn insert(sql: &mut String, ids: &[u64]) {
    rows(sql, "INSERT INTO t (a,id,k,c,pad) VALUES ", "(", ids);
}

fn replace(sql: &mut String, ids: &[u64]) {
    rows(sql, "REPLACE INTO t (a,id,k,c,pad) VALUES ", "(", ids);
}

fn upsert(sql: &mut String, ids: &[u64]) {
    insert(sql, ids);
    sql.push_str(" ON DUPLICATE KEY UPDATE a=VALUES(a),k=VALUES(k),c=VALUES(c),pad=VALUES(pad)");
}

fn upsert_alias(sql: &mut String, ids: &[u64]) {
    insert(sql, ids);
    sql.push_str(" AS n ON DUPLICATE KEY UPDATE a=n.a,k=n.k,c=n.c,pad=n.pad");
}

fn update_each(sql: &mut String, ids: &[u64]) {
    for &id in ids {
        let _ = write!(
            sql,
            "UPDATE t SET a={},k={},c=_binary'{}',pad=_binary'{}' WHERE id={id};",
            id % 7,
            id * 31 % ROWS,
            text(id + 2, 119),
            text(id + 3, 59)
        );
    }
}

fn joined(sql: &mut String, ids: &[u64], write: impl Fn(&mut String, u64, bool)) {
    sql.push_str("(SELECT ");
    write(sql, ids[0], true);
    if ids.len() > 1 {
        sql.push_str(" UNION ALL VALUES ");
        for &id in &ids[1..] {
            sql.push('(');
            write(sql, id, false);
            sql.push_str("),");
        }
        sql.pop();
    }
    sql.push_str(") AS n");
}

fn update_joined(sql: &mut String, ids: &[u64]) {
    sql.push_str("UPDATE ");
    joined(sql, ids, |sql, id, named| match named {
        true => {
            let (k, c, pad) = (id * 31 % ROWS, text(id + 2, 119), text(id + 3, 59));
            let _ = write!(sql, "{} AS a,{id} AS id,{k} AS k,_binary'{c}' AS c,_binary'{pad}' AS pad", id % 7);
        }
        false => row(sql, id),
    });
    sql.push_str(" STRAIGHT_JOIN t ON t.id=n.id SET t.a=n.a,t.k=n.k,t.c=n.c,t.pad=n.pad");
}

fn update_joined_rows(sql: &mut String, ids: &[u64]) {
    rows(sql, "UPDATE (VALUES ", "ROW(", ids);
    sql.push_str(") AS n(a,id,k,c,pad) STRAIGHT_JOIN t ON t.id=n.id SET t.a=n.a,t.k=n.k,t.c=n.c,t.pad=n.pad");
}

fn delete_in(sql: &mut String, ids: &[u64]) {
    sql.push_str("DELETE FROM t WHERE id IN (");
    for id in ids {
        let _ = write!(sql, "{id},");
    }
    sql.pop();
    sql.push(')');
}

fn delete_each(sql: &mut String, ids: &[u64]) {
    for id in ids {
        let _ = write!(sql, "DELETE FROM t WHERE id={id};");
    }
}

fn delete_each_of_two(sql: &mut String, ids: &[u64]) {
    for id in ids {
        let _ = write!(sql, "DELETE FROM t WHERE a={} AND id={id};", id % 7);
    }
}

fn delete_joined(sql: &mut String, ids: &[u64]) {
    sql.push_str("DELETE t FROM ");
    joined(sql, ids, |sql, id, named| {
        let _ = write!(sql, "{id}{}", if named { " AS id" } else { "" });
    });
    sql.push_str(" STRAIGHT_JOIN t ON t.id=n.id");
}

fn delete_joined_two(sql: &mut String, ids: &[u64]) {
    sql.push_str("DELETE t FROM ");
    joined(sql, ids, |sql, id, named| match named {
        true => {
            let _ = write!(sql, "{} AS a,{id} AS id", id % 7);
        }
        false => {
            let _ = write!(sql, "{},{id}", id % 7);
        }
    });
    sql.push_str(" STRAIGHT_JOIN t ON t.a=n.a AND t.id=n.id");
}

fn delete_or(sql: &mut String, ids: &[u64]) {
    sql.push_str("DELETE FROM t WHERE ");
    for id in ids {
        let _ = write!(sql, "(a={} AND id={id}) OR ", id % 7);
    }
    sql.truncate(sql.len() - " OR ".len());
}

fn delete_row_in(sql: &mut String, ids: &[u64]) {
    sql.push_str("DELETE FROM t WHERE (a,id) IN (");
    for id in ids {
        let _ = write!(sql, "({},{id}),", id % 7);
    }
    sql.pop();
    sql.push(')');
}
