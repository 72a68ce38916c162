//! Applies arbitrary events in arbitrary order. Incremental resolution must have the same
//! result as a single resolution.

use std::collections::BTreeMap;

use vipline_service_model::arbitrary::{Dice, NODE};
use vipline_service_model::{Config, Event, Store};

/// Limit of the number of events.
const EVENTS: usize = 64;

/// Checks one input.
pub(crate) fn run(bytes: &[u8]) {
    let mut dice = Dice::from_bytes(bytes);
    let (mut stepwise, mut at_once) =
        (Store::new(Config::new(NODE)), Store::new(Config::new(NODE)));
    stepwise.apply(Event::Synced);
    let mut ports = BTreeMap::new();
    for _ in 0..EVENTS {
        if dice.is_spent() {
            break;
        }
        let event = dice.event();
        stepwise.apply(event.clone());
        at_once.apply(event);
        let node = stepwise.node();
        for resolved in stepwise.resolve(&node) {
            let key = (resolved.family, resolved.name);
            match resolved.port {
                Some(port) => ports.insert(key, port),
                None => ports.remove(&key),
            };
        }
    }
    at_once.apply(Event::Synced);
    let node = at_once.node();
    let last: BTreeMap<_, _> = at_once
        .resolve(&node)
        .into_iter()
        .filter_map(|resolved| Some(((resolved.family, resolved.name), resolved.port?)))
        .collect();
    assert_eq!(ports, last);
}
