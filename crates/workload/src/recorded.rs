//! A statement as it was recorded, whatever by.

/// What a session did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recorded {
    /// When it began, in seconds; only differences matter.
    pub(crate) at: f64,
    /// The session's number.
    pub(crate) session: u64,
    /// The default schema from here on; `None`: it is as the session's statements before have left it.
    pub(crate) schema: Option<Schema>,
    /// What it did.
    pub(crate) what: What,
    /// How much of it the record has.
    pub(crate) extent: Extent,
}

/// How much a record has of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    /// All of it.
    Whole,
    /// All of it, perhaps: the log ends behind it, and does not say where statements end.
    Doubtful,
    /// Its beginning.
    Cut,
}

/// The default schema of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Schema {
    /// The record does not say it.
    Unknown,
    /// The session has none.
    Absent,
    /// It has this one.
    Named(String),
}

impl Schema {
    /// The schema of this name; none if it is empty.
    pub(crate) fn of(name: impl Into<String>) -> Schema {
        let name = name.into();
        if name.is_empty() { Schema::Absent } else { Schema::Named(name) }
    }
}

/// A step of a session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// A statement, in the bytes that the log has.
    Statement(Vec<u8>),
    /// The session has no variables, temporary tables or transaction from here on.
    Reset,
    /// The end of the session.
    End,
}

impl Recorded {
    pub(crate) fn new(at: f64, session: u64, schema: Option<Schema>, what: What) -> Recorded {
        Recorded { at, session, schema, what, extent: Extent::Whole }
    }

    /// A statement, without what clients put behind it.
    pub(crate) fn statement(at: f64, session: u64, schema: Option<Schema>, text: &[u8]) -> Option<Recorded> {
        let text = text.trim_ascii().strip_suffix(b";").unwrap_or(text.trim_ascii()).trim_ascii_end();
        (!text.is_empty()).then(|| Recorded::new(at, session, schema, What::Statement(text.to_vec())))
    }
}
