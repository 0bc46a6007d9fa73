//! Which module a path means: from `crate`, `self` and `super`, through names that a `use` brings or hands on.
//!
//! Every module that the path passes counts as imported: the re-exporting one and the defining one.

use std::collections::{BTreeMap, BTreeSet};

use super::modules::Module;
use super::{Import, ModulePath};

/// What each module imports of the others, without what lies within it and what it lies within. A path in the code is
/// left out where a `use` of the same module has already imported what it names.
pub fn imports(modules: &BTreeMap<ModulePath, Module>) -> Vec<Import> {
    let mut found = BTreeSet::new();
    for (from, module) in modules {
        let add = |path: &[String], line: usize, last: Last| {
            let mut path_of_import = ImportPath::new(modules);
            path_of_import.follow(from, path, last);
            let passed = path_of_import.passed.into_iter();
            let others = passed.filter(|to| !from.starts_with(to) && !to.starts_with(from));
            let file = &module.file;
            let import = |to| Import {
                file: file.clone(),
                line,
                path: path.join("::"),
                from: from.clone(),
                to,
            };
            others.map(import).collect::<Vec<_>>()
        };
        let uses = module.uses.iter();
        let used: Vec<Import> = uses
            .flat_map(|it| add(&it.path, it.line, Last::Anything))
            .collect();
        let paths = module.paths.iter();
        let mut named: Vec<Import> = paths
            .flat_map(|(path, line)| add(path, *line, Last::Item))
            .collect();
        if module.uses.iter().any(|it| it.name == "*") {
            for (name, line) in &module.names {
                named.extend(add(std::slice::from_ref(name), *line, Last::Item));
            }
        }
        named.retain(|import| used.iter().all(|it| it.to != import.to));
        found.extend(used);
        found.extend(named);
    }
    found.into_iter().collect()
}

/// What the last name of a path may mean.
#[derive(Clone, Copy, PartialEq)]
enum Last {
    /// In a `use`.
    Anything,
    /// In an expression or type: no module.
    Item,
}

/// The modules that one path leads through.
struct ImportPath<'a> {
    modules: &'a BTreeMap<ModulePath, Module>,
    passed: BTreeSet<ModulePath>,
    /// Names that have been looked up, where: two modules may hand on all names of each other.
    looked_up: BTreeSet<(ModulePath, String)>,
}

impl<'a> ImportPath<'a> {
    fn new(modules: &'a BTreeMap<ModulePath, Module>) -> Self {
        Self {
            modules,
            passed: BTreeSet::new(),
            looked_up: BTreeSet::new(),
        }
    }

    /// Follows `path` as it stands in `module`. False if it leads out of the crate.
    fn follow(&mut self, module: &[String], path: &[String], last: Last) -> bool {
        let (base, rest) = begin(module, path);
        let is_relative = rest.len() == path.len();
        let found = self.walk(&base, rest, last);
        if !found && !is_relative {
            self.passed.insert(base);
        }
        found || !is_relative
    }

    /// Follows `path` from the module `base`. False if `base` has no such name.
    fn walk(&mut self, base: &[String], path: &[String], last: Last) -> bool {
        let Some((name, rest)) = path.split_first() else {
            self.passed.insert(base.to_vec());
            return true;
        };
        let modules = self.modules;
        let Some(module) = modules.get(base) else {
            return false;
        };
        let may_be_module = !rest.is_empty() || last == Last::Anything;
        let mut found = false;
        if may_be_module && module.children.contains(name) {
            let child: ModulePath = base.iter().chain([name]).cloned().collect();
            found = self.walk(&child, rest, last);
            if !found {
                // What a macro makes there, perhaps.
                self.passed.insert(child);
                found = true;
            }
            if !rest.is_empty() {
                return true;
            }
        }
        if module.items.contains(name) {
            self.passed.insert(base.to_vec());
            return true;
        }
        if !self.looked_up.insert((base.to_vec(), name.clone())) {
            return found;
        }
        for brought in module.uses.iter().filter(|it| it.name == *name) {
            let full: Vec<String> = brought.path.iter().chain(rest).cloned().collect();
            self.follow(base, &full, last);
            self.passed.insert(base.to_vec());
            found = true;
        }
        if found {
            return true;
        }
        for all in module.uses.iter().filter(|it| it.name == "*") {
            let from = self.module(base, &all.path);
            if from.is_some_and(|from| self.walk(&from, path, last)) {
                self.passed.insert(base.to_vec());
                return true;
            }
        }
        false
    }

    /// The module that `path` is in the module `base`; none for an enum and for what is of another crate.
    fn module(&self, base: &[String], path: &[String]) -> Option<ModulePath> {
        let (mut own, rest) = begin(base, path);
        own.extend_from_slice(rest);
        self.modules.contains_key(&own).then_some(own)
    }
}

/// Where `path` begins as it stands in `module`, and what is left of it.
fn begin<'p>(module: &[String], path: &'p [String]) -> (ModulePath, &'p [String]) {
    let mut base = module.to_vec();
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        match first.as_str() {
            "crate" => base.clear(),
            "self" => {}
            "super" if base.pop().is_some() => {}
            _ => break,
        }
        rest = after;
    }
    (base, rest)
}
