//! The log: to stderr, as text or JSON.

use std::io;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, fmt, registry};

use crate::config::{LogFormat, Logging};

/// Starts logging to stderr.
pub fn start(logging: &Logging) {
    let log = fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(false);
    let log = match logging.format {
        LogFormat::Json => log.json().flatten_event(true).boxed(),
        LogFormat::Text => log.boxed(),
    };
    let log = registry().with(log.with_filter(filter(logging.verbosity)));
    // In tests, a second start keeps the first subscriber.
    let _ = log.try_init();
}

/// Returns the filter of a verbosity, with the levels of kube-proxy.
fn filter(verbosity: u32) -> Targets {
    let (own, libraries) = match verbosity {
        0..=3 => (LevelFilter::INFO, LevelFilter::OFF),
        4..=5 => (LevelFilter::DEBUG, LevelFilter::OFF),
        6.. => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    Targets::new()
        .with_default(libraries)
        .with_target(env!("CARGO_CRATE_NAME"), own)
        .with_target("daemon", own)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_log_from_verbosity_six() {
        let logs = |verbosity, target, level| filter(verbosity).would_enable(target, &level);
        assert!(logs(0, "cluster_dns::server", Level::INFO));
        assert!(!logs(3, "cluster_dns::server", Level::DEBUG));
        assert!(logs(4, "daemon::http", Level::DEBUG));
        assert!(!logs(5, "kube_client::client", Level::ERROR));
        assert!(logs(6, "kube_client::client", Level::DEBUG));
    }
}
