//! The names of Spate's locks on a replica (`GET_LOCK`).
//!
//! Statements of the source are executed in sessions of Spate, and may take locks themselves. So the names are a secret that the
//! replica keeps in Spate's own schema: a statement that does not know one can neither take its lock first nor wait for it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use spate_connection::{Connection, Error, Result, ResultSet, quote};

/// Creates the table of the one secret.
pub const CREATE_TABLE: &str = "CREATE TABLE IF NOT EXISTS spate.lock_name (\
     id INT NOT NULL PRIMARY KEY COMMENT 'always 1', \
     name VARCHAR(48) CHARACTER SET ascii NOT NULL COMMENT 'begins the names of the locks') ENGINE=InnoDB";

/// The beginning of every name, for people.
const PREFIX: &str = "spate.";

const READ: &str = "SELECT name FROM spate.lock_name WHERE id = 1";

/// The names of the locks on one replica.
#[derive(Debug, Clone)]
pub struct LockNames {
    stem: String,
}

impl LockNames {
    /// Reads the names, which the first that asks makes. The table must be there.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn make(connection: &mut Connection) -> Result<LockNames> {
        if let Some(names) = Self::parse(&connection.query(READ)?) {
            return Ok(names);
        }
        let name = quote::text(&format!("{PREFIX}{}", random()));
        connection.execute(format!("INSERT IGNORE INTO spate.lock_name (id, name) VALUES (1, {name})").as_bytes())?;
        let answer = connection.query(READ)?;
        let why = "spate.lock_name has no row, though one was written".to_owned();
        Self::parse(&answer).ok_or_else(|| Error::Protocol { peer: connection.peer().clone(), why })
    }

    /// Reads the names; `None` if no Spate has ever applied to this replica.
    ///
    /// # Errors
    /// Any error of the connection.
    pub fn read(connection: &mut Connection) -> Result<Option<LockNames>> {
        let present =
            "SELECT 1 FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'spate' AND TABLE_NAME = 'lock_name'";
        if connection.query(present)?.rows.is_empty() {
            return Ok(None);
        }
        Ok(Self::parse(&connection.query(READ)?))
    }

    fn parse(answer: &ResultSet) -> Option<LockNames> {
        answer.single_text().map(|stem| LockNames { stem })
    }

    /// Of the Spate that applies: its guard holds it.
    pub fn applier(&self) -> String {
        self.quoted("applier")
    }

    /// Of the session that applies.
    pub fn main(&self) -> String {
        self.quoted("main")
    }

    /// Of the session beside it, for notes.
    pub fn journal(&self) -> String {
        self.quoted("journal")
    }

    /// Of the session for definitions.
    pub fn definer(&self) -> String {
        self.quoted("definer")
    }

    /// Of the session inside an XA transaction.
    pub fn branch(&self) -> String {
        self.quoted("branch")
    }

    /// Of a comparison, so that there is one at a time.
    pub fn verify(&self) -> String {
        self.quoted("verify")
    }

    fn quoted(&self, what: &str) -> String {
        quote::text(&format!("{}.{what}", self.stem))
    }
}

/// A name that no other process has.
pub fn random() -> String {
    let (one, other) = (RandomState::new().hash_one(1), RandomState::new().hash_one(2));
    format!("{one:016x}{other:016x}")
}
