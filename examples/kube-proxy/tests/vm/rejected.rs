//! A Service of the API with an endpoint that the kernel rejects.

use std::process::Command;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use serde_json::{Value, json};
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};

use crate::shell;
use crate::site::{contains, get, wait_until};

const FLAGS: &str = "--proxy-mode ipvs --hostname-override node-1 --cluster-cidr 10.244.0.0/16 \
                     --ipvs-sync-period 2s --ipvs-min-sync-period 0s --kubeconfig";

const REJECTED: &str = "kubeproxy_sync_rejected_objects{ip_family=\"IPv4\",mode=\"ipvs\"}";

/// Commands that make 192.168.55.255 a broadcast address or a unicast address.
const BROADCAST: &str = "ip address add 192.168.55.1/24 broadcast 192.168.55.255 dev eth9";
const UNICAST: &str = "ip address delete 192.168.55.1/24 dev eth9";

/// A node of mode ipvs with an API server.
struct Site {
    netns: Netns,
    server: ApiServer,
    folder: Directory,
}

impl Site {
    fn new() -> Self {
        let netns = Netns::new().unwrap();
        let server = netns.run(ApiServer::start);
        let folder = Directory::new().unwrap();
        folder.write("kubeconfig", &server.kubeconfig()).unwrap();
        let site = Self {
            netns,
            server,
            folder,
        };
        site.shell("ip link add eth9 type dummy; ip link set eth9 up");
        site.shell(BROADCAST);
        site.server.apply(json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node-1"},
            "status": {"addresses": [{"type": "InternalIP", "address": "192.168.55.1"}]},
        }));
        site
    }

    fn command(&self, word: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
        let words = word.split_whitespace().chain(FLAGS.split_whitespace());
        command
            .args(words)
            .arg(self.folder.path().join("kubeconfig"));
        command
    }

    #[track_caller]
    fn shell(&self, line: &str) -> String {
        shell(&self.netns, line)
    }

    /// Applies a Service at 10.96.0.LAST with endpoints.
    fn apply(&self, name: &str, last: u8, endpoints: &[&str]) {
        let address = format!("10.96.0.{last}");
        let endpoints: Vec<_> = endpoints
            .iter()
            .map(|address| json!({"addresses": [address], "conditions": {"ready": true}}))
            .collect();
        self.server.apply(json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"name": "", "protocol": "TCP", "port": 8080}],
            "endpoints": endpoints,
        }));
        self.server.apply(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"clusterIP": address, "clusterIPs": [address], "ports": [{"port": 80}]},
        }));
    }

    /// Waits until IPVS has a real server.
    #[track_caller]
    fn await_real(&self, address: &str) {
        wait_until(address, || {
            contains(self.shell("ipvsadm -Sn"), &format!("-r {address}:8080 "))
        });
    }

    #[track_caller]
    fn await_rejected(&self, count: u8) {
        let sample = format!("{REJECTED} {count}\n");
        wait_until("the metric", || {
            contains(get(&self.netns, 10249, "/metrics"), &sample)
        });
    }

    /// Returns the Events about rejected objects of Services.
    fn events(&self) -> Vec<Value> {
        let mut events = self.server.events();
        events.retain(|event| event["reason"] == "ObjectRejected");
        events
    }
}

#[test]
fn a_rejected_endpoint_causes_an_event_and_is_served_when_the_cause_ends() {
    let site = Site::new();
    site.apply("good", 10, &["192.168.55.2"]);
    site.apply("bad", 66, &["192.168.55.3", "192.168.55.255"]);
    let proxy = Process::start(&site.netns, &mut site.command("")).unwrap();
    site.await_real("192.168.55.2");
    site.await_rejected(1);
    wait_until("the event", || match site.events().len() {
        1 => Ok(()),
        count => Err(count.to_string()),
    });
    // A change that is pending for four seconds makes the proxy unhealthy.
    let end = Instant::now() + Duration::from_secs(8);
    let mut last = (10..20).cycle();
    while Instant::now() < end {
        let address = format!("192.168.55.{}", last.next().unwrap());
        site.apply("good", 10, &[&address]);
        site.await_real(&address);
        for path in ["/livez", "/healthz"] {
            let response = get(&site.netns, 10256, path);
            assert!(response.starts_with("HTTP/1.1 200 "), "{path}: {response}");
        }
    }
    let [event] = &*site.events() else {
        panic!("one event: {:?}", site.events());
    };
    assert_eq!(event["regarding"]["name"], "bad");
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("192.168.55.255:8080"), "{note}");
    assert!(note.contains("invalid argument"), "{note}");
    let log = proxy.output();
    assert_eq!(log.matches("object rejected").count(), 1, "{log}");

    // Removed real servers of the other Service drain for a while.
    let diff = || site.netns.run(|| site.command("diff").output()).unwrap();
    let mut output = diff();
    wait_until("no other difference", || {
        output = diff();
        match output.status.code() {
            Some(3) => Ok(()),
            _ => Err(format!("{output:?}")),
        }
    });
    let text = String::from_utf8(output.stdout).unwrap();
    let line = "# rejected by the kernel: IPv4: default/bad: ";
    assert!(text.lines().all(|each| each.starts_with(line)), "{text}");

    site.shell(UNICAST);
    site.await_real("192.168.55.255");
    site.await_rejected(0);
    assert!(proxy.terminate().unwrap().success());
}
