//! The bytes of an input: of a file, of standard input, or of a pipe. They are read once.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use crate::error::{Error, Result};
use crate::halt::Halt;

/// How much is read at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Of a pipe.
const PIECE_BYTES: usize = 64 << 10;

/// An open input.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) reader: Box<dyn BufRead + Send>,
}

impl Source {
    /// Opens a file; `-` is standard input. What is no regular file, such as a pipe, may not be there yet: then reading waits, and ends when the replay is
    /// over.
    ///
    /// # Errors
    /// [`Error::File`].
    pub(crate) fn open(path: &Path, halt: &Halt) -> Result<Source> {
        let reader: Box<dyn BufRead + Send> = match is_read_once(path) {
            true => Box::new(BufReader::with_capacity(BUFFER_BYTES, Pieces::of(path, halt))),
            false => {
                let file = File::open(path).map_err(|error| Error::file(path, error))?;
                Box::new(BufReader::with_capacity(BUFFER_BYTES, file))
            }
        };
        Ok(Source { path: path.to_owned(), reader })
    }

    /// Puts bytes that were read before those that are left.
    pub(crate) fn put_back(self, bytes: Vec<u8>) -> Source {
        Source { path: self.path, reader: Box::new(Cursor::new(bytes).chain(self.reader)) }
    }
}

/// True if an input cannot be opened again from its beginning.
pub(crate) fn is_read_once(path: &Path) -> bool {
    path.as_os_str() == "-" || std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

/// What a thread reads of a pipe. The thread may wait for ever, for a writer or for bytes; its reader does not.
struct Pieces {
    receive: Receiver<io::Result<Vec<u8>>>,
    piece: Cursor<Vec<u8>>,
    halt: Halt,
}

impl Pieces {
    fn of(path: &Path, halt: &Halt) -> Pieces {
        const PIECES: usize = 2;
        let (send, receive) = sync_channel(PIECES);
        let path = path.to_owned();
        std::thread::spawn(move || {
            let opened: io::Result<Box<dyn Read>> = match path.as_os_str() == "-" {
                true => Ok(Box::new(io::stdin())),
                false => File::open(path).map(|file| Box::new(file) as Box<dyn Read>),
            };
            let read = |reader: &mut dyn Read| {
                let mut piece = vec![0; PIECE_BYTES];
                let length = reader.read(&mut piece)?;
                piece.truncate(length);
                Ok(piece)
            };
            match opened {
                Err(error) => drop(send.send(Err(error))),
                Ok(mut reader) => loop {
                    let piece = read(&mut reader);
                    let is_last = piece.as_ref().map_or_else(
                        |error: &io::Error| error.kind() != io::ErrorKind::Interrupted,
                        |piece: &Vec<u8>| piece.is_empty(),
                    );
                    if send.send(piece).is_err() || is_last {
                        return;
                    }
                },
            }
        });
        Pieces { receive, piece: Cursor::default(), halt: halt.clone() }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        const LOOK_EVERY: Duration = Duration::from_millis(100);
        loop {
            let length = self.piece.read(buffer)?;
            if length > 0 || buffer.is_empty() {
                return Ok(length);
            }
            match self.receive.recv_timeout(LOOK_EVERY) {
                Ok(piece) => match piece? {
                    piece if piece.is_empty() => return Ok(0),
                    piece => self.piece = Cursor::new(piece),
                },
                Err(RecvTimeoutError::Disconnected) => return Ok(0),
                // What is read no more is the end.
                Err(RecvTimeoutError::Timeout) if self.halt.is_over() => return Ok(0),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}
