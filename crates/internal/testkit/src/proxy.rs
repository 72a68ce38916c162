//! A kube-proxy at work on the node of a lab.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use crate::lab::Lab;
use crate::leftovers::Process;
use crate::netns::Netns;
use crate::traffic::{Answer, Ask};

/// How a proxy is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program.
    pub program: PathBuf,
    /// The mode, as `--proxy-mode` takes it.
    pub mode: &'static str,
    /// Where objects come from: a flag and its value.
    pub source: (&'static str, PathBuf),
    /// Further flags.
    pub flags: Vec<String>,
    /// A program with arguments that runs the proxy; empty for none.
    pub runner: Vec<String>,
}

/// A kube-proxy on the node of a lab, killed when dropped.
#[derive(Debug)]
pub struct Proxy {
    process: Process,
}

impl Proxy {
    /// The name that the proxy has for its node.
    pub const NODE: &'static str = "node-1";

    /// Starts a proxy that knows the pods of the lab by their networks.
    ///
    /// # Errors
    ///
    /// The program cannot be started.
    pub fn start(lab: &Lab, options: &Options) -> io::Result<Self> {
        let mut command = options.command();
        let process = Process::start(&lab.node.netns, &mut command)?;
        Ok(Self { process })
    }

    /// Returns the process.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Asks it to end, by SIGTERM.
    ///
    /// # Errors
    ///
    /// It did not, or not well.
    pub fn stop(self) -> io::Result<()> {
        let output = self.process.output();
        match self.process.terminate()? {
            status if status.success() => Ok(()),
            status => Err(io::Error::other(format!("{status}; it said:\n{output}"))),
        }
    }

    /// Asks until somebody answers.
    ///
    /// # Errors
    ///
    /// The proxy has ended, or nobody answered within that time; with the last
    /// failure and what the proxy said.
    pub fn wait_for(&mut self, from: &Netns, ask: Ask, within: Duration) -> io::Result<Answer> {
        let deadline = Instant::now() + within;
        let ask = ask.patience(Duration::from_millis(300));
        loop {
            let failure = match ask.once(from) {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
            let ended = self.process.ended()?;
            if ended.is_some() || Instant::now() > deadline {
                let state =
                    ended.map_or_else(|| "still runs".to_owned(), |ended| ended.to_string());
                let (target, output) = (ask.target, self.process.output());
                return Err(io::Error::other(format!(
                    "nobody answers at {target}: {failure}; the proxy ({state}) said:\n{output}"
                )));
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Options {
    /// Runs `program` in a mode with a folder of manifests.
    pub fn new(program: impl Into<PathBuf>, mode: &'static str, manifests: &Path) -> Self {
        Self {
            program: program.into(),
            mode,
            source: ("--manifests", manifests.to_owned()),
            flags: Vec::new(),
            runner: Vec::new(),
        }
    }

    /// Runs `program` in a mode with the objects of an API server.
    pub fn of_api(program: impl Into<PathBuf>, mode: &'static str, kubeconfig: &Path) -> Self {
        Self {
            source: ("--kubeconfig", kubeconfig.to_owned()),
            ..Self::new(program, mode, kubeconfig)
        }
    }

    /// Returns the program with its flags, such as it runs on the node.
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
