//! Translates statements for MariaDB into words that MySQL understands too. Statements without a translation stay as
//! they are: the source refuses them, which is no fault.

/// MariaDB's words, and MySQL's words for the same.
const WORDS: [(&str, &str); 27] = [
    ("CREATE OR REPLACE TABLE", "CREATE TABLE IF NOT EXISTS"),
    ("CREATE OR REPLACE TRIGGER", "CREATE TRIGGER IF NOT EXISTS"),
    ("CREATE OR REPLACE PROCEDURE", "CREATE PROCEDURE IF NOT EXISTS"),
    ("CREATE OR REPLACE FUNCTION", "CREATE FUNCTION IF NOT EXISTS"),
    ("CREATE OR REPLACE USER", "CREATE USER"),
    ("CREATE OR REPLACE INDEX", "CREATE INDEX"),
    ("ALTER ONLINE TABLE", "ALTER TABLE"),
    ("ADD COLUMN IF NOT EXISTS", "ADD COLUMN"),
    ("INDEX IF NOT EXISTS", "INDEX"),
    ("DROP CONSTRAINT IF EXISTS", "DROP CONSTRAINT"),
    ("ALGORITHM=NOCOPY", "ALGORITHM=INPLACE"),
    (" PERSISTENT", " STORED"),
    (" RETURNING 1", ""),
    (" UUID", " BINARY(16)"),
    (" INET6", " VARBINARY(16)"),
    (" INET4", " VARBINARY(4)"),
    ("ENGINE=Aria", "ENGINE=MyISAM"),
    ("IDENTIFIED VIA mysql_native_password USING PASSWORD('x')", "IDENTIFIED BY 'x'"),
    ("= PASSWORD('other')", "= 'other'"),
    ("SET tx_isolation", "SET transaction_isolation"),
    ("SET check_constraint_checks = 1", "SET sql_safe_updates = 0"),
    ("NO_AUTO_CREATE_USER,", ""),
    ("EMPTY_STRING_IS_NULL,TIME_ROUND_FRACTIONAL", "TIME_TRUNCATE_FRACTIONAL"),
    // MySQL's transactions have tags where MariaDB's have domains.
    ("SET gtid_domain_id = 0", "SET gtid_next = 'AUTOMATIC'"),
    ("SET gtid_domain_id = 1", "SET gtid_next = 'AUTOMATIC:one'"),
    ("SET gtid_domain_id = 2", "SET gtid_next = 'AUTOMATIC:the_other'"),
    ("sql_auto_is_null = 1", "sql_auto_is_null = 0"),
];

/// The statement for MySQL.
pub(super) fn translate(sql: &str) -> String {
    let mut sql = sql.to_owned();
    for (word, other) in WORDS {
        if sql.contains(word) {
            sql = sql.replace(word, other);
        }
    }
    if sql.starts_with("SET DEFAULT ROLE") {
        sql = sql.replace(" FOR ", " TO ");
    }
    without_sequence_tables(&sql)
}

/// As [`translate`], but keeps OPTIMIZE and ANALYZE out of the binlog. MySQL logs them even if they could not lock the
/// table, and a replica then waits for the locks of a prepared XA transaction.
pub(super) fn translate_beside_xa(sql: &str) -> String {
    let sql = translate(sql);
    let verb = ["OPTIMIZE", "ANALYZE"].into_iter().find(|verb| sql.starts_with(&format!("{verb} TABLE")));
    match verb {
        Some(verb) => sql.replacen(verb, &format!("{verb} NO_WRITE_TO_BINLOG"), 1),
        None => sql,
    }
}

/// Turns `FROM seq_1_to_9` into a recursive query.
fn without_sequence_tables(sql: &str) -> String {
    const BEGIN: &str = "FROM seq_";
    let Some((before, rest)) = sql.split_once(BEGIN) else { return sql.to_owned() };
    let end = rest.find(|character: char| character != '_' && !character.is_ascii_alphanumeric()).unwrap_or(rest.len());
    let Some((first, last)) = rest[..end].split_once("_to_") else { return sql.to_owned() };
    format!(
        "{before}FROM (WITH RECURSIVE numbers (seq) AS (SELECT {first} UNION ALL SELECT seq + 1 FROM numbers WHERE seq < {last}) \
         SELECT seq FROM numbers) AS numbers{}",
        &rest[end..]
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mariadb_words_are_replaced_and_others_stay() {
        for (maria, mysql) in [
            ("CREATE OR REPLACE TABLE a (b UUID NOT NULL)", "CREATE TABLE IF NOT EXISTS a (b BINARY(16) NOT NULL)"),
            ("CREATE OR REPLACE VIEW v AS SELECT 1", "CREATE OR REPLACE VIEW v AS SELECT 1"),
            ("SET DEFAULT ROLE `r1` FOR 'u1'@'%'", "SET DEFAULT ROLE `r1` TO 'u1'@'%'"),
            ("SET gtid_domain_id = 2", "SET gtid_next = 'AUTOMATIC:the_other'"),
            ("UPDATE t SET a = 1", "UPDATE t SET a = 1"),
        ] {
            assert_eq!(translate(maria), mysql);
        }
    }

    #[test]
    fn statement_that_would_wait_for_xa_is_not_logged() {
        assert_eq!(translate_beside_xa("OPTIMIZE TABLE a"), "OPTIMIZE NO_WRITE_TO_BINLOG TABLE a");
        assert_eq!(translate_beside_xa("SELECT 'ANALYZE TABLE'"), "SELECT 'ANALYZE TABLE'");
    }

    #[test]
    fn sequence_table_becomes_recursive_query() {
        assert_eq!(
            translate("INSERT INTO t (a) SELECT seq FROM seq_3_to_25"),
            "INSERT INTO t (a) SELECT seq FROM (WITH RECURSIVE numbers (seq) AS (SELECT 3 UNION ALL SELECT seq + 1 FROM numbers \
             WHERE seq < 25) SELECT seq FROM numbers) AS numbers"
        );
    }
}
