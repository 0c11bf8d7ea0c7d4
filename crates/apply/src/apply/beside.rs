//! What the replica executes while it executes a definition: rows of other tables, which are committed behind it, or not at all.

use std::time::Duration;

use spate_archive::stopping_point;
use spate_replica::Result;
use spate_replica::applier_lock::PING_EVERY;

use super::Applier;
use crate::command::Command;

/// So long an applier waits, while the replica executes a definition, for what can be executed beside it.
const BESIDE_WAIT: Duration = Duration::from_micros(300);

/// A definition that takes longer may wait for what was executed beside it, which is then undone.
const BESIDE_MAX: Duration = Duration::from_millis(500);

impl Applier<'_> {
    /// While the replica executes a definition, has it execute what will be committed behind that, if it is of other tables.
    pub(super) fn execute_beside(&mut self) -> Result<()> {
        if self.tools.repairer.is_some() || self.batch.has_foreign_sql {
            return Ok(());
        }
        let mut next = self.input.recv_timeout(BESIDE_WAIT).ok();
        if let Some(Command::Commit(commit)) = &mut next
            && commit.is_beside
        {
            // Kept, in case it must be executed again.
            let (mut sql, mut statements) = (commit.sql.clone(), commit.statements - 1);
            statements += self.add_note(commit.note.as_deref(), &mut sql)?;
            // The last semicolon would begin an empty statement.
            sql.pop();
            if statements > 0 {
                self.sessions.main().send_statements(&sql, statements)?;
                commit.is_sent = true;
                stopping_point("beside-definition");
            }
        }
        self.next = next;
        Ok(())
    }

    /// Waits for the answer of a definition. What is executed beside it is undone if it takes long, in case it waits for that, and
    /// if it fails.
    pub(super) fn receive_definition(&mut self) -> Result<spate_connection::Result<()>> {
        loop {
            let is_beside = matches!(&self.next, Some(Command::Commit(commit)) if commit.is_sent);
            let definer = self.sessions.definer()?;
            definer.set_read_timeout(Some(if is_beside { BESIDE_MAX } else { PING_EVERY }))?;
            let answer = definer.receive_result().map(drop);
            // Whatever the session is told or asked next may take its time.
            definer.set_read_timeout(None)?;
            if answer.is_ok() {
                return Ok(answer);
            }
            let is_late = matches!(answer, Err(spate_connection::Error::Timeout { .. }));
            match is_beside {
                true => self.undo_beside()?,
                // The server ends sessions that rest.
                false if is_late => drop(self.sessions.main().execute(b"DO 0")?),
                false => {}
            }
            if !is_late {
                return Ok(answer);
            }
        }
    }

    /// Rolls back what was executed beside a definition; it is executed again behind it.
    fn undo_beside(&mut self) -> Result<()> {
        let Some(Command::Commit(commit)) = &mut self.next else { return Ok(()) };
        if !std::mem::take(&mut commit.is_sent) {
            return Ok(());
        }
        let main = self.sessions.main();
        match main.receive_result() {
            // Whatever is wrong with it, it is again when it is executed again.
            Err(error) if error.server_error().is_none() => return Err(error.into()),
            _ => {}
        }
        main.execute(b"ROLLBACK")?;
        Ok(())
    }
}
