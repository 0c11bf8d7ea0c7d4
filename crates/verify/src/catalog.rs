//! A server's tables, with their columns and the key that cuts them into ranges; and how two such tables differ.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use super::error::{Error, Result};
use spate_connection::{Connection, ResultSet, quote};

/// Schemas that belong to the server, or to Spate.
const OWN_SCHEMAS: [&str; 5] = ["mysql", "information_schema", "performance_schema", "sys", "spate"];

/// A table's full name, written `schema.table`; the first dot is the separator.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableName {
    /// The schema.
    pub schema: String,
    /// The table.
    pub table: String,
}

impl TableName {
    pub(super) fn quoted(&self) -> String {
        quote::qualified(&self.schema, &self.table)
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

impl std::str::FromStr for TableName {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<TableName, String> {
        match text.split_once('.') {
            Some((schema, table)) if !schema.is_empty() && !table.is_empty() => {
                Ok(TableName { schema: schema.to_owned(), table: table.to_owned() })
            }
            _ => Err(format!("'{text}' is not of the form schema.table")),
        }
    }
}

/// The properties of a column that matter to a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    /// The bare type: `varchar`.
    pub(super) data_type: String,
    /// The whole type: `varchar(20)`.
    pub(super) column_type: String,
    /// `None` if the column has no text.
    pub(super) character_set: Option<String>,
    /// `None` if the column has no text.
    pub(super) collation: Option<String>,
    pub(super) is_nullable: bool,
    /// True if the server computes the values at each read; then they are not compared.
    pub(super) is_virtual: bool,
}

/// The properties of a table that matter to a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) columns: Vec<Column>,
    /// A unique index without NULLs and prefixes, the primary key if possible: its name and the indexes of its columns
    /// in `columns`. `None` if the table has none; then it is one range.
    pub(super) key: Option<(String, Vec<usize>)>,
    pub(super) is_transactional: bool,
    pub(super) is_versioned: bool,
    pub(super) hash: RowHash,
}

/// The hash function of rows; both servers must have it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum RowHash {
    /// The cheaper one. MySQL removed it in 9.6.
    #[default]
    Md5,
    Sha256,
}

pub(super) type Catalog = BTreeMap<TableName, Table>;

/// The tables to compare. An empty filter admits all.
#[derive(Debug, Clone, Default)]
pub(super) struct Filter {
    pub(super) schemas: Vec<String>,
    pub(super) tables: Vec<TableName>,
}

impl Filter {
    fn admits(&self, name: &TableName) -> bool {
        let everything = self.schemas.is_empty() && self.tables.is_empty();
        everything || self.schemas.contains(&name.schema) || self.tables.contains(name)
    }

    /// The filter's condition on schemas, with which the information schema reads fewer tables.
    fn schema_condition(&self, schema_column: &str) -> String {
        let own: Vec<String> = OWN_SCHEMAS.iter().map(|schema| quote::text(schema)).collect();
        let mut sql = format!("{schema_column} NOT IN ({})", own.join(", "));
        let mut wanted: Vec<String> = self.schemas.iter().map(|schema| quote::text(schema)).collect();
        wanted.extend(self.tables.iter().map(|name| quote::text(&name.schema)));
        if !wanted.is_empty() {
            sql += &format!(" AND {schema_column} IN ({})", wanted.join(", "));
        }
        sql
    }

    /// Finds a name in the filter that neither server has: a comparison of no tables must not look like a success.
    pub(super) fn find_unknown_name(&self, source: &Catalog, replica: &Catalog) -> Option<String> {
        let known = |is_meant: &dyn Fn(&TableName) -> bool| source.keys().chain(replica.keys()).any(is_meant);
        let schema = self.schemas.iter().find(|schema| !known(&|name| name.schema == **schema));
        let table = self.tables.iter().find(|table| !known(&|name| name == *table));
        schema.cloned().or_else(|| table.map(TableName::to_string))
    }
}

/// Reads all tables that the filter admits.
pub(super) fn read(connection: &mut Connection, filter: &Filter) -> Result<Catalog> {
    let mut catalog = read_tables(connection, filter)?;
    read_columns(connection, filter, &mut catalog)?;
    read_keys(connection, filter, &mut catalog)?;
    Ok(catalog)
}

fn read_tables(connection: &mut Connection, filter: &Filter) -> Result<Catalog> {
    let answer = connection.query(&format!(
        "SELECT t.TABLE_SCHEMA, t.TABLE_NAME, t.TABLE_TYPE, COALESCE(e.TRANSACTIONS, 'NO') FROM information_schema.TABLES t \
         LEFT JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE \
         WHERE t.TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED') AND {}",
        filter.schema_condition("t.TABLE_SCHEMA")
    ))?;
    let mut catalog = Catalog::new();
    for row in 0..answer.rows.len() {
        let name = table_name(&answer, row)?;
        if filter.admits(&name) {
            let is_versioned = field(&answer, row, 2)? == "SYSTEM VERSIONED";
            let is_transactional = field(&answer, row, 3)? == "YES";
            catalog.insert(
                name,
                Table { columns: vec![], key: None, is_transactional, is_versioned, hash: RowHash::default() },
            );
        }
    }
    Ok(catalog)
}

fn read_columns(connection: &mut Connection, filter: &Filter, catalog: &mut Catalog) -> Result<()> {
    let answer = connection.query(&format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, EXTRA, CHARACTER_SET_NAME, \
         COLLATION_NAME FROM information_schema.COLUMNS WHERE {} ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION",
        filter.schema_condition("TABLE_SCHEMA")
    ))?;
    for row in 0..answer.rows.len() {
        if let Some(table) = catalog.get_mut(&table_name(&answer, row)?) {
            table.columns.push(Column {
                name: field(&answer, row, 2)?,
                data_type: field(&answer, row, 3)?.to_ascii_lowercase(),
                column_type: field(&answer, row, 4)?,
                is_nullable: field(&answer, row, 5)? == "YES",
                is_virtual: field(&answer, row, 6)?.to_ascii_uppercase().contains("VIRTUAL"),
                character_set: answer.text_at(row, 7),
                collation: answer.text_at(row, 8),
            });
        }
    }
    Ok(())
}

fn read_keys(connection: &mut Connection, filter: &Filter, catalog: &mut Catalog) -> Result<()> {
    let answer = connection.query(&format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART IS NULL AND INDEX_TYPE = 'BTREE' \
         FROM information_schema.STATISTICS WHERE NON_UNIQUE = 0 AND {} \
         ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX",
        filter.schema_condition("TABLE_SCHEMA")
    ))?;
    // The query returns the primary key first, and the first usable index wins.
    let mut keys: Vec<(TableName, String, Option<Vec<usize>>)> = Vec::new();
    for row in 0..answer.rows.len() {
        let name = table_name(&answer, row)?;
        let Some(table) = catalog.get(&name) else { continue };
        let index = field(&answer, row, 2)?;
        if keys.last().is_none_or(|(of, last, _)| (of, last) != (&name, &index)) {
            keys.push((name, index, Some(Vec::new())));
        }
        let column = field(&answer, row, 3)?;
        let place = table.columns.iter().position(|known| known.name == column);
        let is_whole = field(&answer, row, 4)? == "1";
        let usable = place.filter(|place| is_whole && is_usable_in_key(&table.columns[*place]));
        if let Some((_, _, columns)) = keys.last_mut() {
            match (usable, columns.as_mut()) {
                (Some(place), Some(columns)) => columns.push(place),
                _ => *columns = None,
            }
        }
    }
    for (name, index, columns) in keys {
        if let (Some(table), Some(columns)) = (catalog.get_mut(&name), columns) {
            table.key.get_or_insert((index, columns));
        }
    }
    Ok(())
}

/// True if literals of the column's values compare as the values themselves do.
fn is_usable_in_key(column: &Column) -> bool {
    const TYPES: [&str; 24] = [
        "tinyint",
        "smallint",
        "mediumint",
        "int",
        "bigint",
        "decimal",
        "float",
        "double",
        "bit",
        "enum",
        "set",
        "year",
        "date",
        "datetime",
        "timestamp",
        "time",
        "char",
        "varchar",
        "binary",
        "varbinary",
        "uuid",
        "inet4",
        "inet6",
        "numeric",
    ];
    !column.is_nullable && !column.is_virtual && TYPES.contains(&column.data_type.as_str())
}

fn field(answer: &ResultSet, row: usize, column: usize) -> Result<String> {
    answer.text_at(row, column).ok_or_else(|| Error::unexpected("the information schema returned an unexpected NULL"))
}

fn table_name(answer: &ResultSet, row: usize) -> Result<TableName> {
    Ok(TableName { schema: field(answer, row, 0)?, table: field(answer, row, 1)? })
}

/// Reads rows and bytes per row of each table from the source's rough statistics.
pub(super) fn read_sizes(connection: &mut Connection, filter: &Filter) -> Result<HashMap<TableName, (u64, u64)>> {
    let answer = connection.query(&format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, COALESCE(TABLE_ROWS, 0), COALESCE(AVG_ROW_LENGTH, 0) \
         FROM information_schema.TABLES WHERE {}",
        filter.schema_condition("TABLE_SCHEMA")
    ))?;
    let mut sizes = HashMap::new();
    for row in 0..answer.rows.len() {
        let number = |column| field(&answer, row, column).map(|text| text.parse().unwrap_or(0));
        sizes.insert(table_name(&answer, row)?, (number(2)?, number(3)?));
    }
    Ok(sizes)
}

/// The columns that only the replica has, after those that both have. Replication does not change them.
pub(super) fn own_columns<'a>(source: &Table, replica: &'a Table) -> Vec<&'a str> {
    let behind = replica.columns.iter().skip(source.columns.len());
    let is_own = |column: &&Column| !source.columns.iter().any(|other| other.name == column.name);
    behind.filter(is_own).map(|column| column.name.as_str()).collect()
}

/// Describes how the replica's columns differ from the source's, one sentence each.
pub(super) fn describe_column_differences(source: &Table, replica: &Table) -> Vec<String> {
    let mut differences = Vec::new();
    for (place, column) in source.columns.iter().enumerate() {
        let found = replica.columns.iter().position(|other| other.name == column.name);
        let Some(found) = found else {
            differences.push(format!("column {} is missing on the replica", quote::identifier(&column.name)));
            continue;
        };
        if found != place {
            let name = quote::identifier(&column.name);
            differences.push(format!(
                "column {name} is number {} on the source, {} on the replica",
                place + 1,
                found + 1
            ));
        }
        let (ours, theirs) = (describe(column), describe(&replica.columns[found]));
        if ours != theirs {
            let name = quote::identifier(&column.name);
            differences.push(format!("column {name} is {ours} on the source, {theirs} on the replica"));
        }
    }
    let own = own_columns(source, replica);
    for column in &replica.columns {
        if !source.columns.iter().any(|other| other.name == column.name) && !own.contains(&column.name.as_str()) {
            differences.push(format!("column {} is missing on the source", quote::identifier(&column.name)));
        }
    }
    if source.is_versioned != replica.is_versioned {
        differences.push("only one of the two is system-versioned".to_owned());
    }
    differences
}

fn describe(column: &Column) -> String {
    let mut text = without_display_width(column);
    if let (Some(character_set), Some(collation)) = (&column.character_set, &column.collation) {
        text += &format!(" {character_set}/{collation}");
    }
    if column.is_virtual {
        text += " (virtual)";
    }
    text
}

/// `int(11)` and `int` are the same type: newer MySQL no longer shows the width.
fn without_display_width(column: &Column) -> String {
    let is_integer = ["tinyint", "smallint", "mediumint", "int", "bigint"].contains(&column.data_type.as_str());
    match (is_integer, column.column_type.split_once('('), column.column_type.split_once(')')) {
        (true, Some((before, _)), Some((_, after))) => format!("{before}{after}"),
        _ => column.column_type.clone(),
    }
}
