//! Configuration files: their effect, precedence and errors.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use testkit::scoped::Directory;

use crate::stage::{Outcome, Stage, service, wait_until};

const HEAD: &str = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n";

/// A stage and a directory with a configuration file.
struct Configured {
    stage: Stage,
    folder: Directory,
}

impl Configured {
    fn new(lines: &str) -> Self {
        let configured = Self {
            stage: Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]),
            folder: Directory::new().unwrap(),
        };
        fs::write(configured.file(), format!("{HEAD}{lines}")).unwrap();
        configured
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("config.yaml")
    }

    /// Runs the binary with the configuration file.
    fn run(&self, line: &str) -> Outcome {
        let file = self.file();
        self.stage
            .run(&format!("--config {} {line}", file.display()))
    }

    /// Returns the effective configuration as YAML, and the log.
    fn written(&self, line: &str) -> (String, String) {
        let file = self.folder.path().join("written.yaml");
        let outcome = self.run(&format!("--write-config-to {} {line}", file.display()));
        assert_eq!((outcome.code, &*outcome.stdout), (0, ""), "{outcome:?}");
        (fs::read_to_string(file).unwrap(), outcome.stderr)
    }
}

#[test]
fn a_written_configuration_is_read_back_unchanged() {
    let stage = Stage::new();
    let folder = Directory::new().unwrap();
    let files = ["first.yaml", "second.yaml"].map(|name| folder.path().join(name));
    let [first, second] = &files;
    let outcome = stage.run(&format!(
        "--write-config-to {} --conntrack-min 7 --nodeport-addresses 10.0.0.0/8,fd00::/8 \
         --masquerade-all --iptables-sync-period 1m --feature-gates ComponentFlagz=false \
         --kube-api-qps 2.5 --vmodule a=3,b*=4 --bind-address fd00::7 --v 4",
        first.display()
    ));
    assert_eq!((outcome.code, &*outcome.stdout), (0, ""), "{outcome:?}");
    let text = fs::read_to_string(first).unwrap();
    for line in [
        "mode: nftables\n",
        "clusterCIDR: 10.244.0.0/16\n",
        "hostnameOverride: node-1\n",
        "bindAddress: fd00::7\n",
        "healthzBindAddress: 0.0.0.0:10256\n",
        "  masqueradeAll: true\n  masqueradeBit: 14\n  minSyncPeriod: 0s\n  syncPeriod: 1m0s\n",
        "nodePortAddresses:\n- 10.0.0.0/8\n- fd00::/8\n",
        "featureGates:\n  ComponentFlagz: false\n",
        "  qps: 2.5\n",
        "  verbosity: 4\n  vmodule:\n  - filePattern: a\n    verbosity: 3\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    let again = stage.run(&format!(
        "--config {} --write-config-to {}",
        first.display(),
        second.display()
    ));
    assert_eq!(again.code, 0, "{again:?}");
    let read = fs::read_to_string(second).unwrap();
    // As in upstream, reading a period of 0 sets the default.
    assert_eq!(read.replace("minSyncPeriod: 1s", "minSyncPeriod: 0s"), text);
    assert_eq!(stage.ruleset(), "");
}

#[test]
fn a_file_overrides_flags_except_for_the_node_name_and_logging() {
    let configured = Configured::new(
        "mode: nftables\nhostnameOverride: other\nlogging: {verbosity: 2, vmodule: \
         [{filePattern: own, verbosity: 1}]}\noomScoreAdj: 5\n",
    );
    let flags = "--oom-score-adj 6 --conntrack-min 7 --masquerade-all --vmodule flag=2 --v=3 \
                 --healthz-port 0 --metrics-port 1";
    let (text, _) = configured.written(flags);
    for line in [
        "oomScoreAdj: 5\n",
        "  min: 131072\n",
        "clusterCIDR: \"\"\n",
        "hostnameOverride: node-1\n",
        "  verbosity: 3\n  vmodule:\n  - filePattern: flag\n    verbosity: 2\n  \
         - filePattern: own\n    verbosity: 1\n",
        "healthzBindAddress: 0.0.0.0:10256\n",
        "metricsBindAddress: 127.0.0.1:10249\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    assert!(!text.contains("masqueradeAll: true"), "{text}");
}

#[test]
fn a_file_determines_the_rules() {
    let plain = Configured::new("mode: nftables\nclusterCIDR: 10.1.0.0/16\n");
    let (plain, all) = (
        plain.run("render"),
        Configured::new("mode: nftables\nnftables: {masqueradeAll: true}\n").run("render"),
    );
    assert_eq!((plain.code, all.code), (0, 0), "{plain:?}{all:?}");
    assert!(plain.stdout.contains("10.1.0.0/16"), "{}", plain.stdout);
    assert_ne!(plain.stdout, all.stdout);
}

#[test]
fn all_errors_of_a_file_are_reported_and_nothing_is_programmed() {
    let configured = Configured::new(
        "mode: nftables\nbindAddress: here\nnftables: {masqueradeBit: 32, syncPeriod: -1s}\n\
         conntrack: {min: -1}\nnodePortAddresses: [primary, 10.0.0.0/8]\n\
         featureGates: {Sesame: true}\n",
    );
    for command in [
        "",
        "--oneshot",
        "render",
        "diff",
        "--write-config-to /dev/null",
        "--init-only",
    ] {
        let outcome = configured.run(command);
        assert_eq!(
            (outcome.code, &*outcome.stdout),
            (2, ""),
            "{command}: {outcome:?}"
        );
        let errors = outcome
            .stderr
            .lines()
            .filter(|line| line.contains(" ERROR "));
        let file = configured.file();
        let begin = format!("{}: KubeProxyConfiguration.", file.display());
        assert_eq!(errors.count(), 7, "{}", outcome.stderr);
        assert_eq!(
            outcome.stderr.matches(&begin).count(),
            7,
            "{}",
            outcome.stderr
        );
    }
    assert_eq!(configured.stage.ruleset(), "");
}

#[test]
fn an_invalid_file_is_rejected_with_the_position_of_the_error() {
    for (lines, expected) in [
        (
            "conntrack:\n  min: many\n",
            ":4:8: conntrack.min: expected a number from",
        ),
        ("mode: [\n", ":"),
        (
            "kind: Service\n",
            ":3:7: kind: \"Service\" is not supported, must be KubeProxyConfiguration",
        ),
    ] {
        let configured = Configured::new(lines);
        let outcome = configured.run("render");
        let expected = format!("{}{expected}", configured.file().display());
        assert_eq!((outcome.code, &*outcome.stdout), (2, ""));
        assert!(outcome.stderr.contains(&expected), "{}", outcome.stderr);
    }
    let outcome = Stage::new().run("--config /nonexistent/config.yaml render");
    assert_eq!(outcome.code, 2);
    let reason = "/nonexistent/config.yaml: No such file or directory";
    assert!(outcome.stderr.contains(reason), "{}", outcome.stderr);
}

#[test]
fn ignored_fields_and_flags_are_reported() {
    let configured = Configured::new("mode: nftables\nconntrack: {max: 0}\nmode: nftables\n");
    let (text, log) = configured.written("--source-vip 10.0.0.1 --healthz-port 5");
    assert!(text.contains("mode: nftables\n"));
    for words in [
        "Using lenient decoding",
        "unknown field \"conntrack.max\" in line 4",
        "duplicate field \"mode\" in line 5",
        "--source-vip has no effect",
        "--healthz-port is deprecated",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
}

#[test]
fn a_changed_file_ends_the_process_within_two_seconds_and_the_rules_stay() {
    let configured = Configured::new("mode: nftables\n");
    let flags = format!("--config {}", configured.file().display());
    let mut proxy = configured.stage.start_with(&flags);
    let rules = configured.stage.ruleset();
    assert!(rules.contains("10.96.0.10"));
    fs::write(configured.file(), format!("{HEAD}mode: nftables\n")).unwrap();
    let mut status = None;
    let took = wait_until("the exit", || {
        status = proxy.try_wait().unwrap();
        status.is_some()
    });
    assert!(took < Duration::from_secs(2), "{took:?}");
    assert_eq!(status.unwrap().code(), Some(1));
    let reason = "content of the proxy server's configuration file was updated";
    assert!(proxy.output().contains(reason), "{}", proxy.output());
    assert_eq!(configured.stage.ruleset(), rules);
}

#[test]
fn unknown_arguments_are_rejected() {
    for line in [
        "nonsense",
        "--proxy-mode nftables nonsense",
        "--dry-run",
        "--healthz-bind-address x",
    ] {
        let outcome = Stage::new().run(line);
        assert_eq!(
            (outcome.code, &*outcome.stdout),
            (2, ""),
            "{line}: {outcome:?}"
        );
    }
    let outcome = Stage::new().run("--proxy_mode=nftables --iptables_sync_period=1m render");
    assert_eq!(outcome.code, 0, "{outcome:?}");
}

/// Gates of the kubelet, the API server, the scheduler and client-go, which kind and
/// kubeadm copy into the configuration of kube-proxy.
const GATES: &str = "AtomicFIFO=true,ClientsAllowCBOR=true,EnvFiles=false,GangScheduling=false,\
    HostnameOverride=T,ImageVolume=1,KMSv1=true,UserNamespacesHostNetworkSupport=0,\
    WatchListClient=true";

#[test]
fn feature_gates_of_all_components_are_accepted() {
    let stage = Stage::with(&[("web.yaml", &service("web", "10.96.0.10"))]);
    let plain = stage.run("render");
    assert_eq!(plain.code, 0, "{plain:?}");
    for flags in [
        &format!("--feature-gates {GATES}"),
        "--feature-gates=",
        "--feature-gates=EnvFiles=true,",
        "--nodeport-addresses=",
        "--ipvs-exclude-cidrs= --vmodule=",
    ] {
        let outcome = stage.run(&format!("render {flags}"));
        assert_eq!(
            (outcome.code, outcome.stdout),
            (0, plain.stdout.clone()),
            "{flags}"
        );
    }
    let fields = GATES
        .replace("=T", "=true")
        .replace("=1", "=true")
        .replace("=0", "=false");
    let fields = fields.replace(',', ", ").replace('=', ": ");
    let configured = Configured::new(&format!("mode: nftables\nfeatureGates: {{{fields}}}\n"));
    let (text, log) = configured.written("");
    assert!(text.contains("  EnvFiles: false\n"), "{text}");
    assert!(
        log.contains("feature gates ImageVolume, KMSv1 are stable or deprecated"),
        "{log}"
    );
}

#[test]
fn unknown_gates_and_other_values_of_locked_gates_are_rejected() {
    let stage = Stage::new();
    for (gates, expected) in [
        ("Sesame=true", "unrecognized feature gate: Sesame"),
        (
            "GitRepoVolumeDriver=true",
            "cannot set feature gate GitRepoVolumeDriver to true, feature is locked to false",
        ),
        (
            "ImageVolume=false",
            "cannot set feature gate ImageVolume to false, feature is locked to true",
        ),
        ("EnvFiles=yes", "must be true or false"),
        ("EnvFiles", "must be NAME=true or NAME=false"),
    ] {
        let outcome = stage.run(&format!("render --feature-gates {gates}"));
        assert_eq!(outcome.code, 2, "{outcome:?}");
        assert!(outcome.stderr.contains(expected), "{outcome:?}");
    }
}
