//! SIGTERM and SIGINT: stop at the next batch boundary. A second one: at once. SIGHUP: read the rules again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, TERM_SIGNALS};
use signal_hook::flag;

/// A flag that the signals raise.
///
/// # Errors
/// The operating system refuses to register a handler.
pub(crate) fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        // In this order: the first signal finds the flag down and raises it, the second finds it up and ends the process.
        flag::register_conditional_shutdown(signal, 1, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// A flag that SIGHUP raises.
///
/// # Errors
/// As [`stop_flag`].
pub(crate) fn reload_flag() -> std::io::Result<Arc<AtomicBool>> {
    let reload = Arc::new(AtomicBool::new(false));
    flag::register(SIGHUP, Arc::clone(&reload))?;
    Ok(reload)
}
