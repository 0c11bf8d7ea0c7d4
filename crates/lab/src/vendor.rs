//! The vendors' different names for the same things: options, accounts, positions. ([`crate::native`] has their
//! replication.)

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::sql::Session;
use crate::{Error, Result};

/// The name of the account that reaches sandboxes over TCP. (Through the socket, `root` needs no password: the
/// directory that the socket is in is closed to others.)
pub const ACCOUNT: &str = "spate";

/// The vendor of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Vendor {
    /// MariaDB.
    MariaDb,
    /// MySQL.
    MySql,
}

/// Options that every sandbox needs: it does not start replication by itself, and listens nowhere else.
const MARIADB_SANDBOX: &[&str] = &["--skip-slave-start"];
const MYSQL_SANDBOX: &[&str] = &["--skip-replica-start", "--mysqlx=0"];

/// Options of every MariaDB of the laboratory, beyond those of all servers.
const MARIADB_BASE: &[(&str, &str)] = &[("gtid-strict-mode", "1")];
/// Options of every MySQL. Its default directory for files is the system's, which may not exist.
const MYSQL_BASE: &[(&str, &str)] = &[
    ("gtid-mode", "ON"),
    ("enforce-gtid-consistency", "ON"),
    ("secure-file-priv", ""),
    // What its documentation recommends for parallel appliers, and the only way of later versions, which do not know the option.
    ("loose-binlog-transaction-dependency-tracking", "WRITESET"),
];

impl Vendor {
    /// The server's program.
    pub fn daemon(self) -> &'static str {
        match self {
            Vendor::MariaDb => "mariadbd",
            Vendor::MySql => "mysqld",
        }
    }

    /// The arguments of every sandbox.
    pub(crate) fn sandbox_arguments(self) -> &'static [&'static str] {
        match self {
            Vendor::MariaDb => MARIADB_SANDBOX,
            Vendor::MySql => MYSQL_SANDBOX,
        }
    }

    /// Options that every server of the laboratory has.
    pub(crate) fn base_options(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Vendor::MariaDb => MARIADB_BASE,
            Vendor::MySql => MYSQL_BASE,
        }
    }

    /// The option for the size of the redo log.
    pub(crate) fn redo_log_option(self) -> &'static str {
        match self {
            Vendor::MariaDb => "innodb-log-file-size",
            Vendor::MySql => "innodb-redo-log-capacity",
        }
    }

    /// The option that decides whether a replica logs what it replicates.
    pub(crate) fn replica_log_option(self) -> &'static str {
        match self {
            Vendor::MariaDb => "log-slave-updates",
            Vendor::MySql => "log-replica-updates",
        }
    }

    /// The command that creates a data directory whose root account has no password.
    pub(crate) fn installer(self, program: &Path, data: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("--no-defaults").arg(format!("--datadir={}", data.display()));
        match self {
            Vendor::MariaDb => {
                command.args(["--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve"])
            }
            // The directory is copied often, so its redo log is small; each server resizes it to its own options.
            Vendor::MySql => command.args(["--initialize-insecure", "--innodb-redo-log-capacity=8M"]),
        };
        command
    }

    /// Sets the identity of a data directory, which may be a copy, to that of the server's id. (MySQL identifies
    /// servers by UUIDs, and keeps its own in the data directory. A replica with its source's UUID would replicate
    /// nothing.)
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn identify(self, data: &Path, server_id: u32) -> Result<()> {
        match self {
            Vendor::MariaDb => Ok(()),
            Vendor::MySql => {
                let path = data.join("auto.cnf");
                let text = format!("[auto]\nserver-uuid={}\n", mysql_uuid(server_id));
                fs::write(&path, text).map_err(Error::file("write", &path))
            }
        }
    }

    /// Statements that create the laboratory's account with all privileges.
    pub(crate) fn account_statements(self, password: &str) -> Vec<String> {
        let account = format!("'{ACCOUNT}'@'127.0.0.1'");
        let grant = format!("GRANT ALL PRIVILEGES ON *.* TO {account} WITH GRANT OPTION");
        match self {
            Vendor::MariaDb => vec![
                format!("CREATE OR REPLACE USER {account} IDENTIFIED BY '{password}'"),
                grant,
                "DELETE FROM mysql.global_priv WHERE User IN ('root', '') AND Host <> 'localhost'".to_owned(),
                "FLUSH PRIVILEGES".to_owned(),
            ],
            Vendor::MySql => vec![
                format!("DROP USER IF EXISTS {account}"),
                format!("CREATE USER {account} IDENTIFIED WITH caching_sha2_password BY '{password}'"),
                grant,
            ],
        }
    }

    /// Statements after which each commit waits for a replica's acknowledgement, for a long time.
    pub fn semi_sync_statements(self) -> &'static [&'static str] {
        match self {
            Vendor::MariaDb => &[
                "SET GLOBAL rpl_semi_sync_master_timeout = 600000",
                "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
                "SET GLOBAL rpl_semi_sync_master_enabled = 1",
            ],
            Vendor::MySql => &[
                "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
                "SET GLOBAL rpl_semi_sync_source_timeout = 600000",
                "SET GLOBAL rpl_semi_sync_source_enabled = 1",
            ],
        }
    }

    /// The GTID position at the end of the server's binlog.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn logged_position(self, session: &mut Session) -> Result<String> {
        let variable = match self {
            Vendor::MariaDb => "gtid_binlog_pos",
            Vendor::MySql => "gtid_executed",
        };
        let position: String = session.value(&format!("SELECT @@GLOBAL.{variable}"))?;
        Ok(without_spaces(&position))
    }

    /// The GTID position that replication has applied.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn applied_position(self, session: &mut Session) -> Result<String> {
        match self {
            Vendor::MariaDb => session.value("SELECT @@GLOBAL.gtid_slave_pos"),
            Vendor::MySql => self.logged_position(session),
        }
    }

    /// Statements that empty the binlog, if there is one, and let replication continue after `position`. (MySQL's also forgets the GTIDs,
    /// which a server without a binlog has in a table.)
    pub(crate) fn begin_at_statements(self, version: &str, position: &str, has_binlog: bool) -> Vec<String> {
        let set = match self {
            Vendor::MariaDb => format!("SET GLOBAL gtid_slave_pos = '{position}'"),
            Vendor::MySql => format!("SET GLOBAL gtid_purged = '{position}'"),
        };
        match self {
            Vendor::MariaDb if !has_binlog => vec![set],
            Vendor::MariaDb => vec!["RESET MASTER".to_owned(), set],
            // Each series knows only one of both.
            Vendor::MySql if version.starts_with("8.0.") => vec!["RESET MASTER".to_owned(), set],
            Vendor::MySql => vec!["RESET BINARY LOGS AND GTIDS".to_owned(), set],
        }
    }
}

/// The UUID of the laboratory's server with this id, easy to recognise in a GTID.
fn mysql_uuid(server_id: u32) -> String {
    format!("00000000-0000-4000-8000-{server_id:012}")
}

/// Removes the line breaks that a server puts into long GTID sets.
fn without_spaces(position: &str) -> String {
    position.split_whitespace().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multiline_gtid_set_becomes_one_word() {
        assert_eq!(without_spaces("a:1-5,\nb:1-3"), "a:1-5,b:1-3");
    }
}
