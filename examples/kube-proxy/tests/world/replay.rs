//! Histories with a real kernel, each in its own network namespace.

use std::time::Duration;

use proxy_core::{Config, Engine, Event, Family, Intervals};
use testkit::netns::Netns;
use testworld::Change;
use vipline_service_model::DetectLocal;
use vipline_service_model::arbitrary::NODE;

use crate::decode::decode;
use crate::history::{Verdict, deletions};

/// Returns the configuration of an engine that syncs on every poll.
pub(crate) fn config() -> Config {
    let min = Duration::ZERO;
    Config::new(NODE)
        .with_detect_local(DetectLocal::NodeCidr)
        .with_intervals(Intervals {
            min,
            ..Intervals::default()
        })
}

/// Applies a history and then deletes every object. After each sync a dump must equal
/// the plan, except for objects that the kernel may reject.
pub(crate) fn replay(
    mut engine: Engine,
    seed: u64,
    changes: &[Change],
    may_reject: fn(&str) -> bool,
) -> Verdict {
    let mut now = Duration::ZERO;
    engine.apply(Event::Synced);
    sync_and_compare(&mut engine, &mut now, may_reject)?;
    for change in changes.iter().chain(&deletions(changes, seed)) {
        if let Some(event) = decode(change) {
            engine.apply(event);
            sync_and_compare(&mut engine, &mut now, may_reject)?;
        }
    }
    match rejected(&engine) {
        0 => Ok(()),
        count => Err(format!("{count} rejected objects remain")),
    }
}

fn rejected(engine: &Engine) -> usize {
    Family::ALL
        .map(|family| engine.rejected_count(family))
        .iter()
        .sum()
}

fn sync_and_compare(
    engine: &mut Engine,
    now: &mut Duration,
    may_reject: fn(&str) -> bool,
) -> Verdict {
    *now += Duration::from_secs(1);
    if let Some(report) = engine.poll(*now) {
        if !report.is_success() {
            return Err(format!("a sync failed: {report}"));
        }
        let mut rejections = report.families.iter().flat_map(|done| &done.rejected);
        if let Some(object) = rejections.find(|object| !may_reject(&object.object)) {
            return Err(format!("the kernel rejects {object}"));
        }
    }
    let difference = engine.difference().map_err(|error| error.to_string())?;
    match difference.edits == rejected(engine) {
        true => Ok(()),
        false => Err(format!("the kernel differs:\n{}", difference.script)),
    }
}

/// Runs a closure in a new network namespace, which has only a loopback interface.
pub(crate) fn in_namespace(work: impl FnOnce() -> Verdict + Send) -> Verdict {
    Netns::new().map_err(|error| error.to_string())?.run(work)
}
