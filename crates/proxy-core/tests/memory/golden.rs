//! Golden files: the rendered plans of all fixtures.

use std::path::Path;

use proxy_core::{Event, Mode};

use crate::fixtures;

fn rendered(fixture: &fixtures::Fixture, mode: Mode) -> String {
    let config = fixture.config.clone().with_mode(mode);
    let mut engine = config.plan_only().expect("the mode is built in");
    fixtures::apply(&mut engine, fixture.events.iter().cloned());
    engine.apply(Event::Synced);
    engine.desired()
}

#[test]
fn rendered_plans_match_the_golden_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for &mode in Mode::BUILT_IN {
        let extension = match mode {
            Mode::Nftables => "nft",
            Mode::Ipvs => "ipvs",
            _ => "rules",
        };
        for fixture in fixtures::all() {
            let file = folder.join(mode.name()).join(fixture.name);
            let file = file.with_extension(extension);
            testkit::golden::compare(file, &rendered(&fixture, mode));
        }
    }
}

#[test]
fn rendered_plans_do_not_depend_on_the_order_of_events() {
    for &mode in Mode::BUILT_IN {
        for mut fixture in fixtures::all() {
            let text = rendered(&fixture, mode);
            fixture.events.reverse();
            assert_eq!(rendered(&fixture, mode), text, "{mode} {}", fixture.name);
        }
    }
}
