//! Files that a replay writes. A file is opened before the replay begins, under another name beside its own, and has its name when it is whole: an hour's
//! measurement is not lost to a directory that is not there, nor an older file to a replay that fails.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Error, Result};
use crate::replay::Place;

/// A file that is being written.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    writer: Writer,
}

#[derive(Debug)]
enum Writer {
    /// Dropped, it is removed.
    Temporary(NamedTempFile),
    /// Of what is no file, such as a pipe.
    Direct(File),
}

impl Output {
    /// Opens an output that is none of the inputs.
    ///
    /// # Errors
    /// [`Error::File`] if it cannot be written; [`Error::Nothing`] if it is an input.
    pub fn create(path: &Path, inputs: &[&Place]) -> Result<Output> {
        const PERMISSIONS: u32 = 0o666;
        let there = fs::metadata(path).ok();
        refuse_inputs(path, there.as_ref(), inputs)?;
        let failed = |error| Error::file(path, error);
        let writer = match there {
            Some(there) if there.is_dir() => return Err(failed(io::ErrorKind::IsADirectory.into())),
            Some(there) if !there.is_file() => {
                Writer::Direct(OpenOptions::new().write(true).open(path).map_err(failed)?)
            }
            _ => {
                let mut builder = tempfile::Builder::new();
                builder.prefix(".spate-replay-").permissions(fs::Permissions::from_mode(PERMISSIONS));
                Writer::Temporary(builder.tempfile_in(directory_of(path)).map_err(failed)?)
            }
        };
        Ok(Output { path: path.to_owned(), writer })
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a text that is all of it.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn finish_with(mut self, text: &str) -> Result<()> {
        self.write_all(text.as_bytes()).map_err(|error| Error::file(&self.path, error))?;
        self.finish()
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn finish(self) -> Result<()> {
        match self.writer {
            Writer::Temporary(file) => {
                file.persist(&self.path).map(drop).map_err(|error| Error::file(&self.path, error.error))
            }
            Writer::Direct(_) => Ok(()),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.writer {
            Writer::Temporary(file) => file.write(bytes),
            Writer::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.writer {
            Writer::Temporary(file) => file.flush(),
            Writer::Direct(file) => file.flush(),
        }
    }
}

fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The same file may have several names.
fn refuse_inputs(path: &Path, there: Option<&Metadata>, inputs: &[&Place]) -> Result<()> {
    let is_same = |one: Option<&Metadata>, other: &Path| {
        let other = fs::metadata(other).ok();
        one.zip(other).is_some_and(|(one, other)| (one.dev(), one.ino()) == (other.dev(), other.ino()))
    };
    for place in inputs {
        let Place::File(input, _) = place else { continue };
        let input: &Path = if input.as_os_str() == "-" { Path::new("/dev/stdin") } else { input };
        let directory = fs::metadata(directory_of(path)).ok();
        let is_within = input.is_dir() && is_same(directory.as_ref(), input);
        if is_within || there.is_some_and(Metadata::is_file) && is_same(there, input) {
            let why = format!("it is an input ({}) and would be overwritten: name another file", input.display());
            return Err(Error::Nothing { input: path.display().to_string(), why });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::InputFormat;

    #[test]
    fn a_file_has_its_name_only_when_it_is_whole() {
        let directory = tempfile::tempdir().unwrap();
        let (path, other) = (directory.path().join("a.json"), directory.path().join("other"));
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        let mut output = Output::create(&path, &[]).unwrap();
        output.write_all(b"half").unwrap();
        drop(output);
        assert_eq!(fs::read_to_string(&path).unwrap(), "other");
        Output::create(&path, &[]).unwrap().finish_with("whole").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(fs::read_to_string(&other).unwrap(), "other", "a link is replaced, not followed");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2, "nothing is left");
        let missing = Output::create(&directory.path().join("none/a.json"), &[]).unwrap_err();
        assert!(missing.to_string().contains("none/a.json: "), "{missing}");
    }

    #[test]
    fn an_input_is_no_output() {
        let directory = tempfile::tempdir().unwrap();
        let (log, link) = (directory.path().join("general.log"), directory.path().join("link"));
        fs::write(&log, "log").unwrap();
        fs::hard_link(&log, &link).unwrap();
        let input = Place::File(log.clone(), InputFormat::Auto);
        for path in [&log, &link] {
            let refused = Output::create(path, &[&input]).unwrap_err();
            assert!(refused.to_string().contains("it is an input"), "{refused}");
        }
        let binlogs = Place::File(directory.path().to_owned(), InputFormat::Auto);
        assert!(Output::create(&directory.path().join("new"), &[&binlogs]).is_err());
        assert_eq!(fs::read_to_string(&log).unwrap(), "log");
    }
}
