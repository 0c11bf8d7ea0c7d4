//! spate-schedule
