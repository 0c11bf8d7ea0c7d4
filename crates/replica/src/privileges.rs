//! What the applier's account may do on the replica, as far as SHOW GRANTS tells, and what replicated statements make of it.

use spate_schedule::TableName;

use crate::choice::{DialectChoice, WantedDialect};
use crate::error::{Error, Result};
use crate::pipeline::command::Change;
use crate::pipeline::sessions::SessionMaker;
use crate::wire::{Connection, Vendor};

/// What Spate does with its own tables.
const OWN_TABLES: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

/// What shows every table with its columns, keys and foreign keys, and what changes as statements need.
const ALL_TABLES: [&str; 4] = OWN_TABLES;

/// Words at the beginning of statements about accounts.
const ACCOUNT_WORDS: [&str; 6] = ["GRANT", "REVOKE", "USER", "ROLE", "PASSWORD", "PRIVILEGES"];

/// How many words at the beginning of a statement are looked at: enough for CREATE OR REPLACE USER behind a comment.
const WORDS_MAX: usize = 12;

/// One line of SHOW GRANTS: privileges on one scope.
#[derive(Debug, PartialEq, Eq)]
struct Grant {
    privileges: Vec<String>,
    /// `*.*`, `schema.*` or `schema.table`, without quotes.
    scope: String,
}

/// Looks whether the account may do what every run needs; returns what it may beyond that.
///
/// # Errors
/// [`Error::Privilege`] names the GRANT that is missing; any error of the connection.
pub(crate) fn check(connection: &mut Connection, wanted: WantedDialect) -> Result<DialectChoice> {
    let grants = read(connection)?;
    let peer = connection.peer().to_string();
    let everywhere = |wanted: &str| may(&grants, wanted, &["*.*"]);
    let missing = |action: &'static str, wanted: &str, grant: &str| {
        Err(Error::Privilege {
            peer: peer.clone(),
            action,
            message: format!("the account lacks {wanted}, says SHOW GRANTS"),
            grant: format!("{grant} TO <the user of Spate>"),
        })
    };
    let is_mysql = connection.server_version().vendor == Vendor::MySql;
    let replaying: &[&str] = match is_mysql {
        true => &["BINLOG_ADMIN", "REPLICATION_APPLIER", "SUPER"],
        false => &["BINLOG REPLAY", "SUPER"],
    };
    let choice = DialectChoice {
        wanted,
        may_replay: replaying.iter().any(|privilege| everywhere(privilege)),
        sees_triggers: everywhere("TRIGGER"),
        replica: connection.server_version().vendor,
        peer: peer.clone(),
    };
    choice.check()?;
    if is_mysql && !["SESSION_VARIABLES_ADMIN", "SYSTEM_VARIABLES_ADMIN", "SUPER"].into_iter().any(everywhere) {
        let action = "set up sessions as statements need them";
        return missing(action, "SESSION_VARIABLES_ADMIN", "GRANT SESSION_VARIABLES_ADMIN ON *.*");
    }
    if let Some(wanted) = ALL_TABLES.into_iter().find(|wanted| !everywhere(wanted)) {
        // Without seeing a foreign key, Spate would fold what its cascade depends on.
        let action = "show all tables with their foreign keys, and change them";
        return missing(action, &format!("{wanted} ON *.*"), "GRANT SELECT, INSERT, UPDATE, DELETE ON *.*");
    }
    if let Some(wanted) = OWN_TABLES.into_iter().find(|wanted| !may(&grants, wanted, &["*.*", "spate.*"])) {
        return missing("keep Spate's own tables", &format!("{wanted} ON spate.*"), "GRANT ALL PRIVILEGES ON spate.*");
    }
    let is_read_only = connection.query("SELECT @@global.read_only")?.single_text().as_deref() == Some("1");
    if is_mysql {
        check_mysql_read_only(connection, is_read_only, everywhere("CONNECTION_ADMIN") || everywhere("SUPER"))?;
        return Ok(choice);
    }
    // Until 10.11, SUPER was enough.
    let is_super_enough = !connection.server_version().is_at_least(10, 11) && everywhere("SUPER");
    if is_read_only && !everywhere("READ_ONLY ADMIN") && !is_super_enough {
        return missing("be written to while it is read_only", "READ_ONLY ADMIN", "GRANT READ_ONLY ADMIN ON *.*");
    }
    Ok(choice)
}

/// MySQL lets administrators write to a server that is read-only, but nobody at all to one that is super-read-only.
fn check_mysql_read_only(connection: &mut Connection, is_read_only: bool, is_admin: bool) -> Result<()> {
    let peer = connection.peer().to_string();
    if connection.query("SELECT @@global.super_read_only")?.single_text().as_deref() == Some("1") {
        let why = "it is super_read_only, which keeps everybody but its own replication from writing: SET GLOBAL \
                   super_read_only=OFF there, and leave read_only=ON";
        return Err(Error::Unsuitable { peer, why: why.to_owned() });
    }
    if is_read_only && !is_admin {
        return Err(Error::Privilege {
            peer,
            action: "be written to while it is read_only",
            message: "the account lacks CONNECTION_ADMIN, says SHOW GRANTS".to_owned(),
            grant: "GRANT CONNECTION_ADMIN ON *.* TO <the user of Spate>".to_owned(),
        });
    }
    Ok(())
}

/// True if the account would see a trigger of the table, if there were one.
///
/// # Errors
/// Any error of the connection.
pub(crate) fn may_see_triggers(connection: &mut Connection, table: &TableName) -> Result<bool> {
    let grants = read(connection)?;
    Ok(may(&grants, "TRIGGER", &["*.*", &format!("{}.*", table.schema), &format!("{}.{}", table.schema, table.table)]))
}

fn read(connection: &mut Connection) -> Result<Vec<Grant>> {
    let rows = connection.query("SHOW GRANTS")?;
    Ok((0..rows.rows.len()).filter_map(|row| parse(&rows.text_at(row, 0)?)).collect())
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
    let privileges = privileges.split(", ").map(str::to_owned).collect();
    // In the name of a schema, a backslash keeps _ and % from being wildcards.
    Some(Grant { privileges, scope: scope.replace(['`', '\\'], "") })
}

/// True if a statement may be about accounts; sometimes true for others.
pub(crate) fn concerns_accounts(sql: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&sql[..sql.len().min(1000)]).to_ascii_uppercase();
    let words = text.split(|c: char| !c.is_ascii_alphabetic()).filter(|word| !word.is_empty());
    words.take(WORDS_MAX).any(|word| ACCOUNT_WORDS.contains(&word))
}

/// Notices when a replicated statement locks the applier out.
#[derive(Debug)]
pub(crate) struct AccountGuard<'a> {
    maker: SessionMaker<'a>,
}

impl<'a> AccountGuard<'a> {
    /// A guard of the account that makes sessions.
    pub(crate) fn new(maker: SessionMaker<'a>) -> AccountGuard<'a> {
        AccountGuard { maker }
    }

    /// Whether Spate can still work after `change`, which ended as `result` says.
    ///
    /// # Errors
    /// [`Error::LockedOut`] if it cannot; else that of `result`.
    pub(crate) fn look(&self, change: Change, result: Result<()>) -> Result<()> {
        let is_refusal = |error: &Error| matches!(error, Error::Privilege { .. }) || is_denied(error);
        // A session knows its account's privileges as they were when it began.
        let again = self.maker.connect_impatiently();
        let refusal = match again.and_then(|mut connection| check(&mut connection, self.maker.dialect)) {
            Err(error) if is_refusal(&error) => error,
            _ => match result {
                Err(error) if is_denied(&error) => error,
                other => return other,
            },
        };
        Err(Error::LockedOut { place: change.place, change: change.what, error: Box::new(refusal) })
    }
}

/// The server does not know the account any more, or refuses it something.
fn is_denied(error: &Error) -> bool {
    /// Access denied in all its forms; no such grant; the account is locked; its password expired.
    const CODES: [u16; 11] = [1044, 1045, 1130, 1141, 1142, 1143, 1227, 1370, 1698, 1820, 4151];
    match error {
        Error::Wire(error) | Error::Batch { source: error } => error.code().is_some_and(|code| CODES.contains(&code)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants() {
        let lines = [
            "GRANT SELECT, BINLOG REPLAY ON *.* TO `s`@`%` IDENTIFIED BY PASSWORD '*00'",
            "GRANT ALL PRIVILEGES ON `spate`.* TO `s`@`%`",
            "GRANT TRIGGER, SELECT (`a`, `b`) ON `a\\_b`.`t` TO `s`@`%`",
            "GRANT `r` TO `s`@`%`",
        ];
        let grants: Vec<Grant> = lines.into_iter().filter_map(parse).collect();
        assert!(may(&grants, "BINLOG REPLAY", &["*.*"]) && may(&grants, "DELETE", &["*.*", "spate.*"]));
        assert!(!may(&grants, "DELETE", &["*.*"]) && !may(&grants, "SUPER", &["*.*"]));
        assert!(may(&grants, "TRIGGER", &["a_b.t"]) && !may(&grants, "TRIGGER", &["a_b.*"]));
    }

    #[test]
    fn statements_about_accounts() {
        for sql in
            ["GRANT ALL ON *.* TO a", "/* x */ create or replace user a", "set password for a = 'x'", "drop role r"]
        {
            assert!(concerns_accounts(sql.as_bytes()), "{sql}");
        }
        assert!(!concerns_accounts(b"CREATE TABLE t (a INT)"));
    }
}
