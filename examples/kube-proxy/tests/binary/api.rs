//! Objects of an API server, and failures of the server.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use apiserver::{Disconnect, ErrorResponse};
use ipnet::IpNet;
use serde_json::{Value, json};
use testkit::link;

use crate::cluster::{Cluster, QUIET_PERIOD, code, node, service, service_with_endpoints, slice};
use crate::stage::wait_until;

/// Maximum time from a change of an object to the kernel.
const SECOND: Duration = Duration::from_secs(1);

fn web() -> [Value; 2] {
    service_with_endpoints("web", "10.96.0.10", 1)
}

#[test]
fn objects_of_the_api_are_programmed() {
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
    cluster.assert_in_sync();
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
        let request = (kind, labels.to_owned(), fields.to_owned());
        assert!(asked.contains(&request), "{kind}: {asked:?}");
    }
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn lists_come_from_watches_unless_a_gate_forbids_it() {
    for (gates, lists) in [
        ("", 0),
        ("--feature-gates WatchListClient=false", 4),
        ("--feature-gates AllBeta=false", 4),
    ] {
        let cluster = Cluster::with(web());
        let proxy = cluster.start_unsynced(gates);
        wait_until("four watches", || cluster.watches() == 4);
        let requests = cluster.server.requests();
        let count = requests.iter().filter(|request| request.verb == "list");
        assert_eq!(count.count(), lists, "{gates}");
        assert!(proxy.terminate().unwrap().success());
    }
}

#[test]
fn the_scheduler_annotation_reaches_the_virtual_server() {
    let mut maglev = service("maglev", "10.96.0.10");
    maglev["metadata"]["annotations"] = json!({
        "kubectl.kubernetes.io/last-applied-configuration": "{}",
        "service.kubernetes.io/ipvs-scheduler": "mh",
    });
    let cluster = Cluster::with([maglev, service("plain", "10.96.0.11")]);
    let outcome = cluster.run("render --proxy-mode ipvs");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    for server in ["-A -t 10.96.0.10:80 -s mh", "-A -t 10.96.0.11:80 -s rr"] {
        assert!(
            outcome.stdout.contains(server),
            "{server}: {}",
            outcome.stdout
        );
    }
}

#[test]
fn changes_and_deletions_are_programmed_within_a_second() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    cluster.server.apply(slice("web", 1, 3));
    let time = wait_until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    println!("a changed slice was in the kernel, as nft sees it, after {time:?}");
    assert!(time < SECOND, "{time:?}");
    cluster.server.delete("Service", "default", "web");
    let time = wait_until("no Service", || !cluster.ruleset().contains("10.96.0.10"));
    assert!(time < SECOND, "{time:?}");
    cluster.assert_in_sync();
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_service_labeled_for_another_proxy_is_removed() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    let mut other = service("web", "10.96.0.10");
    other["metadata"]["labels"] = json!({"service.kubernetes.io/service-proxy-name": "x"});
    cluster.server.apply(other);
    wait_until("no Service", || !cluster.ruleset().contains("10.96.0.10"));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_server_without_field_selectors_gets_requests_without_them() {
    let cluster = Cluster::with(web().into_iter().chain([service("headless", "None")]));
    cluster.server.faults(|faults| {
        faults.only = Some("services".into());
        faults.error_response = Some(ErrorResponse {
            code: 400,
            retry_after: None,
            times: 1,
        });
    });
    let outcome = cluster.run("--oneshot -o json");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["services"], 1, "{outcome:?}");
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
    let outcome = cluster.run("--oneshot -o json");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    let report: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(report["services"], 1200);
    let pages = cluster.server.count("list", "services");
    assert!(pages >= 3, "{pages}");
}

#[test]
fn objects_deleted_during_an_outage_are_removed_after_the_next_list() {
    let cluster = Cluster::with(web().into_iter().chain(service_with_endpoints(
        "shop",
        "10.96.0.11",
        2,
    )));
    let proxy = cluster.start();
    cluster.server.refuse_connections();
    cluster.server.cut_connections(Disconnect::Reset);
    cluster.server.delete("Service", "default", "web");
    cluster.server.delete("EndpointSlice", "default", "web-1");
    cluster
        .server
        .apply_all(service_with_endpoints("new", "10.96.0.12", 3));
    cluster.server.compact();
    wait_until("the warning", || {
        proxy.output().contains("Services: ") && proxy.output().contains("EndpointSlices: ")
    });
    let rules = cluster.ruleset();
    assert!(
        rules.contains("10.96.0.10"),
        "no rule is removed during the outage"
    );
    cluster.server.accept_connections();
    wait_until("the new Service", || {
        cluster.ruleset().contains("10.244.3.2")
    });
    wait_until("no old Service", || {
        let rules = cluster.ruleset();
        !rules.contains("10.96.0.10") && !rules.contains("10.244.1.1")
    });
    assert!(cluster.ruleset().contains("10.96.0.11"));
    cluster.assert_in_sync();
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn expired_watches_restart_with_a_list() {
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
    wait_until("another list", || {
        lists() > before && cluster.watches() == 4
    });
    assert_eq!(cluster.ruleset(), rules);
    cluster.server.apply(slice("web", 1, 3));
    wait_until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn an_outage_changes_no_rules_and_the_proxy_recovers() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    let rules = cluster.ruleset();
    cluster.server.refuse_connections();
    cluster.server.cut_connections(Disconnect::Close);
    wait_until("the warning", || {
        proxy.output().contains("keeping the known objects")
    });
    thread::sleep(QUIET_PERIOD);
    assert_eq!(cluster.ruleset(), rules);
    cluster.server.accept_connections();
    cluster.server.apply(slice("web", 1, 3));
    wait_until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    wait_until("the recovery message", || {
        proxy.output().contains("in sync with the API server again")
    });
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_proxy_exits_within_a_second_while_the_api_hangs() {
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
fn nothing_is_programmed_before_all_lists_are_complete() {
    let cluster = Cluster::with(web());
    let slices = vec!["endpointslices".to_owned()];
    cluster.server.faults(|faults| faults.forbidden = slices);
    let proxy = cluster.start_unsynced("");
    wait_until("the warning", || {
        proxy.output().contains("EndpointSlices: ") && cluster.watches() == 3
    });
    thread::sleep(QUIET_PERIOD);
    assert_eq!(cluster.ruleset(), "");
    cluster.server.clear_faults();
    wait_until("the endpoint", || cluster.ruleset().contains("10.244.1.2"));
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn nothing_is_programmed_before_the_node_has_an_address() {
    let cluster = Cluster::new();
    cluster.server.apply_all(web());
    let proxy = cluster.start_unsynced("");
    let absent = "there is no Node \"node-1\"; the first sync waits for it";
    wait_until(absent, || proxy.output().contains(absent));
    thread::sleep(QUIET_PERIOD);
    assert_eq!(cluster.ruleset(), "");
    let mut bare = node("10.0.0.1", "10.244.1.0/24");
    bare["status"] = json!({});
    cluster.server.apply(bare);
    let bare = "the first sync waits for addresses of Node \"node-1\"";
    wait_until(bare, || proxy.output().contains(bare));
    assert_eq!(cluster.ruleset(), "");
    cluster.server.apply(node("10.0.0.1", "10.244.1.0/24"));
    wait_until("the first sync", || {
        cluster.ruleset().contains("10.96.0.10")
    });
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_short_wait_for_addresses_is_not_logged() {
    let cluster = Cluster::new();
    cluster.server.apply_all(web());
    let mut bare = node("10.0.0.1", "10.244.1.0/24");
    bare["status"] = json!({});
    cluster.server.apply(bare);
    let proxy = cluster.start_unsynced("");
    wait_until("four watches", || cluster.watches() == 4);
    thread::sleep(QUIET_PERIOD);
    assert_eq!(cluster.ruleset(), "");
    cluster.server.apply(node("10.0.0.1", "10.244.1.0/24"));
    wait_until("the first sync", || proxy.output().contains("synced"));
    let output = proxy.output();
    assert!(!output.contains("the first sync waits"), "{output}");
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn changed_pod_cidrs_end_a_proxy_that_detects_local_traffic_by_them() {
    let cluster = Cluster::with(web());
    let mut proxy = cluster.start_unsynced("--detect-local-mode NodeCIDR");
    wait_until("the first sync", || proxy.output().contains("synced"));
    wait_until("four watches", || cluster.watches() == 4);
    assert!(cluster.ruleset().contains("10.244.1.0/24"));
    cluster.server.apply(node("10.0.0.2", "10.244.1.0/24"));
    wait_until("the log message", || {
        proxy.output().contains("has new addresses")
    });
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
fn the_deletion_of_the_node_changes_no_rules() {
    let cluster = Cluster::with(web());
    let proxy = cluster.start();
    let rules = cluster.ruleset();
    cluster.server.delete("Node", "", "node-1");
    wait_until("the log message", || proxy.output().contains("was deleted"));
    assert_eq!(cluster.ruleset(), rules);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn commands_list_objects_once_and_do_not_watch() {
    let cluster = Cluster::with(web());
    let outcome = cluster.run("render");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(outcome.stdout.contains("10.244.1.2"), "{}", outcome.stdout);
    let outcome = cluster.run("diff");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    let report = cluster.run("--oneshot");
    assert_eq!(report.code, 0, "{report:?}");
    assert!(
        report.stdout.contains(" 1 service, 1 port, 2 endpoints\n"),
        "{report:?}"
    );
    cluster.assert_in_sync();
    assert_eq!(cluster.server.count("watch", "services"), 0);
    cluster.server.refuse_connections();
    let outcome = cluster.run("render");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.stderr.contains("list "), "{outcome:?}");
    let missing = cluster.run("render --detect-local-mode NodeCIDR --hostname-override node-9");
    assert_eq!(missing.code, 1, "{missing:?}");
}

#[test]
fn forbidden_service_cidrs_are_ignored_and_forbidden_services_are_fatal() {
    let cluster = Cluster::with(web());
    let forbid = |kinds: &[&str]| {
        let kinds = kinds.iter().map(|&kind| kind.into()).collect();
        cluster.server.faults(|faults| faults.forbidden = kinds);
    };
    forbid(&["servicecidrs"]);
    let outcome = cluster.run("--oneshot");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(
        outcome.stderr.contains("ServiceCIDRs are not available"),
        "{outcome:?}"
    );
    forbid(&["services"]);
    let outcome = cluster.run("--oneshot");
    assert_eq!(outcome.code, 1, "{outcome:?}");
    assert!(outcome.stderr.contains("list Services: "), "{outcome:?}");
}

#[test]
fn starts_and_contested_addresses_are_reported_as_events() {
    // Services of the same age are ordered by name.
    let cluster = Cluster::with([service("web", "10.96.0.10"), service("worm", "10.96.0.10")]);
    let proxy = cluster.start();
    let event = |reason: &str| {
        let events = cluster.server.events();
        events.into_iter().find(|event| event["reason"] == reason)
    };
    wait_until("both events", || {
        event("Starting").is_some() && event("AddressContested").is_some()
    });
    let starting = event("Starting").unwrap();
    assert_eq!(
        starting["regarding"],
        json!({"kind": "Node", "name": "node-1"})
    );
    assert_eq!(starting["action"], "StartKubeProxy");
    let contested = event("AddressContested").unwrap();
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
    let event = || {
        let events = cluster.server.events();
        events
            .into_iter()
            .find(|event| event["reason"] == "AddressRefused")
    };
    wait_until("the event", || event().is_some());
    let event = event().unwrap();
    assert_eq!(event["regarding"]["name"], "hazard");
    assert_eq!(event["type"], "Warning");
    let note = "spec.externalIPs[0]: multicast address refused: 224.0.1.1";
    assert_eq!(event["note"], note);
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_service_whose_source_ranges_leave_an_address_open_gets_an_event() {
    let mut open = service("open", "10.96.0.10");
    open["spec"]["type"] = json!("LoadBalancer");
    open["spec"]["loadBalancerSourceRanges"] = json!(["2001:db8::/32"]);
    open["status"] = json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.9"}]}});
    let mut closed = open.clone();
    closed["metadata"]["name"] = json!("closed");
    closed["spec"]["clusterIP"] = json!("10.96.0.11");
    closed["spec"]["clusterIPs"] = json!(["10.96.0.11"]);
    closed["spec"]["loadBalancerSourceRanges"] = json!(["2001:db8::/32", "192.0.2.0/24"]);
    closed["status"]["loadBalancer"]["ingress"][0]["ip"] = json!("203.0.113.10");
    let cluster = Cluster::with([open.clone(), closed]);
    let proxy = cluster.start();
    let events = || -> Vec<Value> {
        let events = cluster.server.events().into_iter();
        events
            .filter(|event| event["reason"] == "SourceRangesIneffective")
            .collect()
    };
    wait_until("the event", || !events().is_empty());
    let [event] = &*events() else {
        panic!("one event: {:?}", events());
    };
    assert_eq!(event["regarding"]["name"], "open");
    assert_eq!(event["type"], "Warning");
    let note = "spec.loadBalancerSourceRanges: no range is IPv4, so all clients reach load \
                balancer IP 203.0.113.9";
    assert_eq!(event["note"], note);
    let lines = || proxy.output().matches(note).count();
    assert_eq!(lines(), 1, "{}", proxy.output());

    // The deletion of an object with finalizers begins with a change of its metadata.
    open["metadata"]["finalizers"] = json!(["service.kubernetes.io/load-balancer-cleanup"]);
    open["metadata"]["deletionTimestamp"] = json!("2026-11-28T12:00:00Z");
    cluster.server.apply(open);
    // The proxy has read the change when it serves what came later.
    cluster.server.apply(service("later", "10.96.0.12"));
    wait_until("the later Service", || {
        cluster.ruleset().contains("10.96.0.12")
    });
    assert_eq!(lines(), 1, "{}", proxy.output());
    assert_eq!(events().len(), 1, "{:?}", events());
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_service_whose_node_port_an_external_ip_hides_gets_an_event() {
    let mut external = service("external", "10.96.0.10");
    external["spec"]["externalIPs"] = json!(["10.0.0.1"]);
    external["spec"]["ports"] = json!([{"port": 30080}]);
    let mut node_port = service("node-port", "10.96.0.11");
    node_port["spec"]["type"] = json!("NodePort");
    node_port["spec"]["ports"] = json!([{"port": 80, "nodePort": 30080}]);
    let cluster = Cluster::with([external, node_port]);
    // Node ports are served only at addresses that an interface has.
    let address: IpAddr = [10, 0, 0, 1].into();
    let added = cluster
        .netns
        .run(|| link::add_address("lo", IpNet::from(address)));
    added.unwrap();
    let proxy = cluster.start();
    let event = || {
        let events = cluster.server.events();
        events
            .into_iter()
            .find(|event| event["reason"] == "AddressContested")
    };
    wait_until("the event", || event().is_some());
    let event = event().unwrap();
    assert_eq!(event["regarding"]["name"], "node-port");
    let note = "default/node-port does not get 10.0.0.1:30080/TCP: default/external has it as its \
                external IP";
    assert_eq!(event["note"], note);
    let line = "10.0.0.1:30080/TCP: 2 service ports claim this address; default/external gets it";
    assert!(proxy.output().contains(line), "{}", proxy.output());
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_changed_configuration_file_ends_the_process() {
    let cluster = Cluster::with(web());
    let file = cluster.folder.path().join("config.yaml");
    let text = format!(
        "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n\
         mode: nftables\nclientConnection: {{kubeconfig: {}}}\n",
        cluster.kubeconfig().display()
    );
    fs::write(&file, &text).unwrap();
    let mut proxy = cluster.start_unsynced(&format!("--config {}", file.display()));
    wait_until("the first sync", || proxy.output().contains("synced"));
    fs::write(&file, text + "bindAddress: 0.0.0.0\n").unwrap();
    assert_eq!(code(&mut proxy), 1);
    let changed = "content of the proxy server's configuration file was updated";
    assert!(proxy.output().contains(changed), "{}", proxy.output());
    assert!(cluster.ruleset().contains("10.96.0.10"), "the rules stay");
}

#[test]
fn a_failed_bind_is_fatal_only_with_bind_address_hard_fail() {
    let cluster = Cluster::with(web());
    let taken = cluster
        .netns
        .run(|| std::net::TcpListener::bind("127.0.0.1:10249"));
    let _taken = taken.unwrap();
    let proxy = cluster.start();
    wait_until("the warning", || {
        proxy.output().contains("metrics server cannot listen")
    });
    assert!(proxy.terminate().unwrap().success());
    let mut proxy = cluster.start_unsynced("--bind-address-hard-fail");
    assert_eq!(code(&mut proxy), 1);
    assert!(proxy.output().contains("metrics server cannot listen"));
}

#[test]
fn changed_credentials_are_reloaded() {
    let cluster = Cluster::with(web());
    fs::write(cluster.kubeconfig(), cluster.server.kubeconfig_with_token()).unwrap();
    let proxy = cluster.start();
    cluster.server.set_token("another");
    cluster.server.cut_connections(Disconnect::Close);
    wait_until("a rejected request", || {
        proxy.output().contains("(code 401)")
    });
    fs::write(cluster.kubeconfig(), cluster.server.kubeconfig_with_token()).unwrap();
    cluster.server.apply(slice("web", 1, 3));
    wait_until("the new endpoint", || {
        cluster.ruleset().contains("10.244.1.3 ")
    });
    assert!(proxy.terminate().unwrap().success());
}
