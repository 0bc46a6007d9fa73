use std::io::{Error, ErrorKind};

use super::*;

/// The crate of these files, each its path from `src` and its text.
fn made(files: &[(&str, &str)]) -> Crate {
    let text = |wanted: &Path| {
        let file = files.iter().find(|(path, _)| Path::new(path) == wanted);
        let text = file.map(|(_, text)| (*text).to_owned());
        text.ok_or_else(|| Error::from(ErrorKind::NotFound))
    };
    Crate::of(text).expect("each declared module has a file")
}

/// The circles of the crate: the parent and its modules that are in one.
fn circles(files: &[(&str, &str)]) -> Vec<String> {
    let circles = made(files).circles().into_iter();
    let texts = circles.map(|it| format!("{}: {}", it.parent.join("::"), it.modules.join(" ")));
    texts.collect()
}

/// The circles of `a`, `b` and `c` below the root with these texts.
fn circles_of(a: &str, b: &str, c: &str) -> Vec<String> {
    let root = "mod a;\nmod b;\nmod c;\nfn of_root() {}";
    circles(&[("lib.rs", root), ("a.rs", a), ("b.rs", b), ("c.rs", c)])
}

const NONE: [&str; 0] = [];

#[test]
fn two_siblings_that_import_one_another_are_a_circle() {
    let there = [
        "use super::b::B;",
        "use crate::b::{self};",
        "use crate::b;",
        "use crate::{c::C, b::{B, D as E}};",
        "pub use super::{b as other};",
        "fn f() { super::b::g(); }",
        "fn f(it: &crate::b::B) {}",
        "fn f() { use super::b; }",
        "fn f() { let _ = <super::b::B as Default>::default(); }",
        "fn f() { println!(\"{}\", super::b::g()); }",
        "#[arg(value_parser = super::b::read)] struct A;",
        "use super as up; fn f() { up::b::g(); }",
        "use super::*; fn f() { b::g(); }",
    ];
    for there in there {
        assert_eq!(
            circles_of(there, "use super::a::A;", ""),
            [": a b"],
            "{there}"
        );
        assert_eq!(circles_of(there, "", ""), NONE, "{there}");
    }
}

#[test]
fn three_siblings_in_a_row_are_a_circle() {
    let (to_a, to_b, to_c) = ("use super::a::A;", "use super::b::B;", "use super::c::C;");
    assert_eq!(circles_of(to_b, to_c, to_a), [": a b c"]);
    assert_eq!(circles_of(to_b, to_c, ""), NONE);
}

#[test]
fn a_name_that_the_parent_hands_on_is_an_import_of_the_child_it_is_from() {
    for handed_on in [
        "pub use a::A;",
        "use a::A;",
        "pub use a::{Other as A};",
        "pub use self::a::*;",
        "pub(crate) use crate::a::A;",
    ] {
        let root = format!("mod a;\nmod b;\n{handed_on}");
        let check = |b| {
            circles(&[
                ("lib.rs", &root),
                ("a.rs", "use super::b::B;\npub struct A;"),
                ("b.rs", b),
            ])
        };
        for taken in [
            "use super::A;",
            "use crate::{A};",
            "fn f() { super::A::new(); }",
            "use super::*;\nfn f(it: A) {}",
        ] {
            assert_eq!(check(taken), [": a b"], "{handed_on} {taken}");
        }
        assert_eq!(check("use super::Else;"), NONE, "{handed_on}");
    }
}

#[test]
fn a_name_that_a_third_file_hands_on_is_an_import_of_both() {
    let hands_on = "pub use super::a::A;";
    let direct = circles_of(
        "use super::b::B;\npub struct A;",
        "use super::c::A;",
        hands_on,
    );
    assert_eq!(direct, [": a b c"]);
    let elsewhere = [
        ("lib.rs", "mod low;\nmod high;"),
        ("low.rs", "mod x;\npub use x::X;\nuse crate::high::H;"),
        ("low/x.rs", "pub struct X;"),
        ("high.rs", "pub use crate::low::X;\npub struct H;"),
    ];
    assert_eq!(circles(&elsewhere), [": high low"]);
}

#[test]
fn a_circle_is_found_three_levels_deep() {
    let files = |d: &'static str| {
        [
            ("lib.rs", "mod a;"),
            ("a.rs", "mod b;"),
            ("a/b.rs", "mod c;\nmod d;\nmod e { use super::d; }"),
            ("a/b/c/mod.rs", "use super::super::b::d::D;"),
            ("a/b/d.rs", d),
        ]
    };
    assert_eq!(circles(&files("use crate::a::b::c::C;")), ["a::b: c d"]);
    assert_eq!(circles(&files("fn f() { super::e::f() }")), ["a::b: d e"]);
    assert_eq!(circles(&files("")), NONE);
}

/// What lies within a module is part of it: `a::x` imports `b`, whose child imports `a::y`.
#[test]
fn children_of_two_siblings_make_a_circle_of_the_siblings() {
    let files = [
        ("lib.rs", "mod a;\nmod b;"),
        ("a.rs", "mod x;\nmod y;"),
        ("a/x.rs", "use crate::b::B;"),
        ("a/y.rs", "pub struct Y;"),
        ("b.rs", "mod z;\npub struct B;"),
        ("b/z.rs", "use crate::a::y::Y;"),
    ];
    assert_eq!(circles(&files), [": a b"]);
    let found = made(&files)
        .circles()
        .iter()
        .map(Circle::to_string)
        .collect::<String>();
    assert_eq!(
        found,
        "in the crate, a circle of a, b:\n  a/x.rs:1 imports b by crate::b::B\n  \
         b/z.rs:1 imports a::y by crate::a::y::Y"
    );
}

#[test]
fn a_parent_and_its_children_are_no_circle() {
    let files = [
        ("lib.rs", "mod a;\nuse a::b::B;\npub struct Root;"),
        (
            "a.rs",
            "pub mod b;\nuse b::B;\npub struct A;\nfn f() { b::g() }",
        ),
        (
            "a/b.rs",
            "use super::A;\nuse crate::Root;\nuse crate::a;\npub struct B;",
        ),
    ];
    assert_eq!(circles(&files), NONE);
}

#[test]
fn neither_tests_nor_comments_nor_strings_import() {
    let back = "use super::a::A;";
    for b in [
        "// use super::a::A;\n/* super::a::f() /* nested */ super::a::f() */",
        "/// [`super::a::A`]\nfn f() { let _ = (\"super::a::A\", r#\"\"super::a::f()\"#, b\"\\\"super::a\"); }",
        "fn f<'a>(_: &'a str) { let _ = ['\"', '\\'', b'\"']; }\n// super::a::f()",
        "#[cfg(test)]\nmod tests {\n use crate::a::A;\n fn f() {}\n}",
        "#[cfg(test)]\nmod tests;",
        "#[cfg(all(test, unix))]\n#[allow(unused)]\nuse super::a::{self, A};",
        "#[cfg(test)]\npub(super) fn f() -> super::a::A { super::a::A }",
        "enum B { #[cfg(test)] A(super::a::A), Other }",
        "fn f() { other::super_a::f(); ::a::f(); it.a::<B>(); }",
    ] {
        assert_eq!(circles_of("use super::b::B;", b, ""), NONE, "{b}");
        // What follows is read.
        let followed = format!("{b}\nfn g() {{}}\n{back}");
        assert_eq!(
            circles_of("use super::b::B;", &followed, ""),
            [": a b"],
            "{b}"
        );
    }
}

#[test]
fn a_macro_of_the_root_is_an_import_of_the_module_that_defines_it() {
    let defines =
        "use super::b::B;\n#[macro_export]\nmacro_rules! declare { () => { $crate::c::f() } }";
    let check = |b| circles_of(defines, b, "");
    assert_eq!(check("fn f() { crate::declare!(); }"), [": a b"]);
    assert_eq!(check("fn f() { crate::of_root(); }"), NONE);
    let within = circles_of(defines, "", "use crate::a::A;");
    assert_eq!(within, [": a c"]);
}

#[test]
fn the_order_of_the_layers_is_held() {
    let files = [
        (
            "lib.rs",
            "mod low;\nmod high;\npub use high::H;\n#[cfg(test)]\nmod testing;",
        ),
        ("low.rs", "use crate::H;"),
        ("high.rs", "use crate::low;\npub struct H;"),
    ];
    let code = made(&files);
    assert_eq!(
        code.upward(&["low", "high"]),
        ["low.rs:1 imports high by crate::H"]
    );
    assert_eq!(
        code.upward(&["high", "low"]),
        ["high.rs:1 imports low by crate::low"]
    );
    assert_eq!(code.upward(&["high"]), ["low is in no layer"]);
    let one_more = code.upward(&["low", "high", "gone"]);
    assert_eq!(
        one_more,
        [
            "the layer gone is no module",
            "low.rs:1 imports high by crate::H"
        ]
    );
}

#[test]
fn a_declared_module_without_a_file_is_an_error() {
    let error = Crate::of(|file| match file == Path::new("lib.rs") {
        true => Ok("mod a;".to_owned()),
        false => Err(Error::from(ErrorKind::NotFound)),
    });
    let error = error.expect_err("there is no a.rs");
    assert_eq!(error.to_string(), "the module crate::a has no file");
}
