#![allow(clippy::unwrap_used)]

use super::example::example;
use super::*;
use crate::args::Command as Subcommand;
use crate::args::daemons::{AgentArguments, CollectorArguments};
use benchmesh_agent::targets::TargetNames;
use std::io::Write;
use std::path::PathBuf;

fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn line(words: &[&str], config: &Path) -> Vec<OsString> {
    let mut line: Vec<OsString> = words.iter().map(Into::into).collect();
    line.push("--config".into());
    line.push(config.into());
    line
}

fn agent(text: &str, typed: &[&str]) -> Result<AgentArguments, String> {
    let file = file(text);
    let words = [&["benchmesh", "agent"], typed].concat();
    match parse(line(&words, file.path())) {
        Ok(Arguments {
            command: Subcommand::Agent(agent),
            ..
        }) => Ok(agent.arguments),
        Ok(other) => panic!("{other:?}"),
        Err(ParseError::File(error)) => {
            let path = file.path().display().to_string();
            Err(error.to_string().replace(&path, "FILE"))
        }
        Err(ParseError::Typed(error)) => panic!("{error}"),
    }
}

fn collector(text: &str, typed: &[&str]) -> CollectorArguments {
    let file = file(text);
    let words = [&["benchmesh", "--insecure", "collector"], typed].concat();
    match parse(line(&words, file.path())) {
        Ok(Arguments {
            insecure: true,
            command: Subcommand::Collector(collector),
        }) => collector,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_kind_of_value_becomes_an_option() {
    let agent = agent(
        "collector = \"central:4750\"\n\
         label = [\"role=client\", \"rack=7\"]\n\
         allow = \"/mnt/a\"\n\
         allow-drop-caches = true\n\
         sample-always = false\n\
         sample-period = \"2s\"\n",
        &[],
    )
    .unwrap();
    assert_eq!(agent.collector, "central:4750");
    assert_eq!(agent.labels.len(), 2);
    assert_eq!(agent.policy.targets.0, TargetNames::directories(["/mnt/a"]));
    assert!(agent.policy.allow_drop_caches && !agent.sample_always);
    assert_eq!(agent.sample_period, std::time::Duration::from_secs(2));
}

#[test]
fn the_command_line_wins() {
    let text = "collector = \"central:4750\"\nallow = [\"/a\", \"/b\"]\nname = \"n\"\n";
    let agent = agent(text, &["--allow", "/c", "--name=m"]).unwrap();
    assert_eq!(agent.policy.targets.0, TargetNames::directories(["/c"]));
    assert_eq!(agent.name.as_deref(), Some("m"));
    assert_eq!(agent.collector, "central:4750");
}

#[test]
fn collectors_have_a_file_too() {
    let collector = collector("db = \"/srv/mesh.db\"\nhttp-name = [\"a\", \"b\"]\n", &[]);
    assert_eq!(collector.db, PathBuf::from("/srv/mesh.db"));
    assert_eq!(collector.http_names, ["a", "b"]);
}

#[test]
fn mistakes_name_line_key_and_remedy() {
    for (text, expected) in [
        (
            "name = \"n\"\nalow = \"/a\"",
            "FILE:2: `alow`: unknown key; did you mean `allow`?",
        ),
        ("zzz = 1", "FILE:1: `zzz`: unknown key; the keys are"),
        ("config = \"other\"", "FILE:1: `config`: unknown key"),
        ("start-log = \"/x\"", "FILE:1: `start-log`: unknown key"),
        (
            "\n\nlabel = \"role\"",
            "FILE:3: `label`: invalid value 'role'",
        ),
        ("sample-period = 5", "write a number and a unit, e.g. 500ms"),
        (
            "sample-always = 1",
            "FILE:1: `sample-always`: write true or false",
        ),
        (
            "name = [\"a\", \"b\"]",
            "FILE:1: `name`: it takes one value, not a list",
        ),
        (
            "allow = [[\"/a\"]]",
            "FILE:1: `allow`: write a string in quotes",
        ),
        ("name = \"a\"\nname = \"b\"", "FILE:2: duplicate key"),
        ("name = ", "FILE:1:"),
    ] {
        let mistake = agent(text, &[]).unwrap_err();
        assert!(mistake.contains(expected), "{text:?}: {mistake}");
    }
    let all = agent("alow = 1\nnme = 2", &[]).unwrap_err();
    assert_eq!(all.lines().count(), 2, "{all}");
    let missing = parse(line(&["benchmesh", "agent"], Path::new("/nowhere")));
    let Err(ParseError::File(error)) = missing else {
        panic!("{missing:?}");
    };
    assert!(error.to_string().contains("/nowhere cannot be read"));
}

#[test]
fn a_reload_names_what_changed_and_keeps_the_old_where_it_is_wrong() {
    let file = file("name = \"n\"\nallow = \"/a\"\n");
    let words = line(&["benchmesh", "agent", "--name", "typed"], file.path());
    let mut config = ConfigFile::of(words).unwrap().unwrap();
    let write = |text: &str| std::fs::write(file.path(), text).unwrap();
    write("allow = [\"/a\"]\nname = \"n\" # the same\n");
    assert!(config.again().unwrap().is_none());
    write("allow = [\"/a\"]\nname = 7 7\n");
    config.again().unwrap_err();
    write("alow = [\"/a\"]\n");
    let error = config.again().unwrap_err();
    assert!(error.to_string().contains("did you mean"), "{error:#}");
    write("allow = [\"/a\", \"/b\"]\nsample-always = true\nname = \"n\"\n");
    let change = config.again().unwrap().unwrap();
    assert_eq!(change.keys, ["allow", "sample-always"]);
    let Subcommand::Agent(agent) = change.arguments.command else {
        panic!("another command");
    };
    let agent = agent.arguments;
    assert_eq!(agent.name.as_deref(), Some("typed"));
    assert_eq!(agent.policy.targets.0.iter().count(), 2);
    assert!(config.again().unwrap().is_none());
}

/// The examples under packaging match the command line. BENCHMESH_BLESS=1 rewrites them.
#[test]
fn the_annotated_examples_are_up_to_date() {
    for name in ["agent", "collector"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../packaging")
            .join(format!("{name}.toml"));
        let text = example(name);
        if std::env::var_os("BENCHMESH_BLESS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap();
        assert!(
            found == text,
            "packaging/{name}.toml is out of date: BENCHMESH_BLESS=1 cargo test -p benchmesh-cli annotated"
        );
    }
}

/// Every key with a default, or without a required value, is valid as it appears in the example.
#[test]
fn every_key_of_the_examples_is_understood() {
    for name in ["agent", "collector"] {
        let command = built(name).unwrap();
        let text = example(name);
        for key in keys(&command) {
            let long = key.get_long().unwrap();
            let stands = text.lines().find_map(|line| {
                let value = line.strip_prefix('#')?.strip_prefix(long)?;
                Some(format!(
                    "{long}{}",
                    value.strip_prefix(" = ").map(|v| format!(" = {v}"))?
                ))
            });
            let stands = stands.unwrap_or_else(|| panic!("no {long} in the example"));
            stands.parse::<toml::Table>().unwrap();
            if !key.get_default_values().is_empty() {
                assert!(options(&stands, "x", name).is_ok(), "{stands}");
            }
        }
    }
}

/// A pipe without a writer would hold the agent for ever, and a device has no end.
#[test]
fn only_a_regular_file_is_a_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for path in [&pipe, Path::new("/dev/zero")] {
        let parsed = parse(line(&["benchmesh", "agent"], path));
        let Err(ParseError::File(error)) = parsed else {
            panic!("{parsed:?}");
        };
        let told = error.to_string();
        assert!(told.contains("it is not a regular file"), "{told}");
        ConfigFile::of(line(&["benchmesh", "agent"], path)).unwrap_err();
    }
}
