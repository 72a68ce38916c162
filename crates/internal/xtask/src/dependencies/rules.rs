//! Rules of `deny.toml`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use regex::Regex;
use spdx::{Expression, Licensee, ParseMode};

use super::{Metadata, Package};
use crate::tidy::entries;

/// Rules for packages of other repositories.
#[derive(Debug)]
pub(super) struct Rules {
    /// Permitted licenses.
    licenses: Vec<Licensee>,
    /// Permitted registries.
    registries: Vec<String>,
    /// Name and version of packages that do not count as duplicates.
    skip: BTreeSet<(String, String)>,
}

impl Rules {
    /// Reads `licenses.allow`, `bans.skip` and `sources.allow-registry`.
    pub(super) fn parse(text: &str) -> Result<Self> {
        let entries = entries(text);
        let value = |section: &str, name: &str| {
            let mut entries = entries.iter();
            let entry = entries.find(|entry| entry.section == section && entry.name == name);
            entry
                .map(|entry| &*entry.value)
                .with_context(|| format!("no {section}.{name}"))
        };
        let licenses = strings(value("licenses", "allow")?)?
            .iter()
            .map(|license| Licensee::parse(license).with_context(|| license.clone()))
            .collect::<Result<_>>()?;
        let skip = value("bans", "skip")?;
        let duplicate = Regex::new(r#"\{ crate = "([^"@]+)@([^"]+)", reason = "[^"]+" \}"#)?;
        let skipped: BTreeSet<(String, String)> = duplicate
            .captures_iter(skip)
            .map(|found| (found[1].to_owned(), found[2].to_owned()))
            .collect();
        if skipped.len() != skip.matches('{').count() {
            bail!("bans.skip: an entry has a crate with a version, and a reason");
        }
        Ok(Self {
            licenses,
            registries: strings(value("sources", "allow-registry")?)?,
            skip: skipped,
        })
    }

    /// Returns the violations.
    pub(super) fn check(&self, graph: &Metadata) -> BTreeSet<String> {
        let packages = graph.packages.iter();
        let mut findings: BTreeSet<String> = packages
            .flat_map(|package| [self.license(package), self.source(package)])
            .flatten()
            .collect();
        let mut skipped = BTreeSet::new();
        findings.extend(self.duplicates(graph, &mut skipped));
        let unused = self.skip.difference(&skipped);
        findings.extend(unused.map(|(name, version)| {
            format!("deny.toml: bans.skip: no other version of {name} than {version} is used")
        }));
        findings
    }

    fn license(&self, package: &Package) -> Option<String> {
        let Package { name, version, .. } = package;
        package.source.as_ref()?;
        let license = package.license.as_deref().unwrap_or_default();
        // The old separator of alternatives is a slash.
        match Expression::parse_mode(license, ParseMode::LAX) {
            Err(error) => Some(format!("{name} {version}: license `{license}`: {error}")),
            Ok(expression) => {
                let is_allowed = expression
                    .evaluate(|needed| self.licenses.iter().any(|each| each.satisfies(needed)));
                (!is_allowed)
                    .then(|| format!("{name} {version}: license `{license}` is not allowed"))
            }
        }
    }

    fn source(&self, package: &Package) -> Option<String> {
        let Package { name, version, .. } = package;
        let source = package.source.as_deref()?;
        let registry = source.strip_prefix("registry+").unwrap_or(source);
        let is_allowed = self.registries.iter().any(|each| each == registry);
        (!is_allowed).then(|| format!("{name} {version}: source {source} is not allowed"))
    }

    /// Returns the packages with several versions. Adds the skipped ones to `skipped`.
    fn duplicates(
        &self,
        graph: &Metadata,
        skipped: &mut BTreeSet<(String, String)>,
    ) -> Vec<String> {
        let mut versions = BTreeMap::<&str, Vec<&str>>::new();
        for package in &graph.packages {
            versions
                .entry(&package.name)
                .or_default()
                .push(&package.version);
        }
        let mut findings = Vec::new();
        for (name, all) in versions.iter().filter(|(_, all)| all.len() > 1) {
            let (skip, left): (Vec<&str>, Vec<&str>) = all
                .iter()
                .partition(|version| self.skip.contains(&((*name).into(), (**version).into())));
            skipped.extend(
                skip.iter()
                    .map(|version| ((*name).into(), (*version).into())),
            );
            if left.len() > 1 {
                findings.push(format!("{name}: duplicate versions {}", left.join(", ")));
            }
        }
        findings
    }
}

/// Returns the strings of an array.
fn strings(array: &str) -> Result<Vec<String>> {
    let string = Regex::new("\"([^\"]*)\"")?;
    Ok(string
        .captures_iter(array)
        .map(|found| found[1].to_owned())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULES: &str = "[licenses]\nallow = [\n  \"MIT\",\n  \"Apache-2.0 WITH LLVM-exception\",\n]\n\
        [bans]\nskip = [\n  { crate = \"a@1.0.0\", reason = \"b 1\" },\n]\n\
        [sources]\nallow-registry = [\"https://r\"]\n";

    fn package(name: &str, version: &str, license: &str, source: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: Some(license.to_owned()).filter(|license| !license.is_empty()),
            source: source.map(str::to_owned),
            manifest_path: "Cargo.toml".into(),
            dependencies: Vec::new(),
            targets: Vec::new(),
        }
    }

    fn check(packages: Vec<Package>) -> Vec<String> {
        let rules = Rules::parse(RULES).unwrap();
        rules.check(&Metadata { packages }).into_iter().collect()
    }

    /// Returns packages whose duplicate versions use the skip entry.
    fn skipped() -> Vec<Package> {
        ["1.0.0", "2.0.0"]
            .map(|version| package("a", version, "MIT", Some("registry+https://r")))
            .into()
    }

    #[test]
    fn a_license_must_be_allowed_or_have_an_allowed_alternative() {
        for (license, is_allowed) in [
            ("MIT", true),
            ("GPL-2.0-only OR MIT", true),
            ("GPL-2.0-only/MIT", true),
            (
                "MIT AND (GPL-2.0-only OR Apache-2.0 WITH LLVM-exception)",
                true,
            ),
            ("GPL-2.0-only", false),
            ("Apache-2.0", false),
            ("MIT AND GPL-2.0-only", false),
            ("(MIT AND GPL-2.0-only) OR Zlib", false),
            ("Unknown", false),
            ("", false),
        ] {
            let mut packages = skipped();
            packages.push(package("c", "1.0.0", license, Some("registry+https://r")));
            let found = check(packages);
            assert_eq!(found.is_empty(), is_allowed, "{license}: {found:?}");
        }
    }

    #[test]
    fn packages_of_this_repository_need_no_license() {
        let mut packages = skipped();
        packages.push(package("c", "1.0.0", "", None));
        assert_eq!(check(packages), [""; 0]);
    }

    #[test]
    fn a_git_source_or_another_registry_is_found() {
        for source in ["git+https://r", "registry+https://other"] {
            let mut packages = skipped();
            packages.push(package("c", "1.0.0", "MIT", Some(source)));
            let expected = format!("c 1.0.0: source {source} is not allowed");
            assert_eq!(check(packages), [expected]);
        }
    }

    #[test]
    fn a_duplicate_version_without_a_reason_is_found() {
        assert_eq!(check(skipped()), [""; 0]);
        let mut packages = skipped();
        packages.push(package("a", "3.0.0", "MIT", Some("registry+https://r")));
        assert_eq!(check(packages), ["a: duplicate versions 2.0.0, 3.0.0"]);
        let rules = RULES.replace(", reason = \"b 1\"", "");
        assert!(Rules::parse(&rules).is_err());
    }

    #[test]
    fn a_skipped_version_that_is_not_a_duplicate_is_found() {
        let mut packages = skipped();
        packages.truncate(1);
        let expected = "deny.toml: bans.skip: no other version of a than 1.0.0 is used";
        assert_eq!(check(packages), [expected]);
    }
}
