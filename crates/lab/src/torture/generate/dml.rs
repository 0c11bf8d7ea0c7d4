//! Changes of rows.

use super::super::feature::Feature;
use super::super::world::{Column, Table};
use super::safety::is_in_unique_key;
use super::{Generator, values};
use crate::binlog_format::Format;
use crate::sql::quote;

impl Generator {
    pub(super) fn insert(&mut self) -> Option<String> {
        let table = self.table()?;
        let verb = if self.has(Feature::Dml) {
            self.random.word(&["INSERT", "INSERT", "INSERT", "INSERT", "INSERT IGNORE", "REPLACE", "REPLACE"])
        } else {
            "INSERT"
        };
        let verb = self.replacing(verb, &table);
        let columns = self.some_columns(&table);
        let rows = 1 + self.random.below(4);
        let rows = self.rows(&columns, rows);
        let mut sql = format!("{verb} INTO {} ({}) VALUES {}", table.quoted(), names(&columns), rows.join(", "));
        if verb == "INSERT" && self.has(Feature::Dml) && self.random.chance(35) {
            let changed = self.assignments(&columns, true);
            if !changed.is_empty() {
                sql += &format!(" ON DUPLICATE KEY UPDATE {changed}");
            }
        }
        if verb != "REPLACE" && self.random.chance(4) {
            sql += " RETURNING 1";
        }
        Some(sql)
    }

    pub(super) fn update(&mut self) -> Option<String> {
        let table = self.table()?;
        let columns = table.writable();
        let assignments = self.assignments(&columns, false);
        if assignments.is_empty() {
            return None;
        }
        let condition = values::condition(&mut self.random, &table);
        // Without an order, each server may leave other rows unchanged.
        let has_order = !self.logs_statements() || table.order().is_some();
        let ignore = if has_order && self.random.chance(10) { "IGNORE " } else { "" };
        let changes_keys = table.columns.iter().any(|column| {
            is_in_unique_key(&table, column) && assignments.contains(&format!("{} = ", quote(&column.name)))
        });
        if changes_keys && !has_order {
            return None;
        }
        let end = self.order_and_limit(&table, changes_keys || !ignore.is_empty());
        let portion = if self.random.chance(40) { self.period(&table) } else { "" };
        Some(format!("UPDATE {ignore}{}{portion} SET {assignments} WHERE {condition}{end}", table.quoted()))
    }

    pub(super) fn delete(&mut self) -> Option<String> {
        let table = self.table()?;
        if self.random.chance(4) {
            return Some(format!("DELETE FROM {}", table.quoted()));
        }
        let condition = values::condition(&mut self.random, &table);
        let portion = if self.random.chance(40) { self.period(&table) } else { "" };
        let end = self.order_and_limit(&table, false);
        Some(format!("DELETE FROM {}{portion} WHERE {condition}{end}", table.quoted()))
    }

    /// A change of one row, by its key.
    pub(super) fn change_by_key(&mut self) -> Option<String> {
        let table = self.table()?;
        let key = table.integer_key()?.name.clone();
        let columns: Vec<&Column> = table.writable().into_iter().filter(|column| column.name != key).collect();
        let condition = format!("{} = {}", quote(&key), self.random.below(60));
        match self.random.pick(&columns) {
            Some(column) if self.random.chance(70) => {
                let value = values::literal(&mut self.random, column);
                Some(format!("UPDATE {} SET {} = {value} WHERE {condition}", table.quoted(), quote(&column.name)))
            }
            _ => Some(format!("DELETE FROM {} WHERE {condition}", table.quoted())),
        }
    }

    /// Two rows exchange the values of a unique key.
    pub(super) fn swap(&mut self) -> Option<String> {
        let table = self.table()?;
        let column = table.integer_key()?;
        let (name, low) = (quote(&column.name), self.random.below(12));
        let (order, high) = (self.random.word(&["ASC", "DESC"]), low + 3);
        let expression = match self.random.below(3) {
            0 => format!("{name} + 1"),
            1 => format!("{name} - 1"),
            _ => format!("{} - {name}", low + high),
        };
        Some(format!(
            "UPDATE {} SET {name} = {expression} WHERE {name} BETWEEN {low} AND {high} ORDER BY {name} {order}",
            table.quoted()
        ))
    }

    pub(super) fn insert_select(&mut self) -> Option<String> {
        const ROWS_MAX: usize = 25;
        let (to, from) = (self.table()?, self.table()?);
        let order = from.order();
        // Without an order, LIMIT may take other rows on each server, and they may get other counters.
        if order.is_none() && self.settings.format == Format::Statement {
            return None;
        }
        let mut columns: Vec<&Column> = to.writable().into_iter().filter(|_| self.random.chance(80)).collect();
        if self.logs_statements() {
            columns.retain(|column| !column.is_auto_increment);
        }
        if columns.is_empty() {
            return None;
        }
        let selected: Vec<String> = columns.iter().map(|column| self.selected(column, &from)).collect();
        let condition = values::condition(&mut self.random, &from);
        let drawn = self.random.word(&["INSERT", "INSERT IGNORE", "REPLACE"]);
        let verb = self.replacing(drawn, &to);
        let limit = 1 + self.random.below(ROWS_MAX);
        Some(format!(
            "{verb} INTO {} ({}) SELECT {} FROM {} WHERE {condition} {} LIMIT {limit}",
            to.quoted(),
            names(&columns),
            selected.join(", "),
            from.quoted(),
            order.unwrap_or_default()
        ))
    }

    fn selected(&mut self, column: &Column, from: &Table) -> String {
        let alike: Vec<&Column> = from.columns.iter().filter(|other| other.data_type == column.data_type).collect();
        match self.random.pick(&alike) {
            Some(other) if self.random.chance(80) => quote(&other.name),
            _ => values::constant(&mut self.random, column),
        }
    }

    /// Hundreds of rows at once.
    pub(super) fn bulk(&mut self) -> Option<String> {
        let table = self.table()?;
        let columns = table.writable();
        let rows = [50, 200, 600][self.random.below(3)];
        let of = |column: &&Column, random: &mut super::Random| match column.data_type.as_str() {
            _ if column.is_auto_increment => "seq + 1".to_owned(),
            "int" | "bigint" | "decimal" | "double" => "seq".to_owned(),
            "varchar" | "text" | "varbinary" | "blob" | "mediumtext" => "CONCAT('b', seq)".to_owned(),
            "smallint" | "mediumint" => "seq + 100".to_owned(),
            _ => values::constant(random, column),
        };
        let selected: Vec<String> = columns.iter().map(|column| of(column, &mut self.random)).collect();
        let drawn = self.random.word(&["INSERT IGNORE", "REPLACE", "INSERT"]);
        let verb = self.replacing(drawn, &table);
        Some(format!(
            "{verb} INTO {} ({}) SELECT {} FROM seq_{}_to_{}",
            table.quoted(),
            names(&columns),
            selected.join(", "),
            self.random.below(20),
            20 + rows
        ))
    }

    pub(super) fn multiple_tables(&mut self) -> Option<String> {
        let (first, second) = (self.table()?, self.table()?);
        let (one, two) = (first.integer_key()?.name.clone(), second.integer_key()?.name.clone());
        let (a, b) = (first.quoted(), second.quoted());
        let join = format!("{a} AS x JOIN {b} AS y ON x.{} = y.{}", quote(&one), quote(&two));
        let condition = format!("x.{} <= {}", quote(&one), self.random.below(20));
        if self.random.chance(40) {
            let which = self.random.word(&["x", "y", "x, y"]);
            return Some(format!("DELETE {which} FROM {join} WHERE {condition}"));
        }
        let mut assignments = Vec::new();
        for (alias, table) in [("x", &first), ("y", &second)] {
            let key = table.integer_key().map(|key| key.name.clone());
            let columns: Vec<&Column> =
                table.writable().into_iter().filter(|column| Some(&column.name) != key.as_ref()).collect();
            if let Some(column) = self.random.pick(&columns) {
                let value = values::literal(&mut self.random, column);
                assignments.push(format!("{alias}.{} = {value}", quote(&column.name)));
            }
        }
        (!assignments.is_empty()).then(|| format!("UPDATE {join} SET {} WHERE {condition}", assignments.join(", ")))
    }

    /// A statement whose first rows succeed and whose last does not.
    pub(super) fn fails_half_way(&mut self) -> Option<String> {
        let table = self.table()?;
        let columns = table.writable();
        let mut rows = self.rows(&columns, 3);
        rows.push(rows[0].clone());
        Some(format!("INSERT INTO {} ({}) VALUES {}", table.quoted(), names(&columns), rows.join(", ")))
    }

    /// The columns that a statement names: usually all that can be set.
    fn some_columns<'a>(&mut self, table: &'a Table) -> Vec<&'a Column> {
        let mut columns = table.writable();
        if self.random.chance(30) {
            columns.retain(|column| !column.is_auto_increment || self.random.chance(30));
        }
        if self.random.chance(20) {
            columns.retain(|column| !column.is_nullable || self.random.chance(60));
        }
        columns
    }

    /// Rows for VALUES.
    fn rows(&mut self, columns: &[&Column], count: usize) -> Vec<String> {
        let is_counted = self.logs_statements().then(|| self.random.chance(50));
        (0..count).map(|_| self.row(columns, is_counted)).collect()
    }

    /// `is_counted`: all rows of the statement get their counter from the server, or none does; `None`: drawn for each
    /// row.
    fn row(&mut self, columns: &[&Column], is_counted: Option<bool>) -> String {
        let value = |column: &&Column| match is_counted {
            Some(true) if column.is_auto_increment => self.random.word(&["NULL", "DEFAULT"]).to_owned(),
            Some(false) if column.is_auto_increment => (1 + self.random.below(60)).to_string(),
            _ => self.value(column),
        };
        let values: Vec<String> = columns.iter().map(value).collect();
        format!("({})", values.join(", "))
    }

    /// A value, or an expression whose value depends on the session.
    pub(super) fn value(&mut self, column: &Column) -> String {
        if column.is_auto_increment && self.random.chance(50) {
            return self.random.word(&["NULL", "NULL", "DEFAULT", "0"]).to_owned();
        }
        if self.has(Feature::StatementContext)
            && self.random.chance(10)
            && let Some(expression) = self.expression(column)
        {
            return expression;
        }
        if self.has(Feature::Sequences)
            && column.data_type.ends_with("int")
            && self.random.chance(4)
            && let Some(sequence) = self.random.pick(&self.world.sequences)
        {
            return format!("NEXT VALUE FOR {}", sequence.quoted());
        }
        if self.has(Feature::Routines)
            && column.data_type.ends_with("int")
            && self.random.chance(4)
            && let Some(function) = self.random.pick(&self.world.functions)
        {
            return format!("{}({})", function.quoted(), self.random.below(9));
        }
        values::literal(&mut self.random, column)
    }

    fn expression(&mut self, column: &Column) -> Option<String> {
        let expression = match column.data_type.as_str() {
            "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => self.random.word(&[
                "FLOOR(RAND() * 50)",
                "LAST_INSERT_ID()",
                "@i",
                "@@auto_increment_offset",
                "FLOOR(RAND(3) * 20)",
                "SECOND(NOW())",
                "@d + 1",
            ]),
            "double" | "float" | "decimal" => self.random.word(&["RAND()", "@d", "RAND() * 3", "@r"]),
            "datetime" | "timestamp" | "date" | "time" => self.random.word(&[
                "NOW(6)",
                "CURRENT_TIMESTAMP",
                "CURRENT_TIMESTAMP(3)",
                "CURDATE()",
                "FROM_UNIXTIME(86400)",
            ]),
            // In statement format, functions of the session are logged as text, and the replica's session has other
            // values.
            "varchar" | "text" | "char" | "tinytext"
                if self.has(Feature::Clients)
                    && self.settings.format != Format::Statement
                    && self.random.chance(20) =>
            {
                self.random.word(&["CURRENT_USER()", "USER()", "CURRENT_ROLE()", "SESSION_USER()"])
            }
            "varchar" | "text" | "char" | "tinytext" => self.random.word(&[
                "@s",
                "DATE_FORMAT('2026-03-01', '%M %W')",
                "CONCAT(@s, 'x')",
                "@@sql_mode",
                "CHARSET('x')",
                "COLLATION('x')",
                "CONVERT_TZ('2026-01-01 00:00:00', '+00:00', '+02:00')",
                "IF('a' = 'A', 'same', 'other')",
            ]),
            _ => return None,
        };
        Some(expression.to_owned())
    }

    /// `a = 1, b = b + 1`.
    fn assignments(&mut self, columns: &[&Column], with_values: bool) -> String {
        let mut assignments = Vec::new();
        let chosen: Vec<&Column> = self.random.some(columns, 30);
        for column in chosen {
            let name = quote(&column.name);
            let value = match self.random.below(10) {
                0 if with_values => format!("VALUES({name})"),
                1 if column.data_type.ends_with("int") => format!("{name} + 1"),
                2 if column.data_type == "varchar" => format!("CONCAT({name}, 'u')"),
                3 if column.data_type == "varchar" => {
                    format!("{}({name})", self.random.word(&["UPPER", "LOWER", "TRIM"]))
                }
                _ => self.value(column),
            };
            assignments.push(format!("{name} = {value}"));
        }
        assignments.join(", ")
    }

    fn order_and_limit(&mut self, table: &Table, changes_keys: bool) -> String {
        match table.order() {
            Some(order) if self.random.chance(15) => format!(" {order} LIMIT {}", 1 + self.random.below(5)),
            _ => self.needed_order(table, changes_keys).unwrap_or_default(),
        }
    }

    /// The part of the rows' application time that a statement is about, if the table has such a period. What it splits
    /// may collide, in an order that is each server's own.
    fn period(&self, table: &Table) -> &'static str {
        let may_collide = table.keys.iter().filter(|key| key.is_unique).count() > 1;
        let has_period = table.column("pf").is_some() && table.column("pt").is_some();
        if has_period && !(may_collide && self.logs_statements()) {
            " FOR PORTION OF `ap` FROM '2020-01-01' TO '2021-01-01'"
        } else {
            ""
        }
    }
}

fn names(columns: &[&Column]) -> String {
    columns.iter().map(|column| quote(&column.name)).collect::<Vec<_>>().join(", ")
}
