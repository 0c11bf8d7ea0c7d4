//! The default schema that each statement was executed in, as far as the record tells: by the record itself, or by the session's USE before.

use std::collections::HashMap;

use crate::recorded::Schema;

/// The default schemas of the sessions of one input.
#[derive(Debug, Default)]
pub(crate) struct Schemas {
    of_sessions: HashMap<u64, Schema>,
}

impl Schemas {
    /// The schema that a session's statement is executed in. `told` is what the record says, `uses` the schema that the statement itself chooses for those
    /// behind it.
    pub(crate) fn of_statement(&mut self, session: u64, told: Option<Schema>, uses: Option<&str>) -> Schema {
        let known = self.of_sessions.get(&session).cloned().unwrap_or(Schema::Unknown);
        let schema = told.clone().unwrap_or(known);
        match (uses, told) {
            (Some(name), _) => {
                self.of_sessions.insert(session, Schema::of(name));
            }
            (None, Some(told)) => {
                self.of_sessions.insert(session, told);
            }
            (None, None) => {}
        }
        schema
    }

    /// The session has ended.
    pub(crate) fn end(&mut self, session: u64) {
        self.of_sessions.remove(&session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_in_the_schema_that_their_session_chose_last() {
        let named = |name: &str| Schema::Named(name.to_owned());
        let mut schemas = Schemas::default();
        assert_eq!(schemas.of_statement(1, None, None), Schema::Unknown);
        assert_eq!(schemas.of_statement(1, Some(named("a")), None), named("a"));
        assert_eq!(schemas.of_statement(2, Some(Schema::Absent), None), Schema::Absent);
        assert_eq!(schemas.of_statement(1, None, None), named("a"));
        assert_eq!(schemas.of_statement(1, None, Some("b")), named("a"));
        assert_eq!(schemas.of_statement(1, None, None), named("b"));
        assert_eq!(schemas.of_statement(2, None, None), Schema::Absent);
        assert_eq!(schemas.of_statement(1, Some(named("a")), Some("c")), named("a"));
        assert_eq!(schemas.of_statement(1, None, None), named("c"));
        schemas.end(1);
        assert_eq!(schemas.of_statement(1, None, None), Schema::Unknown);
    }
}
