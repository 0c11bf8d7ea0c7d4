//! Clusters of MariaDB servers with Galera, on one machine.
//!
//! All nodes begin with the same data: the first one is started once as a cluster of its own, so that its data directory has the cluster's identity and place
//! (`grastate.dat`), stopped, and copied for each other node. A node that joins lacks only the cluster's last changes of members, which it gets without a state
//! transfer. Servers call a program all the same; ours is in the cluster's directory.

use std::fs;
use std::io::Write as _;
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::home::{self, copy_directory, copy_directory_whole, create_private_directory};
use crate::sandbox::{Lifetime, PROGRAMS, Sandbox, free_port};
use crate::server_options::ServerOptions;
use crate::vendor::Vendor;
use crate::version::ServerBinaries;
use crate::{Error, Result, threads};

/// Where Debian's package galera-4 has the library.
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
/// Names another one.
const PROVIDER_VARIABLE: &str = "SPATE_GALERA";
/// The program that servers call, by the name of its method.
const TRANSFER_PROGRAM: &str = include_str!("wsrep_sst_laboratory");
const TRANSFER_METHOD: &str = "laboratory";
/// How long a node may take to join.
const JOIN_LIMIT: Duration = Duration::from_secs(120);
/// Write sets that a node keeps for others, in MiB: more than a cluster of the laboratory writes while a node starts.
const CACHE_MIB: u32 = 128;
/// Appliers of each node, for each processor: what the Galera documentation advises to begin with.
const APPLIERS_PER_PROCESSOR: usize = 4;

/// A running cluster; ended when dropped.
#[derive(Debug)]
pub struct Cluster {
    /// Its nodes. The last one is dropped first, so that the others see it leave.
    pub nodes: Vec<Sandbox>,
}

/// The library that makes a server a node.
///
/// # Errors
/// [`Error::ServerNotInstalled`].
pub fn provider() -> Result<PathBuf> {
    let path = std::env::var_os(PROVIDER_VARIABLE).map_or_else(|| PathBuf::from(PROVIDER), PathBuf::from);
    if path.is_file() {
        return Ok(path);
    }
    Err(Error::ServerNotInstalled {
        server: "Galera 4".to_owned(),
        why: format!("there is no {}", path.display()),
        advice: "`./x setup --galera` installs it; on Debian it is the package galera-4. SPATE_GALERA names another library.",
    })
}

/// The name of a node, from 1, and of its directory.
pub(crate) fn node_name(number: usize) -> String {
    format!("node-{number}")
}

impl Cluster {
    /// Starts `count` nodes on copies of the data directory `frozen`, each in a directory below `directory`; or on their own data, if it is there.
    ///
    /// # Errors
    /// [`Error::ServerNotInstalled`] without Galera or on MySQL; those of starting servers; [`Error::TimedOut`] if a node does not join.
    pub fn start(
        binaries: &ServerBinaries,
        frozen: &Path,
        directory: &Path,
        count: usize,
        options: &ServerOptions,
        lifetime: Lifetime,
    ) -> Result<Cluster> {
        if binaries.vendor() != Vendor::MariaDb {
            return Err(Error::ServerNotInstalled {
                server: format!("Galera for {}", binaries.version),
                why: "its library fits MariaDB's servers".to_owned(),
                advice: "Use --server mariadb-10.11 or mariadb-11.8.",
            });
        }
        let provider = provider()?;
        create_private_directory(directory)?;
        write_transfer_program(&directory.join(PROGRAMS))?;
        write_certificate(directory)?;
        let place = |number: usize| directory.join(node_name(number));
        let data = |number: usize| place(number).join("data");
        if !data(1).is_dir() {
            let founding = directory.join("founding");
            home::remove_if_there(&founding)?;
            copy_directory(frozen, &founding.join("data"))?;
            // It gets its identity.
            let alone = node_options(options, &provider, 1, free_port(directory)?, &[], directory)?;
            let founder = Sandbox::start(binaries, &founding, &alone, Lifetime::Ours)?;
            wait_until_ready(&founder, 1)?;
            founder.stop()?;
            create_private_directory(&place(1))?;
            fs::rename(founding.join("data"), data(1)).map_err(Error::file("move to", &data(1)))?;
            home::remove_if_there(&founding)?;
        }
        // The node that stopped last has everything; the others join it, and new ones begin with its data.
        let refuse = |why: String| Error::Sandbox {
            name: directory.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            why,
        };
        let all = (1..).take_while(|number| data(*number).is_dir());
        let first = all.clone().find(|number| is_safe_to_begin_with(&data(*number))).ok_or_else(|| {
            refuse(format!(
                "its nodes were killed, so that none of them is known to have everything. If you know which one has, write `safe_to_bootstrap: 1` into its {}",
                data(1).join("grastate.dat").display()
            ))
        })?;
        if first > count {
            return Err(refuse(format!("{} stopped last and has everything: start {first} nodes", node_name(first))));
        }
        for number in (1..=count).filter(|number| !data(*number).is_dir()) {
            copy_directory_whole(&data(first), &data(number))?;
        }
        let order = std::iter::once(first).chain((1..=count).filter(|number| *number != first));
        let ports: Vec<u16> = (0..count).map(|_| free_port(directory)).collect::<Result<_>>()?;
        let mut nodes: Vec<(usize, Sandbox)> = Vec::new();
        for (members, (number, &port)) in order.zip(&ports).enumerate() {
            let options = node_options(options, &provider, number, port, &ports[..members], directory)?;
            let started = Sandbox::start(binaries, &place(number), &options, lifetime);
            let ready = started.and_then(|node| wait_until_ready(&node, members + 1).map(|()| node));
            match ready {
                Ok(node) => nodes.push((number, node)),
                // The first one stops last: it knows then that it has everything.
                Err(error) => {
                    nodes.into_iter().rev().for_each(|(_, node)| drop(node.stop()));
                    return Err(error);
                }
            }
        }
        nodes.sort_by_key(|(number, _)| *number);
        Ok(Cluster { nodes: nodes.into_iter().map(|(_, node)| node).collect() })
    }

    /// The nodes, each for itself.
    pub fn into_nodes(mut self) -> Vec<Sandbox> {
        std::mem::take(&mut self.nodes)
    }

    /// Waits until all nodes have applied what any of them has committed before.
    ///
    /// # Errors
    /// [`Error::Sql`].
    pub fn settle(&self) -> Result<()> {
        for node in &self.nodes {
            let mut session = node.connect()?;
            session.run("SET SESSION wsrep_sync_wait = 1")?;
            session.value::<u64>("SELECT COUNT(*) FROM information_schema.schemata")?;
        }
        Ok(())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        while let Some(node) = self.nodes.pop() {
            drop(node);
        }
    }
}

/// True if this node stopped last, or alone.
fn is_safe_to_begin_with(data: &Path) -> bool {
    fs::read_to_string(data.join("grastate.dat")).is_ok_and(|text| text.contains("safe_to_bootstrap: 1"))
}

fn write_transfer_program(directory: &Path) -> Result<()> {
    create_private_directory(directory)?;
    let path = directory.join(format!("wsrep_sst_{TRANSFER_METHOD}"));
    fs::write(&path, TRANSFER_PROGRAM).map_err(Error::file("write", &path))?;
    let mode = fs::Permissions::from_mode(0o700);
    fs::set_permissions(&path, mode).map_err(Error::file("set the mode of", &path))
}

/// The files of the cluster's key and its certificate. Only who has them becomes a member: one can do everything, on all nodes.
const KEY_FILE: &str = "cluster-key.pem";
const CERTIFICATE_FILE: &str = "cluster-certificate.pem";

/// Makes the cluster's certificate, unless it has one. It is its own authority.
fn write_certificate(directory: &Path) -> Result<()> {
    let (key, certificate) = (directory.join(KEY_FILE), directory.join(CERTIFICATE_FILE));
    if key.is_file() && certificate.is_file() {
        return Ok(());
    }
    let made = rcgen::generate_simple_self_signed(vec!["spate-lab".to_owned()]);
    let made = made.map_err(|error| Error::file("make", &certificate)(std::io::Error::other(error)))?;
    home::write_whole(&certificate, made.cert.pem().as_bytes())?;
    let mut file = home::half_written(&key, Some(0o600)).map_err(Error::file("write", &key))?;
    file.write_all(made.signing_key.serialize_pem().as_bytes()).map_err(Error::file("write", &key))?;
    file.persist(&key).map(drop).map_err(|error| Error::file("write", &key)(error.error))
}

/// The options of a node. `others`: the group ports of the nodes before it; without any, it founds the cluster.
fn node_options(
    options: &ServerOptions,
    provider: &Path,
    number: usize,
    port: u16,
    others: &[u16],
    directory: &Path,
) -> Result<ServerOptions> {
    let transfer = free_port(directory)?;
    let addresses: Vec<String> = others.iter().map(|port| format!("127.0.0.1:{port}")).collect();
    Ok(options
        .clone()
        .with("server-id", number)
        .with_options(every_node())
        .with("wsrep-on", 1)
        .with("wsrep-provider", provider.display())
        .with("wsrep-cluster-name", "spate-lab")
        .with("wsrep-node-name", node_name(number))
        .with("wsrep-node-address", "127.0.0.1")
        .with("wsrep-cluster-address", format!("gcomm://{}", addresses.join(",")))
        .with(
            "wsrep-provider-options",
            format!(
                "gmcast.listen_addr=ssl://127.0.0.1:{port};ist.recv_addr=ssl://127.0.0.1:{transfer};gcache.size={CACHE_MIB}M;\
                 socket.ssl=YES;socket.ssl_key={key};socket.ssl_cert={certificate};socket.ssl_ca={certificate};\
                 evs.suspect_timeout=PT30S;evs.inactive_timeout=PT60S",
                key = directory.join(KEY_FILE).display(),
                certificate = directory.join(CERTIFICATE_FILE).display(),
            ),
        )
        .with("wsrep-sst-method", TRANSFER_METHOD))
}

/// What all nodes have beyond the options of their servers, apart from names and addresses.
pub(crate) fn every_node() -> ServerOptions {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    ServerOptions::default()
        // Each node numbers what it applies by itself.
        .with("gtid-strict-mode", 0)
        .with("wsrep-slave-threads", APPLIERS_PER_PROCESSOR * processors)
        .with("innodb-autoinc-lock-mode", 2)
}

/// What a person needs to know of them.
pub(crate) fn in_words() -> String {
    format!(
        "{} gcache.size={CACHE_MIB}M, TLS between the nodes; the Galera documentation advises under \"Setting Parallel Slave Threads\" to begin with \
         {APPLIERS_PER_PROCESSOR} appliers for each core",
        every_node().arguments().collect::<Vec<_>>().join(" ")
    )
}

/// Waits until a node takes part in a cluster of so many.
fn wait_until_ready(node: &Sandbox, size: usize) -> Result<()> {
    let look = || match state_of(node) {
        Ok((ready, members)) if ready == "ON" && members == size.to_string() => Ok(Ok(())),
        Ok((ready, members)) => Ok(Err(format!("it has {members} members for it, ready: {ready}"))),
        // A node that receives its state ends connections, and one that cannot join ends itself.
        Err(error) => match node.blame(error) {
            ended @ Error::ServerCrashed { .. } => Err(ended),
            error => Ok(Err(error.to_string())),
        },
    };
    let joined = threads::wait_until(&format!("node {size} joining the cluster"), JOIN_LIMIT, look);
    joined.map_err(|error| match error {
        Error::TimedOut { what, limit, advice } => {
            let advice = format!("{advice}; the end of its error log:\n{}", node.log_tail());
            Error::TimedOut { what, limit, advice }
        }
        error => error,
    })
}

/// Whether a node is ready, and how many members it knows.
fn state_of(node: &Sandbox) -> Result<(String, String)> {
    let mut session = node.connect_while_starting()?;
    Ok((session.status_text("wsrep_ready")?, session.status_text("wsrep_cluster_size")?))
}
