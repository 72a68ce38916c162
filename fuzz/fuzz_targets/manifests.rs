//! Parses arbitrary text as a manifest, and applies the objects to a store.
#![no_main]

use vipline_kube_source::manifests::parse::parse;
use libfuzzer_sys::fuzz_target;
use vipline_service_model::{Config, Event, Store};

fuzz_target!(|text: &str| {
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
});
