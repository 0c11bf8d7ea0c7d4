//! Names of files in an archive's directory: Spate's own, and those that a source may choose.
//!
//! The name of a source's file comes over the network. It becomes the name of a local file, a line of the list, and
//! part of commands that people type. So it must stay in the directory, be printable text, and differ from Spate's own
//! names.

/// The list of the archive's files.
pub(crate) const LIST_NAME: &str = "archive.list";
/// The next list, before it replaces the current one.
pub(crate) const NEW_LIST_NAME: &str = "archive.list.new";
/// The file that the archive's writer locks.
pub(crate) const LOCK_NAME: &str = "archive.lock";
/// The socket over which a running `replicate` reports its status.
pub const STATUS_SOCKET_NAME: &str = "status.socket";
/// The suffix of an index's name.
pub(crate) const INDEX_SUFFIX: &str = ".index";

/// The file that names the archive among backups of archives.
pub const BACKUP_ID_NAME: &str = "backup.id";

const OWN_NAMES: [&str; 5] = [LIST_NAME, NEW_LIST_NAME, LOCK_NAME, STATUS_SOCKET_NAME, BACKUP_ID_NAME];

/// Longer than the names of any server, and short enough to append `.part2` and `.index`.
const SOURCE_NAME_BYTES_MAX: usize = 200;
/// A source's name with the number of a part. With `.index`, below the 255 bytes that file systems allow.
const LOCAL_NAME_BYTES_MAX: usize = SOURCE_NAME_BYTES_MAX + 40;

/// Checks that a source's binlog file can have this name in an archive.
///
/// # Errors
/// The reason for a refusal, for people. It escapes the control characters of the name, so a terminal does not obey
/// them.
pub fn check_source_name(name: &str) -> Result<(), String> {
    check(name, SOURCE_NAME_BYTES_MAX)
}

/// As [`check_source_name`], for the name of a local file.
pub(crate) fn check_local_name(name: &str) -> Result<(), String> {
    check(name, LOCAL_NAME_BYTES_MAX)
}

fn check(name: &str, bytes_max: usize) -> Result<(), String> {
    // Some file systems do not distinguish capital and small letters.
    let small = name.to_ascii_lowercase();
    let why = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > bytes_max {
        format!("it has {} bytes, more than {bytes_max}", name.len())
    } else if name.chars().any(char::is_control) {
        "it holds a control character".to_owned()
    } else if name.contains(['/', '\\']) {
        "it would lead to another directory".to_owned()
    } else if name.starts_with(['.', '-']) {
        "it begins with a dot or a hyphen".to_owned()
    } else if OWN_NAMES.contains(&small.as_str()) || small.ends_with(INDEX_SUFFIX) {
        "Spate needs that name for a file of its own".to_owned()
    } else {
        return Ok(());
    };
    let shown: String = name.chars().take(bytes_max).collect();
    Err(format!("{shown:?} cannot be the name of a file of the archive: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_would_leave_the_directory_or_hide_are_refused() {
        for name in
            ["", ".", "..", "../x", "a/b", "/etc/passwd", "a\\b", ".hidden", "-rf", "a\tb", "a\nb", "a\0b", "a\u{9b}b"]
        {
            assert!(check_source_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn own_names_are_refused() {
        for name in OWN_NAMES {
            let why = check_source_name(name).unwrap_err();
            assert!(why.contains(name) && why.contains("a file of its own"), "{why}");
        }
        for name in ["STATUS.SOCKET", "Archive.List", "bin.index", "bin.000001.index", "x.INDEX"] {
            assert!(check_source_name(name).is_err(), "{name}");
        }
        for name in ["mariadb-bin.000001", "status.000001", "archive.000001", "archive.log.000001", "bün.000001"] {
            assert_eq!(check_source_name(name), Ok(()));
        }
    }

    #[test]
    fn long_names_leave_room_for_the_number_of_a_part() {
        let longest = "x".repeat(SOURCE_NAME_BYTES_MAX);
        assert_eq!(check_source_name(&longest), Ok(()));
        assert_eq!(check_local_name(&format!("{longest}.part18446744073709551615")), Ok(()));
        assert!(check_source_name(&format!("{longest}x")).is_err());
        assert!(LOCAL_NAME_BYTES_MAX + INDEX_SUFFIX.len() <= 255);
    }

    #[test]
    fn refused_name_shows_no_control_characters() {
        let why = check_source_name("a\u{1b}[2Jb\nspate: all is well").unwrap_err();
        assert!(!why.chars().any(char::is_control), "{why:?}");
    }
}
