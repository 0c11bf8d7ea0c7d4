//! Lookups of the rows that a statement of the source is going to change.
//!
//! An UPDATE or DELETE of one table whose condition compares columns with literals becomes a SELECT of the same rows:
//!
//! ```sql
//! UPDATE t SET k = 5 WHERE id = 7
//! SELECT COUNT(r.id), COUNT(b0.id), COUNT(c0.id) FROM t AS a LEFT JOIN t AS r FORCE INDEX (PRIMARY) ON r.id = a.id
//! LEFT JOIN t AS b0 FORCE INDEX (k) ON b0.k = r.k AND b0.id = r.id LEFT JOIN t AS c0 FORCE INDEX (k) ON c0.k = 5 AND c0.id = r.id
//! WHERE a.id = 7
//! ```
//! Of an INSERT of literals, the places of its rows are looked up. Everything else is left alone: what calls a function, reads a variable or another
//! table, or does not say which rows it takes by an index. A view is refused by the server, which knows no index of one.

use std::fmt::Write;

use spate_connection::quote;
use spate_schedule::definition::{ColumnDefinition, SecondaryIndex};
use spate_schedule::{TableDefinition, TableName};
use sqlparser::ast::{
    Assignment, AssignmentTarget, BinaryOperator, Expr, FromTable, Ident, InTarget, Insert, ObjectName, SetExpr,
    Statement, TableFactor, TableObject, TableWithJoins, UnaryOperator, Value,
};
use sqlparser::dialect::MySqlDialect;
use sqlparser::parser::Parser;

/// Bytes of a statement. A longer one is not worth its reading.
const STATEMENT_BYTES_MAX: usize = 8 << 10;
/// Rows of a statement that inserts. One with more does not wait long for each.
const ROWS_MAX: usize = 64;
/// Secondary indexes in one query, each joined at most twice: the servers join 61 tables at most.
const INDEXES_MAX: usize = 16;

/// A statement that changes rows of one table.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) table: TableName,
    rows: Rows,
}

/// The rows that it changes.
#[derive(Debug)]
enum Rows {
    /// Those for which a condition holds.
    Found(Box<Found>),
    /// New ones: the columns that are given, all if none is named, and their values.
    New { columns: Vec<String>, rows: Vec<Vec<Expr>> },
}

/// Rows for which a condition holds.
#[derive(Debug)]
struct Found {
    condition: Expr,
    /// `None`: they are deleted.
    assigned: Option<Vec<(String, Expr)>>,
}

impl Change {
    /// Reads a statement. `None`: its rows are not looked up.
    pub(crate) fn read(sql: &[u8], database: &str) -> Option<Change> {
        let text = std::str::from_utf8(sql).ok().filter(|text| text.is_ascii() && text.len() <= STATEMENT_BYTES_MAX)?;
        let verb = text.trim_start().get(..6)?.to_ascii_uppercase();
        // What the servers and the parser may read differently.
        if !matches!(verb.as_str(), "UPDATE" | "DELETE" | "INSERT" | "REPLAC")
            || ["\\", "--", "#", "/*", "{"].iter().any(|part| text.contains(part))
        {
            return None;
        }
        let mut statements = Parser::parse_sql(&MySqlDialect {}, text).ok()?;
        let statement = statements.pop().filter(|_| statements.is_empty())?;
        let (target, condition, assigned) = match statement {
            Statement::Update(update) => {
                let is_plain = update.from.is_none()
                    && update.returning.is_none()
                    && update.output.is_none()
                    && update.or.is_none()
                    && update.order_by.is_empty()
                    && update.limit.is_none();
                let assigned = update.assignments.into_iter().map(assignment).collect::<Option<Vec<_>>>()?;
                is_plain.then_some((update.table, update.selection?, Some(assigned)))?
            }
            Statement::Delete(delete) => {
                let is_plain = delete.tables.is_empty()
                    && delete.using.is_none()
                    && delete.returning.is_none()
                    && delete.output.is_none()
                    && delete.order_by.is_empty()
                    && delete.limit.is_none();
                let FromTable::WithFromKeyword(mut from) = delete.from else { return None };
                let target = from.pop().filter(|_| from.is_empty())?;
                is_plain.then_some((target, delete.selection?, None))?
            }
            Statement::Insert(insert) => return new_rows(insert, database),
            _ => return None,
        };
        Some(Change { table: table(target, database)?, rows: Rows::Found(Box::new(Found { condition, assigned })) })
    }

    /// Writes the lookups. `None` if the condition does not find rows by an index, or new rows do not say their keys.
    pub(crate) fn lookups(&self, definition: &TableDefinition) -> Option<Vec<Vec<u8>>> {
        let is_table = !definition.is_view && !definition.is_sequence && !definition.depends_on_session;
        if !is_table || definition.row_key.is_empty() {
            return None;
        }
        match &self.rows {
            Rows::Found(found) => Some(vec![found.lookup(definition)?]),
            Rows::New { columns, rows } => rows.iter().map(|row| new_row(definition, columns, row)).collect(),
        }
    }
}

impl Found {
    /// Writes the lookup. `None` if the condition does not find rows by an index.
    fn lookup(&self, definition: &TableDefinition) -> Option<Vec<u8>> {
        let names = Names { definition };
        if !names.finds_by_index(&self.condition)? {
            return None;
        }
        let condition = names.condition(&self.condition)?;
        let key: Vec<String> = definition.row_key.iter().map(|&column| names.quoted(column)).collect::<Option<_>>()?;
        let same_key = |left: &str, right: &str| {
            key.iter().map(|name| format!("{left}.{name}={right}.{name}")).collect::<Vec<_>>().join(" AND ")
        };
        let first = key.first()?;
        let name = quote::qualified(&definition.name.schema, &definition.name.table);
        let mut counted = format!("COUNT(r.{first})");
        let mut joins = String::new();
        let mut join = |alias: &str, index: &str, on: &str| {
            let _ = write!(joins, " LEFT JOIN {name} AS {alias} FORCE INDEX ({}) ON {on}", quote::identifier(index));
            if alias != "r" {
                let _ = write!(counted, ",COUNT({alias}.{first})");
            }
        };
        join("r", &definition.row_key_name, &same_key("r", "a"));
        let changed = definition.secondary_indexes.iter().filter(|index| self.changes(index, definition));
        for (number, index) in changed.take(INDEXES_MAX).enumerate() {
            let (old, new) = (format!("b{number}"), format!("c{number}"));
            if let Some(entry) = self.entry(&names, index, &old, false) {
                join(&old, &index.name, &format!("{entry} AND {}", same_key(&old, "r")));
            }
            if self.assigned.is_some()
                && let Some(entry) = self.entry(&names, index, &new, true)
            {
                join(&new, &index.name, &format!("{entry} AND {}", same_key(&new, "r")));
            }
        }
        Some(format!("SELECT {counted} FROM {name} AS a{joins} WHERE {condition}").into_bytes())
    }

    /// True if an entry of this index goes.
    fn changes(&self, index: &SecondaryIndex, definition: &TableDefinition) -> bool {
        let Some(assigned) = &self.assigned else { return true };
        index.columns.iter().filter_map(|&column| definition.columns.get(column)).any(|column| {
            // A computed column may change with any other.
            column.is_generated || assigned.iter().any(|(name, _)| name.eq_ignore_ascii_case(&column.name))
        })
    }

    /// The condition that finds the index's entry of row `r`, as it is or as it is going to be. `None` if that is not known.
    fn entry(&self, names: &Names<'_>, index: &SecondaryIndex, alias: &str, is_new: bool) -> Option<String> {
        let equal = index.columns.iter().map(|&column| {
            let (ColumnDefinition { name, is_generated, .. }, quoted) =
                (names.definition.columns.get(column)?, names.quoted(column)?);
            let assigned = self.assigned.as_deref().filter(|_| is_new).unwrap_or_default();
            let value = match assigned.iter().rposition(|(assigned, _)| assigned.eq_ignore_ascii_case(name)) {
                Some(place) => new_value(names, &assigned[..place], &assigned[place].1)?,
                None if is_new && *is_generated => return None,
                None => format!("r.{quoted}"),
            };
            Some(format!("{alias}.{quoted}={value}"))
        });
        Some(equal.collect::<Option<Vec<_>>>()?.join(" AND "))
    }
}

/// What a column becomes: literals, and columns of row `r` that the statement has not assigned `before`.
fn new_value(names: &Names<'_>, before: &[(String, Expr)], value: &Expr) -> Option<String> {
    use BinaryOperator::{Minus, Multiply, Plus};
    match value {
        Expr::Nested(inner) => new_value(names, before, inner),
        Expr::BinaryOp { left, op: op @ (Plus | Minus | Multiply), right } => {
            Some(format!("({}{op}{})", new_value(names, before, left)?, new_value(names, before, right)?))
        }
        Expr::Identifier(name) => {
            let is_assigned = before.iter().any(|(other, _)| other.eq_ignore_ascii_case(&name.value));
            let column = names.column(&name.value).filter(|_| !is_assigned)?;
            Some(format!("r.{}", names.quoted(column)?))
        }
        _ => Some(literal(value)?.0),
    }
}

/// Reads an INSERT or a REPLACE of values.
fn new_rows(insert: Insert, database: &str) -> Option<Change> {
    let is_plain = insert.on.is_none()
        && insert.returning.is_none()
        && insert.output.is_none()
        && insert.table_alias.is_none()
        && insert.insert_alias.is_none()
        && insert.partitioned.is_none()
        && insert.assignments.is_empty();
    let TableObject::TableName(name) = insert.table else { return None };
    let SetExpr::Values(values) = *insert.source.filter(|_| is_plain)?.body else { return None };
    let columns = insert.columns.iter().map(|column| Some(column.0.last()?.as_ident()?.value.clone()));
    let columns = columns.collect::<Option<Vec<_>>>()?;
    let rows: Vec<Vec<Expr>> = values.rows.into_iter().map(|row| row.content).collect();
    (rows.len() <= ROWS_MAX)
        .then_some(Change { table: table_name(&name, database)?, rows: Rows::New { columns, rows } })
}

/// Writes the lookup of the place of a new row, in each index whose columns it says.
fn new_row(definition: &TableDefinition, columns: &[String], row: &[Expr]) -> Option<Vec<u8>> {
    let names = Names { definition };
    let value = |column: usize| {
        let place = match columns {
            [] if row.len() == definition.columns.len() => Some(column),
            named => named.iter().position(|name| names.column(name) == Some(column)),
        };
        names.compared(column, row.get(place?)?)
    };
    let same = |alias: &str, columns: &[usize]| {
        let same = columns.iter().map(|&column| Some(format!("{alias}.{}={}", names.quoted(column)?, value(column)?)));
        Some(same.collect::<Option<Vec<_>>>()?.join(" AND "))
    };
    let name = quote::qualified(&definition.name.schema, &definition.name.table);
    let first = names.quoted(*definition.row_key.first()?)?;
    let (mut counted, mut joins) = (format!("COUNT(a.{first})"), String::new());
    let mut join = |alias: &str, index: &str, on: &str| {
        let _ = write!(joins, " LEFT JOIN {name} AS {alias} FORCE INDEX ({}) ON {on}", quote::identifier(index));
        if alias != "a" {
            let _ = write!(counted, ",COUNT({alias}.{first})");
        }
    };
    join("a", &definition.row_key_name, &same("a", &definition.row_key)?);
    for (number, index) in definition.secondary_indexes.iter().enumerate().take(INDEXES_MAX) {
        let alias = format!("c{number}");
        if let (Some(entry), Some(key)) = (same(&alias, &index.columns), same(&alias, &definition.row_key)) {
            join(&alias, &index.name, &format!("{entry} AND {key}"));
        }
    }
    Some(format!("SELECT {counted} FROM (SELECT 1 AS one) AS o{joins}").into_bytes())
}

fn table(from: TableWithJoins, database: &str) -> Option<TableName> {
    let TableFactor::Table { name, alias: None, args: None, .. } = from.relation else { return None };
    if from.joins.is_empty() { table_name(&name, database) } else { None }
}

fn table_name(name: &ObjectName, database: &str) -> Option<TableName> {
    let parts: Vec<&Ident> = name.0.iter().map(|part| part.as_ident()).collect::<Option<_>>()?;
    let name = |schema: &str, table: &str| TableName { schema: schema.to_owned(), table: table.to_owned() };
    match parts.as_slice() {
        [table] if !database.is_empty() => Some(name(database, &table.value)),
        [schema, table] => Some(name(&schema.value, &table.value)),
        _ => None,
    }
}

fn assignment(Assignment { target, value }: Assignment) -> Option<(String, Expr)> {
    let AssignmentTarget::ColumnName(ObjectName(parts)) = target else { return None };
    let column = parts.last()?.as_ident()?;
    Some((column.value.clone(), value))
}

/// What a literal is compared like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Number,
    Text,
}

/// A literal as the reading sessions understand it.
fn literal(value: &Expr) -> Option<(String, Kind)> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::Number(number, false) => {
                let is_plain = number
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
                is_plain.then(|| (number.clone(), Kind::Number))
            }
            Value::SingleQuotedString(text) | Value::DoubleQuotedString(text) => Some((quote::text(text), Kind::Text)),
            _ => None,
        },
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match literal(expr)? {
            (number, Kind::Number) if !number.starts_with('-') => Some((format!("-{number}"), Kind::Number)),
            _ => None,
        },
        _ => None,
    }
}

struct Names<'a> {
    definition: &'a TableDefinition,
}

impl Names<'_> {
    fn column(&self, name: &str) -> Option<usize> {
        self.definition.columns.iter().position(|column| column.name.eq_ignore_ascii_case(name))
    }

    fn quoted(&self, column: usize) -> Option<String> {
        self.definition.columns.get(column).map(|column| quote::identifier(&column.name))
    }

    /// The column that an expression names.
    fn named(&self, expression: &Expr) -> Option<usize> {
        match expression {
            Expr::Identifier(name) => self.column(&name.value),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., table, column] if table.value == self.definition.name.table => self.column(&column.value),
                _ => None,
            },
            Expr::Nested(inner) => self.named(inner),
            _ => None,
        }
    }

    /// A literal that a column's values are compared with as they are: the index finds it. TIMESTAMPs depend on the session's time zone.
    fn compared(&self, column: usize, value: &Expr) -> Option<String> {
        let ColumnDefinition { column_type, charset, .. } = self.definition.columns.get(column)?;
        let (text, kind) = literal(value)?;
        let is_text = !charset.is_empty() || column_type.contains("binary") || column_type.contains("blob");
        let is_misfit = is_text && kind == Kind::Number || column_type.starts_with("timestamp");
        (!is_misfit).then_some(text)
    }

    /// True if an index finds the condition's rows. `None` if it has parts that are not understood.
    fn finds_by_index(&self, condition: &Expr) -> Option<bool> {
        let leads = |expression: &Expr| {
            let column = self.named(expression)?;
            let indexes = self.definition.secondary_indexes.iter().map(|index| index.columns.as_slice());
            let mut indexes = indexes.chain([self.definition.row_key.as_slice()]);
            Some(indexes.any(|columns| columns.first() == Some(&column)))
        };
        match condition {
            Expr::Nested(inner) => self.finds_by_index(inner),
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
                Some(self.finds_by_index(left)? | self.finds_by_index(right)?)
            }
            Expr::BinaryOp { left, op: BinaryOperator::Or, right } => {
                Some(self.finds_by_index(left)? & self.finds_by_index(right)?)
            }
            Expr::BinaryOp { op: BinaryOperator::NotEq, .. } => Some(false),
            Expr::BinaryOp { left, right, .. } => leads(left).or_else(|| leads(right)),
            Expr::In { expr, negated, .. } | Expr::Between { expr, negated, .. } => Some(!negated && leads(expr)?),
            _ => None,
        }
    }

    /// The condition on table `a`.
    fn condition(&self, condition: &Expr) -> Option<String> {
        let on = |column: usize| Some(format!("a.{}", self.quoted(column)?));
        Some(match condition {
            Expr::Nested(inner) => self.condition(inner)?,
            Expr::BinaryOp { left, op: op @ (BinaryOperator::And | BinaryOperator::Or), right } => {
                format!("({} {op} {})", self.condition(left)?, self.condition(right)?)
            }
            Expr::BinaryOp { left, op, right } => {
                let op = match op {
                    BinaryOperator::Eq => "=",
                    BinaryOperator::NotEq => "<>",
                    BinaryOperator::Lt => "<",
                    BinaryOperator::LtEq => "<=",
                    BinaryOperator::Gt => ">",
                    BinaryOperator::GtEq => ">=",
                    _ => return None,
                };
                match (self.named(left), self.named(right)) {
                    (Some(column), None) => format!("{}{op}{}", on(column)?, self.compared(column, right)?),
                    (None, Some(column)) => format!("{}{op}{}", self.compared(column, left)?, on(column)?),
                    _ => return None,
                }
            }
            Expr::In { expr, target: InTarget::List(list), negated, global: false } => {
                let column = self.named(expr)?;
                let list = list.iter().map(|value| self.compared(column, value)).collect::<Option<Vec<_>>>()?;
                format!("{} {}IN ({})", on(column)?, if *negated { "NOT " } else { "" }, list.join(","))
            }
            Expr::Between { expr, negated, low, high } => {
                let column = self.named(expr)?;
                let (low, high) = (self.compared(column, low)?, self.compared(column, high)?);
                format!("{} {}BETWEEN {low} AND {high}", on(column)?, if *negated { "NOT " } else { "" })
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `d.t (id INT PRIMARY KEY, k INT, c CHAR(10), s TIMESTAMP, KEY k (k))`
    fn definition() -> TableDefinition {
        let column = |name: &str, column_type: &str, charset: &str| ColumnDefinition {
            name: name.into(),
            column_type: column_type.into(),
            charset: charset.into(),
            ..ColumnDefinition::default()
        };
        TableDefinition {
            name: TableName { schema: "d".into(), table: "t".into() },
            columns: vec![
                column("id", "int(11)", ""),
                column("k", "int(11)", ""),
                column("c", "char(10)", "utf8mb4"),
                column("s", "timestamp", ""),
            ],
            row_key: vec![0],
            row_key_name: "PRIMARY".into(),
            secondary_indexes: vec![SecondaryIndex { name: "k".into(), columns: vec![1] }],
            ..TableDefinition::default()
        }
    }

    fn lookup(sql: &str) -> Option<String> {
        let change = Change::read(sql.as_bytes(), "d")?;
        assert_eq!(change.table, definition().name);
        let mut lookups = change.lookups(&definition())?;
        Some(String::from_utf8(lookups.pop().filter(|_| lookups.is_empty())?).unwrap())
    }

    #[test]
    fn update_is_looked_up_by_its_condition() {
        assert_eq!(
            lookup("UPDATE t SET k=k+1 WHERE id=7").unwrap(),
            "SELECT COUNT(r.`id`),COUNT(b0.`id`),COUNT(c0.`id`) FROM `d`.`t` AS a \
             LEFT JOIN `d`.`t` AS r FORCE INDEX (`PRIMARY`) ON r.`id`=a.`id` \
             LEFT JOIN `d`.`t` AS b0 FORCE INDEX (`k`) ON b0.`k`=r.`k` AND b0.`id`=r.`id` \
             LEFT JOIN `d`.`t` AS c0 FORCE INDEX (`k`) ON c0.`k`=(r.`k`+1) AND c0.`id`=r.`id` WHERE a.`id`=7"
        );
        assert_eq!(
            lookup("update d.t set C = \"it's\" where 5 <= K and (id in (1,-2) or id between 4 and 5)").unwrap(),
            "SELECT COUNT(r.`id`) FROM `d`.`t` AS a LEFT JOIN `d`.`t` AS r FORCE INDEX (`PRIMARY`) ON r.`id`=a.`id` \
             WHERE (5<=a.`k` AND (a.`id` IN (1,-2) OR a.`id` BETWEEN 4 AND 5))"
        );
    }

    #[test]
    fn delete_is_looked_up_in_every_index() {
        assert_eq!(
            lookup("DELETE FROM t WHERE id='3' AND c<>'a''b'").unwrap(),
            "SELECT COUNT(r.`id`),COUNT(b0.`id`) FROM `d`.`t` AS a LEFT JOIN `d`.`t` AS r FORCE INDEX (`PRIMARY`) ON r.`id`=a.`id` \
             LEFT JOIN `d`.`t` AS b0 FORCE INDEX (`k`) ON b0.`k`=r.`k` AND b0.`id`=r.`id` WHERE (a.`id`='3' AND a.`c`<>'a''b')"
        );
    }

    #[test]
    fn insert_is_looked_up_where_it_will_be() {
        let places = "SELECT COUNT(a.`id`),COUNT(c0.`id`) FROM (SELECT 1 AS one) AS o \
             LEFT JOIN `d`.`t` AS a FORCE INDEX (`PRIMARY`) ON a.`id`=7 LEFT JOIN `d`.`t` AS c0 FORCE INDEX (`k`) ON c0.`k`=1 AND c0.`id`=7";
        for sql in [
            "INSERT INTO t VALUES (7,1,'a',NULL)",
            "replace t (K, id) value (1, 7)",
            "INSERT IGNORE d.t (k,id) VALUES (1,7)",
        ] {
            assert_eq!(lookup(sql).as_deref(), Some(places), "{sql}");
        }
        assert!(!lookup("INSERT INTO t (id, k) VALUES (7, DEFAULT)").unwrap().contains("c0"));
        let two = Change::read(b"INSERT INTO t VALUES (7,1,'a',NULL),(8,2,'b',NULL)", "d").unwrap();
        assert_eq!(two.lookups(&definition()).unwrap().len(), 2);
    }

    #[test]
    fn new_entry_is_looked_up_only_where_it_is_known() {
        for sql in
            ["UPDATE t SET id=9, k=id WHERE id=7", "UPDATE t SET k=SLEEP(9) WHERE id=7", "UPDATE t SET k=@k WHERE id=7"]
        {
            let sql = lookup(sql).unwrap();
            assert!(sql.contains("AS b0") && !sql.contains("AS c0"), "{sql}");
        }
    }

    #[test]
    fn doubtful_statements_are_left_alone() {
        for sql in [
            "UPDATE t SET k=1",
            "UPDATE t SET k=1 WHERE id=SLEEP(1)",
            "UPDATE t SET k=1 WHERE id=@a",
            "UPDATE t SET k=1 WHERE id=(SELECT 1)",
            "UPDATE t SET k=1 WHERE id IN (SELECT id FROM u)",
            "UPDATE t SET k=1 WHERE id=7 ORDER BY id LIMIT 1",
            "UPDATE t, u SET t.k=1 WHERE t.id=7",
            "UPDATE t JOIN u SET t.k=1 WHERE t.id=7",
            "DELETE t FROM t JOIN u WHERE t.id=7",
            "DELETE FROM t WHERE id=7 LIMIT 1",
            "DELETE FROM t WHERE id=7 RETURNING id",
            "DELETE FROM t WHERE c='x'",
            "DELETE FROM t WHERE id=7 OR c='x'",
            "DELETE FROM t WHERE id<>7",
            "DELETE FROM t WHERE NOT id=7",
            "DELETE FROM t WHERE c=5 AND id=7",
            "DELETE FROM t WHERE s='2020-01-01' AND id=7",
            "DELETE FROM t WHERE id=k",
            "DELETE FROM t WHERE other=7",
            "DELETE /*!50000 FROM */ t WHERE id=7",
            "DELETE FROM t WHERE id=x'07'",
            "DELETE FROM t WHERE id=7; DROP TABLE t",
            "INSERT INTO t VALUES (NULL,1,'a',NULL)",
            "INSERT INTO t (k) VALUES (1)",
            "INSERT INTO t VALUES (7)",
            "INSERT INTO t VALUES (NOW(),1,'a',NULL)",
            "INSERT INTO t VALUES (7,1,'a',NULL) ON DUPLICATE KEY UPDATE k=1",
            "INSERT INTO t SELECT 1,2,3,4",
            "DROP TABLE t",
            "",
        ] {
            assert_eq!(lookup(sql), None, "{sql}");
        }
        assert!(Change::read("DELETE FROM t WHERE c='ä' AND id=7".as_bytes(), "d").is_none());
        assert!(Change::read(b"DELETE FROM t WHERE id=7", "").is_none());
        assert!(Change::read(format!("DELETE FROM t WHERE id=7{}", " OR id=8".repeat(900)).as_bytes(), "d").is_some());
    }
}
