//! What a server counts, and how far it has come as a replica.

use std::collections::BTreeMap;

use super::Look;
use super::series::Recorder;
use crate::position::transactions;
use crate::process::Stat;
use crate::sandbox::Sandbox;
use crate::sql::Session;
use crate::vendor::Vendor;
use crate::{Error, Result};

/// How a variable of the status changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It only grows.
    Counter,
    /// It is as it is.
    Gauge,
}

/// The variables that are asked for, with their names in series and the number by which they are divided.
const VARIABLES: [(&str, &str, &str, Kind, f64); 16] = [
    ("Handler_commit", "commits", "per second", Kind::Counter, 1.0),
    ("Binlog_commits", "binlog commits", "per second", Kind::Counter, 1.0),
    ("Binlog_group_commits", "binlog group commits", "per second", Kind::Counter, 1.0),
    ("Handler_write", "rows written", "per second", Kind::Counter, 1.0),
    ("Handler_update", "rows updated", "per second", Kind::Counter, 1.0),
    ("Handler_delete", "rows deleted", "per second", Kind::Counter, 1.0),
    ("Innodb_data_reads", "InnoDB reads", "per second", Kind::Counter, 1.0),
    ("Innodb_data_writes", "InnoDB writes", "per second", Kind::Counter, 1.0),
    ("Innodb_os_log_written", "redo log", "MB/s", Kind::Counter, 1e6),
    ("Innodb_buffer_pool_pages_data", "buffer pool filled", "thousand pages", Kind::Gauge, 1e3),
    ("Innodb_buffer_pool_pages_dirty", "buffer pool dirty", "thousand pages", Kind::Gauge, 1e3),
    ("Innodb_row_lock_waits", "row lock waits", "per second", Kind::Counter, 1.0),
    ("wsrep_flow_control_paused_ns", "flow control paused", "% of the time", Kind::Counter, 1e7),
    ("wsrep_local_recv_queue", "receive queue", "write sets", Kind::Gauge, 1.0),
    ("wsrep_local_cert_failures", "certification failures", "per second", Kind::Counter, 1.0),
    ("wsrep_local_bf_aborts", "brute force aborts", "per second", Kind::Counter, 1.0),
];

/// MariaDB's threads have one name for the system, so it is asked which of them replicate. (MySQL tells that only with its performance schema, which
/// is off here.)
const REPLICATION_THREADS: &str =
    "SELECT TID, COMMAND FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Slave%' OR COMMAND = 'Binlog Dump'";

pub(super) struct ServerCounters {
    name: String,
    vendor: Vendor,
    process: u32,
    ticks_per_second: f64,
    /// `None` after an error: what it had asked may still be answered, to another question.
    session: Option<Session>,
    question: String,
}

impl ServerCounters {
    pub(super) fn new(name: &str, server: &Sandbox) -> Result<ServerCounters> {
        let names: Vec<String> = VARIABLES.iter().map(|(variable, ..)| format!("'{variable}'")).collect();
        let question = format!("SHOW GLOBAL STATUS WHERE Variable_name IN ({})", names.join(", "));
        Ok(ServerCounters {
            name: name.to_owned(),
            vendor: server.vendor(),
            process: server.process().id,
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            session: Some(server.connect_to_look()?),
            question,
        })
    }

    /// Processor time of the threads that replicate, by what they do.
    fn replication_threads(&mut self, recorder: &mut Recorder) {
        let Some(session) = self.session.as_mut().filter(|_| self.vendor == Vendor::MariaDb) else { return };
        let Ok(threads) = session.rows::<(u32, String)>(REPLICATION_THREADS) else {
            self.session = None;
            return;
        };
        let mut by_role: BTreeMap<String, u64> = BTreeMap::new();
        for (thread, role) in threads {
            if let Some(stat) = Stat::read(&format!("/proc/{}/task/{thread}/stat", self.process)) {
                *by_role.entry(role).or_default() += stat.cpu_ticks;
            }
        }
        for (role, ticks) in by_role {
            let name = format!("{} thread {role} processor", self.name);
            recorder.young_counter(&name, "cores", ticks as f64 / self.ticks_per_second);
        }
    }

    /// Transactions that the server has applied: by its own replication, or by Spate.
    fn applied(&mut self) -> Option<u64> {
        let spate = "SELECT gtid_position FROM spate.checkpoint WHERE applier = 0";
        let session = self.session.as_mut()?;
        let by_spate: Result<String> = session.value(spate);
        if by_spate.as_ref().is_err_and(Error::is_of_connection) {
            self.session = None;
            return None;
        }
        let position = by_spate.ok().or_else(|| self.vendor.applied_position(session).ok())?;
        Some(transactions(&position))
    }
}

impl Look for ServerCounters {
    fn look(&mut self, recorder: &mut Recorder) {
        let Some(session) = self.session.as_mut() else { return };
        let Ok(rows) = session.rows::<(String, String)>(&self.question) else {
            self.session = None;
            return;
        };
        for (variable, value) in rows {
            let known = VARIABLES.iter().find(|(name, ..)| name.eq_ignore_ascii_case(&variable));
            let (Some(&(_, name, unit, kind, divisor)), Ok(value)) = (known, value.parse::<f64>()) else { continue };
            let name = format!("{} {name}", self.name);
            match kind {
                Kind::Counter => recorder.counter(&name, unit, value / divisor),
                Kind::Gauge => recorder.gauge(&name, unit, value / divisor),
            }
        }
        self.replication_threads(recorder);
        if let Some(applied) = self.applied().filter(|_| self.name != "source") {
            recorder.counter(&format!("{} applied", self.name), "transactions per second", applied as f64);
        }
    }
}
