//! A network namespace, a directory of manifests, and the kube-proxy binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::netns::Netns;
use testkit::scoped::{Directory, Process};

/// Timeout of a command in seconds.
const TIMEOUT_SECONDS: &str = "60";

/// Timeout of [`wait_until`].
const TIMEOUT: Duration = Duration::from_secs(180);

pub(crate) struct Stage {
    pub(crate) netns: Netns,
    pub(crate) folder: Directory,
    mode: &'static str,
    /// Value of `PATH`, if it differs from that of the test.
    path: Option<String>,
    /// Flags of all commands.
    flags: &'static str,
}

/// Exit code and output of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let stage = Self {
            netns: Netns::new().unwrap(),
            folder: Directory::new().unwrap(),
            mode: "nftables",
            path: None,
            flags: "",
        };
        fs::create_dir(stage.manifests()).unwrap();
        stage
    }

    /// Returns the stage in another mode, with another value of `PATH`.
    pub(crate) fn in_mode(mut self, mode: &'static str, path: String) -> Self {
        self.mode = mode;
        self.path = Some(path);
        self
    }

    /// Returns the stage with more flags of all commands.
    pub(crate) fn with_flags(mut self, flags: &'static str) -> Self {
        self.flags = flags;
        self
    }

    pub(crate) fn with(files: &[(&str, &str)]) -> Self {
        let stage = Self::new();
        for (name, text) in files {
            stage.write(name, text);
        }
        stage
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.folder.path().join("manifests")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.manifests().join(name), text).unwrap();
    }

    pub(crate) fn arguments(&self, line: &str) -> Vec<String> {
        let common_flags = "--hostname-override node-1 --cluster-cidr 10.244.0.0/16 \
                     --iptables-min-sync-period 0s --manifests";
        let words = line
            .split_whitespace()
            .chain(["--proxy-mode", self.mode])
            .chain(self.flags.split_whitespace())
            .chain(common_flags.split_whitespace())
            .map(str::to_owned);
        words
            .chain([self.manifests().display().to_string()])
            .collect()
    }

    /// Runs the binary until it exits, with the arguments in `line` and flags for these
    /// manifests.
    pub(crate) fn run(&self, line: &str) -> Outcome {
        self.run_through(&[], line)
    }

    /// The same through another program, such as `setpriv`.
    pub(crate) fn run_through(&self, program: &[&str], line: &str) -> Outcome {
        let mut command = self.command("timeout");
        command
            .args([TIMEOUT_SECONDS])
            .args(program)
            .arg(BINARY)
            .args(self.arguments(line));
        Outcome::from(self.netns.run(|| command.output()).unwrap())
    }

    /// Returns a command with the `PATH` of the stage.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if let Some(path) = &self.path {
            command.env("PATH", path);
        }
        command
    }

    /// Starts the binary and waits until it has synced once.
    pub(crate) fn start(&self) -> Process {
        self.start_with("")
    }

    /// Starts the binary with more flags and waits until it has synced once.
    pub(crate) fn start_with(&self, line: &str) -> Process {
        let arguments = self.arguments(line);
        let process = Process::start(&self.netns, self.command(BINARY).args(arguments)).unwrap();
        wait_until("the first sync", || process.output().contains("synced"));
        process
    }

    /// Starts a copy of the binary with a command prefix, and waits until it has synced once.
    /// Returns the output if it ends before.
    pub(crate) fn start_through(&self, prefix: &str, program: &Path) -> Result<(), String> {
        let mut words = prefix.split_whitespace();
        let mut command = self.command(words.next().expect("a command"));
        command.args(words).arg(program).args(self.arguments(""));
        let mut process = Process::start(&self.netns, &mut command).unwrap();
        let mut status = None;
        wait_until("the first sync, or the end", || {
            status = process.try_wait().unwrap();
            status.is_some() || process.output().contains("synced")
        });
        match status {
            Some(_) => Err(process.output()),
            None => Ok(()),
        }
    }

    /// Starts the binary with more flags as the first process of a PID namespace.
    pub(crate) fn start_in_pid_namespace(&self, line: &str) -> Process {
        let unshare = ["--pid", "--fork", "--kill-child", "--mount-proc", BINARY];
        let mut command = self.command("unshare");
        command.args(unshare).args(self.arguments(line));
        Process::start(&self.netns, &mut command).unwrap()
    }

    pub(crate) fn start_unsynced(&self) -> Process {
        let arguments = self.arguments("");
        Process::start(&self.netns, self.command(BINARY).args(arguments)).unwrap()
    }

    /// Syncs once and returns the report.
    pub(crate) fn oneshot(&self) -> Value {
        let outcome = self.run("--oneshot -o json");
        assert_eq!(outcome.code, 0, "{outcome:?}");
        serde_json::from_str(&outcome.stdout).unwrap()
    }

    /// Loads a script with `nft -f`.
    pub(crate) fn load(&self, script: &str) {
        let path = self.folder.path().join("script.nft");
        fs::write(&path, script).unwrap();
        let outcome = self.nft(&["-f", &path.display().to_string()]);
        assert_eq!(outcome.code, 0, "{}\n{script}", outcome.stderr);
    }

    pub(crate) fn nft(&self, words: &[&str]) -> Outcome {
        let mut command = Command::new("nft");
        command.args(words);
        Outcome::from(self.netns.run(|| command.output()).unwrap())
    }

    /// Lists all rules with nft.
    pub(crate) fn ruleset(&self) -> String {
        let outcome = self.nft(&["list", "ruleset"]);
        assert_eq!((outcome.code, &*outcome.stderr), (0, ""));
        outcome.stdout
    }
}

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_kube-proxy");

impl Outcome {
    pub(crate) fn from(output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = output.status.code().unwrap_or(-1);
        Self {
            code,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// Minimum and maximum pause between two checks of [`wait_until`].
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(50)];

/// Waits until a condition holds and returns the elapsed time. The pauses between checks
/// grow with that time, because a check may start a program.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !holds() {
        assert!(
            start.elapsed() < TIMEOUT,
            "timeout after {TIMEOUT:?}: {what}"
        );
        let [min, max] = PAUSES;
        thread::sleep((start.elapsed() / 4).clamp(min, max));
    }
    start.elapsed()
}

pub(crate) fn demo() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("demo")
}

/// Returns the manifest of a Service with TCP port 80.
pub(crate) fn service(name: &str, ip: &str) -> String {
    format!(
        "---\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  \
         clusterIP: {ip}\n  ports:\n  - port: 80\n"
    )
}

/// Returns the manifest of the EndpointSlice of a Service, with TCP port 8080 and
/// endpoints 10.244.NET.1 and following.
pub(crate) fn slice(service: &str, net: u8, count: u8) -> String {
    let endpoints: Vec<_> = (1..=count)
        .map(|host| format!("- addresses: [10.244.{net}.{host}]\n"))
        .collect();
    format!(
        "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  \
         name: {service}-{net}\n  labels:\n    kubernetes.io/service-name: {service}\n\
         addressType: IPv4\nports:\n- port: 8080\nendpoints:\n{}",
        endpoints.concat()
    )
}
