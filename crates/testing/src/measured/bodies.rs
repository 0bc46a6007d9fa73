//! Every body that is repeated can fail by time: it has a `timing!`, or calls a function that returns a
//! [`TimingError`](super::TimingError). Checked in the source of the whole workspace.

use super::tokens::{SourceToken, tokens};
use crate::sources::sources;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The functions that repeat a body; `measured_async` is defined in the collector's tests.
const REPEATS: [&str; 2] = ["measured", "measured_async"];

struct SourceFile {
    path: PathBuf,
    tokens: Vec<SourceToken>,
    functions: Vec<Function>,
}

struct Function {
    name: String,
    /// Its token range, from its name to the end of its body.
    from: usize,
    to: usize,
    returns_timing_error: bool,
}

impl SourceFile {
    fn of(path: &Path, text: &str) -> Self {
        let tokens = tokens(text);
        let functions = (0..tokens.len()).filter_map(|at| function(&tokens, at));
        Self {
            path: path.to_owned(),
            functions: functions.collect(),
            tokens,
        }
    }

    fn name(&self, at: usize) -> Option<&str> {
        self.tokens.get(at).and_then(SourceToken::name)
    }

    fn is(&self, at: usize, sign: char) -> bool {
        self.tokens.get(at).is_some_and(|token| token.is(sign))
    }

    /// Whether `measured` in this file is that of this crate, not a function of its own.
    fn imports_measured(&self) -> bool {
        let is_own = |name: &str| self.functions.iter().any(|it| it.name == name);
        (0..self.tokens.len()).any(|at| self.name(at) == Some("benchmesh_testing"))
            && !is_own("measured")
    }

    /// The calls of repeating functions with a body that is not a parameter of the caller: the line and the tokens of
    /// each.
    fn measured(&self) -> Vec<(usize, std::ops::Range<usize>)> {
        let called = |at: &usize| {
            self.name(*at).is_some_and(|name| REPEATS.contains(&name))
                && self.is(at + 1, '(')
                && self.name(at.wrapping_sub(1)) != Some("fn")
        };
        let passed_on = |at: &usize| {
            let around = self
                .functions
                .iter()
                .filter(|it| (it.from..it.to).contains(at));
            around
                .clone()
                .any(|it| it.returns_timing_error || REPEATS.contains(&&*it.name))
        };
        let calls = (0..self.tokens.len())
            .filter(called)
            .filter(|at| !passed_on(at));
        calls
            .filter_map(|at| {
                Some((
                    self.tokens.get(at)?.line,
                    at + 1..closing(&self.tokens, at + 1)?,
                ))
            })
            .collect()
    }
}

/// The function named by the token after `at`.
fn function(tokens: &[SourceToken], at: usize) -> Option<Function> {
    if tokens.get(at)?.name() != Some("fn") {
        return None;
    }
    let name = tokens.get(at + 1)?.name()?;
    let mut open = at + 2;
    while !tokens.get(open)?.is('{') {
        if tokens.get(open)?.is(';') {
            return None;
        }
        open += 1;
    }
    let signature = tokens.get(at..open)?;
    Some(Function {
        name: name.to_owned(),
        from: at + 1,
        to: closing(tokens, open)?,
        returns_timing_error: signature.iter().any(|it| it.name() == Some("TimingError")),
    })
}

/// Position of the bracket that closes the one at `at`.
fn closing(tokens: &[SourceToken], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (place, token) in tokens.iter().enumerate().skip(at) {
        let is_any = |signs: [char; 3]| signs.into_iter().any(|sign| token.is(sign));
        if is_any(['(', '[', '{']) {
            depth += 1;
        } else if is_any([')', ']', '}']) {
            depth -= 1;
            if depth == 0 {
                return Some(place);
            }
        }
    }
    None
}

/// `path:line` of each body without an assertion on time.
fn without_timing(sources: &[SourceFile]) -> Vec<String> {
    let mut everywhere: BTreeMap<&str, bool> = BTreeMap::new();
    for function in sources.iter().flat_map(|it| &it.functions) {
        *everywhere.entry(&function.name).or_default() |= function.returns_timing_error;
    }
    let mut wrong = Vec::new();
    for source in sources
        .iter()
        .filter(|it| it.imports_measured() || it.path.ends_with("stage.rs"))
    {
        let can_fail = |name: &str| {
            let own = source.functions.iter().find(|it| it.name == name);
            own.map_or_else(
                || everywhere.get(name).copied().unwrap_or(false),
                |own| own.returns_timing_error,
            )
        };
        for (line, mut body) in source.measured() {
            let has_timing = body.any(|at| {
                let name = source.name(at);
                (name == Some("timing") && source.is(at + 1, '!')) || name.is_some_and(can_fail)
            });
            if !has_timing {
                wrong.push(format!("{}:{line}", source.path.display()));
            }
        }
    }
    wrong
}

#[test]
fn what_is_measured_again_can_fail_by_time() {
    let sources: Vec<SourceFile> = sources()
        .iter()
        .map(|(path, text)| SourceFile::of(path, text))
        .collect();
    let bodies: usize = sources.iter().map(|it| it.measured().len()).sum();
    assert!(bodies > 50, "only {bodies} bodies were found");
    let wrong = without_timing(&sources);
    assert!(
        wrong.is_empty(),
        "these assert nothing about time: {wrong:#?}"
    );
}

#[test]
fn a_body_without_timing_is_found() {
    let text = r#"
        use benchmesh_testing::{measured, timing};
        fn slow() -> Result<(), TimingError> { timing!(1 < 2); Ok(()) }
        fn counts() { assert!(true) }
        fn a() { measured(|| { timing!(x < 2, "{x}"); Ok(()) }); }
        fn b() { measured(|| { slow()?; Ok(()) }); }
        fn c() { measured(slow); }
        fn d() { measured(|| { counts(); Ok(()) }); }
        fn wrapper(body: impl Fn() -> Result<(), TimingError>) { measured(|| body()); }
        fn e() { measured_async(|| async { assert_eq!(count, "timing!"); Ok(()) }); }
    "#;
    let wrong = without_timing(&[SourceFile::of(Path::new("t.rs"), text)]);
    assert_eq!(wrong, ["t.rs:8", "t.rs:10"]);
    let other = "fn measured(x: u8) {} fn a() { measured(1); }";
    assert_eq!(
        without_timing(&[SourceFile::of(Path::new("t.rs"), other)]),
        [""; 0]
    );
}
