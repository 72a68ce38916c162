//! Changes of manifests and of objects of an API server.

use serde_json::{Value, json};
use std::time::Instant;
use testkit::scoped::Directory;

use crate::stage::{FLAGS, Stage, service};

#[test]
fn a_changed_manifest_changes_the_answers() {
    let stage = Stage::start(&[("web.yaml", &service("web", "10.96.0.10"))], FLAGS);
    let address = || stage.dig("+short web.shop.svc.cluster.local");
    assert_eq!(address(), "10.96.0.10\n");
    stage
        .files
        .write("web.yaml", &service("web", "10.96.0.11"))
        .unwrap();
    stage.until("the new address", || address() == "10.96.0.11\n");
    stage.files.write("web.yaml", "kind: [").unwrap();
    stage.until("the error", || stage.process.output().contains("web.yaml:"));
    assert_eq!(address(), "10.96.0.11\n");
    std::fs::remove_file(stage.files.path().join("web.yaml")).unwrap();
    stage.until("the removal", || address().is_empty());
}

#[test]
fn invalid_manifests_at_the_start_end_the_program() {
    let files = Directory::new().unwrap();
    files
        .write("web.yaml", &service("web", "10.96.0.300"))
        .unwrap();
    let path = files.path().display();
    let (code, text) = crate::stage::outcome(&format!("--manifests {path} {FLAGS}"));
    assert_eq!(code, Some(2), "{text}");
    assert!(
        text.contains("web.yaml:4") && text.contains("10.96.0.300"),
        "{text}"
    );
}

fn web(address: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": "web", "namespace": "shop" },
        "spec": { "clusterIP": address, "clusterIPs": [address], "ports": [{ "port": 80 }] },
    })
}

#[test]
fn an_outage_of_the_api_server_keeps_the_last_answers() {
    let (stage, server) = Stage::with_api(|server| {
        server.apply(web("10.96.0.10"));
    });
    stage.wait_until_ready();
    let address = || stage.dig("+short web.shop.svc.cluster.local");
    assert_eq!(address(), "10.96.0.10\n");
    server.apply(web("10.96.0.11"));
    let begin = Instant::now();
    stage.until("the new address", || address() == "10.96.0.11\n");
    eprintln!(
        "change to answer, with the start of dig: {:?}",
        begin.elapsed()
    );
    let listener = server.address();
    drop(server);
    stage.until("the outage", || stage.process.output().contains("retrying"));
    assert_eq!(address(), "10.96.0.11\n");
    assert!(stage.page("/ready").unwrap().ends_with("OK"), "{listener}");
}

#[test]
fn a_server_without_a_list_is_not_ready_and_denies_no_name() {
    let files = Directory::new().unwrap();
    let flags = format!("--master https://127.0.0.1:1 {FLAGS}");
    let stage = Stage::with(files, &flags, &[]);
    stage.until("the page", || stage.page("/ready").is_some());
    let ready = stage.page("/ready").unwrap();
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    let text = stage.dig("web.shop.svc.cluster.local");
    assert!(text.contains("status: SERVFAIL"), "{text}");
    assert!(stage.page("/health").unwrap().ends_with("OK"));
}
