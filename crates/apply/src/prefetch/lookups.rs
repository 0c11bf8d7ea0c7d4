//! Queries that read the pages which row changes are about to need, and change nothing.
//!
//! A row that is updated is looked for in the clustered index; so is its entry in every other index whose columns change, and the
//! place where the new entry will be. All three are lookups by the whole key, so that each reads one leaf. The values that a row has now
//! need not be known: the query takes them from the row itself.
//!
//! ```sql
//! SELECT COUNT(a.id), COUNT(b0.id), COUNT(c0.id) FROM (SELECT 7 AS k0, 5 AS c1 UNION ALL VALUES (8,6)) AS spate_new
//! LEFT JOIN t AS a FORCE INDEX (PRIMARY) ON a.id = k0
//! LEFT JOIN t AS b0 FORCE INDEX (k) ON b0.k = IF(a.k <=> c1, NULL, a.k) AND b0.id = a.id
//! LEFT JOIN t AS c0 FORCE INDEX (k) ON c0.k = IF(a.k <=> c1, NULL, c1) AND c0.id = a.id
//! ```
//! A lookup of NULL with `=` finds nothing, and the servers do not even begin it.

use std::fmt::Write;

use spate_binlog::encode::ColumnBitmap;
use spate_binlog::table_map::bit_is_set;
use spate_binlog::{RowsKind, TableMap};
use spate_schedule::definition::SecondaryIndex;
use spate_schedule::{Result, TableDefinition, TableName};

use crate::values::table::{SqlImage, SqlTable};
use crate::values::{Role, append};
use spate_connection::{Vendor, quote};

/// Rows in one query where rows are read in the order of their pages. A query holds the table's definition against ALTER TABLE, so it must be over soon.
pub(crate) const QUERY_ROWS_MAX: usize = 64;
/// Bytes of one query, for rows with long keys.
const QUERY_BYTES_MAX: usize = 16 << 10;
/// Bytes of an indexed value. Of a longer one an index holds the beginning, and its place is not looked for.
const VALUE_BYTES_MAX: usize = 1 << 10;
/// Secondary indexes in one query: the servers join 61 tables at most.
const INDEXES_MAX: usize = 16;

/// A query for the rows of one table that are changed in one way.
#[derive(Debug)]
pub(crate) struct LookupQuery<'a> {
    table: SqlTable<'a>,
    key: SqlImage,
    /// The columns of secondary indexes, in the row that comes.
    image: SqlImage,
    sql: Vec<u8>,
    rows: usize,
    rows_max: usize,
    marks: [&'static str; 3],
    open: String,
    close: String,
}

impl<'a> LookupQuery<'a> {
    /// A query without rows. `key_columns` are held by the images that find a row, `columns` by those that it becomes. `None` if rows of
    /// such a table are not looked up.
    ///
    /// # Errors
    /// [`spate_schedule::Error::Binlog`] if images that hold these columns cannot be walked.
    pub(crate) fn new(
        (map, definition, vendor): (&'a TableMap, &'a TableDefinition, Vendor),
        kind: RowsKind,
        key_columns: &[u8],
        columns: &[u8],
    ) -> Result<Option<LookupQuery<'a>>> {
        // On MySQL, what a table computes of its rows may go by the session that has opened it, and others take it as it was opened.
        if definition.depends_on_session {
            return Ok(None);
        }
        let table = SqlTable::for_lookups(map, definition, vendor);
        let row_key = &definition.row_key;
        if row_key.is_empty() || row_key.iter().any(|&column| table.column(column).is_none()) {
            return Ok(None);
        }
        let key = table.image_of(key_columns, |column| row_key.contains(&column))?;
        if key.columns.len() != row_key.len() {
            return Ok(None);
        }
        let is_new =
            |column: usize| kind != RowsKind::Delete && bit_is_set(columns, column) && table.column(column).is_some();
        let indexes: Vec<&SecondaryIndex> = definition
            .secondary_indexes
            .iter()
            .filter(|index| match kind {
                RowsKind::Delete => true,
                RowsKind::Insert => index.columns.iter().all(|&column| is_new(column)),
                // One that holds computed values may change or not.
                RowsKind::Update => {
                    index.columns.iter().any(|&column| is_new(column))
                        && index.columns.iter().all(|&column| table.column(column).is_some())
                }
            })
            .take(INDEXES_MAX)
            .collect();
        let is_indexed = |column: usize| is_new(column) && indexes.iter().any(|index| index.columns.contains(&column));
        let none = ColumnBitmap::only(map.columns.len(), &[]).bits;
        let image = table.image_of(if kind == RowsKind::Delete { &none } else { columns }, is_indexed)?;
        let (counted, close) = Joins { definition, table: &table, image: &image, kind }.write(&indexes, &key);
        let (list, marks) = match vendor {
            Vendor::MariaDb => ("SELECT", ["", " UNION ALL VALUES (", ",("]),
            Vendor::MySql => ("VALUES", ["ROW(", ",ROW(", ",ROW("]),
        };
        let open = format!("SELECT {counted} FROM ({list} ");
        Ok(Some(LookupQuery {
            table,
            key,
            image,
            sql: Vec::new(),
            rows: 0,
            rows_max: QUERY_ROWS_MAX,
            marks,
            open,
            close,
        }))
    }

    /// With at most so many rows.
    pub(crate) fn of_rows(self, rows_max: usize) -> Self {
        LookupQuery { rows_max, ..self }
    }

    /// True if it holds as many rows as it may.
    pub(crate) fn is_full(&self) -> bool {
        self.rows >= self.rows_max || self.sql.len() >= QUERY_BYTES_MAX
    }

    /// The table.
    pub(crate) fn table(&self) -> &TableName {
        &self.table.definition.name
    }

    /// How many rows it holds.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row: `key` finds it, `image` is what it becomes.
    ///
    /// # Errors
    /// [`spate_schedule::Error::Binlog`] if an image does not decode.
    pub(crate) fn add(&mut self, key: &[u8], image: &[u8]) -> Result<()> {
        let is_first = self.rows == 0;
        self.sql.extend_from_slice(self.marks[self.rows.min(2)].as_bytes());
        self.key.read(key)?;
        let role = Role::Compared { collates: is_first };
        let is_named = is_first && self.table.vendor == Vendor::MariaDb;
        for place in 0..self.key.columns.len() {
            if place > 0 {
                self.sql.push(b',');
            }
            append(&mut self.sql, &self.table, &self.key, place, key, role)?;
            if is_named {
                self.sql.extend_from_slice(format!(" AS k{}", self.key.columns[place]).as_bytes());
            }
        }
        if !self.image.columns.is_empty() {
            self.image.read(image)?;
        }
        for place in 0..self.image.columns.len() {
            self.sql.push(b',');
            match self.image.bytes(place, image).len() {
                0..=VALUE_BYTES_MAX => append(&mut self.sql, &self.table, &self.image, place, image, role)?,
                _ => self.sql.extend_from_slice(b"NULL"),
            }
            if is_named {
                self.sql.extend_from_slice(format!(" AS c{}", self.image.columns[place]).as_bytes());
            }
        }
        if !is_named {
            self.sql.push(b')');
        }
        self.rows += 1;
        Ok(())
    }

    /// The query, and how many rows it looks for; the next rows begin another.
    pub(crate) fn take(&mut self) -> (Vec<u8>, usize) {
        let sql = [self.open.as_bytes(), &self.sql, self.close.as_bytes()].concat();
        self.sql.clear();
        (sql, std::mem::take(&mut self.rows))
    }
}

/// Writes what stands around the rows.
struct Joins<'q, 'a> {
    definition: &'a TableDefinition,
    table: &'q SqlTable<'a>,
    image: &'q SqlImage,
    kind: RowsKind,
}

impl Joins<'_, '_> {
    /// What is counted, and what stands behind the list of rows.
    fn write(&self, indexes: &[&SecondaryIndex], key: &SqlImage) -> (String, String) {
        let mut counted = format!("COUNT(a.{})", self.name(key.columns[0]));
        let named = match self.table.vendor {
            Vendor::MariaDb => String::new(),
            Vendor::MySql => {
                let keys = key.columns.iter().map(|column| format!("k{column}"));
                let names = keys.chain(self.image.columns.iter().map(|column| format!("c{column}")));
                format!("({})", names.collect::<Vec<_>>().join(","))
            }
        };
        let same_key = |alias: &str| {
            let same = key.columns.iter().map(|&column| match self.kind {
                RowsKind::Insert => format!("{alias}.{}=spate_new.k{column}", self.name(column)),
                _ => format!("{alias}.{0}=a.{0}", self.name(column)),
            });
            same.collect::<Vec<_>>().join(" AND ")
        };
        let found = key.columns.iter().map(|&column| format!("a.{}=spate_new.k{column}", self.name(column)));
        let found = found.collect::<Vec<_>>().join(" AND ");
        let mut joins = format!(") AS spate_new{named}{}", self.join("a", &self.definition.row_key_name, &found));
        for (number, index) in indexes.iter().enumerate() {
            let same = match self.kind {
                RowsKind::Update => Some(self.same(index)),
                RowsKind::Insert | RowsKind::Delete => None,
            };
            if self.kind != RowsKind::Insert {
                let alias = format!("b{number}");
                let entry = self.entry(&alias, index, same.as_deref(), |column| format!("a.{}", self.name(column)));
                joins += &self.join(&alias, &index.name, &format!("{entry} AND {}", same_key(&alias)));
                let _ = write!(counted, ",COUNT({alias}.{})", self.name(key.columns[0]));
            }
            if self.kind != RowsKind::Delete {
                let alias = format!("c{number}");
                let entry = self.entry(&alias, index, same.as_deref(), |column| self.new_value(column));
                joins += &self.join(&alias, &index.name, &format!("{entry} AND {}", same_key(&alias)));
                let _ = write!(counted, ",COUNT({alias}.{})", self.name(key.columns[0]));
            }
        }
        (counted, joins)
    }

    fn join(&self, alias: &str, index: &str, on: &str) -> String {
        format!(" LEFT JOIN {} AS {alias} FORCE INDEX ({}) ON {on}", self.table.name, quote::identifier(index))
    }

    /// The condition that finds a row's entry; it finds nothing if the index's columns are the `same` as before.
    fn entry(
        &self,
        alias: &str,
        index: &SecondaryIndex,
        same: Option<&str>,
        value: impl Fn(usize) -> String,
    ) -> String {
        let equal = index.columns.iter().enumerate().map(|(place, &column)| {
            let value = match same.filter(|_| place == 0) {
                Some(same) => format!("IF({same},NULL,{})", value(column)),
                None => value(column),
            };
            format!("{alias}.{}={value}", self.name(column))
        });
        equal.collect::<Vec<_>>().join(" AND ")
    }

    /// True of a row whose entry in the index does not change.
    fn same(&self, index: &SecondaryIndex) -> String {
        let assigned = index.columns.iter().filter(|column| self.image.columns.contains(column));
        let same = assigned.map(|&column| format!("a.{}<=>spate_new.c{column}", self.name(column)));
        same.collect::<Vec<_>>().join(" AND ")
    }

    fn new_value(&self, column: usize) -> String {
        match self.image.columns.contains(&column) {
            true => format!("spate_new.c{column}"),
            false => format!("a.{}", self.name(column)),
        }
    }

    fn name(&self, column: usize) -> String {
        self.definition.columns.get(column).map(|column| quote::identifier(&column.name)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use spate_schedule::definition::ColumnDefinition;

    use super::*;

    /// `d.t (id INT PRIMARY KEY, s VARCHAR(20) COLLATE utf8mb4_bin, n INT, KEY by_s (s, n), KEY by_n (n))`
    fn definition() -> TableDefinition {
        let column = |name: &str, column_type: &str, charset: &str| ColumnDefinition {
            name: name.into(),
            column_type: column_type.into(),
            charset: charset.into(),
            collation: if charset.is_empty() { String::new() } else { format!("{charset}_bin") },
            ..ColumnDefinition::default()
        };
        let index = |name: &str, columns: &[usize]| SecondaryIndex { name: name.into(), columns: columns.to_vec() };
        TableDefinition {
            name: TableName { schema: "d".into(), table: "t".into() },
            columns: vec![
                column("id", "int(11)", ""),
                column("s", "varchar(20)", "utf8mb4"),
                column("n", "int(11)", ""),
            ],
            row_key: vec![0],
            row_key_name: "PRIMARY".into(),
            secondary_indexes: vec![index("by_s", &[1, 2]), index("by_n", &[2])],
            ..TableDefinition::default()
        }
    }

    fn map() -> TableMap {
        let mut body = b"\x13\0\0\0\0\0\x01\0\x01d\0\x01t\0".to_vec();
        body.extend([3, 3, 15, 3, 2, 80, 0, 0b110]);
        TableMap::parse(&body).unwrap()
    }

    /// A row's image of these columns.
    fn image(columns: u8, id: u32, s: &str, n: u32) -> Vec<u8> {
        let mut image = vec![0];
        if columns & 1 != 0 {
            image.extend(id.to_le_bytes());
        }
        if columns & 2 != 0 {
            image.push(s.len() as u8);
            image.extend(s.as_bytes());
        }
        if columns & 4 != 0 {
            image.extend(n.to_le_bytes());
        }
        image
    }

    /// The query for two rows.
    fn written(vendor: Vendor, kind: RowsKind, key_columns: u8, columns: u8) -> String {
        let (map, definition) = (map(), definition());
        let query = LookupQuery::new((&map, &definition, vendor), kind, &[key_columns], &[columns]);
        let mut query = query.unwrap().unwrap();
        for (id, s, n) in [(1, "a", 5), (2, "it's", 6)] {
            query.add(&image(key_columns, id, s, n), &image(columns, id, s, n)).unwrap();
        }
        let (sql, rows) = query.take();
        assert_eq!((rows, query.rows()), (2, 0));
        String::from_utf8(sql).unwrap()
    }

    #[test]
    fn update_is_looked_up_by_each_index_that_changes() {
        assert_eq!(
            written(Vendor::MariaDb, RowsKind::Update, 0b001, 0b100),
            "SELECT COUNT(a.`id`),COUNT(b0.`id`),COUNT(c0.`id`),COUNT(b1.`id`),COUNT(c1.`id`) \
             FROM (SELECT 1 AS k0,5 AS c2 UNION ALL VALUES (2,6)) AS spate_new \
             LEFT JOIN `d`.`t` AS a FORCE INDEX (`PRIMARY`) ON a.`id`=spate_new.k0 \
             LEFT JOIN `d`.`t` AS b0 FORCE INDEX (`by_s`) ON b0.`s`=IF(a.`n`<=>spate_new.c2,NULL,a.`s`) AND b0.`n`=a.`n` \
             AND b0.`id`=a.`id` \
             LEFT JOIN `d`.`t` AS c0 FORCE INDEX (`by_s`) ON c0.`s`=IF(a.`n`<=>spate_new.c2,NULL,a.`s`) \
             AND c0.`n`=spate_new.c2 AND c0.`id`=a.`id` \
             LEFT JOIN `d`.`t` AS b1 FORCE INDEX (`by_n`) ON b1.`n`=IF(a.`n`<=>spate_new.c2,NULL,a.`n`) AND b1.`id`=a.`id` \
             LEFT JOIN `d`.`t` AS c1 FORCE INDEX (`by_n`) ON c1.`n`=IF(a.`n`<=>spate_new.c2,NULL,spate_new.c2) \
             AND c1.`id`=a.`id`"
        );
    }

    #[test]
    fn update_of_no_index_is_looked_up_by_the_row_key() {
        let (map, mut definition) = (map(), definition());
        definition.secondary_indexes.remove(1);
        definition.secondary_indexes[0].columns = vec![2];
        let query = LookupQuery::new((&map, &definition, Vendor::MySql), RowsKind::Update, &[0b001], &[0b010]);
        let mut query = query.unwrap().unwrap();
        query.add(&image(0b001, 1, "", 0), &image(0b010, 1, "a", 0)).unwrap();
        assert_eq!(
            String::from_utf8(query.take().0).unwrap(),
            "SELECT COUNT(a.`id`) FROM (VALUES ROW(1)) AS spate_new(k0) \
             LEFT JOIN `d`.`t` AS a FORCE INDEX (`PRIMARY`) ON a.`id`=spate_new.k0"
        );
    }

    #[test]
    fn delete_is_looked_up_by_what_the_row_holds() {
        assert_eq!(
            written(Vendor::MySql, RowsKind::Delete, 0b001, 0b111),
            "SELECT COUNT(a.`id`),COUNT(b0.`id`),COUNT(b1.`id`) FROM (VALUES ROW(1),ROW(2)) AS spate_new(k0) \
             LEFT JOIN `d`.`t` AS a FORCE INDEX (`PRIMARY`) ON a.`id`=spate_new.k0 \
             LEFT JOIN `d`.`t` AS b0 FORCE INDEX (`by_s`) ON b0.`s`=a.`s` AND b0.`n`=a.`n` AND b0.`id`=a.`id` \
             LEFT JOIN `d`.`t` AS b1 FORCE INDEX (`by_n`) ON b1.`n`=a.`n` AND b1.`id`=a.`id`"
        );
    }

    #[test]
    fn insert_is_looked_up_where_it_will_be() {
        assert_eq!(
            written(Vendor::MariaDb, RowsKind::Insert, 0b111, 0b111),
            "SELECT COUNT(a.`id`),COUNT(c0.`id`),COUNT(c1.`id`) FROM (SELECT 1 AS k0,_utf8mb4'a' COLLATE utf8mb4_bin AS c1,5 AS c2 \
             UNION ALL VALUES (2,_utf8mb4'it''s',6)) AS spate_new \
             LEFT JOIN `d`.`t` AS a FORCE INDEX (`PRIMARY`) ON a.`id`=spate_new.k0 \
             LEFT JOIN `d`.`t` AS c0 FORCE INDEX (`by_s`) ON c0.`s`=spate_new.c1 AND c0.`n`=spate_new.c2 AND c0.`id`=spate_new.k0 \
             LEFT JOIN `d`.`t` AS c1 FORCE INDEX (`by_n`) ON c1.`n`=spate_new.c2 AND c1.`id`=spate_new.k0"
        );
    }

    #[test]
    fn key_that_cannot_be_written_is_not_looked_up() {
        let (map, mut definition) = (map(), definition());
        definition.columns[0].column_type = "date".into();
        let query = LookupQuery::new((&map, &definition, Vendor::MariaDb), RowsKind::Delete, &[0b001], &[0b111]);
        assert!(query.unwrap().is_none());
    }
}
