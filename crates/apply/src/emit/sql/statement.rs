//! The statements that write rows: many in one, or one by itself.
//!
//! | change | many rows | one row |
//! | --- | --- | --- |
//! | insert | `INSERT … VALUES (…), (…)` | the same |
//! | update | `UPDATE (SELECT … UNION ALL VALUES (…), (…)) AS n STRAIGHT_JOIN t …`; on MySQL, `VALUES ROW(…), ROW(…)` | `UPDATE t SET … WHERE …` |
//! | delete | `DELETE … WHERE id IN (…)`, or joined as updates are | `DELETE FROM t WHERE …` |
//!
//! The values come first in a join and the key is forced, so that whatever the server believes of its tables, each row costs one
//! look into the index. An update never inserts, and each statement says how many rows it found.

use spate_binlog::RowsKind;
use spate_schedule::Result;

use crate::command::RowCheck;
use crate::values::form::Form;
use crate::values::table::{SqlImage, SqlTable};
use crate::values::{Role, append};
use spate_connection::{Vendor, quote};

/// Rows in one statement: more of them gain nothing.
const ROWS_MAX: u64 = 500;

/// Bytes of one statement: beyond, the server does not get faster, and the applier is to have something to do while the next
/// is being written.
const SQL_BYTES_MAX: usize = 256 << 10;

/// What a list of values is called in a join. The table itself has no other name there: without a default database, the servers
/// do not find a table by such a name.
const NEW: &str = "spate_new";

/// A statement that takes rows of one kind, with the same columns.
#[derive(Debug)]
pub(super) struct RowsStatement {
    kind: RowsKind,
    sql: Vec<u8>,
    rows: u64,
    key: SqlImage,
    image: SqlImage,
    /// The columns of an update's row that are assigned, by their place in the image.
    assigned: Vec<usize>,
    is_list: bool,
    /// Behind an inserted row's values: those of columns that have no default.
    defaults: String,
    /// Before the first row, the second, and the others.
    marks: [&'static str; 3],
    close: String,
}

impl RowsStatement {
    /// A statement without rows. `key` walks the images that find a row, `image` those that say what it becomes.
    pub(super) fn open(table: &SqlTable<'_>, kind: RowsKind, key: SqlImage, image: SqlImage) -> RowsStatement {
        let name = &table.name;
        let table_name = name;
        let definition = table.definition;
        let index = quote::identifier(&definition.row_key_name);
        let on = table.names(&key.columns, " AND ", |column, name| format!("{table_name}.{name}={NEW}.k{column}"));
        let is_assigned = |&place: &usize| !key.columns.contains(&image.columns[place]);
        let assigned: Vec<usize> = match kind {
            RowsKind::Update => (0..image.columns.len()).filter(is_assigned).collect(),
            RowsKind::Insert | RowsKind::Delete => vec![],
        };
        let (values, marks, named) = match table.vendor {
            // It cannot name the columns of a list of values, but those of what the list is added to.
            Vendor::MariaDb => ("(SELECT ", ["", " UNION ALL VALUES (", ",("], String::new()),
            Vendor::MySql => {
                let keys = key.columns.iter().map(|column| format!("k{column}"));
                let names = keys.chain(assigned.iter().map(|&place| format!("c{}", image.columns[place])));
                ("(VALUES ", ["ROW(", ",ROW(", ",ROW("], format!("({})", names.collect::<Vec<_>>().join(",")))
            }
        };
        let joined = format!(") AS {NEW}{named} STRAIGHT_JOIN {name} FORCE INDEX ({index}) ON {on}");
        let open;
        let (mut close, mut defaults, mut is_list) = (String::new(), String::new(), false);
        match kind {
            RowsKind::Insert => {
                let (names, values) = inserted(table, &image);
                open = format!("INSERT INTO {name} ({names}) VALUES ");
                defaults = values;
            }
            RowsKind::Update => {
                let columns: Vec<usize> = assigned.iter().map(|&place| image.columns[place]).collect();
                let mut set = table.names(&columns, ",", |column, name| format!("{table_name}.{name}={NEW}.c{column}"));
                // A time stamp of the key, too, would change by itself.
                let mut own = table.restless(&columns);
                if set.is_empty() && own.is_empty() {
                    own.clone_from(&key.columns);
                }
                let kept = table.names(&own, ",", |_, name| format!("{table_name}.{name}={table_name}.{name}"));
                if !kept.is_empty() {
                    set = if set.is_empty() { kept } else { format!("{set},{kept}") };
                }
                open = format!("UPDATE {values}");
                close = format!("{joined} SET {set}");
            }
            RowsKind::Delete => {
                let only = match key.columns.as_slice() {
                    &[only] => table.column(only).filter(|(column, _)| column.form == Form::Plain),
                    _ => None,
                };
                match only {
                    Some((column, _)) => {
                        is_list = true;
                        open =
                            format!("DELETE {name} FROM {name} FORCE INDEX ({index}) WHERE {name}.{} IN ", column.name);
                        close.push(')');
                    }
                    None => {
                        open = format!("DELETE {name} FROM {values}");
                        close = joined;
                    }
                }
            }
        }
        RowsStatement { kind, sql: open.into_bytes(), rows: 0, key, image, assigned, is_list, defaults, marks, close }
    }

    /// True if the next row belongs into another statement.
    pub(super) fn is_full(&self) -> bool {
        self.rows >= ROWS_MAX || self.sql.len() >= SQL_BYTES_MAX
    }

    /// True if it has no row.
    pub(super) fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Adds a row: `key` finds it, `image` is what it becomes; each is given by those that need it.
    ///
    /// # Errors
    /// [`spate_schedule::Error::Binlog`] if an image does not decode.
    pub(super) fn add(&mut self, table: &SqlTable<'_>, key: &[u8], image: &[u8]) -> Result<()> {
        match self.kind {
            RowsKind::Insert => {
                self.begin_row(["(", ",(", ",("]);
                self.image.read(image)?;
                for place in 0..self.image.columns.len() {
                    self.comma(place);
                    append(&mut self.sql, table, &self.image, place, image, Role::Assigned)?;
                }
                self.sql.extend_from_slice(self.defaults.as_bytes());
                self.sql.push(b')');
            }
            RowsKind::Delete if self.is_list => {
                self.begin_row(["(", ",", ","]);
                self.key.read(key)?;
                append(&mut self.sql, table, &self.key, 0, key, Role::Compared { collates: false })?;
            }
            RowsKind::Update | RowsKind::Delete => {
                self.begin_row(self.marks);
                let is_first = self.rows == 0;
                let is_named = is_first && table.vendor == Vendor::MariaDb;
                self.key.read(key)?;
                for place in 0..self.key.columns.len() {
                    self.comma(place);
                    append(&mut self.sql, table, &self.key, place, key, Role::Compared { collates: is_first })?;
                    if is_named {
                        self.sql.extend_from_slice(format!(" AS k{}", self.key.columns[place]).as_bytes());
                    }
                }
                if !self.assigned.is_empty() {
                    self.image.read(image)?;
                }
                for &place in &self.assigned {
                    self.sql.push(b',');
                    append(&mut self.sql, table, &self.image, place, image, Role::Assigned)?;
                    if is_named {
                        self.sql.extend_from_slice(format!(" AS c{}", self.image.columns[place]).as_bytes());
                    }
                }
                if !is_named {
                    self.sql.push(b')');
                }
            }
        }
        self.rows += 1;
        Ok(())
    }

    /// Writes what stands before a row: before the first, the second, and the others.
    fn begin_row(&mut self, [first, second, other]: [&str; 3]) {
        let mark = match self.rows {
            0 => first,
            1 => second,
            _ => other,
        };
        self.sql.extend_from_slice(mark.as_bytes());
    }

    fn comma(&mut self, place: usize) {
        if place > 0 {
            self.sql.push(b',');
        }
    }

    /// The statement, and how many rows it must find.
    pub(super) fn close(mut self, table: &SqlTable<'_>) -> (Vec<u8>, RowCheck) {
        self.sql.extend_from_slice(self.close.as_bytes());
        (self.sql, check(table, self.kind, self.rows, 0))
    }
}

/// A statement for one row, found by its key, or, without one, by all its columns; with `warnings` that it is to have.
///
/// # Errors
/// [`spate_schedule::Error::Binlog`] if an image does not decode.
pub(super) fn single(
    table: &SqlTable<'_>,
    kind: RowsKind,
    (key, key_bytes): (&mut SqlImage, &[u8]),
    (image, image_bytes): (&mut SqlImage, &[u8]),
    warnings: u16,
) -> Result<(Vec<u8>, RowCheck)> {
    let mut sql = Vec::new();
    match kind {
        RowsKind::Insert => {
            image.read(image_bytes)?;
            let (names, defaults) = inserted(table, image);
            sql.extend_from_slice(format!("INSERT INTO {} ({names}) VALUES (", table.name).as_bytes());
            for place in 0..image.columns.len() {
                if place > 0 {
                    sql.push(b',');
                }
                append(&mut sql, table, image, place, image_bytes, Role::Assigned)?;
            }
            sql.extend_from_slice(defaults.as_bytes());
            sql.push(b')');
        }
        RowsKind::Update => {
            let written = std::mem::take(&mut image.written);
            image.read(image_bytes)?;
            sql.extend_from_slice(format!("UPDATE {} SET ", table.name).as_bytes());
            for (place, &column) in image.columns.iter().enumerate() {
                let Some((column, _)) = table.column(column) else { continue };
                match written.iter().find(|(other, _)| *other == place) {
                    None => {
                        sql.extend_from_slice(format!("{}=", column.name).as_bytes());
                        append(&mut sql, table, image, place, image_bytes, Role::Assigned)?;
                    }
                    Some((_, values)) if values.is_empty() => {
                        sql.extend_from_slice(format!("{0}={0}", column.name).as_bytes());
                    }
                    Some((_, values)) => {
                        let assign = |value: &Vec<u8>| [column.name.as_bytes(), b"=", value].concat();
                        sql.extend_from_slice(&values.iter().map(assign).collect::<Vec<_>>().join(&b','));
                    }
                }
                sql.push(b',');
            }
            let mut kept = table.restless(&image.columns);
            if image.columns.is_empty() && kept.is_empty() {
                kept.extend(key.columns.first());
            }
            sql.extend_from_slice(table.names(&kept, ",", |_, name| format!("{name}={name}")).as_bytes());
            if kept.is_empty() {
                sql.pop();
            }
            append_where(&mut sql, table, key, key_bytes)?;
        }
        RowsKind::Delete => {
            sql.extend_from_slice(format!("DELETE FROM {}", table.name).as_bytes());
            append_where(&mut sql, table, key, key_bytes)?;
        }
    }
    Ok((sql, check(table, kind, 1, warnings)))
}

/// Deletes so many copies of a row, found by all its columns.
///
/// # Errors
/// As [`single`].
pub(super) fn delete_copies(
    table: &SqlTable<'_>,
    image: &mut SqlImage,
    bytes: &[u8],
    copies: u64,
) -> Result<(Vec<u8>, RowCheck)> {
    let mut sql = format!("DELETE FROM {}", table.name).into_bytes();
    append_condition(&mut sql, table, image, bytes)?;
    sql.extend_from_slice(format!(" LIMIT {copies}").as_bytes());
    Ok((sql, check(table, RowsKind::Delete, copies, 0)))
}

/// The names of the columns of an insert, and what stands behind the values of each row's image: the values of columns that the
/// image does not hold and that have no default.
fn inserted(table: &SqlTable<'_>, image: &SqlImage) -> (String, String) {
    let names = table.names(&image.columns, ",", |_, name| name.to_owned());
    let (more, values) = table.implicit_defaults(&image.columns);
    let first = |list: String| list.strip_prefix(',').map(str::to_owned).unwrap_or_default();
    match names.is_empty() {
        true => (first(more), first(values)),
        false => (names + &more, values),
    }
}

/// Asks for these columns of a row, as bytes, and keeps it as it is until the transaction ends.
///
/// # Errors
/// As [`single`].
pub(super) fn document_query(
    table: &SqlTable<'_>,
    columns: &[usize],
    key: &mut SqlImage,
    key_bytes: &[u8],
) -> Result<Vec<u8>> {
    let bytes = |column: usize, name: &str| table.column(column).map(|(column, _)| column.form.document_bytes(name));
    let names = table.names(columns, ",", |column, name| bytes(column, name).unwrap_or_default());
    let mut sql = format!("SELECT {names} FROM {}", table.name).into_bytes();
    append_where(&mut sql, table, key, key_bytes)?;
    sql.extend_from_slice(b" FOR UPDATE");
    Ok(sql)
}

/// By the row's key, if the image holds it all, else by everything that it holds.
fn append_where(sql: &mut Vec<u8>, table: &SqlTable<'_>, key: &mut SqlImage, bytes: &[u8]) -> Result<()> {
    let row_key = &table.definition.row_key;
    if row_key.is_empty() || !row_key.iter().all(|column| key.columns.contains(column)) {
        append_condition(sql, table, key, bytes)?;
        sql.extend_from_slice(b" LIMIT 1");
        return Ok(());
    }
    key.read(bytes)?;
    let mut word: &[u8] = b" WHERE ";
    for (place, &index) in key.columns.iter().enumerate() {
        let Some((column, _)) = table.column(index).filter(|_| row_key.contains(&index)) else { continue };
        sql.extend_from_slice(word);
        sql.extend_from_slice(column.name.as_bytes());
        sql.push(b'=');
        append(sql, table, key, place, bytes, Role::Beside)?;
        word = b" AND ";
    }
    Ok(())
}

fn append_condition(sql: &mut Vec<u8>, table: &SqlTable<'_>, image: &mut SqlImage, bytes: &[u8]) -> Result<()> {
    image.read(bytes)?;
    let mut word: &[u8] = b" WHERE ";
    for (place, &index) in image.columns.iter().enumerate() {
        let Some((column, definition)) = table.column(index) else { continue };
        sql.extend_from_slice(word);
        let value = image.value(table, place, bytes)?;
        column.form.append_match(sql, &column.name, definition, value.as_ref());
        word = b" AND ";
    }
    Ok(())
}

fn check(table: &SqlTable<'_>, kind: RowsKind, rows: u64, warnings: u16) -> RowCheck {
    // MySQL warns of names and words that will go away one day.
    let is_strict = warnings > 0 || table.vendor == Vendor::MariaDb;
    RowCheck { statement: 0, rows, kind, warnings: is_strict.then_some(warnings), table: table.definition.name.clone() }
}

#[cfg(test)]
mod tests {
    use spate_binlog::TableMap;
    use spate_schedule::TableName;
    use spate_schedule::definition::{ColumnDefinition, TableDefinition};

    use super::*;

    const ALL: &[u8] = &[0b111];

    /// `d.t (id INT, s VARCHAR(20) COLLATE utf8mb4_bin, at TIMESTAMP)`, with this key.
    fn definition(row_key: &[usize]) -> TableDefinition {
        let column = |name: &str, column_type: &str, charset: &str| ColumnDefinition {
            name: name.into(),
            column_type: column_type.into(),
            charset: charset.into(),
            collation: if charset.is_empty() { String::new() } else { format!("{charset}_bin") },
            ..ColumnDefinition::default()
        };
        TableDefinition {
            name: TableName { schema: "d".into(), table: "t".into() },
            columns: vec![
                column("id", "int(11)", ""),
                column("s", "varchar(20)", "utf8mb4"),
                column("at", "timestamp", ""),
            ],
            row_key: row_key.to_vec(),
            row_key_name: "PRIMARY".into(),
            ..TableDefinition::default()
        }
    }

    fn map() -> TableMap {
        let mut body = b"\x13\0\0\0\0\0\x01\0\x01d\0\x01t\0".to_vec();
        body.extend([3, 3, 15, 17, 3, 80, 0, 0, 0b110]);
        TableMap::parse(&body).unwrap()
    }

    /// The row (id, s, 1970-01-02 00:00:00), or without the columns that are not in `columns`.
    fn image(columns: u8, id: u32, s: &str) -> Vec<u8> {
        let mut image = vec![0];
        if columns & 1 != 0 {
            image.extend(id.to_le_bytes());
        }
        if columns & 2 != 0 {
            image.push(s.len() as u8);
            image.extend(s.as_bytes());
        }
        if columns & 4 != 0 {
            image.extend(86_400u32.to_be_bytes());
        }
        image
    }

    /// The statement for two rows.
    fn written(vendor: Vendor, kind: RowsKind, row_key: &[usize], columns: u8) -> String {
        let (map, definition) = (map(), definition(row_key));
        let table = SqlTable::new(&map, &definition, vendor).unwrap();
        let key_bits = row_key.iter().fold(0, |bits, column| bits | 1 << column);
        let (key, after) = (table.image(&[key_bits]).unwrap(), table.image(&[columns]).unwrap());
        let mut statement = RowsStatement::open(&table, kind, key, after);
        for (id, s) in [(1, "a"), (2, "it's")] {
            statement.add(&table, &image(key_bits, id, s), &image(columns, id, s)).unwrap();
        }
        let (sql, check) = statement.close(&table);
        assert_eq!((check.rows, check.kind), (2, kind));
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn insert_of_some_columns_names_them() {
        let expected = "INSERT INTO `d`.`t` (`id`,`s`) VALUES (1,_binary'a'),(2,_binary'it''s')";
        assert_eq!(written(Vendor::MariaDb, RowsKind::Insert, &[0], 0b011), expected);
        assert_eq!(written(Vendor::MySql, RowsKind::Insert, &[0], 0b011), expected);
    }

    #[test]
    fn insert_names_columns_without_default() {
        let map = map();
        let mut definition = definition(&[0]);
        definition.columns.push(ColumnDefinition {
            name: "more".into(),
            column_type: "int(11)".into(),
            is_nullable: true,
            ..ColumnDefinition::default()
        });
        definition.columns.iter_mut().for_each(|column| column.lacks_default = true);
        let table = SqlTable::new(&map, &definition, Vendor::MySql).unwrap();
        for (columns, expected) in [
            (0b011, "(`id`,`s`,`at`,`more`) VALUES (7,_binary'a','0000-00-00 00:00:00',NULL)"),
            (0b101, "(`id`,`at`,`s`,`more`) VALUES (7,'1970-01-02 00:00:00','',NULL)"),
        ] {
            let walk = || table.image(&[columns]).unwrap();
            let mut statement = RowsStatement::open(&table, RowsKind::Insert, walk(), walk());
            let image = image(columns, 7, "a");
            statement.add(&table, &[], &image).unwrap();
            let expected = format!("INSERT INTO `d`.`t` {expected}");
            assert_eq!(String::from_utf8(statement.close(&table).0).unwrap(), expected);
            let (sql, _) = single(&table, RowsKind::Insert, (&mut walk(), &[]), (&mut walk(), &image), 0).unwrap();
            assert_eq!(String::from_utf8(sql).unwrap(), expected);
        }
    }

    #[test]
    fn update_joins_a_list_and_keeps_automatic_time_stamps() {
        assert_eq!(
            written(Vendor::MariaDb, RowsKind::Update, &[0], 0b011),
            "UPDATE (SELECT 1 AS k0,_binary'a' AS c1 UNION ALL VALUES (2,_binary'it''s')) AS spate_new STRAIGHT_JOIN `d`.`t` \
             FORCE INDEX (`PRIMARY`) ON `d`.`t`.`id`=spate_new.k0 SET `d`.`t`.`s`=spate_new.c1,`d`.`t`.`at`=`d`.`t`.`at`"
        );
        assert_eq!(
            written(Vendor::MySql, RowsKind::Update, &[0], 0b111),
            "UPDATE (VALUES ROW(1,_binary'a','1970-01-02 00:00:00'),ROW(2,_binary'it''s','1970-01-02 00:00:00')) \
             AS spate_new(k0,c1,c2) STRAIGHT_JOIN `d`.`t` FORCE INDEX (`PRIMARY`) ON `d`.`t`.`id`=spate_new.k0 \
             SET `d`.`t`.`s`=spate_new.c1,`d`.`t`.`at`=spate_new.c2"
        );
    }

    #[test]
    fn update_of_time_stamp_key_leaves_it_alone() {
        let sql = written(Vendor::MariaDb, RowsKind::Update, &[2], 0b011);
        assert!(sql.ends_with(",`d`.`t`.`at`=`d`.`t`.`at`"), "{sql}");
    }

    #[test]
    fn delete_lists_numbers_and_joins_texts() {
        assert_eq!(
            written(Vendor::MySql, RowsKind::Delete, &[0], 0b111),
            "DELETE `d`.`t` FROM `d`.`t` FORCE INDEX (`PRIMARY`) WHERE `d`.`t`.`id` IN (1,2)"
        );
        assert_eq!(
            written(Vendor::MariaDb, RowsKind::Delete, &[1], 0b111),
            "DELETE `d`.`t` FROM (SELECT _utf8mb4'a' COLLATE utf8mb4_bin AS k1 UNION ALL VALUES (_utf8mb4'it''s')) AS spate_new \
             STRAIGHT_JOIN `d`.`t` FORCE INDEX (`PRIMARY`) ON `d`.`t`.`s`=spate_new.k1"
        );
    }

    #[test]
    fn row_without_key_is_found_by_all_its_bytes() {
        let (map, definition) = (map(), definition(&[]));
        let table = SqlTable::new(&map, &definition, Vendor::MariaDb).unwrap();
        let (sql, check) = delete_copies(&table, &mut table.image(ALL).unwrap(), &image(0b111, 5, "b"), 3).unwrap();
        assert_eq!(
            String::from_utf8(sql).unwrap(),
            "DELETE FROM `d`.`t` WHERE `id`=5 AND `s`=_utf8mb4'b' AND CAST(`s` AS BINARY)=_binary'b' \
             AND `at`='1970-01-02 00:00:00' LIMIT 3"
        );
        assert_eq!((check.rows, check.warnings), (3, Some(0)));
        let null = [&[0b010][..], &7u32.to_le_bytes(), &0u32.to_be_bytes()].concat();
        let (sql, _) = delete_copies(&table, &mut table.image(ALL).unwrap(), &null, 1).unwrap();
        assert!(String::from_utf8(sql).unwrap().contains("`s` IS NULL AND `at`='0000-00-00 00:00:00'"));
    }

    #[test]
    fn column_that_would_round_is_refused() {
        let (map, mut definition) = (map(), definition(&[0]));
        definition.columns[2].column_type = "date".into();
        let error = SqlTable::new(&map, &definition, Vendor::MySql).unwrap_err().to_string();
        assert!(error.contains("the column at") && error.contains("date"), "{error}");
        definition.columns[2].column_type = "timestamp(3)".into();
        assert!(SqlTable::new(&map, &definition, Vendor::MySql).is_ok());
        definition.trigger = Some("tr".into());
        let error = SqlTable::new(&map, &definition, Vendor::MySql).unwrap_err().to_string();
        assert!(error.contains("the trigger tr"), "{error}");
    }
}
