//! Tests of network and server failures.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use apiserver::{Disconnect, ErrorResponse};
use tokio::runtime::Runtime;
use vipline_service_ip::Error;
use vipline_service_ip::Family;
use vipline_service_ip_kube::blocking::{Client, Kube};

use crate::cluster::{Cluster, chain, later, owner};

/// Request timeout for responses that never arrive.
const BRIEF: Duration = Duration::from_millis(100);

/// Poll interval and timeout for a condition.
const LOOK: Duration = Duration::from_millis(5);
const LOOKS: usize = 6000;

#[test]
fn a_lost_response_is_unknown_and_repair_releases_the_address() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    allocator.refresh().unwrap();
    let lose = || {
        cluster.server.faults(|faults| {
            faults.only = Some("ipaddresses".into());
            faults.lost_responses = 1;
        });
    };
    lose();
    let error = allocator.allocate(&owner("web"), &mut || 0).unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error}");
    let text = chain(&error);
    assert!(
        text.contains("create IPAddress 10.0.1.1: no response: "),
        "{text}"
    );
    let [(lost, _)] = &*cluster.addresses() else {
        panic!("one address is allocated")
    };

    let next = allocator.allocate(&owner("web"), &mut || 0).unwrap();
    assert_ne!(
        next.to_string(),
        *lost,
        "the address is allocated after a new list"
    );
    lose();
    let error = allocator.release(next, &owner("web")).unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error}");
    assert_eq!(cluster.addresses().len(), 1, "the request was applied");

    let mut found = Vec::new();
    let repaired = cluster
        .client()
        .repair(later(), &mut |finding| found.push(finding.to_string()));
    repaired.unwrap();
    assert_eq!(
        found,
        [format!(
            "IPAddressNotAllocated: Service default/web: {lost} refers to a Service that does not exist; releasing it"
        )]
    );
    assert_eq!(cluster.addresses(), []);
}

#[test]
fn a_lost_response_ends_a_change_of_several_addresses() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    allocator
        .reserve("10.0.0.9".parse().unwrap(), &owner("web"))
        .unwrap();
    cluster.server.faults(|faults| {
        faults.only = Some("ipaddresses".into());
        faults.lost_responses = 1;
    });
    let web = owner("web");
    let error = allocator.change(|draft| {
        draft.reserve("10.0.0.1".parse().unwrap(), &web)?;
        draft.reserve("10.0.0.2".parse().unwrap(), &web)
    });
    assert!(matches!(error, Err(Error::Unknown(_))));
    let names: Vec<_> = cluster.addresses().into_iter().map(|(ip, _)| ip).collect();
    assert_eq!(
        names,
        ["10.0.0.1", "10.0.0.9"],
        "the second address was not requested"
    );
}

#[test]
fn rejections_contain_the_message_of_the_server() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    allocator.refresh().unwrap();
    cluster
        .server
        .faults(|faults| faults.forbidden = vec!["ipaddresses".into()]);
    let error = allocator.allocate(&owner("web"), &mut || 0).unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    assert_eq!(
        chain(&error),
        "create IPAddress 10.0.1.1: ipaddresses is forbidden: User \"system:kube-proxy\" cannot create resource \"ipaddresses\" in API group \"networking.k8s.io\" (code 403)"
    );
    cluster.server.clear_faults();
    assert_eq!(cluster.addresses(), []);

    allocator.refresh().unwrap();
    let answer = |code| {
        cluster.server.faults(|faults| {
            faults.error_response = Some(ErrorResponse {
                code,
                retry_after: None,
                times: 1,
            });
        });
    };
    answer(500);
    let error = allocator.allocate(&owner("web"), &mut || 0).unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error}");
    answer(429);
    let error = allocator.allocate(&owner("web"), &mut || 0).unwrap_err();
    assert!(chain(&error).contains("too many requests"), "{error}");
    assert!(matches!(error, Error::Store(_)), "{error}");
    // The client does not repeat a request.
    assert_eq!(cluster.server.count("create", "ipaddresses"), 2);
}

#[test]
fn a_request_without_response_times_out() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    cluster.server.hang_connections(true);
    let client = cluster.client().with_timeout(BRIEF);
    let error = client.repair(later(), &mut |_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "list IPAddresses: no response: timeout after 100ms"
    );
    assert!(error.is_unknown());
}

#[test]
fn a_change_is_repeated_after_a_conflict() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    let conflict = || cluster.server.faults(|faults| faults.conflicts = 1);
    conflict();
    let taken = allocator.allocate(&owner("web"), &mut || 0).unwrap();
    assert_eq!(cluster.server.count("create", "ipaddresses"), 2);
    conflict();
    assert!(allocator.release(taken, &owner("web")).unwrap());
    assert_eq!(cluster.server.count("delete", "ipaddresses"), 2);
    assert_eq!(cluster.addresses(), []);
}

#[test]
fn a_failed_connection_is_not_an_unknown_outcome() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    allocator.refresh().unwrap();
    cluster.server.refuse_connections();
    cluster.server.cut_connections(Disconnect::Close);
    wait_for_the_end(&cluster);
    let error = allocator.allocate(&owner("web"), &mut || 0).unwrap_err();
    assert!(matches!(error, Error::Store(_)), "{error}");
    cluster.server.accept_connections();
    allocator.allocate(&owner("web"), &mut || 0).unwrap();
    assert_eq!(cluster.addresses().len(), 1);
}

#[test]
fn a_closed_connection_is_reopened() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let mut allocator = cluster.allocator();
    for round in 0..5 {
        allocator.allocate(&owner("web"), &mut || 0).unwrap();
        assert_eq!(
            cluster.server.cut_connections(Disconnect::Close),
            1,
            "{round}"
        );
        wait_for_the_end(&cluster);
    }
    assert_eq!(cluster.addresses().len(), 5);
}

#[test]
fn calls_work_within_and_outside_of_a_runtime() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let runtime = Runtime::new().unwrap();
    let kubeconfig = cluster.kubeconfig();
    runtime.block_on(async {
        let mut allocator = cluster.allocator();
        allocator.allocate(&owner("web"), &mut || 0).unwrap();
        let allocate = move || {
            let store = Kube::open(Some(&kubeconfig), Family::V4).unwrap();
            let mut allocator = vipline_service_ip::Registry::new(store);
            allocator.allocate(&owner("web"), &mut || 0).unwrap();
        };
        tokio::task::spawn_blocking(allocate).await.unwrap();
        drop(allocator);
    });
    assert_eq!(cluster.addresses().len(), 2);
}

#[test]
fn errors_name_invalid_credentials() {
    let cluster = Cluster::with(&["10.0.0.0/16"]);
    let path = cluster.kubeconfig().with_file_name("missing");
    let said = |path: &Path| Client::open(Some(path)).unwrap_err().to_string();
    let missing = said(&path);
    assert!(missing.starts_with(&format!("read {}: ", path.display())));
    assert!(missing.contains("No such file"), "{missing}");
    fs::write(&path, "clusters: 7\n").unwrap();
    assert!(said(&path).contains("failed to parse"), "{}", said(&path));

    cluster.server.set_token("another");
    fs::write(&path, cluster.server.kubeconfig_with_token()).unwrap();
    cluster.server.set_token("yet-another");
    let client = Client::open(Some(&path)).unwrap();
    let error = client.repair(later(), &mut |_| ()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "list IPAddresses: Unauthorized (code 401)"
    );
}

/// Waits until no established connection to a server is left.
fn wait_for_the_end(cluster: &Cluster) {
    let port = cluster.server.address().port();
    let is_open = || {
        let sockets = fs::read_to_string("/proc/self/net/tcp").unwrap();
        let remote = format!(":{port:04X}");
        sockets.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[2].ends_with(&remote) && fields[3] == "01"
        })
    };
    for _ in 0..LOOKS {
        if !is_open() {
            return;
        }
        thread::sleep(LOOK);
    }
    panic!("the connection never ends");
}
