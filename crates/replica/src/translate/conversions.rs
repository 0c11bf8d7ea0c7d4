//! Alterations that give columns another type, and so make the values that are there into others: not every such conversion is the
//! same to both vendors, and then only a replica of the source's vendor has what the source has.
//!
//! What is alike was measured: values of every type, the odd ones among them, were converted to every type by MariaDB 10.11 and MySQL
//! 9.7, in sql_mode strict and not. Among what differs:
//!
//! | | MariaDB | MySQL |
//! | --- | --- | --- |
//! | `'1e5'` to an integer | 1 | 100000 |
//! | a number with an exponent to text | `1e20` | `1e+20`, or none |
//! | fewer digits of a fraction of a second | cut off | rounded |
//! | numbers to times, and to choices | | in other ways |
//! | documents to text | as they were written | as MySQL writes them |

use spate_sql::{Reading, SqlText, Token, TokenKind, edit};

use super::{Refusal, spelled, tokens};
use spate_connection::{Vendor, quote};
use spate_schedule::TableName;

/// Types whose values all convert alike.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Family {
    Integer,
    /// The one integer type whose values are not all some BIGINT's.
    UnsignedBigint,
    Decimal,
    Real,
    Bit,
    Year,
    Date,
    /// With so many digits of a fraction.
    Time(u8),
    /// DATETIME and TIMESTAMP, with so many digits of a fraction.
    Moment(u8),
    Text,
    Binary,
    Enum,
    Set,
    Json,
    Geometry,
    /// A type that only one of them has, or that converts to nothing else.
    Other(String),
}

/// A column that an ALTER TABLE redefines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Redefinition {
    column: String,
    family: Family,
    /// For messages.
    type_name: String,
}

/// The columns that an ALTER TABLE redefines; none if it is another statement.
///
/// # Errors
/// A comment that only some servers execute.
pub fn redefinitions(text: SqlText<'_>) -> Result<Vec<Redefinition>, Refusal> {
    let tokens = tokens(text)?;
    let Some(start) = behind_table(&tokens) else { return Ok(Vec::new()) };
    Ok(edit::clauses(&tokens[start..]).filter_map(redefined).collect())
}

/// Asks a replica for the types that these columns of a table have now: one row with a value for each.
pub fn question(table: &TableName, redefinitions: &[Redefinition], replica: Vendor) -> String {
    let schema = quote::text(&table.schema);
    let name = quote::text(&table.table);
    let types = redefinitions.iter().map(|redefinition| {
        let column = quote::text(&redefinition.column);
        // MariaDB's documents are text that is checked.
        let shown = match replica {
            Vendor::MySql => "COLUMN_TYPE".to_owned(),
            Vendor::MariaDb => format!(
                "IF(DATA_TYPE='longtext' AND EXISTS(SELECT 1 FROM information_schema.CHECK_CONSTRAINTS WHERE \
                 CONSTRAINT_SCHEMA={schema} AND TABLE_NAME={name} AND CONSTRAINT_NAME={column} AND \
                 CHECK_CLAUSE LIKE 'json_valid(%'), 'json', COLUMN_TYPE)"
            ),
        };
        format!(
            "(SELECT {shown} FROM information_schema.COLUMNS WHERE TABLE_SCHEMA={schema} AND TABLE_NAME={name} AND \
             COLUMN_NAME={column})"
        )
    });
    format!("SELECT {}", types.collect::<Vec<_>>().join(", "))
}

impl Redefinition {
    /// Looks whether the values of a column that has this type on the replica are converted alike.
    ///
    /// # Errors
    /// Why it is refused.
    pub fn check(&self, present: Option<&str>) -> Result<(), String> {
        let column = &self.column;
        let Some(present) = present else { return Err(format!("the replica's table has no column '{column}'")) };
        // Behind the type MariaDB may say more, in a comment.
        let plain = present.split(" /*").next().unwrap_or(present);
        let family = tokens(SqlText { sql: plain.as_bytes(), reading: &Reading::plain() })
            .ok()
            .and_then(|tokens| Family::of(&tokens));
        if family.is_some_and(|family| converts_alike(&family, &self.family)) {
            return Ok(());
        }
        Err(format!(
            "the vendors may make other values of column '{column}', which is {plain} on the replica, when it becomes {}: on the \
             source, add a column of the new type, fill it with UPDATE and drop the old one; or alter the replica's table by \
             hand, and leave this out (--skip)",
            self.type_name
        ))
    }
}

/// True if both vendors make the same of every value.
fn converts_alike(from: &Family, to: &Family) -> bool {
    use Family::{Binary, Bit, Date, Decimal, Enum, Integer, Moment, Real, Set, Text, Time, UnsignedBigint, Year};
    match (from, to) {
        (Time(from), Time(to)) | (Moment(from), Moment(to)) => from <= to,
        (Integer | UnsignedBigint, Integer | UnsignedBigint | Decimal | Real | Text | Binary)
        | (Decimal, Integer | Real | Text)
        | (Real, Decimal)
        | (Bit, Integer | UnsignedBigint)
        | (Year, Integer | UnsignedBigint | Decimal | Text)
        | (Date, Moment(_))
        | (Moment(0), Date)
        | (Date | Time(_) | Moment(_), Text)
        | (Text, Binary | Enum)
        | (Enum | Set, Text | Binary) => true,
        _ => from == to,
    }
}

/// Where the first clause of an ALTER TABLE begins.
fn behind_table(tokens: &[Token<'_>]) -> Option<usize> {
    let mut at = 0;
    let mut accept = |words: &[&str]| {
        let is_there = tokens.get(at).is_some_and(|token| words.iter().any(|word| token.is(word)));
        at += usize::from(is_there);
        is_there
    };
    if !accept(&["ALTER"]) {
        return None;
    }
    while accept(&["ONLINE", "IGNORE"]) {}
    if !accept(&["TABLE"]) {
        return None;
    }
    while accept(&["IF", "EXISTS"]) {}
    let is_qualified = tokens.get(at + 1).is_some_and(|token| token.is_mark(b'.'));
    at += if is_qualified { 3 } else { 1 };
    if tokens.get(at)?.is("NOWAIT") {
        at += 1;
    } else if tokens.get(at)?.is("WAIT") {
        at += 2;
    }
    Some(at)
}

fn redefined(clause: &[Token<'_>]) -> Option<Redefinition> {
    let (verb, mut rest) = clause.split_first()?;
    let is_change = verb.is("CHANGE");
    if !is_change && !verb.is("MODIFY") {
        return None;
    }
    while let Some((first, after)) = rest.split_first()
        && ["COLUMN", "IF", "EXISTS"].iter().any(|word| first.is(word))
    {
        rest = after;
    }
    let (column, rest) = rest.split_first()?;
    // MODIFY (a INT, b INT)
    if column.is_mark(b'(') {
        return None;
    }
    let definition = if is_change { rest.get(1..)? } else { rest };
    let type_name = spelled(definition.first()?).to_ascii_uppercase();
    let family = Family::of(definition).unwrap_or(Family::Other(type_name.clone()));
    Some(Redefinition { column: spelled(column), family, type_name })
}

impl Family {
    /// Of the type that these begin with. What follows a type's name may change it.
    fn of(definition: &[Token<'_>]) -> Option<Family> {
        let (name, rest) = definition.split_first()?;
        if name.kind != TokenKind::Word {
            return None;
        }
        let has = |word: &str| rest.iter().any(|token| token.is(word));
        let length = match rest {
            [open, length, ..] if open.is_mark(b'(') && length.is_number() => spelled(length).parse().ok(),
            _ => None,
        };
        let is_of_bytes = || {
            let is_set = |pair: &[Token<'_>]| (pair[0].is("SET") || pair[0].is("CHARSET")) && pair[1].is("BINARY");
            rest.windows(2).any(is_set) || rest.first().is_some_and(|token| token.is("VARBINARY")) || has("BYTE")
        };
        let name = spelled(name).to_ascii_uppercase();
        Some(match name.as_str() {
            "BIGINT" | "INT8" if has("UNSIGNED") || has("ZEROFILL") => Family::UnsignedBigint,
            "SERIAL" => Family::UnsignedBigint,
            "BOOL" | "BOOLEAN" | "TINYINT" | "SMALLINT" | "MEDIUMINT" | "MIDDLEINT" | "INT" | "INTEGER" | "BIGINT"
            | "INT1" | "INT2" | "INT3" | "INT4" | "INT8" => Family::Integer,
            "DECIMAL" | "DEC" | "NUMERIC" | "FIXED" => Family::Decimal,
            "FLOAT" | "FLOAT4" | "FLOAT8" | "DOUBLE" | "REAL" => Family::Real,
            "BIT" => Family::Bit,
            "YEAR" => Family::Year,
            "DATE" => Family::Date,
            "TIME" => Family::Time(length.unwrap_or(0)),
            "DATETIME" | "TIMESTAMP" => Family::Moment(length.unwrap_or(0)),
            "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" => Family::Binary,
            "CHAR" | "CHARACTER" | "NCHAR" | "NATIONAL" | "VARCHAR" | "VARCHARACTER" | "NVARCHAR" | "LONG"
            | "TINYTEXT" | "TEXT" | "MEDIUMTEXT" | "LONGTEXT" => {
                if is_of_bytes() {
                    Family::Binary
                } else {
                    Family::Text
                }
            }
            "ENUM" => Family::Enum,
            "SET" => Family::Set,
            "JSON" => Family::Json,
            "GEOMETRY" | "POINT" | "LINESTRING" | "POLYGON" | "MULTIPOINT" | "MULTILINESTRING" | "MULTIPOLYGON"
            | "GEOMETRYCOLLECTION" | "GEOMCOLLECTION" => Family::Geometry,
            _ => Family::Other(name),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(sql: &str) -> Vec<(String, Family)> {
        let redefinitions = redefinitions(SqlText { sql: sql.as_bytes(), reading: &Reading::plain() }).unwrap();
        redefinitions.into_iter().map(|redefinition| (redefinition.column, redefinition.family)).collect()
    }

    #[test]
    fn redefinitions_find_all_changed_columns() {
        for sql in [
            "ALTER TABLE t ADD modify INT, ADD COLUMN `change` TEXT, DROP COLUMN a, RENAME COLUMN b TO c",
            "ALTER TABLE modify ADD a INT",
            "CREATE TABLE t (modify INT)",
            "ALTER DATABASE d CHARACTER SET latin1",
            "ALTER TABLE t COMMENT 'x, MODIFY a INT'",
            "ALTER TABLE t",
            "",
        ] {
            assert_eq!(found(sql), [], "{sql}");
        }
        let expected = [("a".to_owned(), Family::Integer)];
        for sql in [
            "ALTER TABLE t MODIFY a INT",
            "alter online table if exists `d`.`t` wait 5 modify column if exists `a` int(11) NOT NULL FIRST",
            "ALTER TABLE t ADD b TEXT, CHANGE a c INTEGER UNSIGNED",
            "ALTER IGNORE TABLE modify NOWAIT CHANGE COLUMN a a TINYINT, ADD INDEX (a, b)",
        ] {
            assert_eq!(found(sql), expected, "{sql}");
        }
        let several = "ALTER TABLE t MODIFY a DATETIME(3), ADD x ENUM('MODIFY x INT', 'b'), MODIFY `b``c` VARCHAR(5) CHARACTER SET binary";
        assert_eq!(found(several), [("a".to_owned(), Family::Moment(3)), ("b`c".to_owned(), Family::Binary)]);
    }

    #[test]
    fn redefinitions_read_quotes_by_sql_mode() {
        let sql = br#"ALTER TABLE t ADD a TEXT DEFAULT '\', MODIFY "b" INT, ADD c INT COMMENT ''"#;
        let ansi = Reading { plain_backslashes: true, ansi_quotes: true, ..Reading::plain() };
        let redefinitions = redefinitions(SqlText { sql, reading: &ansi }).unwrap();
        assert_eq!((redefinitions.len(), redefinitions[0].column.as_str()), (1, "b"));
    }

    #[test]
    fn conversions_that_are_alike_are_passed_on() {
        for (present, definition) in [
            ("int(11)", "BIGINT"),
            ("bigint(20) unsigned", "VARCHAR(20)"),
            ("int(8) unsigned zerofill", "DECIMAL(20,2)"),
            ("decimal(10,2)", "INT"),
            ("float", "DOUBLE PRECISION"),
            ("double(10,2)", "DECIMAL(10,2)"),
            ("varchar(8) /*M!100301 COMPRESSED*/", "TEXT"),
            ("char(5)", "VARCHAR(5) CHARACTER SET latin1"),
            ("datetime /* mariadb-5.3 */", "DATETIME(6)"),
            ("timestamp(3)", "DATETIME(3)"),
            ("date", "TIMESTAMP NULL"),
            ("datetime", "DATE"),
            ("enum('a','b')", "ENUM('b','a','c')"),
            ("set('a','b')", "TEXT"),
            ("varchar(5)", "VARBINARY(20)"),
            ("json", "JSON"),
            ("point", "GEOMETRY"),
            ("vector(3)", "VECTOR(4)"),
        ] {
            let redefinition = redefinition(definition);
            assert_eq!(redefinition.check(Some(present)), Ok(()), "{present} to {definition}");
        }
    }

    #[test]
    fn conversions_that_differ_are_refused() {
        for (present, definition) in [
            ("varchar(5)", "INT"),
            ("text", "DATETIME"),
            ("double", "TEXT"),
            ("float", "INT"),
            ("decimal(30,0)", "BIGINT UNSIGNED"),
            ("decimal(30,0)", "SERIAL"),
            ("datetime(6)", "DATETIME"),
            ("datetime(6)", "TIMESTAMP(3)"),
            ("datetime(1)", "DATE"),
            ("time(6)", "TIME(5)"),
            ("int(11)", "DATE"),
            ("int(11)", "ENUM('a')"),
            ("int(11)", "SET('a')"),
            ("varbinary(5)", "VARCHAR(5)"),
            ("bit(8)", "VARCHAR(8)"),
            ("json", "TEXT"),
            ("longtext", "JSON"),
            ("uuid", "CHAR(36)"),
            ("char(36)", "UUID"),
        ] {
            assert!(redefinition(definition).check(Some(present)).is_err(), "{present} to {definition}");
        }
        assert!(redefinition("INT").check(None).is_err());
    }

    fn redefinition(definition: &str) -> Redefinition {
        let sql = format!("ALTER TABLE t MODIFY c {definition}");
        redefinitions(SqlText { sql: sql.as_bytes(), reading: &Reading::plain() }).unwrap().remove(0)
    }
}
