//! What a statement is by its words: whether it commits by itself, the objects that it may change, and what becomes of them.

mod class;
mod effects;
mod objects;
mod schemas;
mod words;

pub use class::{StatementClass, classify};
pub use effects::{
    Created, Exchanged, creates, drops_schema_or_trigger, drops_tables, exchanges, is_repeatable, is_whole_or_nothing,
    leaves_session_alone, makes_table, may_drop_schema, renames_tables, replaces,
};
pub(crate) use effects::{alters, takes_what_exists};
pub use objects::{Object, may_concern_accounts, temporary_tables, touched, truncated};
pub use schemas::without_default_schema;
pub(crate) use schemas::{drop_with_schemas, quoted};
pub(crate) use words::{kind, name, opened, skip_existence};

#[cfg(test)]
mod tests {
    use spate_sql::{Reading, SqlText};

    const READING: Reading = Reading {
        ansi_quotes: false,
        plain_backslashes: false,
        brackets: false,
        encoding: spate_sql::Encoding::Utf8 { bytes_max: 4 },
        servers: spate_sql::Servers { source: None, replica: None },
    };

    pub(super) fn text(sql: &[u8]) -> SqlText<'_> {
        SqlText { sql, reading: &READING }
    }
}
