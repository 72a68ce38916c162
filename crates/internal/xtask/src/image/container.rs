//! Runs the pods of the manifests with crun, without a cluster.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::lab::Lab;
use testkit::scoped::{Directory, Process};
use testkit::traffic::{Probe, Protocol, Server};

use super::pod::{Container, Pod, config_map};
use super::rootfs::Image;
use super::runtime::{self, Mount};
use crate::cargo::root;
use crate::process::descendants;

/// Time limit for the first answer and for an exit.
const LIMIT: Duration = Duration::from_secs(20);

/// Interval of checks.
const PERIOD: Duration = Duration::from_millis(20);

/// Manifest with a Service of both IP families, and its addresses.
const MANIFEST: &str = "examples/kube-proxy/demo/front.yaml";
const FRONTENDS: [&str; 2] = ["10.96.0.10:80", "[fd00:96::10]:80"];

/// Port of the endpoints.
const PORT: u16 = 8080;

/// Place of the manifests in the container.
const MANIFESTS: &str = "/manifests";

/// Hides the cgroups of the host, and runs the arguments. crun rejects cgroups of both
/// versions side by side, even if it uses none.
const HIDE_CGROUPS: &str = r#"mount -t tmpfs tmpfs /sys/fs/cgroup && exec "$@""#;

/// Conntrack sysctls of the node after the init container: those whose default of
/// kube-proxy differs from the kernel's.
const SYSCTLS: [(&str, &str); 2] = [
    ("nf_conntrack_tcp_timeout_established", "86400"),
    ("nf_conntrack_tcp_timeout_close_wait", "3600"),
];

/// Numbers of capabilities in linux/capability.h.
const CAPABILITIES: [(&str, u32); 2] = [("NET_ADMIN", 12), ("NET_RAW", 13)];

/// A node with endpoints and the unpacked image.
struct Node {
    lab: Lab,
    folder: Directory,
    /// Image configuration.
    image: Value,
    pod: Pod,
    _servers: Vec<Server>,
}

/// Runs a DaemonSet's init container and container until a Service answers.
///
/// `folder` has the manifest and the ConfigMap of the DaemonSet, relative to the
/// manifests of the repository.
///
/// # Errors
///
/// If no answer arrives in time, the privileges of the process differ from the manifest,
/// or a container fails.
pub(super) fn serve(image: &Image, folder: &str) -> Result<()> {
    let node = Node::new(image, folder)?;
    for container in &node.pod.init_containers {
        node.initialize(container)?;
    }
    for container in &node.pod.containers {
        node.run(container)?;
    }
    Ok(())
}

impl Node {
    fn new(image: &Image, manifests: &str) -> Result<Self> {
        let folder = Directory::new()?;
        let make = |name: &str| -> Result<PathBuf> {
            let path = folder.path().join(name);
            fs::create_dir(&path)?;
            Ok(path)
        };
        image.unpack(&make("rootfs")?)?;
        let config = make("config")?;
        for (name, text) in config_map(&format!("{manifests}config.yaml"))? {
            fs::write(config.join(name), text)?;
        }
        let manifest = make("manifests")?.join("front.yaml");
        fs::copy(root().join(MANIFEST), manifest)?;
        fs::write(folder.path().join("lock"), "")?;
        let lab = Lab::new()?;
        let servers = lab.backends.iter().flat_map(|host| {
            let addresses = host.addresses().into_iter();
            addresses
                .map(|it| Server::start(&host.netns, Protocol::Tcp, (it, PORT).into(), &host.name))
        });
        Ok(Self {
            _servers: servers.collect::<Result<_, _>>()?,
            lab,
            image: image.config.clone(),
            pod: Pod::read(&format!("{manifests}daemonset.yaml"))?,
            folder,
        })
    }

    /// Runs an init container until it exits, and checks that the sysctls of the node have
    /// the configured values.
    ///
    /// The size of the conntrack table belongs to the machine. The node of the lab cannot
    /// change it, and only warnings about it are allowed.
    fn initialize(&self, container: &Container) -> Result<()> {
        let mut process = self.start(container)?;
        let status = wait_for_exit(&mut process)?;
        let output = process.output();
        ensure!(status.success(), "{}: {status}\n{output}", container.name);
        for (name, expected) in SYSCTLS {
            let path = format!("/proc/sys/net/netfilter/{name}");
            let value = self.lab.node.netns.run(|| fs::read_to_string(&path))?;
            ensure!(
                value.trim() == expected,
                "{}: {name} is {value} after the init container, must be {expected}\n{output}",
                container.name
            );
        }
        check_warnings(&output)
    }

    /// Runs a container until each frontend has answered, and stops it.
    fn run(&self, container: &Container) -> Result<()> {
        let mut process = self.start(container)?;
        for frontend in FRONTENDS {
            self.wait_for_answer(&mut process, frontend)?;
        }
        let pid = program(&process)?;
        self.check_privileges(pid, container)?;
        kill_process(pid, Signal::TERM)?;
        let status = wait_for_exit(&mut process)?;
        let output = process.output();
        ensure!(status.success(), "{}: {status}\n{output}", container.name);
        ensure!(!output.contains("ERROR"), "{output}");
        check_warnings(&output)
    }

    /// Starts a container in the network namespace of the node.
    fn start(&self, container: &Container) -> Result<Process> {
        let bundle = self.folder.path().join(&container.name);
        fs::create_dir(&bundle)?;
        let config = self.config(container)?;
        fs::write(bundle.join("config.json"), config.to_string())?;
        // The container and its mounts end with `unshare`, however it ends.
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--mount-proc", "--fork", "--kill-child"])
            .args(["sh", "-c", HIDE_CGROUPS, "sh", "crun"])
            .arg("--root")
            .arg(self.folder.path().join("state"))
            .args(["--cgroup-manager=disabled", "run", "--bundle"])
            .arg(&bundle)
            .arg(&container.name);
        Ok(Process::start(&self.lab.node.netns, &mut command)?)
    }

    fn config(&self, container: &Container) -> Result<Value> {
        let folder = self.folder.path();
        let (config, lock, manifests) = (
            folder.join("config"),
            folder.join("lock"),
            folder.join("manifests"),
        );
        let mut mounts = vec![Mount {
            source: &manifests,
            destination: MANIFESTS,
            read_only: true,
        }];
        for mount in &container.volume_mounts {
            let source = match &*mount.name {
                "config" => &config,
                "lock" => &lock,
                name => bail!("volume {name}: unknown"),
            };
            mounts.push(Mount {
                source,
                destination: &mount.mount_path,
                read_only: mount.read_only,
            });
        }
        let arguments = container.args.iter();
        let mut arguments: Vec<String> = arguments
            .map(|argument| argument.replace("$(NODE_NAME)", "node-1"))
            .collect();
        arguments.push(format!("--manifests={MANIFESTS}"));
        let rootfs = folder.join("rootfs");
        runtime::config(
            &self.image,
            &self.pod,
            container,
            &rootfs,
            &arguments,
            &mounts,
        )
    }

    /// Sends requests from a pod to an address until an endpoint answers.
    fn wait_for_answer(&self, process: &mut Process, frontend: &str) -> Result<()> {
        let probe =
            Probe::new(Protocol::Tcp, frontend.parse()?).timeout(Duration::from_millis(300));
        let deadline = Instant::now() + LIMIT;
        loop {
            let Err(failure) = probe.once(&self.lab.pod.netns) else {
                return Ok(());
            };
            if process.try_wait()?.is_some() || Instant::now() > deadline {
                bail!(
                    "no answer from {frontend}: {failure}; output:\n{}",
                    process.output()
                );
            }
            thread::sleep(PERIOD);
        }
    }

    /// Compares the user, capabilities and restrictions of a process with the manifest.
    fn check_privileges(&self, pid: Pid, container: &Container) -> Result<()> {
        let path = format!("/proc/{}/status", pid.as_raw_pid());
        let status = fs::read_to_string(&path).context(path)?;
        let added = &container.security_context.capabilities.add;
        let bits = CAPABILITIES
            .iter()
            .filter(|(name, _)| added.iter().any(|it| it == name));
        let capabilities = bits.fold(0_u64, |set, (_, bit)| set | 1 << bit);
        let user = self.pod.security_context.run_as_user;
        let group = self.pod.security_context.run_as_group;
        for expected in [
            format!("Uid:\t{user}\t{user}\t{user}\t{user}"),
            format!("Gid:\t{group}\t{group}\t{group}\t{group}"),
            format!("CapBnd:\t{capabilities:016x}"),
            format!("CapEff:\t{capabilities:016x}"),
            "NoNewPrivs:\t1".to_owned(),
            "Seccomp:\t2".to_owned(),
        ] {
            let is_met = status.lines().any(|line| line == expected);
            ensure!(is_met, "{}: {expected} is not in\n{status}", container.name);
        }
        Ok(())
    }
}

/// Checks that no warning is about a sysctl that the init container can set.
fn check_warnings(output: &str) -> Result<()> {
    let is_global = |line: &str| line.contains("nf_conntrack_max") || line.contains("_buckets");
    let warning = output
        .lines()
        .find(|line| line.contains("/proc/sys/") && !is_global(line));
    ensure!(warning.is_none(), "a sysctl could not be set:\n{output}");
    Ok(())
}

/// Returns the program in a container, which is the last process in the chain that crun
/// started.
fn program(process: &Process) -> Result<Pid> {
    let runtime = i32::try_from(process.pid()).ok().and_then(Pid::from_raw);
    let all = descendants(runtime.context("the runtime has no process ID")?);
    let is_program = |pid: &Pid| {
        let name = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_pid()));
        name.is_ok_and(|name| name == "kube-proxy\n")
    };
    all.into_iter()
        .find(is_program)
        .context("kube-proxy has no process")
}

fn wait_for_exit(process: &mut Process) -> Result<ExitStatus> {
    let deadline = Instant::now() + LIMIT;
    loop {
        if let Some(status) = process.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            bail!(
                "the container has not exited; output:\n{}",
                process.output()
            );
        }
        thread::sleep(PERIOD);
    }
}

/// Returns whether a user ID exists in the user namespace of this process.
pub(super) fn has_user(user: u32) -> Result<bool> {
    let map = fs::read_to_string(Path::new("/proc/self/uid_map"))?;
    Ok(map_contains(&map, user))
}

/// Returns whether a range of a user ID map contains a user: first ID, first ID outside,
/// and length in each line.
fn map_contains(map: &str, user: u32) -> bool {
    map.lines().any(|line| {
        let numbers = line.split_whitespace().map(str::parse);
        match numbers.collect::<Result<Vec<u32>, _>>().as_deref() {
            Ok([first, _, length]) => user >= *first && user - first < *length,
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_of_a_map_are_found() {
        assert!(map_contains("         0          0 4294967295\n", 65532));
        assert!(!map_contains("         0       1000          1\n", 65532));
        assert!(map_contains("0 1000 1\n1 100000 65536\n", 65532));
        assert!(!map_contains("0 1000 1\n1 100000 65531\n", 65532));
        assert!(!map_contains("", 0));
    }
}
