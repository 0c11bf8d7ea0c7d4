//! A stream of any length as objects of bounded size: cut, sealed and written by several threads; read, opened and put together in order.
//!
//! Memory: each thread holds one chunk plain and sealed, and one more waits; see [`CHUNK_BYTES`].

use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crossbeam_channel::{Receiver, bounded};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::progress::Progress;
use crate::sealing::{self, Identities, Recipients};
use crate::target::Target;

/// Large enough that an object store is not slowed down by the number of objects, small enough that some of them fit in memory.
pub(crate) const CHUNK_BYTES: usize = 16 << 20;
/// Compression and encryption need processors, and stores answer late.
const THREADS_MAX: usize = 4;

/// One chunk of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunk {
    /// Bytes of the stream.
    pub plain_bytes: u64,
    /// Bytes as stored.
    pub bytes: u64,
    /// SHA-256 of what is stored, in hexadecimal.
    pub sha256: String,
}

fn threads() -> usize {
    thread::available_parallelism().map_or(2, usize::from).clamp(2, THREADS_MAX)
}

/// The object of a stream's chunk.
pub(crate) fn name_of(under: &str, index: usize) -> String {
    format!("{under}/data.{index:07}")
}

/// Writes a stream to `under`. Fails as a whole: what was written is to be removed then.
pub(crate) fn write(
    stream: &mut dyn Read,
    target: &Target,
    under: &str,
    recipients: &Recipients,
    progress: &Progress,
    stop: &AtomicBool,
) -> Result<Vec<Chunk>> {
    let (hand, take) = bounded::<(usize, Vec<u8>)>(1);
    let written: Mutex<Vec<Option<Chunk>>> = Mutex::new(Vec::new());
    let failure: Mutex<Option<Error>> = Mutex::new(None);
    let failed = AtomicBool::new(false);
    let fail = |error: Error| {
        failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        failed.store(true, Ordering::Release);
    };
    thread::scope(|scope| {
        for _ in 0..threads() {
            let take = take.clone();
            let (written, fail, failed) = (&written, &fail, &failed);
            scope.spawn(move || {
                for (index, plain) in take {
                    if failed.load(Ordering::Acquire) {
                        continue;
                    }
                    match write_chunk(&plain, target, &name_of(under, index), recipients) {
                        Ok(chunk) => {
                            progress.stored(chunk.plain_bytes, chunk.bytes);
                            let mut all = written.lock().unwrap_or_else(PoisonError::into_inner);
                            if all.len() <= index {
                                all.resize(index + 1, None);
                            }
                            all[index] = Some(chunk);
                        }
                        Err(error) => fail(error),
                    }
                }
            });
        }
        drop(take);
        for index in 0.. {
            let mut plain = Vec::with_capacity(CHUNK_BYTES);
            match (&mut *stream).take(CHUNK_BYTES as u64).read_to_end(&mut plain) {
                Ok(0) => break,
                Ok(_) if stop.load(Ordering::Acquire) => return fail(Error::Stopped),
                Ok(_) if failed.load(Ordering::Acquire) || hand.send((index, plain)).is_err() => break,
                Ok(_) => {}
                Err(_) if stop.load(Ordering::Acquire) => return fail(Error::Stopped),
                Err(error) => return fail(Error::Refused(format!("the base's data cannot be read: {error}"))),
            }
        }
        drop(hand);
    });
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    Ok(written.into_inner().unwrap_or_else(PoisonError::into_inner).into_iter().flatten().collect())
}

fn write_chunk(plain: &[u8], target: &Target, name: &str, recipients: &Recipients) -> Result<Chunk> {
    let sealed = sealing::seal(plain, recipients)?;
    let chunk = Chunk { plain_bytes: plain.len() as u64, bytes: sealed.len() as u64, sha256: sealing::hash(&sealed) };
    target.put(name, sealed)?;
    Ok(chunk)
}

/// Reads a chunk, and checks that it is what was written.
pub(crate) fn read_chunk(target: &Target, name: &str, chunk: &Chunk, identities: &Identities) -> Result<Vec<u8>> {
    let sealed = target.get(name)?;
    if sealing::hash(&sealed) != chunk.sha256 {
        return Err(target.damaged(name, "its SHA-256 is another than when it was written"));
    }
    let plain_bytes = usize::try_from(chunk.plain_bytes).unwrap_or(usize::MAX).min(2 * CHUNK_BYTES);
    let plain = sealing::open(&sealed, identities, plain_bytes).map_err(|why| target.damaged(name, why))?;
    match plain.len() as u64 == chunk.plain_bytes {
        true => Ok(plain),
        false => Err(target.damaged(name, "it is shorter than when it was written")),
    }
}

/// Reads a stream, and gives it to `consume` as one reader. The first error of either side is the result.
pub(crate) fn read<T>(
    target: &Target,
    under: &str,
    chunks: &[Chunk],
    identities: &Identities,
    progress: &Progress,
    stop: &AtomicBool,
    consume: impl FnOnce(&mut dyn Read) -> Result<T>,
) -> Result<T> {
    let lanes = threads();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut receivers = Vec::with_capacity(lanes);
        for lane in 0..lanes {
            let (hand, take) = bounded(1);
            receivers.push(take);
            let over = &over;
            scope.spawn(move || {
                for (index, chunk) in chunks.iter().enumerate().skip(lane).step_by(lanes) {
                    if over.load(Ordering::Acquire) {
                        return;
                    }
                    let read = match stop.load(Ordering::Acquire) {
                        true => Err(Error::Stopped),
                        false => read_chunk(target, &name_of(under, index), chunk, identities),
                    };
                    let failed = read.is_err();
                    if let Ok(plain) = &read {
                        progress.stored(plain.len() as u64, chunk.bytes);
                    }
                    if hand.send(read).is_err() || failed {
                        return;
                    }
                }
            });
        }
        let mut reader =
            Ordered { receivers, next: 0, count: chunks.len(), current: io::Cursor::default(), failed: None };
        let consumed = consume(&mut reader);
        over.store(true, Ordering::Release);
        let failed = reader.failed.take();
        drop(reader);
        failed.map_or(consumed, Err)
    })
}

/// The lanes' chunks, in order.
struct Ordered {
    receivers: Vec<Receiver<Result<Vec<u8>>>>,
    next: usize,
    count: usize,
    current: io::Cursor<Vec<u8>>,
    failed: Option<Error>,
}

impl Read for Ordered {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.current.read(buffer)? {
                0 if self.next < self.count && !buffer.is_empty() => {}
                read => return Ok(read),
            }
            let lane = self.next % self.receivers.len();
            self.next += 1;
            match self.receivers[lane].recv() {
                Ok(Ok(plain)) => self.current = io::Cursor::new(plain),
                Ok(Err(error)) => {
                    let text = error.to_string();
                    self.failed = Some(error);
                    return Err(io::Error::other(text));
                }
                Err(_) => return Err(io::Error::other("the stream has ended early")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place() -> (tempfile::TempDir, Target) {
        let directory = tempfile::tempdir().unwrap();
        let target = Target::open(directory.path().to_str().unwrap(), true).unwrap();
        (directory, target)
    }

    fn text(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|index| (index * 31 % 251) as u8).collect()
    }

    #[test]
    fn streams_come_back_as_they_were() {
        let (_directory, target) = place();
        let (progress, stop) = (Progress::default(), AtomicBool::new(false));
        for bytes in [0, 1, CHUNK_BYTES, 5 * CHUNK_BYTES + 7] {
            let plain = text(bytes);
            let under = format!("x{bytes}");
            let written = write(&mut &plain[..], &target, &under, &Recipients::default(), &progress, &stop).unwrap();
            assert_eq!(written.len(), bytes.div_ceil(CHUNK_BYTES));
            let mut back = Vec::new();
            read(&target, &under, &written, &Identities::default(), &progress, &stop, |stream| {
                stream.read_to_end(&mut back).map(drop).map_err(Error::file("stream"))
            })
            .unwrap();
            assert!(back == plain, "{bytes} bytes");
        }
    }

    #[test]
    fn a_chunk_that_is_another_is_named() {
        let (_directory, target) = place();
        let (progress, stop) = (Progress::default(), AtomicBool::new(false));
        let plain = text(2 * CHUNK_BYTES);
        let written = write(&mut &plain[..], &target, "x", &Recipients::default(), &progress, &stop).unwrap();
        target.put("x/data.0000001", sealing::seal(b"another", &Recipients::default()).unwrap()).unwrap();
        let error = read(&target, "x", &written, &Identities::default(), &progress, &stop, |stream| {
            io::copy(stream, &mut io::sink()).map(drop).map_err(Error::file("stream"))
        });
        let error = error.unwrap_err().to_string();
        assert!(error.contains("x/data.0000001") && error.contains("SHA-256"), "{error}");
    }

    #[test]
    fn a_consumer_that_stops_early_ends_the_readers() {
        let (_directory, target) = place();
        let (progress, stop) = (Progress::default(), AtomicBool::new(false));
        let plain = text(6 * CHUNK_BYTES);
        let written = write(&mut &plain[..], &target, "x", &Recipients::default(), &progress, &stop).unwrap();
        let read = read(&target, "x", &written, &Identities::default(), &progress, &stop, |_| Ok(7));
        assert_eq!(read.unwrap(), 7);
    }
}
