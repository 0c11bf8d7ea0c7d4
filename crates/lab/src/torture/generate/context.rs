//! A session's settings, its transactions (also XA), its temporary tables, and LOAD DATA.

use super::super::feature::Feature;
use super::super::step::{Action, FILES, Step};
use super::super::world::Column;
use super::{Generator, Xa, values};
use crate::binlog_format::Format;
use crate::sql::quote;

/// Limit of transactions that stay prepared: each blocks its tables for others.
const PREPARED_MAX: usize = 2;

impl Generator {
    pub(super) fn setting(&mut self) -> Option<String> {
        let text = values::text(&mut self.random, "utf8mb4", 10);
        Some(match self.random.below(24) {
            // Another session may drop it.
            0 if self.world.schemas.iter().any(|schema| schema == "passing") => "USE `passing`".to_owned(),
            0..=2 => format!("USE {}", quote(&self.schema()?)),
            3 | 4 => format!(
                "SET @i = {}, @s = {}, @d = {}.5, @r = {}e-3",
                self.random.below(50),
                values::quoted(&text),
                self.random.below(9),
                self.random.below(99)
            ),
            5 => format!("SET sql_mode = '{}'", self.random.word(&SQL_MODES)),
            6 => format!("SET time_zone = '{}'", self.random.word(&["+00:00", "+05:30", "-11:00", "SYSTEM"])),
            7 => format!(
                "SET NAMES {}",
                self.random.word(&["utf8mb4", "utf8mb4", "latin1", "utf8mb3", "utf8mb4 COLLATE utf8mb4_bin", "binary"])
            ),
            // One of them is always on.
            8 => format!("SET foreign_key_checks = {}, unique_checks = 1", self.mostly_one()),
            9 => format!("SET unique_checks = {}, foreign_key_checks = 1", self.mostly_one()),
            10 => format!(
                "SET auto_increment_increment = {}, auto_increment_offset = {}",
                1 + self.random.below(4),
                1 + self.random.below(3)
            ),
            11 => format!("SET insert_id = {}", 1 + self.random.below(200)),
            12 => format!("SET last_insert_id = {}", self.random.below(50)),
            13 => format!("SET lc_time_names = '{}'", self.random.word(&["en_US", "de_DE", "ja_JP", "ru_RU"])),
            14 => format!("SET sql_auto_is_null = {}", self.random.below(2)),
            15 => format!("SET sql_select_limit = {}", self.random.word(&["DEFAULT", "DEFAULT", "3"])),
            16 => format!(
                "SET timestamp = {}",
                self.random.word(&["DEFAULT", "DEFAULT", "DEFAULT", "1234567890.123456", "86400"])
            ),
            17 => format!("SET rand_seed1 = {}, rand_seed2 = {}", self.random.below(9999), self.random.below(9999)),
            18 => format!(
                "SET collation_connection = {}",
                self.random.word(&["utf8mb4_general_ci", "utf8mb4_bin", "latin1_german1_ci"])
            ),
            19 => "SET check_constraint_checks = 1".to_owned(),
            20 => format!("SET character_set_client = {}", self.random.word(&["utf8mb4", "latin1", "utf8mb4"])),
            21 => format!("SET explicit_defaults_for_timestamp = {}", self.mostly_one()),
            22 if self.settings.format == Format::Mixed => {
                format!("SET binlog_format = {}", self.random.word(&["MIXED", "ROW", "MIXED"]))
            }
            _ => format!("SET tx_isolation = '{}'", self.random.word(&["REPEATABLE-READ", "SERIALIZABLE"])),
        })
    }

    fn mostly_one(&mut self) -> u8 {
        u8::from(self.random.chance(60))
    }

    pub(super) fn domain(&mut self) -> Option<String> {
        Some(format!("SET gtid_domain_id = {}", self.random.below(3)))
    }

    /// BEGIN, or the end of the open transaction.
    pub(super) fn transaction(&mut self, session: usize) -> Option<String> {
        if !self.sessions[session].in_transaction {
            return Some(
                self.random
                    .word(&[
                        "BEGIN",
                        "START TRANSACTION",
                        "BEGIN",
                        "START TRANSACTION WITH CONSISTENT SNAPSHOT",
                        "SET autocommit = 0",
                    ])
                    .to_owned(),
            );
        }
        Some(
            self.random
                .word(&[
                    "COMMIT",
                    "COMMIT",
                    "COMMIT",
                    "COMMIT",
                    "COMMIT AND CHAIN",
                    "ROLLBACK",
                    "SET autocommit = 1",
                    "SET autocommit = 1",
                ])
                .to_owned(),
        )
    }

    pub(super) fn savepoint(&mut self) -> Option<String> {
        let name = self.random.word(&["a", "b", "`c d`"]);
        let verb =
            self.random.word(&["SAVEPOINT", "SAVEPOINT", "ROLLBACK TO", "ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT"]);
        Some(format!("{verb} {name}"))
    }

    /// The next XA statement of a session in an XA transaction.
    pub(super) fn xa_continues(&mut self, session: usize) -> Option<String> {
        match self.sessions[session].xa.clone()? {
            Xa::Active(id) => Some(format!("XA END {id}")),
            Xa::Idle(id) => Some(match self.random.below(6) {
                0 | 1 => format!("XA COMMIT {id} ONE PHASE"),
                2 => format!("XA ROLLBACK {id}"),
                _ => format!("XA PREPARE {id}"),
            }),
            Xa::Prepared(id) => {
                let verb = self.random.word(&["XA COMMIT", "XA COMMIT", "XA ROLLBACK"]);
                Some(format!("{verb} {id}"))
            }
        }
    }

    /// Begins an XA transaction, or ends one that is prepared and whose connection has ended.
    pub(super) fn xa(&mut self) -> Option<String> {
        let abandoned: Vec<String> = self.abandoned.clone();
        if let Some(id) = self.random.pick(&abandoned)
            && (abandoned.len() >= PREPARED_MAX || self.random.chance(40))
        {
            let verb = self.random.word(&["XA COMMIT", "XA COMMIT", "XA ROLLBACK"]);
            return Some(format!("{verb} {id}"));
        }
        let number = self.counter();
        let id = match self.random.below(3) {
            0 => format!("'x{number}'"),
            1 => format!("'x{number}', 'b'"),
            _ if self.loses_formats() => format!("'x''{number}', x'00ff'"),
            _ => format!("'x''{number}', x'00ff', 7"),
        };
        Some(format!("XA START {id}"))
    }

    /// A statement on the session's temporary table.
    pub(super) fn temporary(&mut self, session: usize) -> Option<String> {
        if !self.sessions[session].has_temporary {
            if self.sessions[session].in_transaction {
                return None;
            }
            let engine = if self.has(Feature::Engines) && !self.logs_statements() {
                self.random.word(&["", " ENGINE=MyISAM", " ENGINE=MEMORY"])
            } else {
                ""
            };
            return Some(match self.random.below(3) {
                0 => format!("CREATE TEMPORARY TABLE {}{engine} SELECT 1 AS id, 'x' AS v", self.temporary_name()?),
                _ => format!(
                    "CREATE TEMPORARY TABLE {} (id INT PRIMARY KEY, v VARCHAR(20)){engine}",
                    self.temporary_name()?
                ),
            });
        }
        let name = self.temporary_name()?;
        let number = self.random.below(40);
        Some(match self.random.below(9) {
            0 => format!("DROP TEMPORARY TABLE {name}"),
            1 => format!("ALTER TABLE {name} ADD COLUMN IF NOT EXISTS w INT"),
            2 | 3 => {
                let table = self.table()?;
                format!("INSERT INTO {} (n) SELECT id FROM {name} ORDER BY id", table.quoted())
            }
            4 => format!("UPDATE {name} SET v = 'y' WHERE id < {number}"),
            5 => {
                let table = self.table()?;
                format!("UPDATE {} SET n = 3 WHERE n IN (SELECT id FROM {name})", table.quoted())
            }
            _ => format!("INSERT INTO {name} (id, v) VALUES ({number}, 'z')"),
        })
    }

    fn temporary_name(&self) -> Option<String> {
        Some(format!("{}.`tmp`", quote(self.world.schemas.first()?)))
    }

    /// LOAD DATA, with its file.
    pub(super) fn load(&mut self, session: usize) -> Option<Step> {
        let table = self.table()?;
        let columns: Vec<&Column> = table.writable().into_iter().filter(|column| loadable(column)).collect();
        if columns.is_empty() {
            return None;
        }
        let is_plain = self.sessions[session].language.has_plain_backslash && self.logs_statements();
        let with_commas = is_plain || self.random.chance(40);
        let header = usize::from(self.random.chance(20));
        let mut content = "header\n".repeat(header);
        for _ in 0..1 + self.random.below(12) {
            let fields: Vec<String> = columns.iter().map(|column| self.field(column)).collect();
            content += &fields.join(if with_commas { "," } else { "\t" });
            content.push('\n');
        }
        let file = format!("load-{}.txt", self.counter());
        let local = self.random.word(&["", "LOCAL "]);
        // If LOAD DATA fails half-way, a table that cannot roll back keeps the first rows.
        if self.logs_statements() && table.engine != "InnoDB" {
            return None;
        }
        let action = self.random.word(&["", "REPLACE ", "IGNORE "]);
        let action = self.replacing(action, &table);
        let terminated = match with_commas {
            true if is_plain => " FIELDS TERMINATED BY ',' ESCAPED BY '' LINES TERMINATED BY ';'",
            true => " FIELDS TERMINATED BY ',' OPTIONALLY ENCLOSED BY '\"'",
            false => "",
        };
        if is_plain {
            content = content.replace('\n', ";");
        }
        let ignored = if header > 0 { " IGNORE 1 LINES" } else { "" };
        let names: Vec<String> = columns.iter().map(|column| quote(&column.name)).collect();
        let (mut list, mut set) = (names.clone(), String::new());
        if self.random.chance(25) && list.len() > 1 {
            let last = list.len() - 1;
            set = format!(" SET {} = @field", list[last]);
            list[last] = "@field".to_owned();
        }
        let sql = format!(
            "LOAD DATA {local}INFILE '{FILES}/{file}' {action}INTO TABLE {} CHARACTER SET utf8mb4{terminated}{ignored} ({}){set}",
            table.quoted(),
            list.join(", ")
        );
        Some(Step { session, action: Action::Load { sql, file, content } })
    }

    fn field(&mut self, column: &Column) -> String {
        if column.is_nullable && self.random.chance(10) {
            return "\\N".to_owned();
        }
        match column.data_type.as_str() {
            "varchar" | "text" | "char" => {
                let text = values::text(&mut self.random, &column.charset, 5);
                text.replace(['\\', '\t', ',', '"', '\n', ';'], "_")
            }
            _ => self.random.below(50).to_string(),
        }
    }
}

const SQL_MODES: [&str; 10] = [
    "STRICT_TRANS_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION",
    "STRICT_TRANS_TABLES",
    "",
    "",
    "ANSI",
    "NO_BACKSLASH_ESCAPES",
    "TRADITIONAL",
    "NO_AUTO_VALUE_ON_ZERO,PIPES_AS_CONCAT",
    "PAD_CHAR_TO_FULL_LENGTH,ALLOW_INVALID_DATES",
    "EMPTY_STRING_IS_NULL,TIME_ROUND_FRACTIONAL",
];

/// Types whose values a data file can contain without conversion.
fn loadable(column: &Column) -> bool {
    let kind = column.data_type.as_str();
    kind.ends_with("int") || matches!(kind, "varchar" | "text" | "char" | "decimal" | "double" | "float")
}
