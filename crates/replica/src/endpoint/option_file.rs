//! The vendors' option files (`my.cnf`), as far as a client's connection needs them.
//!
//! The format is the one documented under "Option files" by both vendors: groups in brackets, `name=value` lines, `#` and
//! `;` comments (a `#` also ends an unquoted value), quotes around values, the escapes `\b \t \n \r \\ \s`, and the
//! directives `!include` and `!includedir`. A file that everyone may write to is refused, where the vendors' clients
//! ignore it: silently connecting without it would be worse.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{EndpointError, Secret};

/// `!include` within `!include`: deeper than anyone needs, and an end to files that include themselves.
const INCLUDE_DEPTH_MAX: usize = 10;
/// Writable by everyone.
const WORLD_WRITABLE: u32 = 0o002;

#[derive(Default)]
pub(super) struct Options {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) socket: Option<PathBuf>,
}

pub(super) fn read(path: &Path, groups: &[&str]) -> Result<Options, EndpointError> {
    let mut options = Options::default();
    read_into(&mut options, path, groups, 0)?;
    Ok(options)
}

fn unreadable(path: &Path, why: impl ToString) -> EndpointError {
    EndpointError::Unreadable { path: path.to_owned(), why: why.to_string() }
}

fn read_into(options: &mut Options, path: &Path, groups: &[&str], depth: usize) -> Result<(), EndpointError> {
    if depth > INCLUDE_DEPTH_MAX {
        return Err(unreadable(path, format!("included more than {INCLUDE_DEPTH_MAX} levels deep")));
    }
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
    if metadata.permissions().mode() & WORLD_WRITABLE != 0 {
        return Err(unreadable(path, "everyone may write to it; take that permission away (chmod o-w)"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    let mut wanted = false;
    for (index, line) in text.lines().enumerate() {
        let wrong = |why: String| EndpointError::OptionFile { path: path.to_owned(), line: index + 1, why };
        let line = line.trim();
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(directive) = line.strip_prefix('!') {
            include(options, directive, path, groups, depth).map_err(|error| match error {
                Include::Unknown => wrong("only !include and !includedir are known".to_owned()),
                Include::Failed(error) => error,
            })?;
        } else if let Some(rest) = line.strip_prefix('[') {
            let (group, _) = rest.split_once(']').ok_or_else(|| wrong("the [ is never closed".to_owned()))?;
            wanted = groups.contains(&group.trim());
        } else if wanted {
            options.set(line).map_err(wrong)?;
        }
    }
    Ok(())
}

enum Include {
    Unknown,
    Failed(EndpointError),
}

fn include(
    options: &mut Options,
    directive: &str,
    including: &Path,
    groups: &[&str],
    depth: usize,
) -> Result<(), Include> {
    let (name, target) = directive.split_once(char::is_whitespace).ok_or(Include::Unknown)?;
    let directory = including.parent().unwrap_or(Path::new("."));
    let target = directory.join(target.trim());
    let mut files = match name {
        "include" => vec![target],
        "includedir" => option_files_in(&target).map_err(Include::Failed)?,
        _ => return Err(Include::Unknown),
    };
    files.sort();
    for file in files {
        read_into(options, &file, groups, depth + 1).map_err(Include::Failed)?;
    }
    Ok(())
}

fn option_files_in(directory: &Path) -> Result<Vec<PathBuf>, EndpointError> {
    let entries = std::fs::read_dir(directory).map_err(|error| unreadable(directory, error))?;
    let paths: Result<Vec<PathBuf>, _> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(|error| unreadable(directory, error))?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "cnf"));
    Ok(paths)
}

impl Options {
    /// Takes one `name=value` line; names that a connection does not need are passed over.
    fn set(&mut self, line: &str) -> Result<(), String> {
        let line = without_comment(line);
        let (name, value) = match line.split_once('=') {
            Some((name, value)) => (name.trim(), Some(unquoted(value.trim()))),
            None => (line.trim(), None),
        };
        let name = name.strip_prefix("loose-").or_else(|| name.strip_prefix("loose_")).unwrap_or(name);
        if !["user", "password", "host", "port", "socket"].contains(&name) {
            return Ok(());
        }
        let value = value.ok_or_else(|| format!("option '{name}' has no value"))?;
        match name {
            "user" => self.user = Some(value),
            "password" => self.password = Some(Secret::new(value)),
            "host" => self.host = Some(value),
            "socket" => self.socket = Some(PathBuf::from(value)),
            _ => self.port = Some(value.parse().map_err(|_| "the port is not a number from 0 to 65535".to_owned())?),
        }
        self.port = self.port.filter(|port| *port != 0);
        Ok(())
    }
}

/// Cuts the line at a `#` that stands outside quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in line.char_indices() {
        match character {
            '#' if quote.is_none() && !escaped => return &line[..at],
            '\'' | '"' if !escaped && quote.is_none() => quote = Some(character),
            '\'' | '"' if !escaped && quote == Some(character) => quote = None,
            _ => {}
        }
        escaped = character == '\\' && !escaped;
    }
    line
}

fn unquoted(value: &str) -> String {
    let inner = ['\'', '"'].into_iter().find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote));
    let mut plain = String::with_capacity(value.len());
    let mut characters = inner.unwrap_or(value).chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            plain.push(character);
            continue;
        }
        match characters.next() {
            Some('b') => plain.push('\u{8}'),
            Some('t') => plain.push('\t'),
            Some('n') => plain.push('\n'),
            Some('r') => plain.push('\r'),
            Some('s') => plain.push(' '),
            Some(quoted @ ('\\' | '\'' | '"')) => plain.push(quoted),
            Some(other) => plain.extend(['\\', other]),
            None => plain.push('\\'),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(text: &str) -> Result<Options, EndpointError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my.cnf");
        std::fs::write(&path, text).unwrap();
        read(&path, &["client", "spate"])
    }

    fn password(line: &str) -> String {
        options(&format!("[client]\n{line}\n")).unwrap().password.unwrap().expose().to_owned()
    }

    #[test]
    fn passwords_are_read_as_the_vendors_read_them() {
        assert_eq!(password("password=plain"), "plain");
        assert_eq!(password("  password =  two words "), "two words");
        assert_eq!(password("password='with # hash' # and comment"), "with # hash");
        assert_eq!(password("password=\"it's\""), "it's");
        assert_eq!(password("password=cut#here"), "cut");
        assert_eq!(password("password=a\\sb\\\\c\\td"), "a b\\c\td");
        assert_eq!(password("password=a=b=="), "a=b==");
        assert_eq!(password("loose-password=x"), "x");
        assert_eq!(password("password="), "");
    }

    #[test]
    fn groups_and_order() {
        let found = options("user=nobody\n[mysqld]\nuser=mysql\n[client]\nuser=a\nport=0\n; x\n[spate]\nuser=b\nssl\n")
            .unwrap();
        assert_eq!(found.user.as_deref(), Some("b"));
        assert_eq!(found.port, None);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line) in
            [("[client\n", 1), ("[client]\nport=x\n", 2), ("[client]\n\npassword\n", 3), ("!what a\n", 1)]
        {
            match options(text) {
                Err(EndpointError::OptionFile { line: found, .. }) => assert_eq!(found, line),
                other => panic!("{text:?}: {:?}", other.err()),
            }
        }
        let missing = read(Path::new("/nowhere/my.cnf"), &["client"]).err().unwrap();
        assert!(missing.to_string().contains("/nowhere/my.cnf"), "{missing}");
    }

    #[test]
    fn a_file_that_everyone_may_write_to_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my.cnf");
        std::fs::write(&path, "[client]\nuser=a\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(read(&path, &["client"]).err().unwrap().to_string().contains("chmod o-w"));
    }

    #[test]
    fn includes() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        let path = write("my.cnf", "!include more.cnf\n!includedir more.d\n");
        write("more.cnf", "[client]\nuser=a\nport=1\n");
        write("more.d/2.cnf", "[client]\nuser=c\n");
        write("more.d/1.cnf", "[client]\nuser=b\n");
        write("more.d/3.txt", "[client]\nuser=d\n");
        let found = read(&path, &["client"]).unwrap();
        assert_eq!((found.user.as_deref(), found.port), (Some("c"), Some(1)));
        let endless = write("loop.cnf", "!include loop.cnf\n");
        assert!(read(&endless, &["client"]).err().unwrap().to_string().contains("levels deep"));
    }
}
