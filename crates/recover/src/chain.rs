//! Whether a base and a binlog belong together, and where in the binlog the base stands.

use spate_archive::{Archive, ReadOptions, Seek};
use spate_binlog::{Boundary, Gtid, GtidPosition};
use spate_replica::checkpoint::Checkpoint;

use crate::error::{Error, Result};
use crate::goal::{Goal, checkpoint_at, seek_by_file};
use crate::manifest::{Base, Position};
use crate::shipping::StoredFile;

/// The place of a base's position in an archive.
///
/// # Errors
/// [`Error::Gap`] if the archive lacks something behind it, [`Error::Foreign`] if it contradicts.
pub(crate) fn place(archive: &Archive, position: &Position, base: &Base, goal: &Goal) -> Result<Checkpoint> {
    if position.gtid.is_empty() && position.file.is_empty() {
        return Err(Error::Refused(format!(
            "the base {} has no position, since the server's binlog was off: it can be restored as it is (--until latest, without a binlog), and \
             not beyond",
            base.id
        )));
    }
    let gap = |why: String| Error::Gap { base: base.id.clone(), end: goal.to_string(), why };
    let is_here = archive.files().iter().any(|file| **file.source_name() == *position.file);
    let is_own = is_of_server(archive, base.server.server_id)?;
    match seek_by_file(position) {
        // Replicas may have files of the same names.
        Some(seek) if is_here && is_own => by_file(archive, &seek, position, base).map_err(|error| match error {
            Error::Archive(error) => gap(format!("{error}; the base is at {position}")),
            other => other,
        }),
        _ if !position.gtid.is_empty() => by_gtid(archive, position, base, &gap),
        Some(_) if is_here => {
            let why = format!("a server of another id than {} has written it", base.server.server_id);
            Err(Error::Foreign { base: base.id.clone(), why })
        }
        _ => Err(gap(format!("the base is at {position}{}", missing(archive, position)))),
    }
}

/// True if the server that has written the archive's binlog has this id.
fn is_of_server(archive: &Archive, server_id: u32) -> Result<bool> {
    let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default())?;
    Ok(reader.next_event()?.is_none_or(|event| event.header.server_id == server_id))
}

/// The place by GTIDs alone: the base is of a replica of the server that has written the binlog.
fn by_gtid(archive: &Archive, position: &Position, base: &Base, gap: &dyn Fn(String) -> Error) -> Result<Checkpoint> {
    let wanted = position.gtid_position();
    let end = archive.tail().received();
    match archive.reader(&Seek::AfterGtid(wanted.clone()), ReadOptions::default()) {
        Ok(_) => {}
        Err(spate_archive::Error::BeginsAfter { begins, .. }) => {
            let missing = missing(archive, position);
            return Err(gap(format!("it begins at GTID position '{begins}', and the base is at {position}{missing}")));
        }
        Err(error) => return Err(error.into()),
    }
    // A server that follows others, too, knows domains that it does not log.
    let logged = |domain: u32| end.gtid_position.domains().any(|gtid| gtid.domain_id == domain);
    let known: Vec<_> = wanted.domains().filter(|gtid| logged(gtid.domain_id)).collect();
    let reaches = match wanted.domains().next() {
        Some(_) => !known.is_empty() && known.iter().all(|gtid| end.gtid_position.covers(Gtid::MariaDb(*gtid))),
        None => end.gtid_position.covers_all(&wanted),
    };
    if !reaches {
        return Err(gap(format!("it ends at GTID position '{}', and the base is at {position}", end.gtid_position)));
    }
    // Numbers of MariaDB say little: the very transactions must be there.
    for gtid in known {
        if !has_transaction(archive, Gtid::MariaDb(gtid))? {
            let why =
                format!("its last transaction {gtid} is not in the binlog, which ends at '{}'", end.gtid_position);
            return Err(Error::Foreign { base: base.id.clone(), why });
        }
    }
    Ok(checkpoint_at(position))
}

/// True if the archive begins behind this transaction, or holds it.
fn has_transaction(archive: &Archive, gtid: Gtid) -> Result<bool> {
    if archive.files().first().and_then(|file| file.facts().start).is_some_and(|start| start.ends_with(gtid)) {
        return Ok(true);
    }
    let mut reader = archive.reader(&Seek::Earliest, ReadOptions::default())?;
    while let Some(event) = reader.next_event()? {
        let is_begin = matches!(event.boundary, Boundary::Begin | Boundary::Whole);
        let is_it = match is_begin {
            true => event.gtid().is_some_and(|found| found.gtid == gtid),
            // The list at the head of a file.
            false => event.boundary == Boundary::Outside && event.gtid_position.ends_with(gtid),
        };
        if is_it {
            return Ok(true);
        }
    }
    Ok(false)
}

/// When the server has begun the file, by its own clock, in seconds since 1970; 0 if nobody knows.
fn begin_seconds(archive: &Archive, source_file: &str) -> Result<u64> {
    let files = archive.files();
    let Some(file) = files.iter().find(|file| **file.source_name() == *source_file) else { return Ok(0) };
    // The time stamp of its first event, behind the magic.
    let mut bytes = [0; 4];
    archive.read_at(file, 4, &mut bytes)?;
    Ok(u64::from(u32::from_le_bytes(bytes)))
}

/// The place in the source's own file, with what the archive says of GTIDs there.
fn by_file(archive: &Archive, seek: &Seek, position: &Position, base: &Base) -> Result<Checkpoint> {
    let foreign = |why: String| Error::Foreign { base: base.id.clone(), why };
    let begun = begin_seconds(archive, &position.file)?;
    if begun > position.server_seconds {
        return Err(foreign(format!("its file {} was begun only after the base was made", position.file)));
    }
    let mut reader = archive.reader(seek, ReadOptions::default())?;
    let wanted = position.gtid_position();
    // The position before the first transaction that is shown, and that transaction.
    let (mut before, mut is_known, mut next) = (GtidPosition::default(), false, None);
    let mut is_at_end = true;
    while let Some(event) = reader.next_event()? {
        if matches!(event.boundary, Boundary::Begin | Boundary::Whole) {
            next = event.gtid().map(|gtid| gtid.gtid);
            is_at_end = false;
            if event.boundary == Boundary::Whole {
                break;
            }
            before = event.gtid_position.clone();
            is_known = event.is_position_known();
            break;
        }
        before = event.gtid_position.clone();
        is_known = event.is_position_known();
    }
    if is_at_end {
        let end = archive.tail().received();
        before = (*end.gtid_position).clone();
        is_known = end.gtid_position_known;
    }
    if !wanted.is_empty() && is_known {
        let agrees = before.domains().all(|gtid| wanted.ends_with(Gtid::MariaDb(gtid))) && wanted.covers_all(&before);
        if !agrees {
            return Err(foreign(format!(
                "at {}:{}, the binlog is at GTID position '{before}', and the base at '{wanted}'",
                position.file, position.offset
            )));
        }
    }
    if let Some(next) = next.filter(|next| wanted.covers(*next)) {
        return Err(foreign(format!(
            "behind {}:{} the binlog has {next}, which the base holds already ('{wanted}')",
            position.file, position.offset
        )));
    }
    let gtid_position = if wanted.is_empty() { before } else { wanted };
    Ok(Checkpoint { gtid_position, ..checkpoint_at(position) })
}

/// The names of the files between the base and the archive's beginning, if the names tell.
fn missing(archive: &Archive, position: &Position) -> String {
    let files = archive.files();
    let first = files.first().map(|file| file.source_name().to_string()).unwrap_or_default();
    missing_between(&position.file, &first)
}

/// `; missing are binlog.000004 to binlog.000006`.
pub(crate) fn missing_between(from: &str, first_there: &str) -> String {
    let split = |name: &str| {
        let (begin, number) = name.rsplit_once('.')?;
        Some((begin.to_owned(), number.len(), number.parse::<u64>().ok()?))
    };
    let (Some((begin, width, from)), Some((other, _, first))) = (split(from), split(first_there)) else {
        return String::new();
    };
    if begin != other || from >= first {
        return format!("; its files begin with {first_there}");
    }
    let name = |number: u64| format!("{begin}.{number:0width$}");
    match first - from {
        1 => format!("; {} is missing", name(from)),
        _ => format!("; missing are {} to {}", name(from), name(first - 1)),
    }
}

/// The files of a lineage that a recovery from a base needs: from the one that holds the base's position on. `None`: the lineage has no such file.
pub(crate) fn files_from<'a>(files: &'a [StoredFile], position: &Position) -> Option<&'a [StoredFile]> {
    let wanted = position.gtid_position();
    let by_gtid = {
        let is_before = |file: &StoredFile| file.start().is_some_and(|start| wanted.covers_all(&start));
        files.iter().rposition(is_before).filter(|_| !wanted.is_empty())
    };
    // A replica's file of the name is another.
    let by_name = || files.iter().position(|file| !position.file.is_empty() && file.source_name() == position.file);
    by_gtid.or_else(by_name).map(|first| &files[first..])
}

/// True if a base may be the beginning of a recovery to `goal`, as far as its position tells.
pub(crate) fn is_before(base: &Base, goal: &Goal) -> bool {
    let gtids = base.position.gtid_position();
    match goal {
        Goal::Latest | Goal::BeforeStatement(_) => true,
        Goal::Time(time) => u64::try_from(time.as_second()).is_ok_and(|seconds| base.position.server_seconds < seconds),
        Goal::Gtid(position) => position.covers_all(&gtids),
        Goal::BeforeGtid(gtid) => !gtids.covers(*gtid),
        Goal::File { file, position } => {
            let place = |file: &str, position: u64| (file.len(), file.to_owned(), position);
            place(&base.position.file, base.position.offset) <= place(file, *position)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::test_base;

    #[test]
    fn missing_files_are_named() {
        assert_eq!(missing_between("bin.000004", "bin.000007"), "; missing are bin.000004 to bin.000006");
        assert_eq!(missing_between("bin.000004", "bin.000005"), "; bin.000004 is missing");
        assert_eq!(missing_between("bin.000004", "other.000005"), "; its files begin with other.000005");
        assert_eq!(missing_between("", ""), "");
    }

    #[test]
    fn bases_behind_the_goal_do_not_serve() {
        let mut base = test_base("one", "2026-01-02T03:04:05Z");
        base.position =
            Position { gtid: "0-1-50".into(), file: "bin.000003".into(), offset: 700, server_seconds: 1_000 };
        for (goal, serves) in [
            ("latest", true),
            ("gtid:0-1-50", true),
            ("gtid:0-1-49", false),
            ("before-gtid:0-1-51", true),
            ("before-gtid:0-1-50", false),
            ("file:bin.000003:700", true),
            ("file:bin.000003:699", false),
            ("file:bin.000010:4", true),
            ("time:1970-01-01T00:16:41Z", true),
            ("time:1970-01-01T00:16:40Z", false),
        ] {
            assert_eq!(is_before(&base, &goal.parse().unwrap()), serves, "{goal}");
        }
    }
}
