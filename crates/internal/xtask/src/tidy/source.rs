//! Checks Rust files: their module comment, and where IO and `unsafe` may be.

use super::Text;

/// Names of files that may do IO. A `mod.rs` has the name of its folder.
const IO_FILES: [&str; 7] = [
    "client",
    "directory",
    "kernel",
    "netns",
    "process",
    "server",
    "socket",
];

/// Folders and files that may contain `unsafe`.
const UNSAFE: [&str; 7] = [
    "crates/hcn/src/client.rs",
    "crates/hcn/src/functions.rs",
    "crates/iptables/src/client/process.rs",
    "crates/internal/hns-dll/src/exports.rs",
    "crates/internal/testkit/src/",
    "examples/kube-proxy/src/allocator.rs",
    "examples/kube-proxy/src/windows/event_log.rs",
];

pub(super) fn check(file: &Text, findings: &mut Vec<String>) {
    let mut find = |line: usize, words: &str| {
        findings.push(format!("{}:{line}: {words}", file.path));
    };
    if !file.text.starts_with("//!") && !file.text.starts_with("#![") {
        find(1, "a file must start with a module comment (`//!`)");
    }
    if file.text.contains(concat!("reason = \"IO", " file\"")) && !may_do_io(&file.path) {
        find(1, "only IO files may do IO; see `IO_FILES`");
    }
    let is_crate = ["src/lib.rs", "src/main.rs"]
        .iter()
        .any(|end| file.path.ends_with(end));
    let forbids = file.text.contains("#![forbid(unsafe_code)]");
    if is_crate
        && !forbids
        && !UNSAFE
            .iter()
            .any(|path| path.starts_with(crate_of(&file.path)))
    {
        find(1, "a crate without `unsafe` must forbid it");
    }
    for (number, line) in (1..).zip(file.text.lines()) {
        if has_word(code_of(line), "unsafe") && !UNSAFE.iter().any(|at| file.path.starts_with(at)) {
            find(number, "`unsafe` is not allowed in this file");
        }
    }
}

/// Counts the lines of the files under a path, without tests.
pub(super) fn lines_without_tests(files: &[Text], path: &str) -> usize {
    files
        .iter()
        .filter(|file| file.path.starts_with(path) && !file.path.contains("/tests"))
        .map(|file| before_tests(&file.text).lines().count())
        .sum()
}

fn may_do_io(path: &str) -> bool {
    let name = path.trim_end_matches(".rs").trim_end_matches("/mod");
    let name = name.rsplit('/').next().unwrap_or(name);
    let folders = [
        "/apply/",
        "/examples/",
        "/stores/",
        "/tests/",
        "crates/internal/testkit/",
        "crates/internal/xtask/",
        "crates/kube-source/src/api/",
        "crates/kube-source/src/manifests/files/tests.rs",
    ];
    IO_FILES.contains(&name)
        || folders.iter().any(|folder| path.contains(folder))
        || ["examples/", "benches/", "fuzz/"]
            .iter()
            .any(|top| path.starts_with(top))
}

/// Returns the folder of the crate that contains a file.
fn crate_of(path: &str) -> &str {
    path.split_once("src/").map_or(path, |(folder, _)| folder)
}

/// Returns the text before the unit tests at the end.
pub(crate) fn before_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod ").next().unwrap_or(text)
}

/// Returns the code of a line before the first string, quoted code or comment.
fn code_of(line: &str) -> &str {
    line.split(['"', '`'])
        .next()
        .and_then(|code| code.split("//").next())
        .unwrap_or("")
}

/// Returns whether a line contains a word.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    line.split(|character| !is_part(character))
        .any(|part| part == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(path: &str, text: &str) -> Vec<String> {
        let file = Text {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let mut findings = Vec::new();
        check(&file, &mut findings);
        findings
    }

    #[test]
    fn each_rule_has_a_file_that_breaks_it() {
        let path = "crates/nftables/src/object/rule.rs";
        assert_eq!(findings(path, "//! Rules.\n"), Vec::<String>::new());
        let io = format!("//! I.\n#![allow(clippy::x, reason = \"IO{}\")]\n", " file");
        for (text, words) in [
            ("use a::b;\n", "must start with a module comment"),
            (&*io, "only IO files"),
            (
                "//! U.\nfn f() {\n    unsafe { g() }\n}\n",
                "`unsafe` is not allowed",
            ),
        ] {
            let findings = findings(path, text);
            assert_eq!(findings.len(), 1, "{words}: {findings:?}");
            assert!(findings[0].contains(words), "{findings:?}");
        }
        assert_eq!(findings("crates/a/src/lib.rs", "//! A.\n").len(), 1);
    }

    #[test]
    fn allowed_files_have_no_findings() {
        let io = format!("//! I.\n#![allow(clippy::x, reason = \"IO{}\")]\n", " file");
        let code = "//! U.\nfn f() {\n    unsafe { g() }\n}\n";
        let words = "//! W.\n// No unsafe here: `unsafe` is a word.\nconst A: &str = \"unsafe\";\n";
        for (path, text) in [
            ("crates/nftables/src/client/mod.rs", &*io),
            ("crates/netlink/src/socket/mod.rs", &*io),
            ("crates/internal/testkit/src/netns.rs", code),
            ("crates/nftables/src/object/rule.rs", words),
            ("crates/internal/testkit/src/lib.rs", "//! T.\n"),
        ] {
            assert_eq!(findings(path, text), Vec::<String>::new(), "{path}");
        }
    }
}
