#![allow(clippy::unwrap_used)]

use super::*;

fn parsed(line: &str) -> Result<Arguments, clap::Error> {
    definition::parse(line.split_whitespace())
}

#[test]
fn the_definition_holds_together() {
    definition::definition().debug_assert();
}

#[test]
fn good_lines_are_accepted() {
    for line in [
        "benchmesh quickstart",
        "benchmesh quickstart --db x.db",
        "benchmesh measure /mnt/a",
        "benchmesh runs nightly --db x.db",
        "benchmesh measure /mnt/a /mnt/b --quick --loads rand-4k,copy --clients 2 --size 64m --keep-db x.db",
        "benchmesh measure /mnt/a --time 30s --collector central:4750 --print-plan",
        "benchmesh collector --listen 127.0.0.1:0 --db x.db --address-file a",
        "benchmesh agent --collector [::1]:4750 --name n --label a=b --label c= --allow /mnt --sample-period 100ms",
        "benchmesh collector token --ttl 1d --uses 12 --role operator --replace --collector central:4750",
        "benchmesh collector token --replace node7",
        "benchmesh collector revoke node7",
        "benchmesh agents --insecure",
        "benchmesh --insecure agents",
        "benchmesh run plan.toml --set a=b --set c.d=e=f --agents 3 --detach",
        "benchmesh run - --dry-run --format csv",
        "benchmesh plan check plan.toml --format json",
        "benchmesh plan from-fio job.fio --out plan.toml",
        "benchmesh run io --target /mnt/a --target pool=b --objective x --junit f",
        "benchmesh compare --fail-if slower --junit f",
        "benchmesh compare 1 2 --figure p90,p99.9 --figure net-bytes --fail-if client-cpu>2x",
        "benchmesh plan show plan.toml --assume-agents 3",
        "benchmesh agents",
        "benchmesh runs --limit 3",
        "benchmesh watch",
        "benchmesh watch nightly",
        "benchmesh stop",
        "benchmesh stop 3",
        "benchmesh resume 3 --even-if-changed --detach",
        "benchmesh report",
        "benchmesh report last --format markdown",
        "benchmesh query --format csv --time-limit 5s -",
        "benchmesh query --db mesh.db",
        "benchmesh archive push --to postgres://me@db/bench --db x.db",
        "benchmesh archive push 12 nightly --site lab1 --password-file p",
        "benchmesh archive queue --collector lab1:4750",
        "benchmesh archive runs nightly --site lab1 --tag pool=ssd --since 30d --version 18.2 --format csv",
        "benchmesh archive fetch lab1:12 --from postgres://me@db/bench --db x.db",
        "benchmesh archive prepare --to postgres://me@db/bench",
        "benchmesh compare lab1:12 lab2:12 --archive postgres://me@db/bench",
        "benchmesh completions zsh",
    ] {
        parsed(line).unwrap();
    }
    // A comment may begin a statement.
    definition::parse(["benchmesh", "query", "-- all\nSELECT 1"]).unwrap();
}

#[test]
fn wrong_lines_are_refused_with_code_2() {
    for (line, expected) in [
        ("benchmesh frobnicate", "unrecognized subcommand"),
        ("benchmesh join bmjoin-12", "invalid join token"),
        ("benchmesh join", "<TOKEN>"),
        ("benchmesh agent --join x", "invalid join token"),
        ("benchmesh collector token --uses 0", "0 is not in 1.."),
        ("benchmesh collector revoke", "<NAME>"),
        ("benchmesh measure", "<DIR>"),
        (
            "benchmesh measure /mnt/a --loads fast",
            "small-files, rand-4k, seq-1m, copy",
        ),
        ("benchmesh measure /mnt/a --size 4k", "at least 1m"),
        ("benchmesh measure /mnt/a --clients 0", "0 is not in 1.."),
        ("benchmesh run", "<PLAN|WORKLOAD>"),
        ("benchmesh run a b", "unexpected argument 'b'"),
        ("benchmesh run a --set x", "K=V"),
        ("benchmesh run a --set =x", "K=V"),
        ("benchmesh run a --agents 0", "0 is not in 1.."),
        (
            "benchmesh plan show a --agents 3",
            "write --assume-agents 3",
        ),
        ("benchmesh run a --agents-wait 5", "500ms, 30s, 10m"),
        ("benchmesh run a --detach --dry-run", "cannot be used with"),
        ("benchmesh run a --collector nohost", "it has no port"),
        ("benchmesh run a --collector http://x:1", "it is a URL"),
        ("benchmesh run a --collector ::1:4750", "brackets"),
        ("benchmesh run a --collector x:0", "1 to 65535"),
        ("benchmesh agent --label role", "role=client"),
        ("benchmesh agent --sample-period 0s", "longer than 0 s"),
        (
            "benchmesh collector --listen nowhere",
            "write ADDR:PORT, e.g. 0.0.0.0:4750",
        ),
        ("benchmesh report last --format pdf", "invalid value 'pdf'"),
        (
            "benchmesh report last --db a --collector b:1",
            "cannot be used with",
        ),
        ("benchmesh compare --figure p98", "p95, p99, p99.9, spread"),
        (
            "benchmesh compare --fail-if p98>2x",
            "p95, p99, p99.9, spread",
        ),
        ("benchmesh watch 1 2", "unexpected argument '2'"),
        ("benchmesh resume", "<RUN>"),
    ] {
        let error = parsed(line).unwrap_err();
        assert_eq!(error.exit_code(), 2, "{line}");
        assert!(error.to_string().contains(expected), "{line}:\n{error}");
    }
}

#[test]
fn every_command_has_help_with_an_example() {
    fn visit(command: &clap::Command, path: &str) {
        for sub in command.get_subcommands() {
            let path = format!("{path} {}", sub.get_name());
            assert!(sub.get_about().is_some(), "{path} has no help");
            if sub.has_subcommands() {
                visit(sub, &path);
            } else {
                let after = sub
                    .get_after_help()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                assert!(after.contains(path.trim_start()), "{path} has no example");
            }
        }
    }
    visit(&definition::definition(), "benchmesh");
}

#[test]
fn json_is_known_wherever_it_can_be_asked_for() {
    for (line, json) in [
        ("benchmesh run p --format json", true),
        ("benchmesh plan check p --format json", true),
        ("benchmesh plan show p --format=json", true),
        ("benchmesh agents --format json", true),
        ("benchmesh runs --format json", true),
        ("benchmesh stop 1 --format json", true),
        ("benchmesh resume 1 --format json", true),
        ("benchmesh report 1 --format json", true),
        ("benchmesh report 1 --format json --out f", false),
        ("benchmesh query x --format json", true),
        ("benchmesh query x", false),
        ("benchmesh watch", false),
    ] {
        assert_eq!(
            parsed(line).unwrap().command.answers_in_json(),
            json,
            "{line}"
        );
    }
}

#[test]
fn help_is_readable() {
    for line in ["", "measure", "run", "report", "compare"] {
        let words = ["benchmesh", line, "--help"];
        let words = words.into_iter().filter(|word| !word.is_empty());
        // What the environment has set is shown otherwise.
        let command = definition::definition()
            .term_width(100)
            .mut_subcommands(|sub| sub.mut_args(|arg| arg.hide_env_values(true)));
        let help = command.try_get_matches_from(words).unwrap_err();
        insta::assert_snapshot!(format!("help_{line}"), help.render());
    }
}
