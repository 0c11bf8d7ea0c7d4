//! spate-lab
