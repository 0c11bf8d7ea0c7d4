//! Which base a recovery begins with, and which binlogs follow it.

use std::sync::Arc;

use spate_archive::{Archive, DirectoryOptions, RealFileSystem};

use crate::chain;
use crate::error::{Error, Result};
use crate::goal::{self, Goal};
use crate::manifest::{self, Base, Known};
use crate::place::Place;
use crate::restore::{Around, RestoreOptions};
use crate::shipping::{self, Stored, StoredFile};
use crate::target::Target;

/// What a recovery begins with.
pub(crate) struct Chosen {
    pub(crate) base: Base,
    /// The binlog behind it. `None`: there is none, and none is needed.
    pub(crate) binlog: Option<Archive>,
    /// What a person should know.
    pub(crate) warnings: Vec<String>,
}

/// Chooses the base, and fetches the binlog behind it.
pub(crate) fn choose(place: &Place, options: &RestoreOptions, around: Around<'_>) -> Result<Chosen> {
    let Known { bases, damaged: mut warnings } = manifest::bases(around.target)?;
    let base = choose_base(&bases, options, around.target)?;
    if let Some(directory) = &options.archive {
        let name = DirectoryOptions { base_name: options.base_name.clone() };
        let archive = Archive::open(Arc::new(RealFileSystem), directory, name)?;
        let base = refine(&bases, base, &archive, options)?;
        return Ok(Chosen { base: base.clone(), binlog: Some(archive), warnings });
    }
    let lineages = shipping::stored(around.target)?;
    let candidates = candidates(&lineages, base, options, around.target)?;
    let count = candidates.len();
    for (number, candidate) in candidates.into_iter().enumerate() {
        let has_others = number + 1 < count;
        let archive = match fetch(candidate.files, base, place, options, around).and_then(|archive| {
            // Of the only one that is left, the recovery itself finds the place. A replica's is known when its data are.
            if has_others && !base.has_own_schema {
                chain::place(&archive, &base.position, base, &options.goal)?;
            }
            Ok(archive)
        }) {
            // Another may be of the base's server, and whole.
            Err(Error::Gap { .. } | Error::Foreign { .. }) if has_others => continue,
            fetched => fetched?,
        };
        warnings.extend(candidate.stored.damaged.iter().cloned());
        warnings.extend(later_ones(&lineages, candidate.stored, options));
        let base = refine(&bases, base, &archive, options)?;
        return Ok(Chosen { base: base.clone(), binlog: Some(archive), warnings });
    }
    Ok(Chosen { base: base.clone(), binlog: None, warnings })
}

/// A lineage that has the base's place, and its files from there on.
struct Candidate<'a> {
    stored: &'a Stored,
    files: &'a [StoredFile],
}

/// Those that may serve, best first: what reaches further, then what was begun later. None: there is no binlog, and none is needed.
fn candidates<'a>(
    lineages: &'a [Stored],
    base: &Base,
    options: &RestoreOptions,
    target: &Target,
) -> Result<Vec<Candidate<'a>>> {
    let fitting = lineages
        .iter()
        .rev()
        .filter_map(|stored| Some(Candidate { stored, files: chain::files_from(&stored.files, &base.position)? }));
    let mut fitting: Vec<Candidate<'a>> = fitting.collect();
    fitting.sort_by(|one, other| shipping::compare_ends(other.files, one.files));
    match (fitting.is_empty(), lineages.last()) {
        (false, _) => Ok(fitting),
        (true, None) if options.goal == Goal::Latest => Ok(vec![]),
        (true, None) => Err(Error::Refused(format!(
            "{} has no binlogs, which a recovery to {} needs: spate backup archive stores them; or name an archive (--archive DIR)",
            target.name(),
            options.goal
        ))),
        (true, Some(newest)) if base.has_own_schema => Ok(vec![Candidate { stored: newest, files: &newest.files }]),
        (true, Some(newest)) => {
            let (_, first, last) = shipping::reach(&newest.files);
            let missing = chain::missing_between(&base.position.file, &first);
            let why = format!(
                "the base is at {}, and the binlogs in {} reach from {first} to {last}{missing}",
                base.position,
                target.name()
            );
            Err(Error::Gap { base: base.id.clone(), end: options.goal.to_string(), why })
        }
    }
}

/// The files as an archive.
fn fetch(
    files: &[StoredFile],
    base: &Base,
    place: &Place,
    options: &RestoreOptions,
    around: Around<'_>,
) -> Result<Archive> {
    let logs = place.empty_logs()?;
    around.progress.expect(shipping::reach(files).0);
    let fetched = shipping::fetch(around.target, files, &options.identities, &logs, around.progress, around.stop)?;
    fetched.map_err(|why| Error::Gap { base: base.id.clone(), end: options.goal.to_string(), why })?;
    Ok(Archive::open(Arc::new(RealFileSystem), &logs, DirectoryOptions::default())?)
}

/// What a person should know of lineages that began later and do not go on behind the base.
fn later_ones(lineages: &[Stored], used: &Stored, options: &RestoreOptions) -> Option<String> {
    let later = lineages.iter().filter(|stored| stored.lineage > used.lineage);
    let names: Vec<&str> = later.map(|stored| stored.lineage.as_str()).collect();
    (!names.is_empty() && options.goal == Goal::Latest).then(|| {
        format!(
            "the target has binlogs of lineages that began later: {}. What only they hold is not recovered; if they are of the same server, make a base",
            names.join(", ")
        )
    })
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
