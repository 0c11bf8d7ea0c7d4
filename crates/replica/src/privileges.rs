//! The privileges of the applier's account on the replica, as far as SHOW GRANTS tells.

use spate_schedule::TableName;

use crate::choice::{DialectChoice, WantedDialect};
use crate::error::{Error, Result};
use spate_connection::{Connection, ServerVersion, Vendor};

/// Privileges that Spate needs for its own tables.
const OWN_TABLES: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

/// What shows every table with its columns, keys and foreign keys, and what changes as statements need.
const ALL_TABLES: [&str; 4] = OWN_TABLES;

/// One line of SHOW GRANTS: privileges on one scope.
#[derive(Debug, PartialEq, Eq)]
struct Grant {
    privileges: Vec<String>,
    /// `*.*`, `schema.*` or `schema.table`, without quotes.
    scope: String,
}

/// Something that an account lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// The action that is refused.
    pub action: &'static str,
    /// The privilege, as SHOW GRANTS writes it.
    pub privilege: String,
    /// The statement that gives it, without the account.
    pub grant: &'static str,
}

/// The privileges of an account, as SHOW GRANTS tells.
#[derive(Debug)]
pub struct Rights {
    grants: Vec<Grant>,
    version: ServerVersion,
}

impl Rights {
    /// Asks the server, for the account of this connection and its active roles.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn read(connection: &mut Connection) -> Result<Rights> {
        Ok(Rights { grants: read(connection)?, version: connection.server_version().clone() })
    }

    /// True if it has this privilege for everything.
    pub fn has(&self, privilege: &str) -> bool {
        may(&self.grants, privilege, &["*.*"])
    }

    fn has_one_of(&self, privileges: &[&str]) -> bool {
        privileges.iter().any(|privilege| self.has(privilege))
    }

    fn is_mysql(&self) -> bool {
        self.version.vendor == Vendor::MySql
    }

    /// Which dialect row changes can be written in.
    pub fn choice(&self, wanted: WantedDialect, peer: String) -> DialectChoice {
        let may_replay = match self.is_mysql() {
            true => self.has_one_of(&["BINLOG_ADMIN", "REPLICATION_APPLIER", "SUPER"]),
            false => self.has_one_of(&["BINLOG REPLAY", "SUPER"]),
        };
        let sees_triggers = self.has("TRIGGER");
        DialectChoice { wanted, may_replay, sees_triggers, replica: self.version.vendor, peer }
    }

    /// Privileges that every run needs on the replica and that the account lacks.
    pub fn missing_on_replica(&self, is_read_only: bool) -> Vec<Missing> {
        let mut missing = Vec::new();
        let mut lacks = |action, privilege: &str, grant| {
            missing.push(Missing { action, privilege: privilege.to_owned(), grant });
        };
        if self.is_mysql() && !self.has_one_of(&["SESSION_VARIABLES_ADMIN", "SYSTEM_VARIABLES_ADMIN", "SUPER"]) {
            let action = "set up sessions as statements need them";
            lacks(action, "SESSION_VARIABLES_ADMIN", "GRANT SESSION_VARIABLES_ADMIN ON *.*");
        }
        if let Some(wanted) = ALL_TABLES.into_iter().find(|wanted| !self.has(wanted)) {
            // Without seeing a foreign key, Spate would fold what its cascade depends on.
            let action = "show all tables with their foreign keys, and change them";
            lacks(action, &format!("{wanted} ON *.*"), "GRANT SELECT, INSERT, UPDATE, DELETE ON *.*");
        }
        let in_own = |wanted: &&str| may(&self.grants, wanted, &["*.*", "spate.*"]);
        if let Some(wanted) = OWN_TABLES.iter().find(|wanted| !in_own(wanted)) {
            lacks("keep Spate's own tables", &format!("{wanted} ON spate.*"), "GRANT ALL PRIVILEGES ON spate.*");
        }
        let action = "be written to while it is read_only";
        if is_read_only && self.is_mysql() && !self.has_one_of(&["CONNECTION_ADMIN", "SUPER"]) {
            lacks(action, "CONNECTION_ADMIN", "GRANT CONNECTION_ADMIN ON *.*");
        }
        // Until 10.11, SUPER was enough.
        let is_super_enough = !self.version.is_at_least(10, 11) && self.has("SUPER");
        if is_read_only && !self.is_mysql() && !self.has("READ_ONLY ADMIN") && !is_super_enough {
            lacks(action, "READ_ONLY ADMIN", "GRANT READ_ONLY ADMIN ON *.*");
        }
        missing
    }
}

/// Checks that the account has the privileges that every run needs; returns which dialects it may use.
///
/// # Errors
/// [`Error::Privilege`] names the GRANT that is missing; any error of the connection.
pub fn check(connection: &mut Connection, wanted: WantedDialect) -> Result<DialectChoice> {
    let rights = Rights::read(connection)?;
    let peer = connection.peer().to_string();
    let choice = rights.choice(wanted, peer.clone());
    choice.check()?;
    let is_read_only = connection.query("SELECT @@global.read_only")?.single_text().as_deref() == Some("1");
    if let Some(missing) = rights.missing_on_replica(is_read_only).into_iter().next() {
        return Err(Error::Privilege {
            peer,
            action: missing.action,
            message: format!("the account lacks {}, says SHOW GRANTS", missing.privilege),
            grant: format!("{} TO <the user of Spate>", missing.grant),
        });
    }
    let is_mysql = connection.server_version().vendor == Vendor::MySql;
    if is_mysql && connection.query("SELECT @@global.super_read_only")?.single_text().as_deref() == Some("1") {
        return Err(Error::Unsuitable { peer, why: SUPER_READ_ONLY.to_owned() });
    }
    Ok(choice)
}

/// MySQL lets administrators write to a server that is read-only, but nobody at all to one that is super-read-only.
pub const SUPER_READ_ONLY: &str = "it is super_read_only, which keeps everybody but its own replication from writing: \
    SET GLOBAL super_read_only=OFF there, and leave read_only=ON";

/// True if the account would see a trigger of the table, if there were one.
///
/// # Errors
/// Any error of the connection.
pub fn may_see_triggers(connection: &mut Connection, table: &TableName) -> Result<bool> {
    let grants = read(connection)?;
    Ok(may(&grants, "TRIGGER", &["*.*", &format!("{}.*", table.schema), &format!("{}.{}", table.schema, table.table)]))
}

fn read(connection: &mut Connection) -> Result<Vec<Grant>> {
    let sql = show_grants(connection)?;
    let rows = connection.query(&sql)?;
    Ok((0..rows.rows.len()).filter_map(|row| parse(&rows.text_at(row, 0)?)).collect())
}

/// MySQL shows the privileges of roles only if the roles are named.
fn show_grants(connection: &mut Connection) -> Result<String> {
    let mut sql = "SHOW GRANTS".to_owned();
    if connection.server_version().vendor == Vendor::MySql {
        let roles = connection.query("SELECT CURRENT_ROLE()")?.single_text();
        if let Some(roles) = roles.filter(|roles| roles != "NONE") {
            sql.push_str(&format!(" FOR CURRENT_USER() USING {roles}"));
        }
    }
    Ok(sql)
}

fn may(grants: &[Grant], wanted: &str, scopes: &[&str]) -> bool {
    let has =
        |grant: &Grant| grant.privileges.iter().any(|privilege| privilege == wanted || privilege == "ALL PRIVILEGES");
    grants.iter().any(|grant| scopes.contains(&grant.scope.as_str()) && has(grant))
}

/// `GRANT SELECT, INSERT ON `shop`.* TO …`; `None` for the membership in a role and the like.
fn parse(line: &str) -> Option<Grant> {
    let (privileges, rest) = line.strip_prefix("GRANT ")?.split_once(" ON ")?;
    let (scope, _) = rest.split_once(" TO ")?;
    // Privileges on single columns hold commas of their own, and are never enough.
    // MySQL writes no space after the commas between its dynamic privileges.
    let privileges = privileges.split(',').map(|privilege| privilege.trim().to_owned()).collect();
    // In the name of a schema, a backslash keeps _ and % from being wildcards.
    Some(Grant { privileges, scope: scope.replace(['`', '\\'], "") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_that_are_missing_are_named() {
        let lines = [
            "GRANT SELECT, BINLOG REPLAY ON *.* TO `s`@`%` IDENTIFIED BY PASSWORD '*00'",
            "GRANT ALL PRIVILEGES ON `spate`.* TO `s`@`%`",
            "GRANT TRIGGER, SELECT (`a`, `b`) ON `a\\_b`.`t` TO `s`@`%`",
            "GRANT `r` TO `s`@`%`",
            "GRANT BINLOG_ADMIN,SET_ANY_DEFINER ON *.* TO `s`@`%` WITH GRANT OPTION",
        ];
        let grants: Vec<Grant> = lines.into_iter().filter_map(parse).collect();
        assert!(may(&grants, "BINLOG REPLAY", &["*.*"]) && may(&grants, "DELETE", &["*.*", "spate.*"]));
        assert!(!may(&grants, "DELETE", &["*.*"]) && !may(&grants, "SUPER", &["*.*"]));
        assert!(may(&grants, "BINLOG_ADMIN", &["*.*"]) && may(&grants, "SET_ANY_DEFINER", &["*.*"]));
        assert!(may(&grants, "TRIGGER", &["a_b.t"]) && !may(&grants, "TRIGGER", &["a_b.*"]));
    }
}
