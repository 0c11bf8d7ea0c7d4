//! spate-archive
