//! Connections to sandboxed servers, through their sockets.

use std::path::Path;
use std::time::Duration;

use mysql::prelude::{FromRow, FromValue, Queryable};
use mysql::{Conn, OptsBuilder, Row};

use crate::{Error, Result};

/// One connection of the sandbox's root account.
pub struct Session {
    connection: Conn,
    server: String,
}

/// Statements are cut to this many characters in messages.
const SHOWN_STATEMENT_CHARACTERS: usize = 200;

impl Session {
    /// Connects through `socket`; `server` names the sandbox in messages.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn open(socket: &Path, server: &str) -> Result<Session> {
        Session::open_within(socket, server, None)
    }

    /// The same; whoever waits longer than `limit` for an answer gets an error.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn open_within(socket: &Path, server: &str, limit: Option<Duration>) -> Result<Session> {
        let options = OptsBuilder::new()
            .user(Some("root"))
            .socket(socket.to_str())
            .ip_or_hostname(Some("localhost"))
            .prefer_socket(true)
            .read_timeout(limit)
            .stmt_cache_size(0);
        let connection = Conn::new(options).map_err(|source| Error::Sql {
            server: server.to_owned(),
            statement: format!("connect to {}", socket.display()),
            source: Box::new(source),
        })?;
        Ok(Session { connection, server: server.to_owned() })
    }

    /// Runs a statement and ignores its result.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn run(&mut self, statement: &str) -> Result<()> {
        let result = self.connection.query_drop(statement);
        result.map_err(|source| self.error(statement, source))
    }

    /// All rows of a query.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn rows<T: FromRow>(&mut self, statement: &str) -> Result<Vec<T>> {
        let result = self.connection.query::<T, _>(statement);
        result.map_err(|source| self.error(statement, source))
    }

    /// The first column of the first row.
    ///
    /// # Errors
    /// [`Error::Sql`]; [`Error::UnexpectedResult`] if there is no row or the value is of another type.
    pub fn value<T: FromValue>(&mut self, statement: &str) -> Result<T> {
        self.column_of_first_row(statement, 0)
    }

    /// The value of a global status counter.
    ///
    /// # Errors
    /// Those of [`Session::value`].
    pub fn status(&mut self, name: &str) -> Result<u64> {
        self.status_text(name)?.parse().map_err(|_| self.unexpected(name))
    }

    /// The text of a global status variable.
    ///
    /// # Errors
    /// Those of [`Session::value`].
    pub fn status_text(&mut self, name: &str) -> Result<String> {
        self.column_of_first_row(&format!("SHOW GLOBAL STATUS LIKE '{name}'"), 1)
    }

    /// The first row, with columns by name; `None` if there is no row.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn first_row(&mut self, statement: &str) -> Result<Option<Row>> {
        let result = self.connection.query_first::<Row, _>(statement);
        result.map_err(|source| self.error(statement, source))
    }

    fn column_of_first_row<T: FromValue>(&mut self, statement: &str, column: usize) -> Result<T> {
        let row = self.first_row(statement)?;
        let value = row.and_then(|row| row.get_opt::<T, _>(column)).and_then(|value| value.ok());
        value.ok_or_else(|| self.unexpected(statement))
    }

    fn unexpected(&self, statement: &str) -> Error {
        Error::UnexpectedResult { server: self.server.clone(), statement: shorten(statement) }
    }

    fn error(&self, statement: &str, source: mysql::Error) -> Error {
        Error::Sql { server: self.server.clone(), statement: shorten(statement), source: Box::new(source) }
    }
}

/// Shortens a statement for a message, and cuts it after a word that precedes a password.
fn shorten(statement: &str) -> String {
    let upper = statement.to_ascii_uppercase();
    let secret = ["IDENTIFIED", "PASSWORD"].iter().filter_map(|word| upper.find(word)).min();
    let public = &statement[..secret.unwrap_or(statement.len())];
    let mut shown: String = public.chars().take(SHOWN_STATEMENT_CHARACTERS).collect();
    if shown.len() < statement.len() {
        shown.push('…');
    }
    shown
}

/// Quotes an identifier.
pub fn quote(identifier: &str) -> String {
    format!("`{}`", identifier.replace('`', "``"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sql_error_shows_no_password() {
        assert_eq!(shorten("CREATE USER a@b IDENTIFIED BY 'hush'"), "CREATE USER a@b …");
        assert_eq!(shorten("CHANGE MASTER TO MASTER_PASSWORD='hush'"), "CHANGE MASTER TO MASTER_…");
        assert_eq!(shorten("SELECT 1"), "SELECT 1");
    }

    #[test]
    fn identifiers_are_quoted() {
        assert_eq!(quote("a`b"), "`a``b`");
    }
}
