//! Finds dependencies that no source file names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Dependency, Metadata, Package};
use crate::tidy::{before_tests, has_word};

/// Dependencies that no source of the package names: package and dependency.
const UNNAMED: &[(&str, &str)] = &[
    // Selects the version of the API for all crates.
    ("cluster-dns", "k8s-openapi"),
    ("kube-proxy", "k8s-openapi"),
    // The tests include the example `ipam` of vipline-service-ip-kube.
    ("vipline-service-ip", "anyhow"),
    ("vipline-service-ip", "vipline-service-ip-kube"),
];

/// Returns the unused dependencies of the packages of a workspace.
///
/// The name of a dependency must be in the code below the folder of a library or program.
/// For a development dependency, any Rust file or README of the package may have the name.
pub(super) fn check(graph: &Metadata) -> Result<Vec<String>> {
    let names = names(graph);
    let mut findings = Vec::new();
    for package in graph.packages.iter().filter(|each| each.source.is_none()) {
        for dependency in &package.dependencies {
            let Dependency { name, rename, kind } = dependency;
            let used = rename.as_ref().or_else(|| names.get(&**name).copied());
            let used = used.unwrap_or(name).replace('-', "_");
            let is_unnamed = UNNAMED.contains(&(&*package.name, &**name));
            if !is_unnamed && !is_used(package, kind.as_deref(), &used)? {
                let kind = kind
                    .as_deref()
                    .map_or(String::new(), |kind| format!("{kind}-"));
                findings.push(format!(
                    "{}: no source names `{used}` of [{kind}dependencies]",
                    package.manifest_path.display()
                ));
            }
        }
    }
    Ok(findings)
}

/// Returns the name of the library of each package.
fn names(graph: &Metadata) -> BTreeMap<&str, &String> {
    let is_library = |kinds: &[String]| {
        kinds
            .iter()
            .any(|kind| kind.ends_with("lib") || kind == "proc-macro")
    };
    let libraries = graph.packages.iter().filter_map(|package| {
        let mut targets = package.targets.iter();
        let library = targets.find(|target| is_library(&target.kind))?;
        Some((&*package.name, &library.name))
    });
    libraries.collect()
}

fn is_used(package: &Package, kind: Option<&str>, name: &str) -> Result<bool> {
    if kind == Some("dev") {
        let folder = package
            .manifest_path
            .parent()
            .unwrap_or_else(|| Path::new("."));
        let texts = texts(folder)?;
        return Ok(texts.iter().any(|text| has_word(text, name)));
    }
    let is_build = kind == Some("build");
    for target in &package.targets {
        let is_script = target.kind.iter().any(|kind| kind == "custom-build");
        let is_linked = target
            .kind
            .iter()
            .any(|kind| kind == "bin" || kind.ends_with("lib"));
        let texts = match &target.src_path {
            script if is_build && is_script => vec![read(script)?],
            path if !is_build && is_linked => texts(path.parent().unwrap_or(path))?,
            _ => continue,
        };
        if texts.iter().any(|text| names_in_code(text, name)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns whether a line of code before the unit tests contains a name.
fn names_in_code(text: &str, name: &str) -> bool {
    let mut lines = before_tests(text).lines();
    lines.any(|line| !line.trim_start().starts_with("//") && has_word(line, name))
}

/// Returns the texts of the Rust files and READMEs below a folder.
fn texts(folder: &Path) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder)? {
            let path: PathBuf = entry?.path();
            let is_text = path.extension().is_some_and(|end| end == "rs")
                || path.file_name().is_some_and(|name| name == "README.md");
            if path.is_dir() && !path.ends_with("target") {
                folders.push(path);
            } else if is_text {
                texts.push(read(&path)?);
            }
        }
    }
    Ok(texts)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cargo::root;

    /// Returns the findings for this package with one more dependency.
    fn findings(name: &str, kind: Option<&str>) -> Vec<String> {
        let target = |kind: &str, path: &str| super::super::Target {
            name: "xtask".to_owned(),
            kind: vec![kind.to_owned()],
            src_path: root().join("crates/internal/xtask").join(path),
        };
        let package = Package {
            name: "xtask".to_owned(),
            version: "0.1.0".to_owned(),
            license: None,
            source: None,
            manifest_path: root().join("crates/internal/xtask/Cargo.toml"),
            dependencies: vec![Dependency {
                name: name.to_owned(),
                rename: None,
                kind: kind.map(str::to_owned),
            }],
            targets: vec![
                target("bin", "src/main.rs"),
                target("test", "tests/traffic.rs"),
            ],
        };
        let packages = vec![package];
        check(&Metadata { packages }).unwrap()
    }

    #[test]
    fn a_dependency_that_no_source_names_is_found() {
        assert_eq!(findings("serde-json", None), [""; 0]);
        let found = findings("no-such-crate-anywhere", None);
        assert!(
            found[0].ends_with("`no_such_crate_anywhere` of [dependencies]"),
            "{found:?}"
        );
    }

    #[test]
    fn a_normal_dependency_that_only_tests_name_is_found() {
        assert_eq!(findings("apiserver", Some("dev")), [""; 0]);
        assert_eq!(findings("apiserver", None).len(), 1);
        assert_eq!(findings("serde_json", Some("build")).len(), 1);
    }

    #[test]
    fn comments_and_unit_tests_do_not_use_a_normal_dependency() {
        let text = "// a\nuse b::B;\n#[cfg(test)]\nmod tests {\n    use c::C;\n}\n";
        let used = ["a", "b", "c"].map(|name| names_in_code(text, name));
        assert_eq!(used, [false, true, false]);
    }
}
