//! Views, triggers, routines, sequences, accounts.

use super::super::feature::Feature;
use super::Generator;
use super::values;
use crate::sql::quote;

impl Generator {
    pub(super) fn view(&mut self) -> Option<String> {
        if !self.world.views.is_empty() && self.random.chance(60) {
            let view = self.random.pick(&self.world.views)?.quoted();
            return Some(match self.random.below(6) {
                0 => format!("DROP VIEW {view}"),
                1 | 2 => format!("INSERT INTO {view} (n) VALUES ({})", self.random.below(30)),
                3 | 4 => format!("UPDATE {view} SET n = {} WHERE n = {}", self.random.below(30), self.random.below(30)),
                _ => format!("DELETE FROM {view} WHERE n = {}", self.random.below(30)),
            });
        }
        let (schema, table) = (self.schema()?, self.table_for_programs()?);
        let condition = values::condition(&mut self.random, &table);
        let check = self.random.word(&["", "", " WITH CHECK OPTION"]);
        let how = self.random.word(&["", "ALGORITHM=MERGE ", "ALGORITHM=TEMPTABLE ", "SQL SECURITY INVOKER "]);
        let verb = self.random.word(&["CREATE OR REPLACE", "CREATE"]);
        let columns = self.random.word(&["*", "n", "n, n + 1 AS m"]);
        Some(format!(
            "{verb} {how}VIEW {}.`v{}` AS SELECT {columns} FROM {} WHERE {condition}{check}",
            quote(&schema),
            self.random.below(3),
            table.quoted()
        ))
    }

    /// A table without a key that triggers and routines write to.
    pub(super) fn log_table(&self) -> Option<String> {
        Some(format!("{}.`log`", quote(self.world.schemas.first()?)))
    }

    pub(super) fn trigger(&mut self) -> Option<String> {
        if !self.world.triggers.is_empty() && self.random.chance(35) {
            return Some(format!("DROP TRIGGER {}", self.random.pick(&self.world.triggers)?.quoted()));
        }
        let table = self.table()?;
        let log = self.log_table()?;
        let event = self.random.word(&["INSERT", "UPDATE", "DELETE"]);
        let time = self.random.word(&["BEFORE", "AFTER"]);
        let row = if event == "DELETE" { "OLD" } else { "NEW" };
        let body = match self.random.below(4) {
            0 if time == "BEFORE" && event != "DELETE" => "SET NEW.n = COALESCE(NEW.n, 0) + 1".to_owned(),
            1 => {
                let other = self.table_for_programs()?;
                format!("UPDATE {} SET n = {row}.n WHERE n = {}", other.quoted(), self.random.below(20))
            }
            2 => format!("BEGIN INSERT INTO {log} VALUES ('{event}', {row}.n); DELETE FROM {log} WHERE n = 5; END"),
            _ => format!("INSERT INTO {log} VALUES ('{time}', {row}.n)"),
        };
        let verb = self.random.word(&["CREATE TRIGGER", "CREATE OR REPLACE TRIGGER"]);
        Some(format!(
            "{verb} {}.`g{}` {time} {event} ON {} FOR EACH ROW {body}",
            quote(&table.schema),
            self.random.below(6),
            table.quoted()
        ))
    }

    pub(super) fn routine(&mut self) -> Option<String> {
        let procedures = self.world.procedures.len();
        match self.random.below(10) {
            0..=4 if procedures > 0 => {
                let procedure = self.random.pick(&self.world.procedures)?.quoted();
                // The server quotes it again when it logs the procedure's statements.
                let text = values::text(&mut self.random, "utf8mb4", 8).replace(['\'', '\\'], "");
                Some(format!("CALL {procedure}({}, {})", self.random.below(30), values::quoted(&text)))
            }
            5 if procedures > 0 => {
                Some(format!("DROP PROCEDURE {}", self.random.pick(&self.world.procedures)?.quoted()))
            }
            6 if !self.world.functions.is_empty() => {
                Some(format!("DROP FUNCTION {}", self.random.pick(&self.world.functions)?.quoted()))
            }
            7 => self.function(),
            _ => self.procedure(),
        }
    }

    fn procedure(&mut self) -> Option<String> {
        let (schema, table, log) = (self.schema()?, self.table_for_programs()?, self.log_table()?);
        let number = self.random.below(4);
        let change = match self.random.below(3) {
            0 => format!("UPDATE {} SET n = p WHERE n < p", table.quoted()),
            1 => format!("INSERT INTO {} (n) VALUES (p), (p + 1)", table.quoted()),
            _ => format!("DELETE FROM {} WHERE n = p", table.quoted()),
        };
        let body = match self.random.below(4) {
            0 => format!("BEGIN DECLARE l INT DEFAULT p + 1; {change}; INSERT INTO {log} VALUES (q, l); END"),
            1 => format!(
                "BEGIN DECLARE EXIT HANDLER FOR SQLEXCEPTION INSERT INTO {log} VALUES ('error', p); {change}; END"
            ),
            2 => format!(
                "BEGIN DECLARE i INT DEFAULT 0; WHILE i < 3 DO INSERT INTO {log} VALUES (q, i); SET i = i + 1; END WHILE; {change}; END"
            ),
            _ => change,
        };
        let how = self.random.word(&["", "SQL SECURITY INVOKER ", "COMMENT 'ä' ", "MODIFIES SQL DATA "]);
        Some(format!("CREATE OR REPLACE PROCEDURE {}.`p{number}`(p INT, q VARCHAR(20)) {how}{body}", quote(&schema)))
    }

    fn function(&mut self) -> Option<String> {
        let (schema, log) = (self.schema()?, self.log_table()?);
        let body = match self.random.below(3) {
            0 => "RETURN a * 2".to_owned(),
            1 => format!("BEGIN INSERT INTO {log} VALUES ('function', a); RETURN a + 1; END"),
            _ => format!("BEGIN UPDATE {log} SET n = a WHERE n = a - 1; RETURN ROW_COUNT(); END"),
        };
        let number = self.random.below(3);
        Some(format!("CREATE OR REPLACE FUNCTION {}.`f{number}`(a INT) RETURNS INT {body}", quote(&schema)))
    }

    /// An event of the scheduler, usually one that is due soon.
    pub(super) fn event(&mut self) -> Option<String> {
        let (schema, log) = (self.schema()?, self.log_table()?);
        let name = format!("{}.`e{}`", quote(&schema), self.random.below(3));
        match self.random.below(10) {
            0 => return Some(format!("DROP EVENT IF EXISTS {name}")),
            1 => {
                return Some(format!(
                    "ALTER EVENT {name} {}",
                    self.random.word(&["DISABLE", "ENABLE", "DISABLE ON SLAVE"])
                ));
            }
            2 => return Some(format!("ALTER EVENT {name} ON SCHEDULE EVERY 2 SECOND COMMENT 'do; ä'")),
            _ => {}
        }
        let change = match self.random.below(3) {
            0 => self.change_by_key()?,
            1 => format!("DELETE FROM {log} WHERE n = {}", self.random.below(20)),
            _ => format!("INSERT INTO {log} VALUES ('event', {})", self.random.below(20)),
        };
        let body = match self.random.below(3) {
            0 => format!("BEGIN {change}; INSERT INTO {log} VALUES ('end', 1); END"),
            _ => change,
        };
        let schedules = ["EVERY 1 SECOND", "EVERY 1 SECOND", "AT CURRENT_TIMESTAMP + INTERVAL 1 SECOND", "EVERY 1 DAY"];
        let (verb, name, schedule) = match self.random.chance(30) {
            true => ("CREATE OR REPLACE EVENT", format!("{}.`e3`", quote(&schema)), "EVERY 1 DAY"),
            false => ("CREATE EVENT IF NOT EXISTS", name, self.random.word(&schedules)),
        };
        let end = self.random.word(&["", "ON COMPLETION PRESERVE ", "ENABLE ", "DISABLE ", "COMMENT 'do ä' "]);
        Some(format!("{verb} {name} ON SCHEDULE {schedule} {end}DO {body}"))
    }

    pub(super) fn sequence(&mut self) -> Option<String> {
        if !self.world.sequences.is_empty() && self.random.chance(75) {
            let sequence = self.random.pick(&self.world.sequences)?.quoted();
            return Some(match self.random.below(12) {
                0..=5 => format!("SELECT NEXTVAL({sequence})"),
                6 => format!("DO NEXT VALUE FOR {sequence}"),
                7 | 8 => format!("SELECT SETVAL({sequence}, {})", 1 + self.random.below(38)),
                9 => format!("ALTER SEQUENCE {sequence} CACHE {}", 2 + self.random.below(9)),
                10 => format!("ALTER SEQUENCE {sequence} RESTART {}", 1 + self.random.below(38)),
                _ => format!("DROP SEQUENCE {sequence}"),
            });
        }
        let schema = quote(&self.schema()?);
        let number = self.random.below(3);
        let options = self.random.word(&[
            "",
            " START WITH 10 INCREMENT BY 5",
            " CACHE 5",
            " NOCACHE",
            " MAXVALUE 40 CYCLE CACHE 3",
        ]);
        let verb =
            self.random.word(&["CREATE SEQUENCE", "CREATE OR REPLACE SEQUENCE", "CREATE SEQUENCE IF NOT EXISTS"]);
        Some(format!("{verb} {schema}.`s{number}`{options}"))
    }

    pub(super) fn account(&mut self) -> Option<String> {
        let users = ["'u1'@'%'", "'u2'@'localhost'", "'ü3'@'10.0.%'", "''@'10.9.8.7'"];
        let roles = ["`r1`", "`r2`"];
        let (user, role) = (users[self.random.below(4)], roles[self.random.below(2)]);
        let schema = quote(&self.schema()?);
        let table = self.table()?.quoted();
        let privilege = self.random.word(&["SELECT", "INSERT, UPDATE", "ALL PRIVILEGES", "DELETE", "CREATE VIEW"]);
        let place = match self.random.below(4) {
            0 => "*.*".to_owned(),
            1 => table.clone(),
            _ => format!("{schema}.*"),
        };
        if self.has(Feature::Clients) && self.random.chance(12) {
            return Some(match self.random.below(2) {
                0 => format!("GRANT {privilege} ON {schema}.* TO CURRENT_USER"),
                _ => "ALTER USER CURRENT_USER PASSWORD EXPIRE NEVER".to_owned(),
            });
        }
        Some(match self.random.below(18) {
            0..=2 => format!("CREATE USER IF NOT EXISTS {user} IDENTIFIED BY 'hush'"),
            3 => format!(
                "CREATE OR REPLACE USER {user} IDENTIFIED VIA mysql_native_password USING PASSWORD('x') REQUIRE SSL"
            ),
            4 => format!("DROP USER IF EXISTS {user}"),
            5 => format!("CREATE ROLE IF NOT EXISTS {role}"),
            6 => format!("DROP ROLE IF EXISTS {role}"),
            7 | 8 => format!("GRANT {privilege} ON {place} TO {user}"),
            9 => format!("GRANT SELECT (n), UPDATE (n) ON {table} TO {user}"),
            10 => format!("GRANT {role} TO {user}"),
            11 => format!("GRANT {privilege} ON {schema}.* TO {role}"),
            12 => format!("REVOKE {privilege} ON {place} FROM {user}"),
            13 => format!("REVOKE ALL PRIVILEGES, GRANT OPTION FROM {user}"),
            14 => format!("SET PASSWORD FOR {user} = PASSWORD('other')"),
            15 => format!("ALTER USER IF EXISTS {user} ACCOUNT LOCK PASSWORD EXPIRE NEVER"),
            16 => format!("RENAME USER {user} TO {}", users[self.random.below(4)]),
            _ => format!("SET DEFAULT ROLE {role} FOR {user}"),
        })
    }
}
