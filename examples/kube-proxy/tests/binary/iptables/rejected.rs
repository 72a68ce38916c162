//! Objects that the kernel rejects because of the rules of another program.

use std::fs;
use std::time::{Duration, Instant};

use apiserver::ApiServer;
use serde_json::{Value, json};
use testkit::scoped::Process;

use super::{Node, VARIANTS};
use crate::cluster::{self, service_with_endpoints};
use crate::health::{HEALTH, get, metric_in};
use crate::stage::{BINARY, Outcome, wait_until};

const REJECTED: &str = "kubeproxy_sync_rejected_objects{ip_family=\"IPv4\",mode=\"iptables\"}";

/// Duration of changes of other Services while an object is rejected, and the pause
/// between two changes.
const CHANGES: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(250);

/// Chains of another program, each of which jumps to the next one.
///
/// The kernel follows at most 16 jumps. The last chain jumps to `KUBE-SERVICES` and
/// leaves the number of jumps of a cluster IP, which is one less than that of an
/// external IP.
const LADDER: &str = "for i in $(seq 20); do iptables-nft -t nat -N THEIRS-$i; done
for i in $(seq 19); do iptables-nft -t nat -A THEIRS-$i -j THEIRS-$((i + 1)); done
for i in $(seq 20 -1 1); do
  iptables-nft -t nat -F THEIRS-$i
  iptables-nft -t nat -A THEIRS-$i -j KUBE-SERVICES
  if iptables-nft -t nat -A PREROUTING -j THEIRS-1; then exit 0; fi
done 2>/dev/null
exit 1";

/// A node of mode iptables with an API server.
struct Site {
    node: Node,
    server: ApiServer,
}

impl Site {
    fn new(variant: &'static str) -> Self {
        let node = Node::with(variant, &[]);
        let server = node.netns().run(ApiServer::start);
        let site = Self { node, server };
        fs::write(site.path("kubeconfig"), site.server.kubeconfig()).unwrap();
        site.server
            .apply(cluster::node("10.0.0.1", "10.244.1.0/24"));
        site.server
            .apply_all(service_with_endpoints("good", "10.96.0.10", 1));
        site
    }

    fn path(&self, name: &str) -> String {
        self.node
            .stage
            .folder
            .path()
            .join(name)
            .display()
            .to_string()
    }

    fn arguments(&self) -> Vec<String> {
        let flags = "--proxy-mode iptables --hostname-override node-1 --cluster-cidr 10.244.0.0/16 \
                     --iptables-min-sync-period 0s --iptables-sync-period 2s \
                     --iptables-backend programs --kubeconfig";
        let flags = flags.split_whitespace().map(str::to_owned);
        flags.chain([self.path("kubeconfig")]).collect()
    }

    fn start(&self) -> Process {
        let mut command = self.node.stage.command(BINARY);
        let process = Process::start(self.node.netns(), command.args(self.arguments())).unwrap();
        wait_until("the good Service", || self.has("10.244.1.2:8080"));
        process
    }

    fn diff(&self) -> Outcome {
        let mut command = self.node.stage.command("timeout");
        command.args(["60", BINARY, "diff"]).args(self.arguments());
        Outcome::from(self.node.netns().run(|| command.output()).unwrap())
    }

    fn has(&self, word: &str) -> bool {
        self.node.rules().contains(word)
    }

    fn rejected(&self) -> f64 {
        metric_in(self.node.netns(), REJECTED).unwrap_or(-1.0)
    }

    /// Returns the Events about rejected objects of Services.
    fn events(&self) -> Vec<Value> {
        let mut events = self.server.events();
        events.retain(|event| event["reason"] == "ObjectRejected");
        events
    }

    /// Logs the documents that are restored. Returns a function that counts the
    /// documents with a word.
    fn log_documents(&self) -> impl Fn(&str) -> usize {
        let log = "cat >$folder/document\n\
                   case \"$*\" in *--noflush*) tr '\\n' '|' <$folder/document >>$folder/documents\n\
                   echo >>$folder/documents;; esac\n\
                   exec $real \"$@\" <$folder/document\n";
        self.node.script("iptables-restore", log);
        let path = self.path("documents");
        move |word| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            text.lines().filter(|line| line.contains(word)).count()
        }
    }

    fn assert_healthy(&self) {
        for path in ["/livez", "/healthz"] {
            assert_eq!(get(&self.node.stage, HEALTH, path).code, 200, "{path}");
        }
    }

    fn apply_external(&self, endpoints: u8) {
        let mut service = cluster::service("bad", "10.96.0.20");
        service["spec"]["externalIPs"] = json!(["192.0.2.20"]);
        let slice = cluster::slice("bad", 2, endpoints);
        self.server.apply_all([slice, service]);
    }

    fn delete_external(&self) {
        self.server.delete("Service", "default", "bad");
        wait_until("no bad Service", || !self.has("default/bad"));
    }
}

#[test]
fn a_service_with_rejected_rules_is_reported_and_retried_with_a_backoff() {
    let site = Site::new("nft");
    let documents = site.log_documents();
    let proxy = site.start();
    site.node.shell(LADDER);
    site.apply_external(2);
    wait_until("the metric", || site.rejected() > 0.0);
    wait_until("the event", || !site.events().is_empty());
    let output = proxy.output();
    let warnings = output
        .lines()
        .filter(|line| line.contains("object rejected"));
    let warning = warnings.clone().next().unwrap_or_default();
    assert!(warning.contains("WARN"), "{output}");
    assert!(warning.contains("default/bad"), "{output}");
    assert!(warning.contains("Too many links"), "{output}");

    // Other Services are served, and the rejected rules are resent with a backoff.
    let start = Instant::now();
    let mut endpoints = (3..=9).cycle();
    while start.elapsed() < CHANGES {
        let count = endpoints.next().unwrap();
        site.server.apply(cluster::slice("good", 1, count));
        let (last, one_more) = (
            format!("10.244.1.{count}:"),
            format!("10.244.1.{}:", count + 1),
        );
        wait_until("the change", || site.has(&last) && !site.has(&one_more));
        site.assert_healthy();
        std::thread::sleep(PAUSE);
    }
    let sent = documents("10.244.2.1:8080");
    assert!(
        (2..=6).contains(&sent),
        "{sent} times in {:?}",
        start.elapsed()
    );
    let [event] = &*site.events() else {
        panic!("one event: {:?}", site.events());
    };
    assert_eq!(event["regarding"]["name"], "bad");
    assert_eq!(event["type"], "Warning");
    let note = event["note"].as_str().unwrap();
    assert!(note.contains("Too many links"), "{note}");
    let warned = proxy.output().matches("default/bad").count();
    assert!(warned <= 2 * 16, "{warned} warnings");

    // `diff` does not report rejected objects as drift if it can query the proxy.
    let outcome = site.diff();
    assert_eq!(outcome.code, 3, "{outcome:?}");
    let is_named = outcome.stdout.lines().any(|line| {
        line.starts_with("# rejected by the kernel: IPv4: default/bad") && line.contains("Too many")
    });
    assert!(is_named, "{}", outcome.stdout);
    assert!(
        outcome.stdout.lines().all(|line| line.starts_with('#')),
        "{}",
        outcome.stdout
    );

    // A retry programs the rules after the cause has ended.
    site.node
        .shell("iptables-nft -t nat -D PREROUTING -j THEIRS-1");
    wait_until("the retry", || {
        site.has("10.244.2.1:8080") && site.has("192.0.2.20")
    });
    wait_until("the metric", || site.rejected() == 0.0);
    wait_until("no difference", || site.diff().code == 0);

    // A change of the Service is sent at once.
    site.delete_external();
    site.node
        .shell("iptables-nft -t nat -A PREROUTING -j THEIRS-1");
    let before = documents("10.244.2.1:8080");
    site.apply_external(2);
    // The attempts are after 0, 1, 2 and 4 s. The next attempt is after 8 s.
    wait_until("attempts", || documents("10.244.2.1:8080") >= before + 4);
    site.node
        .shell("iptables-nft -t nat -D PREROUTING -j THEIRS-1");
    site.apply_external(3);
    let took = wait_until("the change", || site.has("10.244.2.3:8080"));
    assert!(took < Duration::from_secs(6), "{took:?}");
    wait_until("the metric", || site.rejected() == 0.0);
    site.assert_healthy();
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_chain_that_the_kernel_does_not_remove_names_its_former_service() {
    for variant in VARIANTS {
        let site = Site::new(variant);
        let proxy = site.start();
        site.apply_external(2);
        let find = || {
            let rules = site.node.rules();
            let mut rules = rules.lines().filter(|line| line.contains("default/bad"));
            let rule = rules.find(|line| line.starts_with("-A KUBE-SVC-"))?;
            rule.split(' ').nth(1).map(str::to_owned)
        };
        // The legacy variant commits each table alone.
        wait_until("the chain", || find().is_some());
        let chain = find().unwrap();
        let program = format!("iptables-{variant} -w 5 -t nat");
        let jump = format!("{program} -N THEIRS; {program} -A THEIRS -j {chain}");
        site.node.shell(&jump);
        site.server.delete("Service", "default", "bad");
        wait_until("the metric", || site.rejected() > 0.0);
        let warning = format!("default/bad: removal of -t nat -N {chain}: ");
        wait_until("the warning", || proxy.output().contains(&warning));
        site.assert_healthy();
        assert!(!site.has("192.0.2.20"), "no rule leads there");
        let outcome = site.diff();
        assert_eq!(outcome.code, 3, "{variant}: {outcome:?}");
        let line = format!("# rejected by the kernel: IPv4: {warning}");
        assert!(outcome.stdout.contains(&line), "{}", outcome.stdout);
        assert!(site.events().is_empty(), "the Service is gone");
        site.node.shell(&format!("{program} -F THEIRS"));
        wait_until("the retry", || {
            site.rejected() == 0.0 && !site.has(&format!(":{chain} "))
        });
        assert_eq!(site.diff().code, 0);
        // Without a running proxy `diff` has no reasons for rejections.
        assert!(proxy.terminate().unwrap().success());
        assert_eq!(site.diff().code, 0);
    }
}
