//! What somebody does by hand on both replicas in the midst, at the same place in the source's history.

use super::super::feature::Feature;
use super::super::settings::{Beginning, Format};
use super::super::step::{Action, Step};
use super::Generator;
use crate::sql::quote;

impl Generator {
    /// Nobody waits for a Spate that is down.
    pub(super) fn may_alter_replicas(&self) -> bool {
        self.settings.failures.is_empty() && self.settings.beginning == Beginning::AtOnce
    }

    pub(super) fn by_hand(&mut self) -> Option<Step> {
        let table = self.table()?;
        let name = table.quoted();
        let number = self.counter();
        let column = quote(&self.random.pick(&table.columns)?.name);
        // What the source adds later would have another place than there, and a statement without a list of columns one value too few.
        let may_own_columns =
            !self.has(Feature::Ddl) && !self.has(Feature::CreateSelect) && self.settings.format == Format::Row;
        let sql = match self.random.below(8) {
            // Native replication looks for a row without a key by any index that it finds, and does not find it by every one.
            0..=2 if table.primary_key().is_none() => format!("ALTER TABLE {name} COMMENT='by hand'"),
            0 | 1 => format!("ALTER TABLE {name} ADD INDEX `own{number}` ({column})"),
            2 => format!("ALTER TABLE {name} ADD INDEX `own{number}` ({column}), COMMENT='by hand'"),
            3 => format!(
                "CREATE TRIGGER {}.`own{number}` AFTER UPDATE ON {name} FOR EACH ROW SET @own = 1",
                quote(&table.schema)
            ),
            4 => format!("ANALYZE TABLE {name}"),
            5 | 6 if may_own_columns => {
                format!("ALTER TABLE {name} ADD COLUMN `own{number}` INT NOT NULL DEFAULT {number}")
            }
            7 if may_own_columns => format!("ALTER TABLE {name} ADD COLUMN `own{number}` VARCHAR(20) DEFAULT 'own'"),
            _ => format!("ALTER TABLE {name} FORCE"),
        };
        Some(Step { session: 0, action: Action::OnReplicas(sql) })
    }
}
