//! Checks cargo manifests.

use super::Text;

/// The folder of another workspace, whose dependencies stay out of the root manifest.
const OTHER_WORKSPACE: &str = "benches/peers/";

/// Checks that a manifest inherits all dependencies and lints from the workspace.
pub(super) fn check(file: &Text, findings: &mut Vec<String>) {
    if file.path == "Cargo.toml" || file.path.starts_with(OTHER_WORKSPACE) {
        return;
    }
    let mut find = |line: usize, words: &str| {
        findings.push(format!("{}:{line}: {words}", file.path));
    };
    for Entry {
        line,
        section,
        name,
        value,
    } in entries(&file.text)
    {
        let is_dependency = section.ends_with("dependencies");
        let is_shared = name.ends_with(".workspace") || value.contains("workspace = true");
        let is_itself = value.contains("path = \".\"");
        if is_dependency && !is_shared && !is_itself {
            find(
                line,
                &format!("declare `{name}` in the root manifest and use `workspace = true` here"),
            );
        }
        if section.starts_with("dependencies.") {
            find(line, "declare the dependency in one line");
        }
    }
    if !file.text.contains("[lints]\nworkspace = true\n") {
        find(1, "inherit the lints: `[lints] workspace = true`");
    }
}

/// Checks that a member uses every dependency of the root manifest.
pub(super) fn check_root(files: &[Text]) -> Vec<String> {
    let Some(root) = files.iter().find(|file| file.path == "Cargo.toml") else {
        return vec!["Cargo.toml: not found".to_owned()];
    };
    let members = files
        .iter()
        .filter(|file| file.path.ends_with("/Cargo.toml"))
        .filter(|file| !file.path.starts_with(OTHER_WORKSPACE));
    let used: Vec<String> = members
        .flat_map(|file| entries(&file.text))
        .filter(|entry| entry.section.ends_with("dependencies"))
        .map(|entry| entry.name.trim_end_matches(".workspace").to_owned())
        .collect();
    let mut seen = Vec::new();
    let mut findings = Vec::new();
    for Entry { line, name, .. } in entries(&root.text)
        .into_iter()
        .filter(|entry| entry.section == "workspace.dependencies")
    {
        if !used.contains(&name) {
            findings.push(format!("Cargo.toml:{line}: no member uses `{name}`"));
        }
        if seen.contains(&name) {
            findings.push(format!("Cargo.toml:{line}: `{name}` is declared twice"));
        }
        seen.push(name);
    }
    findings
}

/// A `name = value` entry of a manifest.
pub(crate) struct Entry {
    line: usize,
    pub(crate) section: String,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Returns all entries. A value may span several lines.
pub(crate) fn entries(text: &str) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut section, mut open) = (String::new(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split(" #").next().unwrap_or(line).trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if open > 0 {
            if let Some(entry) = entries.last_mut() {
                entry.value += line;
            }
        } else if let Some(name) = line.strip_prefix('[') {
            section = name.trim_matches(['[', ']']).to_owned();
            continue;
        } else if let Some((name, value)) = line.split_once('=') {
            entries.push(Entry {
                line: number,
                section: section.clone(),
                name: name.trim().to_owned(),
                value: value.trim().to_owned(),
            });
        }
        open += line.matches(['[', '{']).count();
        open -= line.matches([']', '}']).count().min(open);
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> Text {
        Text {
            path: path.to_owned(),
            text: text.to_owned(),
        }
    }

    const MEMBER: &str = "[lints]\nworkspace = true\n[dependencies]\na.workspace = true\n";

    #[test]
    fn dependencies_and_lints_that_are_not_inherited_are_found() {
        let mut findings = Vec::new();
        let fine = "b = {\n  workspace = true,\n  features = [\"c\"] }\nme = { path = \".\" }\n";
        check(
            &file("crates/x/Cargo.toml", &format!("{MEMBER}{fine}")),
            &mut findings,
        );
        assert_eq!(findings, Vec::<String>::new());
        let odd = "[dev-dependencies]\nd = \"1\"\n[dependencies.e]\nversion = \"1\"\n";
        check(
            &file("crates/x/Cargo.toml", &format!("{MEMBER}{odd}")),
            &mut findings,
        );
        assert_eq!(findings.len(), 2, "{findings:?}");
        check(&file("crates/x/Cargo.toml", "[package]\n"), &mut findings);
        assert_eq!(findings.len(), 3, "{findings:?}");
    }

    #[test]
    fn an_unused_dependency_of_the_root_is_found() {
        let root = file(
            "Cargo.toml",
            "[workspace.dependencies]\na = \"1\"\nz = \"1\" # last\n",
        );
        let findings = check_root(&[root, file("crates/x/Cargo.toml", MEMBER)]);
        assert_eq!(findings, ["Cargo.toml:3: no member uses `z`"]);
    }
}
