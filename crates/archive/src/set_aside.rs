//! Begins an archive anew where others have applied what it lacks: its files become an archive of their own, in a directory inside.
//!
//! The files have their new names, and the new directory its list, before the old list gives them up. So a crash at any point leaves each
//! file in one whole archive at least.

use std::path::{Path, PathBuf};

use crate::fs::{FileSystem, RealFileSystem};
use crate::list::FileList;
use crate::names::LOCK_NAME;
use crate::purge::Retention;
use crate::recovery::finish_purges;
use crate::{Error, Result, stopping_point};

/// Moves all files of the archive in `dir` to a new directory inside it, whose name is returned. `None`: it has no files.
///
/// # Errors
/// [`Error::Locked`] if the archive has a writer; [`Error::Inconsistent`] if its list is damaged; [`Error::Io`]: nothing was moved.
pub fn set_aside(dir: &Path) -> Result<Option<PathBuf>> {
    let fs = &RealFileSystem;
    let lock_path = dir.join(LOCK_NAME);
    if !dir.is_dir() {
        return Ok(None);
    }
    let Some(_until_the_end) = fs.try_lock(&lock_path).map_err(Error::io("lock", &lock_path))? else {
        return Err(Error::Locked { dir: dir.to_path_buf() });
    };
    let Some(list) = FileList::load(fs, dir)? else { return Ok(None) };
    let list = finish_purges(fs, dir, list)?;
    if list.files.is_empty() {
        return Ok(None);
    }
    let aside = free_name(dir)?;
    let partial = aside.with_extension("partial");
    if partial.exists() {
        // An earlier attempt has crashed: its names are further names of files that are here.
        std::fs::remove_dir_all(&partial).map_err(Error::io("remove", &partial))?;
    }
    fs.create_dir(&partial).map_err(Error::io("create", &partial))?;
    for file in &list.files {
        let name = partial.join(&file.name);
        match std::fs::hard_link(dir.join(&file.name), &name) {
            // It was listed, and a crash came before it was created.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            linked => linked.map_err(Error::io("link", &name))?,
        }
    }
    list.store(fs, &partial)?;
    stopping_point("before-setting-aside");
    fs.rename(&partial, &aside).map_err(Error::io("rename", &partial))?;
    fs.sync_dir(dir).map_err(Error::sync(dir))?;
    stopping_point("after-setting-aside");
    let purging = list.files.into_iter().map(|file| file.name).collect();
    let given_up = FileList { files: vec![], purging };
    given_up.store(fs, dir)?;
    finish_purges(fs, dir, given_up)?;
    Ok(Some(aside))
}

/// Removes the oldest archives that were set aside in `dir`, while all together, or the oldest alone, exceed a bound of `retention`.
///
/// # Errors
/// [`Error::Io`]: the next purge removes what is left over.
pub fn purge_asides(dir: &Path, retention: &Retention) -> Result<()> {
    let numbers = asides(dir)?;
    let mut asides: Vec<(PathBuf, u64, u64)> = Vec::new();
    for number in numbers.into_iter().rev() {
        let aside = dir.join(format!("earlier-{number}"));
        // Somebody else's directory of such a name is none of ours.
        if FileList::load(&RealFileSystem, &aside).is_ok_and(|list| list.is_none()) {
            continue;
        }
        let (bytes, age_seconds) = size_and_age(&aside)?;
        asides.push((aside, bytes, age_seconds));
    }
    let mut bytes_left: u64 = asides.iter().map(|(_, bytes, _)| bytes).sum();
    while let Some((aside, bytes, age_seconds)) = asides.pop() {
        let is_too_much = retention.bytes_max.is_some_and(|maximum| bytes_left > maximum);
        let is_too_old = retention.age_seconds_max.is_some_and(|maximum| age_seconds > maximum);
        if !is_too_much && !is_too_old {
            break;
        }
        std::fs::remove_dir_all(&aside).map_err(Error::io("remove", &aside))?;
        bytes_left -= bytes;
    }
    Ok(())
}

/// Bytes of a directory's files, and seconds since the last of them was written.
fn size_and_age(dir: &Path) -> Result<(u64, u64)> {
    let (mut bytes, mut age) = (0, u64::MAX);
    for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let metadata = entry.and_then(|entry| entry.metadata()).map_err(Error::io("read", dir))?;
        bytes += metadata.len();
        let written = metadata.modified().map_err(Error::io("read", dir))?;
        age = age.min(written.elapsed().map_or(0, |elapsed| elapsed.as_secs()));
    }
    Ok((bytes, age))
}

/// The name behind the last one.
fn free_name(dir: &Path) -> Result<PathBuf> {
    let numbers = asides(dir)?;
    let last = numbers.last().copied().unwrap_or(0);
    let next = last.checked_add(1).or_else(|| (1..last).rev().find(|number| !numbers.contains(number)));
    Ok(dir.join(format!("earlier-{}", next.unwrap_or(1))))
}

/// The numbers of the archives that were set aside, oldest first.
fn asides(dir: &Path) -> Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(Error::io("list", dir))? {
        let name = entry.map_err(Error::io("list", dir))?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("earlier-")?.parse::<u64>().ok());
        numbers.extend(number.filter(|number| name.to_str() == Some(&*format!("earlier-{number}"))));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The archives that are left, each of some more than a thousand bytes, after the oldest were purged.
    fn left(retention: &Retention) -> Vec<u64> {
        let dir = tempfile::tempdir().unwrap();
        for number in [2, 3, 10] {
            let aside = dir.path().join(format!("earlier-{number}"));
            std::fs::create_dir(&aside).unwrap();
            std::fs::write(aside.join("b.000001"), [0; 1000]).unwrap();
            FileList { files: vec![], purging: vec![] }.store(&RealFileSystem, &aside).unwrap();
        }
        purge_asides(dir.path(), retention).unwrap();
        asides(dir.path()).unwrap()
    }

    #[test]
    fn directories_of_others_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["earlier-2024", "earlier-07", "earlier-18446744073709551615"] {
            std::fs::create_dir(dir.path().join(name)).unwrap();
            std::fs::write(dir.path().join(name).join("precious"), [0; 1000]).unwrap();
        }
        purge_asides(dir.path(), &Retention { bytes_max: Some(1), age_seconds_max: None }).unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 3);
        assert_eq!(free_name(dir.path()).unwrap().file_name().unwrap(), "earlier-18446744073709551614");
    }

    #[test]
    fn oldest_archives_go_first_and_no_more_than_needed() {
        let of_bytes = |maximum| Retention { bytes_max: Some(maximum), age_seconds_max: None };
        assert_eq!(left(&of_bytes(3900)), [2, 3, 10]);
        assert_eq!(left(&of_bytes(2900)), [3, 10]);
        assert_eq!(left(&of_bytes(1900)), [10]);
        assert_eq!(left(&Retention { bytes_max: None, age_seconds_max: Some(3600) }), [2, 3, 10]);
    }
}
