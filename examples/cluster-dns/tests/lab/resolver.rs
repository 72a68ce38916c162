//! Names as the resolver of glibc and that of busybox find them, with the search path of a
//! pod.

use crate::stage::{EXAMPLE, SERVER, Stage};

/// Returns the distinct addresses that `getent ahosts` prints.
fn getent(stage: &Stage, database: &str, name: &str) -> Vec<String> {
    let output = stage.in_pod(&["getent", database, name]);
    let text = String::from_utf8(output.stdout).unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error, "", "{name}");
    let address = |line: &str| line.split_whitespace().next().map(str::to_owned);
    let mut addresses: Vec<String> = text.lines().filter_map(address).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

#[test]
fn the_resolver_of_glibc_finds_services_by_the_search_path() {
    let stage = Stage::new();
    let _upstream = stage.upstream(60);
    for name in [
        "web",
        "web.shop",
        "web.shop.svc",
        "web.shop.svc.cluster.local",
        "web.shop.svc.cluster.local.",
        "Web.SHOP",
    ] {
        assert_eq!(getent(&stage, "ahostsv4", name), ["10.96.0.20"], "{name}");
        assert_eq!(
            getent(&stage, "ahosts", name),
            ["10.96.0.20", "fd00:96::20"],
            "{name}"
        );
    }
    assert_eq!(
        getent(&stage, "ahostsv4", "db"),
        ["10.244.1.11", "10.244.1.12"]
    );
    assert_eq!(getent(&stage, "ahostsv4", "db-0.db"), ["10.244.1.11"]);
    // Names with fewer than five dots are first searched in the zone.
    assert_eq!(getent(&stage, "ahostsv4", "www.example.org"), [EXAMPLE]);
    assert_eq!(getent(&stage, "ahostsv4", "docs"), [EXAMPLE]);
    let names = stage.in_pod(&["getent", "hosts", "10.96.0.20"]);
    let names = String::from_utf8(names.stdout).unwrap();
    assert!(names.contains("web.shop.svc.cluster.local"), "{names}");
    assert!(getent(&stage, "ahosts", "none.shop").is_empty());
}

#[test]
fn the_resolver_of_busybox_finds_services() {
    let stage = Stage::new();
    for (name, address) in [
        ("web.shop.svc.cluster.local", "10.96.0.20"),
        ("web.shop.svc.cluster.local", "fd00:96::20"),
        ("db-0.db.shop.svc.cluster.local", "10.244.1.11"),
    ] {
        let output = stage.in_pod(&["busybox", "nslookup", name, SERVER]);
        let text = String::from_utf8(output.stdout).unwrap();
        let is_found = text
            .lines()
            .any(|line| line.ends_with(&format!(" {address}")));
        assert!(is_found, "{name}: {text}");
    }
}
