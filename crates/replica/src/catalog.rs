//! Definitions of the replica's tables, as folding needs them.

use std::collections::{BTreeSet, HashMap, HashSet};

use spate_schedule::definition::{ColumnDefinition, LookupDefinition, SecondaryIndex, UniqueKey};
use spate_schedule::outdated::Outdated;
use spate_schedule::versioning::LastMoment;
use spate_schedule::{TableDefinition, TableName};

use crate::foreign_keys::{self, ForeignKey, Groups};
use crate::journal::Intent;
use crate::known_texts::{self, KnownTexts};
use crate::others::{Noticed, Others};
use spate_connection::{Connection, Result, ResultSet, ServerVersion, Vendor, quote};

/// Tables whose definitions are read together at most. A question about one costs as many round trips as about all of them.
const PAGE_TABLES_MAX: usize = 256;

/// A page of tables that are this wide together is not followed by a larger one: wide tables make large answers.
const PAGE_COLUMNS_MAX: usize = 8 << 10;

/// Columns of tables that were read ahead and that nobody has asked for yet, at some hundred bytes each. With more at hand, no
/// more is read ahead.
const AHEAD_COLUMNS_MAX: usize = 128 << 10;

const NO_SUCH_TABLE: u16 = 1146;

/// Tables that definitions have named and nobody has asked for, at some hundred bytes each. With more, all are forgotten.
const DEFINED_MAX: usize = 4 << 10;

/// Reads definitions over a connection of its own, so that the applier's is never in the way.
///
/// A source with thousands of tables changes them one after the other, and each is asked for when it is first met. So with each
/// table of a schema, twice as many others of it are read along as the time before: one table alone costs one table's questions, a
/// thousand some ten times that.
///
/// Foreign keys are read once for all tables and kept until [`Catalog::forget`], since a table's policy depends on every
/// table that foreign keys connect it with.
#[derive(Debug)]
pub struct Catalog {
    connection: Connection,
    foreign_keys: Option<Groups>,
    /// Those that `foreign_keys` was made of, in order.
    known_keys: Vec<ForeignKey>,
    transactional_engines: Option<Vec<String>>,
    last_moment: Option<LastMoment>,
    /// The user may delete rows of every table, and sees every trigger.
    may_delete_anywhere: Option<bool>,
    /// Say which tables have triggers.
    with_triggers: bool,
    /// Definitions that were read and not asked for. Only of tables with a row key: how the rows of others are found is looked
    /// up when it is needed.
    ahead: HashMap<TableName, TableDefinition>,
    /// Tables that definitions have named since they were read last. That these are asked for says nothing of others.
    defined: HashSet<TableName>,
    schemas: HashMap<String, SchemaPages>,
    texts: KnownTexts,
}

/// The tables of a schema that are still to be read.
#[derive(Debug, Default)]
struct SchemaPages {
    /// Its tables that were not read yet. Listed with the second table that is asked for.
    unread: Option<BTreeSet<String>>,
    /// How many to read the next time.
    page_tables: usize,
}

/// An answer, with its rows by table.
#[derive(Debug)]
struct Grouped {
    answer: ResultSet,
    rows: HashMap<String, Vec<usize>>,
}

impl Grouped {
    fn rows_of(&self, table: &str) -> &[usize] {
        self.rows.get(table).map_or(&[], Vec::as_slice)
    }
}

#[derive(Debug)]
struct Index {
    name: String,
    columns: Vec<Option<usize>>,
    is_unique: bool,
    has_null: bool,
    is_prefix: bool,
    is_btree: bool,
    is_hash: bool,
}

impl Index {
    /// True if the servers may take it for the primary key where there is none.
    fn is_row_key(&self) -> bool {
        self.is_unique && self.is_btree && !self.has_null && !self.is_prefix && self.columns.iter().all(Option::is_some)
    }
}

impl Catalog {
    /// A catalog over `connection`.
    pub fn new(connection: Connection) -> Catalog {
        Catalog {
            connection,
            foreign_keys: None,
            known_keys: vec![],
            transactional_engines: None,
            last_moment: None,
            may_delete_anywhere: None,
            with_triggers: false,
            ahead: HashMap::new(),
            defined: HashSet::new(),
            schemas: HashMap::new(),
            texts: KnownTexts::default(),
        }
    }

    /// The replica's version.
    pub fn server_version(&self) -> &ServerVersion {
        self.connection.server_version()
    }

    /// Until when the replica's time stamps reach. A server whose time has 32 bits does not reach as far as its version would.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn last_moment(&mut self) -> Result<LastMoment> {
        if let Some(known) = self.last_moment {
            return Ok(known);
        }
        let mut last = LastMoment::of(self.server_version().reader());
        if last == LastMoment::In2106
            && self.connection.query("SELECT FROM_UNIXTIME(4294967295)")?.single_text().is_none()
        {
            last = LastMoment::In2038;
        }
        self.last_moment = Some(last);
        Ok(last)
    }

    /// What others have changed on the replica since this was last looked at.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn look_for_others(&mut self, others: &mut Others<'_>) -> Result<Noticed> {
        others.look(&mut self.connection)
    }

    /// From now on, says which tables have triggers.
    pub fn include_triggers(&mut self) {
        self.with_triggers = true;
    }

    /// Forgets definitions that DDL has put out of date, and returns which: more than was asked if foreign keys connect one of the
    /// tables with others.
    pub fn forget(&mut self, outdated: &Outdated) -> Outdated {
        let outdated = match outdated {
            Outdated::Tables(tables) if self.has_no_foreign_keys(tables) => outdated.clone(),
            // A statement about triggers; and the definitions tell whether a table has one.
            Outdated::Keyless if self.with_triggers => Outdated::All,
            Outdated::Nothing | Outdated::Keyless => outdated.clone(),
            Outdated::Tables(_) | Outdated::All => Outdated::All,
        };
        if let Outdated::Tables(tables) = &outdated {
            if self.defined.len() > DEFINED_MAX {
                self.defined.clear();
            }
            self.defined.extend(tables.iter().cloned());
        }
        match outdated {
            Outdated::All => {
                self.foreign_keys = None;
                self.ahead.clear();
                self.schemas.clear();
            }
            _ => self.ahead.retain(|_, definition| !outdated.includes(definition)),
        }
        outdated
    }

    /// True if no foreign key connects one of these tables with another.
    fn has_no_foreign_keys(&self, tables: &[TableName]) -> bool {
        let Some(keys) = &self.foreign_keys else { return false };
        !tables.iter().any(|table| keys.tables().any(|known| table.may_be(known)))
    }

    /// A definition that was read along with others, if it is still at hand: it needs no question.
    pub fn at_hand(&mut self, name: &TableName) -> Option<TableDefinition> {
        self.ahead.remove(name)
    }

    /// The definition of a table, or `None` if the replica does not have it (or does not show it to this user).
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn definition(&mut self, name: &TableName) -> Result<Option<TableDefinition>> {
        if self.defined.remove(name) {
            return self.definition_alone(name);
        }
        let page = self.page(name)?;
        match page.len() {
            1 => self.definition_alone(name),
            _ => {
                let read = self.read_page(name, &page)?;
                self.with_lookup(read)
            }
        }
    }

    /// The same, and reads no other table along with it.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn definition_alone(&mut self, name: &TableName) -> Result<Option<TableDefinition>> {
        self.defined.remove(name);
        let read = self.read_one(name)?;
        self.with_lookup(read)
    }

    /// Says how rows of a table without a key are found.
    fn with_lookup(&mut self, definition: Option<TableDefinition>) -> Result<Option<TableDefinition>> {
        let Some(mut definition) = definition else { return Ok(None) };
        if definition.row_key.is_empty() {
            definition.lookup = self.lookup(&definition.name)?;
        }
        Ok(Some(definition))
    }

    /// What the objects are that this definition is about to change: see [`Intent`]. `None`: that is known only when all before it is in effect.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn fingerprint(&mut self, intent: &Intent) -> crate::Result<Option<String>> {
        intent.fingerprint_ahead(&mut self.connection)
    }

    /// Reads a table together with others, which are kept for when they are asked for.
    fn read_page(&mut self, name: &TableName, page: &[String]) -> Result<Option<TableDefinition>> {
        let mut definitions = self.read(&name.schema, page)?;
        if !definitions.contains_key(&name.table) {
            definitions.extend(self.read(&name.schema, std::slice::from_ref(&name.table))?);
        }
        let definition = definitions.remove(&name.table);
        let others = definitions.into_values().filter(|definition| !definition.row_key.is_empty());
        self.ahead.extend(others.map(|definition| (definition.name.clone(), definition)));
        Ok(definition)
    }

    /// Reads a table, unless one of the same text was read before.
    fn read_one(&mut self, name: &TableName) -> Result<Option<TableDefinition>> {
        let text = known_texts::ask(&mut self.connection, name)?;
        let known = text.as_ref().and_then(|text| self.texts.definition(text, name));
        if let Some(mut definition) = known {
            let foreign_keys = self.foreign_keys()?;
            definition.has_engine_actions = foreign_keys.has_actions(name);
            definition.foreign_group = foreign_keys.of(name);
            let (schema, table) = (quote::text(&name.schema), quote::text(&name.table));
            let place = format!("EVENT_OBJECT_SCHEMA = {schema} AND EVENT_OBJECT_TABLE = {table}");
            definition.trigger = self.triggers(&place)?.remove(&name.table);
            return Ok(Some(definition));
        }
        let definition = self.read(&name.schema, std::slice::from_ref(&name.table))?.remove(&name.table);
        // Somebody may have changed it in between.
        if let (Some(definition), Some(text)) = (&definition, text)
            && known_texts::ask(&mut self.connection, name)?.as_ref() == Some(&text)
        {
            self.texts.insert(text, definition);
        }
        Ok(definition)
    }

    /// The tables to read with `name`, itself among them.
    fn page(&mut self, name: &TableName) -> Result<Vec<String>> {
        let pages = self.schemas.entry(name.schema.clone()).or_default();
        let ahead: usize = self.ahead.values().map(|definition| definition.columns.len()).sum();
        let others = if ahead < AHEAD_COLUMNS_MAX { pages.page_tables.saturating_sub(1) } else { 0 };
        pages.page_tables = (pages.page_tables * 2).clamp(1, PAGE_TABLES_MAX);
        if others == 0 {
            return Ok(vec![name.table.clone()]);
        }
        if pages.unread.is_none() {
            let sql = format!(
                "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = {}",
                quote::text(&name.schema)
            );
            let rows = self.connection.query(&sql)?;
            pages.unread = Some((0..rows.rows.len()).filter_map(|row| rows.text_at(row, 0)).collect());
        }
        let unread = pages.unread.get_or_insert_default();
        unread.remove(&name.table);
        let after = unread.range(name.table.clone()..).chain(unread.range(..name.table.clone()));
        let mut page: Vec<String> = after.take(others).cloned().collect();
        for table in &page {
            unread.remove(table);
        }
        page.push(name.table.clone());
        Ok(page)
    }

    /// Reads the definitions of these tables of a schema, by name; those that the replica does not have are left out.
    fn read(&mut self, schema: &str, tables: &[String]) -> Result<HashMap<String, TableDefinition>> {
        let names: Vec<String> = tables.iter().map(|table| quote::text(table)).collect();
        let names = match names.as_slice() {
            // The server looks only for this table then, and not through the schema.
            [name] => format!("= {name}"),
            names => format!("IN ({})", names.join(", ")),
        };
        let place = format!("TABLE_SCHEMA = {} AND TABLE_NAME {names}", quote::text(schema));
        let only = (tables.len() == 1).then(|| &*tables[0]);
        let kinds = self.grouped(
            only,
            &format!("SELECT TABLE_NAME, ENGINE, TABLE_TYPE FROM information_schema.TABLES WHERE {place}"),
        )?;
        if kinds.answer.rows.is_empty() {
            return Ok(Default::default());
        }
        let columns = self.grouped(
            only,
            &format!(
                "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, EXTRA, GENERATION_EXPRESSION, CHARACTER_SET_NAME, COLLATION_NAME, \
             IS_NULLABLE, COLUMN_DEFAULT IS NULL FROM information_schema.COLUMNS WHERE {place} ORDER BY TABLE_NAME, ORDINAL_POSITION"
            ),
        )?;
        // MariaDB lists keys in its own order, in which the first unique key without NULL is the one that it treats as the
        // primary key. MySQL lists them in any.
        let order = match self.connection.server_version().vendor {
            Vendor::MariaDb => "",
            Vendor::MySql => "ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX",
        };
        let indexes = self.grouped(
            only,
            &format!(
                "SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME, NULLABLE, SUB_PART, INDEX_TYPE \
             FROM information_schema.STATISTICS WHERE {place} {order}"
            ),
        )?;
        let checked = self.checked(&place)?;
        let triggers =
            self.triggers(&format!("EVENT_OBJECT_SCHEMA = {} AND EVENT_OBJECT_TABLE {names}", quote::text(schema)))?;
        if columns.answer.rows.len() > PAGE_COLUMNS_MAX
            && let Some(pages) = self.schemas.get_mut(schema)
        {
            pages.page_tables = pages.page_tables.min(tables.len());
        }
        let mut definitions = HashMap::new();
        // By their exact names: the server compares names in a WHERE without regard to case.
        for table in tables {
            let Some(&kind) = kinds.rows_of(table).first() else { continue };
            let name = TableName { schema: schema.to_owned(), table: table.clone() };
            let text = |column| kinds.answer.text_at(kind, column).unwrap_or_default();
            let (engine, table_type) = (text(1), text(2));
            let columns = (&columns.answer, columns.rows_of(table));
            let indexes = (&indexes.answer, indexes.rows_of(table));
            let trigger = triggers.get(table).cloned();
            let is_checked = checked.contains(table);
            let mut definition = self.define(name, engine, &table_type, columns, indexes)?;
            if definition.row_end.is_some() {
                definition.has_history_limit = self.has_history_limit(&definition.name)?;
            }
            definition.depends_on_session |= is_checked;
            definitions.insert(table.clone(), TableDefinition { trigger, ..definition });
        }
        Ok(definitions)
    }

    /// Whether the history of a system-versioned table is divided into partitions of so many rows. No view tells.
    fn has_history_limit(&mut self, name: &TableName) -> Result<bool> {
        let sql = format!("SHOW CREATE TABLE {}", quote::qualified(&name.schema, &name.table));
        match self.connection.query(&sql) {
            Ok(answer) => {
                Ok(answer.text_at(0, 1).is_some_and(|text| text.contains("\n PARTITION BY SYSTEM_TIME LIMIT ")))
            }
            // It was read along with others, and dropped meanwhile.
            Err(error) if error.code() == Some(NO_SUCH_TABLE) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The tables whose rows MySQL checks by expressions.
    fn checked(&mut self, place: &str) -> Result<BTreeSet<String>> {
        if self.server_version().vendor != Vendor::MySql {
            return Ok(BTreeSet::new());
        }
        let sql = format!(
            "SELECT TABLE_NAME FROM information_schema.TABLE_CONSTRAINTS WHERE {place} AND CONSTRAINT_TYPE = 'CHECK'"
        );
        let rows = self.connection.query(&sql)?;
        Ok((0..rows.rows.len()).filter_map(|row| rows.text_at(row, 0)).collect())
    }

    /// A trigger of each table that has one.
    fn triggers(&mut self, place: &str) -> Result<HashMap<String, String>> {
        if !self.with_triggers {
            return Ok(HashMap::new());
        }
        let sql = format!("SELECT EVENT_OBJECT_TABLE, TRIGGER_NAME FROM information_schema.TRIGGERS WHERE {place}");
        let rows = self.connection.query(&sql)?;
        let pair = |row| Some((rows.text_at(row, 0)?, rows.text_at(row, 1)?));
        Ok((0..rows.rows.len()).filter_map(pair).collect())
    }

    /// An answer whose first column is a table's name; `only`: all of it is about this table, however the server writes it.
    fn grouped(&mut self, only: Option<&str>, sql: &str) -> Result<Grouped> {
        let answer = self.connection.query(sql)?;
        let mut rows: HashMap<String, Vec<usize>> = HashMap::new();
        for row in 0..answer.rows.len() {
            let table = only.map(str::to_owned).or_else(|| answer.text_at(row, 0)).unwrap_or_default();
            rows.entry(table).or_default().push(row);
        }
        Ok(Grouped { answer, rows })
    }

    /// Makes a definition of the server's answers.
    fn define(
        &mut self,
        name: TableName,
        engine: String,
        table_type: &str,
        (columns, column_rows): (&ResultSet, &[usize]),
        (indexes, index_rows): (&ResultSet, &[usize]),
    ) -> Result<TableDefinition> {
        let is_row_end = |&row: &usize| columns.text_at(row, 4).as_deref() == Some("ROW END");
        let named_end = column_rows.iter().position(is_row_end);
        let mut columns = column_rows.iter().map(|&row| column(columns, row)).collect::<Vec<_>>();
        let indexes = read_indexes(indexes, index_rows, &columns);
        // Without names, the two columns come behind the listed ones.
        let is_system_versioned = table_type == "SYSTEM VERSIONED";
        let row_end = is_system_versioned.then(|| named_end.unwrap_or(columns.len() + 1));
        let hashes = indexes.iter().filter(|index| index.is_unique && index.is_hash && engine != "MEMORY").count();
        columns.extend(unlisted(is_system_versioned && named_end.is_none(), hashes));
        let is_transactional = self.transactional_engines()?.contains(&engine);
        let foreign_keys = self.foreign_keys()?;
        let (has_engine_actions, foreign_group) = (foreign_keys.has_actions(&name), foreign_keys.of(&name));
        let row_key_index = row_key_index(&indexes);
        let row_key = row_key_index.map_or(vec![], |index| indexes[index].columns.iter().copied().flatten().collect());
        let others = || {
            let is_other = |&(position, index): &(usize, &Index)| index.is_unique && Some(position) != row_key_index;
            indexes.iter().enumerate().filter(is_other).map(|(_, index)| index)
        };
        let equivalent_keys = others()
            .filter(|index| index.is_row_key())
            .map(|index| index.columns.iter().copied().flatten().collect())
            .collect();
        let secondary_indexes = secondary_indexes(&indexes, row_key_index);
        let unique_key = |index: &Index| UniqueKey {
            columns: index.columns.iter().copied().flatten().collect(),
            is_prefix: index.is_prefix,
        };
        let unique_keys: Vec<UniqueKey> = others().map(unique_key).collect();
        let mut unique_columns: Vec<usize> = unique_keys.iter().flat_map(|key| key.columns.clone()).collect();
        unique_columns.sort_unstable();
        unique_columns.dedup();
        let computes = columns.iter().any(|column| column.is_generated)
            || indexes.iter().any(|index| index.columns.contains(&None));
        let depends_on_session = computes && self.server_version().vendor == Vendor::MySql;
        let is_hidden = |column: &Option<usize>| column.is_none_or(|column| columns[column].is_generated);
        let has_hidden_unique_key = others().any(|index| index.columns.iter().any(is_hidden));
        Ok(TableDefinition {
            name,
            lookup: LookupDefinition::default(),
            row_key,
            row_key_name: row_key_index.map(|index| indexes[index].name.clone()).unwrap_or_default(),
            trigger: None,
            equivalent_keys,
            unique_columns,
            unique_keys,
            foreign_group,
            secondary_indexes,
            has_hidden_unique_key,
            depends_on_session,
            row_end,
            has_history_limit: false,
            is_sequence: table_type == "SEQUENCE",
            is_view: table_type.ends_with("VIEW"),
            engine,
            is_transactional,
            has_engine_actions,
            columns,
        })
    }

    /// How rows of a table without a row key can be found.
    fn lookup(&mut self, name: &TableName) -> Result<LookupDefinition> {
        let (schema, table) = (quote::text(&name.schema), quote::text(&name.table));
        let indexes = self.connection.query(&format!(
            "SELECT COALESCE(MAX(GREATEST(CARDINALITY, 1)), 0) FROM information_schema.STATISTICS \
             WHERE TABLE_SCHEMA = {schema} AND TABLE_NAME = {table} AND INDEX_TYPE = 'BTREE'"
        ))?;
        let distinct_values = indexes.single_text().and_then(|text| text.parse().ok()).unwrap_or(0);
        let triggers = self.connection.query(&format!(
            "SELECT 1 FROM information_schema.TRIGGERS \
             WHERE EVENT_OBJECT_SCHEMA = {schema} AND EVENT_OBJECT_TABLE = {table} LIMIT 1"
        ))?;
        let by_statement = triggers.rows.is_empty() && self.may_delete_anywhere()?;
        Ok(LookupDefinition { distinct_values, by_statement })
    }

    /// Whether the user has certain privileges everywhere. (Without the privilege TRIGGER, triggers exist that are not
    /// shown.)
    fn may_delete_anywhere(&mut self) -> Result<bool> {
        if self.connection.server_version().vendor == Vendor::MySql {
            // It has no DELETE … RETURNING, and looks for all rows of an event in one pass by itself.
            return Ok(false);
        }
        if let Some(known) = self.may_delete_anywhere {
            return Ok(known);
        }
        let user = self.connection.query("SELECT CURRENT_USER()")?.single_text().unwrap_or_default();
        let (name, host) = user.rsplit_once('@').unwrap_or((&user, ""));
        let rows = self.connection.query(&format!(
            "SELECT COUNT(DISTINCT PRIVILEGE_TYPE) FROM information_schema.USER_PRIVILEGES \
             WHERE PRIVILEGE_TYPE IN ('SELECT', 'DELETE', 'TRIGGER') AND GRANTEE = {}",
            quote::text(&format!("'{name}'@'{host}'"))
        ))?;
        let may = rows.single_text().as_deref() == Some("3");
        self.may_delete_anywhere = Some(may);
        Ok(may)
    }

    fn transactional_engines(&mut self) -> Result<&[String]> {
        if self.transactional_engines.is_none() {
            let sql = "SELECT ENGINE FROM information_schema.ENGINES WHERE TRANSACTIONS = 'YES'";
            let rows = self.connection.query(sql)?;
            self.transactional_engines = Some((0..rows.rows.len()).filter_map(|row| rows.text_at(row, 0)).collect());
        }
        Ok(self.transactional_engines.as_deref().unwrap_or_default())
    }

    /// True if the replica has other foreign keys than those that definitions were told by.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn foreign_keys_have_changed(&mut self) -> Result<bool> {
        if self.foreign_keys.is_none() {
            return Ok(false);
        }
        Ok(self.read_foreign_keys()? != self.known_keys)
    }

    fn read_foreign_keys(&mut self) -> Result<Vec<ForeignKey>> {
        let mut keys = foreign_keys::read(&mut self.connection)?;
        keys.sort_unstable();
        Ok(keys)
    }

    fn foreign_keys(&mut self) -> Result<&Groups> {
        if self.foreign_keys.is_none() {
            self.known_keys = self.read_foreign_keys()?;
            self.foreign_keys = Some(Groups::new(self.known_keys.clone()));
        }
        Ok(self.foreign_keys.get_or_insert_default())
    }
}

fn column(rows: &ResultSet, row: usize) -> ColumnDefinition {
    let text = |column| rows.text_at(row, column).unwrap_or_default();
    // MySQL says of a default that is computed that it is generated.
    let extra = text(3).to_ascii_uppercase().replace("DEFAULT_GENERATED", "");
    let is_auto_increment = extra.contains("AUTO_INCREMENT");
    let is_generated = extra.contains("GENERATED") || extra.contains("VIRTUAL") || extra.contains("PERSISTENT");
    ColumnDefinition {
        name: text(1),
        column_type: text(2),
        is_unsigned: text(2).contains("unsigned"),
        is_auto_increment,
        is_generated,
        charset: text(5),
        collation: text(6),
        is_nullable: text(7) == "YES",
        lacks_default: text(8) == "1" && !is_auto_increment && !is_generated,
    }
}

fn read_indexes(answer: &ResultSet, rows: &[usize], columns: &[ColumnDefinition]) -> Vec<Index> {
    let by_name: HashMap<&str, usize> = columns.iter().enumerate().map(|(at, column)| (&*column.name, at)).collect();
    let mut indexes: Vec<Index> = Vec::new();
    for &row in rows {
        let text = |column| answer.text_at(row, column);
        let name = text(1).unwrap_or_default();
        if indexes.last().is_none_or(|index| index.name != name) {
            let (is_unique, is_btree) = (text(2).as_deref() == Some("0"), text(6).as_deref() == Some("BTREE"));
            indexes.push(Index {
                name,
                columns: vec![],
                is_unique,
                has_null: false,
                is_prefix: false,
                is_btree,
                is_hash: text(6).as_deref() == Some("HASH"),
            });
        }
        let column = text(3).and_then(|name| by_name.get(&*name).copied());
        if let Some(index) = indexes.last_mut() {
            index.columns.push(column);
            index.has_null |= text(4).as_deref() == Some("YES");
            index.is_prefix |= text(5).is_some();
        }
    }
    indexes
}

/// Columns that the server keeps behind those that it lists, and logs with every row: when a row's version began and ended, and
/// a hash for each unique key that is too long for an index of its own.
fn unlisted(has_versions: bool, hashes: usize) -> impl Iterator<Item = ColumnDefinition> {
    let named = |name: String| ColumnDefinition {
        name,
        column_type: String::new(),
        is_unsigned: false,
        is_auto_increment: false,
        is_generated: true,
        ..ColumnDefinition::default()
    };
    let versions = if has_versions { ["row_start", "row_end"].as_slice() } else { &[] };
    let hashes = (1..=hashes).map(|number| format!("DB_ROW_HASH_{number}"));
    versions.iter().map(|&name| name.to_owned()).chain(hashes).map(named)
}

/// The primary key, or the first unique key on whole columns that are all NOT NULL.
fn row_key_index(indexes: &[Index]) -> Option<usize> {
    let primary = indexes.iter().position(|index| index.name == "PRIMARY");
    primary.or_else(|| indexes.iter().position(Index::is_row_key))
}

/// The indexes besides the row key's in which a row's entry can be looked up by columns.
fn secondary_indexes(indexes: &[Index], row_key: Option<usize>) -> Vec<SecondaryIndex> {
    let others = indexes.iter().enumerate().filter(|&(position, index)| index.is_btree && Some(position) != row_key);
    others
        .filter_map(|(_, index)| {
            let columns = index.columns.iter().copied().collect::<Option<Vec<_>>>()?;
            Some(SecondaryIndex { name: index.name.clone(), columns })
        })
        .collect()
}

/// True if the rows of a table keep the numbers of the transactions that changed them (MariaDB's system versioning by transactions).
///
/// # Errors
/// Any error of the connection.
pub fn has_versions_by_transactions(connection: &mut Connection) -> Result<bool> {
    if connection.server_version().vendor == Vendor::MySql {
        return Ok(false);
    }
    // Of integers, those that are the start of a version, and not also the end, as what is versioned is.
    let in_engine =
        "SELECT 1 FROM information_schema.INNODB_SYS_COLUMNS WHERE MTYPE = 6 AND PRTYPE & 49152 = 16384 LIMIT 1";
    let answer = match connection.query(in_engine) {
        // Without the privilege PROCESS: every table is opened.
        Err(error) if error.server_error().is_some() && !error.is_transient() => connection.query(
            "SELECT 1 FROM information_schema.COLUMNS WHERE DATA_TYPE = 'bigint' AND GENERATION_EXPRESSION = 'ROW START' LIMIT 1",
        )?,
        answer => answer?,
    };
    Ok(!answer.rows.is_empty())
}
