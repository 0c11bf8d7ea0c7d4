//! Finds files in an archive's directory that other accounts of the machine may open.
//!
//! Files that Spate creates are closed to them. A directory that somebody else made, and files of an earlier version, keep the modes that
//! they have: a person may have meant them, so a person is told.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::fs::OTHERS;

/// A directory that other accounts may list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exposure {
    dir: PathBuf,
    /// Mode of the directory, without its file type.
    mode: u32,
    /// The number of its files that others may open.
    files: usize,
}

impl Exposure {
    /// Inspects a directory; `None` if only its owner may enter it: then the modes of its files do not matter.
    ///
    /// # Errors
    /// The operating system refuses to read the directory.
    pub fn inspect(dir: &Path) -> io::Result<Option<Exposure>> {
        let mode = std::fs::metadata(dir)?.permissions().mode() & 0o7777;
        if mode & OTHERS == 0 {
            return Ok(None);
        }
        let mut files = 0;
        for entry in std::fs::read_dir(dir)? {
            // A file may be removed while the others are inspected.
            let metadata = entry?.metadata();
            files += usize::from(metadata.is_ok_and(|it| !it.is_dir() && it.permissions().mode() & OTHERS != 0));
        }
        Ok(Some(Exposure { dir: dir.to_path_buf(), mode, files }))
    }
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exposure { dir, mode, files } = self;
        let dir = dir.display();
        write!(f, "other accounts of this machine may look into the archive's directory {dir} (mode {mode:04o})")?;
        match files {
            0 => write!(f, ", though not into its files")?,
            1 => write!(f, " and open one of its files")?,
            files => write!(f, " and open {files} of its files")?,
        }
        write!(f, "; a binlog holds rows, and statements with passwords: chmod -R go-rwx {dir}")
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn exposure_counts_only_reachable_files() {
        let directory = tempfile::tempdir().unwrap();
        let dir = directory.path().join("archive");
        fs::create_dir(&dir).unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for (name, mode) in [("a", 0o644), ("b", 0o640), ("c", 0o600)] {
            fs::write(dir.join(name), "").unwrap();
            set(&dir.join(name), mode);
        }
        set(&dir, 0o700);
        assert_eq!(Exposure::inspect(&dir).unwrap(), None);
        set(&dir, 0o750);
        let text = Exposure::inspect(&dir).unwrap().unwrap().to_string();
        assert!(text.contains("(mode 0750) and open 2 of its files"), "{text}");
        assert!(text.ends_with(&format!("chmod -R go-rwx {}", dir.display())), "{text}");
        for name in ["a", "b"] {
            set(&dir.join(name), 0o600);
        }
        let text = Exposure::inspect(&dir).unwrap().unwrap().to_string();
        assert!(text.contains("though not into its files"), "{text}");
    }
}
