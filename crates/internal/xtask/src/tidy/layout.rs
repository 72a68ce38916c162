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

/// A file with the name of an iptables match, whose content it describes.
const MATCH: &str = "crates/iptables/src/matches/helper.rs";

/// Files that every proxy mode must have, besides its root.
const MODE_FILES: [&str; 5] = [
    "apply/kernel",
    "plan/base",
    "plan/endpoint",
    "plan/names",
    "plan/port",
];

/// Folders of the proxy modes.
const MODES: [&str; 4] = [
    "crates/proxy-core/src/backend/iptables/",
    "crates/proxy-core/src/backend/ipvs/",
    "crates/proxy-kernelspace/src/",
    "crates/proxy-nftables/src/",
];

/// Types that do IO. In `MODES` only files below `apply/` may use them.
const IO_TYPES: [&str; 4] = ["Client", "Listener", "Monitor", "Socket"];

pub(super) fn check(files: &[Text]) -> Vec<String> {
    let mut findings: Vec<String> = files.iter().filter_map(banned).collect();
    let exists = |mode: &&&str| files.iter().any(|file| file.path.starts_with(**mode));
    for mode in MODES.iter().filter(exists) {
        for name in MODE_FILES {
            let path = format!("{mode}{name}.rs");
            let folder = format!("{mode}{name}/mod.rs");
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
    findings.extend(files.iter().flat_map(misplaced_io));
    findings.extend(
        files
            .iter()
            .filter_map(|file| beside_its_folder(file, files)),
    );
    findings
}

/// Returns the lines with IO in files of modes that are not below `apply/`.
fn misplaced_io(file: &Text) -> Vec<String> {
    let is_of_mode = MODES.iter().any(|mode| file.path.starts_with(mode));
    let is_pure = is_of_mode && !file.path.contains("/apply/");
    let lines = file.text.lines().enumerate().filter(|(_, line)| {
        let code = line.split("//").next().unwrap_or("");
        let mut words = code.split(|character: char| !character.is_alphanumeric());
        is_pure && words.any(|word| IO_TYPES.contains(&word))
    });
    let find = |(index, _)| {
        let (path, number) = (&file.path, index + 1);
        format!("{path}:{number}: only files below `apply/` of a mode may do IO")
    };
    lines.map(find).collect()
}

/// Returns a finding if a file `x.rs` and files in a folder `x` are one module.
fn beside_its_folder(file: &Text, files: &[Text]) -> Option<String> {
    let folder = format!("{}/", file.path.strip_suffix(".rs")?);
    let has_files = |folder| {
        let mut paths = files.iter().map(|file| &file.path);
        paths.any(|path| path.starts_with(folder) && path.ends_with(".rs"))
    };
    (file.path.contains("/src/") && has_files(&*folder))
        .then(|| format!("{}: a module with a folder is {folder}mod.rs", file.path))
}

fn banned(file: &Text) -> Option<String> {
    let (folder, name) = file.path.rsplit_once('/')?;
    let stem = name.strip_suffix(".rs")?;
    let module = match stem {
        "mod" => folder.rsplit('/').next()?,
        _ => stem,
    };
    (BANNED.contains(&module) && file.path != MATCH).then(|| {
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
            .map(|name| file(&format!("{}{name}.rs", MODES[1])))
            .collect();
        assert_eq!(check(&files), Vec::<String>::new());
        files.remove(1);
        assert_eq!(check(&files).len(), 1);
        assert!(check(&files)[0].contains("ipvs/plan/base.rs"));
    }

    #[test]
    fn io_outside_of_apply_is_found() {
        let text = "use vipline_nftables::{Client, Object};\n// A Client.\n";
        let files = ["plan", "apply"].map(|kind| Text {
            path: format!("{}{kind}/tables.rs", MODES[0]),
            text: text.to_owned(),
        });
        let findings: Vec<_> = files.iter().flat_map(misplaced_io).collect();
        assert_eq!(findings.len(), 1, "{findings:?}");
        assert!(findings[0].contains("plan/tables.rs:1:"));
    }

    #[test]
    fn a_file_beside_the_folder_of_its_module_is_found() {
        let tests = file("crates/a/tests/b.rs");
        let mut files = vec![
            file("crates/a/src/b.rs"),
            tests,
            file("crates/a/tests/b/c.rs"),
        ];
        assert_eq!(check(&files), Vec::<String>::new());
        files.push(file("crates/a/src/b/c.rs"));
        let expected = "crates/a/src/b.rs: a module with a folder is crates/a/src/b/mod.rs";
        assert_eq!(check(&files), [expected]);
        files[0] = file("crates/a/src/b/mod.rs");
        assert_eq!(check(&files), Vec::<String>::new());
    }
}
