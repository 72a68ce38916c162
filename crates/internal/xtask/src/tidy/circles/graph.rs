//! Uses between the files of one crate.

use std::collections::BTreeMap;
use std::slice::from_ref;

use super::super::Text;
use super::uses::{Path, Source, read};

/// Uses of other files: for each user and used file, the first line of a use.
pub(super) type Graph<'a> = BTreeMap<&'a str, BTreeMap<&'a str, usize>>;

/// Limit of imports that one path leads through.
const MAX_IMPORTS: usize = 16;

/// Returns the uses between the files of a crate.
///
/// `root` is the path of its `lib.rs` or `main.rs`. Files that only tests declare are
/// not part of the graph.
pub(super) fn graph<'a>(files: &BTreeMap<&'a str, &'a Text>, root: &'a str) -> Graph<'a> {
    let modules = Modules::read(files, root);
    let mut graph = Graph::new();
    for (user, module) in modules.0.iter().enumerate() {
        for (line, used) in modules.used_by(user) {
            if used != user {
                let lines = graph.entry(module.path).or_default();
                let first = lines.entry(modules.0[used].path).or_insert(line);
                *first = line.min(*first);
            }
        }
    }
    graph
}

/// Modules of one crate that are files. The first is the root.
struct Modules<'a>(Vec<Module<'a>>);

struct Module<'a> {
    /// Path of the file.
    path: &'a str,
    /// Module that declares this one; the root is its own parent.
    parent: usize,
    children: BTreeMap<String, usize>,
    source: Source,
}

/// Result of following a path.
#[derive(Clone, Copy)]
struct Target {
    module: usize,
    /// Whether the path names an item of the module, not the module itself.
    is_item: bool,
}

impl<'a> Modules<'a> {
    /// Reads the files that a root declares, directly or not.
    fn read(files: &BTreeMap<&'a str, &'a Text>, root: &'a str) -> Self {
        let mut modules = Self(Vec::new());
        modules.add(files, root, 0);
        let mut next = 0;
        while next < modules.0.len() {
            let folder = folder_of_children(modules.0[next].path);
            for name in modules.0[next].source.modules.clone() {
                let paths = [
                    format!("{folder}/{name}.rs"),
                    format!("{folder}/{name}/mod.rs"),
                ];
                let path = paths.iter().find_map(|path| files.get_key_value(&**path));
                if let Some((path, _)) = path {
                    let child = modules.add(files, path, next);
                    modules.0[next].children.insert(name, child);
                }
            }
            next += 1;
        }
        modules
    }

    fn add(&mut self, files: &BTreeMap<&'a str, &'a Text>, path: &'a str, parent: usize) -> usize {
        let text = files.get(path).map_or("", |file| &*file.text);
        self.0.push(Module {
            path,
            parent,
            children: BTreeMap::new(),
            source: read(text),
        });
        self.0.len() - 1
    }

    /// Returns the modules whose items a module uses, with the line of each use.
    fn used_by(&self, user: usize) -> Vec<(usize, usize)> {
        let Source {
            uses, paths, names, ..
        } = &self.0[user].source;
        let mut used = Vec::new();
        for Path { line, names } in paths {
            used.extend(self.resolve(user, names, 0).map(|to| (*line, to.module)));
        }
        for import in uses {
            let line = import.path.line;
            let target = self.resolve(user, &import.path.names, 0);
            if import.name == "*" {
                let glob = target.into_iter().flat_map(|target| {
                    let provides = move |name: &&String| self.provides(target.module, name, 0);
                    let names = names.iter().filter(provides);
                    names.filter_map(move |name| self.descend(target.module, from_ref(name), 0))
                });
                used.extend(glob.map(|target| (line, target.module)));
            } else if !import.is_export || names.contains(&import.name) {
                // The paths that start with the name of an imported module count instead.
                let item = target.filter(|target| target.is_item);
                used.extend(item.map(|target| (line, target.module)));
            }
        }
        used
    }

    /// Follows a path that a module contains. Returns `None` for paths to other crates.
    fn resolve(&self, from: usize, names: &[String], imports: usize) -> Option<Target> {
        let (first, rest) = names.split_first()?;
        match &**first {
            "crate" => self.descend(0, rest, imports),
            "self" => self.descend(from, rest, imports),
            "super" => self.descend(self.0[from].parent, rest, imports),
            name if self.0[from].children.contains_key(name) => self.descend(from, names, imports),
            name => self.import(from, name, rest, imports),
        }
    }

    /// Follows a path that starts in a module.
    fn descend(&self, from: usize, names: &[String], imports: usize) -> Option<Target> {
        let module = &self.0[from];
        let Some((first, rest)) = names.split_first() else {
            return Some(Target {
                module: from,
                is_item: false,
            });
        };
        if first == "super" {
            return self.descend(module.parent, rest, imports);
        }
        if let Some(child) = module.children.get(first) {
            return self.descend(*child, rest, imports);
        }
        let item = Target {
            module: from,
            is_item: true,
        };
        if module.source.items.contains(first) {
            return Some(item);
        }
        let imported = self
            .import(from, first, rest, imports)
            .or_else(|| self.glob(from, names, imports));
        // Imports from other crates and items of macros count as items of the module.
        Some(imported.unwrap_or(item))
    }

    /// Follows a path that starts with a name that a module imports.
    fn import(&self, from: usize, name: &str, rest: &[String], imports: usize) -> Option<Target> {
        let uses = &self.0[from].source.uses;
        let import = uses.iter().find(|import| import.name == name)?;
        let names = [&import.path.names, rest].concat();
        (imports < MAX_IMPORTS)
            .then(|| self.resolve(from, &names, imports + 1))
            .flatten()
    }

    /// Follows a path that starts with a name that a module imports with `*`.
    fn glob(&self, from: usize, names: &[String], imports: usize) -> Option<Target> {
        let first = names.first()?;
        let module = self
            .globs(from, imports)
            .find(|module| self.provides(*module, first, imports + 1))?;
        self.descend(module, names, imports + 1)
    }

    /// Returns the modules that a module imports with `*`.
    fn globs(&self, from: usize, imports: usize) -> impl Iterator<Item = usize> {
        let uses = self.0[from].source.uses.iter();
        uses.filter(move |import| import.name == "*" && imports < MAX_IMPORTS)
            .filter_map(move |import| self.resolve(from, &import.path.names, imports + 1))
            .map(|target| target.module)
    }

    /// Returns whether a module contains or imports a name.
    fn provides(&self, module: usize, name: &str, imports: usize) -> bool {
        let Module {
            children, source, ..
        } = &self.0[module];
        children.contains_key(name)
            || source.items.contains(name)
            || source.uses.iter().any(|import| import.name == name)
            || self
                .globs(module, imports)
                .any(|module| self.provides(module, name, imports + 1))
    }
}

/// Returns the folder of the files that a file declares.
fn folder_of_children(path: &str) -> &str {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => folder,
        _ => path.trim_end_matches(".rs"),
    }
}
