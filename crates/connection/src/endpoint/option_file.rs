//! The vendors' option files (`my.cnf`): the options that a client's connection needs.
//!
//! Both vendors document the format under "Option files": groups in brackets, `name=value` lines, `#` and `;` comments
//! (a `#` also ends an unquoted value), quotes around values, the escapes `\b \t \n \r \\ \s`, the prefixes `loose-`,
//! `skip-`, `disable-` and `enable-`, and the directives `!include` and `!includedir`.
//!
//! If every account of the machine may write to a file, Spate skips it with a warning, as the vendors' clients do. If
//! the user named that file, Spate refuses it: a connection without its options, such as how to verify the server,
//! would be worse. If every account may read a file with a password, Spate uses it, as the vendors' clients do, and
//! warns.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::{EndpointError, PublicKey, Secret, TlsOptions};

/// Limit of nested `!include` directives. It stops a file that includes itself.
const INCLUDE_DEPTH_MAX: usize = 10;
/// Writable by everyone.
const WORLD_WRITABLE: u32 = 0o002;
/// Readable by everyone.
const WORLD_READABLE: u32 = 0o004;

/// The standard files of the vendors' clients; the user's own file comes after these.
const STANDARD_FILES: [&str; 2] = ["/etc/my.cnf", "/etc/mysql/my.cnf"];

/// The options of the files that were read.
#[derive(Debug, Default)]
pub struct OptionFiles {
    pub(super) user: Option<String>,
    pub(super) password: Option<Secret>,
    pub(super) host: Option<String>,
    pub(super) port: Option<u16>,
    pub(super) socket: Option<PathBuf>,
    pub(super) tls: TlsOptions,
    pub(super) public_key: Option<PublicKey>,
    over_tcp: bool,
    /// True while standard files are read, which the user did not name: files that cannot be trusted are skipped.
    are_standard: bool,
    /// Warnings about the files, for people.
    pub warnings: Vec<String>,
}

impl OptionFiles {
    /// Reads the given groups of one file, as `--defaults-file` does. Later lines override earlier ones.
    ///
    /// # Errors
    /// [`EndpointError::Unreadable`] and [`EndpointError::OptionFile`].
    pub fn only(path: &Path, groups: &[&str]) -> Result<OptionFiles, EndpointError> {
        let mut options = OptionFiles::default();
        read_into(&mut options, path, groups, 0)?;
        Ok(options.settled())
    }

    /// Reads the standard files, then `extra`, then the user's own file, as `--defaults-extra-file` does. Later files
    /// override earlier ones.
    ///
    /// # Errors
    /// For `extra` those of [`OptionFiles::only`]; for the other files [`EndpointError::OptionFile`].
    pub fn standard_and(extra: &Path, groups: &[&str]) -> Result<OptionFiles, EndpointError> {
        let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".my.cnf"));
        let before: Vec<PathBuf> = STANDARD_FILES.into_iter().map(PathBuf::from).collect();
        OptionFiles::of(&before, extra, home.as_deref(), groups)
    }

    fn of(
        before: &[PathBuf],
        extra: &Path,
        after: Option<&Path>,
        groups: &[&str],
    ) -> Result<OptionFiles, EndpointError> {
        let mut options = OptionFiles::default();
        for path in before {
            options.read_if_there(path, groups)?;
        }
        read_into(&mut options, extra, groups, 0)?;
        if let Some(path) = after {
            options.read_if_there(path, groups)?;
        }
        Ok(options.settled())
    }

    fn read_if_there(&mut self, path: &Path, groups: &[&str]) -> Result<(), EndpointError> {
        if std::fs::File::open(path).is_err() {
            return Ok(());
        }
        self.are_standard = true;
        let done = read_into(self, path, groups, 0);
        self.are_standard = false;
        done
    }

    fn settled(mut self) -> OptionFiles {
        self.socket = self.socket.filter(|_| !self.over_tcp);
        self
    }
}

fn unreadable(path: &Path, why: impl ToString) -> EndpointError {
    EndpointError::Unreadable { path: path.to_owned(), why: why.to_string() }
}

fn read_into(options: &mut OptionFiles, path: &Path, groups: &[&str], depth: usize) -> Result<(), EndpointError> {
    if depth > INCLUDE_DEPTH_MAX {
        return Err(unreadable(path, format!("included more than {INCLUDE_DEPTH_MAX} levels deep")));
    }
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
    // The permissions of a pipe, such as a shell's process substitution, do not matter.
    let mode = if metadata.is_file() { metadata.permissions().mode() } else { 0 };
    if mode & WORLD_WRITABLE != 0 {
        if options.are_standard {
            let why = "everyone may write to it; remove that permission (chmod o-w)";
            options.warnings.push(format!("option file {} is ignored: {why}", path.display()));
            return Ok(());
        }
        return Err(EndpointError::WorldWritable { path: path.to_owned() });
    }
    let text = std::fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    let (mut wanted, mut has_password) = (false, false);
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
            has_password |= option_name(line) == "password";
            options.set(line).map_err(wrong)?;
        }
    }
    if has_password && mode & WORLD_READABLE != 0 {
        let why = "every account of this machine may read the password in it; remove that permission (chmod o-r)";
        options.warnings.push(format!("option file {}: {why}", path.display()));
    }
    Ok(())
}

/// The name of the option in a line, in the vendors' spelling.
fn option_name(line: &str) -> String {
    let line = without_comment(line);
    let name = line.split_once('=').map_or(line, |(name, _)| name).trim().replace('_', "-");
    name.strip_prefix("loose-").unwrap_or(&name).to_owned()
}

enum Include {
    Unknown,
    Failed(EndpointError),
}

fn include(
    options: &mut OptionFiles,
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

/// Options for checks of the server that Spate does not support.
const UNKNOWN_CHECKS: [&str; 4] = ["ssl-crl", "ssl-crlpath", "ssl-fp", "ssl-fplist"];

impl OptionFiles {
    /// Sets the option of one `name=value` line; ignores names that a connection does not need.
    fn set(&mut self, line: &str) -> Result<(), String> {
        let name = option_name(line);
        let name = name.as_str();
        let value = without_comment(line).split_once('=').map(|(_, value)| unquoted(value.trim()));
        if let Some(is_set) = self.set_switch(name, value.as_deref()) {
            return is_set;
        }
        if UNKNOWN_CHECKS.contains(&name) {
            return Err(format!("Spate does not support the check of the server that '{name}' requires; use ssl-ca"));
        }
        let known = ["user", "password", "host", "port", "socket", "protocol", "server-public-key-path"];
        let known_of_tls = ["ssl-mode", "ssl-ca", "ssl-capath", "ssl-cert", "ssl-key"];
        if !known.contains(&name) && !known_of_tls.contains(&name) {
            return Ok(());
        }
        let value = value.ok_or_else(|| format!("option '{name}' has no value"))?;
        let path = || Some(PathBuf::from(&value)).filter(|path| !path.as_os_str().is_empty());
        match name {
            "user" => self.user = Some(value),
            "password" => self.password = Some(Secret::new(value)),
            "host" => self.host = Some(value),
            "socket" => self.socket = path(),
            "protocol" => self.over_tcp = value.eq_ignore_ascii_case("tcp"),
            "server-public-key-path" => self.public_key = path().map(PublicKey::File),
            "ssl-mode" => self.tls.mode = Some(value.parse().map_err(|why| format!("{name}: {why}"))?),
            "ssl-ca" | "ssl-capath" => self.tls.authorities = path(),
            "ssl-cert" => self.tls.certificate = path(),
            "ssl-key" => self.tls.key = path(),
            _ => {
                let port: u16 = value.parse().map_err(|_| "the port is not a number from 0 to 65535".to_owned())?;
                self.port = Some(port).filter(|port| *port != 0);
            }
        }
        Ok(())
    }

    /// Sets an option that is on or off; `None` if it is another option.
    fn set_switch(&mut self, name: &str, value: Option<&str>) -> Option<Result<(), String>> {
        let (name, is_inverted) = match name.strip_prefix("skip-").or_else(|| name.strip_prefix("disable-")) {
            Some(name) => (name, true),
            None => (name.strip_prefix("enable-").unwrap_or(name), false),
        };
        if !["ssl", "ssl-verify-server-cert", "get-server-public-key"].contains(&name) {
            return None;
        }
        let is_on = match value.map(str::to_ascii_lowercase).as_deref() {
            None | Some("1" | "on" | "true" | "yes") => !is_inverted,
            Some("0" | "off" | "false" | "no") => is_inverted,
            Some(_) => return Some(Err(format!("option '{name}' is on or off"))),
        };
        match name {
            "ssl" => self.tls.ssl = Some(is_on),
            "ssl-verify-server-cert" => self.tls.verify = Some(is_on),
            _ => self.public_key = is_on.then_some(PublicKey::Request),
        }
        Some(Ok(()))
    }
}

/// Cuts the line at a `#` outside quotes.
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

    fn options(text: &str) -> Result<OptionFiles, EndpointError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my.cnf");
        std::fs::write(&path, text).unwrap();
        OptionFiles::only(&path, &["client", "spate"])
    }

    fn password(line: &str) -> String {
        options(&format!("[client]\n{line}\n")).unwrap().password.unwrap().expose().to_owned()
    }

    #[test]
    fn password_in_option_file_is_read_as_vendors_read_it() {
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
    fn option_file_later_group_wins() {
        let found = options("user=nobody\n[mysqld]\nuser=mysql\n[client]\nuser=a\nport=0\n; x\n[spate]\nuser=b\nssl\n")
            .unwrap();
        assert_eq!(found.user.as_deref(), Some("b"));
        assert_eq!(found.port, None);
    }

    #[test]
    fn option_file_error_names_the_line() {
        for (text, line) in
            [("[client\n", 1), ("[client]\nport=x\n", 2), ("[client]\n\npassword\n", 3), ("!what a\n", 1)]
        {
            match options(text) {
                Err(EndpointError::OptionFile { line: found, .. }) => assert_eq!(found, line),
                other => panic!("{text:?}: {:?}", other.err()),
            }
        }
        let missing = OptionFiles::only(Path::new("/nowhere/my.cnf"), &["client"]).err().unwrap();
        assert!(missing.to_string().contains("/nowhere/my.cnf"), "{missing}");
    }

    #[test]
    fn world_writable_named_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my.cnf");
        std::fs::write(&path, "[client]\nuser=a\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(OptionFiles::only(&path, &["client"]).err().unwrap().to_string().contains("chmod o-w"));
    }

    #[test]
    fn world_readable_password_file_warns() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("my.cnf");
        let warnings = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            OptionFiles::only(&path, &["client"]).unwrap().warnings
        };
        for text in ["[client]\npassword=x\n", "[client]\nloose_password = x # y\nuser=a\n"] {
            let found = warnings(text, 0o644);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].contains("my.cnf") && found[0].contains("chmod o-r"), "{}", found[0]);
            assert!(warnings(text, 0o640).is_empty() && warnings(text, 0o600).is_empty());
        }
        assert!(warnings("[client]\nuser=a\n[other]\npassword=x\n", 0o644).is_empty());
    }

    #[test]
    fn standard_file_skips_untrusted_includes_and_continues() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str, mode| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            path
        };
        write("open.cnf", "[client]\nuser=evil\n", 0o666);
        let global = write("global.cnf", "!include open.cnf\n[client]\nport=1\n", 0o600);
        let extra = write("extra.cnf", "[client]\nhost=h\n", 0o600);
        let found = OptionFiles::of(&[global], &extra, None, &["client"]).unwrap();
        assert_eq!((found.user.as_deref(), found.port, found.host.as_deref()), (None, Some(1), Some("h")));
        assert_eq!(found.warnings.len(), 1);
        assert!(found.warnings[0].contains("open.cnf is ignored"), "{}", found.warnings[0]);
    }

    #[test]
    fn option_file_includes_are_read() {
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
        let found = OptionFiles::only(&path, &["client"]).unwrap();
        assert_eq!((found.user.as_deref(), found.port), (Some("c"), Some(1)));
        let endless = write("loop.cnf", "!include loop.cnf\n");
        assert!(OptionFiles::only(&endless, &["client"]).err().unwrap().to_string().contains("levels deep"));
    }

    #[test]
    fn extra_option_file_is_read_between_standard_files() {
        let directory = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let global = write("global.cnf", "[client]\nuser=g\nport=1\nhost=h\n");
        let extra = write("extra.cnf", "[client]\nuser=e\nport=2\n");
        let own = write("own.cnf", "[client]\nuser=o\n");
        let before = [directory.path().join("not-there.cnf"), global];
        let found = OptionFiles::of(&before, &extra, Some(&own), &["client"]).unwrap();
        assert_eq!((found.user.as_deref(), found.port, found.host.as_deref()), (Some("o"), Some(2), Some("h")));
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
        std::fs::set_permissions(&own, std::fs::Permissions::from_mode(0o666)).unwrap();
        let found = OptionFiles::of(&before, &extra, Some(&own), &["client"]).unwrap();
        assert_eq!(found.user.as_deref(), Some("e"));
        assert!(found.warnings[0].contains("own.cnf") && found.warnings[0].contains("chmod o-w"));
    }

    #[test]
    fn tls_options_of_both_vendors_are_read() {
        use super::super::TlsMode;
        for (line, mode) in [
            ("ssl-mode=VERIFY_IDENTITY", TlsMode::VerifyIdentity),
            ("ssl_mode=required", TlsMode::Required),
            ("ssl", TlsMode::Required),
            ("skip-ssl", TlsMode::Disabled),
            ("ssl=0", TlsMode::Disabled),
            ("ssl-verify-server-cert", TlsMode::VerifyIdentity),
            ("ssl-ca=/x.pem\ndisable-ssl-verify-server-cert", TlsMode::Required),
            ("ssl-ca=/x.pem\nssl-verify-server-cert=off", TlsMode::Required),
            ("ssl-ca=/x.pem", TlsMode::VerifyCa),
            ("loose-ssl-ca=/x.pem\nssl-mode=PREFERRED", TlsMode::Preferred),
            ("ssl-cert=/x.pem\nssl-key=/y.pem", TlsMode::Required),
            ("ssl-ca=", TlsMode::Preferred),
        ] {
            assert_eq!(options(&format!("[client]\n{line}\n")).unwrap().tls.mode(), mode, "{line}");
        }
        for line in ["ssl-mode=yes", "ssl=perhaps", "ssl-crl=/x.pem", "ssl-fp=00", "ssl-ca"] {
            assert!(options(&format!("[client]\n{line}\n")).is_err(), "{line}");
        }
        let found = options("[client]\nget-server-public-key\nsocket=/s\nprotocol=TCP\n").unwrap();
        assert_eq!((found.public_key, found.socket), (Some(PublicKey::Request), None));
        let found = options("[client]\nserver-public-key-path=/k.pem\n").unwrap();
        assert_eq!(found.public_key, Some(PublicKey::File("/k.pem".into())));
    }
}
