//! A statement as it was recorded, whatever by.

/// What a session did.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Recorded {
    /// When it began, in seconds; only differences matter.
    pub(crate) at: f64,
    /// The session's number.
    pub(crate) session: u64,
    /// The default schema, if the record says it; else it is as the session's statements before have left it.
    pub(crate) schema: Option<String>,
    /// What it did.
    pub(crate) what: What,
}

/// A step of a session.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum What {
    /// A statement, in the bytes that the log has.
    Statement(Vec<u8>),
    /// The end of the session.
    End,
}

impl Recorded {
    /// A statement, without what clients put behind it.
    pub(crate) fn statement(at: f64, session: u64, schema: Option<String>, text: &[u8]) -> Option<Recorded> {
        let text = text.trim_ascii().strip_suffix(b";").unwrap_or(text.trim_ascii()).trim_ascii_end();
        (!text.is_empty()).then(|| Recorded { at, session, schema, what: What::Statement(text.to_vec()) })
    }
}
