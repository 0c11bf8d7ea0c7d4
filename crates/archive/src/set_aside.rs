//! Begins an archive anew where others have applied what it lacks: its files become an archive of their own, in a directory inside.
//!
//! The files have their new names, and the new directory its list, before the old list gives them up. So a crash at any point leaves each
//! file in one whole archive at least.

use std::path::{Path, PathBuf};

use crate::fs::{FileSystem, RealFileSystem};
use crate::list::FileList;
use crate::names::LOCK_NAME;
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
    let aside = free_name(dir);
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

/// The first name that no directory has.
fn free_name(dir: &Path) -> PathBuf {
    let names = (1_u64..).map(|number| dir.join(format!("earlier-{number}")));
    names.into_iter().find(|name| !name.exists()).unwrap_or_else(|| dir.join("earlier"))
}
