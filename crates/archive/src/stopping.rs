//! Named points at which a test kills the real program, as `kill -9` at that moment would. The test then checks that
//! the next start recovers.
//!
//! They exist only with the feature `failpoints`, which no release has; without it [`stopping_point`] does nothing and
//! costs nothing. The environment says where to stop: `SPATE_STOP_AT=before-commit:3` is the third time that
//! `before-commit` is passed, `SPATE_STOP_AT=before-commit` the first.

/// Ends the process at once if the environment says so.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn stopping_point(_name: &'static str) {}

/// Ends the process at once if the environment says so.
#[cfg(feature = "failpoints")]
pub fn stopping_point(name: &'static str) {
    if let Some(stop) = chosen::point()
        && stop.is_due(name)
    {
        chosen::stop_at(name);
    }
}

/// True if the environment switches off the check named `what`, so that a test reaches the next line of defence:
/// `SPATE_BLIND_TO=others`.
pub fn is_blind_to(what: &str) -> bool {
    cfg!(feature = "failpoints") && std::env::var("SPATE_BLIND_TO").is_ok_and(|blind| blind == what)
}

#[cfg(feature = "failpoints")]
mod chosen {
    use std::io::Write;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use rustix::process::{Signal, getpid, kill_process};

    /// The variable that says where to stop: a name, and how often the program is still to pass it.
    const VARIABLE: &str = "SPATE_STOP_AT";

    pub(super) struct Point {
        name: String,
        left: AtomicU64,
    }

    impl Point {
        pub(super) fn is_due(&self, name: &str) -> bool {
            self.name == name && self.left.fetch_sub(1, Ordering::AcqRel) == 1
        }
    }

    pub(super) fn point() -> Option<&'static Point> {
        static POINT: OnceLock<Option<Point>> = OnceLock::new();
        POINT.get_or_init(|| std::env::var(VARIABLE).ok().map(|text| parse(&text))).as_ref()
    }

    fn parse(text: &str) -> Point {
        let (name, times) = text.split_once(':').unwrap_or((text, "1"));
        match times.parse() {
            Ok(times) if times > 0 => Point { name: name.to_owned(), left: AtomicU64::new(times) },
            _ => {
                say(&format!("{VARIABLE}={text}: expected name or name:times"));
                std::process::abort();
            }
        }
    }

    pub(super) fn stop_at(name: &str) -> ! {
        say(&format!("stopped at {name}"));
        let _killed = kill_process(getpid(), Signal::KILL);
        // Reached only until the signal arrives.
        loop {
            std::thread::park();
        }
    }

    fn say(line: &str) {
        let _unheard = writeln!(std::io::stderr(), "{line}");
    }
}
