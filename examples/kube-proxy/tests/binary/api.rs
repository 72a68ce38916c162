//! Objects from an API server, and what such a server does to its clients.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use apiserver::{Disconnect, ErrorResponse};
use serde_json::{Value, json};

use crate::cluster::{Cluster, MOMENT, code, node, served, service, slice};
use crate::stage::until;

/// A change of an object is in the kernel within this.
const SECOND: Duration = Duration::from_secs(1);

fn web() -> [Value; 2] {
    served("web", "10.96.0.10", 1)
}

#[test]
fn the_kernel_is_as_the_api_wants_it() {
    let cidr = json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "kubernetes"},
        "spec": {"cidrs": ["10.96.0.0/16"]},
    });
    let cluster = Cluster::with(web().into_iter().chain([cidr]));
    let proxy = cluster.start();
    let rules = cluster.ruleset();
    for text in ["10.96.0.10", "10.244.1.2", "10.96.0.0/16"] {
        assert!(rules.contains(text), "{text} is not in\n{rules}");
    }
    cluster.assert_in_step();
    let asked: BTreeSet<_> = cluster
        .server
        .requests()
        .into_iter()
        .filter(|request| matches!(request.verb, "list" | "watch"))
        .map(|request| (request.resource, request.labels, request.fields))
        .collect();
    let expected = [
        ("endpointslices", "!service.kubernetes.io/headless", ""),
        ("nodes", "", "metadata.name=node-1"),
        ("servicecidrs", "", ""),
        (
            "services",
            "!service.kubernetes.io/service-proxy-name",
            "spec.clusterIP!=None",
        ),
    ];
    for (kind, labels, fields) in expected {
        let question = (kind, labels.to_owned(), fields.to_owned());
        assert!(asked.contains(&question), "{kind}: {asked:?}");
    }
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn the_scheduler_annotation_reaches_the_virtual_server() {
    let mut maglev = service("maglev", "10.96.0.10");
    maglev["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "service.kubernetes.io/ipvs-scheduler": "mh",
    });
    let cluster = Cluster::with([maglev, service("plain", "10.96.0.11")]);
    let said = cluster.say("render --proxy-mode ipvs");
    assert_eq!(said.code, 0, "{said:?}");
    for server in ["-A -t 10.96.0.10:80 -s mh", "-A -t 10.96.0.11:80 -s rr"] {
        assert!(said.stdout.contains(server), "{server}: {}", said.stdout);
    }
}

#[test]
fn changes_and_deletions_are_in_the_kernel_within_a_second() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    cluster.server.apply(slice("web", 1, 3));
    let time = until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    println!("a changed slice was in the kernel, as nft sees it, after {time:?}");
    assert!(time < SECOND, "{time:?}");
    cluster.server.delete("Service", "default", "web");
    let time = until("no Service", || !cluster.ruleset().contains("10.96.0.10"));
    assert!(time < SECOND, "{time:?}");
    cluster.assert_in_step();
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_service_that_is_given_to_another_proxy_is_gone() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    let mut other = service("web", "10.96.0.10");
    other["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "x"});
    cluster.server.apply(other);
    until("no Service", || !cluster.ruleset().contains("10.96.0.10"));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_server_that_cannot_choose_by_fields_is_asked_without() {
    let cluster = Cluster::with(web().into_iter().chain([service("headless", "None")]));
    cluster.server.faults(|faults| {
        faults.only = Some("services".into());
        faults.error_response = Some(ErrorResponse {
            code: 400,
            retry_after: None,
            times: 1,
        });
    });
    let said = cluster.say("--oneshot -o json");
    assert_eq!(said.code, 0, "{said:?}");
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["services"], 1, "{said:?}");
    let fields: Vec<_> = cluster
        .server
        .requests()
        .into_iter()
        .filter(|request| request.resource == "services")
        .map(|request| request.fields)
        .collect();
    assert_eq!(fields, ["spec.clusterIP!=None", ""]);
}

#[test]
fn a_long_list_is_read_in_pages() {
    let services = (0..1200_u16).map(|number| {
        let [high, low] = number.to_be_bytes();
        service(&format!("s{number}"), &format!("10.96.{high}.{low}"))
    });
    let cluster = Cluster::with(services);
    let said = cluster.say("--oneshot -o json");
    assert_eq!(said.code, 0, "{said:?}");
    let report: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(report["services"], 1200);
    let pages = cluster.server.count("list", "services");
    assert!(pages >= 3, "{pages}");
}

#[test]
fn what_vanished_while_the_api_was_away_goes_after_the_next_list() {
    let cluster = Cluster::with(web().into_iter().chain(served("shop", "10.96.0.11", 2)));
    let proxy = cluster.start();
    cluster.server.refuse_connections();
    cluster.server.cut_connections(Disconnect::Reset);
    cluster.server.delete("Service", "default", "web");
    cluster.server.delete("EndpointSlice", "default", "web-1");
    cluster.server.apply_all(served("new", "10.96.0.12", 3));
    cluster.server.compact();
    until("a complaint", || {
        proxy.output().contains("Services: ") && proxy.output().contains("EndpointSlices: ")
    });
    let rules = cluster.ruleset();
    assert!(rules.contains("10.96.0.10"), "nothing is taken back yet");
    cluster.server.accept_connections();
    until("the new Service", || {
        cluster.ruleset().contains("10.244.3.2")
    });
    until("no old Service", || {
        let rules = cluster.ruleset();
        !rules.contains("10.96.0.10") && !rules.contains("10.244.1.1")
    });
    assert!(cluster.ruleset().contains("10.96.0.11"));
    cluster.assert_in_step();
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn watches_that_expire_are_begun_again_with_a_list() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    let rules = cluster.ruleset();
    let lists = || {
        let requests = cluster.server.requests();
        let lists = requests
            .iter()
            .filter(|request| request.resource == "services" && request.send_initial_events);
        lists.count()
    };
    let before = lists();
    cluster.server.expire_watches();
    until("another list", || {
        lists() > before && cluster.watches() == 4
    });
    assert_eq!(cluster.ruleset(), rules);
    cluster.server.apply(slice("web", 1, 3));
    until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn an_outage_changes_nothing_and_ends_by_itself() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    let rules = cluster.ruleset();
    cluster.server.refuse_connections();
    cluster.server.cut_connections(Disconnect::Close);
    until("a complaint", || {
        proxy.output().contains("keeping the known objects")
    });
    thread::sleep(MOMENT);
    assert_eq!(cluster.ruleset(), rules);
    cluster.server.accept_connections();
    cluster.server.apply(slice("web", 1, 3));
    until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    until("the good news", || {
        proxy.output().contains("in sync with the API server again")
    });
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_proxy_ends_at_once_although_the_api_hangs() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    cluster.server.hang_connections(true);
    let begin = Instant::now();
    assert!(proxy.terminate().unwrap().success());
    let time = begin.elapsed();
    println!("ended {time:?} after SIGTERM");
    assert!(time < SECOND, "{time:?}");
    assert!(cluster.ruleset().contains("10.96.0.10"), "the rules stay");
}

#[test]
fn nothing_is_programmed_before_all_is_listed() {
    let cluster = Cluster::with(web());
    let slices = vec!["endpointslices".to_owned()];
    cluster.server.faults(|faults| faults.forbidden = slices);
    let proxy = cluster.start_unsynced("");
    until("a complaint", || {
        proxy.output().contains("EndpointSlices: ") && cluster.watches() == 3
    });
    thread::sleep(MOMENT);
    assert_eq!(cluster.ruleset(), "");
    cluster.server.clear_faults();
    until("all of it", || cluster.ruleset().contains("10.244.1.2"));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn nothing_is_programmed_before_the_node_has_an_address() {
    let cluster = Cluster::new();
    cluster.server.apply_all(web());
    let proxy = cluster.start_unsynced("");
    until("the wait", || {
        proxy
            .output()
            .contains("waiting for what node \"node-1\" does not say yet")
    });
    thread::sleep(MOMENT);
    assert_eq!(cluster.ruleset(), "");
    let mut bare = node("10.0.0.1", "10.244.1.0/24");
    bare["status"] = json!({});
    cluster.server.apply(bare);
    thread::sleep(MOMENT);
    assert_eq!(cluster.ruleset(), "");
    cluster.server.apply(node("10.0.0.1", "10.244.1.0/24"));
    until("the first sync", || {
        cluster.ruleset().contains("10.96.0.10")
    });
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn other_pod_cidrs_end_a_proxy_that_goes_by_them() {
    let cluster = Cluster::with(web());
    let mut proxy = cluster.start_unsynced("--detect-local-mode NodeCIDR");
    until("the first sync", || proxy.output().contains("synced"));
    until("four watches", || cluster.watches() == 4);
    assert!(cluster.ruleset().contains("10.244.1.0/24"));
    cluster.server.apply(node("10.0.0.2", "10.244.1.0/24"));
    until("the news", || proxy.output().contains("has new addresses"));
    cluster.server.apply(node("10.0.0.2", "10.244.9.0/24"));
    assert_eq!(code(&mut proxy), 1);
    assert!(
        proxy.output().contains("changed podCIDRs"),
        "{}",
        proxy.output()
    );
    assert!(
        cluster.ruleset().contains("10.244.1.0/24"),
        "the rules stay"
    );
}

#[test]
fn a_node_that_is_deleted_changes_nothing() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    let rules = cluster.ruleset();
    cluster.server.delete("Node", "", "node-1");
    until("the news", || proxy.output().contains("was deleted"));
    assert_eq!(cluster.ruleset(), rules);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn commands_ask_the_api_once() {
    let cluster = Cluster::with(web());
    let said = cluster.say("render");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("10.244.1.2"), "{}", said.stdout);
    let said = cluster.say("diff");
    assert_eq!(said.code, 1, "{said:?}");
    let report = cluster.say("--oneshot");
    assert_eq!(report.code, 0, "{report:?}");
    assert!(report.stdout.contains("1 services"), "{report:?}");
    cluster.assert_in_step();
    assert_eq!(cluster.server.count("watch", "services"), 0);
    cluster.server.refuse_connections();
    let said = cluster.say("render");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("list "), "{said:?}");
    let missing = cluster.say("render --detect-local-mode NodeCIDR --hostname-override node-9");
    assert_eq!(missing.code, 1, "{missing:?}");
}

#[test]
fn kinds_that_are_not_there_or_not_allowed_are_done_without() {
    let cluster = Cluster::with(web());
    let forbid = |kinds: &[&str]| {
        let kinds = kinds.iter().map(|&kind| kind.into()).collect();
        cluster.server.faults(|faults| faults.forbidden = kinds);
    };
    forbid(&["servicecidrs"]);
    let said = cluster.say("--oneshot");
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stderr.contains("ServiceCIDRs are not available"),
        "{said:?}"
    );
    forbid(&["services"]);
    let said = cluster.say("--oneshot");
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stderr.contains("list Services: "), "{said:?}");
}

#[test]
fn users_are_told_by_events() {
    // Of two that are as old as one another the name decides.
    let cluster = Cluster::with([service("web", "10.96.0.10"), service("worm", "10.96.0.10")]);
    let proxy = cluster.start();
    let told = |reason: &str| {
        let events = cluster.server.events();
        events.into_iter().find(|event| event["reason"] == reason)
    };
    until("both events", || {
        told("Starting").is_some() && told("AddressContested").is_some()
    });
    let starting = told("Starting").unwrap();
    assert_eq!(
        starting["regarding"],
        json!({"kind": "Node", "name": "node-1"})
    );
    assert_eq!(starting["action"], "StartKubeProxy");
    let contested = told("AddressContested").unwrap();
    assert_eq!(contested["regarding"]["name"], "worm");
    assert_eq!(contested["type"], "Warning");
    let note = contested["note"].as_str().unwrap();
    assert!(note.contains("10.96.0.10:80"), "{note}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_service_with_a_refused_address_gets_an_event() {
    let mut hazard = service("hazard", "10.96.0.10");
    hazard["spec"]["externalIPs"] = json!(["224.0.1.1"]);
    let cluster = Cluster::with([hazard]);
    let proxy = cluster.start();
    let refused = || {
        let events = cluster.server.events();
        events
            .into_iter()
            .find(|event| event["reason"] == "AddressRefused")
    };
    until("the event", || refused().is_some());
    let event = refused().unwrap();
    assert_eq!(event["regarding"]["name"], "hazard");
    assert_eq!(event["type"], "Warning");
    let note = "spec.externalIPs[0]: multicast address refused: 224.0.1.1";
    assert_eq!(event["note"], note);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_configuration_file_that_changes_ends_the_process() {
    let cluster = Cluster::with(web());
    let file = cluster.folder.path().join("config.yaml");
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
         mode: nftables\nclientConnection: {{kubeconfig: {}}}\n",
        cluster.kubeconfig().display()
    );
    fs::write(&file, &text).unwrap();
    let mut proxy = cluster.start_unsynced(&format!("--config {}", file.display()));
    until("the first sync", || proxy.output().contains("synced"));
    fs::write(&file, text + "bindAddress: 0.0.0.0\n").unwrap();
    assert_eq!(code(&mut proxy), 1);
    let changed = "content of the proxy server's configuration file was updated";
    assert!(proxy.output().contains(changed), "{}", proxy.output());
    assert!(cluster.ruleset().contains("10.96.0.10"), "the rules stay");
}

#[test]
fn a_server_that_cannot_begin_ends_the_process_only_if_it_shall() {
    let cluster = Cluster::with(web());
    let taken = cluster
        .netns
        .run(|| std::net::TcpListener::bind("127.0.0.1:10249"));
    let _taken = taken.unwrap();
    let proxy = cluster.start();
    until("the complaint", || {
        proxy.output().contains("metrics server cannot listen")
    });
    assert!(proxy.terminate().unwrap().success());
    let mut proxy = cluster.start_unsynced("--bind-address-hard-fail");
    assert_eq!(code(&mut proxy), 1);
    assert!(proxy.output().contains("metrics server cannot listen"));
}

#[test]
fn credentials_that_changed_are_read_again() {
    let cluster = Cluster::with(web());
    fs::write(cluster.kubeconfig(), cluster.server.kubeconfig_with_token()).unwrap();
    let proxy = cluster.start();
    cluster.server.set_token("another");
    cluster.server.cut_connections(Disconnect::Close);
    until("a refusal", || proxy.output().contains("(code 401)"));
    fs::write(cluster.kubeconfig(), cluster.server.kubeconfig_with_token()).unwrap();
    cluster.server.apply(slice("web", 1, 3));
    until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    assert!(proxy.terminate().unwrap().success());
}
