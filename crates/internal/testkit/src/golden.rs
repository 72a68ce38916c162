//! Comparison with golden files.

use std::path::Path;
use std::{env, fs};

/// Compares a text with a golden file; with `BLESS=1` writes the file instead.
///
/// # Panics
///
/// If the texts differ, with the first different line; if the file does not exist; or
/// if the file cannot be written.
pub fn compare(file: impl AsRef<Path>, actual: &str) {
    let file = file.as_ref();
    if env::var_os("BLESS").is_some_and(|value| value == "1") {
        let folder = file.parent().expect("a golden file is in a folder");
        fs::create_dir_all(folder)
            .and_then(|()| fs::write(file, actual))
            .unwrap_or_else(|error| panic!("write {}: {error}", file.display()));
        return;
    }
    let expected = fs::read_to_string(file).unwrap_or_else(|error| {
        panic!(
            "read {}: {error}; `cargo xtask bless` writes it",
            file.display()
        )
    });
    if let Some(difference) = difference(&expected, actual) {
        panic!(
            "{} differs{difference}\n`cargo xtask bless` accepts the new text",
            file.display()
        );
    }
}

/// Describes the first different line with its predecessor. `None` if the texts are equal.
pub fn difference(expected: &str, actual: &str) -> Option<String> {
    if expected == actual {
        return None;
    }
    let (mut expected, mut actual) = (expected.lines(), actual.lines());
    let mut before = String::new();
    for number in 1.. {
        match (expected.next(), actual.next()) {
            (None, None) => break,
            (left, right) if left == right => {
                before = left.map(|line| format!("    {line}\n")).unwrap_or_default();
            }
            (left, right) => {
                let [left, right] = [left, right].map(|line| line.unwrap_or("(the end)"));
                return Some(format!(
                    " at line {number}:\n{before}  - {left}\n  + {right}"
                ));
            }
        }
    }
    Some(" in its line ends".to_owned())
}

#[cfg(test)]
mod tests {
    use std::panic;

    use super::*;
    use crate::scoped::Directory;

    #[test]
    fn the_first_different_line_is_shown_in_its_old_and_new_form() {
        assert_eq!(difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(
            difference("a\nb\nc\n", "a\nx\nc\n").unwrap(),
            " at line 2:\n    a\n  - b\n  + x"
        );
        assert_eq!(
            difference("a\n", "a\nb\n").unwrap(),
            " at line 2:\n    a\n  - (the end)\n  + b"
        );
        assert_eq!(difference("a\n", "a").unwrap(), " in its line ends");
    }

    #[test]
    fn the_panic_for_a_missing_file_names_the_command_that_creates_it() {
        let directory = Directory::new().unwrap();
        let file = directory.path().join("none");
        let caught = panic::catch_unwind(|| compare(&file, "")).unwrap_err();
        let message = caught.downcast::<String>().unwrap();
        assert!(message.contains("cargo xtask bless"), "{message}");
    }
}
