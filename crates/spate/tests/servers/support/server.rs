//! One real server in a directory of its own, which ends with the test however that ends.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection};
use spate_lab::vendor::Vendor;
use tempfile::TempDir;

use super::{Kind, script, wait_until};

/// Account and password of the program under test. The password must never show anywhere.
pub const ACCOUNT: &str = "spate";
pub const PASSWORD: &str = "geheim-7391-nobody-sees";

/// What a server logs when it cannot have its port.
const PORT_TAKEN: &str = "Address already in use";

/// How much of a server's log a failed test shows.
const LOG_SHOWN_BYTES: usize = 3000;

#[derive(Debug)]
pub struct Server {
    pub kind: Kind,
    directory: TempDir,
    pub port: u16,
    options: Vec<String>,
    /// Of its next process.
    pub environment: Vec<(String, String)>,
    child: Option<Child>,
}

impl Server {
    /// A source: it writes a binlog of whole rows.
    pub fn source(kind: Kind, options: &[&str]) -> Server {
        let own = ["--server-id=1", "--log-bin=source", "--binlog-format=ROW", "--sync-binlog=1"];
        Server::start(kind, &[own.as_slice(), options].concat())
    }

    /// A replica, without a binlog unless `options` say otherwise.
    pub fn replica(kind: Kind, options: &[&str]) -> Server {
        Server::start(kind, &[["--server-id=2"].as_slice(), options].concat())
    }

    fn start(kind: Kind, options: &[&str]) -> Server {
        let directory = tempfile::Builder::new().prefix("spate-test-").tempdir().unwrap();
        let data = directory.path().join("data");
        // Most of it is zeros: logs that nobody has written to.
        let copied =
            Command::new("cp").args(["-a", "--sparse=always"]).arg(kind.pristine()).arg(&data).status().unwrap();
        assert!(copied.success());
        let id = options.iter().rev().find_map(|option| option.strip_prefix("--server-id="));
        kind.vendor().identify(&data, id.unwrap().parse().unwrap()).unwrap();
        fs::create_dir(directory.path().join("tmp")).unwrap();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Server { kind, directory, port: 0, options, environment: Vec::new(), child: None };
        server.begin_anywhere();
        let sql = format!(
            "SET sql_log_bin=0; CREATE USER {ACCOUNT}@'127.0.0.1' IDENTIFIED BY '{PASSWORD}'; \
             GRANT ALL PRIVILEGES ON *.* TO {ACCOUNT}@'127.0.0.1' WITH GRANT OPTION;"
        );
        server.sql(&sql);
        server
    }

    /// A server on a data directory that somebody else has made, which becomes its own.
    pub fn on(kind: Kind, data: &Path, options: &[&str]) -> Server {
        let directory = tempfile::Builder::new().prefix("spate-test-").tempdir().unwrap();
        fs::rename(data, directory.path().join("data")).unwrap();
        fs::create_dir(directory.path().join("tmp")).unwrap();
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Server { kind, directory, port: 0, options, environment: Vec::new(), child: None };
        server.begin_anywhere();
        server
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Starts the server at a port that the kernel gives. Until the server has it, another may take it.
    fn begin_anywhere(&mut self) {
        const PORTS_MAX: usize = 5;
        for _ in 0..PORTS_MAX {
            self.port = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port();
            match self.try_begin() {
                Err(log) if log.contains(PORT_TAKEN) => {}
                result => return result.unwrap_or_else(|log| panic!("the server ended: {log}")),
            }
        }
        panic!("{PORTS_MAX} ports were taken by others");
    }

    /// Starts the server again after [`Server::kill`], at the same port, and waits until it answers.
    pub fn begin(&mut self) {
        // Whoever connects somewhere may be given the port while nobody listens there.
        wait_until("the server's port", || match self.try_begin() {
            Err(log) if log.contains(PORT_TAKEN) => false,
            result => result.map(|()| true).unwrap_or_else(|log| panic!("the server ended: {log}")),
        });
    }

    /// The error is what a server logged that ended.
    fn try_begin(&mut self) -> Result<(), String> {
        let path = self.directory.path();
        // As after a restart of the machine: appliers refuse to begin where a killed server has left the file by which they try out the
        // directory.
        fs::remove_dir_all(path.join("tmp")).unwrap();
        fs::create_dir(path.join("tmp")).unwrap();
        let earlier = fs::read(path.join("error.log")).unwrap_or_default().len();
        let log = fs::File::options().create(true).append(true).open(path.join("error.log")).unwrap();
        let child = self
            .kind
            .daemon()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            // Options of the test come behind it.
            .arg(format!("--tmpdir={}", path.join("tmp").display()))
            .args(&self.options)
            .arg(format!("--datadir={}", path.join("data").display()))
            .arg(format!("--socket={}", self.socket().display()))
            .arg(format!("--pid-file={}", path.join("pid").display()))
            .arg(format!("--port={}", self.port))
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        self.child = Some(child);
        let mut has_ended = false;
        wait_until("the server's first answer", || {
            has_ended = self.child.as_mut().unwrap().try_wait().unwrap().is_some();
            // To start the client again and again would take time from the server.
            has_ended || UnixStream::connect(self.socket()).is_ok() && self.try_sql("SELECT 1").is_ok()
        });
        match has_ended {
            true => {
                let log = fs::read(self.directory.path().join("error.log")).unwrap_or_default();
                Err(String::from_utf8_lossy(&log[earlier..]).into_owned())
            }
            false => Ok(()),
        }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _is_gone = child.kill();
            child.wait().unwrap();
        }
    }

    /// Executes statements as root; what they answer, as lines of columns separated by tabs.
    pub fn sql(&self, sql: &str) -> String {
        self.try_sql(sql).unwrap_or_else(|error| panic!("{error}, while executing: {:.300}", sql))
    }

    /// Executes statements in a session of their own, as the client would, without the client: to start a process takes longer than most statements.
    /// `None` if only the client can, and nothing was executed.
    fn ask(&self, sql: &str) -> Option<Result<String, String>> {
        let statements = script::statements(sql)?;
        let options = ConnectOptions { read_timeout: None, ..ConnectOptions::new("server") };
        let mut connection = Connection::connect(&Endpoint::unix("root", self.socket()), &options).ok()?;
        let settings = format!("SET NAMES utf8mb4 COLLATE utf8mb4_general_ci; {}", self.unlimited());
        connection.execute(settings.as_bytes()).ok()?;
        Some(script::execute(&mut connection, &statements))
    }

    /// A test's own question is not what a test's global limit is about.
    fn unlimited(&self) -> &'static str {
        match self.kind.vendor() {
            Vendor::MariaDb => "SET SESSION max_statement_time=0",
            Vendor::MySql => "SET SESSION max_execution_time=0",
        }
    }

    /// The same, for statements that may fail.
    pub fn try_sql(&self, sql: &str) -> Result<String, String> {
        if let Some(answer) = self.ask(sql) {
            return answer;
        }
        let mut client = self.client().spawn().unwrap();
        // A client that ended at an error reads no further.
        let _told_below = client.stdin.take().unwrap().write_all(sql.as_bytes());
        let Output { status, stdout, stderr } = client.wait_with_output().unwrap();
        match status.success() {
            true => Ok(String::from_utf8_lossy(&stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&stderr).into_owned()),
        }
    }

    /// Begins to execute statements, and does not wait for their end. They may fail.
    pub fn begin_script(&self, sql: &str) -> Child {
        let mut client = self.client().spawn().unwrap();
        // A client whose server is gone reads no further.
        let _not_all_read = client.stdin.take().unwrap().write_all(sql.as_bytes());
        client
    }

    /// Ends every connection that reads the binlog.
    pub fn kill_connections_of_replicas(&self) {
        let ids = self.sql("SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'");
        for id in ids.lines() {
            let _gone_by_itself = self.try_sql(&format!("KILL {id}"));
        }
    }

    /// MariaDB's client, which knows both vendors' servers; it reads statements from its standard input.
    pub fn client(&self) -> Command {
        let mut command = Command::new("mariadb");
        command
            .args([
                "--no-defaults",
                "-uroot",
                "-N",
                "-B",
                "--default-character-set=utf8mb4",
                "--max-allowed-packet=64M",
            ])
            .arg(format!("--init-command={}", self.unlimited()))
            .arg(format!("--socket={}", self.socket().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Adds what a first login over TCP needs. MySQL's accounts have `caching_sha2_password`, and its certificate proves
    /// nothing here: tests of logins and certificates have their own options.
    pub fn allow_password(&self, command: &mut Command, side: &str) {
        if self.kind.vendor() == Vendor::MySql {
            command.arg(format!("--{side}-allow-clear-password"));
        }
    }

    pub fn data_directory(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// Lets this server's own replication follow another one, by GTID.
    pub fn follow(&self, source: &Server) {
        let port = source.port;
        self.sql(&match self.kind {
            Kind::Mysql => format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='{ACCOUNT}', \
                 SOURCE_PASSWORD='{PASSWORD}', GET_SOURCE_PUBLIC_KEY=1, SOURCE_AUTO_POSITION=1; START REPLICA"
            ),
            _ => format!(
                "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{ACCOUNT}', \
                 MASTER_PASSWORD='{PASSWORD}', MASTER_USE_GTID=slave_pos; START SLAVE"
            ),
        });
    }

    /// Waits until its own replication has come to a position.
    pub fn wait_followed(&self, position: &str) {
        let wait = match self.kind {
            Kind::Mysql => format!("SELECT WAIT_FOR_EXECUTED_GTID_SET('{position}', 60)"),
            _ => format!("SELECT MASTER_GTID_WAIT('{position}', 60)"),
        };
        assert_eq!(self.sql(&wait), "0", "{}", self.replication_status());
    }

    /// Waits until its own replication has received what is up to `position`, whether it is applied or not.
    pub fn wait_received(&self, position: &str) {
        wait_until("the replica to receive", || match self.kind.vendor() {
            Vendor::MariaDb => self.replication_status().contains(position),
            Vendor::MySql => {
                let received = "SELECT GROUP_CONCAT(received_transaction_set) FROM performance_schema.replication_connection_status";
                let has_all =
                    format!("SELECT GTID_SUBSET('{position}', CONCAT(@@GLOBAL.gtid_executed, ',', ({received})))");
                self.sql(&has_all) == "1"
            }
        });
    }

    /// What it says of its own replication.
    pub fn replication_status(&self) -> String {
        self.sql(match self.kind.vendor() {
            Vendor::MySql => "SHOW REPLICA STATUS",
            Vendor::MariaDb => "SHOW ALL SLAVES STATUS",
        })
    }

    /// The GTID position of all that is in the binlog.
    pub fn position(&self) -> String {
        self.sql(match self.kind.vendor() {
            Vendor::MariaDb => "SELECT @@GLOBAL.gtid_binlog_pos",
            Vendor::MySql => "SELECT REPLACE(@@GLOBAL.gtid_executed, '\\n', '')",
        })
    }

    /// Every table of users with its checksum, one a line.
    pub fn checksums(&self) -> String {
        let tables = self.sql(&format!(
            "SELECT CONCAT('`', REPLACE(table_schema, '`', '``'), '`.`', REPLACE(table_name, '`', '``'), '`') \
             FROM information_schema.tables WHERE {TABLES_OF_USERS} ORDER BY 1"
        ));
        assert!(!tables.is_empty(), "no table is there to compare");
        self.sql(&format!("CHECKSUM TABLE {} EXTENDED", tables.replace('\n', ",")))
    }
}

/// Of `information_schema.tables`.
pub const TABLES_OF_USERS: &str = "table_type LIKE 'BASE%' AND table_schema NOT IN \
    ('mysql', 'sys', 'performance_schema', 'information_schema', 'spate')";

impl Drop for Server {
    #[allow(clippy::print_stderr, reason = "a failed test's output")]
    fn drop(&mut self) {
        self.kill();
        // It is removed with its log, and why a test has failed may be known only there.
        if std::thread::panicking() {
            let log = fs::read(self.directory.path().join("error.log")).unwrap_or_default();
            let end = &log[log.len().saturating_sub(LOG_SHOWN_BYTES)..];
            eprintln!("the end of the log of the server at port {}:\n{}", self.port, String::from_utf8_lossy(end));
        }
    }
}
