//! Objects of an API server.

use std::time::{Duration, Instant};

use apiserver::ApiServer;
use serde_json::{Value, json};
use testkit::netns::Netns;
use testkit::scoped::Directory;
use testkit::silence::silence_connections;

use crate::api_objects::{endpoints, headless, shop};
use crate::stage::{FLAGS, Stage, outcome};

/// Starts the program with the objects of the lab.
fn start() -> (Stage, ApiServer) {
    let (stage, server) = Stage::with_api(|server| {
        server.apply_all(shop());
    });
    stage.wait_until_ready();
    (stage, server)
}

/// Returns the lines of a short answer in order.
fn short(stage: &Stage, question: &str) -> Vec<String> {
    let text = stage.dig(&format!("+short {question}"));
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn headless_services_have_hostnames_ports_and_reverse_names() {
    let (stage, server) = start();
    for (question, expected) in [
        (
            "db.shop.svc.cluster.local",
            &["10.244.1.11", "10.244.1.12"][..],
        ),
        ("db-0.db.shop.svc.cluster.local", &["10.244.1.11"]),
        ("10-244-1-12.db.shop.svc.cluster.local", &["10.244.1.12"]),
        ("10-244-1-11.db.shop.svc.cluster.local", &[]),
        ("AAAA db.shop.svc.cluster.local", &[]),
        ("-x 10.244.1.11", &["db-0.db.shop.svc.cluster.local."]),
        (
            "SRV _sql._tcp.db.shop.svc.cluster.local",
            &[
                "0 50 5432 10-244-1-12.db.shop.svc.cluster.local.",
                "0 50 5432 db-0.db.shop.svc.cluster.local.",
            ],
        ),
        ("AAAA web.shop.svc.cluster.local", &["fd00:96::20"]),
        ("-x fd00:96::20", &["web.shop.svc.cluster.local."]),
        ("docs.shop.svc.cluster.local", &["www.example.org."]),
    ] {
        assert_eq!(short(&stage, question), expected, "{question}");
    }
    // Headless Services are part of the list: no selector hides them.
    let requests = server.requests();
    let hides = |request: &apiserver::Request| format!("{request:?}").contains("headless");
    assert!(!requests.iter().any(hides), "{requests:?}");
}

#[test]
fn changes_of_endpoints_are_answered_by_the_running_process() {
    let (stage, server) = start();
    let db = || short(&stage, "db.shop.svc.cluster.local");
    server.apply(endpoints("db", &[("10.244.1.13", Some("db-1"))]));
    stage.until("the new endpoint", || db() == ["10.244.1.13"]);
    let gone = stage.dig("db-0.db.shop.svc.cluster.local");
    assert!(gone.contains("status: NXDOMAIN"), "{gone}");
    let mut slice = endpoints("db", &[("10.244.1.13", Some("db-1"))]);
    slice["endpoints"][0]["conditions"] = json!({ "ready": false });
    server.apply(slice);
    stage.until("no ready endpoint", || db().is_empty());
    let mut all = headless("db");
    all["spec"]["publishNotReadyAddresses"] = json!(true);
    server.apply(all);
    stage.until("the endpoint that is not ready", || db() == ["10.244.1.13"]);
    assert!(server.delete("Service", "shop", "db"));
    stage.until("the removal", || {
        let text = stage.dig("db.shop.svc.cluster.local");
        text.contains("status: NXDOMAIN")
    });
}

#[test]
fn a_change_during_an_outage_is_answered_after_it() {
    let (stage, server) = start();
    let db = || short(&stage, "db.shop.svc.cluster.local");
    let staleness = || {
        let page = stage.page("/metrics").unwrap();
        let sample = "cluster_dns_source_staleness_seconds{kind=\"EndpointSlice\"} ";
        let mut values = page.lines().filter_map(|line| line.strip_prefix(sample));
        values.next().map(|value| value.parse::<f64>().unwrap())
    };
    stage.until("the watch", || staleness() == Some(0.0));
    server.refuse_connections();
    server.cut_connections(apiserver::Disconnect::Reset);
    stage.until("the outage", || stage.process.output().contains("retrying"));
    server.apply(endpoints("db", &[("10.244.1.14", None)]));
    assert_eq!(db(), ["10.244.1.11", "10.244.1.12"]);
    stage.until("a second of the outage", || staleness() > Some(1.0));
    assert!(stage.page("/ready").unwrap().ends_with("OK"));
    server.accept_connections();
    stage.until("the new endpoint", || db() == ["10.244.1.14"]);
    stage.until("the watch after the outage", || staleness() == Some(0.0));
}

/// Resources that the program watches.
const WATCHED: [&str; 3] = ["services", "endpointslices", "servicecidrs"];

#[test]
fn only_a_dead_connection_is_replaced_within_half_a_minute_and_not_a_silent_one() {
    let (alive, alive_server) = start();
    let (dead, dead_server) = start();
    let count = |server: &ApiServer| WATCHED.map(|kind| server.count("watch", kind));
    for (stage, server) in [(&alive, &alive_server), (&dead, &dead_server)] {
        stage.until("all watches", || {
            WATCHED.iter().all(|kind| server.watchers(kind) == 1)
        });
    }
    let before = count(&dead_server);
    let port = dead_server.address().port();
    let silenced = dead.netns.run(|| silence_connections(port));
    assert!(silenced >= WATCHED.len(), "{silenced} connections");
    let begun = count(&alive_server);
    let start = Instant::now();
    let is_replaced = dead_server.wait_until(Duration::from_secs(30), |server| {
        let now = count(server);
        now.iter().zip(before).all(|(now, before)| *now > before)
    });
    let output = dead.process.output();
    assert!(is_replaced, "after {:?}: {output}", start.elapsed());
    dead_server.apply(endpoints("db", &[("10.244.1.15", None)]));
    dead.until("the new endpoint", || {
        short(&dead, "db.shop.svc.cluster.local") == ["10.244.1.15"]
    });
    assert_eq!(count(&alive_server), begun, "{}", alive.process.output());
}

#[test]
fn the_program_is_ready_after_the_first_list() {
    let (stage, server) = Stage::with_api(|server| {
        server.apply_all(shop());
        server.hang_connections(true);
    });
    stage.until("the page", || stage.page("/ready").is_some());
    std::thread::sleep(Duration::from_millis(200));
    let ready = stage.page("/ready").unwrap();
    assert!(ready.starts_with("HTTP/1.1 503"), "{ready}");
    for question in ["db.shop.svc.cluster.local", "-x 10.244.1.11", "-x fd00::1"] {
        let text = stage.dig(question);
        assert!(text.contains("status: SERVFAIL"), "{text}");
    }
    server.hang_connections(false);
    stage.wait_until_ready();
    assert_eq!(short(&stage, "db.shop.svc.cluster.local").len(), 2);
}

#[test]
fn names_of_pods_exist_in_the_namespaces_of_the_api() {
    let (stage, server) = Stage::with_api_and("--pods insecure", |server| {
        server.apply_all(shop());
        server.apply(namespace("batch"));
    });
    stage.wait_until_ready();
    for (name, expected) in [
        ("10-1-2-3.shop.pod.cluster.local", "10.1.2.3"),
        // A namespace without Services.
        ("10-1-2-3.batch.pod.cluster.local", "10.1.2.3"),
        (
            "AAAA 2001-db8-0-0-0-0-0-1.batch.pod.cluster.local",
            "2001:db8::1",
        ),
        ("AAAA FD00--0010.batch.pod.cluster.local", "fd00::10"),
    ] {
        assert_eq!(short(&stage, name), [expected], "{name}");
    }
    for (name, status) in [
        ("batch.pod.cluster.local", "NOERROR"),
        ("batch.svc.cluster.local", "NOERROR"),
        ("10-1-2-3.nothing.pod.cluster.local", "NXDOMAIN"),
        ("nothing.pod.cluster.local", "NXDOMAIN"),
        ("10-1-2.batch.pod.cluster.local", "NXDOMAIN"),
    ] {
        let text = stage.dig(name);
        assert!(
            text.contains(&format!("status: {status}")),
            "{name}: {text}"
        );
    }
    server.apply(namespace("new"));
    let new = || short(&stage, "10-1-2-3.new.pod.cluster.local");
    stage.until("the new namespace", || new() == ["10.1.2.3"]);
    assert!(server.delete("Namespace", "", "batch"));
    stage.until("the removal", || {
        let text = stage.dig("10-1-2-3.batch.pod.cluster.local");
        text.contains("status: NXDOMAIN")
    });
}

#[test]
fn without_the_permission_to_list_namespaces_those_of_services_exist() {
    let (stage, _server) = Stage::with_api_and("--pods insecure", |server| {
        server.apply_all(shop());
        server.apply(namespace("batch"));
        server.faults(|faults| faults.forbidden.push("namespaces".to_owned()));
    });
    stage.wait_until_ready();
    assert_eq!(
        short(&stage, "10-1-2-3.shop.pod.cluster.local"),
        ["10.1.2.3"]
    );
    let text = stage.dig("10-1-2-3.batch.pod.cluster.local");
    assert!(text.contains("status: NXDOMAIN"), "{text}");
    let output = stage.process.output();
    assert!(output.contains("Namespaces cannot be listed"), "{output}");
}

fn namespace(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
}

#[test]
fn tokens_of_files_are_accepted_and_wrong_credentials_refused() {
    let (netns, files) = (Netns::new().unwrap(), Directory::new().unwrap());
    let server = netns.run(ApiServer::start);
    server.apply_all(shop());
    let text = server.kubeconfig_with_token();
    let mut lines = text.lines();
    let token = lines.find_map(|line| line.trim().strip_prefix("token: "));
    let token = token.unwrap();
    let of_file = text.replace(&format!("token: {token}"), "tokenFile: token");
    let insecure = text.replace(
        "    server:",
        "    insecure-skip-tls-verify: true\n    server:",
    );
    let flags = format!("--kubeconfig {}/kubeconfig {FLAGS}", files.path().display());
    for (kubeconfig, content, expected) in [
        (&of_file, " \n", "/token: the token is empty"),
        (&insecure, "", "insecure-skip-tls-verify are both set"),
    ] {
        files.write("token", content).unwrap();
        files.write("kubeconfig", kubeconfig).unwrap();
        let (code, output) = outcome(&flags);
        assert_eq!(code, Some(2), "{output}");
        assert!(output.contains(expected), "{output}");
    }
    files.write("token", &format!("{token}\r\n")).unwrap();
    files.write("kubeconfig", &of_file).unwrap();
    let stage = Stage::run(netns, files, &flags, &[]);
    stage.wait_until_ready();
    assert_eq!(short(&stage, "db.shop.svc.cluster.local").len(), 2);
}

#[test]
fn errors_of_requests_name_the_server() {
    let (stage, server) = start();
    server.refuse_connections();
    server.cut_connections(apiserver::Disconnect::Reset);
    let expected = format!(": API server {}: ", server.url());
    stage.until("the outage", || stage.process.output().contains(&expected));
    let output = stage.process.output();
    assert!(!output.contains("ServiceError"), "{output}");
}

#[test]
fn invalid_objects_are_a_bounded_number_of_lines() {
    let (stage, _server) = Stage::with_api(|server| {
        for number in 0..100 {
            let mut broken = headless(&format!("s{number}"));
            broken["spec"]["clusterIP"] = json!("10.96.0.300");
            broken["spec"]["clusterIPs"] = json!(["10.96.0.300"]);
            broken["spec"]["ports"] = json!([{"name": "bad", "port": "many"}]);
            server.apply(broken);
        }
    });
    for (text, what) in [
        ("not an IP address", "problems of objects"),
        ("using the rest of the object", "unreadable objects"),
    ] {
        // On a busy machine the lines come in more than one window of the limit.
        let count = || {
            let output = stage.process.output();
            let numbers = output.lines().filter_map(|line| {
                let (before, _) = line.split_once(&format!(" more {what};"))?;
                before.rsplit(' ').next()?.parse::<usize>().ok()
            });
            (numbers.sum::<usize>(), output.matches(text).count())
        };
        stage.until(what, || {
            let (omitted, written) = count();
            omitted + written == 100
        });
        let (_, written) = count();
        assert!(written <= 3 * 16, "{what}: {written}");
    }
}
