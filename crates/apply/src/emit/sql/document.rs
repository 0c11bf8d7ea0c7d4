//! Changes of JSON documents (the source's `binlog_row_value_options=PARTIAL_JSON`), written so that the replica's document
//! becomes what the source's did.
//!
//! - Where the replica's column is MySQL's JSON, as its own functions over the column: what the change does not touch stays as it
//!   is, values too that a text does not tell.
//! - Where it is text, as on MariaDB, as the whole document, in the text that a row image with all of it gives. The functions of
//!   MariaDB would put new members elsewhere. What the document was is in the image before the change, or else read from the
//!   replica.
//!
//! A document that the change does not fit is an error, as it is for MySQL's own replication.

use spate_binlog::json;
use spate_binlog::json::diff::{ApplyError, Diff, Leg, Operation, apply, diffs};
use spate_binlog::typed::Value;
use spate_schedule::segment::WalkedRow;
use spate_schedule::{Error, Result};

use super::statement::document_query;
use crate::command::FoundRow;
use crate::values::form::Form;
use crate::values::literal::append_quoted;
use crate::values::table::{SqlImage, SqlTable};

/// What stands for a path if a change does not fit: no path at all, so that the server refuses it.
const MISFIT: &str = "''";

/// The changes of documents in a row that is updated.
pub(super) struct Documents<'i> {
    columns: Vec<DocumentColumn<'i>>,
}

struct DocumentColumn<'i> {
    /// Its place in the table.
    column: usize,
    /// Its place among the columns of the after-image.
    place: usize,
    diffs: Vec<Diff<'i>>,
    /// What it was before; `None` if the replica is to be asked.
    before: Option<Vec<u8>>,
    is_text: bool,
}

/// Why a row's documents could not be written.
pub(super) enum DocumentError {
    /// The change does not fit the document.
    Misfit(String),
    /// Anything else.
    Schedule(Error),
}

impl From<Error> for DocumentError {
    fn from(error: Error) -> DocumentError {
        DocumentError::Schedule(error)
    }
}

impl<'i> Documents<'i> {
    /// What `row` changes within documents; `None` if it does not.
    ///
    /// # Errors
    /// [`Error::Binlog`] if that does not decode.
    pub(super) fn of(
        table: &SqlTable<'_>,
        row: WalkedRow<'i>,
        before: &mut SqlImage,
        after: &mut SqlImage,
    ) -> Result<Option<Documents<'i>>> {
        if !row.is_partial() {
            return Ok(None);
        }
        before.read(row.first)?;
        after.read(row.second)?;
        let mut columns = Vec::new();
        for column in row.partial_columns(table.map) {
            let Some(place) = after.columns.iter().position(|&other| other == column) else { continue };
            let is_text = table.column(column).is_some_and(|(column, _)| column.form != Form::Json);
            let known = before.columns.iter().position(|&other| other == column).filter(|_| is_text);
            let before = match known.map(|place| before.value(table, place, row.first)).transpose()? {
                Some(Some(Value::Bytes(text))) => Some(text.into_owned()),
                _ => None,
            };
            let diffs = diffs(after.bytes(place, row.second))?;
            columns.push(DocumentColumn { column, place, diffs, before, is_text });
        }
        Ok(Some(Documents { columns }))
    }

    /// The statement that asks the replica for the documents that are not known; `None` if all are.
    ///
    /// # Errors
    /// [`Error::Binlog`] if the key does not decode.
    pub(super) fn query(&self, table: &SqlTable<'_>, key: &mut SqlImage, key_bytes: &[u8]) -> Result<Option<Vec<u8>>> {
        let asked: Vec<usize> = self.asked().map(|column| column.column).collect();
        if asked.is_empty() { Ok(None) } else { document_query(table, &asked, key, key_bytes).map(Some) }
    }

    /// Writes into `after` what the columns become. `answer` is what the replica said: nothing if it has no such row, and
    /// then the update finds none.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub(super) fn write(
        &self,
        table: &SqlTable<'_>,
        after: &mut SqlImage,
        answer: FoundRow,
    ) -> std::result::Result<(), DocumentError> {
        let is_missing = answer.is_none();
        let mut answers = answer.unwrap_or_default().into_iter();
        for column in &self.columns {
            let Some((sql_column, _)) = table.column(column.column) else { continue };
            let name = &sql_column.name;
            let written = if !column.is_text {
                column.diffs.iter().map(|diff| function(table, name, diff)).collect::<Result<Vec<_>>>()?
            } else if column.before.is_none() && is_missing {
                vec![]
            } else {
                let asked = if column.before.is_none() { answers.next().flatten() } else { None };
                let misfit = |why: String| DocumentError::Misfit(format!("the column {name}: {why}"));
                let document = column.before.as_ref().or(asked.as_ref());
                let document = document.ok_or_else(|| misfit("the replica has no document".to_owned()))?;
                let text = apply(document, &column.diffs).map_err(|error| match error {
                    ApplyError::Binlog(error) => DocumentError::Schedule(error.into()),
                    error @ ApplyError::Misfit(_) => misfit(error.to_string()),
                })?;
                let mut sql = Vec::with_capacity(text.len() + 16);
                sql_column.form.append_assigned(&mut sql, &Value::Bytes(text.into()));
                vec![sql]
            };
            after.written.push((column.place, written));
        }
        Ok(())
    }

    fn asked(&self) -> impl Iterator<Item = &DocumentColumn<'i>> {
        self.columns.iter().filter(|column| column.is_text && column.before.is_none())
    }
}

/// One change as MySQL's function over the column. Changes are assigned one after the other, each to what the one before it made.
fn function(table: &SqlTable<'_>, name: &str, diff: &Diff<'_>) -> Result<Vec<u8>> {
    let mut sql = Vec::new();
    let mut path = Vec::new();
    append_quoted(&mut path, diff.path.as_bytes());
    let Some(last) = diff.legs.last() else {
        append_value(&mut sql, table, name, diff)?;
        return Ok(sql);
    };
    let (is_element, function): (bool, &[u8]) = match (diff.operation, last) {
        (Operation::Replace, leg) => (!matches!(leg, Leg::Member(_)), b"JSON_REPLACE"),
        (Operation::Remove, leg) => (!matches!(leg, Leg::Member(_)), b"JSON_REMOVE"),
        (Operation::Insert, Leg::Member(_)) => (false, b"JSON_INSERT"),
        (Operation::Insert, _) => (true, b"JSON_ARRAY_INSERT"),
    };
    sql.extend_from_slice(function);
    // Of NULL, the path would not be looked at.
    let document = format!("IFNULL({name},CAST('null' AS JSON))");
    sql.extend_from_slice(format!("(JSON_EXTRACT({document},IF(JSON_TYPE(JSON_EXTRACT({name},").as_bytes());
    append_quoted(&mut sql, diff.parent_path.as_bytes());
    sql.extend_from_slice(if is_element { b"))='ARRAY'" } else { b"))='OBJECT'" });
    let contains: &[u8] = match (diff.operation, is_element) {
        (Operation::Insert, true) => b"",
        (Operation::Insert, false) => b" AND NOT ",
        _ => b" AND ",
    };
    if !contains.is_empty() {
        sql.extend_from_slice(contains);
        sql.extend_from_slice(format!("JSON_CONTAINS_PATH({name},'one',").as_bytes());
        sql.extend_from_slice(&path);
        sql.push(b')');
    }
    sql.extend_from_slice(format!(",'$',{MISFIT})),").as_bytes());
    sql.extend_from_slice(&path);
    if diff.operation != Operation::Remove {
        sql.push(b',');
        append_value(&mut sql, table, name, diff)?;
    }
    sql.push(b')');
    Ok(sql)
}

fn append_value(sql: &mut Vec<u8>, table: &SqlTable<'_>, name: &str, diff: &Diff<'_>) -> Result<()> {
    let value = json::text(diff.value)?;
    if value.has_other_types {
        return Err(table.other_types(name));
    }
    sql.extend_from_slice(b"CAST(");
    append_quoted(sql, &value.text);
    sql.extend_from_slice(b" AS JSON)");
    Ok(())
}
