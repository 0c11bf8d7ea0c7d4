//! The vendor and version of a server.

use std::fmt;

/// The vendor of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Vendor {
    /// MariaDB.
    MariaDb,
    /// MySQL and the servers built from it.
    MySql,
}

/// A server's vendor and version, from its greeting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerVersion {
    /// The vendor.
    pub vendor: Vendor,
    /// The first number.
    pub major: u16,
    /// The second number.
    pub minor: u16,
    /// The third number.
    pub patch: u16,
    /// The server's own version text, without MariaDB's prefix for old clients.
    pub text: String,
}

impl ServerVersion {
    /// Parses a server's own version text, such as `5.5.5-10.11.6-MariaDB-log` or `8.4.3`.
    pub fn parse(text: &str) -> ServerVersion {
        /// MariaDB before 11.0 puts this version first, because old replicas misread one with two digits.
        const OLD_CLIENT_PREFIX: &str = "5.5.5-";
        let vendor = match text.to_ascii_lowercase().contains("mariadb") {
            true => Vendor::MariaDb,
            false => Vendor::MySql,
        };
        let text = match vendor {
            Vendor::MariaDb => text.strip_prefix(OLD_CLIENT_PREFIX).unwrap_or(text),
            Vendor::MySql => text,
        };
        let mut numbers = text.splitn(3, '.').map(|part| {
            let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
            part[..digits].parse().unwrap_or(0)
        });
        let mut number = || numbers.next().unwrap_or(0);
        ServerVersion { vendor, major: number(), minor: number(), patch: number(), text: text.to_owned() }
    }

    /// The version as one number, as in MySQL's variables: 90704 is 9.7.4.
    pub fn number(&self) -> u32 {
        u32::from(self.major) * 10_000 + u32::from(self.minor) * 100 + u32::from(self.patch)
    }

    /// The server in the lexer's own types.
    pub fn reader(&self) -> spate_sql::Server {
        let vendor = match self.vendor {
            Vendor::MariaDb => spate_sql::Vendor::MariaDb,
            Vendor::MySql => spate_sql::Vendor::MySql,
        };
        spate_sql::Server { vendor, version: self.number() }
    }

    /// The statement that shows a server's position in its own binlog; MySQL 8.2 renamed it.
    pub fn binlog_status_sql(&self) -> &'static str {
        match self.vendor == Vendor::MySql && self.is_at_least(8, 2) {
            true => "SHOW BINARY LOG STATUS",
            false => "SHOW MASTER STATUS",
        }
    }

    /// Of a MySQL: true if it can generate invisible primary keys.
    pub fn has_invisible_keys(&self) -> bool {
        (self.major, self.minor, self.patch) >= (8, 0, 30)
    }

    /// True if sessions can choose whether rows that foreign keys change or delete meet triggers.
    pub fn has_cascade_triggers(&self) -> bool {
        self.vendor == Vendor::MySql && self.is_at_least(9, 7)
    }

    /// True if the version is this one or a later one. The vendor does not matter.
    pub fn is_at_least(&self, major: u16, minor: u16) -> bool {
        (self.major, self.minor) >= (major, minor)
    }
}

impl fmt::Display for ServerVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let vendor = match self.vendor {
            Vendor::MariaDb => "MariaDB",
            Vendor::MySql => "MySQL",
        };
        write!(f, "{vendor} {}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_both_vendors_are_parsed() {
        for (text, expected) in [
            ("5.5.5-10.11.19-MariaDB-0+deb12u1", "MariaDB 10.11.19"),
            ("11.4.2-MariaDB-log", "MariaDB 11.4.2"),
            ("8.0.36-0ubuntu0.22.04.1", "MySQL 8.0.36"),
            ("5.5.5", "MySQL 5.5.5"),
            ("9", "MySQL 9.0.0"),
            ("", "MySQL 0.0.0"),
        ] {
            assert_eq!(ServerVersion::parse(text).to_string(), expected);
        }
        assert_eq!(ServerVersion::parse("9.7.4-2").number(), 90704);
        assert!(ServerVersion::parse("10.11.1-MariaDB").is_at_least(10, 5));
        assert!(!ServerVersion::parse("10.4.30-MariaDB").is_at_least(10, 5));
    }
}
