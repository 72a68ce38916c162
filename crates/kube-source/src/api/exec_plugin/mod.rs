//! Exec credential plugins of a kubeconfig, with a time limit.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "IO file"
)]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use kube::config::ExecConfig;
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Deserialize;
use serde_json::json;

/// Maximum output of a plugin in bytes.
const MAX_OUTPUT: usize = 1 << 20;

/// The exec plugin that runs now, if any. Clones refer to the same plugin.
///
/// One plugin runs at a time. Pass a clone to [`Api::open`](super::Api::open), and call
/// [`kill`](Self::kill) before the process ends.
#[derive(Clone, Debug, Default)]
pub struct RunningPlugin {
    /// Process group, or 0.
    group: Arc<AtomicI32>,
}

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
    /// A plugin that runs longer than `limit` is killed together with its children.
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
        let plugin = Plugin::start(&self.group, &mut command(exec, program));
        let mut plugin = plugin.map_err(|error| named(&error))?;
        let output = plugin.finish(limit).map_err(|error| named(&error))?;
        let status = plugin.wait().map_err(|error| named(&error))?;
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
        if let Some(group) = Pid::from_raw(self.group.swap(0, Ordering::Relaxed)) {
            let _ = kill_process_group(group, Signal::KILL);
        }
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
    let variables = variables.filter_map(|pair| Some((pair.get("name")?, pair.get("value")?)));
    command
        .args(exec.args.iter().flatten())
        .envs(variables)
        .env("KUBERNETES_EXEC_INFO", info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .process_group(0);
    command
}

/// A running plugin. Killed on drop.
struct Plugin<'a> {
    child: Child,
    group: &'a AtomicI32,
}

impl<'a> Plugin<'a> {
    fn start(group: &'a AtomicI32, command: &mut Command) -> io::Result<Self> {
        let child = command.spawn()?;
        group.store(Pid::from_child(&child).as_raw_pid(), Ordering::Relaxed);
        Ok(Self { child, group })
    }

    fn wait(&mut self) -> io::Result<ExitStatus> {
        // After the wait the kernel may reuse the process ID.
        self.group.store(0, Ordering::Relaxed);
        self.child.wait()
    }

    /// Returns the output of the plugin after its end.
    fn finish(&mut self, limit: Duration) -> io::Result<Vec<u8>> {
        let end = Instant::now() + limit;
        let exit = pidfd_open(Pid::from_child(&self.child), PidfdFlags::empty())?;
        let mut stdout = self.child.stdout.take();
        if let Some(pipe) = &stdout {
            ioctl_fionbio(pipe, true)?;
        }
        let mut output = Vec::new();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let reason = format!("it did not end within {limit:?} and was killed");
                return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
            }
            let mut files = vec![PollFd::new(&exit, PollFlags::IN)];
            files.extend(stdout.as_ref().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            match poll(&mut files, Timespec::try_from(left).ok().as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            let has_ended = files.first().is_some_and(|exit| !exit.revents().is_empty());
            if let Some(pipe) = stdout.take()
                && read_available(&pipe, &mut output)?
            {
                stdout = Some(pipe);
            }
            if has_ended {
                return Ok(output);
            }
        }
    }
}

impl Drop for Plugin<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _ = self.wait();
        }
    }
}

/// Reads without blocking. Returns whether more output may follow.
fn read_available(pipe: impl AsFd, output: &mut Vec<u8>) -> io::Result<bool> {
    loop {
        if output.len() >= MAX_OUTPUT {
            return Err(io::Error::other("its output is too long"));
        }
        output.reserve(1 << 12);
        match read(&pipe, spare_capacity(output)) {
            Ok(0) => return Ok(false),
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(true),
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
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
