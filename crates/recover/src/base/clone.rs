//! MySQL's clone plugin: a server of our own becomes a copy of the source, over the network, then is stopped cleanly.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use spate_connection::endpoint::Address;
use spate_connection::{Connection, quote};

use super::{Work, data_bytes, wait_until, with_grant};
use crate::error::{Error, Result};
use crate::facts;
use crate::manifest::{Base, Position};
use crate::scratch::{Scratch, ScratchOptions, innodb_options};

const PLUGIN: &str = "--plugin-load-add=mysql_clone.so";
/// What the recipient says when it is a clone, and nobody is there who would start it again.
const CODE_RESTART_FAILED: u16 = 3707;
/// How often somebody looks whether to stop.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// After the copy, the recipient ends by itself.
const END_MAX: Duration = Duration::from_secs(600);

pub(super) fn make(work: &Work<'_>, base: &mut Base, connection: &mut Connection) -> Result<()> {
    check_donor(connection)?;
    let (host, port) = address(work, connection)?;
    let bytes = data_bytes(connection);
    let data = work.directory.join("clone");
    work.progress.begin("making an empty server");
    initialize(work, base, &data)?;
    let options =
        ScratchOptions { server_options: vec![PLUGIN.to_owned()], is_fresh: true, ..ScratchOptions::default() };
    let mut recipient = Scratch::start(&work.options.programs, &base.server, &data, &options, work.stop)?;
    work.progress.expect(bytes);
    work.progress.begin("cloning");
    clone(work, &recipient, &host, port)?;
    wait_until(work.stop, || Ok(!is_alive(&recipient)))?;
    recipient.wait_for_end(END_MAX)?;
    drop(recipient);
    // One may have been created meanwhile.
    check_engines(connection)?;
    base.position = position_of(work, base, &data)?;
    base.position.server_seconds = facts::server_seconds(connection)?;
    work.store_directory(base, &data)
}

fn is_alive(recipient: &Scratch) -> bool {
    recipient.connect().is_ok()
}

fn check_donor(connection: &mut Connection) -> Result<()> {
    let active = connection.query(
        "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'clone' AND PLUGIN_STATUS = 'ACTIVE'",
    )?;
    if active.single_text().as_deref() != Some("1") {
        return Err(Error::Refused(
            "the source has no clone plugin: INSTALL PLUGIN clone SONAME 'mysql_clone.so' there, or use --method snapshot".into(),
        ));
    }
    check_engines(connection)
}

/// The plugin makes tables of other engines empty ones, and says nothing.
fn check_engines(connection: &mut Connection) -> Result<()> {
    const NAMED_MAX: usize = 10;
    let others = connection.query(
        "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME, ' (', ENGINE, ')') FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' \
         AND ENGINE NOT IN ('InnoDB', 'MEMORY', 'BLACKHOLE', 'FEDERATED', 'MRG_MYISAM', 'PERFORMANCE_SCHEMA') \
         AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'performance_schema', 'information_schema') ORDER BY 1",
    )?;
    if others.rows.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = (0..others.rows.len().min(NAMED_MAX)).filter_map(|row| others.text_at(row, 0)).collect();
    Err(Error::Refused(format!(
        "the clone plugin copies tables of InnoDB only, and {} others would be empty in the base: {}. ALTER TABLE … ENGINE=InnoDB, or use --method \
         snapshot",
        others.rows.len(),
        names.join(", ")
    )))
}

/// The donor is reached over TCP, as the plugin demands.
fn address(work: &Work<'_>, connection: &mut Connection) -> Result<(String, u16)> {
    let refused = |error: spate_connection::endpoint::EndpointError| Error::Refused(error.to_string());
    match work.options.source.address().map_err(refused)? {
        Address::Tcp { host, port } => Ok((host, port)),
        Address::Unix(_) => {
            let rows = connection.query("SELECT @@global.port, @@global.skip_networking")?;
            let port = rows.text_at(0, 0).and_then(|text| text.parse().ok()).unwrap_or_default();
            match rows.text_at(0, 1).as_deref() {
                Some("0") => Ok(("127.0.0.1".into(), port)),
                _ => Err(Error::Refused(
                    "the source listens on no network, which its clone plugin needs: use --method snapshot".into(),
                )),
            }
        }
    }
}

fn initialize(work: &Work<'_>, base: &Base, data: &Path) -> Result<()> {
    let program = work.options.programs.server(&base.server)?;
    let mut command = crate::programs::dying_with_us(&program);
    command
        .arg("--no-defaults")
        .args(["--initialize-insecure", "--secure-file-priv=NULL"])
        .arg(format!("--datadir={}", data.display()));
    command.args(innodb_options(&base.server).iter().filter(|option| !option.contains("undo")));
    if let Some(value) = base.server.variables.get("lower_case_table_names") {
        command.arg(format!("--lower-case-table-names={value}"));
    }
    if rustix::process::geteuid().is_root() {
        command.arg("--user=root");
    }
    let output = command.stdin(Stdio::null()).output().map_err(|error| Error::program(&program, error.to_string()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        return Err(Error::program(
            program,
            format!("it cannot make an empty data directory ({}):\n{said}", output.status),
        ));
    }
    Ok(())
}

fn clone(work: &Work<'_>, recipient: &Scratch, host: &str, port: u16) -> Result<()> {
    let endpoint = &work.options.source;
    let refused = |error: spate_connection::endpoint::EndpointError| Error::Refused(error.to_string());
    let user = endpoint.user().map_err(refused)?.to_owned();
    let password = endpoint.password().map(|password| password.expose().to_owned()).unwrap_or_default();
    let mut session = recipient.connect()?;
    session.execute(
        format!("SET GLOBAL clone_valid_donor_list = {}", quote::text(&format!("{host}:{port}"))).as_bytes(),
    )?;
    let statement = format!(
        "CLONE INSTANCE FROM {}@{}:{port} IDENTIFIED BY {}",
        quote::text(&user),
        quote::text(host),
        quote::text(&password)
    );
    let handle = session.shutdown_handle()?;
    let over = AtomicBool::new(false);
    let cloned = std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            while !over.load(Ordering::Acquire) {
                if work.stop.load(Ordering::Acquire) {
                    return handle.shutdown();
                }
                std::thread::park_timeout(LOOK_EVERY);
            }
        });
        let cloned = session.execute(statement.as_bytes());
        over.store(true, Ordering::Release);
        watching.thread().unpark();
        cloned
    });
    match cloned {
        Err(_) if work.stop.load(Ordering::Acquire) => Err(Error::Stopped),
        Err(error) if error.code() == Some(CODE_RESTART_FAILED) => Ok(()),
        // It ends without an answer, too.
        Err(error) if error.server_error().is_none() && !is_alive(recipient) => Ok(()),
        Err(error) => Err(with_grant(error, "clone the source", "GRANT BACKUP_ADMIN ON *.* TO <the user of Spate>")),
        Ok(_) => Ok(()),
    }
}

/// Starts the clone once: its recovery finds out which transactions it holds. Then stops it cleanly.
fn position_of(work: &Work<'_>, base: &Base, data: &Path) -> Result<Position> {
    work.progress.begin("recovering the clone");
    let options = ScratchOptions { server_options: vec![PLUGIN.to_owned()], ..ScratchOptions::default() };
    let clone = Scratch::start(&work.options.programs, &base.server, data, &options, work.stop)?;
    let mut session = clone.connect()?;
    let status = session.query(
        "SELECT STATE, BINLOG_FILE, BINLOG_POSITION, GTID_EXECUTED, ERROR_MESSAGE FROM performance_schema.clone_status",
    )?;
    let text = |column| status.text_at(0, column).unwrap_or_default();
    if text(0) != "Completed" {
        return Err(Error::Refused(format!("the clone is not complete: {} {}", text(0), text(4))));
    }
    let gtid = text(3).replace(['\n', ' '], "");
    let offset = text(2).parse().unwrap_or_default();
    let file = text(1).rsplit('/').next().unwrap_or_default().to_owned();
    clone.drop_account()?;
    drop(session);
    clone.stop()?;
    Ok(Position { gtid, file, offset, server_seconds: 0 })
}
