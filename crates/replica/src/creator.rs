//! The privileges that a server gives to the account that creates a routine: EXECUTE and ALTER ROUTINE, if it lacks them (`automatic_sp_privileges`).
//!
//! The servers' own appliers give them to the account that they take for the creator. In a session like Spate's, a server looks whether Spate's
//! account has them.

use spate_schedule::Statement;
use spate_schedule::needs::{CreatedRoutine, Creator, Untold, created_routine};

use crate::error::{Error, Result};
use spate_connection::{Connection, Vendor, quote};

/// The routine that a statement creates, with the account that a replica of this vendor takes for its creator.
///
/// # Errors
/// [`Untold`].
pub fn routine(statement: &Statement, replica: Vendor) -> std::result::Result<Option<CreatedRoutine>, Untold> {
    let creator = match replica {
        Vendor::MariaDb => Creator::Definer,
        Vendor::MySql => Creator::Invoker,
    };
    created_routine(statement, creator)
}

/// Gives the creator of a routine the privileges that the servers' own appliers would have given. It may be done twice.
///
/// # Errors
/// A missing privilege names the GRANT; any error of the connection.
pub fn give(connection: &mut Connection, routine: &CreatedRoutine) -> Result<()> {
    const BOTH: u64 = 2;
    let grantee = quote::text(&format!("'{}'@'{}'", routine.user, routine.host));
    // The server knows users by the bytes of their names, and its views compare them by their letters.
    let user = quote::text(&format!("'{}'@", routine.user));
    let is_it = format!(
        "GRANTEE = {grantee} AND BINARY LEFT(CONVERT(GRANTEE USING utf8mb4), CHAR_LENGTH({user})) = BINARY {user}"
    );
    let schema = quote::text(&routine.name.schema);
    // The names of schemas in privileges are patterns. Only an account that may read the schema mysql sees accounts.
    let sql = format!(
        "SELECT @@GLOBAL.automatic_sp_privileges, \
         (SELECT COUNT(DISTINCT GRANTEE) FROM information_schema.USER_PRIVILEGES), \
         (SELECT COUNT(*) FROM information_schema.USER_PRIVILEGES WHERE {is_it}), \
         (SELECT COUNT(DISTINCT PRIVILEGE_TYPE) FROM (\
          SELECT PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE {is_it} UNION ALL \
          SELECT PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES WHERE {is_it} AND {schema} LIKE TABLE_SCHEMA) p \
          WHERE PRIVILEGE_TYPE IN ('EXECUTE', 'ALTER ROUTINE'))"
    );
    let answer = connection.query(&sql)?;
    connection.execute(b"ROLLBACK")?;
    let number = |column| answer.text_at(0, column).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (gives, seen, exists, has) = (number(0), number(1), number(2), number(3));
    if gives == 0 || has == BOTH || (exists == 0 && seen > 1) {
        return Ok(());
    }
    let user = format!("{}@{}", quote::identifier(&routine.user), quote::identifier(&routine.host));
    let name = quote::qualified(&routine.name.schema, &routine.name.table);
    let grant = format!("GRANT EXECUTE, ALTER ROUTINE ON {} {name} TO {user}", routine.kind);
    if exists == 0 {
        let action = "see whether an account exists that gets privileges on what it creates";
        let grant = "GRANT SELECT ON mysql.* TO <the user of Spate>".to_owned();
        let message = "information_schema shows only its own account".to_owned();
        return Err(Error::Privilege { peer: connection.peer().to_string(), action, message, grant });
    }
    // Replicas of the replica execute the definition, and do the same.
    let session = connection.query("SELECT @@SESSION.sql_log_bin, @@SESSION.sql_mode")?;
    connection.execute(b"ROLLBACK")?;
    let is_logged = session.text_at(0, 0).as_deref() == Some("1");
    if is_logged {
        connection.execute(b"SET SESSION sql_log_bin=0")?;
    }
    // Only then MariaDB knows the word.
    let is_package = routine.kind.starts_with("PACKAGE");
    // Should the account have gone meanwhile, no new one comes into being.
    let is_mariadb = connection.server_version().vendor == Vendor::MariaDb;
    if is_mariadb {
        let mode = if is_package { "ORACLE,NO_AUTO_CREATE_USER" } else { "NO_AUTO_CREATE_USER" };
        connection.execute(format!("SET SESSION sql_mode='{mode}'").as_bytes())?;
    }
    let given = connection.execute(grant.as_bytes());
    if is_mariadb {
        let mode = session.text_at(0, 1).unwrap_or_default();
        connection.execute(format!("SET SESSION sql_mode={}", quote::text(&mode)).as_bytes())?;
    }
    if is_logged {
        connection.execute(b"SET SESSION sql_log_bin=1")?;
    }
    let needed = "GRANT EXECUTE, ALTER ROUTINE ON *.* TO <the user of Spate> WITH GRANT OPTION";
    let action = "give the creator of a routine the privileges on it";
    given.map(drop).map_err(|error| Error::from(error).with_missing_privilege(action, needed))
}
