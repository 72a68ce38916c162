//! Tests of the manifests in `deploy/` and of the confinement that they request.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use apiserver::{ApiServer, Request, WatchListFailure};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{ConfigMap, Container as Spec, PodSpec, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use serde::de::DeserializeOwned;
use serde_json::Value;
use testkit::container::{Container, grant_net_admin};
use testkit::netns::Netns;
use testkit::program;
use testkit::scoped::{Directory, Process};

use crate::cluster::{node, service_with_endpoints};
use crate::explain::kernel::add_links;
use crate::iptables::with_sysctls_read_only;
use crate::stage::{Stage, demo, wait_until};

/// User ID in the manifests.
const USER: u32 = 65532;

/// Capability 12, as `/proc/PID/status` has it.
const NET_ADMIN: &str = "0000000000001000";

pub(crate) fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("deploy")
        .join(name)
}

/// Parses the YAML documents of a file.
pub(crate) fn documents(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(path(name)).unwrap();
    text.split("\n---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

pub(crate) fn read<T: DeserializeOwned>(document: &Value) -> T {
    serde_json::from_value(document.clone()).unwrap()
}

fn pod() -> PodSpec {
    let daemon_set: DaemonSet = read(&documents("daemonset.yaml")[0]);
    daemon_set.spec.template.spec.unwrap()
}

fn profile() -> String {
    fs::read_to_string(path("seccomp/kube-proxy.json")).unwrap()
}

/// The program as installed in the image, and the confinement of the manifests.
struct Image {
    netns: Netns,
    folder: Directory,
    container: Container,
}

impl Image {
    fn new() -> Self {
        let image = Self::without_capability();
        grant_net_admin(&image.program()).unwrap();
        image
    }

    fn without_capability() -> Self {
        let image = Self {
            netns: Netns::new().unwrap(),
            folder: Directory::new().unwrap(),
            container: Container::new(USER, &profile()).unwrap(),
        };
        let program = Path::new(env!("CARGO_BIN_EXE_kube-proxy"));
        program::copy(program, &image.program()).unwrap();
        fs::create_dir(image.manifests()).unwrap();
        for file in fs::read_dir(demo()).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), image.manifests().join(file.file_name())).unwrap();
        }
        image
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("kube-proxy")
    }

    fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    /// Returns a confined command with arguments.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program());
        command.env_clear().args(words);
        self.container.confine(&mut command);
        command
    }

    /// Returns a confined command that serves the demo manifests.
    fn demo(&self, words: &[&str]) -> Command {
        self.with_demo(self.command(words))
    }

    fn with_demo(&self, mut command: Command) -> Command {
        let common_flags = "--proxy-mode nftables --hostname-override node-1 --cluster-cidr \
                     10.244.0.0/16 --oom-score-adj 0 --iptables-min-sync-period 0s";
        command.args(common_flags.split_whitespace());
        command.arg("--manifests").arg(self.manifests());
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = self.demo(words);
        self.netns.run(|| command.output()).unwrap()
    }

    fn rules(&self) -> String {
        let mut command = Command::new("nft");
        command.args(["list", "ruleset"]);
        let output = self.netns.run(|| command.output()).unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Returns the words after a field of `/proc/PID/status`.
fn status(process: &Process, field: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{}/status", process.pid())).unwrap();
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, words) = lines.find(|(name, _)| *name == field).unwrap();
    words.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_confined_program_serves_the_demo() {
    let image = Image::new();
    let process = Process::start(&image.netns, &mut image.demo(&[])).unwrap();
    wait_until("the first sync", || process.output().contains("synced"));
    let user = USER.to_string();
    for (field, words) in [
        ("Uid", vec![&*user; 4]),
        ("Gid", vec![&*user; 4]),
        ("Groups", Vec::new()),
        ("CapEff", vec![NET_ADMIN]),
        ("CapPrm", vec![NET_ADMIN]),
        ("CapBnd", vec![NET_ADMIN]),
        ("CapInh", vec!["0000000000000000"]),
        ("CapAmb", vec!["0000000000000000"]),
        ("NoNewPrivs", vec!["1"]),
        ("Seccomp", vec!["2"]),
    ] {
        assert_eq!(status(&process, field), words, "{field}");
    }
    assert!(image.rules().contains("10.96.0."), "{}", image.rules());
    let web = crate::stage::service("web", "10.96.7.77") + &crate::stage::slice("web", 7, 3);
    fs::write(image.manifests().join("web.yaml"), web).unwrap();
    wait_until("the new endpoint", || image.rules().contains("10.244.7.3 "));
    let mut flush = Command::new("nft");
    flush.args(["flush", "ruleset"]);
    assert!(image.netns.run(|| flush.status()).unwrap().success());
    wait_until("the rules", || image.rules().contains("10.244.7.3 "));
    let output = process.output();
    assert!(
        !output.contains("ERROR") && !output.contains("panicked"),
        "{output}"
    );
    assert!(process.terminate().unwrap().success());
}

#[test]
fn the_confined_program_initializes() {
    let image = Image::new();
    let output = image.run(&["--init-only"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(image.rules(), "");
}

/// Only root may read which tables of iptables-legacy exist, and the image has no programs of
/// iptables. Kernels with the tables as modules show that none is there.
#[test]
fn the_confined_program_explains_the_rules_of_the_kernel_as_root_does() {
    let image = Image::new();
    add_links(&image.netns);
    let web = crate::stage::service("web", "10.96.7.77") + &crate::stage::slice("web", 7, 3);
    fs::write(image.manifests().join("web.yaml"), web).unwrap();
    let synced = image.run(&["--oneshot"]);
    assert!(synced.status.success(), "{synced:?}");
    let words = ["explain", "tcp", "10.96.7.77:80", "-o", "json"];
    let words = [&words[..], &["--from", "198.51.100.7"]].concat();
    let confined = explained(&image.run(&words));
    let mut root = Command::new(image.program());
    root.env_clear().args(words);
    let by_root = explained(&image.netns.run(|| image.with_demo(root).output()).unwrap());
    assert_eq!(by_root["kernelNote"], Value::Null, "{by_root:#}");
    assert_eq!(by_root["agrees"], true, "{by_root:#}");
    for field in ["kernel", "plan", "agrees", "outcome", "endpoints", "reason"] {
        assert_eq!(confined[field], by_root[field], "{field}: {confined:#}");
    }
    let sentence = by_root["sentence"].as_str().unwrap();
    let rest = confined["sentence"].as_str().unwrap();
    let rest = rest.strip_prefix(sentence).expect("the same sentence");
    let Some(note) = confined["kernelNote"].as_str() else {
        assert_eq!(rest, "");
        return;
    };
    let expected = "rules of iptables-legacy are not evaluated: whether they exist is unknown, \
                    because /proc/thread-self/net/ip_tables_names cannot be read (Permission \
                    denied (os error 13)), and its programs are not installed";
    assert_eq!(note, expected);
    assert_eq!(rest, format!(" Besides, {expected}."));
}

/// Returns an explanation in JSON.
fn explained(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[test]
fn a_read_only_sysctl_is_named_with_a_remedy_other_than_the_command_itself() {
    let stage = Stage::with(&[]);
    let prefix = with_sysctls_read_only();
    for (line, remedy) in [
        ("--init-only", "make the container privileged"),
        (
            "--oneshot",
            "run kube-proxy --init-only first, in a privileged container",
        ),
    ] {
        let outcome = stage.run_through(&prefix, line);
        assert_eq!(outcome.code, 0, "{outcome:?}");
        let name = "nf_conntrack_tcp_timeout_close_wait";
        let mut lines = outcome.stderr.lines();
        let warning = lines.find(|line| line.contains(name)).expect("a warning");
        for words in [
            "cannot be set to 3600, as configured: Read-only file system (os error 30); /proc/sys \
             is read-only in this container",
            remedy,
            "it stays 60",
        ] {
            assert!(warning.contains(words), "{words}: {warning}");
        }
        let advises = warning.contains("--init-only");
        assert_eq!(advises, line != "--init-only", "{warning}");
    }
    assert_eq!(stage.run("--init-only").code, 0);
    let outcome = stage.run_through(&prefix, "--oneshot");
    assert_eq!(outcome.code, 0, "{outcome:?}");
    assert!(!outcome.stderr.contains("timeout"), "{outcome:?}");
}

#[test]
fn a_missing_file_capability_is_reported() {
    let output = Image::without_capability().run(&["--init-only"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(words.contains("CAP_NET_ADMIN is missing"), "{words}");
}

#[test]
fn the_seccomp_profile_forbids_unneeded_system_calls() {
    assert_forbids_unneeded_system_calls(USER, &profile());
}

/// Asserts that a seccomp profile forbids system calls that kube-proxy does not need.
#[track_caller]
pub(crate) fn assert_forbids_unneeded_system_calls(user: u32, text: &str) {
    let profile: Value = serde_json::from_str(text).unwrap();
    let rules = profile["syscalls"].as_array().unwrap();
    let names = rules
        .iter()
        .flat_map(|rule| rule["names"].as_array().unwrap());
    let names: Vec<_> = names.map(|name| name.as_str().unwrap()).collect();
    for name in [
        "bpf",
        "chmod",
        "chown",
        "chroot",
        "clone3",
        "execveat",
        "fsopen",
        "init_module",
        "io_uring_setup",
        "kexec_load",
        "keyctl",
        "memfd_create",
        "mkdir",
        "mount",
        "move_mount",
        "open_by_handle_at",
        "perf_event_open",
        "pivot_root",
        "process_vm_readv",
        "ptrace",
        "reboot",
        "rename",
        "seccomp",
        "setns",
        "setuid",
        "symlink",
        "unlink",
        "unshare",
        "userfaultfd",
    ] {
        assert!(!names.contains(&name), "{name}");
    }
    let mut once = names.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(once.len(), names.len(), "duplicate system calls");
    let netns = Netns::new().unwrap();
    let container = Container::new(user, text).unwrap();
    for (program, words) in [
        ("unshare", vec!["--user", "true"]),
        ("mkdir", vec!["/tmp/x"]),
    ] {
        let mut command = Command::new(program);
        command.args(words);
        container.confine(&mut command);
        let output = netns.run(|| command.output()).unwrap();
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(words.contains("Function not implemented"), "{output:?}");
    }
}

#[test]
fn the_pod_has_only_the_privileges_that_it_needs() {
    let pod = pod();
    assert_eq!(pod.host_network, Some(true));
    assert_eq!(
        pod.priority_class_name.as_deref(),
        Some("system-node-critical")
    );
    let tolerations = pod.tolerations.unwrap();
    assert!(
        tolerations
            .iter()
            .any(|one| one.key.is_none() && one.effect.is_none())
    );
    let context = pod.security_context.unwrap();
    assert_eq!(
        (context.run_as_non_root, context.run_as_user),
        (Some(true), Some(USER.into()))
    );
    let seccomp = context.seccomp_profile.unwrap();
    assert_eq!(seccomp.type_, "Localhost");
    let sources = pod.volumes.unwrap();
    assert!(sources.iter().all(|volume| volume.host_path.is_none()));
    for container in pod.containers {
        assert_confined(&container);
    }
    let [init] = &pod.init_containers.unwrap()[..] else {
        panic!("one init container");
    };
    assert_initializes(init);
}

/// Asserts that a container can write sysctls, and does nothing except `--init-only`.
#[track_caller]
pub(crate) fn assert_initializes(container: &Spec) {
    let arguments = container.args.iter().flatten();
    let own: Vec<_> = arguments
        .filter(|argument| !argument.contains('='))
        .collect();
    assert_eq!(own, ["--init-only"]);
    let context = container.security_context.as_ref().unwrap();
    assert_eq!(context.privileged, Some(true));
    assert_eq!(context.read_only_root_filesystem, Some(true));
    let seccomp = context.seccomp_profile.as_ref().unwrap();
    assert_eq!(seccomp.type_, "Unconfined");
}

#[track_caller]
fn assert_confined(container: &Spec) {
    let context = container.security_context.as_ref().unwrap();
    assert_eq!(context.privileged, None, "{}", container.name);
    assert_eq!(
        context.allow_privilege_escalation,
        Some(false),
        "{}",
        container.name
    );
    assert_eq!(
        context.read_only_root_filesystem,
        Some(true),
        "{}",
        container.name
    );
    let capabilities = context.capabilities.as_ref().unwrap();
    assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    assert_eq!(
        capabilities.add.as_deref(),
        Some(&["NET_ADMIN".to_owned()][..])
    );
}

#[test]
fn probes_and_ports_match_the_configuration() {
    let pod = pod();
    let container = &pod.containers[0];
    let ports: Vec<_> = container.ports.iter().flatten().collect();
    let port = |name: &str| {
        ports
            .iter()
            .find(|port| port.name.as_deref() == Some(name))
            .unwrap()
    };
    let config = &config()["config.conf"];
    for (name, field) in [
        ("healthz", "healthzBindAddress"),
        ("metrics", "metricsBindAddress"),
    ] {
        let line = config.lines().find(|line| line.starts_with(field)).unwrap();
        assert!(
            line.ends_with(&format!(":{}", port(name).container_port)),
            "{line}"
        );
    }
    for (probe, path) in [
        (&container.startup_probe, "/livez"),
        (&container.liveness_probe, "/livez"),
        (&container.readiness_probe, "/healthz"),
    ] {
        let get = probe.as_ref().unwrap().http_get.as_ref().unwrap();
        assert_eq!(get.path.as_deref(), Some(path));
    }
}

fn config() -> BTreeMap<String, String> {
    let map: ConfigMap = read(&documents("config.yaml")[0]);
    map.data.unwrap()
}

#[test]
fn the_configuration_is_accepted_without_warnings() {
    let folder = Directory::new().unwrap();
    let file = folder.path().join("config.conf");
    fs::write(&file, &config()["config.conf"]).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let written = folder.path().join("written.yaml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_kube-proxy"));
    command
        .arg("--config")
        .arg(&file)
        .arg("--write-config-to")
        .arg(&written);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let outcome = String::from_utf8(output.stderr).unwrap();
    assert!(!outcome.contains("WARN"), "{outcome}");
    let effective: Value = serde_saphyr::from_str(&fs::read_to_string(written).unwrap()).unwrap();
    assert_eq!(effective["mode"], "nftables");
    assert_eq!(effective["oomScoreAdj"], -997);
    let kubeconfig: Value = serde_saphyr::from_str(&config()["kubeconfig.conf"]).unwrap();
    assert_eq!(
        kubeconfig["current-context"],
        kubeconfig["contexts"][0]["name"]
    );
}

#[test]
fn the_confined_program_serves_a_cluster_with_the_configuration_of_the_manifests() {
    let image = Image::new();
    let server = image.netns.run(ApiServer::start);
    // The role must allow both ways to list: within a watch, and with a list request.
    server.faults(|faults| faults.watch_list_failure = Some(WatchListFailure::Error));
    server.apply(node("10.0.0.1", "10.244.1.0/24"));
    server.apply_all(service_with_endpoints("web", "10.96.0.10", 1));
    let folder = image.folder.path();
    server.write_service_account(folder).unwrap();
    let localize = |text: &str| {
        let folder = folder.display().to_string();
        let account = "/var/run/secrets/kubernetes.io/serviceaccount";
        text.replace("https://API_SERVER:6443", &server.url())
            .replace("/etc/kube-proxy", &folder)
            .replace(account, &folder)
    };
    for (name, text) in config() {
        fs::write(folder.join(name), localize(&text)).unwrap();
    }
    let arguments = pod().containers[0].args.clone().unwrap();
    let arguments = arguments.iter().map(|argument| localize(argument));
    let arguments: Vec<_> = arguments
        .map(|argument| argument.replace("$(NODE_NAME)", "node-1"))
        .collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let process = Process::start(&image.netns, &mut image.command(&words)).unwrap();
    wait_until("the endpoint", || image.rules().contains("10.244.1.2 "));
    wait_until("the watches", || server.wait_for_watchers(4, SOON));
    wait_until("the start event", || !server.events().is_empty());
    server.apply_all(service_with_endpoints("more", "10.96.0.11", 2));
    wait_until("the new Service", || image.rules().contains("10.96.0.11"));
    for (port, path) in [(10256, "/livez"), (10256, "/healthz"), (10249, "/metrics")] {
        wait_until(path, || answers(&image.netns, port, path));
    }
    assert_role_matches(&server.requests());
    let output = process.output();
    assert!(!output.contains("ERROR"), "{output}");
    assert!(process.terminate().unwrap().success());
}

/// Timeout of one wait for watches.
const SOON: Duration = Duration::from_millis(100);

/// Returns whether a port in the namespace responds with status 200.
fn answers(netns: &Netns, port: u16, path: &str) -> bool {
    netns
        .run(|| {
            let mut stream = TcpStream::connect(("127.0.0.1", port))?;
            stream.set_read_timeout(Some(Duration::from_secs(5)))?;
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok::<_, std::io::Error>(answer.starts_with("HTTP/1.0 200"))
        })
        .unwrap_or(false)
}

/// Asserts that the role allows exactly the requests that were made.
#[track_caller]
fn assert_role_matches(requests: &[Request]) {
    let asked = requests
        .iter()
        .map(|request| (request.resource, request.verb));
    let asked: BTreeSet<_> = asked
        .map(|(resource, verb)| (resource.to_owned(), verb.to_owned()))
        .collect();
    let role: ClusterRole = read(&documents("rbac.yaml")[0]);
    let mut allowed = BTreeSet::new();
    for rule in role.rules.unwrap() {
        for resource in rule.resources.unwrap() {
            let verbs = rule.verbs.iter().cloned();
            allowed.extend(verbs.map(|verb| (resource.clone(), verb)));
        }
    }
    assert_eq!(asked, allowed);
}

#[test]
fn the_service_account_of_the_pod_has_the_role() {
    let rbac = documents("rbac.yaml");
    let role: ClusterRole = read(&rbac[0]);
    let groups = role.rules.iter().flatten();
    let groups: Vec<_> = groups
        .flat_map(|rule| rule.api_groups.clone().unwrap())
        .collect();
    let expected = ["", "discovery.k8s.io", "networking.k8s.io", "events.k8s.io"];
    assert_eq!(groups, expected);
    let binding: ClusterRoleBinding = read(&rbac[1]);
    let account: ServiceAccount = read(&documents("service-account.yaml")[0]);
    assert_eq!(Some(binding.role_ref.name), role.metadata.name);
    let subject = &binding.subjects.unwrap()[0];
    assert_eq!(Some(&subject.name), account.metadata.name.as_ref());
    assert_eq!(pod().service_account_name, account.metadata.name);
}
