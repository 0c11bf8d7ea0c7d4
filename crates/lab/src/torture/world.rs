//! The objects on the source, read from the server. The generator uses them, so that most statements succeed.

use crate::Result;
use crate::sql::{Session, quote};
use crate::vendor::Vendor;

/// Schemas that no statement may touch.
pub(super) const OWN_SCHEMAS: &str = "'mysql','sys','information_schema','performance_schema','spate'";

/// A column.
#[derive(Debug, Clone)]
pub(super) struct Column {
    pub(super) name: String,
    /// `varchar`; JSON is `longtext`, as MariaDB has it
    pub(super) data_type: String,
    /// `varchar(20)`
    pub(super) column_type: String,
    pub(super) charset: String,
    pub(super) is_nullable: bool,
    pub(super) is_generated: bool,
    pub(super) is_auto_increment: bool,
}

/// A base table.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) engine: String,
    pub(super) is_partitioned: bool,
    pub(super) is_versioned: bool,
    pub(super) columns: Vec<Column>,
    /// Names of the keys, and their columns, the primary key first.
    pub(super) keys: Vec<Key>,
    pub(super) partitions: Vec<String>,
    pub(super) partition_method: String,
    pub(super) foreign_keys: Vec<String>,
    /// True if foreign keys of other tables refer to it.
    pub(super) is_parent: bool,
    /// True if some of these keys refuse to delete a row that others refer to.
    pub(super) keeps_rows: bool,
}

/// A key.
#[derive(Debug, Clone)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) is_unique: bool,
    pub(super) columns: Vec<String>,
}

/// A name within a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) schema: String,
    pub(super) name: String,
}

/// All objects of the source.
#[derive(Debug, Clone, Default)]
pub(super) struct World {
    pub(super) schemas: Vec<String>,
    pub(super) tables: Vec<Table>,
    pub(super) views: Vec<Named>,
    pub(super) sequences: Vec<Named>,
    pub(super) triggers: Vec<Named>,
    pub(super) procedures: Vec<Named>,
    pub(super) functions: Vec<Named>,
}

impl Named {
    pub(super) fn quoted(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }
}

impl Table {
    pub(super) fn quoted(&self) -> String {
        format!("{}.{}", quote(&self.schema), quote(&self.name))
    }

    pub(super) fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Columns that statements may set.
    pub(super) fn writable(&self) -> Vec<&Column> {
        self.columns.iter().filter(|column| !column.is_generated).collect()
    }

    pub(super) fn primary_key(&self) -> Option<&Key> {
        self.keys.iter().find(|key| key.name == "PRIMARY")
    }

    /// A total order of the rows, if a key gives one. Without it a LIMIT may choose other rows on each server.
    pub(super) fn order(&self) -> Option<String> {
        let columns: Vec<String> = self.primary_key()?.columns.iter().map(|column| quote(column)).collect();
        Some(format!("ORDER BY {}", columns.join(", ")))
    }

    /// An integer column that is the whole primary key: foreign keys refer to it.
    pub(super) fn integer_key(&self) -> Option<&Column> {
        let key = self.primary_key().filter(|key| key.columns.len() == 1)?;
        self.column(&key.columns[0]).filter(|column| column.data_type.ends_with("int"))
    }
}

impl World {
    /// Reads all objects.
    ///
    /// # Errors
    /// [`crate::Error::Sql`].
    pub(super) fn read(session: &mut Session, vendor: Vendor) -> Result<World> {
        let mut world = World {
            schemas: session.rows(&format!(
                "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN ({OWN_SCHEMAS}) ORDER BY 1"
            ))?,
            ..World::default()
        };
        world.read_tables(session)?;
        world.read_columns(session)?;
        world.read_keys(session)?;
        world.read_foreign_keys(session, vendor)?;
        world.read_programs(session)?;
        Ok(world)
    }

    fn read_tables(&mut self, session: &mut Session) -> Result<()> {
        type Row = (String, String, String, Option<String>, Option<String>);
        let rows: Vec<Row> = session.rows(&format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, ENGINE, CREATE_OPTIONS FROM information_schema.TABLES
             WHERE TABLE_SCHEMA NOT IN ({OWN_SCHEMAS}) ORDER BY 1, 2"
        ))?;
        for (schema, name, kind, engine, options) in rows {
            match kind.as_str() {
                "VIEW" => self.views.push(Named { schema, name }),
                "SEQUENCE" => self.sequences.push(Named { schema, name }),
                _ => self.tables.push(Table {
                    schema,
                    name,
                    engine: engine.unwrap_or_default(),
                    is_partitioned: options.is_some_and(|options| options.contains("partitioned")),
                    is_versioned: kind.contains("VERSIONED"),
                    columns: vec![],
                    keys: vec![],
                    partitions: vec![],
                    partition_method: String::new(),
                    foreign_keys: vec![],
                    is_parent: false,
                    keeps_rows: false,
                }),
            }
        }
        Ok(())
    }

    fn read_columns(&mut self, session: &mut Session) -> Result<()> {
        type Row = (String, String, String, String, String, Option<String>, String, String);
        let rows: Vec<Row> = session.rows(&format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, IS_NULLABLE, EXTRA
             FROM information_schema.COLUMNS WHERE TABLE_SCHEMA NOT IN ({OWN_SCHEMAS}) ORDER BY 1, 2, ORDINAL_POSITION"
        ))?;
        for (schema, table, name, data_type, column_type, charset, nullable, extra) in rows {
            let Some(table) = self.table_mut(&schema, &table) else { continue };
            let extra = extra.to_ascii_uppercase();
            table.columns.push(Column {
                name,
                data_type: data_type.to_ascii_lowercase().replace("json", "longtext"),
                column_type,
                charset: charset.unwrap_or_default(),
                is_nullable: nullable == "YES",
                is_generated: extra.contains("GENERATED"),
                is_auto_increment: extra.contains("AUTO_INCREMENT"),
            });
        }
        Ok(())
    }

    /// Reads the keys. Parts of keys that are expressions have no column.
    fn read_keys(&mut self, session: &mut Session) -> Result<()> {
        let rows: Vec<(String, String, String, String, bool)> = session.rows(&format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, NON_UNIQUE = 0 FROM information_schema.STATISTICS
             WHERE TABLE_SCHEMA NOT IN ({OWN_SCHEMAS}) AND COLUMN_NAME IS NOT NULL
             ORDER BY 1, 2, INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX"
        ))?;
        for (schema, table, name, column, is_unique) in rows {
            let Some(table) = self.table_mut(&schema, &table) else { continue };
            match table.keys.last_mut().filter(|key| key.name == name) {
                Some(key) => key.columns.push(column),
                None => table.keys.push(Key { name, is_unique, columns: vec![column] }),
            }
        }
        let rows: Vec<(String, String, String, Option<String>)> = session.rows(&format!(
            "SELECT TABLE_SCHEMA, TABLE_NAME, PARTITION_NAME, PARTITION_METHOD FROM information_schema.PARTITIONS
             WHERE TABLE_SCHEMA NOT IN ({OWN_SCHEMAS}) AND PARTITION_NAME IS NOT NULL
             ORDER BY 1, 2, PARTITION_ORDINAL_POSITION"
        ))?;
        for (schema, table, partition, method) in rows {
            let Some(table) = self.table_mut(&schema, &table) else { continue };
            table.partitions.push(partition);
            table.partition_method = method.unwrap_or_default();
        }
        Ok(())
    }

    /// MariaDB's `information_schema.REFERENTIAL_CONSTRAINTS` can crash the server once a table with a foreign key has
    /// been moved to another schema; InnoDB's dictionary cannot. It has names as in file names, as long as the
    /// torture's are.
    fn read_foreign_keys(&mut self, session: &mut Session, vendor: Vendor) -> Result<()> {
        let part = |name: &str, index: i8| {
            format!(
                "CONVERT(CONVERT(CAST(SUBSTRING_INDEX({name}, '/', {index}) AS BINARY) USING filename) USING utf8mb4)"
            )
        };
        let rows: Vec<(String, String, String, String, String, bool)> = session.rows(&match vendor {
            Vendor::MariaDb => format!(
                "SELECT {}, {}, SUBSTRING(ID, LOCATE('/', ID) + 1), {}, {}, TYPE & 3 = 0
                 FROM information_schema.INNODB_SYS_FOREIGN ORDER BY 1, 2, 3",
                part("FOR_NAME", 1),
                part("FOR_NAME", -1),
                part("REF_NAME", 1),
                part("REF_NAME", -1)
            ),
            Vendor::MySql => format!(
                "SELECT CONSTRAINT_SCHEMA, TABLE_NAME, CONSTRAINT_NAME, UNIQUE_CONSTRAINT_SCHEMA, REFERENCED_TABLE_NAME,
                     DELETE_RULE NOT IN ('CASCADE', 'SET NULL')
                 FROM information_schema.REFERENTIAL_CONSTRAINTS
                 WHERE CONSTRAINT_SCHEMA NOT IN ({OWN_SCHEMAS}) ORDER BY 1, 2, 3"
            ),
        })?;
        for (schema, table, name, parent_schema, parent, keeps_rows) in rows {
            if let Some(parent) = self.table_mut(&parent_schema, &parent) {
                parent.is_parent = true;
                parent.keeps_rows |= keeps_rows;
            }
            let Some(table) = self.table_mut(&schema, &table) else { continue };
            table.foreign_keys.push(name);
        }
        Ok(())
    }

    fn read_programs(&mut self, session: &mut Session) -> Result<()> {
        let rows: Vec<(String, String, String)> = session.rows(&format!(
            "SELECT ROUTINE_SCHEMA, ROUTINE_NAME, ROUTINE_TYPE FROM information_schema.ROUTINES
             WHERE ROUTINE_SCHEMA NOT IN ({OWN_SCHEMAS}) ORDER BY 1, 2"
        ))?;
        for (schema, name, kind) in rows {
            let programs = if kind == "FUNCTION" { &mut self.functions } else { &mut self.procedures };
            programs.push(Named { schema, name });
        }
        let rows: Vec<(String, String)> = session.rows(&format!(
            "SELECT TRIGGER_SCHEMA, TRIGGER_NAME FROM information_schema.TRIGGERS
             WHERE TRIGGER_SCHEMA NOT IN ({OWN_SCHEMAS}) ORDER BY 1, 2"
        ))?;
        self.triggers = rows.into_iter().map(|(schema, name)| Named { schema, name }).collect();
        Ok(())
    }

    fn table_mut(&mut self, schema: &str, name: &str) -> Option<&mut Table> {
        self.tables.iter_mut().find(|table| table.schema == schema && table.name == name)
    }
}
