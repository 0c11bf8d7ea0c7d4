//! The tables that rows go to: looked up, made on demand, compared with what they are to be.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use spate_connection::{Connection, ResultSet, Vendor, quote};

use crate::columns::Columns;
use crate::definition::{Shape, has_broken_names};
use crate::error::{Error, Result};
use crate::layout::RuleLayout;
use crate::{indexes, manifest};

/// Of the error "unknown table", by both vendors' SHOW CREATE TABLE.
const NO_SUCH_TABLE: [u16; 2] = [1146, 1049];

/// A table's name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Name {
    pub(crate) schema: String,
    pub(crate) table: String,
}

impl Name {
    /// `schema.table`.
    ///
    /// # Errors
    /// It cannot be a name.
    pub(crate) fn parse(text: &str) -> std::result::Result<Name, String> {
        const LETTERS_MAX: usize = 64;
        let (schema, table) = text.split_once('.').ok_or_else(|| format!("{text:?} is no schema.table"))?;
        let fits = |name: &str| (1..=LETTERS_MAX).contains(&name.chars().count()) && !name.ends_with(' ');
        if !fits(schema) || !fits(table) || table.contains('.') {
            return Err(format!("{text:?} cannot be a table's name"));
        }
        if schema.eq_ignore_ascii_case("spate") || schema.eq_ignore_ascii_case(manifest::SCHEMA) {
            return Err(format!("the schema {schema} is Spate's own"));
        }
        Ok(Name { schema: schema.to_owned(), table: table.to_owned() })
    }

    pub(crate) fn quoted(&self) -> String {
        quote::qualified(&self.schema, &self.table)
    }

    pub(crate) fn parts(&self) -> (&str, &str) {
        (&self.schema, &self.table)
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.schema, self.table)
    }
}

/// What is known of a table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: Name,
    /// Its columns that a load may write, in order.
    pub(crate) columns: Vec<String>,
    /// Those of them that a list of columns may leave out to mean.
    pub(crate) visible: Vec<String>,
    /// Columns in which the server would store something else for NULL, and says nothing.
    pub(crate) never_null: Vec<String>,
    /// The columns of its primary key, and whether each is a whole number.
    pub(crate) key: Vec<(String, bool)>,
    pub(crate) rolls_back: bool,
    /// True if this load has made it.
    pub(crate) is_new: bool,
}

/// What a load makes, by names.
#[derive(Debug, Default)]
pub(crate) struct Made {
    pub(crate) tables: BTreeSet<String>,
    /// Each behind its table's name.
    pub(crate) partitions: BTreeSet<String>,
}

/// The tables of a load.
#[derive(Debug)]
pub(crate) struct Tables {
    job: String,
    known: HashMap<Name, Arc<Table>>,
    partitions: BTreeSet<(Name, String)>,
    /// How many tables and partitions each rule has come to.
    used: BTreeMap<String, usize>,
    /// Tables and partitions that were made, or would be.
    pub(crate) made: Made,
    /// True if tables are made without the indexes that may come later.
    pub(crate) indexes_later: bool,
    /// True if nothing may be made.
    is_dry: bool,
}

impl Tables {
    pub(crate) fn new(job: &str, is_dry: bool) -> Tables {
        Tables {
            job: job.to_owned(),
            known: HashMap::new(),
            partitions: BTreeSet::new(),
            used: BTreeMap::new(),
            made: Made::default(),
            indexes_later: false,
            is_dry,
        }
    }

    /// The table of this name, made if it is not there and the rule has a template. In a dry run, the template itself.
    ///
    /// # Errors
    /// [`Error::Table`] if it is not there, is of another shape, or one too many.
    pub(crate) fn find(&mut self, connection: &mut Connection, rule: &RuleLayout, name: &Name) -> Result<Arc<Table>> {
        if let Some(table) = self.known.get(name) {
            return Ok(Arc::clone(table));
        }
        self.count(rule, name)?;
        let refused = |why: String| Error::Table { table: name.to_string(), why };
        let template = rule.template.as_deref().map(Name::parse).transpose().map_err(refused)?;
        let mut is_new = false;
        match (show_create(connection, name)?, &template) {
            (None, None) => {
                return Err(refused(
                    "it is not there, and the layout names no template to make it like (template = \"schema.table\")"
                        .to_owned(),
                ));
            }
            (None, Some(template)) => {
                self.make(connection, name, template)?;
                self.made.tables.insert(name.to_string());
                is_new = true;
            }
            (Some(present), Some(template)) => compare(connection, name, &present, template)?,
            (Some(_), None) => {}
        }
        let shown = if is_new && self.is_dry { template.as_ref().unwrap_or(name) } else { name };
        let table = Arc::new(read(connection, name, shown, is_new)?);
        self.known.insert(name.clone(), Arc::clone(&table));
        Ok(table)
    }

    fn count(&mut self, rule: &RuleLayout, name: &Name) -> Result<()> {
        let used = self.used.entry(rule.name.text().to_owned()).or_default();
        *used += 1;
        match *used > rule.max_tables {
            false => Ok(()),
            true => {
                let why = format!(
                    "it would be number {used} of the rule {:?}, which has max-tables = {}: damaged values may be the reason (columns \
                     can have min and max); or raise the limit",
                    rule.name.text(),
                    rule.max_tables
                );
                Err(Error::Table { table: name.to_string(), why })
            }
        }
    }

    fn make(&mut self, connection: &mut Connection, name: &Name, template: &Name) -> Result<()> {
        let failed = |error: spate_connection::Error| Error::Table {
            table: name.to_string(),
            why: format!("it cannot be made like {template}: {error}"),
        };
        let Some(definition) = show_create(connection, template)? else {
            let why = format!("its template {template} is not there");
            return Err(Error::Table { table: name.to_string(), why });
        };
        if self.is_dry {
            return Ok(());
        }
        let definitions = Shape::of(&definition).indexes;
        let is_owed = self.indexes_later && !definitions.is_empty();
        if is_owed {
            manifest::owe_indexes(connection, &self.job, name.parts(), &definitions)?;
        }
        spate_archive::stopping_point("load-before-table");
        let create = format!("CREATE TABLE IF NOT EXISTS {} LIKE {}", name.quoted(), template.quoted());
        connection.execute_single(create.as_bytes()).map_err(failed)?;
        spate_archive::stopping_point("load-after-table");
        if is_owed {
            let alter = format!("ALTER TABLE {} {}", name.quoted(), indexes::drop_all(&definitions));
            connection.execute_single(alter.as_bytes()).map_err(failed)?;
        }
        Ok(())
    }

    /// Makes a partition that is not there.
    ///
    /// # Errors
    /// [`Error::Table`].
    pub(crate) fn make_partition(
        &mut self,
        connection: &mut Connection,
        rule: &RuleLayout,
        table: &Name,
        partition: &str,
        values: &str,
    ) -> Result<()> {
        let key = (table.clone(), partition.to_owned());
        if self.partitions.contains(&key) {
            return Ok(());
        }
        self.count(rule, table)?;
        let failed = |why: String| Error::Table {
            table: table.to_string(),
            why: format!("partition {partition} cannot be made: {why}"),
        };
        let found = connection.query(&format!(
            "SELECT PARTITION_NAME, PARTITION_DESCRIPTION, PARTITION_METHOD FROM information_schema.PARTITIONS \
             WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {} ORDER BY PARTITION_ORDINAL_POSITION",
            quote::text(&table.schema),
            quote::text(&table.table)
        ))?;
        let names = (0..found.rows.len()).filter_map(|row| found.text_at(row, 0));
        if names.count() == 0 && !self.is_dry {
            return Err(failed("the table is not partitioned".to_owned()));
        }
        let is_there = (0..found.rows.len())
            .any(|row| found.text_at(row, 0).is_some_and(|name| name.eq_ignore_ascii_case(partition)));
        if !is_there && !self.is_dry {
            let alter = match next_higher(connection, &found, values).map_err(|error| failed(error.to_string()))? {
                Some((next, description)) => format!(
                    "ALTER TABLE {} REORGANIZE PARTITION {next} INTO (PARTITION {} VALUES {values}, \
                     PARTITION {next} VALUES LESS THAN {description})",
                    table.quoted(),
                    quote::identifier(partition),
                    next = quote::identifier(&next)
                ),
                None => {
                    let partition = quote::identifier(partition);
                    format!("ALTER TABLE {} ADD PARTITION (PARTITION {partition} VALUES {values})", table.quoted())
                }
            };
            connection.execute_single(alter.as_bytes()).map_err(|error| failed(error.to_string()))?;
        }
        if !is_there {
            self.made.partitions.insert(format!("{table} {partition}"));
        }
        self.partitions.insert(key);
        Ok(())
    }

    /// The columns of a table that a list of columns may leave out to mean: its template's, if it is to be made.
    ///
    /// # Errors
    /// [`Error::Table`] if neither is there.
    pub(crate) fn columns_of(connection: &mut Connection, rule: &RuleLayout) -> Result<Vec<String>> {
        let names = [Some(rule.name.text()), rule.template.as_deref()];
        for name in names.into_iter().flatten().filter_map(|name| Name::parse(name).ok()) {
            if show_create(connection, &name)?.is_some() {
                return Ok(read(connection, &name, &name, false)?.visible);
            }
        }
        let why =
            "it is not there, and the layout has no columns: add [[column]], or let the files have a header".to_owned();
        Err(Error::Table { table: rule.name.text().to_owned(), why })
    }

    /// Looks a table up again when it is wanted next.
    pub(crate) fn forget(&mut self, name: &Name) {
        self.known.remove(name);
    }

    /// Forgets all tables and their count, for the next file of a watch.
    pub(crate) fn forget_all(&mut self) {
        self.known.clear();
        self.partitions.clear();
        self.used.clear();
    }

    /// All tables that rows went to.
    pub(crate) fn known(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.known.values()
    }
}

/// Of ranges: the partition that holds the new one's rows now, and what it is less than.
fn next_higher(connection: &mut Connection, found: &ResultSet, values: &str) -> Result<Option<(String, String)>> {
    let method = found.text_at(0, 2).unwrap_or_default();
    let Some(bound) = values.trim().strip_prefix("LESS THAN").filter(|_| method.starts_with("RANGE")) else {
        return Ok(None);
    };
    for row in 0..found.rows.len() {
        let description = found.text_at(row, 1).unwrap_or_default();
        let Some(name) = found.text_at(row, 0) else { continue };
        if description == "MAXVALUE" {
            return Ok(Some((name, "MAXVALUE".to_owned())));
        }
        let is_higher = connection.query(&format!("SELECT ({description}) > {bound}"))?;
        if is_higher.single_text().as_deref() == Some("1") {
            return Ok(Some((name, format!("({description})"))));
        }
    }
    Ok(None)
}

/// The text of SHOW CREATE TABLE; `None` if there is no such table.
///
/// # Errors
/// [`Error::Table`] for a view, and for names that cannot be read; any error of the connection.
pub(crate) fn show_create(connection: &mut Connection, name: &Name) -> Result<Option<String>> {
    let shown = match connection.query(&format!("SHOW CREATE TABLE {}", name.quoted())) {
        Ok(shown) => shown,
        Err(error) if error.code().is_some_and(|code| NO_SUCH_TABLE.contains(&code)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    match shown.text(0, "Create Table") {
        Some(text) if has_broken_names(&text) => {
            let why = "a name or a comment in its definition has a control character: rename it".to_owned();
            Err(Error::Table { table: name.to_string(), why })
        }
        Some(text) => Ok(Some(text)),
        None => Err(Error::Table { table: name.to_string(), why: "it is a view".to_owned() }),
    }
}

fn compare(connection: &mut Connection, name: &Name, present: &str, template: &Name) -> Result<()> {
    let refused = |why: String| Err(Error::Table { table: name.to_string(), why });
    let Some(wanted) = show_create(connection, template)? else {
        return refused(format!("its template {template} is not there"));
    };
    let (present, wanted) = (Shape::of(present).fixed, Shape::of(&wanted).fixed);
    match wanted.iter().zip(&present).find(|(wanted, present)| wanted != present) {
        _ if wanted.len() != present.len() => refused(format!(
            "it is there with another shape than its template {template}: {} columns and unique keys instead of {}",
            present.len(),
            wanted.len()
        )),
        Some((wanted, present)) => refused(format!(
            "it is there with another shape than its template {template}: {present} instead of {wanted}"
        )),
        None => Ok(()),
    }
}

fn read(connection: &mut Connection, name: &Name, shown: &Name, is_new: bool) -> Result<Table> {
    let place = format!("TABLE_SCHEMA = {} AND TABLE_NAME = {}", quote::text(&shown.schema), quote::text(&shown.table));
    let columns = connection.query(&format!(
        "SELECT COLUMN_NAME, DATA_TYPE, EXTRA, IS_NULLABLE FROM information_schema.COLUMNS WHERE {place} ORDER BY ORDINAL_POSITION"
    ))?;
    let text = |row, column| columns.text_at(row, column).unwrap_or_default();
    let all = 0..columns.rows.len();
    let is_written = |row: &usize| {
        !text(*row, 2).to_uppercase().contains("GENERATED") || text(*row, 2).contains("DEFAULT_GENERATED")
    };
    let numbers: BTreeSet<String> = all
        .clone()
        .filter(|&row| text(row, 1).to_lowercase().ends_with("int"))
        .map(|row| text(row, 0).to_lowercase())
        .collect();
    let key = connection.query(&format!(
        "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE {place} AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX"
    ))?;
    let key = (0..key.rows.len()).filter_map(|row| key.text_at(row, 0));
    let is_visible = |row: &usize| !text(*row, 2).to_uppercase().contains("INVISIBLE");
    // MySQL stores the time of the load, by one of its doors; MariaDB does so by both, and means it.
    let is_mysql = connection.server_version().vendor == Vendor::MySql;
    let is_never_null =
        |row: &usize| is_mysql && text(*row, 1).eq_ignore_ascii_case("timestamp") && text(*row, 3) == "NO";
    Ok(Table {
        name: name.clone(),
        visible: all.clone().filter(is_written).filter(is_visible).map(|row| text(row, 0)).collect(),
        never_null: all.clone().filter(is_never_null).map(|row| text(row, 0)).collect(),
        columns: all.filter(is_written).map(|row| text(row, 0)).collect(),
        key: key.map(|column| (column.clone(), numbers.contains(&column.to_lowercase()))).collect(),
        rolls_back: rolls_back(connection, shown)?,
        is_new,
    })
}

/// True if the table's engine can roll back.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn rolls_back(connection: &mut Connection, name: &Name) -> Result<bool> {
    let engine = connection.query(&format!(
        "SELECT e.TRANSACTIONS FROM information_schema.TABLES t JOIN information_schema.ENGINES e ON e.ENGINE = t.ENGINE \
         WHERE TABLE_SCHEMA = {} AND TABLE_NAME = {}",
        quote::text(&name.schema),
        quote::text(&name.table)
    ))?;
    Ok(engine.single_text().is_some_and(|answer| answer.eq_ignore_ascii_case("yes")))
}

/// The beginning and the end of the statement that loads rows of these columns.
pub(crate) fn column_list(columns: &Columns) -> (String, String) {
    let mut names = Vec::new();
    let mut set = Vec::new();
    for (number, column) in columns.all.iter().enumerate().filter(|(_, column)| column.loads) {
        let name = quote::identifier(&column.name);
        if column.is_hexadecimal() {
            names.push(format!("@v{number}"));
            set.push(format!("{name} = UNHEX(@v{number})"));
        } else {
            names.push(name);
        }
    }
    let set = if set.is_empty() { String::new() } else { format!(" SET {}", set.join(", ")) };
    (names.join(", "), set)
}

/// Fails unless the table has all columns.
///
/// # Errors
/// [`Error::Table`].
pub(crate) fn check_columns(table: &Table, columns: &Columns) -> Result<()> {
    for column in columns.all.iter().filter(|column| column.loads) {
        if !table.columns.iter().any(|name| name.eq_ignore_ascii_case(&column.name)) {
            let why = format!(
                "it has no column {:?} that can be written; its columns are {} (load = false keeps a column of the layout out)",
                column.name,
                table.columns.join(", ")
            );
            return Err(Error::Table { table: table.name.to_string(), why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_table_has_are_refused() {
        assert_eq!(Name::parse("a.b").unwrap().to_string(), "a.b");
        for wrong in ["b", ".b", "a.", "a.b.c", "spate.x", "SPATE.x", &format!("a.{}", "x".repeat(65))] {
            assert!(Name::parse(wrong).is_err(), "{wrong}");
        }
    }
}
