//! Configuration of a container for an OCI runtime.
//!
//! Sets what containerd sets for a pod with `hostNetwork: true`: the network namespace
//! is that of the runtime. The OOM score adjustment of the pod is left out, because it
//! needs CAP_SYS_RESOURCE.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::pod::{Container, Pod};

/// Paths of `/proc` and `/sys` that containerd hides.
const MASKED: [&str; 9] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
];

/// Paths of `/proc` that containerd mounts read-only.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Capability of a privileged container here. In a cluster it has all of them; the program
/// needs only this one, and the machine of the check may lack others, such as
/// CAP_SYS_RESOURCE.
const PRIVILEGED: &str = "NET_ADMIN";

/// A directory or file of the host in a container.
#[derive(Clone, Debug)]
pub(super) struct Mount<'a> {
    /// Path on the host.
    pub(super) source: &'a Path,
    /// Path in the container.
    pub(super) destination: &'a str,
    /// Whether the container cannot write.
    pub(super) read_only: bool,
}

/// Returns the `config.json` of a container.
///
/// `image` is the image configuration, `arguments` follow its entry point.
///
/// # Errors
///
/// If the security context has a value that this function does not translate.
pub(super) fn config(
    image: &Value,
    pod: &Pod,
    container: &Container,
    rootfs: &Path,
    arguments: &[String],
    mounts: &[Mount<'_>],
) -> Result<Value> {
    let security = &container.security_context;
    let of_pod = &pod.security_context;
    let user = security.run_as_user.unwrap_or(of_pod.run_as_user);
    let group = security.run_as_group.unwrap_or(of_pod.run_as_group);
    let is_no_root = security.run_as_non_root.unwrap_or(of_pod.run_as_non_root);
    ensure!(!is_no_root || user != 0, "the user is root");
    let profile = security.seccomp_profile.as_ref();
    let seccomp = profile.unwrap_or(&of_pod.seccomp_profile).read()?;
    let capabilities: Vec<String> = if security.privileged {
        ensure!(seccomp.is_none(), "a privileged container has no profile");
        vec![format!("CAP_{PRIVILEGED}")]
    } else {
        ensure!(seccomp.is_some(), "{}: no seccomp profile", container.name);
        ensure!(
            security.capabilities.drop == ["ALL"],
            "capabilities are not dropped"
        );
        let added = security.capabilities.add.iter();
        added.map(|name| format!("CAP_{name}")).collect()
    };
    let execution = &image["config"];
    let words = execution["Entrypoint"]
        .as_array()
        .context("no entry point")?;
    let arguments = arguments.iter().map(|argument| json!(argument));
    let arguments: Vec<Value> = words.iter().cloned().chain(arguments).collect();
    let mut config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": user, "gid": group },
            "args": arguments,
            "env": environment(execution, container),
            "cwd": execution["WorkingDir"],
            "capabilities": {
                "bounding": capabilities,
                "effective": capabilities,
                "permitted": capabilities,
            },
            "noNewPrivileges": security.allow_privilege_escalation == Some(false),
        },
        "root": { "path": rootfs, "readonly": security.read_only_root_filesystem },
        "mounts": all_mounts(mounts),
        "linux": {
            "namespaces": [{ "type": "pid" }, { "type": "ipc" }, { "type": "mount" }],
        },
    });
    if let Some(profile) = seccomp {
        config["linux"]["seccomp"] = profile;
    }
    // `/sys` stays read-only, which is all that a privileged container lacks here: the
    // program does not write to it.
    if !security.privileged {
        config["linux"]["maskedPaths"] = json!(MASKED);
        config["linux"]["readonlyPaths"] = json!(READ_ONLY);
    }
    Ok(config)
}

/// Returns the variables of the image and of the container that have a value.
fn environment(execution: &Value, container: &Container) -> Vec<Value> {
    let mut variables = execution["Env"].as_array().cloned().unwrap_or_default();
    for variable in &container.env {
        if let Some(value) = &variable.value {
            variables.push(json!(format!("{}={value}", variable.name)));
        }
    }
    variables
}

/// Returns the file systems of all containers, and the mounts of this one.
fn all_mounts(mounts: &[Mount<'_>]) -> Vec<Value> {
    let mut all = Vec::new();
    for (kind, destination, options) in [
        ("proc", "/proc", "nosuid,noexec,nodev"),
        ("tmpfs", "/dev", "nosuid,strictatime,mode=755,size=65536k"),
        (
            "tmpfs",
            "/dev/shm",
            "nosuid,noexec,nodev,mode=1777,size=65536k",
        ),
        ("sysfs", "/sys", "nosuid,noexec,nodev,ro"),
    ] {
        let options: Vec<&str> = options.split(',').collect();
        all.push(json!({
            "type": kind,
            "source": kind,
            "destination": destination,
            "options": options,
        }));
    }
    for mount in mounts {
        let mode = if mount.read_only { "ro" } else { "rw" };
        all.push(json!({
            "type": "bind",
            "source": mount.source,
            "destination": mount.destination,
            "options": ["rbind", "rprivate", mode],
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::pod::Variable;
    use crate::image::settings::Settings;

    fn example(edit: impl FnOnce(&mut Pod)) -> Result<Value> {
        let mut pod = Pod::read("daemonset.yaml").unwrap();
        edit(&mut pod);
        let image = json!({ "config": Settings::example().execution() });
        let mount = Mount {
            source: Path::new("/tmp/config"),
            destination: "/etc/kube-proxy",
            read_only: true,
        };
        let arguments = ["--v=4".to_owned()];
        config(
            &image,
            &pod,
            &pod.containers[0],
            Path::new("/tmp/root"),
            &arguments,
            &[mount],
        )
    }

    #[test]
    fn the_restrictions_are_those_of_the_daemon_set() {
        let variable = Variable {
            name: "RUST_BACKTRACE".to_owned(),
            value: Some("1".to_owned()),
        };
        let config = example(|pod| pod.containers[0].env.push(variable)).unwrap();
        let process = &config["process"];
        assert_eq!(process["args"], json!(["/kube-proxy", "--v=4"]));
        assert_eq!(process["user"], json!({ "uid": 65532, "gid": 65532 }));
        let sets = process["capabilities"].as_object().unwrap();
        assert_eq!(sets.len(), 3);
        for set in sets.values() {
            assert_eq!(*set, json!(["CAP_NET_ADMIN"]));
        }
        assert_eq!(process["noNewPrivileges"], true);
        let variables = process["env"].as_array().unwrap();
        assert!(variables.contains(&json!("RUST_BACKTRACE=1")));
        assert_eq!(
            config["root"],
            json!({ "path": "/tmp/root", "readonly": true })
        );
        assert_eq!(
            config["linux"]["seccomp"]["defaultAction"],
            "SCMP_ACT_ERRNO"
        );
        let mounts = config["mounts"].as_array().unwrap();
        let last = mounts.last().unwrap();
        assert_eq!(last["destination"], "/etc/kube-proxy");
        assert_eq!(last["options"], json!(["rbind", "rprivate", "ro"]));
    }

    #[test]
    fn a_privileged_container_can_write_sysctls() {
        let config = example(|pod| pod.containers = pod.init_containers.clone()).unwrap();
        let process = &config["process"];
        assert_eq!(process["user"], json!({ "uid": 0, "gid": 0 }));
        assert_eq!(process["noNewPrivileges"], false);
        for absent in ["seccomp", "readonlyPaths", "maskedPaths"] {
            assert_eq!(config["linux"][absent], Value::Null, "{absent}");
        }
    }

    #[test]
    fn a_security_context_that_cannot_be_translated_is_an_error() {
        let context = |pod: &mut Pod| pod.containers[0].security_context.privileged = true;
        assert!(example(context).is_err(), "with a seccomp profile");
        assert!(example(|pod| pod.security_context.run_as_user = 0).is_err());
        let drop = |pod: &mut Pod| pod.containers[0].security_context.capabilities.drop.clear();
        assert!(example(drop).is_err());
    }
}
