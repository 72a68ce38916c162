//! The log, as text or JSON.

use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry};

use crate::config::Logging;

/// Target of lines that a healthy proxy writes again and again, such as one for each sync.
///
/// A node with many changes would write more than 100,000 of them a day, and upstream
/// writes none at its default verbosity, so they are logged from `ROUTINE_VERBOSITY`.
/// The first sync, repairs, failures and recoveries have no such target.
pub const ROUTINE: &str = concat!(env!("CARGO_CRATE_NAME"), "::routine");

/// Verbosity from which [`ROUTINE`] is logged.
const ROUTINE_VERBOSITY: u32 = 2;

/// Filter of the log, which can be replaced at run time.
static FILTER: OnceLock<Handle<Targets, Registry>> = OnceLock::new();

/// Sets the verbosity of the log.
///
/// # Errors
///
/// The log is not started.
pub fn set_verbosity(verbosity: u32) -> Result<(), String> {
    let filter = FILTER.get().ok_or("the log is not started")?;
    let replaced = filter.reload(log_filter(verbosity));
    replaced.map_err(|error| error.to_string())
}

/// Starts logging to a writer.
pub fn start(logging: &Logging, writer: BoxMakeWriter) {
    let log = fmt::layer()
        .with_writer(writer)
        .with_target(false)
        .with_ansi(false);
    let log = match &*logging.format {
        "json" => log.json().flatten_event(true).boxed(),
        _ => log.boxed(),
    };
    let (filter, handle) = reload::Layer::new(log_filter(logging.verbosity));
    let log = registry().with(log.with_filter(filter));
    // In tests, a second start keeps the first subscriber.
    if log.try_init().is_ok() {
        let _ = FILTER.set(handle);
    }
}

/// Returns the filter of a verbosity.
///
/// Libraries log from verbosity 6 only. The proxy logs their errors itself.
fn log_filter(verbosity: u32) -> Targets {
    let (own, libraries) = match verbosity {
        0..=3 => (LevelFilter::INFO, LevelFilter::OFF),
        4..=5 => (LevelFilter::DEBUG, LevelFilter::OFF),
        6.. => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    let routine = match verbosity < ROUTINE_VERBOSITY {
        true => LevelFilter::OFF,
        false => own,
    };
    let crate_name = env!("CARGO_CRATE_NAME");
    Targets::new()
        .with_default(libraries)
        .with_target(crate_name, own)
        .with_target(ROUTINE, routine)
        .with_target("daemon", own)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn routine_lines_begin_at_verbosity_two_and_libraries_at_six() {
        let logs = |verbosity, target, level| log_filter(verbosity).would_enable(target, &level);
        assert!(logs(0, "kube_proxy::run", Level::INFO));
        assert!(!logs(3, "kube_proxy::run", Level::DEBUG));
        assert!(!logs(1, ROUTINE, Level::INFO));
        assert!(logs(2, ROUTINE, Level::INFO));
        assert!(!logs(3, ROUTINE, Level::DEBUG));
        assert!(logs(4, ROUTINE, Level::DEBUG));
        assert!(logs(4, "kube_proxy::telemetry::source", Level::DEBUG));
        assert!(logs(4, "daemon::http", Level::DEBUG));
        assert!(!logs(5, "kube_client::client", Level::ERROR));
        assert!(logs(6, "kube_client::client", Level::DEBUG));
        assert!(logs(9, "kube_proxy", Level::TRACE));
    }
}
