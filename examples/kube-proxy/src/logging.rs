//! The log: to stderr, as text or JSON.

use std::io;

use tracing::level_filters::LevelFilter;

use crate::config::Logging;

/// Begins to log to stderr.
pub fn start(logging: &Logging) {
    let level = match logging.verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level);
    let log = log.with_target(false).with_ansi(false);
    // A second start, in a test, keeps the first log.
    let _ = match &*logging.format {
        "json" => log.json().flatten_event(true).try_init(),
        _ => log.try_init(),
    };
}
