//! Parses arbitrary text as a manifest, and applies the objects to a store.

use vipline_kube_source::manifests::parse::parse;
use vipline_service_model::{Config, Event, Store};

/// Checks one input.
pub(crate) fn run(text: &str) {
    let manifest = match parse(text) {
        Ok(manifest) => manifest,
        Err(fault) => {
            assert!(!fault.to_string().is_empty());
            return;
        }
    };
    let mut store = Store::new(Config::new("node-1"));
    store.apply(Event::Synced);
    for found in manifest.objects {
        store.apply(found.object.applied());
    }
    let node = store.node();
    store.resolve(&node);
}
