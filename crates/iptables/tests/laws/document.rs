//! Strategies for documents.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

/// A line that is valid anywhere.
fn filler() -> BoxedStrategy<String> {
    prop_oneof![Just(String::new()), "#[ -~äß]{0,12}"].boxed()
}

fn blanks() -> impl Strategy<Value = &'static str> {
    select(&[" ", "  ", "\t", " \t "][..])
}

fn end() -> impl Strategy<Value = &'static str> {
    select(&["", "", " ", "\t"][..])
}

/// One of a few chains, so that a document has several rules per chain.
fn chain() -> impl Strategy<Value = &'static str> {
    select(&["INPUT", "web", "a\"b", "KUBE-SVC-67NZLRHBNDSAWJRO", "ä"][..])
}

fn counters() -> impl Strategy<Value = String> {
    (any::<u64>(), 0..100_u64).prop_map(|(packets, bytes)| format!("[{packets}:{bytes}]"))
}

fn declaration() -> BoxedStrategy<String> {
    let policy = select(&["-", "ACCEPT", "DROP"][..]);
    let counters = prop_oneof![Just(String::new()), counters()];
    (chain(), blanks(), policy, blanks(), counters, end())
        .prop_map(|(chain, gap, policy, next, counters, end)| {
            format!(":{chain}{gap}{policy}{next}{counters}{end}")
        })
        .boxed()
}

/// The text after a chain name.
fn spec() -> BoxedStrategy<String> {
    let words = [
        "-p",
        "tcp",
        "-j",
        "web",
        "!",
        "-m",
        "comment",
        "--comment",
        "\"a b\"",
        "\"\\\"\"",
        "[1:2]",
        "ä",
        "#",
        "*nat",
        "COMMIT",
        ":a",
        "-A",
    ];
    vec((blanks(), select(words.to_vec())), 0..6)
        .prop_map(|words| {
            words
                .into_iter()
                .flat_map(|(gap, word)| [gap, word])
                .collect()
        })
        .boxed()
}

fn rule() -> BoxedStrategy<String> {
    let before = prop_oneof![
        3 => Just(String::new()),
        1 => blanks().prop_map(str::to_owned),
        2 => (counters(), end()).prop_map(|(counters, gap)| counters + gap),
    ];
    let append = select(&["-A ", "-A \t", "-A", "--append ", "--append="][..]);
    (before, append, chain(), spec(), end())
        .prop_map(|(before, append, chain, spec, end)| {
            format!("{before}{append}{chain}{spec}{end}")
        })
        .boxed()
}

fn command() -> BoxedStrategy<String> {
    let names = ["-I", "-D", "-F", "-X", "-N", "-P", "-E", "--insert", "-p"];
    (select(names.to_vec()), spec(), end())
        .prop_map(|(name, spec, end)| format!("{name}{spec}{end}"))
        .boxed()
}

/// One line of a table.
pub(crate) fn line() -> BoxedStrategy<String> {
    prop_oneof![
        1 => filler(),
        3 => declaration(),
        5 => rule(),
        1 => command(),
    ]
    .boxed()
}

fn table() -> BoxedStrategy<Vec<String>> {
    let name = select(&["*filter", "*nat", "* raw", "*mangle and more"][..]);
    (name, vec(line(), 0..12), vec(filler(), 0..3))
        .prop_map(|(name, lines, after)| {
            let name = [name.to_owned()];
            let commit = ["COMMIT".to_owned()];
            name.into_iter()
                .chain(lines)
                .chain(commit)
                .chain(after)
                .collect()
        })
        .boxed()
}

/// The lines of a document.
pub(crate) fn lines() -> BoxedStrategy<Vec<String>> {
    (vec(filler(), 0..3), vec(table(), 0..4))
        .prop_map(|(before, tables)| before.into_iter().chain(tables.concat()).collect())
        .boxed()
}

/// A document with or without a final newline.
pub(crate) fn document() -> BoxedStrategy<String> {
    (lines(), any::<bool>())
        .prop_map(|(lines, is_terminated)| {
            let newline = if is_terminated && !lines.is_empty() {
                "\n"
            } else {
                ""
            };
            lines.join("\n") + newline
        })
        .boxed()
}

/// Fragments of lines in random order: rarely a document, but similar to one.
pub(crate) fn soup() -> BoxedStrategy<String> {
    let pieces = [
        "\n", "\n", "\n", "*", "nat", ":", "a", " ", "-", "ACCEPT", "[0:0]", "[", "]", "-A", "\t",
        "COMMIT", "COMMIT\n", "#", "\r", "\"", "--append", "=", "ä", "\0",
    ];
    vec(select(pieces.to_vec()), 0..40)
        .prop_map(|pieces| pieces.concat())
        .boxed()
}
