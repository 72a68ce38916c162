//! The log: to stderr, as text or JSON.

use std::io;

use tracing::level_filters::LevelFilter;

use crate::cli::LogFormat;

/// Begins to log to stderr; `verbosity` is a number as upstream has it.
pub fn start(format: LogFormat, verbosity: u8) {
    let level = match verbosity {
        0..=3 => LevelFilter::INFO,
        4..=5 => LevelFilter::DEBUG,
        6.. => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_max_level(level);
    let log = log.with_target(false).with_ansi(false);
    // A second start, in a test, keeps the first log.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}
