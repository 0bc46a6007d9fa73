//! The circles among the modules below each parent.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Display, Formatter};

use super::{Import, ModulePath};

/// Modules below one parent of which each imports, directly or through others, each other one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Circle {
    pub parent: ModulePath,
    /// The names below the parent, sorted.
    pub modules: Vec<String>,
    /// What they import of one another.
    pub imports: Vec<Import>,
}

/// The circle's modules, and each import on a line.
impl Display for Circle {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let parent = match self.parent.is_empty() {
            true => "the crate".to_owned(),
            false => self.parent.join("::"),
        };
        let modules = self.modules.join(", ");
        write!(f, "in {parent}, a circle of {modules}:")?;
        for import in &self.imports {
            write!(f, "\n  {import}")?;
        }
        Ok(())
    }
}

type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

pub fn circles(imports: &[Import]) -> Vec<Circle> {
    let mut parents: BTreeMap<&[String], Vec<&Import>> = BTreeMap::new();
    for import in imports {
        parents
            .entry(import.common_parent())
            .or_default()
            .push(import);
    }
    let circles = parents.iter().flat_map(|(parent, imports)| {
        let mut graph = Graph::new();
        for import in imports {
            if let Some((from, to)) = import.children() {
                graph.entry(from).or_default().insert(to);
            }
        }
        let circles = groups(&graph).into_iter();
        circles.map(move |modules| Circle {
            parent: parent.to_vec(),
            imports: within(imports, &modules),
            modules: modules.into_iter().map(str::to_owned).collect(),
        })
    });
    circles.collect()
}

/// The modules that reach one another, more than one at a time.
fn groups<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let reached: Graph<'_> = graph
        .keys()
        .map(|module| (*module, reached(graph, module)))
        .collect();
    let reaches = |from: &str, to: &str| reached.get(from).is_some_and(|it| it.contains(to));
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for module in graph.keys() {
        let circle: BTreeSet<&str> = graph
            .keys()
            .filter(|other| reaches(module, other) && reaches(other, module))
            .copied()
            .collect();
        if circle.len() > 1 && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

fn reached<'a>(graph: &Graph<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut wanted = vec![from];
    while let Some(module) = wanted.pop() {
        for next in graph.get(module).into_iter().flatten() {
            if found.insert(*next) {
                wanted.push(next);
            }
        }
    }
    found
}

fn within(imports: &[&Import], modules: &BTreeSet<&str>) -> Vec<Import> {
    let is_within = |import: &&&Import| {
        let children = import.children();
        children.is_some_and(|(from, to)| modules.contains(from) && modules.contains(to))
    };
    imports
        .iter()
        .filter(is_within)
        .map(|it| (*it).clone())
        .collect()
}

impl Import {
    /// The two modules below the common parent.
    fn children(&self) -> Option<(&str, &str)> {
        let depth = self.common_parent().len();
        Some((self.from.get(depth)?, self.to.get(depth)?))
    }
}
