//! The log: to stderr, as text or JSON.

use std::io;
use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, registry};

use crate::config::Logging;

/// The filter of the log, which can be replaced.
static FILTER: OnceLock<Handle<Targets, Registry>> = OnceLock::new();

/// Sets the verbosity of the log.
///
/// # Errors
///
/// The log was not started.
pub fn set_verbosity(verbosity: u32) -> Result<(), String> {
    let filter = FILTER.get().ok_or("the log was not started")?;
    let replaced = filter.reload(wanted(verbosity));
    replaced.map_err(|error| error.to_string())
}

/// Begins to log to stderr.
pub fn start(logging: &Logging) {
    let log = fmt::layer()
        .with_writer(io::stderr)
        .with_target(false)
        .with_ansi(false);
    let log = match &*logging.format {
        "json" => log.json().flatten_event(true).boxed(),
        _ => log.boxed(),
    };
    let (filter, handle) = reload::Layer::new(wanted(logging.verbosity));
    let log = registry().with(log.with_filter(filter));
    // A second start, in a test, keeps the first log.
    if log.try_init().is_ok() {
        let _ = FILTER.set(handle);
    }
}

/// Returns what is logged at a verbosity.
///
/// What libraries say to themselves is for those who look for faults in them:
/// whatever matters of it is told in our own words.
fn wanted(verbosity: u32) -> Targets {
    let (ours, others) = match verbosity {
        0..=3 => (LevelFilter::INFO, LevelFilter::OFF),
        4..=5 => (LevelFilter::DEBUG, LevelFilter::OFF),
        6.. => (LevelFilter::TRACE, LevelFilter::DEBUG),
    };
    let ourselves = env!("CARGO_CRATE_NAME");
    Targets::new()
        .with_default(others)
        .with_target(ourselves, ours)
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::*;

    #[test]
    fn libraries_are_heard_only_by_those_who_look_for_faults() {
        let hears = |verbosity, target, level| wanted(verbosity).would_enable(target, &level);
        assert!(hears(0, "kube_proxy::run", Level::INFO));
        assert!(!hears(3, "kube_proxy::run", Level::DEBUG));
        assert!(hears(4, "kube_proxy::kubernetes::watch", Level::DEBUG));
        assert!(!hears(5, "kube_client::client", Level::ERROR));
        assert!(hears(6, "kube_client::client", Level::DEBUG));
        assert!(hears(9, "kube_proxy", Level::TRACE));
    }
}
