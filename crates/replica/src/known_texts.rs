//! Definitions of tables that were read already, by what `SHOW CREATE TABLE` says of them.
//!
//! A server says everything there that folding needs to know of a table itself. So a table of the same text needs one short question, where
//! the views of information_schema cost ten times as much: sources that create, fill and drop the same tables all day have few texts.

use std::collections::HashMap;

use spate_schedule::{TableDefinition, TableName};

use spate_connection::{Connection, Result, quote};

use crate::journal::without_counter;

/// Columns of the definitions that are kept, at some hundred bytes each. With more, all are forgotten.
const COLUMNS_MAX: usize = 32 << 10;

/// Bytes of a text that is kept.
const TEXT_BYTES_MAX: usize = 32 << 10;

/// Definitions by their texts.
#[derive(Debug, Default)]
pub(crate) struct KnownTexts {
    definitions: HashMap<String, TableDefinition>,
    columns: usize,
}

impl KnownTexts {
    /// The definition of a table of this text. What others than the table itself decide is to be added: foreign keys that lead to it, triggers.
    pub(crate) fn definition(&self, text: &str, name: &TableName) -> Option<TableDefinition> {
        let known = self.definitions.get(text)?;
        Some(TableDefinition { name: name.clone(), ..known.clone() })
    }

    /// Keeps the definition of a table of this text.
    pub(crate) fn insert(&mut self, text: String, definition: &TableDefinition) {
        if text.len() > TEXT_BYTES_MAX {
            return;
        }
        if self.columns > COLUMNS_MAX {
            *self = KnownTexts::default();
        }
        self.columns += definition.columns.len();
        self.definitions.insert(text, definition.clone());
    }
}

/// What the server says of a table, without its name and its counter. `None`: it has no such table, or does not show it, or it is a view.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn ask(connection: &mut Connection, name: &TableName) -> Result<Option<String>> {
    let answer = match connection.query(&format!("SHOW CREATE TABLE {}", quote::qualified(&name.schema, &name.table))) {
        Ok(answer) => answer,
        Err(error) if error.server_error().is_some() && !error.is_transient() => return Ok(None),
        Err(error) => return Err(error),
    };
    let text = answer.text(0, "Create Table").unwrap_or_default();
    let head = format!("CREATE TABLE {} ", quote::identifier(&name.table));
    Ok(text.strip_prefix(&head).map(without_counter))
}
