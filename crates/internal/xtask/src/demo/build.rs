//! Build of the programs that the demo runs, with one line of progress.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::cargo::{cargo, metadata};
use crate::process::{LIMIT, observe};

/// Progress of a build, as one line that is rewritten on a terminal.
struct Progress<W> {
    output: W,
    is_terminal: bool,
    crates: usize,
    /// Time of the last line, in seconds since the start.
    seconds: u64,
}

/// Paths of the programs.
#[derive(Debug)]
pub(super) struct Programs {
    /// kube-proxy.
    pub(super) kube_proxy: PathBuf,
    /// cluster-dns.
    pub(super) cluster_dns: PathBuf,
}

/// Builds the programs with the profile `dev` and returns their paths. Prints the messages of
/// cargo only if the build fails.
///
/// This task and the tests have compiled most dependencies with the same profile. The
/// kernel and the traffic determine the times that the demo prints.
pub(super) fn programs() -> Result<Programs> {
    let target = metadata()?.target_directory;
    let log = target.join("demo-build.log");
    let mut build = cargo([
        "build",
        "--quiet",
        "--package=kube-proxy",
        "--package=cluster-dns",
        "--message-format=json-render-diagnostics",
    ]);
    let messages = File::create(&log).with_context(|| format!("create {}", log.display()))?;
    let start = Instant::now();
    let mut progress = Progress::start(io::stderr(), io::stderr().is_terminal());
    let built = observe(LIMIT, build.stderr(messages), |line| {
        let is_crate = line.is_some_and(|it| it.contains(r#""reason":"compiler-artifact""#));
        progress.update(is_crate, start.elapsed().as_secs());
    });
    progress.finish(start.elapsed().as_secs());
    if built.is_err() {
        eprint!("{}", fs::read_to_string(&log).unwrap_or_default());
    }
    let folder = target.join("debug");
    built.map(|()| Programs {
        kube_proxy: folder.join("kube-proxy"),
        cluster_dns: folder.join("cluster-dns"),
    })
}

impl<W: Write> Progress<W> {
    fn start(output: W, is_terminal: bool) -> Self {
        let mut progress = Self {
            output,
            is_terminal,
            crates: 0,
            seconds: 0,
        };
        progress.print("building kube-proxy and cluster-dns: ");
        progress
    }

    /// Counts a compiled crate. Rewrites the line if the count or the time has changed.
    fn update(&mut self, is_crate: bool, seconds: u64) {
        self.crates += usize::from(is_crate);
        if self.is_terminal && (is_crate || seconds != self.seconds) {
            self.seconds = seconds;
            let counts = self.counts();
            self.print(&format!("\rbuilding kube-proxy and cluster-dns: {counts}"));
        }
    }

    /// Ends the line.
    fn finish(mut self, seconds: u64) {
        self.update(false, seconds);
        self.seconds = seconds;
        let rest = match self.is_terminal {
            true => String::new(),
            false => self.counts(),
        };
        self.print(&format!("{rest}\n"));
    }

    fn counts(&self) -> String {
        format!("{} crates in {} s", self.crates, self.seconds)
    }

    fn print(&mut self, text: &str) {
        // The demo does not depend on its progress line.
        let _ = self.output.write_all(text.as_bytes());
        let _ = self.output.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the output of a build of two crates in three seconds.
    fn output(is_terminal: bool) -> String {
        let mut output = Vec::new();
        let mut progress = Progress::start(&mut output, is_terminal);
        for (is_crate, seconds) in [(true, 0), (false, 0), (false, 1), (true, 1), (false, 1)] {
            progress.update(is_crate, seconds);
        }
        progress.finish(3);
        String::from_utf8(output).unwrap()
    }

    #[test]
    fn the_progress_is_one_line() {
        let lines = "building kube-proxy and cluster-dns: \rbuilding kube-proxy and cluster-dns: 1 crates in 0 s\r\
                     building kube-proxy and cluster-dns: 1 crates in 1 s\r\
                     building kube-proxy and cluster-dns: 2 crates in 1 s\r\
                     building kube-proxy and cluster-dns: 2 crates in 3 s\n";
        assert_eq!(output(true), lines);
        assert_eq!(
            output(false),
            "building kube-proxy and cluster-dns: 2 crates in 3 s\n"
        );
    }
}
