//! Documents: what is taken for one is what both variants take for one.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use testkit::iptables::Programs;
use testkit::netns::Netns;
use vipline_iptables::{Tables, Variant};

/// Documents that are taken, the lines separated by `|`.
const TAKEN: &[&str] = &[
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

/// Documents that are not.
const REFUSED: &[&str] = &[
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

/// Tells whether a program takes a document, and does what it says.
fn takes(restore: &Path, text: &str) -> bool {
    let mut child = Command::new(restore)
        .stdin(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // A program may end before it has read everything.
    let _ = child.stdin.take().unwrap().write_all(text.as_bytes());
    child.wait().unwrap().success()
}

#[test]
fn what_is_a_document_is_one_for_both_variants() {
    let programs = Programs::new().unwrap();
    let netns = Netns::new().unwrap();
    let mut wrong = Vec::new();
    for variant in Variant::ALL {
        let [_, restore] = programs.variant(&format!("iptables-{variant}")).unwrap();
        for (texts, is_document) in [(TAKEN, true), (REFUSED, false)] {
            for text in texts {
                let text = text.replace('|', "\n");
                let parsed = Tables::parse(&text);
                assert_eq!(parsed.is_ok(), is_document, "{text:?}: {parsed:?}");
                if netns.run(|| takes(&restore, &text)) != is_document {
                    wrong.push((variant, text));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}
