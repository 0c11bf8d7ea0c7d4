//! spate-replica
pub mod endpoint;
pub mod verify;
pub mod wire;
