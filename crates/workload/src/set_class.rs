//! What a SET may do. Only known variables of the session are set; what changes how texts are read never is.

use spate_sql::{Token, TokenKind};

use crate::class::Class;
use crate::reading::SessionReading;

/// Variables of a session that change what its statements give, how long they may take, or how they are executed, and nothing else.
const OF_SESSION: [&str; 73] = [
    "autocommit",
    "big_tables",
    "character_set_connection",
    "character_set_results",
    "collation_connection",
    "completion_type",
    "cte_max_recursion_depth",
    "default_week_format",
    "div_precision_increment",
    "end_markers_in_json",
    "eq_range_index_dive_limit",
    "explicit_defaults_for_timestamp",
    "foreign_key_checks",
    "group_concat_max_len",
    "histogram_size",
    "idle_transaction_timeout",
    "innodb_lock_wait_timeout",
    "insert_id",
    "interactive_timeout",
    "join_buffer_size",
    "join_cache_level",
    "last_insert_id",
    "lc_messages",
    "lc_time_names",
    "lock_wait_timeout",
    "low_priority_updates",
    "max_delayed_threads",
    "max_error_count",
    "max_execution_time",
    "max_heap_table_size",
    "max_join_size",
    "max_length_for_sort_data",
    "max_points_in_geometry",
    "max_recursive_iterations",
    "max_seeks_for_key",
    "max_sort_length",
    "max_statement_time",
    "min_examined_row_limit",
    "mrr_buffer_size",
    "net_read_timeout",
    "net_retry_count",
    "net_write_timeout",
    "optimizer_prune_level",
    "optimizer_search_depth",
    "optimizer_selectivity_sampling_limit",
    "optimizer_switch",
    "optimizer_use_condition_selectivity",
    "profiling",
    "query_cache_type",
    "query_prealloc_size",
    "range_optimizer_max_mem_size",
    "read_buffer_size",
    "read_rnd_buffer_size",
    "rand_seed1",
    "rand_seed2",
    "session_track_gtids",
    "session_track_schema",
    "session_track_state_change",
    "session_track_system_variables",
    "session_track_transaction_info",
    "sort_buffer_size",
    "sql_auto_is_null",
    "sql_big_selects",
    "sql_notes",
    "sql_quote_show_create",
    "sql_safe_updates",
    "sql_select_limit",
    "sql_warnings",
    "time_zone",
    "timestamp",
    "tmp_table_size",
    "unique_checks",
    "wait_timeout",
];
const ISOLATION: [&str; 2] = ["transaction_isolation", "tx_isolation"];
/// Modes that do not change how a text is read.
const MODES: [&str; 18] = [
    "ALLOW_INVALID_DATES",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "HIGH_NOT_PRECEDENCE",
    "NO_AUTO_CREATE_USER",
    "NO_AUTO_VALUE_ON_ZERO",
    "NO_DIR_IN_CREATE",
    "NO_ENGINE_SUBSTITUTION",
    "NO_UNSIGNED_SUBTRACTION",
    "NO_ZERO_DATE",
    "NO_ZERO_IN_DATE",
    "ONLY_FULL_GROUP_BY",
    "PAD_CHAR_TO_FULL_LENGTH",
    "PIPES_AS_CONCAT",
    "REAL_AS_FLOAT",
    "STRICT_ALL_TABLES",
    "STRICT_TRANS_TABLES",
    "TIME_TRUNCATE_FRACTIONAL",
    "TRADITIONAL",
];
/// Character sets whose texts are read as UTF-8 is.
const CHARSETS: [&str; 3] = ["utf8mb4", "utf8mb3", "utf8"];
const OF_TRANSACTION: [&str; 11] = [
    "TRANSACTION",
    "SESSION",
    "LOCAL",
    "ISOLATION",
    "LEVEL",
    "READ",
    "COMMITTED",
    "UNCOMMITTED",
    "REPEATABLE",
    "SERIALIZABLE",
    "ONLY",
];

/// The class of a SET; `tokens` begin behind that word.
pub(crate) fn class_of_set(tokens: &[Token<'_>], reading: &SessionReading) -> Class {
    let is_scope = |token: &Token<'_>| token.is_one_of(&["SESSION", "LOCAL"]);
    let behind_scope = &tokens[usize::from(tokens.first().is_some_and(is_scope))..];
    if behind_scope.first().is_some_and(|token| token.is("TRANSACTION")) {
        let is_known = |token: &&Token<'_>| token.is_one_of(&OF_TRANSACTION) || token.is_mark(b',');
        return match tokens.iter().find(|token| !is_known(token)) {
            None => Class::Session,
            // A session that reads only stays so.
            Some(other) if other.is("WRITE") => Class::Write,
            Some(_) => Class::Server,
        };
    }
    let mut depth = 0_i64;
    let items = tokens.split(|token| {
        depth += i64::from(token.is_mark(b'(')) - i64::from(token.is_mark(b')'));
        depth == 0 && token.is_mark(b',')
    });
    items.map(|item| class_of_item(item, reading)).max().unwrap_or(Class::Server)
}

fn class_of_item(item: &[Token<'_>], reading: &SessionReading) -> Class {
    match item {
        [at, variable, rest @ ..] if at.is_mark(b'@') && !variable.is_mark(b'@') => {
            let is_variable = matches!(variable.kind, TokenKind::Variable | TokenKind::Text | TokenKind::Quoted);
            if is_variable && value(rest).is_some() { Class::Session } else { Class::Server }
        }
        [one, other, scope, dot, rest @ ..] if one.is_mark(b'@') && other.is_mark(b'@') && dot.is_mark(b'.') => {
            let name = scope.name().unwrap_or_default();
            let is_of_session = ["session", "local"].iter().any(|scope| name.eq_ignore_ascii_case(scope));
            if is_of_session { class_of_variable(rest, reading) } else { Class::Server }
        }
        [one, other, rest @ ..] if one.is_mark(b'@') && other.is_mark(b'@') => class_of_variable(rest, reading),
        [names, charset, rest @ ..] if names.is_one_of(&["NAMES", "CHARSET"]) => class_of_charset(charset, rest),
        [character, set, charset, rest @ ..] if character.is_one_of(&["CHARACTER", "CHAR"]) && set.is("SET") => {
            class_of_charset(charset, rest)
        }
        [scope, rest @ ..] if scope.is_one_of(&["SESSION", "LOCAL"]) => class_of_variable(rest, reading),
        _ => class_of_variable(item, reading),
    }
}

/// What is behind `=` or `:=`, if there is anything.
fn value<'a, 'b>(tokens: &'a [Token<'b>]) -> Option<&'a [Token<'b>]> {
    match tokens {
        [equal, value @ ..] if equal.is_mark(b'=') && !value.is_empty() => Some(value),
        [colon, equal, value @ ..] if colon.is_mark(b':') && equal.is_mark(b'=') && !value.is_empty() => Some(value),
        _ => None,
    }
}

fn class_of_variable(tokens: &[Token<'_>], reading: &SessionReading) -> Class {
    let [name, rest @ ..] = tokens else { return Class::Server };
    let (Some(name), Some(value)) = (name.name(), value(rest)) else { return Class::Server };
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "sql_mode" if reading.is_plain() && value.len() == 1 && is_plain_mode(&value[0]) => Class::Session,
        "sql_mode" => Class::Unclear,
        "character_set_client" => class_of_charset(&value[0], &value[1..]),
        "tx_read_only" | "transaction_read_only" => Class::Write,
        name if OF_SESSION.contains(&name) || ISOLATION.contains(&name) => Class::Session,
        _ => Class::Server,
    }
}

fn is_plain_mode(value: &Token<'_>) -> bool {
    let Some(text) = value.unquoted().filter(|_| value.kind == TokenKind::Text) else { return false };
    text.is_empty() || text.split(',').all(|name| MODES.iter().any(|mode| mode.eq_ignore_ascii_case(name)))
}

/// `utf8mb4 [COLLATE utf8mb4_bin]`.
fn class_of_charset(charset: &Token<'_>, rest: &[Token<'_>]) -> Class {
    let is_word = matches!(charset.kind, TokenKind::Word | TokenKind::Text);
    let name = charset.unquoted().unwrap_or_default();
    let is_utf8 = is_word && CHARSETS.iter().any(|charset| charset.eq_ignore_ascii_case(&name));
    let is_whole = match rest {
        [] => true,
        [collate, name] => collate.is("COLLATE") && matches!(name.kind, TokenKind::Word | TokenKind::Text),
        _ => false,
    };
    if is_utf8 && is_whole { Class::Session } else { Class::Unclear }
}
