//! The part of the command line that says where source and replica are, and how the connections are secured.

#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags, reason = "these comments are the help's text")]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use clap::Args;
use spate_connection::endpoint::{Endpoint, OPTION_GROUPS, OptionFiles, PublicKey, Secret, TlsMode, TlsOptions};

use crate::{Failure, say};

/// Option files for both sides.
#[derive(Debug, Clone, Args)]
pub(crate) struct CommonArguments {
    /// Option file for both sides, as the vendors' clients read it: groups client, client-server, client-mariadb, spate, and
    /// spate-source or spate-replica
    #[arg(long, help_heading = "Connections", value_name = "FILE")]
    defaults_file: Option<PathBuf>,
    /// The same, read after /etc/my.cnf and /etc/mysql/my.cnf and before ~/.my.cnf
    #[arg(long, help_heading = "Connections", value_name = "FILE", conflicts_with = "defaults_file")]
    defaults_extra_file: Option<PathBuf>,
}

/// Arguments of one side. Clap wants the options' names as constants, so there is one type for each side.
macro_rules! side {
    ($name:ident, $side:literal, $variable:literal, $endpoint_help:literal) => {
        #[doc = concat!("The ", $side, ", and how it is reached.")]
        #[derive(Debug, Clone, Args)]
                pub(crate) struct $name {
            #[arg(id = $side, long = $side, help_heading = "Connections", value_name = "ENDPOINT", help = $endpoint_help)]
            endpoint: Option<String>,
            #[arg(id = concat!($side, "_defaults_file"), long = concat!($side, "-defaults-file"), help_heading = "Connections", value_name = "FILE",
                  help = concat!("Option file with user, password and the like for the ", $side, ". Without a password there, it \
                                  is taken from ", $variable))]
            defaults_file: Option<PathBuf>,
            #[arg(id = concat!($side, "_tls_mode"), long = concat!($side, "-tls-mode"), help_heading = "Connections", value_name = "MODE",
                  help = "TLS: disabled, preferred (if it is offered), required, verify-ca (with a server whose certificate an \
                          authority has issued), verify-identity (and to that host). Without it, what the other options imply: \
                          verify-ca with an authority; else preferred")]
            tls_mode: Option<TlsMode>,
            #[arg(id = concat!($side, "_tls_ca"), long = concat!($side, "-tls-ca"), help_heading = "Connections", value_name = "FILE",
                  help = "Certificates of the authorities that may have issued the server's (PEM file, or a directory of such)")]
            tls_ca: Option<PathBuf>,
            #[arg(id = concat!($side, "_tls_cert"), long = concat!($side, "-tls-cert"), help_heading = "Connections", value_name = "FILE",
                  help = "Our certificate (PEM), for accounts with REQUIRE X509")]
            tls_cert: Option<PathBuf>,
            #[arg(id = concat!($side, "_tls_key"), long = concat!($side, "-tls-key"), help_heading = "Connections", value_name = "FILE",
                  help = "The key to our certificate (PEM)")]
            tls_key: Option<PathBuf>,
            #[arg(id = concat!($side, "_public_key"), long = concat!($side, "-public-key"), help_heading = "Connections", value_name = "FILE|request",
                  help = "The server's RSA key (PEM), for caching_sha2_password without TLS; or request, to take the key that comes")]
            public_key: Option<PublicKey>,
            #[arg(id = concat!($side, "_allow_clear_password"), long = concat!($side, "-allow-clear-password"), help_heading = "Connections",
                  help = "Give the password itself over TLS to a server that has not proven its identity. Without it, such a \
                          server cannot use sha256_password, mysql_clear_password, or a caching_sha2_password that it has not \
                          cached")]
            allow_clear_password: bool,
        }

        impl $name {
            /// The server, with what option files and the environment add.
            pub(crate) fn endpoint(&self, common: &CommonArguments) -> Result<Endpoint, Failure> {
                let tls = TlsOptions {
                    mode: self.tls_mode,
                    authorities: self.tls_ca.clone(),
                    certificate: self.tls_cert.clone(),
                    key: self.tls_key.clone(),
                    ..TlsOptions::default()
                };
                // Not clap's business: it would repeat what it cannot read, and that may hold a password.
                let given: Endpoint = match &self.endpoint {
                    Some(text) => text.parse().map_err(|error| format!(concat!("--", $side, ": {}"), error))?,
                    None => Endpoint::default(),
                };
                let given = given
                    .with_tls(tls)
                    .with_public_key(self.public_key.clone())
                    .with_clear_password_allowed(self.allow_clear_password);
                complete(given, self.defaults_file.as_ref(), common, $side, $variable)
            }

            /// Another server, reached in the same way as this side.
            #[allow(dead_code, reason = "one side has no others")]
            pub(crate) fn another(&self, text: &str, common: &CommonArguments) -> Result<Endpoint, Failure> {
                $name { endpoint: Some(text.to_owned()), ..self.clone() }.endpoint(common)
            }

            /// True if the command line says anything of this side.
            #[allow(dead_code, reason = "one side may be left out")]
            pub(crate) fn is_named(&self) -> bool {
                self.endpoint.is_some() || self.defaults_file.is_some()
            }
        }
    };
}

side!(
    SourceArguments,
    "source",
    "SPATE_SOURCE_PASSWORD",
    "The source: [user@]host[:port] or [user@]/path/to/socket; without it, an option file says where it is"
);
side!(
    ReplicaArguments,
    "replica",
    "SPATE_REPLICA_PASSWORD",
    "The replica: [user@]host[:port] or [user@]/path/to/socket; without it, an option file says where it is"
);

side!(
    ServerArguments,
    "server",
    "SPATE_SERVER_PASSWORD",
    "The server: [user@]host[:port] or [user@]/path/to/socket; without it, an option file says where it is"
);

side!(
    CapturedArguments,
    "captured",
    "SPATE_CAPTURED_PASSWORD",
    "The server whose log tables hold the workload: [user@]host[:port] or [user@]/path/to/socket"
);

/// The account with which servers replicate from each other: the option files' group spate-replication, or the environment.
pub(crate) fn replication_password(common: &CommonArguments) -> Result<Option<Secret>, Failure> {
    const GROUPS: [&str; 1] = ["spate-replication"];
    let mut endpoint = Endpoint::default();
    if let Some(file) = &common.defaults_file {
        endpoint = endpoint.with_options(warned(OptionFiles::only(file, &GROUPS)?));
    }
    if let Some(file) = &common.defaults_extra_file {
        endpoint = endpoint.with_options(warned(OptionFiles::standard_and(file, &GROUPS)?));
    }
    Ok(endpoint.with_password_variable("SPATE_REPLICATION_PASSWORD")?.password().cloned())
}

/// The first of these wins: the command line, the side's own file, the files for both, the environment.
fn complete(
    mut endpoint: Endpoint,
    own_file: Option<&PathBuf>,
    common: &CommonArguments,
    side: &str,
    variable: &str,
) -> Result<Endpoint, Failure> {
    let own_group = format!("spate-{side}");
    let groups: Vec<&str> = OPTION_GROUPS.into_iter().chain([own_group.as_str()]).collect();
    if let Some(file) = own_file {
        endpoint = endpoint.with_options(warned(OptionFiles::only(file, &groups)?));
    }
    if let Some(file) = &common.defaults_file {
        endpoint = endpoint.with_options(warned(OptionFiles::only(file, &groups)?));
    }
    if let Some(file) = &common.defaults_extra_file {
        endpoint = endpoint.with_options(warned(OptionFiles::standard_and(file, &groups)?));
    }
    let endpoint = endpoint.with_password_variable(variable)?;
    endpoint.address().and_then(|_| endpoint.user()).map_err(|error| format!("the {side}: {error}"))?;
    Ok(endpoint)
}

/// Says what people should know of the files, once: both sides may read the same.
fn warned(files: OptionFiles) -> OptionFiles {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let mut said = SAID.lock().unwrap_or_else(PoisonError::into_inner);
    for warning in &files.warnings {
        if said.insert(warning.clone()) {
            say(&format!("spate: warning: {warning}"));
        }
    }
    drop(said);
    files
}
