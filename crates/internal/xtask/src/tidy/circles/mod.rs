//! Checks that files in different folders of a crate do not use each other in a circle.
//!
//! A file uses another file if a path outside of tests names an item of the other file.
//! These rules apply:
//!
//! - The paths are those that start with `crate`, `self` or `super`, with a module that
//!   the file declares, or with a name that the file imports.
//! - A path to a re-exported item is a use of the file that defines the item.
//! - The declaration of a module is not a use. Neither is a re-export, unless the file
//!   also mentions the name elsewhere.
//! - Code with the attribute `#[cfg(test)]` has no uses.
//!
//! A circle is a finding if its files are in different folders. A `mod.rs` is in the
//! folder that it describes: it may use the files beside it, and they may use its items.
//! A `mod.rs` beside tests only is in the folder above.
//! The check does not parse Rust and does not see paths that macros build.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::iter;

use super::Text;
use graph::{Graph, graph};

mod graph;

mod tokens;

mod uses;

/// A use that may be part of a circle.
struct Allowed {
    /// Path of the file that contains the use, or of a folder.
    user: &'static str,
    /// Path of the used file, or of a folder.
    used: &'static str,
}

/// Uses that circles may contain.
const ALLOWED: &[Allowed] = &[
    // The types are recursive: an expression may contain an anonymous set with its elements.
    // A set has a key of expressions, and an element contains expressions.
    Allowed {
        user: "crates/nftables/src/expr/set_ref.rs",
        used: "crates/nftables/src/object/set.rs",
    },
    Allowed {
        user: "crates/nftables/src/expr/set_ref.rs",
        used: "crates/nftables/src/object/element/mod.rs",
    },
];

/// Checks all crates.
pub(super) fn check(files: &[Text]) -> Vec<String> {
    let files: BTreeMap<&str, &Text> = files.iter().map(|file| (&*file.path, file)).collect();
    let roots = files.keys().filter(|path| is_root(path));
    let graphs: Vec<Graph<'_>> = roots.map(|root| graph(&files, root)).collect();
    check_graphs(&graphs, ALLOWED)
}

fn is_root(path: &str) -> bool {
    let roots = ["src/lib.rs", "src/main.rs"];
    roots.iter().any(|root| path.ends_with(root))
}

fn check_graphs(graphs: &[Graph<'_>], allowed: &[Allowed]) -> Vec<String> {
    let is_unused = |allowed: &&Allowed| !graphs.iter().any(|graph| allowed.is_in_circle(graph));
    let unused = allowed.iter().filter(is_unused).map(|allowed| {
        let Allowed { user, used } = allowed;
        format!("{user}: no circle contains its use of {used}; remove it from `ALLOWED`")
    });
    let circles = graphs
        .iter()
        .filter_map(|graph| Some(sentence(&circle(&without(graph, allowed))?)));
    unused.chain(circles).collect()
}

impl Allowed {
    fn contains(&self, user: &str, used: &str) -> bool {
        user.starts_with(self.user) && used.starts_with(self.used)
    }

    fn is_in_circle(&self, graph: &Graph<'_>) -> bool {
        let contained = uses(graph).filter(|(user, used)| self.contains(user, used));
        contained
            .map(|(user, used)| route(graph, used, user))
            .any(|route| route.is_some())
    }
}

/// Returns a graph without the uses that are allowed.
fn without<'a>(graph: &Graph<'a>, allowed: &[Allowed]) -> Graph<'a> {
    let mut graph = graph.clone();
    for (user, lines) in &mut graph {
        lines.retain(|used, _| !allowed.iter().any(|allowed| allowed.contains(user, used)));
    }
    graph
}

/// A use of a file by another file.
struct Use<'a> {
    user: &'a str,
    line: usize,
    used: &'a str,
}

/// Returns the shortest circle that contains files of different folders.
fn circle<'a>(graph: &Graph<'a>) -> Option<Vec<Use<'a>>> {
    let files: BTreeSet<&str> = uses(graph).flat_map(|(user, used)| [user, used]).collect();
    let circles = uses(graph)
        .filter(|(user, used)| folder(user, &files) != folder(used, &files))
        .filter_map(|(user, used)| {
            let mut files = route(graph, used, user)?;
            files.push(used);
            Some(files)
        });
    let files = circles.min_by_key(Vec::len)?;
    let uses = files.windows(2).map(|pair| Use {
        user: pair[0],
        line: graph[pair[0]][pair[1]],
        used: pair[1],
    });
    Some(uses.collect())
}

/// Returns all pairs of a file and a file that it uses.
fn uses<'a>(graph: &Graph<'a>) -> impl Iterator<Item = (&'a str, &'a str)> {
    graph
        .iter()
        .flat_map(|(user, lines)| lines.keys().map(|used| (*user, *used)))
}

/// Returns the files of the shortest chain of uses from one file to another.
fn route<'a>(graph: &Graph<'a>, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
    let mut users: BTreeMap<&str, &str> = BTreeMap::new();
    let mut seen = BTreeSet::from([from]);
    let mut queue = VecDeque::from([from]);
    while let Some(user) = queue.pop_front() {
        if user == to {
            let files = iter::successors(Some(user), |file| users.get(file).copied());
            let mut files: Vec<&str> = files.collect();
            files.reverse();
            return Some(files);
        }
        for used in graph.get(user).into_iter().flat_map(BTreeMap::keys) {
            if seen.insert(*used) {
                users.insert(*used, user);
                queue.push_back(*used);
            }
        }
    }
    None
}

/// Returns the folder of a file. `files` are all files that use others or are used.
fn folder<'a>(path: &'a str, files: &BTreeSet<&str>) -> &'a str {
    let above = |path: &'a str| path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let folder = above(path);
    let is_beside = |file: &&&str| **file != path && file.starts_with(&format!("{folder}/"));
    match path.ends_with("/mod.rs") && !files.iter().any(|file| is_beside(&file)) {
        true => above(folder),
        false => folder,
    }
}

fn sentence(circle: &[Use<'_>]) -> String {
    let uses: Vec<String> = circle
        .iter()
        .map(|Use { user, line, used }| format!("{user}:{line} uses {used}"))
        .collect();
    format!(
        "{}: files in different folders use each other in a circle:\n  {}",
        circle.first().map_or("", |first| first.user),
        uses.join("\n  ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the findings for a crate with these files.
    fn findings(sources: &[(&str, &str)], allowed: &[Allowed]) -> Vec<String> {
        let texts: Vec<Text> = sources
            .iter()
            .map(|(path, text)| Text {
                path: format!("a/src/{path}"),
                text: (*text).to_owned(),
            })
            .collect();
        let files = texts.iter().map(|file| (&*file.path, file)).collect();
        check_graphs(&[graph(&files, "a/src/lib.rs")], allowed)
    }

    const ROOT: (&str, &str) = ("lib.rs", "pub mod b;\npub mod c;\npub use b::B;\n");

    #[test]
    fn a_circle_between_folders_is_found_with_the_line_of_each_use() {
        let found = findings(
            &[
                ROOT,
                ("b/mod.rs", "mod d;\npub use d::B;\n"),
                ("b/d.rs", "\npub struct B(crate::c::C);\n"),
                ("c.rs", "use crate::B;\npub struct C(Box<B>);\n"),
            ],
            &[],
        );
        let expected = "files in different folders use each other in a circle:\n  \
            a/src/c.rs:1 uses a/src/b/d.rs\n  a/src/b/d.rs:2 uses a/src/c.rs";
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].ends_with(expected), "{found:?}");
    }

    #[test]
    fn every_way_to_name_an_item_is_a_use() {
        for text in [
            "use crate::b::d::B;",
            "use crate::{b::d, b};\nfn f() -> d::B {}",
            "use crate::b;\nfn f() -> b::B {}",
            "use crate::b as e;\nfn f() -> e::B {}",
            "use super::b::*;\nfn f() -> B {}",
            "use super::*;\nfn f() -> B {}",
            "mod e {\n  fn f() -> super::super::B {}\n}",
            "fn f() -> crate::B<u8> {}",
            "pub use crate::B;\nfn f() -> B {}",
        ] {
            let d = ("b/d.rs", "pub struct B;\nfn f() -> crate::c::C {}\n");
            let b = ("b/mod.rs", "pub mod d;\npub use d::*;\n");
            assert_eq!(
                findings(&[ROOT, b, d, ("c.rs", text)], &[]).len(),
                1,
                "{text}"
            );
        }
    }

    #[test]
    fn tests_comments_and_re_exports_are_not_uses() {
        for text in [
            "#[cfg(test)]\nmod tests {\n  use crate::B;\n}",
            "#[cfg(test)]\nuse crate::B;",
            "//! [B](crate::B)",
            "const C: &str = \"crate::B\";",
            "pub use crate::B;",
            "pub(in crate::b) struct C;",
            "use std::b::B;",
        ] {
            let b = ("b/mod.rs", "pub struct B;\nfn f() -> crate::c::C {}\n");
            assert_eq!(findings(&[ROOT, b, ("c.rs", text)], &[]), [""; 0], "{text}");
        }
    }

    #[test]
    fn a_circle_within_one_folder_is_allowed() {
        let files = [
            ("lib.rs", "mod b;\n"),
            ("b/mod.rs", "mod d;\nmod e;\npub struct B(d::D);\n"),
            ("b/d.rs", "pub struct D(super::e::E);\n"),
            ("b/e.rs", "pub struct E(super::B, super::d::D);\n"),
        ];
        assert_eq!(findings(&files, &[]), [""; 0]);
    }

    #[test]
    fn a_module_with_a_folder_for_tests_is_in_the_folder_above() {
        let d = (
            "d/mod.rs",
            "#[cfg(test)]\nmod tests;\npub struct D(crate::e::E);\n",
        );
        let e = ("e.rs", "pub struct E(crate::d::D);\n");
        assert_eq!(
            findings(&[("lib.rs", "mod d;\nmod e;\n"), d, e], &[]),
            [""; 0]
        );
    }

    #[test]
    fn an_allowed_use_must_be_part_of_a_circle() {
        let allowed = [Allowed {
            user: "a/src/c.rs",
            used: "a/src/b/",
        }];
        let b = ("b/mod.rs", "pub struct B;\nfn f() -> crate::c::C {}\n");
        let circle = [ROOT, b, ("c.rs", "use crate::B;")];
        assert_eq!(findings(&circle, &allowed), [""; 0]);
        let found = findings(&[ROOT, b, ("c.rs", "")], &allowed);
        assert!(found[0].contains("remove it from `ALLOWED`"), "{found:?}");
    }
}
