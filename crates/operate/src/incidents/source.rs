//! A made-up source: what its tables hold, and the binlog of it.

use std::collections::BTreeMap;

use spate_archive::ArchiveWriter;
use spate_archive::test_source::SourceFile;
use spate_binlog::encode::{ColumnBitmap, RowsEventEncoder, RowsLayout};
use spate_binlog::header::HEADER_LENGTH;
use spate_binlog::rows::FLAG_STATEMENT_END;
use spate_binlog::{EventType, Gtid, GtidEvent, GtidPosition, MariaDbGtid, RowsKind, RowsVersion, Xid};

/// Rows by table and key.
pub(super) type Tables = BTreeMap<String, BTreeMap<i32, i32>>;

/// The tables that every source and replica has: `t`, and `a`, whose engine cannot roll back.
pub(super) fn tables() -> Tables {
    ["t", "a"].map(|name| (name.to_owned(), BTreeMap::new())).into()
}

pub(super) struct FakeSource {
    /// The file that it writes, and how many events of it were sent.
    file: SourceFile,
    sent: usize,
    /// Finished files that were not sent to their ends, and how many events of each were.
    finished: Vec<(SourceFile, usize)>,
    sequence: u64,
    pub(super) tables: Tables,
    pub(super) definitions: Vec<String>,
    pub(super) statements: Vec<String>,
    prepared: BTreeMap<String, (i32, i32)>,
}

impl FakeSource {
    pub(super) fn new() -> FakeSource {
        FakeSource {
            file: SourceFile::new("source.000001", &GtidPosition::default()),
            sent: 0,
            finished: Vec::new(),
            sequence: 0,
            tables: tables(),
            definitions: Vec::new(),
            statements: Vec::new(),
            prepared: BTreeMap::new(),
        }
    }

    /// The end of its binlog.
    pub(super) fn position(&self) -> GtidPosition {
        self.file.position.clone()
    }

    /// Fills the archive with what was logged since the last time.
    pub(super) fn send(&mut self, writer: &mut ArchiveWriter) {
        for (file, sent) in self.finished.drain(..) {
            send(writer, &file, sent);
        }
        send(writer, &self.file, self.sent);
        self.sent = self.file.events.len();
        writer.flush().unwrap();
    }

    pub(super) fn insert(&mut self, table: &str, id: i32, value: i32) {
        self.tables.entry(table.to_owned()).or_default().insert(id, value);
        self.rows(table, RowsKind::Insert, &[(id, value)]);
    }

    /// Many rows in one transaction.
    pub(super) fn insert_all(&mut self, table: &str, first: i32, last: i32, value: i32) {
        let rows: Vec<(i32, i32)> = (first..=last).map(|id| (id, value)).collect();
        self.tables.get_mut(table).unwrap().extend(rows.iter().copied());
        self.rows(table, RowsKind::Insert, &rows);
    }

    pub(super) fn update(&mut self, table: &str, id: i32, value: i32) {
        let before = self.tables.get_mut(table).unwrap().insert(id, value).unwrap();
        self.rows(table, RowsKind::Update, &[(id, before), (id, value)]);
    }

    pub(super) fn delete(&mut self, table: &str, id: i32) {
        let before = self.tables.get_mut(table).unwrap().remove(&id).unwrap();
        self.rows(table, RowsKind::Delete, &[(id, before)]);
    }

    pub(super) fn definition(&mut self, sql: &str) {
        self.definitions.push(sql.to_owned());
        let gtid = self.next();
        self.file.gtid(gtid, GtidEvent::STANDALONE | GtidEvent::DDL);
        self.query(sql);
    }

    /// A statement in a transaction of its own, whose effect nobody but the server knows.
    pub(super) fn statement(&mut self, sql: &str) {
        self.statements.push(sql.to_owned());
        let gtid = self.next();
        self.file.gtid(gtid, GtidEvent::TRANSACTIONAL);
        self.query(sql);
        self.file.event(EventType::XID, &7u64.to_le_bytes());
    }

    /// The same, of tables that cannot roll back.
    pub(super) fn irrevocable(&mut self, sql: &str) {
        self.statements.push(sql.to_owned());
        let gtid = self.next();
        self.file.gtid(gtid, 0);
        self.query("BEGIN");
        self.query(sql);
        self.query("COMMIT");
    }

    pub(super) fn xa_prepare(&mut self, name: &str, id: i32, value: i32) {
        self.prepared.insert(name.to_owned(), (id, value));
        let xid = xid(name);
        let gtid = self.next();
        self.gtid_of(gtid, GtidEvent::TRANSACTIONAL | GtidEvent::PREPARED_XA, &xid);
        self.row_events("t", RowsKind::Insert, &[(id, value)]);
        self.query(&format!("XA END {xid}"));
        let mut body = vec![0];
        body.extend_from_slice(&xid.format_id.to_le_bytes());
        body.extend_from_slice(&(xid.global.len() as u32).to_le_bytes());
        body.extend_from_slice(&(xid.branch.len() as u32).to_le_bytes());
        body.extend_from_slice(&xid.global);
        body.extend_from_slice(&xid.branch);
        self.file.event(EventType::XA_PREPARE, &body);
    }

    pub(super) fn xa_commit(&mut self, name: &str) {
        let (id, value) = self.prepared.remove(name).unwrap();
        self.tables.get_mut("t").unwrap().insert(id, value);
        let xid = xid(name);
        let gtid = self.next();
        self.gtid_of(gtid, GtidEvent::STANDALONE | GtidEvent::COMPLETED_XA, &xid);
        self.query(&format!("XA COMMIT {xid}"));
    }

    /// The source has rolled the transaction back, and logged that.
    pub(super) fn undone(&mut self, id: i32, value: i32) {
        let gtid = self.next();
        self.file.gtid(gtid, GtidEvent::TRANSACTIONAL);
        self.row_events("t", RowsKind::Insert, &[(id, value)]);
        self.query("ROLLBACK");
    }

    /// It ends its file, and begins another at its start.
    pub(super) fn restart(&mut self) {
        const NEXT: &str = "source.000002";
        self.file.rotate(NEXT);
        let mut next = SourceFile::new(NEXT, &self.file.position);
        next.timestamp = self.file.timestamp;
        let finished = std::mem::replace(&mut self.file, next);
        self.finished.push((finished, std::mem::take(&mut self.sent)));
    }

    fn next(&mut self) -> MariaDbGtid {
        self.sequence += 1;
        self.file.timestamp += 1;
        MariaDbGtid { domain_id: 0, server_id: 1, sequence: self.sequence }
    }

    /// The GTID event of a transaction that has an XID of its user.
    fn gtid_of(&mut self, gtid: MariaDbGtid, flags: u8, xid: &Xid) {
        self.file.transactions.push((self.file.bytes.len(), Gtid::MariaDb(gtid)));
        let mut body = gtid.sequence.to_le_bytes().to_vec();
        body.extend_from_slice(&gtid.domain_id.to_le_bytes());
        body.push(flags);
        body.extend_from_slice(&xid.format_id.to_le_bytes());
        body.extend_from_slice(&[xid.global.len() as u8, xid.branch.len() as u8]);
        body.extend_from_slice(&xid.global);
        body.extend_from_slice(&xid.branch);
        self.file.event(EventType::GTID_MARIADB, &body);
        self.file.position.advance(Gtid::MariaDb(gtid));
    }

    fn query(&mut self, sql: &str) {
        /// Thread, duration, length of the database's name, error, length of the status variables.
        const POST_HEADER: [u8; 13] = [9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 16, 0];
        /// No sql_mode; utf8mb4 for client, connection and server.
        const STATUS: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 0, 4, 45, 0, 45, 0, 45, 0];
        let body = [&POST_HEADER, STATUS.as_slice(), b"d\0", sql.as_bytes()].concat();
        self.file.event(EventType::QUERY, &body);
    }

    fn rows(&mut self, table: &str, kind: RowsKind, images: &[(i32, i32)]) {
        let gtid = self.next();
        self.file.gtid(gtid, GtidEvent::TRANSACTIONAL);
        self.row_events(table, kind, images);
        self.file.event(EventType::XID, &7u64.to_le_bytes());
    }

    /// A table map and a rows event: both columns are INT NOT NULL.
    fn row_events(&mut self, table: &str, kind: RowsKind, images: &[(i32, i32)]) {
        let table_id = 8 + u64::from(table.as_bytes()[0]);
        let mut map = [&table_id.to_le_bytes()[..6], &[1, 0]].concat();
        for name in ["d", table] {
            map.push(name.len() as u8);
            map.extend_from_slice(name.as_bytes());
            map.push(0);
        }
        map.extend_from_slice(&[2, 3, 3, 0, 0]);
        self.file.event(EventType::TABLE_MAP, &map);
        let all = ColumnBitmap::all(2);
        let mut event = Vec::new();
        let layout = RowsLayout::Plain(RowsVersion::V1);
        let encoder = RowsEventEncoder::begin(&mut event, kind, table_id, 1, FLAG_STATEMENT_END, (&all, &all), layout);
        for (id, value) in images {
            event.push(0);
            event.extend_from_slice(&id.to_le_bytes());
            event.extend_from_slice(&value.to_le_bytes());
        }
        encoder.finish(&mut event);
        self.file.event(EventType(event[4]), &event[HEADER_LENGTH..]);
    }
}

/// Sends a file from the event with this number on.
fn send(writer: &mut ArchiveWriter, file: &SourceFile, from: usize) {
    if from == 0 {
        writer.begin_file(&file.name, file.format_event()).unwrap();
    }
    for number in from.max(1)..file.events.len() {
        writer.append(file.event_at(number)).unwrap();
    }
}

fn xid(name: &str) -> Xid {
    Xid { format_id: 1, global: name.as_bytes().to_vec(), branch: Vec::new() }
}
