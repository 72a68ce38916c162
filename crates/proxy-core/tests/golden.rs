//! What is rendered for small clusters, as texts that were reviewed.
#![cfg(feature = "nftables")]

mod fixtures;

use std::path::Path;

use proxy_core::{Engine, Event};

fn rendered(fixture: &fixtures::Fixture) -> String {
    let mut engine = Engine::plan_only(fixture.config.clone()).expect("the mode is built in");
    fixtures::apply(&mut engine, fixture.events.iter().cloned());
    engine.apply(Event::Synced);
    engine.desired()
}

#[test]
fn golden_files_hold_what_is_rendered() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nftables");
    for fixture in fixtures::all() {
        let file = folder.join(fixture.name).with_extension("nft");
        testkit::golden::compare(file, &rendered(&fixture));
    }
}

#[test]
fn golden_files_do_not_depend_on_the_order_of_events() {
    for mut fixture in fixtures::all() {
        let text = rendered(&fixture);
        fixture.events.reverse();
        assert_eq!(rendered(&fixture), text, "{}", fixture.name);
    }
}
