//! Consecutive jobs, many in a packet, where one executor applies in order.

use std::collections::VecDeque;
use std::time::Duration;

use spate_archive::stopping_point;
use spate_replica::gtids::GtidKeeping;
use spate_replica::{Result, spread};

use super::{Executor, Statements};
use crate::Part;
use crate::concurrent::jobs::RUN_JOBS_MAX;
use crate::concurrent::pool::Turn;

/// While the server executes one packet of a run, it has the next.
const PACKETS_IN_FLIGHT: usize = 2;

/// Statements of a packet. The sequence numbers of their answers must not begin again: the answer to the next packet would be taken for theirs if a server
/// left off.
const STATEMENTS_MAX: usize = 200;

/// With so many jobs to do, the server is not waited for, but looked at from time to time.
const MANY: usize = 8;

/// How often is looked: several jobs take as long, and nobody waits for the news.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Several jobs.
#[derive(Debug, Default)]
struct Packet {
    statements: Statements,
    /// What commits each of them.
    commits: Vec<Commit>,
}

#[derive(Debug)]
struct Commit {
    /// The number of the statement, of which the first is 1.
    at: usize,
    /// The statement before it writes the position, and tells whether it did.
    is_told: bool,
    net_row_changes: u64,
}

impl Executor<'_> {
    /// Consecutive jobs, when it is their turn, and those that come behind them meanwhile. Each is a transaction of its own, but many are in a packet, and
    /// while the server executes one packet, it has the next. Nothing of what is behind one that fails takes effect: the server refuses to write its position.
    pub(super) fn apply_run(&mut self, run: Vec<Part>) -> Result<()> {
        let (pool, number) = (self.hand.pool, self.hand.number);
        loop {
            match pool.wait_run(number, &run) {
                Turn::Commit => break,
                Turn::Ping => self.ping()?,
                Turn::RollBack | Turn::End => return Ok(()),
            }
        }
        let mut end = run.last().map_or(0, |part| part.reached.seqno);
        let (mut jobs, mut packets, mut sent) = (VecDeque::from(run), VecDeque::new(), 0);
        while !pool.is_over() {
            while packets.len() < PACKETS_IN_FLIGHT {
                if sent == jobs.len() {
                    let Some(run) = pool.next_run(number, end) else { break };
                    end = run.last().map_or(end, |part| part.reached.seqno);
                    jobs.extend(run);
                }
                let packet = self.packet_of(jobs.range(sent..), sent > 0)?;
                if packet.commits.is_empty() {
                    break;
                }
                self.connection()?.send_statements(&packet.statements.sql, packet.statements.count)?;
                stopping_point("after-commit-sent");
                sent += packet.commits.len();
                packets.push_back(packet);
            }
            let Some(packet) = packets.pop_front() else {
                // What takes more than a packet.
                let Some(job) = jobs.pop_front() else { return Ok(()) };
                self.apply(&job)?;
                continue;
            };
            let committed = self.receive_packet(jobs.range(..packet.commits.len()), &packet)?;
            jobs.drain(..committed);
            sent -= committed;
            if committed < packet.commits.len() {
                self.roll_back()?;
                packets.clear();
                sent = 0;
                jobs.pop_front().map_or(Ok(()), |refused| self.apply(&refused))?;
            }
        }
        Ok(())
    }

    /// The first of these jobs, with what commits each. `is_behind`: another packet is not answered yet.
    fn packet_of<'p>(&mut self, jobs: impl Iterator<Item = &'p Part>, is_behind: bool) -> Result<Packet> {
        let mut packet = Packet::default();
        if is_behind && self.hand.gtids == GtidKeeping::Own {
            // Its last COMMIT may have been interrupted. (A GTID is refused within a transaction.)
            packet.statements.add(Some("ROLLBACK"));
        }
        let mut gtid = None;
        for part in jobs.take(RUN_JOBS_MAX) {
            let Some(end) = &part.end else { break };
            self.connect_for(part)?;
            // The first one looks where the replica is.
            let is_first = packet.commits.is_empty();
            let own = if is_first || !self.counts_in_rows() { None } else { end.checkpoint.update_row() };
            let encoded = self.encode(part, own)?;
            if !encoded.is_one_packet() || !is_first && encoded.has_own != self.counts_in_rows() {
                break;
            }
            let mut own = Statements::default();
            for sql in self.hand.gtids.next_sql(part.gtid(), gtid) {
                own.add(Some(&sql));
            }
            own.execute(&encoded.executions);
            if !encoded.has_own {
                own.add(Some(&end.checkpoint.update_sql(&part.from)));
            }
            own.add(Some("COMMIT"));
            let bytes = packet.statements.sql.len() + own.sql.len();
            let count = packet.statements.count + own.count;
            if bytes >= self.hand.encoder.max_allowed_packet() || !packet.commits.is_empty() && count > STATEMENTS_MAX {
                break;
            }
            gtid = part.gtid();
            packet.statements.append(&own.sql, own.count);
            packet.commits.push(Commit {
                at: packet.statements.count,
                is_told: !encoded.has_own,
                net_row_changes: encoded.net_row_changes,
            });
        }
        stopping_point("before-commit");
        Ok(packet)
    }

    /// Returns how many jobs were committed: fewer than the packet has, if the server has refused one.
    fn receive_packet<'p>(&mut self, jobs: impl Iterator<Item = &'p Part>, packet: &Packet) -> Result<usize> {
        let pool = self.hand.pool;
        let connection = self.connection()?;
        let peer = connection.peer().clone();
        let mut left = packet.commits.len();
        let (mut committed, mut untold) = (0, Vec::new());
        for (part, commit) in jobs.zip(&packet.commits) {
            if !connection.has_buffered_packet() && (left >= MANY || connection.in_flight() > 1) {
                // The server has enough to do: its answers wake nobody.
                if !untold.is_empty() {
                    pool.commit_all(untold.drain(..));
                }
                std::thread::sleep(LOOK_EVERY);
            }
            left -= 1;
            let answer = connection.receive_statements(commit.at - 1).and_then(|position| {
                if left == 0 {
                    connection.receive_result()?;
                } else {
                    connection.receive_statements(commit.at)?;
                }
                Ok(position)
            });
            match answer {
                // A server of MySQL executes nothing of a transaction whose GTID it has already, and says that all is well.
                Ok(position) if commit.is_told && position.affected_rows == 0 => {
                    return Err(spread::not_executed(&peer, &part.place));
                }
                Ok(_) => {}
                Err(error) if error.server_error().is_some() => break,
                Err(error) => return Err(error.into()),
            }
            stopping_point("after-commit");
            committed += 1;
            untold.push((part, commit.net_row_changes));
        }
        pool.commit_all(untold);
        Ok(committed)
    }
}
