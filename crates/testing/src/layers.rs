//! Whether the modules of a crate import one another in one direction, read from its source.
//!
//! Among the modules below one parent, each with all that lies within it, no circle of imports may exist. What passes
//! between a module and those within it is no circle: they are one unit to their neighbours. An import is a `use` or a
//! path within the code, also one through a name that another module re-exports. Code of tests (`#[cfg(test)]`) may use
//! the whole crate and is left out. Calls of methods, and names that macros put together, are not seen.
//!
//! [`Crate::circles`] finds the circles, [`Crate::upward`] what runs against a given order of the crate's top modules.

mod circles;
mod modules;
mod resolve;
pub(crate) mod tokens;

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};

pub use circles::Circle;
use modules::Module;

/// `["engine", "task"]` for `crate::engine::task`; empty for the root.
type ModulePath = Vec<String>;

/// The modules of one library and what each imports of the others.
#[derive(Debug)]
pub struct Crate {
    modules: BTreeMap<ModulePath, Module>,
    imports: Vec<Import>,
}

/// One module names another, neither of which lies within the other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    /// Of the file, from `src`.
    file: PathBuf,
    line: usize,
    /// As it is written.
    path: String,
    from: ModulePath,
    to: ModulePath,
}

impl Crate {
    /// Reads the library whose `Cargo.toml` is in `directory`.
    ///
    /// # Errors
    /// If one of its files cannot be read, or a declared module has none.
    pub fn read(directory: &Path) -> std::io::Result<Self> {
        let src = directory.join("src");
        Self::of(|file| std::fs::read_to_string(src.join(file)))
    }

    fn of(text: impl Fn(&Path) -> std::io::Result<String>) -> std::io::Result<Self> {
        let modules = modules::read(text)?;
        let imports = resolve::imports(&modules);
        Ok(Self { modules, imports })
    }

    /// The modules that import one another in a circle, by parent.
    #[must_use]
    pub fn circles(&self) -> Vec<Circle> {
        circles::circles(&self.imports)
    }

    /// What is wrong with the order `layers` of the crate's top modules, bottom to top: imports that go up, modules
    /// that are in no layer, layers that are no module.
    #[must_use]
    pub fn upward(&self, layers: &[&str]) -> Vec<String> {
        let height = |module: &str| layers.iter().position(|layer| *layer == module);
        let top: Vec<&str> = self.children(&[]).collect();
        let no_layer = top.iter().filter(|module| height(module).is_none());
        let no_module = layers.iter().filter(|layer| !top.contains(layer));
        let upward = self.between(&[]).filter(|import| {
            let [from, to] = [&import.from, &import.to].map(|it| height(it.first()?));
            from.is_some() && to > from
        });
        let mut wrong: Vec<String> = no_layer.map(|it| format!("{it} is in no layer")).collect();
        wrong.extend(no_module.map(|it| format!("the layer {it} is no module")));
        wrong.extend(upward.map(Import::to_string));
        wrong
    }

    /// The imports between different modules below `parent`.
    pub fn between<'a>(&'a self, parent: &'a [&'a str]) -> impl Iterator<Item = &'a Import> {
        let of_parent = move |import: &&Import| import.common_parent() == parent;
        self.imports.iter().filter(of_parent)
    }

    fn children<'a>(&'a self, parent: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
        self.modules.keys().filter_map(move |path| {
            let (last, above) = path.split_last()?;
            (above == parent).then_some(last.as_str())
        })
    }
}

impl Import {
    /// The innermost module that both lie in.
    fn common_parent(&self) -> &[String] {
        let shared = self.from.iter().zip(&self.to);
        let depth = shared.take_while(|(from, to)| from == to).count();
        self.from.get(..depth).unwrap_or_default()
    }
}

/// `engine/task.rs:7 imports engine::spec by super::spec::Spec`
impl Display for Import {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        let to = self.to.join("::");
        write!(f, "{file}:{} imports {to} by {}", self.line, self.path)
    }
}

/// Fails the test of the crate in `directory` (`env!("CARGO_MANIFEST_DIR")`) if modules import one another in a circle.
///
/// # Panics
/// If there is a circle, or the source cannot be read.
pub fn assert_no_circle(directory: &str) {
    let circles = read(directory).circles();
    let texts: Vec<String> = circles.iter().map(Circle::to_string).collect();
    assert!(texts.is_empty(), "\n{}", texts.join("\n"));
}

/// Fails the test of the crate in `directory` if an import goes up `layers`, its top modules from bottom to top.
///
/// # Panics
/// If one does, if `layers` are not the top modules, or if the source cannot be read.
pub fn assert_order(directory: &str, layers: &[&str]) {
    let wrong = read(directory).upward(layers);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn read(directory: &str) -> Crate {
    match Crate::read(Path::new(directory)) {
        Ok(code) => code,
        Err(error) => panic!("read the source in {directory}: {error}"),
    }
}

#[cfg(test)]
mod tests;
