//! Statements that a person executes on both replicas during the torture, at the same position of the source.

use super::super::feature::Feature;
use super::super::settings::Beginning;
use super::super::step::{Action, Step};
use super::super::world::Table;
use super::Generator;
use crate::binlog_format::Format;
use crate::sql::quote;
use crate::vendor::Vendor;

impl Generator {
    /// True if Spate always runs, so that the trial can wait for it.
    pub(super) fn may_alter_replicas(&self) -> bool {
        self.settings.failures.is_empty() && self.settings.beginning == Beginning::AtOnce
    }

    pub(super) fn by_hand(&mut self) -> Option<Step> {
        let table = self.table()?;
        let name = table.quoted();
        let number = self.counter();
        let column = quote(&self.random.pick(&table.columns)?.name);
        // With own columns, a column that the source adds later would get another place on the replica, and an INSERT
        // without a list of columns would have one value too few.
        let may_own_columns =
            !self.has(Feature::Ddl) && !self.has(Feature::CreateSelect) && self.settings.format == Format::Row;
        let sql = match self.random.below(10) {
            // Native replication searches a keyless table's row by any index, and with some of them does not find it.
            0..=2 if table.primary_key().is_none() => format!("ALTER TABLE {name} COMMENT='by hand'"),
            0 | 1 => format!("ALTER TABLE {name} ADD INDEX `own{number}` ({column})"),
            2 => format!("ALTER TABLE {name} ADD INDEX `own{number}` ({column}), COMMENT='by hand'"),
            // A table with a trigger cannot be moved to another schema.
            3 if !self.has(Feature::Ddl) => format!(
                "CREATE TRIGGER {}.`own{number}` AFTER UPDATE ON {name} FOR EACH ROW SET @own = 1",
                quote(&table.schema)
            ),
            4 => format!("ANALYZE TABLE {name}"),
            5 | 6 if may_own_columns => {
                format!("ALTER TABLE {name} ADD COLUMN `own{number}` INT NOT NULL DEFAULT {number}")
            }
            7 if may_own_columns => format!("ALTER TABLE {name} ADD COLUMN `own{number}` VARCHAR(20) DEFAULT 'own'"),
            // A unique index that includes the whole primary key refuses no row of the source.
            8 => {
                let others = table.primary_key()?.columns.iter().map(|name| quote(name)).filter(|name| *name != column);
                let columns: Vec<String> = [column.clone()].into_iter().chain(others).collect();
                format!("ALTER TABLE {name} ADD UNIQUE INDEX `own{number}` ({})", columns.join(", "))
            }
            9 if self.may_own_children(&table) => return self.own_child(&table, &number),
            _ => format!("ALTER TABLE {name} FORCE"),
        };
        Some(Self::on_replicas(sql))
    }

    /// True if the replicas may have a table of their own that refers to this one. Then no later definition of the
    /// source is refused for it, and the engine executes the keys' actions (from MySQL 9.6 on, the source logs them
    /// instead).
    fn may_own_children(&self, table: &Table) -> bool {
        let defines = [Feature::Ddl, Feature::CreateSelect, Feature::Partitions, Feature::ForeignKeys];
        self.settings.pair.replica == Vendor::MariaDb
            && defines.iter().all(|&feature| !self.has(feature))
            && table.engine == "InnoDB"
            && !table.is_versioned
    }

    /// A table of the replicas' own whose rows cascade from a table of the source.
    fn own_child(&mut self, table: &Table, number: &str) -> Option<Step> {
        let key: Vec<String> = table.primary_key()?.columns.iter().map(|name| quote(name)).collect();
        let (key, name) = (key.join(", "), table.quoted());
        let own = format!("{}.`own{number}`", quote(&table.schema));
        self.next.push(Self::on_replicas(format!(
            "ALTER TABLE {own} ADD FOREIGN KEY ({key}) REFERENCES {name} ({key}) ON DELETE CASCADE ON UPDATE CASCADE"
        )));
        Some(Self::on_replicas(format!("CREATE TABLE {own} (INDEX ({key})) ENGINE=InnoDB SELECT {key} FROM {name}")))
    }

    fn on_replicas(sql: String) -> Step {
        Step { session: 0, action: Action::OnReplicas(sql) }
    }
}
