//! spate-replica
