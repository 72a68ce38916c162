//! The document parser accepts the same documents as both variants.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::iptables::Programs;
use testkit::netns::Netns;
use vipline_iptables::{Tables, Variant};

/// Accepted documents, with lines separated by `|`.
const ACCEPTED: &[&str] = &[
    "",
    "|",
    "# a|",
    "#|||",
    "*filter|COMMIT|",
    "*filter|COMMIT|*filter|COMMIT|",
    "* filter|COMMIT|",
    "*filter x y|COMMIT|",
    "*filter||# a||COMMIT||",
    "*filter|:INPUT ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT [1:2]|COMMIT|",
    "*filter|:INPUT DROP [1:2] and more|COMMIT|",
    "*filter|:INPUT - [0:0]|COMMIT|",
    "*filter|: a\t-  |COMMIT|",
    "*filter|:aaaaaaaaaaaaaaaaaaaaaaaaaaaa - [0:0]|COMMIT|",
    "*filter|:a\"b - [0:0]|COMMIT|",
    "*filter|:INPUT ACCEPT|-A INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|  -A INPUT -j ACCEPT \t|COMMIT|",
    "*filter|:INPUT ACCEPT|-AINPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|--append INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|--append=INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|-A \"INPUT\" -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|-A INPUT|COMMIT|",
    "*filter|:INPUT ACCEPT|[1:2] -A INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|[1:2]-A INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|-p tcp -A INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|:a -|-I INPUT 1 -j a|-D INPUT -j a|-F a|-P INPUT DROP|COMMIT|",
    "*filter|:INPUT ACCEPT|:a -|-N b|-Z INPUT|-X a|COMMIT|",
];

/// Rejected documents.
const REJECTED: &[&str] = &[
    " |*filter|COMMIT|",
    "a|",
    "COMMIT|",
    "-A INPUT -j ACCEPT|",
    "*filter|",
    "*filter|:INPUT ACCEPT|",
    "*filter|COMMIT |",
    "*filter| |COMMIT|",
    "*filter| # a|COMMIT|",
    "*filter| :INPUT ACCEPT|COMMIT|",
    "*filter|*nat|COMMIT|",
    "*filter|a|COMMIT|",
    "*|COMMIT|",
    "*filter\r|COMMIT\r|",
    "*filter|:|COMMIT|",
    "*filter|:INPUT|COMMIT|",
    "*filter|:INPUT QUEUE [0:0]|COMMIT|",
    "*filter|:aaaaaaaaaaaaaaaaaaaaaaaaaaaaa - [0:0]|COMMIT|",
    "*filter|:INPUT ACCEPT|[1] -A INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|[] -A INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|[1:2 -A INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT| [1:2] -A INPUT -j ACCEPT|COMMIT|",
    "*filter|:INPUT ACCEPT|-A|COMMIT|",
    "*filter|:INPUT ACCEPT|-A -j ACCEPT|COMMIT|",
    "*filter|-|COMMIT|",
];

/// Returns whether a program accepts and applies a document.
fn accepts(restore: &Path, text: &str) -> bool {
    let mut child = Command::new(restore)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A program can end before it has read the whole input.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    child.wait().unwrap().success()
}

#[test]
fn the_parser_accepts_the_documents_that_both_variants_accept() {
    let programs = Programs::new().unwrap();
    let netns = Netns::new().unwrap();
    let mut wrong = Vec::new();
    for variant in Variant::ALL {
        let [_, restore] = programs.variant(&format!("iptables-{variant}")).unwrap();
        for (texts, is_document) in [(ACCEPTED, true), (REJECTED, false)] {
            for text in texts {
                let text = text.replace('|', "\n");
                let parsed = Tables::parse(&text);
                assert_eq!(parsed.is_ok(), is_document, "{text:?}: {parsed:?}");
                if netns.run(|| accepts(&restore, &text)) != is_document {
                    wrong.push((variant, text));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
