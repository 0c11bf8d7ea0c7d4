//! A server of our own on a data directory that is being restored: nobody else can reach it, and it ends with this process.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use spate_connection::endpoint::{Endpoint, Secret};
use spate_connection::{ConnectOptions, Connection, Vendor};

use crate::error::{Error, Result};
use crate::manifest::ServerFacts;
use crate::place::Place;
use crate::programs::{Programs, dying_with_us};
use crate::sealing;

/// The account that exists while we restore.
pub(crate) const ACCOUNT: &str = "spate_restore";
/// Crash recovery of a large base takes minutes, of a huge one longer; a server that ends is noticed at once.
const START_MAX: Duration = Duration::from_secs(24 * 3600);
/// A clean stop writes all that is changed in memory.
const STOP_MAX: Duration = Duration::from_secs(3600);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Makes an id of a server another one, which people hardly choose.
const OTHER_ID: u32 = 0x5a5a_0000;
/// How much of an error log a message shows.
const SHOWN_LOG_BYTES: u64 = 2_000;
/// What a message calls the server.
const PEER: &str = "the server that is restored";

/// How the server runs.
#[derive(Debug, Clone, Default)]
pub(crate) struct ScratchOptions {
    /// For the pages that it holds in memory.
    pub(crate) buffer_pool_bytes: u64,
    /// Further options of the server, as the person gave them.
    pub(crate) server_options: Vec<String>,
    /// A fresh server of MySQL has a root without a password, and needs no account of ours.
    pub(crate) is_fresh: bool,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct Scratch {
    child: Child,
    /// Socket, log and temporary files; nobody else may look into it.
    place: Place,
    endpoint: Endpoint,
}

impl Scratch {
    /// Starts a server on `data`, and waits until it answers.
    pub(crate) fn start(
        programs: &Programs,
        facts: &ServerFacts,
        data: &Path,
        options: &ScratchOptions,
        stop: &AtomicBool,
    ) -> Result<Scratch> {
        let program = programs.server(facts)?;
        let place = Place::within(&std::env::temp_dir(), "spate-server-")?;
        let password = random_password()?;
        let init = place.path().join("init.sql");
        if !options.is_fresh {
            write_private(&init, &account_statements(facts.vendor(), &password))?;
        }
        let log_path = place.path().join("error.log");
        let log = File::create(&log_path).map_err(Error::file(&log_path))?;
        let socket = place.path().join("socket");
        for inside in ["tmp", "files"] {
            std::fs::create_dir(place.path().join(inside)).map_err(Error::file(place.path()))?;
        }
        let mut command = dying_with_us(&program);
        command.arg("--no-defaults");
        if let Some(base) = Programs::base_directory(&program) {
            command.arg(format!("--basedir={}", base.display()));
        }
        command
            .arg(format!("--datadir={}", data.display()))
            .arg(format!("--socket={}", socket.display()))
            .arg(format!("--pid-file={}", place.path().join("pid").display()))
            .arg(format!("--tmpdir={}", place.path().join("tmp").display()))
            .args(settings(facts, options, place.path()))
            .args(&options.server_options);
        if !options.is_fresh {
            command.arg(format!("--init-file={}", init.display()));
        }
        if rustix::process::geteuid().is_root() {
            command.arg("--user=root");
        }
        let output = log.try_clone().map_err(Error::file(&log_path))?;
        let child = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn();
        let child = child.map_err(|error| Error::program(&program, format!("it does not run: {error}")))?;
        let user = if options.is_fresh { "root" } else { ACCOUNT };
        let endpoint = Endpoint::unix(user, &socket);
        let endpoint = if options.is_fresh { endpoint } else { endpoint.with_password(Secret::new(password)) };
        let mut scratch = Scratch { child, place, endpoint };
        scratch.wait_until_ready(&program, stop)?;
        scratch.check_zone(facts)?;
        // The password has no use beyond this process.
        if init.exists() {
            std::fs::remove_file(&init).map_err(Error::file(&init))?;
        }
        Ok(scratch)
    }

    /// False once its process has ended.
    pub(crate) fn is_running(&self) -> bool {
        let path = format!("/proc/{}/stat", self.child.id());
        // The state follows the name, which is in parentheses; nobody has waited for one that has ended.
        let state = std::fs::read_to_string(path).ok();
        let state = state.and_then(|text| text.rsplit(')').next()?.trim_start().chars().next());
        !matches!(state, None | Some('Z' | 'X'))
    }

    /// Fails if the machine's time zone is another than the source's had: statements that do not say theirs would mean other times.
    fn check_zone(&self, facts: &ServerFacts) -> Result<()> {
        let variable = |name: &str| facts.variables.get(name).map(String::as_str).unwrap_or_default();
        let wanted = variable("system_time_zone");
        if variable("time_zone") != SYSTEM_ZONE || wanted.is_empty() {
            return Ok(());
        }
        let here = self.connect()?.query("SELECT @@global.system_time_zone")?.single_text().unwrap_or_default();
        match here == wanted {
            true => Ok(()),
            false => Err(Error::Refused(format!(
                "the server that was backed up took its machine's time zone, {wanted}, and here it is {here}: start this with the source's in TZ, such \
                 as TZ=Europe/Paris"
            ))),
        }
    }

    /// Where it is, and the account there.
    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// A connection with all privileges.
    pub(crate) fn connect(&self) -> Result<Connection> {
        Ok(spate_replica::asking::connect(&self.endpoint, &ConnectOptions::new(PEER))?)
    }

    fn wait_until_ready(&mut self, program: &Path, stop: &AtomicBool) -> Result<()> {
        let deadline = Instant::now() + START_MAX;
        loop {
            if self.socket().exists() && self.connect().is_ok() {
                return Ok(());
            }
            if stop.load(Ordering::Acquire) {
                return Err(Error::Stopped);
            }
            let why = match self.child.try_wait() {
                Ok(Some(status)) => format!("the server has ended ({status})"),
                Ok(None) if Instant::now() < deadline => {
                    std::thread::sleep(LOOK_EVERY);
                    continue;
                }
                Ok(None) => "the server does not answer".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(Error::program(program, format!("{why}. The end of its log:\n{}", self.log_tail())));
        }
    }

    fn socket(&self) -> PathBuf {
        self.place.path().join("socket")
    }

    /// The end of its error log.
    pub(crate) fn log_tail(&self) -> String {
        let tail = || {
            let mut file = File::open(self.place.path().join("error.log"))?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(SHOWN_LOG_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok::<_, std::io::Error>(String::from_utf8_lossy(&bytes).into_owned())
        };
        tail().unwrap_or_else(|error| format!("(its log cannot be read: {error})"))
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait_for_end(&mut self, max: Duration) -> Result<()> {
        let deadline = Instant::now() + max;
        while Instant::now() < deadline {
            if self.child.try_wait().map_err(Error::file("the server's process"))?.is_some() {
                return Ok(());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Err(Error::program(PEER, format!("it does not stop. The end of its log:\n{}", self.log_tail())))
    }

    /// Stops it cleanly: its data directory is whole, and needs no recovery.
    pub(crate) fn stop(mut self) -> Result<()> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            rustix::process::kill_process(pid, Signal::TERM)
                .map_err(|error| Error::program(PEER, format!("cannot be stopped: {error}")))?;
        }
        self.wait_for_end(STOP_MAX)
    }

    /// Removes our account, which is in the data directory.
    pub(crate) fn drop_account(&self) -> Result<()> {
        let mut connection = self.connect()?;
        connection.execute(format!("DROP USER '{ACCOUNT}'@'localhost'").as_bytes())?;
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // It has ended after a clean stop. Otherwise its data directory is thrown away, too.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Whatever crashes, a restore begins at its base again: the server need not wait for the disk.
fn settings(facts: &ServerFacts, options: &ScratchOptions, place: &Path) -> Vec<String> {
    let mut arguments: Vec<String> = [
        "--skip-networking",
        "--skip-log-bin",
        "--event-scheduler=OFF",
        "--innodb-flush-log-at-trx-commit=0",
        "--max-allowed-packet=1073741824",
        "--skip-name-resolve",
    ]
    .map(str::to_owned)
    .to_vec();
    // It may follow the server that it is of for a while, and logs nothing.
    arguments.push(format!("--server-id={}", facts.server_id ^ OTHER_ID));
    match facts.vendor() {
        // Tables whose definitions name other directories are made in this one.
        Vendor::MariaDb => {
            arguments.extend(["--skip-slave-start".to_owned(), "--skip-symbolic-links".to_owned()]);
            arguments.push(format!("--secure-file-priv={}", place.join("files").display()));
        }
        Vendor::MySql => arguments.extend([
            "--skip-replica-start".to_owned(),
            "--mysqlx=OFF".to_owned(),
            // The directory that a package chooses may not be there.
            "--secure-file-priv=NULL".to_owned(),
        ]),
    }
    if options.buffer_pool_bytes > 0 {
        arguments.push(format!("--innodb-buffer-pool-size={}", options.buffer_pool_bytes));
    }
    for name in PASSED {
        // An empty old_mode means something, and is not what a server begins with.
        let said = facts.variables.get(name).filter(|value| is_plain(value));
        if let Some(value) = said.filter(|value| !value.is_empty() || name == "old_mode") {
            arguments.push(format!("--{}={value}", name.replace('_', "-")));
        }
    }
    if let Some(zone) = facts.variables.get("time_zone").filter(|zone| *zone != SYSTEM_ZONE && is_zone(zone)) {
        arguments.push(format!("--default-time-zone={zone}"));
    }
    if facts.variables.get("gtid_mode").is_some_and(|mode| mode == "ON") {
        arguments.extend(["--gtid-mode=ON".to_owned(), "--enforce-gtid-consistency=ON".to_owned()]);
    }
    arguments
}

/// Settings without which a server's data cannot be read, or without which statements of its binlog mean something else: others are told by each
/// statement's own session.
pub(crate) const PASSED: [&str; 25] = [
    "character_set_collations",
    "character_set_server",
    "collation_server",
    "default_authentication_plugin",
    "default_storage_engine",
    "default_tmp_storage_engine",
    "default_week_format",
    "div_precision_increment",
    "enforce_storage_engine",
    "explicit_defaults_for_timestamp",
    "group_concat_max_len",
    "innodb_data_file_path",
    "innodb_default_row_format",
    "innodb_file_per_table",
    "innodb_page_size",
    "innodb_strict_mode",
    "innodb_undo_tablespaces",
    "lower_case_table_names",
    "max_sp_recursion_depth",
    "old_mode",
    "partial_revokes",
    "show_create_table_skip_secondary_engine",
    "sql_generate_invisible_primary_key",
    "system_versioning_alter_history",
    "system_versioning_insert_history",
];

/// The time zone of a server that takes the machine's.
const SYSTEM_ZONE: &str = "SYSTEM";

/// `+02:00`, `Europe/Paris`.
fn is_zone(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "_+-:/".contains(letter))
}

/// Values come from a file that others may have written: only plain words become arguments.
pub(crate) fn is_plain(value: &str) -> bool {
    value.chars().all(|letter| letter.is_ascii_alphanumeric() || "_.:;,-".contains(letter))
}

/// Options that mariadb-backup needs, too.
pub(crate) fn innodb_options(facts: &ServerFacts) -> Vec<String> {
    let of_innodb = ["innodb_page_size", "innodb_data_file_path", "innodb_undo_tablespaces"];
    let value = |name: &&str| facts.variables.get(*name).filter(|value| is_plain(value) && !value.is_empty());
    of_innodb.iter().filter_map(|name| Some(format!("--{}={}", name.replace('_', "-"), value(name)?))).collect()
}

fn account_statements(vendor: Vendor, password: &str) -> String {
    // What statements of the source do with files of the machine is none of their business.
    let rights = format!(
        "GRANT ALL PRIVILEGES ON *.* TO '{ACCOUNT}'@'localhost' WITH GRANT OPTION;\nREVOKE FILE ON *.* FROM '{ACCOUNT}'@'localhost';\n"
    );
    let create = match vendor {
        Vendor::MariaDb => format!(
            "CREATE OR REPLACE USER '{ACCOUNT}'@'localhost' IDENTIFIED VIA mysql_native_password USING PASSWORD('{password}');\n"
        ),
        Vendor::MySql => format!(
            "DROP USER IF EXISTS '{ACCOUNT}'@'localhost';\nCREATE USER '{ACCOUNT}'@'localhost' IDENTIFIED WITH caching_sha2_password BY '{password}';\n"
        ),
    };
    create + &rights
}

fn random_password() -> Result<String> {
    let bytes: [u8; 16] = sealing::random()?;
    // Servers may demand letters of all kinds.
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("Sp-{text}-9Z"))
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    const PRIVATE: u32 = 0o600;
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(PRIVATE).open(path).map_err(Error::file(path))?;
    file.write_all(text.as_bytes()).map_err(Error::file(path))
}
