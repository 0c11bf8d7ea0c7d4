//! Finds where transactions begin and end in a stream of events.

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

/// Follows a stream of events and finds where its transactions begin and end.
///
/// Invariant: between two `Begin`s there is exactly one `End`, unless a new stream or file of the source drops an
/// unfinished transaction ([`BoundaryTracker::reset`]).
#[derive(Debug, Clone, Default)]
pub struct BoundaryTracker {
    state: State,
    gtid: Option<GtidEvent>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Outside,
    /// Inside a transaction that has an event of its own to end it.
    Group,
    /// Inside a transaction that ends with the next statement of any kind.
    Standalone,
    /// After MySQL's GTID event, which does not say if the next statement begins a group or is the whole transaction.
    Announced,
}

impl BoundaryTracker {
    /// Takes the next event's header and body (without checksum).
    ///
    /// # Errors
    /// [`Error::Malformed`] if the event cannot stand here, such as a second GTID inside a transaction.
    pub fn observe(&mut self, header: &EventHeader, body: &[u8]) -> Result<Boundary> {
        match header.event_type {
            EventType::GTID_MARIADB => {
                let gtid = GtidEvent::parse_mariadb(header.server_id, body)?;
                self.begin(Some(gtid), if gtid.has(GtidEvent::STANDALONE) { State::Standalone } else { State::Group })
            }
            EventType::GTID_MYSQL => self.begin(Some(GtidEvent::parse_mysql(body)?), State::Announced),
            EventType::GTID_TAGGED_MYSQL => self.begin(Some(GtidEvent::parse_mysql_tagged(body)?), State::Announced),
            EventType::ANONYMOUS_GTID => self.begin(None, State::Announced),
            EventType::TRANSACTION_PAYLOAD => self.observe_payload(),
            EventType::XID | EventType::XA_PREPARE => self.end(header),
            EventType::QUERY => self.observe_query(&QueryEvent::parse(body)?),
            EventType::QUERY_COMPRESSED | EventType::EXECUTE_LOAD_QUERY => Ok(self.observe_statement()),
            EventType::INCIDENT => Ok(self.observe_statement()),
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

    /// Takes an event that holds all events of a transaction.
    fn observe_payload(&mut self) -> Result<Boundary> {
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

    fn observe_query(&mut self, query: &QueryEvent<'_>) -> Result<Boundary> {
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
        Ok(self.observe_statement())
    }

    /// Takes a statement: the end of a standalone transaction, a whole transaction, or one of many in a group.
    fn observe_statement(&mut self) -> Boundary {
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

/// True for events that describe the stream, not a transaction's changes. Unknown types are not among them: a reader
/// must see such an event inside a transaction and refuse it there.
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
