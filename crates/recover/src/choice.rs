//! Which base a recovery begins with, and which binlogs follow it.

use std::sync::Arc;

use spate_archive::{Archive, DirectoryOptions, RealFileSystem};

use crate::chain;
use crate::error::{Error, Result};
use crate::goal::{self, Goal};
use crate::manifest::{self, Base};
use crate::place::Place;
use crate::restore::{Around, RestoreOptions};
use crate::shipping::{self, StoredFile};
use crate::target::Target;

/// The base, and the binlog behind it. `None`: there is no binlog, and none is needed.
pub(crate) fn choose(place: &Place, options: &RestoreOptions, around: Around<'_>) -> Result<(Base, Option<Archive>)> {
    let bases = manifest::bases(around.target)?;
    let base = choose_base(&bases, options, around.target)?;
    if let Some(directory) = &options.archive {
        let name = DirectoryOptions { base_name: options.base_name.clone() };
        let archive = Archive::open(Arc::new(RealFileSystem), directory, name)?;
        let base = refine(&bases, base, &archive, options)?;
        return Ok((base.clone(), Some(archive)));
    }
    let lineages = shipping::stored(around.target)?;
    // The newest that has the base's place.
    let fitting = lineages.iter().rev().find_map(|(_, files)| chain::files_from(files, &base.position));
    let files: &[StoredFile] = match (fitting, lineages.last()) {
        (Some(files), _) => files,
        (None, None) if options.goal == Goal::Latest => return Ok((base.clone(), None)),
        (None, None) => {
            return Err(Error::Refused(format!(
                "{} has no binlogs, which a recovery to {} needs: spate backup archive stores them; or name an archive (--archive DIR)",
                around.target.name(),
                options.goal
            )));
        }
        (None, Some((_, files))) if base.has_own_schema => files,
        (None, Some((_, files))) => {
            let (_, first, last) = shipping::reach(files);
            let why = format!(
                "the base is at {}, and the binlogs in {} reach from {first} to {last}{}",
                base.position,
                around.target.name(),
                chain::missing_between(&base.position.file, &first)
            );
            return Err(Error::Gap { base: base.id.clone(), end: options.goal.to_string(), why });
        }
    };
    let (bytes, ..) = shipping::reach(files);
    around.progress.expect(bytes);
    let fetched =
        shipping::fetch(around.target, files, &options.identities, &place.logs(), around.progress, around.stop)?;
    fetched.map_err(|why| Error::Gap { base: base.id.clone(), end: options.goal.to_string(), why })?;
    let archive = Archive::open(Arc::new(RealFileSystem), &place.logs(), DirectoryOptions::default())?;
    let base = refine(&bases, base, &archive, options)?;
    Ok((base.clone(), Some(archive)))
}

/// The newest base that may serve; for a statement, the oldest, since nobody knows yet where that is.
fn choose_base<'a>(bases: &'a [Base], options: &RestoreOptions, target: &Target) -> Result<&'a Base> {
    if let Some(id) = &options.base {
        let base = bases.iter().find(|base| base.id == *id);
        let base =
            base.ok_or_else(|| Error::Refused(format!("{} has no base {id}: see spate backup list", target.name())))?;
        return match chain::is_before(base, &options.goal) {
            true => Ok(base),
            false => {
                Err(Error::Refused(format!("the base {id} is at {}, which is behind {}", base.position, options.goal)))
            }
        };
    }
    let mut serving = bases.iter().filter(|base| chain::is_before(base, &options.goal));
    let chosen = match options.goal {
        Goal::BeforeStatement(_) => serving.next(),
        _ => serving.next_back(),
    };
    chosen.ok_or_else(|| match bases.first() {
        None => Error::Refused(format!("{} has no base: spate backup base makes one", target.name())),
        Some(oldest) => Error::Refused(format!(
            "the oldest base, {}, is at {}, which is behind {}",
            oldest.id, oldest.position, options.goal
        )),
    })
}

/// With the place of a statement known, the newest base before it.
fn refine<'a>(bases: &'a [Base], base: &'a Base, archive: &Archive, options: &RestoreOptions) -> Result<&'a Base> {
    if !matches!(options.goal, Goal::BeforeStatement(_)) || options.base.is_some() {
        return Ok(base);
    }
    let begin = chain::place(archive, &base.position, base, &options.goal)?;
    let resolved = goal::resolve(&options.goal, archive, &begin)?;
    let Some(found) = resolved.excluded else { return Ok(base) };
    let place = Goal::File { file: found.file, position: found.position };
    let serves = |other: &&Base| {
        chain::is_before(other, &place) && chain::place(archive, &other.position, other, &place).is_ok()
    };
    Ok(bases.iter().rfind(serves).unwrap_or(base))
}
