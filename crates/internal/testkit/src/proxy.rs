//! kube-proxy on the node of a lab.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::Lab;
use crate::netns::Netns;
use crate::scoped::Process;
use crate::traffic::{Answer, Probe};

/// Command line of a proxy.
#[derive(Clone, Debug)]
pub struct Options {
    /// Path of the program.
    pub program: PathBuf,
    /// Value of `--proxy-mode`.
    pub mode: &'static str,
    /// Source of the objects: a flag and its value.
    pub source: (&'static str, PathBuf),
    /// Additional flags.
    pub flags: Vec<String>,
    /// Program with arguments that runs the proxy. Empty: the proxy is run directly.
    pub runner: Vec<String>,
}

/// A kube-proxy on the node of a lab, killed when dropped.
#[derive(Debug)]
pub struct Proxy {
    process: Process,
}

impl Proxy {
    /// Name of the proxy's node.
    pub const NODE: &'static str = "node-1";

    /// Starts a proxy on the node of a lab.
    ///
    /// # Errors
    ///
    /// If the program cannot be started.
    pub fn start(lab: &Lab, options: &Options) -> io::Result<Self> {
        let mut command = options.command();
        let process = Process::start(&lab.node.netns, &mut command)?;
        Ok(Self { process })
    }

    /// Returns the process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Sends SIGTERM and waits for the proxy to exit.
    ///
    /// # Errors
    ///
    /// If the proxy does not exit in time, or exits with an error.
    pub fn stop(self) -> io::Result<()> {
        let output = self.process.output();
        match self.process.terminate()? {
            status if status.success() => Ok(()),
            status => Err(io::Error::other(format!("{status}; output:\n{output}"))),
        }
    }

    /// Sends requests until a server answers.
    ///
    /// # Errors
    ///
    /// If the proxy has exited, or if no server answers in time. The error contains the
    /// last failure and the output of the proxy.
    pub fn wait_for(&mut self, from: &Netns, probe: Probe, within: Duration) -> io::Result<Answer> {
        let deadline = Instant::now() + within;
        let probe = probe.timeout(Duration::from_millis(300));
        loop {
            let failure = match probe.once(from) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let status = self.process.try_wait()?;
            if status.is_some() || Instant::now() > deadline {
                let state =
                    status.map_or_else(|| "running".to_owned(), |status| status.to_string());
                let (target, output) = (probe.target, self.process.output());
                return Err(io::Error::other(format!(
                    "no answer from {target}: {failure}; output of the proxy ({state}):\n{output}"
                )));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Options {
    /// Creates options for a mode and a folder of manifests.
    pub fn new(program: impl Into<PathBuf>, mode: &'static str, manifests: &Path) -> Self {
        Self {
            program: program.into(),
            mode,
            source: ("--manifests", manifests.to_owned()),
            flags: Vec::new(),
            runner: Vec::new(),
        }
    }

    /// Creates options for a mode and an API server.
    pub fn with_kubeconfig(
        program: impl Into<PathBuf>,
        mode: &'static str,
        kubeconfig: &Path,
    ) -> Self {
        Self {
            source: ("--kubeconfig", kubeconfig.to_owned()),
            ..Self::new(program, mode, kubeconfig)
        }
    }

    /// Returns the command that runs the proxy on the node.
    pub fn command(&self) -> Command {
        let mut command = match self.runner.split_first() {
            Some((runner, args)) => {
                let mut command = Command::new(runner);
                command.args(args).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        command
            .args(["--proxy-mode", self.mode])
            .args(["--hostname-override", Proxy::NODE])
            .args(["--cluster-cidr", Lab::POD_NETWORKS])
            .arg(self.source.0)
            .arg(&self.source.1)
            .args(&self.flags);
        command
    }
}
