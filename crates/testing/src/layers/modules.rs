//! The modules of a library as their files declare them, and the paths that each names.
//!
//! Nothing is resolved here. What is under `#[cfg(test)]` is left out, with the files of such modules.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use super::ModulePath;
use super::tokens::{Token, TokenKind, tokens};

#[derive(Debug, Default)]
pub struct Module {
    /// From `src`.
    pub file: PathBuf,
    pub children: BTreeSet<String>,
    /// Functions, types, macros and so on that the module itself defines.
    pub items: BTreeSet<String>,
    pub uses: Vec<Use>,
    /// Paths of several segments outside of `use`: `a::b::f`.
    pub paths: Vec<(Vec<String>, usize)>,
    /// Every name with the first line it is on, for what a `use a::*` may have brought.
    pub names: BTreeMap<String, usize>,
}

/// One name that a `use` brings: `use a::{b::C as D}` brings `D` for `a::b::C`.
#[derive(Debug)]
pub struct Use {
    /// `*` for all names.
    pub name: String,
    /// `a::b` for `use a::b::*`.
    pub path: Vec<String>,
    pub line: usize,
}

/// The modules from `lib.rs` on. `text` reads a file, by its path from `src`.
///
/// # Errors
/// If a file cannot be read or a declared module has none.
pub fn read(
    text: impl Fn(&Path) -> std::io::Result<String>,
) -> std::io::Result<BTreeMap<ModulePath, Module>> {
    let mut modules = BTreeMap::new();
    let mut exported = Vec::new();
    let mut wanted = vec![ModulePath::new()];
    while let Some(path) = wanted.pop() {
        let (file, text) = file_of(&path, &text)?;
        let tokens = tokens(&text);
        let mut reader = Reader {
            tokens: &tokens,
            at: 0,
            file,
            modules: &mut modules,
            in_files: &mut wanted,
            exported: &mut exported,
        };
        reader.module(&path);
    }
    // `#[macro_export]` puts a macro at the root.
    let root = modules.entry(ModulePath::new()).or_default();
    root.uses.extend(exported);
    Ok(modules)
}

fn file_of(
    path: &[String],
    text: impl Fn(&Path) -> std::io::Result<String>,
) -> std::io::Result<(PathBuf, String)> {
    let own: PathBuf = path.iter().collect();
    let places = match path.is_empty() {
        true => vec![PathBuf::from("lib.rs")],
        false => vec![own.with_extension("rs"), own.join("mod.rs")],
    };
    for file in places {
        match text(&file) {
            Ok(text) => return Ok((file, text)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => {
                let message = format!("{}: {error}", file.display());
                return Err(Error::new(error.kind(), message));
            }
        }
    }
    let message = format!("the module crate::{} has no file", path.join("::"));
    Err(Error::new(ErrorKind::NotFound, message))
}

struct Reader<'a> {
    tokens: &'a [Token],
    at: usize,
    file: PathBuf,
    modules: &'a mut BTreeMap<ModulePath, Module>,
    /// Modules declared without a body.
    in_files: &'a mut Vec<ModulePath>,
    exported: &'a mut Vec<Use>,
}

impl<'a> Reader<'a> {
    /// Reads what `path` contains, to the `}` that ends it or to the end of the file.
    fn module(&mut self, path: &[String]) {
        let mut module = Module {
            file: self.file.clone(),
            ..Module::default()
        };
        let mut depth = 0_usize;
        let mut exports_macro = false;
        while let Some(token) = self.tokens.get(self.at) {
            if let Some(attribute) = self.attribute() {
                exports_macro |= attribute.has("macro_export");
                match attribute.is_for_tests() {
                    true => {
                        self.at = attribute.end;
                        self.skip_item();
                    }
                    false => self.at += 1,
                }
                continue;
            }
            if let Some(name) = token.name() {
                self.name(name, token.line, path, depth, &mut module);
                if name == "macro_rules" && std::mem::take(&mut exports_macro) {
                    self.export(path, token.line);
                }
                continue;
            }
            self.at += 1;
            match token.kind {
                TokenKind::Sign('{' | '(' | '[') => depth += 1,
                TokenKind::Sign('}' | ')' | ']') if depth == 0 => break,
                TokenKind::Sign('}' | ')' | ']') => depth -= 1,
                _ => {}
            }
        }
        self.modules.insert(path.to_vec(), module);
    }

    /// Reads what begins with `name`: a `use`, a module, a definition or a path; or only this name.
    fn name(
        &mut self,
        name: &str,
        line: usize,
        path: &[String],
        depth: usize,
        module: &mut Module,
    ) {
        let next = self.tokens.get(self.at + 1);
        let next_name = next.and_then(Token::name);
        match (name, next_name) {
            ("use", _) if next.is_some_and(|it| !it.is('<')) => {
                self.at += 1;
                self.use_tree(&mut Vec::new(), line, &mut module.uses);
                return;
            }
            ("mod", Some(child)) => {
                let own: ModulePath = path.iter().cloned().chain([child.to_owned()]).collect();
                module.children.insert(child.to_owned());
                self.at += 3;
                match self.tokens.get(self.at - 1).is_some_and(|it| it.is('{')) {
                    true => self.module(&own),
                    false => self.in_files.push(own),
                }
                return;
            }
            (
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static",
                Some(item),
            ) if depth == 0 => {
                module.items.insert(item.to_owned());
            }
            ("macro_rules", None) => {
                let item = self.tokens.get(self.at + 2).and_then(Token::name);
                module.items.extend(item.map(str::to_owned));
            }
            _ => {}
        }
        let before = |back: usize| self.tokens.get(self.at.checked_sub(back)?);
        let is_method = before(1).is_some_and(|it| it.is('.'));
        let continues =
            before(1).is_some_and(|it| it.is(':')) && before(2).is_some_and(|it| it.is(':'));
        let is_of_macro = before(1).is_some_and(|it| it.is('$')) && name != "crate";
        let (segments, end) = self.segments();
        self.at = end;
        if continues || is_of_macro {
            return;
        }
        if segments.len() > 1 {
            module.paths.push((segments, line));
        } else if !is_method {
            module.names.entry(name.to_owned()).or_insert(line);
        }
    }

    /// `a::b::c` from here, and where it ends.
    fn segments(&self) -> (Vec<String>, usize) {
        let mut found = Vec::new();
        let mut at = self.at;
        while let Some(name) = self.tokens.get(at).and_then(Token::name) {
            found.push(name.to_owned());
            at += 1;
            let goes_on = self.is_path_sign(at)
                && self
                    .tokens
                    .get(at + 2)
                    .is_some_and(|it| it.name().is_some());
            if !goes_on {
                break;
            }
            at += 2;
        }
        (found, at)
    }

    fn is_path_sign(&self, at: usize) -> bool {
        let is_colon = |at: usize| self.tokens.get(at).is_some_and(|it| it.is(':'));
        is_colon(at) && is_colon(at + 1)
    }

    /// Reads `a::{b, c::*, d as e}` below `prefix`.
    fn use_tree(&mut self, prefix: &mut Vec<String>, line: usize, found: &mut Vec<Use>) {
        let depth = prefix.len();
        while let Some(token) = self.tokens.get(self.at) {
            self.at += 1;
            if let Some(name) = token.name() {
                prefix.push(name.to_owned());
                if self.is_path_sign(self.at) {
                    self.at += 2;
                    continue;
                }
                found.push(self.brought(prefix, line));
                break;
            }
            if token.is('*') {
                let (name, path) = ("*".to_owned(), prefix.clone());
                found.push(Use { name, path, line });
                break;
            }
            if token.is('{') {
                while self.tokens.get(self.at).is_some_and(|it| !it.is('}')) {
                    let line = self.tokens.get(self.at).map_or(line, |it| it.line);
                    self.use_tree(prefix, line, found);
                    if self.tokens.get(self.at).is_some_and(|it| it.is(',')) {
                        self.at += 1;
                    }
                }
                self.at += 1;
                break;
            }
        }
        prefix.truncate(depth);
    }

    /// The name for `path`, which ends here or in `as name`.
    fn brought(&mut self, path: &[String], line: usize) -> Use {
        let path: Vec<String> = match path.split_last() {
            Some((last, above)) if last == "self" && !above.is_empty() => above.to_vec(),
            _ => path.to_vec(),
        };
        let name_at = |at: usize| self.tokens.get(at).and_then(Token::name);
        let name = match name_at(self.at) {
            Some("as") => {
                let name = name_at(self.at + 1).unwrap_or("_").to_owned();
                self.at += 2;
                name
            }
            _ => path.last().cloned().unwrap_or_default(),
        };
        Use { name, path, line }
    }

    fn export(&mut self, path: &[String], line: usize) {
        // Behind `macro_rules`, which has been read.
        let Some(name) = self.tokens.get(self.at + 1).and_then(Token::name) else {
            return;
        };
        let own = path.iter().map(String::as_str);
        let full = ["crate"].into_iter().chain(own).chain([name]);
        self.exported.push(Use {
            name: name.to_owned(),
            path: full.map(str::to_owned).collect(),
            line,
        });
    }

    /// The attribute that begins here.
    fn attribute(&self) -> Option<Attribute<'a>> {
        let tokens = self.tokens.get(self.at..)?;
        let [sign, open, ..] = tokens else {
            return None;
        };
        if !sign.is('#') || !open.is('[') {
            return None;
        }
        let length = group_length(tokens.get(1..)?);
        Some(Attribute {
            inner: tokens.get(2..length)?,
            end: self.at + 1 + length,
        })
    }

    /// Passes by the item, statement or field that begins here, with its attributes.
    fn skip_item(&mut self) {
        while let Some(attribute) = self.attribute() {
            self.at = attribute.end;
        }
        let first = self.tokens.get(self.at).and_then(Token::name);
        let is_use = self.tokens.get(self.at..).is_some_and(|rest| {
            let head = rest.iter().take_while(|it| !it.is('{') && !it.is(';'));
            head.take(6).any(|token| token.name() == Some("use"))
        });
        let is_item = matches!(
            first,
            Some(
                "pub"
                    | "fn"
                    | "mod"
                    | "use"
                    | "impl"
                    | "struct"
                    | "enum"
                    | "const"
                    | "static"
                    | "type"
                    | "trait"
                    | "unsafe"
                    | "async"
                    | "extern"
                    | "let"
            )
        );
        while let Some(token) = self.tokens.get(self.at) {
            if token.is('}') || token.is(')') || token.is(']') {
                return;
            }
            let is_open = token.is('{') || token.is('(') || token.is('[');
            let is_body = token.is('{') && !is_use;
            self.at += match is_open {
                true => group_length(self.tokens.get(self.at..).unwrap_or_default()),
                false => 1,
            };
            if is_body || token.is(';') || (token.is(',') && !is_item) {
                return;
            }
        }
    }
}

struct Attribute<'a> {
    /// Between the brackets.
    inner: &'a [Token],
    /// The position of what follows it.
    end: usize,
}

impl Attribute<'_> {
    fn has(&self, name: &str) -> bool {
        self.inner.iter().any(|token| token.name() == Some(name))
    }

    /// `cfg(test)` and `cfg(all(test, ...))`: nothing else is built with what follows.
    fn is_for_tests(&self) -> bool {
        let is_cfg = self.inner.first().and_then(Token::name) == Some("cfg");
        is_cfg && self.has("test") && !self.has("any") && !self.has("not")
    }
}

/// How many tokens there are from the first, an opening bracket, to the one that closes it.
fn group_length(tokens: &[Token]) -> usize {
    let mut depth = 0_usize;
    for (at, token) in tokens.iter().enumerate() {
        match token.kind {
            TokenKind::Sign('{' | '(' | '[') => depth += 1,
            TokenKind::Sign('}' | ')' | ']') => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    tokens.len()
}
