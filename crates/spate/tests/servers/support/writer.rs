//! A busy source: several connections that insert, update, delete, move keys and unique values, each from its own seed.

use std::io::Write;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use super::{Random, Server};

/// Keys are few, so that transactions meet.
const KEYS: u64 = 300;

/// The tables that writers write to. `journal` only grows and counts; `trail` only grows and has no key, so a change that
/// is applied twice shows.
pub const TABLES: &str = "CREATE DATABASE busy; USE busy; \
    CREATE TABLE account (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, balance INT NOT NULL, note TEXT, UNIQUE (name)); \
    CREATE TABLE pair (a VARCHAR(20) NOT NULL, b INT NOT NULL, value BIGINT, at TIMESTAMP(6) NULL, PRIMARY KEY (a, b), \
        KEY (value)) COLLATE utf8mb4_general_ci; \
    CREATE TABLE slot (id INT AUTO_INCREMENT PRIMARY KEY, place INT NULL, owner INT NOT NULL, UNIQUE (place)); \
    CREATE TABLE journal (id BIGINT AUTO_INCREMENT PRIMARY KEY, writer INT NOT NULL, step INT NOT NULL, \
        UNIQUE (writer, step)); \
    CREATE TABLE trail (writer INT NOT NULL, step INT NOT NULL);";

/// Connections that write until they are told to stop.
pub struct Writers {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<u64>>,
}

impl Writers {
    /// Begins to write on `source` over `count` connections.
    pub fn start(source: &Server, count: u64, seed: u64) -> Writers {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..count).map(|writer| {
            // Deadlocks among writers are part of the game.
            let client = source
                .client()
                .arg("--force")
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::null())
                .spawn();
            let (client, stop) = (client.unwrap(), Arc::clone(&stop));
            thread::spawn(move || write_until(&stop, client, writer, Random::new(seed ^ (writer << 32))))
        });
        let threads = threads.collect();
        Writers { stop, threads }
    }

    /// Lets the writers end what they are at; returns the number of transactions they sent.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    }
}

fn write_until(stop: &AtomicBool, mut client: Child, writer: u64, mut random: Random) -> u64 {
    let mut input = client.stdin.take().unwrap();
    let mut is_open = input.write_all(b"USE busy;\n").is_ok();
    let mut step = 0;
    while is_open && !stop.load(Ordering::Acquire) {
        step += 1;
        is_open = input.write_all(transaction(&mut random, writer, step).as_bytes()).is_ok();
    }
    drop(input);
    client.wait().unwrap();
    step
}

fn transaction(random: &mut Random, writer: u64, step: u64) -> String {
    let mut sql = String::from("BEGIN;");
    for _ in 0..=random.below(5) {
        sql.push_str(&change(random));
        sql.push(';');
    }
    sql.push_str(&format!(
        "INSERT INTO journal (writer, step) VALUES ({writer}, {step}); INSERT INTO trail VALUES ({writer}, {step});"
    ));
    sql.push_str(if random.below(20) == 0 { "ROLLBACK;\n" } else { "COMMIT;\n" });
    sql
}

fn change(random: &mut Random) -> String {
    let (key, other) = (random.below(KEYS), random.below(KEYS));
    let number = random.below(1_000_000);
    match random.below(12) {
        0 | 1 => {
            format!("INSERT IGNORE INTO account VALUES ({key}, 'n{other}', {number}, REPEAT('x', {}))", number % 200)
        }
        2 => format!("UPDATE account SET balance = balance + {number} WHERE id BETWEEN {key} AND {}", key + 5),
        3 => format!("DELETE FROM account WHERE id = {key}"),
        4 => format!("UPDATE IGNORE account SET id = {other} WHERE id = {key}"),
        // A unique value that moves from one row to another.
        5 => format!(
            "DELETE FROM account WHERE id = {key}; UPDATE IGNORE account SET name = 'n{key}' WHERE id = {other}; \
             INSERT IGNORE INTO account VALUES ({key}, 'n{other}', 0, NULL)"
        ),
        6 => format!("REPLACE INTO pair VALUES (ELT(1 + {key} % 4, 'ä', 'A', 'a ', 'b'), {other}, {number}, NOW(6))"),
        7 => format!("UPDATE IGNORE pair SET b = {key}, value = value + 1 WHERE b = {other}"),
        8 => format!("INSERT IGNORE INTO slot (place, owner) VALUES ({key}, {number})"),
        9 => format!(
            "UPDATE slot SET place = NULL WHERE place = {key}; UPDATE IGNORE slot SET place = {key} WHERE place = {other}"
        ),
        10 => format!("DELETE FROM slot WHERE place = {key}"),
        _ => format!("DELETE FROM pair WHERE b = {key}"),
    }
}
