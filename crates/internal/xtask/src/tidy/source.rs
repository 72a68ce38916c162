//! Checks Rust files.
//!
//! The checks do not parse Rust: in formatted code an item starts and ends in the
//! same column.

use super::Text;

const FILE_LINES: usize = 500;
const FUNCTION_LINES: usize = 80;

/// Names of files that may do IO. A `mod.rs` has the name of its folder.
const IO_FILES: [&str; 8] = [
    "client",
    "directory",
    "kernel",
    "netns",
    "nftnl",
    "process",
    "server",
    "socket",
];

/// Folders and files that may contain `unsafe`.
const UNSAFE: [&str; 8] = [
    "crates/hcn/src/client.rs",
    "crates/hcn/src/functions.rs",
    "crates/iptables/src/process.rs",
    "crates/nftables/src/nftnl/mod.rs",
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
    if file.text.lines().count() > FILE_LINES {
        find(FILE_LINES, "a file has at most 500 lines");
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
        for word in [["TO", "DO"], ["FIX", "ME"], ["XX", "X"]].map(|halves| halves.concat()) {
            if has_word(line, &word) {
                find(number, "a comment must not announce future work");
            }
        }
        if has_word(code_of(line), "unsafe") && !UNSAFE.iter().any(|at| file.path.starts_with(at)) {
            find(number, "`unsafe` is not allowed in this file");
        }
    }
    if file.path.contains("src/") {
        for (number, length) in functions(before_tests(&file.text)) {
            if length > FUNCTION_LINES {
                find(
                    number,
                    &format!("a function has at most 80 lines, not {length}"),
                );
            }
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

/// Returns the first line and the number of lines of each function.
fn functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let code = line.trim_start();
        let indent = &line[..line.len() - code.len()];
        if !begins_function(code) || code.ends_with('}') || code.ends_with(';') {
            continue;
        }
        let is_end = |rest: &str| {
            let without_body = rest == ");" || rest.starts_with(") -> ") && rest.ends_with(';');
            rest.starts_with('}') || without_body
        };
        let ends = |line: &&str| line.strip_prefix(indent).is_some_and(is_end);
        if let Some(length) = lines[start..].iter().position(ends) {
            found.push((start + 1, length + 1));
        }
    }
    found
}

fn begins_function(code: &str) -> bool {
    const BEFORE: [&str; 4] = ["async", "const", "pub", "unsafe"];
    code.split(' ')
        .find(|word| !BEFORE.contains(word) && !word.starts_with("pub("))
        .is_some_and(|word| word == "fn")
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
        let path = "crates/nftables/src/rule.rs";
        assert_eq!(findings(path, "//! Rules.\n"), Vec::<String>::new());
        let long = format!("//! Long.\n{}", "\n".repeat(500));
        let function = format!("//! F.\npub fn f() {{\n{}}}\n", "    g();\n".repeat(79));
        let to_do = format!("//! T.\n// {}{}: more\n", "TO", "DO");
        let io = format!("//! I.\n#![allow(clippy::x, reason = \"IO{}\")]\n", " file");
        for (text, words) in [
            ("use a::b;\n", "must start with a module comment"),
            (&*long, "500 lines"),
            (&*function, "80 lines, not 81"),
            (&*to_do, "future work"),
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
            ("crates/nftables/src/client.rs", &*io),
            ("crates/netlink/src/socket/mod.rs", &*io),
            ("crates/internal/testkit/src/netns.rs", code),
            ("crates/nftables/src/rule.rs", words),
            ("crates/internal/testkit/src/lib.rs", "//! T.\n"),
        ] {
            assert_eq!(findings(path, text), Vec::<String>::new(), "{path}");
        }
    }

    #[test]
    fn the_length_of_a_function_includes_its_signature() {
        let text = "trait T {\n    fn a();\n    fn b(\n        c: u8,\n    ) -> u8;\n\n    const fn d() {\n        e();\n    }\n}\nfn f() {}\npub(crate) fn g(\n    h: u8,\n) {\n    i();\n}\n";
        assert_eq!(functions(text), [(3, 3), (7, 3), (12, 5)]);
        let text = "    () => {\n        fn a() {\n            b()\n        })*\n    };\n";
        assert_eq!(functions(text), [(2, 3)], "in a macro");
    }
}
