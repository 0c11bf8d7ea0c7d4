//! Where transactions begin and end in a stream of events.

use crate::gtid::GtidEvent;
use crate::header::{EventHeader, EventType};
use crate::query::QueryEvent;
use crate::{Error, Result};

/// The place of an event in its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Boundary {
    /// Belongs to no transaction: rotate, format description, heartbeat and the like.
    Outside,
    /// The first event of a transaction.
    Begin,
    /// Neither the first nor the last.
    Inside,
    /// The last event of a transaction.
    End,
    /// First and last at once: a statement without a GTID of its own.
    Whole,
}

/// Follows a stream of events and says where its transactions begin and end.
///
/// Invariant: between two `Begin`s there is exactly one `End`, unless a new source stream or file makes the writer start
/// over ([`BoundaryTracker::reset`]).
#[derive(Debug, Clone, Default)]
pub struct BoundaryTracker {
    state: State,
    gtid: Option<GtidEvent>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Outside,
    /// In a transaction that its own last event ends.
    Group,
    /// In a transaction that the next statement ends, whatever it is.
    Standalone,
    /// MySQL's GTID event does not say what follows: a statement that begins a group, or one that is all of it.
    Announced,
}

impl BoundaryTracker {
    /// Takes the next event's header and body (without checksum).
    ///
    /// # Errors
    /// [`Error::Malformed`] if the event cannot stand where it stands, such as a second GTID inside a transaction.
    pub fn observe(&mut self, header: &EventHeader, body: &[u8]) -> Result<Boundary> {
        match header.event_type {
            EventType::GTID_MARIADB => {
                let gtid = GtidEvent::parse_mariadb(header.server_id, body)?;
                self.begin(Some(gtid), if gtid.has(GtidEvent::STANDALONE) { State::Standalone } else { State::Group })
            }
            EventType::GTID_MYSQL => self.begin(Some(GtidEvent::parse_mysql(body)?), State::Announced),
            EventType::GTID_TAGGED_MYSQL => self.begin(Some(GtidEvent::parse_mysql_tagged(body)?), State::Announced),
            EventType::ANONYMOUS_GTID => self.begin(None, State::Announced),
            EventType::TRANSACTION_PAYLOAD => self.payload(),
            EventType::XID | EventType::XA_PREPARE => self.end(header),
            EventType::QUERY => self.query(&QueryEvent::parse(body)?),
            EventType::QUERY_COMPRESSED | EventType::EXECUTE_LOAD_QUERY => Ok(self.statement()),
            EventType::INCIDENT => Ok(self.statement()),
            other if may_stand_outside(other) => Ok(match self.state {
                State::Outside => Boundary::Outside,
                State::Group | State::Standalone | State::Announced => Boundary::Inside,
            }),
            _ if self.state == State::Outside => {
                self.state = State::Group;
                self.gtid = None;
                Ok(Boundary::Begin)
            }
            _ => Ok(Boundary::Inside),
        }
    }

    /// True between a transaction's first and last event.
    pub fn in_transaction(&self) -> bool {
        self.state != State::Outside
    }

    /// The GTID event of the transaction last begun; `None` if it had none.
    pub fn gtid(&self) -> Option<GtidEvent> {
        self.gtid
    }

    /// Forgets a transaction that will not be completed in this stream.
    pub fn reset(&mut self) {
        *self = BoundaryTracker::default();
    }

    fn begin(&mut self, gtid: Option<GtidEvent>, state: State) -> Result<Boundary> {
        if self.in_transaction() {
            let name = gtid.map_or_else(|| "without a GTID".to_owned(), |event| event.gtid.to_string());
            return Err(Error::malformed(
                "event stream",
                format!("transaction {name} begins inside another transaction"),
            ));
        }
        self.state = state;
        self.gtid = gtid;
        Ok(Boundary::Begin)
    }

    /// All events of a transaction in one.
    fn payload(&mut self) -> Result<Boundary> {
        if self.state != State::Announced {
            return Err(Error::malformed("event stream", "a transaction's payload without its GTID event"));
        }
        self.state = State::Outside;
        Ok(Boundary::End)
    }

    fn end(&mut self, header: &EventHeader) -> Result<Boundary> {
        if !self.in_transaction() {
            return Err(Error::malformed(
                "event stream",
                format!("{} event outside any transaction", header.event_type),
            ));
        }
        self.state = State::Outside;
        Ok(Boundary::End)
    }

    fn query(&mut self, query: &QueryEvent<'_>) -> Result<Boundary> {
        if self.state == State::Group {
            let ends = query.ends_group();
            self.state = if ends { State::Outside } else { State::Group };
            return Ok(if ends { Boundary::End } else { Boundary::Inside });
        }
        if self.state == State::Announced && query.begins_mysql_group() {
            self.state = State::Group;
            return Ok(Boundary::Inside);
        }
        if self.state == State::Outside && query.begins_group() {
            self.state = State::Group;
            self.gtid = None;
            return Ok(Boundary::Begin);
        }
        Ok(self.statement())
    }

    /// A statement that ends a standalone transaction, or is a whole one, or is one of many in a group.
    fn statement(&mut self) -> Boundary {
        match self.state {
            State::Group => Boundary::Inside,
            State::Standalone | State::Announced => {
                self.state = State::Outside;
                Boundary::End
            }
            State::Outside => {
                self.gtid = None;
                Boundary::Whole
            }
        }
    }
}

/// Events that describe the stream, not a transaction's changes. (Unknown types are not among them: a reader that meets one
/// must see it inside a transaction and refuse it there.)
fn may_stand_outside(event_type: EventType) -> bool {
    matches!(
        event_type,
        EventType::STOP
            | EventType::ROTATE
            | EventType::FORMAT_DESCRIPTION
            | EventType::HEARTBEAT
            | EventType::IGNORABLE
            | EventType::BINLOG_CHECKPOINT
            | EventType::GTID_LIST
            | EventType::START_ENCRYPTION
            | EventType::PREVIOUS_GTIDS
            | EventType::VIEW_CHANGE
    )
}
