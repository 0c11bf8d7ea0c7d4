//! What a server says of itself, in one question.

use std::collections::HashMap;
use std::net::IpAddr;

use spate_connection::endpoint::{Address, Endpoint};
use spate_connection::{Connection, Protection, ServerVersion, Vendor};
use spate_replica::Result;

/// The variables that the checks look at; a server answers with those that it has.
const VARIABLES: [&str; 32] = [
    "binlog_checksum",
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_row_image",
    "default_storage_engine",
    "default_week_format",
    "div_precision_increment",
    "enforce_gtid_consistency",
    "event_scheduler",
    "expire_logs_days",
    "explicit_defaults_for_timestamp",
    "group_concat_max_len",
    "gtid_mode",
    "gtid_strict_mode",
    "innodb_default_row_format",
    "innodb_page_size",
    "innodb_strict_mode",
    "local_infile",
    "log_bin",
    "log_bin_trust_function_creators",
    "lower_case_table_names",
    "max_allowed_packet",
    "max_binlog_size",
    "old_mode",
    "partial_revokes",
    "read_only",
    "server_id",
    "server_uuid",
    "slave_run_triggers_for_rbr",
    "sql_require_primary_key",
    "super_read_only",
];

#[derive(Debug)]
pub(super) struct Facts {
    pub(super) version: ServerVersion,
    variables: HashMap<String, String>,
    pub(super) protection: Protection,
    /// See [`Connection::withheld_password`].
    pub(super) withheld_password: Option<String>,
    /// The connection does not leave the machine.
    pub(super) is_near: bool,
    /// The account as the server knows it, quoted for a GRANT.
    pub(super) account: String,
}

impl Facts {
    pub(super) fn read(connection: &mut Connection, endpoint: &Endpoint) -> Result<Facts> {
        let names = VARIABLES.map(|name| format!("'{name}'")).join(",");
        let rows = connection.query(&format!("SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})"))?;
        let variables =
            (0..rows.rows.len()).filter_map(|row| Some((rows.text_at(row, 0)?, rows.text_at(row, 1)?))).collect();
        let account = connection.query("SELECT CURRENT_USER()")?.single_text().unwrap_or_default();
        Ok(Facts {
            version: connection.server_version().clone(),
            variables,
            protection: connection.protection().clone(),
            withheld_password: connection.withheld_password().map(str::to_owned),
            is_near: endpoint.address().is_ok_and(|address| is_near(&address)),
            account: quoted_account(&account),
        })
    }

    pub(super) fn is_mysql(&self) -> bool {
        self.version.vendor == Vendor::MySql
    }

    /// A variable; empty if the server has none of that name.
    pub(super) fn text(&self, name: &str) -> &str {
        debug_assert!(VARIABLES.contains(&name), "{name} is not asked for");
        self.variables.get(name).map_or("", String::as_str)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        debug_assert!(VARIABLES.contains(&name), "{name} is not asked for");
        self.variables.contains_key(name)
    }

    pub(super) fn is_on(&self, name: &str) -> bool {
        matches!(self.text(name), "ON" | "1")
    }

    pub(super) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    #[cfg(test)]
    pub(super) fn made_of(version: &str, variables: &[(&str, &str)]) -> Facts {
        Facts {
            version: ServerVersion::parse(version),
            variables: variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            protection: Protection::Local,
            withheld_password: None,
            is_near: true,
            account: "'spate'@'%'".to_owned(),
        }
    }
}

fn is_near(address: &Address) -> bool {
    match address {
        Address::Unix(_) => true,
        Address::Tcp { host, .. } if host == "localhost" => true,
        Address::Tcp { host, .. } => host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()),
    }
}

/// `spate@%` as `'spate'@'%'`; the host has no @, the user may have.
fn quoted_account(account: &str) -> String {
    let quote = |text: &str| format!("'{}'", text.replace('\'', "''"));
    match account.rsplit_once('@') {
        Some((user, host)) => format!("{}@{}", quote(user), quote(host)),
        None => quote(account),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_tell_accounts_and_local_addresses() {
        assert_eq!(quoted_account("a@b@10.0.0.%"), "'a@b'@'10.0.0.%'");
        assert_eq!(quoted_account("o'h@%"), "'o''h'@'%'");
        let near = |host: &str| is_near(&Address::Tcp { host: host.to_owned(), port: 1 });
        assert!(near("127.0.0.1") && near("::1") && near("localhost"));
        assert!(!near("10.0.0.1") && !near("db1"));
    }
}
