//! Mode iptables, with the programs of both variants.

mod children;

mod deploy;

mod failures;

mod families;

mod flows;

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

use crate::stage::{Said, Stage, service, slice};

/// The variants of iptables.
const VARIANTS: [&str; 2] = ["legacy", "nft"];

/// A stage of mode iptables on a machine with one variant.
struct Node {
    stage: Stage,
    variant: &'static str,
}

impl Node {
    fn with(variant: &'static str, files: &[(&str, &str)]) -> Self {
        let stage = Stage::with(files);
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

    /// Returns a stage with a Service of three endpoints.
    fn web(variant: &'static str) -> Self {
        Self::with(variant, &[("web.yaml", &web(3))])
    }

    fn netns(&self) -> &Netns {
        &self.stage.netns
    }

    fn programs(&self) -> PathBuf {
        self.stage.folder.path().join("programs")
    }

    /// Puts a shell script in the place of a program, which it finds at `$real`.
    fn script(&self, name: &str, text: &str) {
        let (family, end) = name.split_once('-').unwrap();
        let real = program(&format!("{family}-{}-{end}", self.variant));
        let folder = self.stage.folder.path().display();
        let real = real.display();
        let text = format!("real={real}\nfolder={folder}\n{text}");
        program::script(&self.programs().join(name), &text).unwrap();
    }

    /// Runs a shell command in the namespace; returns what it prints.
    #[track_caller]
    fn shell(&self, line: &str) -> String {
        let mut command = self.stage.command("sh");
        command.args(["-e", "-c", line]);
        let said = Said::of(self.netns().run(|| command.output()).unwrap());
        assert_eq!(said.code, 0, "{line}: {said:?}");
        said.stdout
    }

    /// Returns the rules of both families, without what changes with time.
    fn rules(&self) -> String {
        let saved = self.shell("iptables-save; ip6tables-save");
        let lines = saved.lines().filter(|line| !line.starts_with('#'));
        // Traffic of the tests may be counted by the policies.
        let lines = lines.map(|line| line.split(" [").next().unwrap_or(line));
        lines.fold(String::new(), |text, line| text + line + "\n")
    }

    /// Returns the rules in an order that says nothing.
    fn sorted(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.rules().lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    }
}

/// Returns where a program of the system is.
fn program(name: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap();
    let folders = env::split_paths(&path).chain(iter::once("/usr/sbin".into()));
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| file.is_file()).expect(name)
}

/// A Service with so many endpoints.
fn web(endpoints: u8) -> String {
    service("web", "10.96.0.10") + &slice("web", 1, endpoints)
}

/// Returns the command that has the kernel's settings read-only for a program.
fn with_sysctls_read_only() -> [&'static str; 6] {
    let script = "mount --bind /proc/sys /proc/sys && \
                  mount -o remount,bind,ro /proc/sys && exec \"$@\"";
    ["unshare", "--mount", "sh", "-c", script, "sh"]
}

/// Returns how many lines a file has that a script may have written.
fn lines(file: &PathBuf) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// Runs `ip` with words in a namespace.
pub(crate) fn ip(netns: &Netns, line: &str) {
    let mut command = Command::new("ip");
    command.args(line.split(' '));
    let status = netns.run(|| command.status()).unwrap();
    assert!(status.success(), "ip {line}");
}
