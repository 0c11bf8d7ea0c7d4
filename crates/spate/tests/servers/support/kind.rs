//! Which server: whose, and of which series.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use spate_lab::home::LabHome;
use spate_lab::sandbox::pristine_data;
use spate_lab::vendor::Vendor;
use spate_lab::version::{ServerBinaries, ServerVersion};

/// A server that the tests know how to start. One that is not installed fails its tests, and says what installs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The system's own MariaDB.
    Mariadb,
    /// MariaDB 11.8.
    Mariadb118,
    /// MySQL 9.7, or the series that [`MYSQL_VARIABLE`] names.
    Mysql,
}

/// Names another series of MySQL for all of the tests, such as `mysql-8.4`.
const MYSQL_VARIABLE: &str = "SPATE_TEST_MYSQL";

/// Few and small, since several servers run at the same time.
const OPTIONS: [&str; 6] = [
    "--innodb-buffer-pool-size=96M",
    "--innodb-flush-log-at-trx-commit=1",
    "--max-allowed-packet=64M",
    "--skip-name-resolve",
    "--performance-schema=OFF",
    "--bind-address=127.0.0.1",
];
/// The redo log has the size that the data directory was made with: another one would be written at each start.
const MARIADB_OPTIONS: &[&str] = &["--skip-slave-start"];
/// What tests look up in information_schema is what is, not what was a day ago.
const MYSQL_OPTIONS: &[&str] = &[
    "--innodb-redo-log-capacity=32M",
    "--skip-replica-start",
    "--mysqlx=OFF",
    "--gtid-mode=ON",
    "--enforce-gtid-consistency=ON",
    "--information-schema-stats-expiry=0",
    "--secure-file-priv=",
    "--local-infile=ON",
    "--skip-log-bin",
];

impl Kind {
    /// Whose it is.
    pub fn vendor(self) -> Vendor {
        self.binaries().vendor()
    }

    /// True if its series is this one or a later one.
    pub fn is_at_least(self, major: u32, minor: u32) -> bool {
        let mut numbers = self.binaries().full_version.split('.').map_while(|number| number.parse::<u32>().ok());
        (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
    }

    /// Its programs.
    pub fn binaries(self) -> &'static ServerBinaries {
        static MARIADB: OnceLock<ServerBinaries> = OnceLock::new();
        static MARIADB_118: OnceLock<ServerBinaries> = OnceLock::new();
        static MYSQL: OnceLock<ServerBinaries> = OnceLock::new();
        let of_series = |name: &str| name.parse::<ServerVersion>().and_then(ServerVersion::resolve);
        let there = |found: spate_lab::Result<ServerBinaries>| found.unwrap_or_else(|error| panic!("{error}"));
        match self {
            Kind::Mariadb => MARIADB.get_or_init(|| there(ServerVersion::installed())),
            Kind::Mariadb118 => MARIADB_118.get_or_init(|| there(of_series("mariadb-11.8"))),
            Kind::Mysql => MYSQL.get_or_init(|| {
                let series = std::env::var(MYSQL_VARIABLE);
                there(of_series(series.as_deref().unwrap_or("mysql-9.7")))
            }),
        }
    }

    /// The server's program, with the options that all tests want.
    pub fn daemon(self) -> Command {
        // The kernel ends the server with the thread that runs the test.
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(&self.binaries().daemon).args(["--no-defaults", "--user=root"]);
        if let Some(base) = &self.binaries().base_directory {
            command.arg(format!("--basedir={}", base.display()));
        }
        command.args(OPTIONS).args(match self.vendor() {
            Vendor::MariaDb => MARIADB_OPTIONS,
            Vendor::MySql => MYSQL_OPTIONS,
        });
        command
    }

    /// A data directory that was never used, made once and only ever copied.
    pub fn pristine(self) -> PathBuf {
        let home = LabHome::at(&PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("lab")).unwrap();
        pristine_data(&home, self.binaries()).unwrap_or_else(|error| panic!("{error}"))
    }
}
