//! Reads the `mod` and `use` declarations and the paths of a file.

use std::collections::BTreeSet;

use super::tokens::{Token, tokens};

/// Declarations and paths of a file.
#[derive(Debug, Default)]
pub(super) struct Source {
    /// Modules that the file declares and other files contain.
    pub(super) modules: Vec<String>,
    /// Items of the file.
    pub(super) items: BTreeSet<String>,
    /// Imports and re-exports.
    pub(super) uses: Vec<Use>,
    /// Paths of two or more names outside of `use` declarations.
    pub(super) paths: Vec<Path>,
    /// All names outside of `use` declarations.
    pub(super) names: BTreeSet<String>,
}

/// A path in the source.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Path {
    /// Line, from 1.
    pub(super) line: usize,
    /// Names that the path consists of, from the module that contains the path.
    pub(super) names: Vec<String>,
}

/// One name that a `use` declaration imports.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Use {
    /// Path of the item.
    pub(super) path: Path,
    /// Name of the item in this file, or `*`.
    pub(super) name: String,
    /// Whether other modules can import the name from this one.
    pub(super) is_export: bool,
}

/// Keywords before the name of an item.
const ITEMS: [&str; 9] = [
    "const", "enum", "fn", "mod", "static", "struct", "trait", "type", "union",
];

/// Reads a file.
pub(super) fn read(text: &str) -> Source {
    let mut reader = Reader {
        tokens: tokens(text),
        at: 0,
        inner: Vec::new(),
        depth: 0,
        source: Source::default(),
    };
    while reader.at < reader.tokens.len() {
        reader.step();
    }
    reader.source
}

struct Reader<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// Open `mod name { … }` blocks, with their depths.
    inner: Vec<(String, usize)>,
    /// Number of open braces.
    depth: usize,
    source: Source,
}

impl<'a> Reader<'a> {
    /// Returns the text of a token, relative to the current one.
    fn text(&self, offset: isize) -> &'a str {
        let at = self.at.checked_add_signed(offset);
        at.and_then(|at| self.tokens.get(at))
            .map_or("", |token| token.text)
    }

    fn step(&mut self) {
        match self.text(0) {
            "{" => self.depth += 1,
            "}" => {
                self.depth = self.depth.saturating_sub(1);
                self.inner.retain(|(_, depth)| *depth <= self.depth);
            }
            // `use<'a>` lists captured lifetimes of a type.
            "use" if self.text(1) != "<" => return self.declaration(),
            "mod" if self.text(2) == ";" => self.source.modules.push(self.text(1).to_owned()),
            "mod" if self.text(2) == "{" => {
                self.inner.push((self.text(1).to_owned(), self.depth + 1));
            }
            _ if self.is_path() => return self.path(),
            _ => {}
        }
        let token = self.tokens[self.at];
        if token.is_name() {
            self.source.names.insert(token.text.to_owned());
            if ITEMS.contains(&self.text(-1)) && self.depth == 0 {
                self.source.items.insert(token.text.to_owned());
            }
        }
        self.at += 1;
    }

    fn is_path(&self) -> bool {
        // `pub(in path)` names the reader of an item, not an item.
        let is_visibility = self.text(-1) == "in" && self.text(-2) == "(";
        let is_start = ![".", "::"].contains(&self.text(-1)) && !is_visibility;
        self.tokens[self.at].is_name() && self.text(1) == "::" && is_start
    }

    fn path(&mut self) {
        let line = self.tokens[self.at].line;
        let mut names = vec![self.text(0).to_owned()];
        self.at += 1;
        while self.text(0) == "::" && self.tokens.get(self.at + 1).is_some_and(Token::is_name) {
            names.push(self.text(1).to_owned());
            self.at += 2;
        }
        self.source.names.extend(names.iter().cloned());
        let names = self.path_from_file(names);
        self.source.paths.push(Path { line, names });
    }

    /// Reads a `use` declaration up to its semicolon.
    fn declaration(&mut self) {
        let is_export = [")", "pub"].contains(&self.text(-1));
        self.at += 1;
        self.tree(&[], is_export);
        while !["", ";"].contains(&self.text(0)) {
            self.at += 1;
        }
    }

    /// Reads one tree of a `use` declaration.
    fn tree(&mut self, prefix: &[String], is_export: bool) {
        let mut names = prefix.to_vec();
        let line = self.tokens.get(self.at).map_or(0, |token| token.line);
        loop {
            match self.text(0) {
                "::" => self.at += 1,
                "{" => {
                    self.at += 1;
                    while !["", ";", "}"].contains(&self.text(0)) {
                        match self.text(0) {
                            "," => self.at += 1,
                            _ => self.tree(&names, is_export),
                        }
                    }
                    self.at += 1;
                    return;
                }
                "" | "," | ";" | "}" | "as" => break,
                name => {
                    names.push(name.to_owned());
                    self.at += 1;
                }
            }
        }
        let is_module = names.len() > 1 && names.last().is_some_and(|name| name == "self");
        let is_glob = names.last().is_some_and(|name| name == "*");
        let mut name = match names.last() {
            _ if is_glob => "*".to_owned(),
            _ if is_module => names[names.len() - 2].clone(),
            Some(last) => last.clone(),
            None => String::new(),
        };
        if is_module || is_glob {
            names.pop();
        }
        if self.text(0) == "as" {
            name = self.text(1).to_owned();
            self.at += 2;
        }
        let names = self.path_from_file(names);
        self.source.uses.push(Use {
            path: Path { line, names },
            name,
            is_export,
        });
    }

    /// Converts a path in a `mod name { … }` block into a path from the file.
    fn path_from_file(&self, names: Vec<String>) -> Vec<String> {
        let mut modules: Vec<String> = self.inner.iter().map(|(name, _)| name.clone()).collect();
        let up = names.iter().take_while(|name| *name == "super").count();
        let is_relative = names.first().is_some_and(|name| name == "self") || up > 0;
        if modules.is_empty() || !is_relative {
            return names;
        }
        modules.truncate(modules.len().saturating_sub(up));
        let above = up.saturating_sub(self.inner.len());
        let rest = names.into_iter().skip(up).filter(|name| name != "self");
        let start = std::iter::once("self".to_owned());
        start
            .chain(std::iter::repeat_n("super".to_owned(), above))
            .chain(modules)
            .chain(rest)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(path: &Path) -> String {
        path.names.join("::")
    }

    #[test]
    fn trees_of_use_declarations_are_flattened() {
        let source = read(
            "use a::{self, b::{C, D as E}, f::*};\npub(crate) use g::h;\npub use super::i as j;\n",
        );
        let uses: Vec<String> = source
            .uses
            .iter()
            .map(|it| format!("{} {} {}", names(&it.path), it.name, it.is_export))
            .collect();
        let expected = [
            "a a false",
            "a::b::C C false",
            "a::b::D E false",
            "a::f * false",
            "g::h h true",
            "super::i j true",
        ];
        assert_eq!(uses, expected);
        assert_eq!(source.uses[5].path.line, 3);
    }

    #[test]
    fn captured_lifetimes_and_unfinished_trees_are_no_uses() {
        let source = read("fn a() -> impl B<'a> + use<'a> {\n    c::d();\n}\n");
        assert_eq!((source.uses.len(), source.paths.len()), (0, 1));
        assert_eq!(read("use a::{b;").uses.len(), 1);
    }

    #[test]
    fn paths_outside_of_use_declarations_are_read() {
        let source = read(
            "mod a;\npub(in crate::b) fn c(self) -> super::D {\n    self.e::<f>(a::G::H)\n}\n",
        );
        let paths: Vec<String> = source.paths.iter().map(names).collect();
        assert_eq!(paths, ["super::D", "a::G::H"]);
        assert_eq!(source.modules, ["a"]);
        assert!(source.items.contains("c") && source.names.contains("G"));
    }

    #[test]
    fn paths_in_inner_modules_are_relative_to_the_file() {
        let source = read(
            "mod a {\n use super::B;\n use super::super::C;\n use self::D;\n}\nuse super::E;\n",
        );
        let paths: Vec<String> = source.uses.iter().map(|it| names(&it.path)).collect();
        assert_eq!(
            paths,
            ["self::B", "self::super::C", "self::a::D", "super::E"]
        );
    }
}
