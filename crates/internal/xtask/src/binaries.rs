//! Builds and finds test binaries and programs.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};
use serde::Deserialize;

use crate::cargo::root;
use crate::process::display;

/// The files that a cargo command built.
#[derive(Debug)]
pub(crate) struct Artifacts(Vec<Artifact>);

/// A message of `cargo --message-format=json`, reduced to the fields in use.
#[derive(Debug, Deserialize)]
pub(crate) struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    profile: Profile,
    executable: Option<PathBuf>,
    filenames: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Target {
    kind: Vec<String>,
    name: String,
}

#[derive(Debug, Deserialize)]
struct Profile {
    test: bool,
}

/// A binary that cargo built with the test harness.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct TestBinary {
    /// Folder of the package, which is the working directory of tests.
    pub(crate) folder: PathBuf,
    /// Name of the target.
    pub(crate) target: String,
    /// Path of the executable.
    pub(crate) path: PathBuf,
}

impl Artifacts {
    /// Runs a cargo command with `--message-format=json`.
    ///
    /// # Errors
    /// If the command fails.
    pub(crate) fn build(command: &mut Command) -> Result<Self> {
        command.arg("--message-format=json-render-diagnostics");
        eprintln!("$ {}", display(command));
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(
            output.status.success(),
            "{}: {}",
            display(command),
            output.status
        );
        Ok(Self::parse(&String::from_utf8(output.stdout)?))
    }

    fn parse(messages: &str) -> Self {
        let lines = messages.lines();
        Self(
            lines
                .filter_map(|line| serde_json::from_str(line).ok())
                .collect(),
        )
    }

    /// Returns all test binaries, without benchmarks.
    pub(crate) fn tests(&self) -> impl Iterator<Item = TestBinary> {
        let tests = self.0.iter().filter(|it| it.profile.test);
        tests.filter(|it| !it.is_of("bench")).filter_map(|it| {
            Some(TestBinary {
                folder: it.manifest_path.parent()?.to_owned(),
                target: it.target.name.clone(),
                path: it.executable.clone()?,
            })
        })
    }

    /// Finds the executable of a kind, such as `test`, in a package.
    pub(crate) fn find(&self, folder: &Path, kind: &str, target: &str) -> Option<PathBuf> {
        let mut artifacts = self.of(folder, kind);
        artifacts
            .find(|artifact| artifact.target.name == target)?
            .executable
            .clone()
    }

    /// Finds the programs of a package.
    pub(crate) fn programs(&self, folder: &Path) -> Vec<PathBuf> {
        let programs = self.of(folder, "bin").filter(|it| !it.profile.test);
        programs.filter_map(|it| it.executable.clone()).collect()
    }

    /// Finds the library of a package, without the test harness.
    pub(crate) fn library(&self, folder: &Path) -> Option<PathBuf> {
        let mut libraries = self.of(folder, "lib").filter(|it| !it.profile.test);
        let mut files = libraries.next()?.filenames.iter();
        let is_library = |path: &&PathBuf| path.extension().is_some_and(|it| it == "rlib");
        files.find(is_library).cloned()
    }

    /// Returns the artifacts of a kind in a package.
    fn of(&self, folder: &Path, kind: &str) -> impl Iterator<Item = &Artifact> {
        let artifacts = self.0.iter().filter(move |it| it.is_of(kind));
        artifacts.filter(move |it| it.manifest_path.parent() == Some(folder))
    }
}

impl Artifact {
    fn is_of(&self, kind: &str) -> bool {
        self.target.kind == [kind]
    }
}

impl TestBinary {
    /// Returns the title: the folder of the package and the name of the target.
    pub(crate) fn title(&self) -> String {
        let folder = self.folder.strip_prefix(root()).unwrap_or(&self.folder);
        format!("{} {}", folder.display(), self.target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifacts() -> Artifacts {
        let artifact = |package: &str, kind: &str, name: &str, executable: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/{package}/Cargo.toml","target":{{"kind":["{kind}"],"name":"{name}"}},"profile":{{"test":{test}}},"executable":{executable},"filenames":["/t/{name}.rmeta","/t/{name}.rlib"]}}"#
            )
        };
        let messages = [
            artifact("crates/a", "lib", "kernel", "null", false),
            artifact("crates/b", "test", "kernel", r#""/t/b""#, true),
            artifact("crates/a", "test", "laws", r#""/t/laws""#, true),
            artifact("crates/a", "test", "kernel", r#""/t/a""#, true),
            artifact("crates/a", "bin", "kernel", r#""/t/program""#, false),
            artifact(
                "crates/a",
                "bin",
                "kernel",
                r#""/t/tests-of-program""#,
                true,
            ),
            artifact("crates/a", "bench", "speed", r#""/t/speed""#, true),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        Artifacts::parse(&messages.join("\n"))
    }

    #[test]
    fn test_binaries_and_programs_are_found_by_their_package() {
        let artifacts = artifacts();
        let found = |folder: &str, target| artifacts.find(Path::new(folder), "test", target);
        assert_eq!(found("/w/crates/a", "kernel"), Some("/t/a".into()));
        assert_eq!(found("/w/crates/b", "kernel"), Some("/t/b".into()));
        assert_eq!(found("/w/crates/b", "laws"), None);
        let programs = |folder: &str| artifacts.programs(Path::new(folder));
        assert_eq!(programs("/w/crates/a"), [PathBuf::from("/t/program")]);
        assert!(programs("/w/crates/b").is_empty());
        let library = |folder: &str| artifacts.library(Path::new(folder));
        assert_eq!(library("/w/crates/a"), Some("/t/kernel.rlib".into()));
        assert_eq!(library("/w/crates/b"), None);
    }

    #[test]
    fn tests_of_libraries_and_programs_run_and_benchmarks_do_not() {
        let artifacts = artifacts();
        let paths: Vec<_> = artifacts.tests().map(|test| test.path).collect();
        let expected = ["/t/b", "/t/laws", "/t/a", "/t/tests-of-program"];
        assert_eq!(paths, expected.map(PathBuf::from));
    }
}
