//! Exec credential plugins of a kubeconfig, with a time limit.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

#[cfg(any(not(target_os = "linux"), test))]
mod child_process;

#[cfg(target_os = "linux")]
mod process_group;

use std::collections::HashMap;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use kube::config::ExecConfig;
use serde::Deserialize;
use serde_json::json;

#[cfg(not(target_os = "linux"))]
use child_process::Running;
#[cfg(target_os = "linux")]
use process_group::Running;

/// Maximum output of a plugin in bytes.
const MAX_OUTPUT: usize = 1 << 20;

/// The exec plugin that runs now, if any. Clones refer to the same plugin.
///
/// One plugin runs at a time. Pass a clone to [`Api::open`](super::Api::open), and call
/// [`kill`](Self::kill) before the process ends.
#[derive(Clone, Debug, Default)]
pub struct RunningPlugin(Running);

/// Credentials printed by a plugin.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Credentials {
    /// A bearer token.
    pub(crate) token: Option<String>,
    /// A client certificate in PEM.
    pub(crate) client_certificate_data: Option<String>,
    /// The key of the certificate in PEM.
    pub(crate) client_key_data: Option<String>,
    /// Expiry time, in RFC 3339.
    pub(crate) expiration_timestamp: Option<String>,
}

impl RunningPlugin {
    /// Runs a plugin and returns its credentials.
    ///
    /// A plugin that runs longer than `limit` is killed, on Linux together with its children.
    ///
    /// # Errors
    ///
    /// Returns a message with the name of the plugin if it fails, hangs, or prints
    /// no credentials.
    pub(super) fn run(&self, exec: &ExecConfig, limit: Duration) -> Result<Credentials, String> {
        #[derive(Deserialize)]
        struct ExecCredential {
            status: Option<Credentials>,
        }

        let program = exec.command.as_deref().unwrap_or_default();
        let named = |reason: &dyn std::fmt::Display| format!("exec plugin {program:?}: {reason}");
        let ended = self.0.run(&mut command(exec, program), limit);
        let (status, output) = ended.map_err(|error| named(&error))?;
        if !status.success() {
            return Err(named(&status));
        }
        let text = String::from_utf8(output).map_err(|error| named(&error))?;
        // Plugins may print YAML, a superset of JSON.
        let printed: ExecCredential = serde_saphyr::from_str(&text)
            .map_err(|_| named(&"its output is not an ExecCredential"))?;
        let credentials = printed.status.unwrap_or_default();
        match (&credentials.token, &credentials.client_certificate_data) {
            (None, None) => Err(named(&"it printed no credentials")),
            _ => Ok(credentials),
        }
    }

    /// Kills the running plugin, if any, before the process ends.
    pub fn kill(&self) {
        self.0.kill();
    }
}

fn command(exec: &ExecConfig, program: &str) -> Command {
    let mut command = Command::new(program);
    let cluster = exec.cluster.as_ref().filter(|_| exec.provide_cluster_info);
    let mut info = json!({
        "kind": "ExecCredential",
        "apiVersion": exec.api_version,
        "spec": {"interactive": false},
    });
    if let Some(cluster) = cluster {
        info["spec"]["cluster"] = json!(cluster);
    }
    let variables = exec.env.iter().flatten();
    let empty = String::new();
    let value = |pair: &HashMap<String, String>| pair.get("value").unwrap_or(&empty).clone();
    let variables = variables.filter_map(|pair| Some((pair.get("name")?, value(pair))));
    command
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    command
}

/// Returns the error of a plugin that exceeds its limit.
fn timed_out(limit: Duration) -> io::Error {
    let reason = format!("it did not end within {limit:?} and was killed");
    io::Error::new(io::ErrorKind::TimedOut, reason)
}

/// Returns the error of a plugin that prints more than [`MAX_OUTPUT`].
fn too_long() -> io::Error {
    io::Error::other("its output is too long")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn plugin(script: &str) -> ExecConfig {
        serde_json::from_value(json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "sh",
            "args": ["-c", script],
            "env": [{"name": "TOKEN", "value": "secret"}],
        }))
        .unwrap()
    }

    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn a_plugin_prints_credentials() {
        let script = r#"echo "{\"status\": {\"token\": \"$TOKEN\",
            \"expirationTimestamp\": \"2026-01-01T00:00:00Z\"}}"; echo $KUBERNETES_EXEC_INFO |
            grep -q '"interactive":false'"#;
        let credentials = RunningPlugin::default().run(&plugin(script), LONG).unwrap();
        assert_eq!(credentials.token.as_deref(), Some("secret"));
        let expected = Some("2026-01-01T00:00:00Z");
        assert_eq!(credentials.expiration_timestamp.as_deref(), expected);
    }

    #[test]
    fn a_plugin_that_fails_is_named() {
        for (script, expected) in [
            ("exit 3", "exit status: 3"),
            ("echo nonsense", "its output is not an ExecCredential"),
            ("echo '{\"status\": {}}'", "it printed no credentials"),
        ] {
            let error = RunningPlugin::default()
                .run(&plugin(script), LONG)
                .unwrap_err();
            assert!(error.starts_with("exec plugin \"sh\": "), "{error}");
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn a_plugin_that_hangs_is_killed_with_its_children() {
        let start = Instant::now();
        let error = RunningPlugin::default()
            .run(&plugin("sleep 1000 & wait"), Duration::from_millis(100))
            .unwrap_err();
        assert!(error.contains("did not end within 100ms"), "{error}");
        assert!(start.elapsed() < LONG);
    }

    #[test]
    fn a_child_that_keeps_the_output_open_holds_nothing_up() {
        let script = "sleep 20 & echo '{\"status\": {\"token\": \"t\"}}'; kill -9 $$";
        let start = Instant::now();
        let error = RunningPlugin::default()
            .run(&plugin(script), LONG)
            .unwrap_err();
        assert!(error.contains("signal: 9"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(15));
    }
}
