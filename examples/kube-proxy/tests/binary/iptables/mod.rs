//! Mode iptables, with the programs of both variants.

mod children;

mod deploy;

mod extensions;

mod failures;

mod families;

mod flows;

mod large;

mod netlink;

mod node;

mod pid_namespace;

mod rejected;

mod rules;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::process::Command;
use std::{env, iter};

use testkit::netns::Netns;
use testkit::program;

use crate::stage::{Outcome, Stage, service, slice};

/// The variants of iptables.
const VARIANTS: [&str; 2] = ["legacy", "nft"];

/// The variants of iptables, and the nft variant over netlink.
pub(crate) const BACKENDS: [&str; 3] = ["legacy", "nft", "netlink"];

/// A stage of mode iptables whose `iptables` programs are those of one variant. The proxy
/// runs the programs, except with backend `netlink`.
pub(crate) struct Node {
    stage: Stage,
    variant: &'static str,
}

impl Node {
    pub(crate) fn with(backend: &'static str, files: &[(&str, &str)]) -> Self {
        let (variant, flags) = match backend {
            "netlink" => ("nft", "--iptables-backend=netlink"),
            "auto" => ("nft", "--iptables-backend=auto"),
            variant => (variant, "--iptables-backend=programs"),
        };
        let stage = Stage::with(files).with_flags(flags);
        let programs = stage.folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        for family in ["iptables", "ip6tables"] {
            for end in ["save", "restore"] {
                let own = program(&format!("{family}-{variant}-{end}"));
                symlink(own, programs.join(format!("{family}-{end}"))).unwrap();
            }
        }
        let path = format!("{}:{}", programs.display(), env::var("PATH").unwrap());
        let stage = stage.in_mode("iptables", path);
        Self { stage, variant }
    }

    /// Creates a node in another mode, with the programs of the nft variant.
    pub(crate) fn in_mode(mode: &'static str, files: &[(&str, &str)]) -> Self {
        let stage = Stage::with(files).in_mode(mode, env::var("PATH").unwrap());
        Self {
            stage,
            variant: "nft",
        }
    }

    /// Creates a node with a Service of three endpoints.
    fn web(backend: &'static str) -> Self {
        Self::with(backend, &[("web.yaml", &web(3))])
    }

    pub(crate) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// Returns the variant of the programs.
    pub(crate) fn variant(&self) -> &'static str {
        self.variant
    }

    fn netns(&self) -> &Netns {
        &self.stage.netns
    }

    fn programs(&self) -> PathBuf {
        self.stage.folder.path().join("programs")
    }

    /// Replaces a program by a shell script. Variable `$real` is the path of the
    /// original, `$folder` that of the test directory.
    pub(crate) fn script(&self, name: &str, text: &str) {
        let (family, end) = name.split_once('-').unwrap();
        let real = program(&format!("{family}-{}-{end}", self.variant));
        let folder = self.stage.folder.path().display();
        let real = real.display();
        let text = format!("real={real}\nfolder={folder}\n{text}");
        program::script(&self.programs().join(name), &text).unwrap();
    }

    /// Runs a shell command in the namespace and returns its output.
    #[track_caller]
    pub(crate) fn shell(&self, line: &str) -> String {
        let mut command = self.stage.command("sh");
        command.args(["-e", "-c", line]);
        let outcome = Outcome::from(self.netns().run(|| command.output()).unwrap());
        assert_eq!(outcome.code, 0, "{line}: {outcome:?}");
        outcome.stdout
    }

    /// Returns the rules of both families without comments and counters.
    pub(crate) fn rules(&self) -> String {
        let saved = self.shell("iptables-save; ip6tables-save");
        let lines = saved.lines().filter(|line| !line.starts_with('#'));
        // The policies may count traffic of the test.
        let lines = lines.map(|line| line.split(" [").next().unwrap_or(line));
        lines.fold(String::new(), |text, line| text + line + "\n")
    }

    /// Returns the sorted rules.
    pub(crate) fn sorted_rules(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.rules().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }
}

/// Returns the path of a system program.
fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap();
    let folders = env::split_paths(&path).chain(iter::once("/usr/sbin".into()));
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| file.is_file()).expect(name)
}

/// Returns the manifests of a Service with `endpoints` endpoints.
pub(crate) fn web(endpoints: u8) -> String {
    service("web", "10.96.0.10") + &slice("web", 1, endpoints)
}

/// Returns a command prefix that makes `/proc/sys` read-only.
pub(crate) fn with_sysctls_read_only() -> [&'static str; 6] {
    let script = "mount --bind /proc/sys /proc/sys && \
                  mount -o remount,bind,ro /proc/sys && exec \"$@\"";
    ["unshare", "--mount", "sh", "-c", script, "sh"]
}

/// Returns the number of lines of a file, or 0 if the file does not exist.
fn lines(file: &PathBuf) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// Runs `ip` with arguments in a namespace.
pub(crate) fn ip(netns: &Netns, line: &str) {
    let mut command = Command::new("ip");
    command.args(line.split(' '));
    let status = netns.run(|| command.status()).unwrap();
    assert!(status.success(), "ip {line}");
}
