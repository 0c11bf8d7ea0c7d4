//! How the sessions of a replay read texts. A text is classed only as far as its sessions surely read it the same way.
//!
//! Invariant: all sessions have the `sql_mode` of the first, as far as quotes and backslashes go, and a client character set of UTF-8. Each
//! connection sets both, and no statement is replayed that changes either.

use spate_connection::{Connection, quote};
use spate_sql::{Encoding, Lexer, Reading, Servers, Token};

use crate::error::Result;

/// How the sessions read texts.
#[derive(Debug, Clone, Default)]
pub(crate) struct SessionReading {
    sql_mode: String,
}

impl SessionReading {
    /// Sessions with this `sql_mode`, as the server shows it.
    pub(crate) fn new(sql_mode: impl Into<String>) -> SessionReading {
        SessionReading { sql_mode: sql_mode.into() }
    }

    /// Asks a server which mode new sessions have.
    ///
    /// # Errors
    /// Any error of the connection.
    pub(crate) fn of(connection: &mut Connection) -> Result<SessionReading> {
        let mode = connection.query("SELECT @@SESSION.sql_mode")?.single_text();
        Ok(SessionReading::new(mode.unwrap_or_default()))
    }

    /// The statement that gives a session this reading, whatever the server's defaults are by now.
    pub(crate) fn setting(&self) -> String {
        format!("SET SESSION sql_mode = {}, SESSION character_set_client = utf8mb4", quote::text(&self.sql_mode))
    }

    fn has(&self, mode: &str) -> bool {
        self.sql_mode.split(',').any(|name| name.eq_ignore_ascii_case(mode))
    }

    /// True if quotes and backslashes mean what they mean by default, so that other modes may be set.
    pub(crate) fn is_plain(&self) -> bool {
        !["ANSI_QUOTES", "NO_BACKSLASH_ESCAPES", "MSSQL"].iter().any(|mode| self.has(mode))
    }

    fn reading(&self, bytes_max: usize) -> Reading {
        Reading {
            ansi_quotes: self.has("ANSI_QUOTES"),
            plain_backslashes: self.has("NO_BACKSLASH_ESCAPES"),
            brackets: self.has("MSSQL"),
            encoding: Encoding::Utf8 { bytes_max },
            // A proxy, or a setting, may give another version than that of the server which reads the text.
            servers: Servers::default(),
        }
    }

    /// The tokens of a text; `None` if it is in doubt how a server reads it.
    pub(crate) fn tokens<'a>(&self, statement: &'a [u8]) -> Option<Vec<Token<'a>>> {
        let surely = |bytes_max| {
            let mut lexer = Lexer::new(statement, &self.reading(bytes_max));
            let tokens: Vec<Token<'a>> = lexer.by_ref().collect();
            lexer.doubt().is_none().then_some(tokens)
        };
        let tokens = surely(4)?;
        // A session may have set utf8mb3.
        let places =
            |tokens: &[Token<'_>]| -> Vec<_> { tokens.iter().map(|token| (token.kind, token.range())).collect() };
        let is_same = statement.is_ascii() || surely(3).is_some_and(|other| places(&other) == places(&tokens));
        is_same.then_some(tokens)
    }
}
