//! The programs that `cargo build` has built.

use std::path::PathBuf;

/// `spate`, beside the laboratory.
pub(crate) fn spate() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_spate-lab")).with_file_name("spate");
    assert!(program.is_file(), "{} is not there: `cargo build` first", program.display());
    program
}
