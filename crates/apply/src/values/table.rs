//! One table's rows as lists of values: which columns are written, under which names, in which form.

use spate_binlog::column::ColumnType;
use spate_binlog::table_map::{bit_is_set, names_no_column};
use spate_binlog::typed::Value;
use spate_binlog::{ImagePlan, Span, TableMap};
use spate_schedule::definition::{ColumnDefinition, TableDefinition};
use spate_schedule::{Error, Result};
use spate_sql::charset;

use super::form::{Form, implicit_default};
use spate_connection::{Vendor, quote};

/// How a table's rows are written.
#[derive(Debug)]
pub(crate) struct SqlTable<'a> {
    pub(crate) map: &'a TableMap,
    pub(crate) definition: &'a TableDefinition,
    /// The replica's vendor.
    pub(crate) vendor: Vendor,
    /// Its name with its schema's, quoted.
    pub(crate) name: String,
    /// For each of the source's columns; `None` for those that the server computes.
    columns: Vec<Option<SqlColumn>>,
}

#[derive(Debug)]
pub(crate) struct SqlColumn {
    /// Quoted.
    pub(crate) name: String,
    pub(crate) form: Form,
    column_type: ColumnType,
    is_unsigned: bool,
}

/// Which columns the images of some rows hold, and how to walk them.
#[derive(Debug)]
pub(crate) struct SqlImage {
    /// `None` if they hold none.
    walk: Option<ImagePlan>,
    /// The columns that are written, in the table's order.
    pub(crate) columns: Vec<usize>,
    /// What is assigned in place of what the image holds, for columns of which it holds only what changed: the column's place
    /// in `columns`, and values that are assigned one after the other.
    pub(crate) written: Vec<(usize, Vec<Vec<u8>>)>,
    spans: Vec<Span>,
}

impl<'a> SqlTable<'a> {
    /// Joins what the source and the replica say of a table.
    ///
    /// # Errors
    /// [`Error::Definition`] if its values would not arrive exactly; [`Error::Refused`] if a trigger would fire.
    pub(crate) fn new(map: &'a TableMap, definition: &'a TableDefinition, vendor: Vendor) -> Result<SqlTable<'a>> {
        let refuse = |why: String| Err(Error::Definition { table: definition.name.clone(), why });
        if let Some(trigger) = &definition.trigger {
            let what = format!("a change of rows of {}", definition.name);
            let why = format!(
                "as a statement it would fire the trigger {trigger}, whose effects on the source are in the binlog already: \
                 DROP TRIGGER on the replica (and make it again when the replica takes over), or use --dialect replay"
            );
            return Err(Error::Refused { what, why });
        }
        if let Some(column) = map.unmeasurable_column() {
            return refuse(format!(
                "column {} has a type in the format before MySQL 5.6, whose values the binlog does not tell: ALTER TABLE … FORCE \
                 on the source, or use --dialect replay",
                column + 1
            ));
        }
        if definition.row_end.is_some() {
            return refuse(
                "it is system-versioned, and statements cannot write its history: use --dialect replay".to_owned(),
            );
        }
        if definition.columns.len() < map.columns.len() {
            let (source, replica) = (map.columns.len(), definition.columns.len());
            return refuse(format!("the source's rows have {source} columns, the replica's table has {replica}"));
        }
        let mut columns = Vec::with_capacity(map.columns.len());
        for (index, (&column_type, column)) in map.columns.iter().zip(&definition.columns).enumerate() {
            if column.is_generated {
                columns.push(None);
                continue;
            }
            let form = match Form::of(column_type, column) {
                Ok(form) => form,
                Err(why) => return refuse(why),
            };
            if form == Form::Text
                && let Some(charset) = map.collation(index).and_then(charset::of_collation)
                && !charset::is_part_of(charset, &column.charset)
            {
                return refuse(format!(
                    "the column {} has the character set {charset} on the source and {} on the replica: ALTER TABLE there, or use \
                     --dialect replay",
                    column.name, column.charset
                ));
            }
            columns.push(Some(SqlColumn::new(map, index, column_type, column, form)));
        }
        let name = quote::qualified(&definition.name.schema, &definition.name.table);
        Ok(SqlTable { map, definition, vendor, name, columns })
    }

    /// The same for queries that only look for rows: a column whose values cannot be written is left out.
    pub(crate) fn for_lookups(map: &'a TableMap, definition: &'a TableDefinition, vendor: Vendor) -> SqlTable<'a> {
        let columns = map.columns.iter().zip(&definition.columns).enumerate();
        let columns = columns.map(|(index, (&column_type, column))| {
            let form = Form::of(column_type, column).ok().filter(|_| !column.is_generated)?;
            let charset = map.collation(index).and_then(charset::of_collation);
            let is_foreign = charset.is_some_and(|charset| !charset::is_part_of(charset, &column.charset));
            let form = Some(form).filter(|form| *form != Form::Text || !is_foreign)?;
            Some(SqlColumn::new(map, index, column_type, column, form))
        });
        let columns = columns.collect();
        let name = quote::qualified(&definition.name.schema, &definition.name.table);
        SqlTable { map, definition, vendor, name, columns }
    }

    /// How images that hold these columns are walked.
    ///
    /// # Errors
    /// [`Error::Binlog`] if they cannot be.
    pub(crate) fn image(&self, bits: &[u8]) -> Result<SqlImage> {
        self.image_of(bits, |_| true)
    }

    /// The same for values of those columns that are `wanted`.
    ///
    /// # Errors
    /// [`Error::Binlog`] if they cannot be.
    pub(crate) fn image_of(&self, bits: &[u8], wanted: impl Fn(usize) -> bool) -> Result<SqlImage> {
        let is_written = |&column: &usize| bit_is_set(bits, column) && self.columns[column].is_some() && wanted(column);
        let columns: Vec<usize> = (0..self.map.columns.len()).filter(is_written).collect();
        let is_empty = names_no_column(bits, self.map.columns.len());
        let walk = if is_empty { None } else { Some(ImagePlan::new(self.map, bits, &columns)?) };
        Ok(SqlImage { spans: vec![Span::default(); columns.len()], walk, columns, written: vec![] })
    }

    /// True if it has an ENUM.
    pub(crate) fn has_choices(&self) -> bool {
        self.map.columns.iter().any(|column| matches!(column, ColumnType::Enum { .. }))
    }

    /// A column that is written, and how the replica defines it.
    pub(crate) fn column(&self, index: usize) -> Option<(&SqlColumn, &ColumnDefinition)> {
        Some((self.columns.get(index)?.as_ref()?, self.definition.columns.get(index)?))
    }

    /// The names of these columns, each with something before and behind it.
    pub(crate) fn names(&self, columns: &[usize], join: &str, write: impl Fn(usize, &str) -> String) -> String {
        let names = columns.iter().filter_map(|&index| Some(write(index, &self.columns.get(index)?.as_ref()?.name)));
        names.collect::<Vec<_>>().join(join)
    }

    /// The columns that an insert must name beside those that are `written`, since they have no default and the session is
    /// strict: their names and values, each with a comma before it.
    pub(crate) fn implicit_defaults(&self, written: &[usize]) -> (String, String) {
        let (mut names, mut values) = (String::new(), String::new());
        for (index, column) in self.definition.columns.iter().enumerate() {
            if !column.lacks_default || column.is_generated || written.contains(&index) {
                continue;
            }
            if let Some(value) = implicit_default(self.map.columns.get(index).copied(), column) {
                names.push(',');
                names.push_str(&quote::identifier(&column.name));
                values.push(',');
                values.push_str(value);
            }
        }
        (names, values)
    }

    /// The same table, for a session in any time zone.
    pub(crate) fn in_any_zone(mut self) -> Self {
        for column in self.columns.iter_mut().flatten() {
            if column.form == Form::Plain && matches!(column.column_type, ColumnType::Timestamp { .. }) {
                column.form = Form::Instant;
            }
        }
        self
    }

    /// A document holds what its text does not tell.
    pub(crate) fn other_types(&self, column: &str) -> Error {
        let why = format!(
            "the column {column} holds a JSON document with decimals, dates, times or bytes of SQL's types, which would become \
             numbers and strings: use --dialect replay"
        );
        Error::Definition { table: self.definition.name.clone(), why }
    }

    /// Columns that change by themselves with any other, unless they are assigned: those that are not among `assigned`.
    pub(crate) fn restless(&self, assigned: &[usize]) -> Vec<usize> {
        let may_move = |column: &ColumnDefinition| {
            column.column_type.starts_with("timestamp") || column.column_type.starts_with("datetime")
        };
        let is_left = |&index: &usize| {
            self.column(index).is_some_and(|(_, column)| may_move(column)) && !assigned.contains(&index)
        };
        (0..self.columns.len()).filter(is_left).collect()
    }
}

impl SqlColumn {
    fn new(map: &TableMap, index: usize, column_type: ColumnType, column: &ColumnDefinition, form: Form) -> SqlColumn {
        let is_unsigned = if map.metadata.unsigned.is_empty() { column.is_unsigned } else { map.is_unsigned(index) };
        SqlColumn { name: quote::identifier(&column.name), form, column_type, is_unsigned }
    }
}

impl SqlImage {
    /// Finds the values of the image at the start of `images`; returns its length.
    ///
    /// # Errors
    /// [`Error::Binlog`] if it is cut short.
    pub(crate) fn read(&mut self, images: &[u8]) -> Result<usize> {
        self.written.clear();
        let Some(walk) = &self.walk else { return Ok(0) };
        Ok(walk.measure(images, &mut self.spans)?)
    }

    /// The bytes of a column in the image that was read last, whatever they are.
    pub(crate) fn bytes<'i>(&self, place: usize, image: &'i [u8]) -> &'i [u8] {
        self.spans.get(place).map_or(&[], |span| span.value(image))
    }

    /// The value of a column in the image that was read last: the place among [`SqlImage::columns`] counts. `None` is NULL.
    ///
    /// # Errors
    /// [`Error::Binlog`] if it is no value of its type.
    pub(crate) fn value<'i>(&self, table: &SqlTable<'_>, place: usize, image: &'i [u8]) -> Result<Option<Value<'i>>> {
        let (Some(span), Some(Some(column))) = (self.spans.get(place), table.columns.get(self.columns[place])) else {
            return Ok(None);
        };
        if span.is_null {
            return Ok(None);
        }
        let value = Value::decode(column.column_type, column.is_unsigned, span.value(image))?;
        match value {
            Value::Float(number) if !number.is_finite() => Err(not_finite(table, column)),
            Value::Double(number) if !number.is_finite() => Err(not_finite(table, column)),
            Value::Json(document) => json(table, column, document).map(Some),
            value => Ok(Some(value)),
        }
    }

    /// How many ENUM columns of the image that was read last hold no choice at all: the number 0, which a careful session does
    /// not take.
    pub(crate) fn missing_choices(&self, table: &SqlTable<'_>, image: &[u8]) -> u16 {
        let is_missing = |(span, &index): (&Span, &usize)| {
            matches!(table.map.columns[index], ColumnType::Enum { .. })
                && !span.is_null
                && span.value(image).iter().all(|&byte| byte == 0)
        };
        self.spans.iter().zip(&self.columns).filter(|&pair| is_missing(pair)).count() as u16
    }
}

/// A document's text. MySQL would make numbers and strings of what the text does not tell.
fn json(table: &SqlTable<'_>, column: &SqlColumn, document: &[u8]) -> Result<Value<'static>> {
    let document = spate_binlog::json::text(document)?;
    if document.has_other_types && column.form == Form::Json {
        return Err(table.other_types(&column.name));
    }
    Ok(Value::Bytes(document.text.into()))
}

fn not_finite(table: &SqlTable<'_>, column: &SqlColumn) -> Error {
    let why = format!("the column {} holds a number that is not finite, which no statement can write", column.name);
    Error::Definition { table: table.definition.name.clone(), why }
}
