//! Manifests in `deploy`: their types, their names and their privileges.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    reason = "IO file"
)]

use std::fs;
use std::path::Path;

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Container, PodSpec, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Parses the YAML documents of a file.
fn documents(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name);
    let text = fs::read_to_string(path).unwrap();
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

fn read<T: DeserializeOwned>(name: &str, number: usize) -> T {
    serde_json::from_value(documents(name)[number].clone()).unwrap()
}

fn deployment() -> (Deployment, PodSpec) {
    let deployment: Deployment = read("deployment.yaml", 0);
    let pod = deployment.spec.template.spec.clone();
    (deployment, pod.unwrap())
}

fn daemon_set() -> (DaemonSet, PodSpec) {
    let set: DaemonSet = read("node-local/daemonset.yaml", 0);
    let pod = set.spec.template.spec.clone();
    (set, pod.unwrap())
}

fn arguments(pod: &PodSpec) -> Vec<String> {
    pod.containers[0].args.clone().unwrap()
}

#[test]
fn the_service_selects_the_pods_and_has_the_conventional_name() {
    let service: Service = read("service.yaml", 0);
    assert_eq!(service.metadata.name.as_deref(), Some("kube-dns"));
    assert_eq!(service.metadata.namespace.as_deref(), Some("kube-system"));
    let spec = service.spec.unwrap();
    let (deployment, pod) = deployment();
    let template = deployment.spec.template;
    let labels = template.metadata.unwrap().labels.unwrap();
    // CoreDNS has this label, too, so the Service selects both during a replacement.
    let selector = spec.selector.unwrap();
    assert_eq!(selector.len(), 1);
    assert!(selector.iter().all(|(key, value)| labels[key] == *value));
    let ports = pod.containers[0].ports.as_ref().unwrap();
    for port in spec.ports.unwrap() {
        let name = port.name.unwrap();
        let of_pod = ports.iter().find(|it| it.name.as_ref() == Some(&name));
        let of_pod = of_pod.unwrap();
        assert_eq!(of_pod.container_port, port.port, "{name}");
        assert_eq!(of_pod.protocol, port.protocol, "{name}");
    }
    // The address that pods ask is that of the node-local addresses.
    let address = spec.cluster_ip.unwrap();
    let flag = format!("--node-local=169.254.20.10,{address}");
    assert!(arguments(&daemon_set().1).contains(&flag), "{flag}");
}

#[test]
fn the_pods_have_only_the_privileges_that_they_need() {
    let confined = |container: &Container, capabilities: &[&str]| {
        let context = container.security_context.as_ref().unwrap();
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_eq!(context.read_only_root_filesystem, Some(true));
        assert_eq!(context.privileged, None);
        let found = context.capabilities.as_ref().unwrap();
        assert_eq!(found.drop.as_deref(), Some(&["ALL".to_owned()][..]));
        assert_eq!(found.add.as_deref().unwrap(), capabilities);
    };
    let (_, pod) = deployment();
    confined(&pod.containers[0], &["NET_BIND_SERVICE"]);
    let context = pod.security_context.unwrap();
    assert_eq!(context.run_as_non_root, Some(true));
    assert_eq!(pod.host_network, None);
    assert_eq!(pod.volumes, None);
    let (_, pod) = daemon_set();
    confined(&pod.containers[0], &["NET_ADMIN", "NET_BIND_SERVICE"]);
    assert_eq!(pod.host_network, Some(true));
    assert_eq!(pod.volumes, None);
}

#[test]
fn the_service_account_of_the_pods_has_the_role() {
    let binding: ClusterRoleBinding = read("rbac.yaml", 1);
    let role: ClusterRole = read("rbac.yaml", 0);
    let account: ServiceAccount = read("service-account.yaml", 0);
    let rules = role.rules.as_ref().unwrap();
    let core = &rules[0];
    assert_eq!(
        core.resources.as_deref().unwrap(),
        ["services", "namespaces"]
    );
    assert_eq!(core.verbs, ["list", "watch"]);
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(Some(&subject.name), account.metadata.name.as_ref());
    for pod in [deployment().1, daemon_set().1] {
        assert_eq!(pod.service_account_name, account.metadata.name);
    }
}

#[test]
fn the_flags_are_those_of_the_corefile_of_kubeadm() {
    for pod in [deployment().1, daemon_set().1] {
        let arguments = arguments(&pod);
        for expected in ["--zone=cluster.local", "--ttl=30", "--pods=insecure"] {
            assert!(
                arguments.iter().any(|it| it == expected),
                "{expected}: {arguments:?}"
            );
        }
    }
}
