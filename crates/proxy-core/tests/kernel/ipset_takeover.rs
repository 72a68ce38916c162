//! Compatibility of the ipsets of mode ipvs with those of upstream.

use std::io::Write as _;
use std::process::{Command, Stdio};

use proxy_core::{Event, Family, Mode};
use testkit::netns::Netns;

use crate::{fixtures, upstream_sets};

/// Creates the sets and entries of a plan.
fn restore(plan: &str) {
    let is_ipset_line = |line: &&str| line.starts_with("create ") || line.starts_with("add ");
    let lines = plan.lines().filter(is_ipset_line);
    let document: String = lines.flat_map(|line| [line, "\n"]).collect();
    let mut command = Command::new("ipset");
    let command = command.arg("restore").stdin(Stdio::piped());
    let mut child = command.spawn().expect("ipset is installed");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin
        .write_all(document.as_bytes())
        .expect("ipset reads its input");
    drop(stdin);
    assert!(child.wait().expect("ipset exits").success(), "{document}");
}

fn listed() -> String {
    let output = Command::new("ipset").arg("list").arg("-t").output();
    let output = output.expect("ipset is installed");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("names are text")
}

#[test]
fn upstream_accepts_existing_sets_and_changes_none() {
    let fixture = fixtures::all().into_iter().find(|it| it.name == "overall");
    let fixture = fixture.expect("the fixture exists");
    for family in Family::ALL {
        let config = fixture
            .config
            .clone()
            .with_mode(Mode::Ipvs)
            .with_families(vec![family]);
        let mut engine = config.plan_only().expect("the mode is built in");
        fixtures::apply(&mut engine, fixture.events.iter().cloned());
        engine.apply(Event::Synced);
        Netns::new().expect("a network namespace").run(|| {
            restore(&engine.desired());
            let before = listed();
            upstream_sets::create_all(family);
            assert_eq!(listed(), before);
            assert_eq!(
                before.matches("Name: ").count(),
                upstream_sets::names(family).len()
            );
        });
    }
}
