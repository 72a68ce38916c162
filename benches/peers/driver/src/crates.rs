//! Builds of the crates, and the size of their dependency trees.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use std::{env, fs};

use jobs::Outcome;

/// A crate, and the program that does its jobs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Package of the program.
    pub program: &'static str,
    /// The crates that the program measures.
    pub crates: &'static [&'static str],
}

pub const VIPLINE: Peer = Peer {
    program: "peer-vipline",
    crates: &[
        "vipline-nftables",
        "vipline-conntrack",
        "vipline-ipset",
        "vipline-iptables",
    ],
};
pub const NLINK: Peer = Peer {
    program: "peer-nlink",
    crates: &["nlink"],
};
pub const RUSTABLES: Peer = Peer {
    program: "peer-rustables",
    crates: &["rustables"],
};
pub const NFTABLES: Peer = Peer {
    program: "peer-nftables",
    crates: &["nftables"],
};
pub const CONNTRACK: Peer = Peer {
    program: "peer-conntrack",
    crates: &["conntrack"],
};
/// All crates.
pub const PEERS: [Peer; 5] = [VIPLINE, NLINK, RUSTABLES, NFTABLES, CONNTRACK];

impl Peer {
    /// Builds the program. Returns why it cannot be built, if so.
    pub fn build(self) -> Outcome<Option<String>> {
        let arguments = [
            "build",
            "--release",
            "--locked",
            "--quiet",
            "--package",
            self.program,
        ];
        let output = cargo(&arguments).output()?;
        if output.status.success() {
            return Ok(None);
        }
        let errors = String::from_utf8_lossy(&output.stderr);
        let reason = match errors.contains("libclang") {
            true => "needs libclang (on Debian: libclang-dev)",
            false => errors
                .lines()
                .find(|line| line.starts_with("error"))
                .unwrap_or("unknown"),
        };
        Ok(Some(format!("not built: {reason}")))
    }

    /// Returns the time of a build with all dependencies into an empty folder.
    pub fn cold_build(self) -> Outcome<Duration> {
        let folder = workspace().join("target/cold");
        let start = Instant::now();
        let mut build = cargo(&["build", "--release", "--locked", "--quiet"]);
        build
            .args(["--package", self.program, "--target-dir"])
            .arg(&folder);
        let status = build.status()?;
        let time = start.elapsed();
        fs::remove_dir_all(&folder)?;
        match status.success() {
            true => Ok(time),
            false => Err(format!("{}: {status}", self.program).into()),
        }
    }
}

/// Returns the number of crates that a user of a crate compiles, including it.
pub fn tree(name: &str) -> Outcome<usize> {
    let arguments = [
        "tree",
        "--locked",
        "--edges",
        "normal,build",
        "--prefix",
        "none",
    ];
    let output = cargo(&arguments).args(["--package", name]).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let text = String::from_utf8(output.stdout)?;
    let lines = text.lines().map(|line| line.trim_end_matches(" (*)"));
    Ok(lines
        .filter(|line| !line.is_empty())
        .collect::<BTreeSet<_>>()
        .len())
}

/// Returns the folder of the workspace.
pub fn workspace() -> PathBuf {
    let driver = Path::new(env!("CARGO_MANIFEST_DIR"));
    driver.parent().unwrap_or(driver).to_owned()
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(workspace());
    command
}
