//! The settings that decide how a server reads a statement's text.

use crate::encoding::Encoding;

/// Bits of `sql_mode` that decide the meaning of quotes and backslashes. Both vendors give them the same numbers.
mod mode {
    pub(super) const ANSI_QUOTES: u64 = 1 << 2;
    /// MariaDB only; MySQL does not use the bit.
    pub(super) const MSSQL: u64 = 1 << 10;
    pub(super) const NO_BACKSLASH_ESCAPES: u64 = 1 << 20;
}

/// The vendor of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vendor {
    /// MariaDB.
    MariaDb,
    /// MySQL, and servers that are built from it.
    MySql,
}

/// A server that reads statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Server {
    /// Its vendor.
    pub vendor: Vendor,
    /// Its version as comments name it: 10.11.6 is 101106, 8.0.36 is 80036.
    pub version: u32,
}

/// The servers that must read a statement in the same way: the one that wrote it, and the one that will execute it.
/// `None` means unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Servers {
    /// The server that wrote it.
    pub source: Option<Server>,
    /// The server that will execute it.
    pub replica: Option<Server>,
}

/// How to read a statement's text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reading {
    /// Double quotes are for names.
    pub ansi_quotes: bool,
    /// A backslash in a string is a character like any other.
    pub plain_backslashes: bool,
    /// Square brackets are for names.
    pub brackets: bool,
    /// The character set of the text.
    pub encoding: Encoding,
    /// The servers that read it.
    pub servers: Servers,
}

/// How a comment is read that begins with `/*!` or `/*M!`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comment {
    /// It is a part of the statement, from this many bytes after the `/*` on.
    Executed(usize),
    /// It is a comment.
    Ignored {
        /// True if it may contain comments.
        nests: bool,
    },
    /// One server executes it and another does not, or the servers are unknown.
    Doubtful,
}

impl Server {
    /// MariaDB 10.5 and MySQL 8.0 are the first that Spate knows.
    const OLDEST: [Server; 2] =
        [Server { vendor: Vendor::MariaDb, version: 100_500 }, Server { vendor: Vendor::MySql, version: 80_000 }];

    /// How this server reads a comment; `text` begins behind its `/*`.
    fn comment(self, text: &[u8]) -> Comment {
        let (is_marked, marker_bytes) = match text {
            [b'M', b'!', ..] => (true, 2),
            _ => (false, 1),
        };
        if is_marked && self.vendor == Vendor::MySql {
            return Comment::Ignored { nests: false };
        }
        let digits = text[marker_bytes..].iter().take(6).take_while(|byte| byte.is_ascii_digit()).count();
        if digits < 5 {
            // These digits are no version, and are executed.
            return Comment::Executed(marker_bytes);
        }
        let digits_end = marker_bytes + digits;
        // Later versions of MySQL take a sixth digit only before white space.
        let is_clear = digits == 5 || text.get(digits_end).is_some_and(|byte| matches!(byte, b' ' | b'\t'..=b'\r'));
        if self.vendor == Vendor::MySql && !is_clear {
            return Comment::Doubtful;
        }
        let version =
            text[marker_bytes..digits_end].iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0'));
        // MySQL 5.7 and later have features that MariaDB does not have.
        let is_of_mysql = self.vendor == Vendor::MariaDb && !is_marked && (50_700..=99_999).contains(&version);
        if version <= self.version && !is_of_mysql {
            Comment::Executed(digits_end)
        } else {
            Comment::Ignored { nests: true }
        }
    }
}

impl Servers {
    /// Both servers are this one.
    pub fn only(server: Server) -> Servers {
        Servers { source: Some(server), replica: Some(server) }
    }

    /// True if both are known, and both are of this vendor.
    pub(crate) fn are_all(self, vendor: Vendor) -> bool {
        [self.source, self.replica].iter().all(|server| server.is_some_and(|server| server.vendor == vendor))
    }

    /// How a comment is read whose text begins with `!` or `M!`.
    pub(crate) fn comment(self, text: &[u8]) -> Comment {
        let [known, other] = match [self.source, self.replica] {
            [Some(source), Some(replica)] => [source, replica],
            // A part that the oldest servers of both vendors execute, all servers execute.
            _ => Server::OLDEST,
        };
        let is_known = self.source.is_some() && self.replica.is_some();
        match (known.comment(text), other.comment(text)) {
            (Comment::Executed(one), Comment::Executed(two)) if one == two => Comment::Executed(one),
            (Comment::Ignored { nests: one }, Comment::Ignored { nests: two }) if one == two && is_known => {
                Comment::Ignored { nests: one }
            }
            _ => Comment::Doubtful,
        }
    }
}

impl Reading {
    /// The reading of a statement that was executed with this `sql_mode` and this collation of `character_set_client`.
    /// An unknown mode is taken to be off.
    pub fn new(sql_mode: Option<u64>, client_collation: Option<u32>, servers: Servers) -> Reading {
        let has = |bit: u64| sql_mode.is_some_and(|modes| modes & bit != 0);
        let may_be_mariadb = !servers.are_all(Vendor::MySql);
        Reading {
            ansi_quotes: has(mode::ANSI_QUOTES),
            plain_backslashes: has(mode::NO_BACKSLASH_ESCAPES),
            brackets: has(mode::MSSQL) && may_be_mariadb,
            encoding: Encoding::of_collation(client_collation),
            servers,
        }
    }

    /// The reading of a text that a server shows with an empty `sql_mode`, such as a definition, in UTF-8.
    pub fn plain() -> Reading {
        Reading { encoding: Encoding::Utf8 { bytes_max: 4 }, ..Reading::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: Server = Server { vendor: Vendor::MariaDb, version: 101_119 };
    const MYSQL: Server = Server { vendor: Vendor::MySql, version: 90_704 };

    #[test]
    fn versioned_comments_are_executed_from_that_version_on() {
        use Comment::{Executed, Ignored};
        let nested = Ignored { nests: true };
        for (text, mariadb, mysql) in [
            (b"! x".as_slice(), Executed(1), Executed(1)),
            (b"!40101 x", Executed(6), Executed(6)),
            (b"!50700 x", nested, Executed(6)),
            (b"!99999 x", nested, nested),
            (b"!090000 x", nested, Executed(7)),
            (b"!100100 x", Executed(7), nested),
            (b"!120000 x", nested, nested),
            (b"!1234 x", Executed(1), Executed(1)),
            (b"!1234567", nested, Comment::Doubtful),
            (b"!080000x", nested, Comment::Doubtful),
            (b"M! x", Executed(2), Ignored { nests: false }),
            (b"M!50701 x", Executed(7), Ignored { nests: false }),
            (b"M!120000 x", nested, Ignored { nests: false }),
        ] {
            assert_eq!(MARIADB.comment(text), mariadb, "{}", text.escape_ascii());
            assert_eq!(MYSQL.comment(text), mysql, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn comments_that_servers_read_differently_are_a_doubt() {
        let both = Servers { source: Some(MYSQL), replica: Some(MARIADB) };
        assert_eq!(both.comment(b"!80000 x"), Comment::Doubtful);
        assert_eq!(both.comment(b"!40101 x"), Comment::Executed(6));
        assert_eq!(both.comment(b"!999999 x"), Comment::Ignored { nests: true });
        assert_eq!(Servers::default().comment(b"!40101 x"), Comment::Executed(6));
        assert_eq!(Servers::default().comment(b"!999999 x"), Comment::Doubtful);
        let older = Server { version: 80_036, ..MYSQL };
        assert_eq!(Servers { source: Some(MYSQL), replica: Some(older) }.comment(b"!90000 x"), Comment::Doubtful);
    }
}
