//! Makes a base backup: one consistent state of a server, with its exact place in the binlog.

mod clone;
mod mariadb_backup;
mod snapshot;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::Timestamp;
use spate_archive::stopping_point;
use spate_connection::endpoint::Endpoint;
use spate_connection::{ConnectOptions, Connection, Vendor};
use spate_replica::asking;

use crate::error::{Error, Result};
use crate::facts;
use crate::manifest::{self, Base, Method, Position};
use crate::place::Place;
use crate::programs::Programs;
use crate::progress::Progress;
use crate::sealing::Recipients;
use crate::target::Target;

pub use snapshot::Hook;

/// How to make a base.
#[derive(Debug)]
pub struct BaseOptions {
    /// The server.
    pub source: Endpoint,
    /// How. `None`: by the vendor's own means.
    pub method: Option<Method>,
    /// Who may restore it.
    pub recipients: Recipients,
    /// Where the server's programs are.
    pub programs: Programs,
    /// For a copy of the data, where the method needs one. `None`: the system's directory for temporary files.
    pub work_directory: Option<PathBuf>,
    /// Makes a file system's snapshot.
    pub hook: Option<Hook>,
}

/// What every method works with.
struct Work<'a> {
    options: &'a BaseOptions,
    target: &'a Target,
    progress: &'a Progress,
    stop: &'a AtomicBool,
    /// A directory of ours, removed at the end.
    directory: &'a Path,
}

/// Makes a base, and returns what is known of it.
///
/// # Errors
/// Any; then nothing is left of it in the target but what the next [`crate::keep::prune`] removes.
pub fn make(options: &BaseOptions, target: &Target, progress: &Progress, stop: &AtomicBool) -> Result<Base> {
    let began = Timestamp::now();
    let mut connection = asking::connect(&options.source, &ConnectOptions::new("source"))?;
    let server = facts::ask(&mut connection)?;
    let method = choose(options, server.vendor())?;
    let mut base = Base::new(manifest::new_id(began)?, began, method, server);
    base.has_own_schema = facts::has_own_schema(&mut connection)?;
    base.is_encrypted = !options.recipients.is_empty();
    let parent = options.work_directory.clone().unwrap_or_else(std::env::temp_dir);
    let place = Place::within(&parent, "spate-base-")?;
    let work = Work { options, target, progress, stop, directory: place.path() };
    if base.server.vendor() == Vendor::MySql {
        check_tablespaces(&mut connection, &base)?;
    }
    let made = match method {
        Method::MariadbBackup => mariadb_backup::make(&work, &mut base, &mut connection),
        Method::Clone => clone::make(&work, &mut base, &mut connection),
        Method::Snapshot => snapshot::make(&work, &mut base, &mut connection),
    };
    let finished = made.and_then(|()| {
        check_position(&base.position, &base.id)?;
        base.ended = Timestamp::now();
        stopping_point("before-base-manifest");
        base.write(target)
    });
    if let Err(error) = finished {
        remove_unfinished(target, &base);
        return Err(error);
    }
    stopping_point("after-base-manifest");
    Ok(base)
}

fn choose(options: &BaseOptions, vendor: Vendor) -> Result<Method> {
    let usual = match vendor {
        Vendor::MariaDb => Method::MariadbBackup,
        Vendor::MySql => Method::Clone,
    };
    let method = options.method.unwrap_or(if options.hook.is_some() { Method::Snapshot } else { usual });
    match (method, vendor) {
        (Method::MariadbBackup, Vendor::MySql) => {
            Err(Error::Refused("mariadb-backup cannot read MySQL's data: use --method clone or snapshot".into()))
        }
        (Method::Clone, Vendor::MariaDb) => {
            Err(Error::Refused("MariaDB has no clone plugin: use --method mariadb-backup or snapshot".into()))
        }
        (Method::Snapshot, _) if options.hook.is_none() => {
            Err(Error::Refused("--method snapshot needs --hook COMMAND, which takes the snapshot".into()))
        }
        _ => Ok(method),
    }
}

/// MySQL keeps in its dictionary where tablespaces are: a recovered server would look for them there.
fn check_tablespaces(connection: &mut Connection, base: &Base) -> Result<()> {
    let files = connection.query(
        "SELECT DISTINCT FILE_NAME FROM information_schema.FILES WHERE FILE_TYPE IN ('TABLESPACE', 'UNDO LOG')",
    )?;
    let data = Path::new(&base.server.data_directory);
    for row in 0..files.rows.len() {
        let name = files.text_at(row, 0).unwrap_or_default();
        let path = Path::new(&name);
        let is_outside = name.contains("..") || path.is_absolute() && !path.starts_with(data);
        if is_outside {
            return Err(Error::Refused(format!(
                "the tablespace {name} is outside the data directory, and a recovered server would look for it there: ALTER TABLE … moves its table"
            )));
        }
    }
    Ok(())
}

fn check_position(position: &Position, id: &str) -> Result<()> {
    let readable = position.gtid.parse::<spate_binlog::GtidPosition>();
    readable.map_err(|error| Error::Refused(format!("the position of the base {id} cannot be read: {error}")))?;
    if !position.file.is_empty() {
        spate_archive::check_source_name(&position.file).map_err(Error::Refused)?;
    }
    Ok(())
}

/// What cannot be removed now is removed by the next prune.
fn remove_unfinished(target: &Target, base: &Base) {
    for listed in target.list(&base.place()).unwrap_or_default() {
        let _left = target.delete(&listed.name);
    }
}

impl Work<'_> {
    fn store(&self, base: &mut Base, stream: &mut dyn std::io::Read) -> Result<()> {
        let place = base.place();
        base.chunks =
            crate::chunks::write(stream, self.target, &place, &self.options.recipients, self.progress, self.stop)?;
        stopping_point("after-base-data");
        Ok(())
    }

    /// Stores a directory as a tar stream, without what belongs to a running server only.
    fn store_directory(&self, base: &mut Base, directory: &Path) -> Result<()> {
        let files = crate::tree::files(directory, self.stop)?;
        self.progress.expect(files.iter().map(|file| file.bytes).sum());
        self.progress.begin("storing the data");
        let (mut reader, writer) = std::io::pipe().map_err(Error::file("a pipe"))?;
        std::thread::scope(|scope| {
            let packing = scope.spawn(move || crate::tree::pack(directory, &files, writer));
            let stored = self.store(base, &mut reader);
            drop(reader);
            let packed = packing.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            // A store that fails breaks the pipe: its own error says more.
            stored?;
            packed
        })
    }
}

/// Whether a failure of the server means that a privilege is missing, in words that help.
fn with_grant(error: spate_connection::Error, what: &'static str, grant: &'static str) -> Error {
    Error::from(spate_replica::Error::from(error).with_missing_privilege(what, grant))
}

/// Waits until `done`, and looks whether somebody wants to stop meanwhile.
fn wait_until(stop: &AtomicBool, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    const LOOK_EVERY: Duration = Duration::from_millis(50);
    while !done()? {
        if stop.load(std::sync::atomic::Ordering::Acquire) {
            return Err(Error::Stopped);
        }
        std::thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

/// The size of all tables, as far as the server knows it.
fn data_bytes(connection: &mut Connection) -> u64 {
    let asked = connection.query(
        "SELECT CAST(COALESCE(SUM(DATA_LENGTH + INDEX_LENGTH), 0) AS UNSIGNED) FROM information_schema.TABLES \
         WHERE TABLE_TYPE = 'BASE TABLE'",
    );
    asked.ok().and_then(|rows| rows.single_text()).and_then(|text| text.parse().ok()).unwrap_or_default()
}
