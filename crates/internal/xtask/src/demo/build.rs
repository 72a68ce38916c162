//! Build of the program that the demo runs, with one line of progress.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;

use crate::cargo::{cargo, metadata};
use crate::process::{LIMIT, execute_with_output};

/// Progress of a build, as one line that is rewritten on a terminal.
struct Progress {
    start: Instant,
    crates: usize,
    is_terminal: bool,
}

/// Builds kube-proxy with the profile `dev` and returns its path.
///
/// This task and the tests have compiled most dependencies with the same profile. The
/// kernel and the traffic determine the times that the demo prints.
pub(super) fn kube_proxy() -> Result<PathBuf> {
    let mut build = cargo([
        "build",
        "--quiet",
        "--package=kube-proxy",
        "--message-format=json-render-diagnostics",
    ]);
    let mut progress = Progress {
        start: Instant::now(),
        crates: 0,
        is_terminal: io::stderr().is_terminal(),
    };
    progress.start();
    execute_with_output(LIMIT, &mut build, |line| {
        if line.contains(r#""reason":"compiler-artifact""#) {
            progress.add();
        }
    })?;
    progress.finish();
    Ok(metadata()?.target_directory.join("debug/kube-proxy"))
}

impl Progress {
    fn start(&self) {
        if self.is_terminal {
            self.print("", "");
        }
    }

    fn add(&mut self) {
        self.crates += 1;
        if self.is_terminal {
            self.print("\r", "");
        }
    }

    fn finish(&self) {
        self.print(if self.is_terminal { "\r" } else { "" }, "\n");
    }

    fn print(&self, start: &str, end: &str) {
        let (crates, seconds) = (self.crates, self.start.elapsed().as_secs());
        let mut stderr = io::stderr().lock();
        // The demo does not depend on its progress line.
        let _ = write!(
            stderr,
            "{start}building kube-proxy: {crates} crates in {seconds} s{end}"
        );
        let _ = stderr.flush();
    }
}
