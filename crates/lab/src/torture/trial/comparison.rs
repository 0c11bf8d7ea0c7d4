//! The comparison at a trial's end: of the replicas with each other if both are at one position, otherwise with the
//! source.

use super::Trial;
use crate::Result;
use crate::binlog_format::Format;
use crate::native::NativeState;
use crate::position;
use crate::torture::judge::{Finding, Judgement, judge, named_transaction};
use crate::torture::picture::{self, Class, Picture};
use crate::torture::shared_picture;
use crate::torture::step::{Action, Step};

impl Trial<'_> {
    /// Compares, if both have reached the end, or both have stopped before the same transaction.
    pub(super) fn compare(&mut self, native: &NativeState) -> Result<()> {
        match &native.error {
            Some(error) => self.compare_with_stopped(native, error),
            None if self.result.findings.is_empty() => self.compare_replicas(),
            None => Ok(()),
        }
    }

    /// If the native replica has stopped, Spate may stop there too.
    fn compare_with_stopped(&mut self, native: &NativeState, error: &str) -> Result<()> {
        let note = format!("native stopped at {}: {error}", native.position);
        // A stop at an earlier transaction has another cause than native's.
        let is_stop = |finding: &Finding| match finding {
            Finding::Stopped { output } => {
                named_transaction(output).is_none_or(|gtid| !position::has_reached(&native.position, gtid))
            }
            finding => matches!(finding, Finding::Stuck { .. }),
        };
        let stops: Vec<Finding> = self.result.findings.extract_if(.., |finding| is_stop(finding)).collect();
        self.result.has_excused_stop = !stops.is_empty();
        if !self.result.findings.is_empty() {
            self.result.notes.push(note);
            return Ok(());
        }
        let have_stopped = !native.stands_still && matches!(stops.as_slice(), [Finding::Stopped { .. }]);
        if have_stopped && self.is_applied_exactly(&native.position)? {
            self.result.notes.push(format!("both stopped alike, where they are compared: {note}"));
            return self.compare_replicas();
        }
        self.result.notes.push(note);
        if !stops.is_empty() {
            self.result.notes.extend(stops.iter().map(|stop| format!("so did Spate: {}", stop.headline())));
            return Ok(());
        }
        // The only oracle left is the source.
        let source = picture::take(&self.servers.source)?;
        let judgement = judge(&source, &source, &self.picture_of_replica(picture::take)?, self.was_killed());
        self.result.notes.extend(judgement.findings.iter().map(|finding| format!("unproven: {}", finding.headline())));
        Ok(())
    }

    /// True if Spate's replica is at this position, with all of its appliers. (A Spate that has stopped no longer answers.)
    fn is_applied_exactly(&self, end: &str) -> Result<bool> {
        let kept = self.servers.replica.connect()?.value::<String>(
            "SELECT IF(COUNT(DISTINCT gtid_position) = 1, MAX(gtid_position), '') FROM spate.checkpoint",
        );
        let applied = kept.unwrap_or_default();
        Ok(position::has_reached(&applied, end) && position::has_reached(end, &applied))
    }

    /// Compares Spate's replica, and the one that follows it, with the native one.
    fn compare_replicas(&mut self) -> Result<()> {
        let Some(native) = &self.servers.native else { return Ok(()) };
        let native = picture::take(native)?;
        let spate = self.picture_of_replica(picture::take)?;
        // Replicas with changes by hand differ from their source, and a stopped replica is behind it.
        let are_changed = self.result.steps.iter().any(|step| matches!(step.action, Action::OnReplicas(_)));
        let is_other = are_changed || self.result.has_excused_stop;
        let source = if is_other { native.clone() } else { picture::take(&self.servers.source)? };
        // No server rolls back a counter that a failed statement has raised.
        let was_raised = self.was_killed() || self.result.has_excused_stop;
        let judgement = judge(&source, &native, &spate, was_raised);
        self.take(judgement);
        self.result.has_oracle = true;
        if self.result.has_excused_stop && self.servers.downstream.is_some() {
            let end = self.servers.replica.logged_position()?;
            self.links[1].start()?;
            self.wait_for_link(1, &end);
        }
        match self.result.findings.is_empty() {
            true => self.compare_downstream(&spate, &native, was_raised),
            false => Ok(()),
        }
    }

    fn compare_downstream(&mut self, spate: &Picture, native: &Picture, was_raised: bool) -> Result<()> {
        let Some(downstream) = &self.servers.downstream else { return Ok(()) };
        // What its own source is like was judged just now. That logs what statements do as rows, which say nothing of
        // values that these have used up.
        let is_told = |class: Class| self.settings.format == Format::Row || class != Class::Counter;
        let told = |picture: &Picture| {
            let mut picture = picture.clone();
            picture.retain(|(class, _), _| is_told(*class));
            let definitions = picture.iter_mut().filter(|((class, _), _)| *class == Class::Definition);
            definitions.flat_map(|(_, lines)| lines).for_each(|line| *line = without_charset(line));
            picture
        };
        let judgement = judge(&told(spate), &told(native), &told(&picture::take(downstream)?), was_raised);
        self.take(judgement.of_server("the replica's replica"));
        Ok(())
    }

    /// Between vendors there is no other oracle than the source itself.
    pub(super) fn compare_with_source(&mut self) -> Result<()> {
        if !self.result.findings.is_empty() {
            return Ok(());
        }
        let source = shared_picture::take(&self.servers.source)?;
        let spate = self.picture_of_replica(shared_picture::take)?;
        self.take(judge(&source, &source, &spate, false));
        Ok(())
    }

    fn was_killed(&self) -> bool {
        self.result.steps.iter().any(Step::is_failure)
    }

    fn take(&mut self, judgement: Judgement) {
        self.result.findings.extend(judgement.findings);
        self.result.notes.extend(judgement.notes);
    }
}

/// A column's definition without the character set that its collation tells: CREATE TABLE … SELECT is logged with both.
fn without_charset(line: &str) -> String {
    const WORDS: &str = " CHARACTER SET ";
    let Some((before, rest)) = line.split_once(WORDS) else { return line.to_owned() };
    match rest.split_once(' ') {
        Some((_, behind)) if behind.starts_with("COLLATE ") => format!("{before} {behind}"),
        _ => line.to_owned(),
    }
}
