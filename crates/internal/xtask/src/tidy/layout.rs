//! Checks names and locations of files.

use super::Text;

/// Names that do not describe the content of a file.
const BANNED: [&str; 9] = [
    "common",
    "constants",
    "helper",
    "helpers",
    "misc",
    "shared",
    "types",
    "util",
    "utils",
];

/// Files that every proxy mode must have.
const MODE_FILES: [&str; 6] = ["base", "endpoint", "kernel", "mod", "names", "port"];

/// Folder with one subfolder per proxy mode.
const MODES: &str = "crates/proxy-core/src/backend/";

pub(super) fn check(files: &[Text]) -> Vec<String> {
    let mut findings: Vec<String> = files.iter().filter_map(banned).collect();
    let modes: std::collections::BTreeSet<&str> = files
        .iter()
        .filter_map(|file| file.path.strip_prefix(MODES)?.split_once('/'))
        .map(|(mode, _)| mode)
        .collect();
    for mode in modes {
        for name in MODE_FILES {
            let path = format!("{MODES}{mode}/{name}.rs");
            let folder = format!("{MODES}{mode}/{name}/mod.rs");
            if !files
                .iter()
                .any(|file| [&path, &folder].contains(&&file.path))
            {
                findings.push(format!(
                    "{path}: every mode must have this file or a folder of this name"
                ));
            }
        }
    }
    findings
}

fn banned(file: &Text) -> Option<String> {
    let (folder, name) = file.path.rsplit_once('/')?;
    let stem = name.strip_suffix(".rs")?;
    let module = match stem {
        "mod" => folder.rsplit('/').next()?,
        _ => stem,
    };
    BANNED.contains(&module).then(|| {
        format!(
            "{}: the name `{module}` does not describe the content",
            file.path
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Text {
        Text {
            path: path.to_owned(),
            text: String::new(),
        }
    }

    #[test]
    fn names_that_do_not_describe_the_content_are_found() {
        let findings = check(&[
            file("crates/a/src/util.rs"),
            file("crates/a/src/types/mod.rs"),
            file("crates/a/src/rule.rs"),
        ]);
        assert_eq!(findings.len(), 2);
    }

    #[test]
    fn a_missing_file_of_a_mode_is_found() {
        let mut files: Vec<Text> = MODE_FILES
            .iter()
            .map(|name| file(&format!("{MODES}ipvs/{name}.rs")))
            .collect();
        files.push(file(&format!("{MODES}mod.rs")));
        assert_eq!(check(&files), Vec::<String>::new());
        files.remove(1);
        assert_eq!(check(&files).len(), 1);
        assert!(check(&files)[0].contains("ipvs/endpoint.rs"));
    }
}
