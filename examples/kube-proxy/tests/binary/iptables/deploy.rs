//! Tests of the manifests in `deploy/iptables/` and of the confinement that they
//! request.

use std::fs;
use std::process::Command;

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, PodSpec};
use serde_json::Value;
use testkit::container::Container;
use testkit::scoped::Process;

use super::{Node, web};
use crate::deploy::{
    assert_forbids_unneeded_system_calls, assert_initializes, documents, path, read,
};
use crate::stage::{BINARY, wait_until};

/// Only root may take the lock of the legacy variant.
const ROOT: u32 = 0;

fn pod(name: &str) -> PodSpec {
    let daemon_set: DaemonSet = read(&documents(name)[0]);
    daemon_set.spec.template.spec.unwrap()
}

fn profile(name: &str) -> String {
    fs::read_to_string(path("seccomp").join(name)).unwrap()
}

/// Returns a command confined like the pod, except for CAP_NET_RAW.
fn confined(node: &Node, line: &str) -> Command {
    let container = Container::new(ROOT, &profile("kube-proxy-iptables.json")).unwrap();
    let mut command = node.stage.command(BINARY);
    command.args(node.stage.arguments(line));
    container.confine(&mut command);
    command
}

#[test]
fn the_confined_program_follows_changes_and_repairs_drift() {
    for backend in ["nft", "netlink"] {
        assert_works_in_confinement(backend);
    }
}

fn assert_works_in_confinement(backend: &'static str) {
    let node = Node::web(backend);
    let line = "--oom-score-adj 0 --nodeport-addresses 192.0.2.0/24";
    let proxy = Process::start(node.netns(), &mut confined(&node, line)).unwrap();
    wait_until("the first sync", || proxy.output().contains("synced"));
    assert!(node.rules().contains("10.244.1.3:8080"), "{}", node.rules());
    node.stage.write("web.yaml", &web(4));
    wait_until("the endpoint", || node.rules().contains("10.244.1.4:8080"));
    super::ip(node.netns(), "address add 192.0.2.7/24 dev lo");
    wait_until("the address", || node.rules().contains("-d 192.0.2.7/32 "));
    node.shell("iptables-restore --noflush <<'END'\n*nat\n:KUBE-SERVICES - [0:0]\nCOMMIT\nEND");
    let message = "repaired changes by another program: ";
    wait_until(message, || proxy.output().contains(message));
    let output = proxy.output();
    assert!(
        !output.contains("failed") && !output.contains("ERROR"),
        "{output}"
    );
    assert!(proxy.terminate().unwrap().success());
}

#[test]
fn a_killed_iptables_process_is_reported_in_confinement() {
    let node = Node::web("nft");
    node.script("iptables-restore", "kill -9 $$\n");
    let output = {
        let mut command = confined(&node, "--oneshot --oom-score-adj 0");
        node.netns().run(|| command.output()).unwrap()
    };
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let outcome = String::from_utf8(output.stderr).unwrap();
    assert!(outcome.contains("killed by signal 9"), "{outcome}");
}

#[test]
fn a_profile_without_programs_is_named_as_the_reason() {
    let node = Node::web("nft");
    let container = Container::new(ROOT, &profile("kube-proxy.json")).unwrap();
    let mut command = node.stage.command(BINARY);
    command.args(node.stage.arguments("--oneshot --oom-score-adj 0"));
    container.confine(&mut command);
    let output = node.netns().run(|| command.output()).unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let outcome = String::from_utf8(output.stderr).unwrap();
    let expected = "start a program: timerfd_create is forbidden, usually by a seccomp profile";
    assert!(outcome.contains(expected), "{outcome}");
}

#[test]
fn the_profile_extends_that_of_mode_nftables() {
    let text = profile("kube-proxy-iptables.json");
    assert_forbids_unneeded_system_calls(ROOT, &text);
    let rules = |text: &str| -> Vec<Value> {
        let profile: Value = serde_json::from_str(text).unwrap();
        let rules = profile["syscalls"].as_array().unwrap().iter();
        rules.map(|rule| rule["names"].clone()).collect()
    };
    let (own, tight) = (rules(&text), rules(&profile("kube-proxy.json")));
    assert_eq!(own[..tight.len()], tight);
    for name in ["kill", "pidfd_open", "wait4"] {
        let quoted = format!("\"{name}\"");
        let has = |rules: &[Value]| rules.iter().any(|rule| rule.to_string().contains(&quoted));
        assert!(has(&own) && !has(&tight), "{name}");
    }
}

#[test]
fn the_pod_has_the_privileges_that_iptables_needs() {
    let (own, tight) = (pod("iptables/daemonset.yaml"), pod("daemonset.yaml"));
    let container = &own.containers[0];
    let context = container.security_context.as_ref().unwrap();
    assert_eq!(context.privileged, None);
    assert_eq!(context.allow_privilege_escalation, Some(false));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    let capabilities = context.capabilities.as_ref().unwrap();
    assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    let added = ["NET_ADMIN", "NET_RAW"].map(str::to_owned);
    assert_eq!(capabilities.add.as_deref(), Some(&added[..]));
    let pod = own.security_context.as_ref().unwrap();
    assert_eq!(pod.run_as_user, Some(ROOT.into()));
    let seccomp = pod.seccomp_profile.as_ref().unwrap();
    assert_eq!(
        seccomp.localhost_profile.as_deref(),
        Some("vipline/kube-proxy-iptables.json")
    );

    let [init] = &own.init_containers.as_ref().unwrap()[..] else {
        panic!("one init container");
    };
    assert_initializes(init);

    let volumes = own.volumes.as_ref().unwrap().iter();
    let paths: Vec<_> = volumes
        .filter_map(|volume| volume.host_path.as_ref())
        .collect();
    assert_eq!(paths.len(), 1);
    assert_eq!(paths[0].path, "/run/xtables.lock");
    assert_eq!(paths[0].type_.as_deref(), Some("FileOrCreate"));
    let mounts: Vec<_> = container.volume_mounts.iter().flatten().collect();
    assert!(
        mounts
            .iter()
            .any(|mount| mount.mount_path == "/run/xtables.lock")
    );

    let other = &tight.containers[0];
    assert_eq!(
        (&container.args, &container.ports),
        (&other.args, &other.ports)
    );
    assert_eq!(container.liveness_probe, other.liveness_probe);
    assert_eq!(own.tolerations, tight.tolerations);
    assert_eq!(own.host_network, Some(true));
}

#[test]
fn the_configuration_differs_only_in_the_mode() {
    let data = |name: &str| {
        let map: ConfigMap = read(&documents(name)[0]);
        map.data.unwrap()
    };
    let (own, tight) = (data("iptables/config.yaml"), data("config.yaml"));
    assert_eq!(own["kubeconfig.conf"], tight["kubeconfig.conf"]);
    let config = tight["config.conf"].replace("mode: nftables", "mode: iptables");
    assert_eq!(own["config.conf"], config);
}
