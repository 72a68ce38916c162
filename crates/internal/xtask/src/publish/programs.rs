//! Programs that a new user of the crates would write: examples that run from the packages.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use testkit::golden;

use crate::binaries::Artifacts;
use crate::cargo::root;
use crate::process::execute_with_output;

/// The programs. Each makes a network namespace of its own and prints what happens.
const PROGRAMS: [Program; 9] = [
    Program::new("vipline-conntrack", "forget-flows"),
    Program::new("vipline-ipset", "atomic-swap"),
    Program::new("vipline-iptables", "iptables-edit").with_features("vipline-iptables/nft"),
    // The hosts of the checks lack IPVS. The tests of the crate run it in guests.
    Program::new("vipline-ipvs", "balancer").only_built(),
    Program::new("vipline-nftables", "foreign-rule"),
    Program::new("vipline-nftables", "host-ports"),
    Program::new("vipline-nftables", "tokio-monitor").with_features("vipline-nftables/tokio"),
    Program::new("vipline-service-ip", "service-ips"),
    Program::new("proxy-core", "embedded-engine"),
];

/// Time limit of a program, which takes a fraction of a second.
const LIMIT: Duration = Duration::from_secs(60);

/// An example of a published package.
struct Program {
    package: &'static str,
    name: &'static str,
    /// Features that it requires and that are not default ones.
    features: Option<&'static str>,
    is_run: bool,
}

/// A program that was built from its package.
pub(crate) struct BuiltProgram {
    program: &'static Program,
    path: PathBuf,
}

impl Program {
    const fn new(package: &'static str, name: &'static str) -> Self {
        Self {
            package,
            name,
            features: None,
            is_run: true,
        }
    }

    const fn with_features(mut self, features: &'static str) -> Self {
        self.features = Some(features);
        self
    }

    const fn only_built(mut self) -> Self {
        self.is_run = false;
        self
    }

    /// Returns the folder of the crate in the repository.
    fn folder(&self) -> PathBuf {
        let folder = self.package.strip_prefix("vipline-");
        root().join("crates").join(folder.unwrap_or(self.package))
    }

    /// Returns the file with the text that the program prints.
    fn expected(&self) -> PathBuf {
        let file = format!("tests/examples/{}.txt", self.name);
        self.folder().join(file)
    }
}

/// Returns the arguments with which cargo builds the programs.
pub(super) fn arguments() -> impl Iterator<Item = &'static str> {
    PROGRAMS.iter().flat_map(|program| {
        let features = program.features.into_iter();
        let target = ["--package", program.package, "--example", program.name];
        let features = features.flat_map(|features| ["--features", features]);
        target.into_iter().chain(features)
    })
}

/// Finds the programs that run here. `folder` returns that of an unpacked package.
pub(super) fn find(
    artifacts: &Artifacts,
    folder: impl Fn(&str) -> PathBuf,
) -> Result<Vec<BuiltProgram>> {
    let run = PROGRAMS.iter().filter(|program| program.is_run);
    let find = |program: &'static Program| {
        let path = artifacts.find(&folder(program.package), "example", program.name);
        let path = path.with_context(|| format!("cargo did not build {}", program.name))?;
        Ok(BuiltProgram { program, path })
    };
    run.map(find).collect()
}

/// Runs the programs, and compares what they print with the expected texts. Needs root, or a
/// user namespace. Returns the number of programs.
///
/// # Errors
/// If programs fail or print other texts. The error names all of them.
pub(crate) fn run(programs: &[BuiltProgram]) -> Result<usize> {
    let mut failed = Vec::new();
    for BuiltProgram { program, path } in programs {
        if let Err(error) = check(&mut Command::new(path), &program.expected()) {
            failed.push(format!("{}: {error:#}", program.name));
        }
    }
    match failed.is_empty() {
        true => Ok(programs.len()),
        false => bail!("{}", failed.join("\n")),
    }
}

/// Runs a program, and compares what it prints with a file.
fn check(program: &mut Command, expected: &Path) -> Result<()> {
    let mut printed = String::new();
    execute_with_output(LIMIT, program, |line| printed.extend([line, "\n"]))?;
    let name = expected.display();
    let text = fs::read_to_string(expected).with_context(|| format!("read {name}"))?;
    match golden::difference(&text, &printed) {
        Some(difference) => bail!("{name} differs{difference}\nIt printed:\n{printed}"),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use testkit::scoped::Directory;

    use super::*;

    /// Most lines of a program, so that a new user reads it at once.
    const MAX_LINES: usize = 60;

    #[test]
    fn programs_are_short_and_the_readme_of_their_crate_links_to_them() {
        for program in &PROGRAMS {
            let file = format!("examples/{}.rs", program.name);
            let source = fs::read_to_string(program.folder().join(&file)).unwrap();
            let lines = source.lines().count();
            assert!(lines <= MAX_LINES, "{file} has {lines} lines");
            let readme = fs::read_to_string(program.folder().join("README.md")).unwrap();
            assert!(readme.contains(&format!("({file})")), "README and {file}");
            assert!(program.expected().exists(), "expected output of {file}");
        }
    }

    #[test]
    fn a_program_that_fails_or_prints_another_text_is_an_error() {
        let folder = Directory::new().unwrap();
        let expected = folder.path().join("text");
        fs::write(&expected, "one\ntwo\n").unwrap();
        let run = |script| {
            let result = check(Command::new("sh").args(["-c", script]), &expected);
            result.map_err(|error| format!("{error:#}"))
        };
        run("echo one; echo two").unwrap();
        let error = run("echo one; echo 2").unwrap_err();
        assert!(error.contains("differs at line 2"), "{error}");
        let error = run("echo one; echo two; exit 1").unwrap_err();
        assert!(error.contains("exit status: 1"), "{error}");
    }
}
