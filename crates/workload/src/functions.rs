//! Functions that a replay does not call: they change a server or read its files, even in a session that reads only.

use spate_sql::{Token, TokenKind};

/// Families of functions of the server, its plugins and components. Sources: the vendors' lists of built-in and loadable functions.
const FAMILIES: [&str; 17] = [
    "asynchronous_connection_failover_",
    "audit_api_",
    "audit_log_",
    "firewall_",
    "gen_blocklist",
    "group_replication_",
    "keyring_",
    "lib_mysqludf_",
    "mask_",
    "masking_",
    "mysql_firewall_",
    "ps_",
    "service_",
    "sys_",
    "version_tokens_",
    "wsrep_",
    "option_tracker_",
];
const SINGLE: [&str; 14] = [
    "flush_rewrite_rules",
    "load_rewrite_rules",
    "load_file",
    "gen_dictionary_load",
    "gen_dictionary_drop",
    "master_pos_wait",
    "source_pos_wait",
    "master_gtid_wait",
    "wait_for_executed_gtid_set",
    "wait_until_sql_thread_after_gtids",
    "read_firewall_users",
    "read_firewall_groups",
    "read_firewall_group_allowlist",
    "set_firewall_mode",
];

/// Whether a text calls functions that are never replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// None of them.
    Harmless,
    /// One that changes the server, waits for replication, or reads a file.
    OfServer,
    /// One whose name a server may fold into that of another.
    Unclear,
}

/// Looks at all names with a parenthesis behind.
pub(crate) fn calls_of(tokens: &[Token<'_>]) -> Calls {
    let mut calls = Calls::Harmless;
    for pair in tokens.windows(2).filter(|pair| pair[1].is_mark(b'(')) {
        if !matches!(pair[0].kind, TokenKind::Word | TokenKind::Name | TokenKind::Quoted) {
            continue;
        }
        match pair[0].name() {
            Some(name) if is_of_server(&name.to_ascii_lowercase()) => return Calls::OfServer,
            Some(name) if name.is_ascii() => {}
            _ => calls = Calls::Unclear,
        }
    }
    calls
}

fn is_of_server(name: &str) -> bool {
    SINGLE.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}
