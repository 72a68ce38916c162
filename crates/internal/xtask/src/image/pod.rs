//! Pods of the manifests in `examples/kube-proxy/deploy`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::cargo::root;

/// A pod template. Security contexts accept only known fields, so that no restriction
/// is ignored.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pod {
    pub(super) security_context: PodSecurity,
    pub(super) init_containers: Vec<Container>,
    pub(super) containers: Vec<Container>,
}

/// Security context of a pod.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct PodSecurity {
    #[serde(default)]
    pub(super) run_as_non_root: bool,
    pub(super) run_as_user: u32,
    pub(super) run_as_group: u32,
    pub(super) seccomp_profile: SeccompProfile,
}

/// A seccomp profile in the folder `/var/lib/kubelet/seccomp` of the node, or none.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct SeccompProfile {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    pub(super) localhost_profile: String,
}

/// A container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Container {
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Variable>,
    pub(super) volume_mounts: Vec<VolumeMount>,
    pub(super) security_context: Security,
}

/// Security context of a container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Security {
    #[serde(default)]
    pub(super) privileged: bool,
    /// Replaces that of the pod.
    pub(super) run_as_non_root: Option<bool>,
    /// Replaces that of the pod.
    pub(super) run_as_user: Option<u32>,
    /// Replaces that of the pod.
    pub(super) run_as_group: Option<u32>,
    /// Replaces that of the pod.
    pub(super) seccomp_profile: Option<SeccompProfile>,
    pub(super) allow_privilege_escalation: Option<bool>,
    #[serde(default)]
    pub(super) read_only_root_filesystem: bool,
    #[serde(default)]
    pub(super) capabilities: Capabilities,
}

/// Changes of the default capabilities.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Capabilities {
    pub(super) drop: Vec<String>,
    pub(super) add: Vec<String>,
}

/// An environment variable. Without a value, it is a field of the pod.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: Option<String>,
}

/// Place of a volume in a container.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct VolumeMount {
    pub(super) name: String,
    pub(super) mount_path: String,
    #[serde(default)]
    pub(super) read_only: bool,
}

#[derive(Deserialize)]
struct DaemonSet {
    spec: DaemonSetSpec,
}

#[derive(Deserialize)]
struct DaemonSetSpec {
    template: Template,
}

#[derive(Deserialize)]
struct Template {
    spec: Pod,
}

#[derive(Deserialize)]
struct ConfigMap {
    data: BTreeMap<String, String>,
}

impl Pod {
    /// Reads the pod of a DaemonSet.
    pub(super) fn read(file: &str) -> Result<Self> {
        let set: DaemonSet = parse(file)?;
        Ok(set.spec.template.spec)
    }
}

/// Reads the files of a ConfigMap.
pub(super) fn config_map(file: &str) -> Result<BTreeMap<String, String>> {
    let map: ConfigMap = parse(file)?;
    Ok(map.data)
}

impl SeccompProfile {
    /// Reads the profile, which the deployment guide copies to the node. Returns nothing if
    /// the container is unconfined.
    pub(super) fn read(&self) -> Result<Option<serde_json::Value>> {
        if self.kind == "Unconfined" {
            return Ok(None);
        }
        ensure!(self.kind == "Localhost", "seccomp profile {}", self.kind);
        let name = self.localhost_profile.strip_prefix("vipline/");
        let name = name.context("the profile is not in the folder `vipline`")?;
        let path = folder().join("seccomp").join(name);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok(Some(serde_json::from_str(&text)?))
    }
}

fn parse<T: DeserializeOwned>(file: &str) -> Result<T> {
    let path = folder().join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    serde_saphyr::from_str(&text).with_context(|| path.display().to_string())
}

fn folder() -> PathBuf {
    root().join("examples/kube-proxy/deploy")
}
