//! A fake replica, which keeps what a server would keep over a crash, and a fake worker, which applies parts to it in the order of the
//! real one's steps.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use spate_apply::halt::{Halt, Result as HaltResult};
use spate_apply::plan::SessionPlan;
use spate_apply::repair::RepairScope;
use spate_apply::settle::NotedReplica;
use spate_apply::{Definitions, Dispatch, Pace, Part, PartEnd, Reading};
use spate_binlog::{
    EventHeader, EventType, FormatDescription, Gtid, ImagePlan, RowsEvent, RowsKind, RowsVersion, TableMap,
};
use spate_connection::ServerVersion;
use spate_replica::checkpoint::Checkpoint;
use spate_replica::journal::{Finding, Intent, IntentKind, Note};
use spate_replica::others::Noticed;
use spate_replica::reached::Reached;
use spate_replica::{Error, Result};
use spate_schedule::definition::ColumnDefinition;
use spate_schedule::emit::ChunkWriter;
use spate_schedule::outdated::Outdated;
use spate_schedule::segment::Segment;
use spate_schedule::versioning::LastMoment;
use spate_schedule::{Alone, Item, TableDefinition, TableName};
use spate_sql::Server;

use super::source::{FakeSource, Tables, tables};
use super::{lost, refusal};

const VERSION: &str = "10.11.19-MariaDB-log";

/// What a server keeps over a crash.
pub(super) struct FakeReplica {
    committed: Tables,
    definitions: Vec<String>,
    statements: Vec<String>,
    /// Prepared XA transactions, and what each would change.
    prepared: BTreeMap<String, Changes>,
    pub(super) checkpoint: Checkpoint,
    pub(super) note: Option<Note>,
}

/// Changes that can be rolled back.
#[derive(Debug, Clone, Default)]
struct Changes {
    rows: Vec<Change>,
    statements: Vec<String>,
}

#[derive(Debug, Clone)]
struct Change {
    table: String,
    kind: RowsKind,
    before: (i32, Option<i32>),
    after: (i32, i32),
}

impl FakeReplica {
    pub(super) fn new() -> FakeReplica {
        FakeReplica {
            committed: tables(),
            definitions: Vec::new(),
            statements: Vec::new(),
            prepared: BTreeMap::new(),
            checkpoint: Checkpoint::default(),
            note: None,
        }
    }

    pub(super) fn put(&mut self, table: &str, id: i32, value: i32) {
        self.committed.get_mut(table).unwrap().insert(id, value);
    }

    pub(super) fn remove(&mut self, table: &str, id: i32) {
        self.committed.get_mut(table).unwrap().remove(&id);
    }

    /// In words, whether everything is as on the source.
    pub(super) fn compare(&self, source: &FakeSource) -> String {
        let at = self.checkpoint.seqno;
        match () {
            () if self.note.is_some() => format!("at {at}, with a note"),
            () if self.definitions != source.definitions => format!("at {at}, definitions: {:?}", self.definitions),
            () if self.statements != source.statements => format!("at {at}, statements: {:?}", self.statements),
            () if self.committed != source.tables => {
                let count = |tables: &Tables| tables.values().map(BTreeMap::len).sum::<usize>();
                format!("at {at}, rows: {} here, {} on the source", count(&self.committed), count(&source.tables))
            }
            () if !self.prepared.is_empty() => format!("at {at}, prepared: {:?}", self.prepared.keys()),
            () => format!("at {at}, identical"),
        }
    }
}

impl NotedReplica for FakeReplica {
    fn version(&self) -> ServerVersion {
        ServerVersion::parse(VERSION)
    }

    fn peer(&self) -> String {
        "replica fake".to_owned()
    }

    fn keep_alive(&mut self) -> Result<()> {
        Ok(())
    }

    fn look(&mut self, intent: &Intent) -> Result<Finding> {
        let xid = String::from_utf8_lossy(&intent.statement).into_owned();
        let found = |is_done| if is_done { Finding::Done } else { Finding::NotDone };
        Ok(match intent.kind {
            IntentKind::Definition | IntentKind::CreateSelect => {
                found(intent.fingerprint != fingerprint(&self.definitions))
            }
            IntentKind::XaPrepare => found(self.prepared.contains_key(&xid)),
            IntentKind::XaEnd => found(!self.prepared.contains_key(&xid)),
            IntentKind::IrrevocableRows => Finding::Repairable,
            IntentKind::Irrevocable => Finding::Unknown,
        })
    }

    fn give_to_creator(&mut self, _intent: &Intent) -> Result<()> {
        Ok(())
    }

    fn accept(&mut self, from: &Checkpoint, intent: &Intent) -> Result<Checkpoint> {
        assert_eq!(self.checkpoint, *from, "the checkpoint moves only from where it is");
        self.checkpoint = intent.checkpoint.clone();
        self.note = None;
        Ok(intent.checkpoint.clone())
    }

    fn forget(&mut self) -> Result<()> {
        self.note = None;
        Ok(())
    }
}

/// Of the objects that a definition names.
fn fingerprint(definitions: &[String]) -> String {
    format!("{:x}", definitions.len())
}

/// What happens when the worker comes to a point.
pub(super) struct Interruption {
    pub(super) point: String,
    pub(super) seqno: u64,
    /// The program is killed; else it loses its connection.
    pub(super) is_crash: bool,
    /// A COMMIT that was sent arrives.
    pub(super) is_kept: bool,
}

/// Applies parts.
pub(super) struct FakeWorker<'a> {
    replica: &'a mut FakeReplica,
    interruptions: &'a mut Vec<Interruption>,
    /// Parts of statements that are refused.
    refused: &'a [String],
    plan: &'a SessionPlan,
    reached: &'a Reached,
    text: &'a mut String,
    /// What the open transaction has changed.
    open: Changes,
    /// The tables as the open transaction sees them. `None`: it has changed nothing.
    view: Option<Tables>,
    /// Where the replica is before the open batch.
    from: Checkpoint,
    pub(super) is_crashed: bool,
    pub(super) failed: Option<Error>,
    pub(super) last_handed: u64,
    pub(super) last_applied: u64,
}

/// The process is killed, or the session ends.
struct Interrupted;

type Step<T> = std::result::Result<T, Interrupted>;

impl<'a> FakeWorker<'a> {
    pub(super) fn new(
        replica: &'a mut FakeReplica,
        interruptions: &'a mut Vec<Interruption>,
        refused: &'a [String],
        plan: &'a SessionPlan,
        reached: &'a Reached,
        text: &'a mut String,
    ) -> FakeWorker<'a> {
        let from = replica.checkpoint.clone();
        FakeWorker {
            replica,
            interruptions,
            refused,
            plan,
            reached,
            text,
            open: Changes::default(),
            view: None,
            from,
            is_crashed: false,
            failed: None,
            last_handed: 0,
            last_applied: 0,
        }
    }

    fn fail(&mut self, error: Error) -> Interrupted {
        self.failed = Some(error);
        Interrupted
    }

    /// Comes to a named point with everything up to `seqno`.
    fn point(&mut self, point: &str, seqno: u64) -> Step<()> {
        let found = self.interruptions.iter().position(|at| at.point == point && at.seqno <= seqno);
        let Some(found) = found else { return Ok(()) };
        let interruption = self.interruptions.remove(found);
        let _ = writeln!(self.text, "  {} at {point}", if interruption.is_crash { "killed" } else { "disconnected" });
        match interruption.is_crash {
            true => self.is_crashed = true,
            false => self.failed = Some(lost()),
        }
        Err(Interrupted)
    }

    fn part(&mut self, part: &Part) -> Step<()> {
        let reached = part.reached.seqno;
        let first = part.end.as_ref().map_or(reached, |end| *end.seqnos().start());
        let counted = part.batch.statistics.row_changes;
        let segments = part.batch.items.iter().filter_map(|item| match item {
            Item::Rows(segment) => Some(changes(segment).len()),
            _ => None,
        });
        let net: usize = segments.sum();
        let _ = writeln!(self.text, "{first}-{reached}: {counted} row changes, {net} net{}", said(part));
        self.point("after-gathering", reached)?;
        let intent = part.intent_kind();
        if let Some(kind) = intent {
            self.point("before-intent", reached)?;
            self.replica.note = Some(Note::of(&part.intent(kind), fingerprint(&self.replica.definitions)));
            self.point("after-intent", reached)?;
        }
        for item in &part.batch.items {
            match item {
                Item::Rows(segment) => self.segment(segment, part)?,
                Item::Statement(statement) => {
                    let sql = String::from_utf8(statement.sql.clone()).unwrap();
                    self.statement(sql, part)?;
                }
                Item::Undo => (self.open, self.view) = (Changes::default(), None),
                Item::SourceRestarted | Item::LoadBlock(_) | Item::Sequence(_) => {}
            }
            self.point("between-statements", reached)?;
        }
        match &part.end {
            Some(end) => self.end(part, end, intent.is_some()),
            None => Ok(()),
        }
    }

    fn statement(&mut self, sql: String, part: &Part) -> Step<()> {
        if self.refused.iter().any(|refused| sql.contains(refused)) {
            let source = refusal(1105, "it is refused");
            let error = match self.plan.one_by_one {
                true => Error::Change { has_shares: false, place: part.place.clone(), change: sql, source, advice: "" },
                false => Error::Batch { source },
            };
            return Err(self.fail(error));
        }
        match &part.batch.alone {
            Some(Alone::Definition) => self.replica.definitions.push(sql),
            Some(Alone::XaEnd(xid)) => {
                let changes = self.replica.prepared.remove(&xid.to_string()).expect("it is prepared");
                self.commit(changes);
            }
            // A statement of tables that cannot roll back stays at once.
            Some(Alone::Irrevocable) => self.replica.statements.push(sql),
            _ => self.open.statements.push(sql),
        }
        Ok(())
    }

    fn segment(&mut self, segment: &Segment, part: &Part) -> Step<()> {
        for change in changes(segment) {
            if let Err(code) = self.row(&change) {
                let source = refusal(code, "the row does not fit");
                let what = format!("{:?} of {}", change.kind, change.after.0).to_lowercase();
                let error = match self.plan.one_by_one {
                    true => {
                        Error::Change { has_shares: false, place: part.place.clone(), change: what, source, advice: "" }
                    }
                    false => Error::Batch { source },
                };
                return Err(self.fail(error));
            }
            self.point("between-rows", part.reached.seqno)?;
        }
        Ok(())
    }

    /// Changes a row, or repairs it if the plan says so. The error is the server's.
    fn row(&mut self, change: &Change) -> std::result::Result<(), u16> {
        let is_revocable = change.table != "a";
        let view = self.view.get_or_insert_with(|| self.replica.committed.clone());
        let rows = view.get_mut(&change.table).unwrap();
        let is_there = |id: i32| rows.contains_key(&id);
        let refused = match change.kind {
            RowsKind::Insert if is_there(change.after.0) => Some(1062),
            RowsKind::Update | RowsKind::Delete if !is_there(change.before.0) => Some(1032),
            _ => None,
        };
        let repairs = match self.plan.repairs {
            Some(RepairScope::All) => true,
            Some(RepairScope::Irrevocable) => !is_revocable,
            None => false,
        };
        match refused {
            Some(code) if !repairs => return Err(code),
            Some(_) => drop(writeln!(self.text, "  repaired {}", change.after.0)),
            None => {}
        }
        change.carry_out(rows);
        match is_revocable {
            true => self.open.rows.push(change.clone()),
            false => change.carry_out(self.replica.committed.get_mut(&change.table).unwrap()),
        }
        Ok(())
    }

    fn end(&mut self, part: &Part, end: &PartEnd, has_intent: bool) -> Step<()> {
        let last = end.checkpoint.seqno;
        if let Some(Alone::XaPrepare(xid)) = &part.batch.alone {
            let changes = std::mem::take(&mut self.open);
            self.replica.prepared.insert(xid.to_string(), changes);
            self.point("after-prepare", last)?;
        }
        self.point("before-checkpoint-update", last)?;
        self.point(if has_intent { "before-fulfilment" } else { "before-commit" }, last)?;
        let sent = self.interruptions.iter().find(|at| at.point == "after-commit-sent" && at.seqno <= last);
        if sent.is_none_or(|at| at.is_kept) {
            assert_eq!(self.replica.checkpoint, self.from, "the checkpoint moves only from where it is");
            self.replica.checkpoint = end.checkpoint.clone();
            self.replica.note = None;
            let changes = std::mem::take(&mut self.open);
            self.commit(changes);
        }
        self.point("after-commit-sent", last)?;
        self.from = end.checkpoint.clone();
        self.reached.commit(&end.checkpoint);
        self.last_applied = last;
        self.point(if has_intent { "after-fulfilment" } else { "after-commit" }, last)
    }

    fn commit(&mut self, changes: Changes) {
        self.view = None;
        for change in &changes.rows {
            change.carry_out(self.replica.committed.get_mut(&change.table).unwrap());
        }
        self.replica.statements.extend(changes.statements);
    }
}

impl Change {
    fn carry_out(&self, rows: &mut BTreeMap<i32, i32>) {
        if self.kind != RowsKind::Insert {
            rows.remove(&self.before.0);
        }
        if self.kind != RowsKind::Delete {
            rows.insert(self.after.0, self.after.1);
        }
    }
}

/// What a part is besides rows.
fn said(part: &Part) -> String {
    let alone = match &part.batch.alone {
        None => String::new(),
        Some(Alone::XaPrepare(_)) => ", alone (XA PREPARE)".to_owned(),
        Some(Alone::XaEnd(_)) => ", alone (end of XA)".to_owned(),
        Some(alone) => format!(", alone ({alone:?})"),
    };
    let statements = part.batch.items.iter().filter(|item| matches!(item, Item::Statement(_))).count();
    let skipped = part.end.as_ref().map_or(0, |end| end.skipped.len());
    let goes_on = if part.end.is_none() { ", goes on" } else { "" };
    let counted = |count: usize, what: &str| if count == 0 { String::new() } else { format!(", {count} {what}") };
    format!("{}{}{alone}{goes_on}", counted(statements, "statements"), counted(skipped, "left out"))
}

/// The row changes of a segment, decoded from the events that would be replayed.
fn changes(segment: &Segment) -> Vec<Change> {
    let mut events = Vec::new();
    let take = |chunk: &[u8]| -> std::result::Result<(), spate_schedule::Error> {
        events.extend_from_slice(chunk);
        Ok(())
    };
    let mut writer = ChunkWriter::new(1 << 20, 1, RowsVersion::V1, take);
    writer.segment(segment).unwrap();
    writer.finish().unwrap();
    let mut changes = Vec::new();
    let (mut rest, mut map) = (events.as_slice(), None);
    while !rest.is_empty() {
        let header = EventHeader::parse(rest).unwrap();
        let (event, after) = rest.split_at(header.event_length as usize);
        let body = &event[spate_binlog::header::HEADER_LENGTH..];
        match header.event_type {
            EventType::TABLE_MAP => map = Some(TableMap::parse(body).unwrap()),
            kind => decode(map.as_ref().unwrap(), &RowsEvent::parse(kind, body).unwrap(), &mut changes),
        }
        rest = after;
    }
    changes
}

fn decode(map: &TableMap, rows: &RowsEvent<'_>, changes: &mut Vec<Change>) {
    let mut buffer = Vec::new();
    let mut images = rows.images(&mut buffer).unwrap();
    while !images.is_empty() {
        let mut take = |columns: &[u8]| {
            let plan = ImagePlan::new(map, columns, &[]).unwrap();
            let (length, spans) = plan.all_spans(images).unwrap();
            let mut values = spans.iter().map(|span| i32::from_le_bytes(span.value(images).try_into().unwrap()));
            let mut column = |bit: u8| if columns[0] & bit == 0 { None } else { values.next() };
            let row = (column(1).unwrap(), column(2));
            images = &images[length..];
            row
        };
        let before = take(rows.columns);
        let after = if rows.kind == RowsKind::Update { take(rows.columns_after) } else { before };
        let after = (after.0, after.1.unwrap_or_default());
        changes.push(Change { table: map.table.clone(), kind: rows.kind, before, after });
    }
}

/// Gives parts to the fake worker, which applies each at once.
pub(super) struct FakeDispatch<'w, 'a>(pub(super) &'w RefCell<FakeWorker<'a>>);

impl Dispatch for FakeDispatch<'_, '_> {
    fn begin_after(&mut self, seqno: u64) {
        let mut worker = self.0.borrow_mut();
        (worker.last_handed, worker.last_applied) = (seqno, seqno);
    }

    fn may_begin(&mut self, _gtid: Option<Gtid>, _seqno: u64) -> bool {
        true
    }

    fn wait_begin(&mut self, _gtid: Option<Gtid>, _seqno: u64) -> bool {
        true
    }

    /// Batches end where the plan says, and where they must.
    fn is_hungry_within(&mut self, _timeout: Duration) -> HaltResult<bool> {
        Ok(false)
    }

    fn pace(&self) -> Pace {
        Pace::Unknown
    }

    fn hand_out(&mut self, part: Part) -> HaltResult<()> {
        let mut worker = self.0.borrow_mut();
        worker.last_handed = part.reached.seqno;
        // The gathering stage only notices that the next one is gone.
        worker.part(&part).map_err(|Interrupted| Halt::StageEnded)
    }

    fn is_in_effect(&mut self, seqno: u64) -> bool {
        self.0.borrow().last_applied >= seqno
    }

    fn wait_in_effect(&mut self, seqno: u64) -> HaltResult<()> {
        assert!(self.0.borrow().last_applied >= seqno, "what is not applied is not asked for");
        Ok(())
    }
}

/// Definitions of the fake replica.
pub(super) struct FakeDefinitions<'w, 'a>(pub(super) &'w RefCell<FakeWorker<'a>>);

impl Definitions for FakeDefinitions<'_, '_> {
    fn reader(&self) -> Option<Server> {
        Some(ServerVersion::parse(VERSION).reader())
    }

    fn last_moment(&mut self) -> Result<Option<LastMoment>> {
        Ok(None)
    }

    fn begin(&mut self, _format: &FormatDescription) -> Result<()> {
        Ok(())
    }

    fn look_for_others(&mut self) -> Result<Noticed> {
        Ok(Noticed::default())
    }

    fn forget(&mut self, outdated: &Outdated) -> Outdated {
        outdated.clone()
    }

    fn foreign_keys_have_changed(&mut self) -> Result<bool> {
        Ok(false)
    }

    fn at_hand(&mut self, _name: &TableName) -> Option<TableDefinition> {
        None
    }

    fn definition(&mut self, name: &TableName, _map: &[u8], _reading: Reading) -> Result<Option<TableDefinition>> {
        if !self.0.borrow().replica.committed.contains_key(&name.table) {
            return Ok(None);
        }
        let column = |name: &str| ColumnDefinition {
            name: name.to_owned(),
            column_type: "int(11)".to_owned(),
            ..ColumnDefinition::default()
        };
        Ok(Some(TableDefinition {
            name: name.clone(),
            columns: vec![column("id"), column("v")],
            row_key: vec![0],
            engine: if name.table == "a" { "Aria" } else { "InnoDB" }.to_owned(),
            is_transactional: name.table != "a",
            ..TableDefinition::default()
        }))
    }
}
