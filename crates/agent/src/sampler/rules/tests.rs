#![allow(clippy::unwrap_used)]
use super::*;

fn call(rules: &Rules, comm: &str, line: &str, cgroups: &str) -> Option<(String, String)> {
    let arguments = Arguments::from_kernel(line.replace(' ', "\0").as_bytes());
    rules
        .identify(&ProcessFacts {
            comm,
            arguments: &arguments,
            cgroups,
        })
        .map(|identity| (identity.name, identity.instance))
}

fn identity(name: &str, instance: &str) -> Option<(String, String)> {
    Some((name.to_owned(), instance.to_owned()))
}

fn rule(name: &str) -> DaemonRule {
    DaemonRule {
        name: name.to_owned(),
        ..DaemonRule::default()
    }
}

#[test]
fn built_in_names() {
    let rules = Rules::new(Vec::new()).unwrap();
    assert_eq!(
        call(&rules, "ceph-osd", "ceph-osd -i 3", ""),
        identity("ceph-osd", "osd.3")
    );
    assert_eq!(
        call(&rules, "mfschunkserver", "mfschunkserver start", ""),
        identity("mfschunkserver", "")
    );
    assert_eq!(
        call(&rules, "mfsmount (mount", "mfsmount (mounted on: /m)", ""),
        identity("mfsmount", "/m")
    );
    assert_eq!(call(&rules, "o2hb-0F3A", "", ""), identity("o2hb", "0F3A"));
    assert_eq!(call(&rules, "nfsd", "", ""), identity("nfsd", ""));
    for stranger in ["bash", "ceph-osd2", "kworker/0:1", "", "osd", "glusterfsd2"] {
        assert_eq!(
            call(&rules, stranger, "ceph-osd -i 3", ""),
            None,
            "{stranger}"
        );
        assert_eq!(rules.needed(stranger), Needed::None, "{stranger}");
    }
}

#[test]
fn names_are_compared_as_the_kernel_cuts_them() {
    let long = DaemonRule {
        comm: Some("a-daemon-with-a-long-name".to_owned()),
        ..rule("long")
    };
    let rules = Rules::new(vec![long]).unwrap();
    assert_eq!(
        call(&rules, "a-daemon-with-a", "", ""),
        identity("long", "")
    );
    assert_eq!(call(&rules, "a-daemon-with", "", ""), None);
}

#[test]
fn every_condition_of_a_rule_must_hold() {
    let both = DaemonRule {
        comm: Some("java".to_owned()),
        cmdline: Some("-Dname=store*--data".to_owned()),
        instance_option: Some("--data".to_owned()),
        ..rule("store")
    };
    let rules = Rules::new(vec![both]).unwrap();
    assert_eq!(
        call(&rules, "java", "java -Dname=store1 -x --data /d", ""),
        identity("store", "/d")
    );
    assert_eq!(
        call(&rules, "java", "java -Dname=other --data /d", ""),
        None
    );
    assert_eq!(
        call(&rules, "jav", "java -Dname=store1 --data /d", ""),
        None
    );
    assert_eq!(rules.needed("java"), Needed::CommandLine);
    assert_eq!(rules.needed("bash"), Needed::None);
}

#[test]
fn cgroups_and_units() {
    let unit = DaemonRule {
        unit: Some("minio@*".to_owned()),
        ..rule("minio")
    };
    let cgroup = DaemonRule {
        cgroup: Some("/kubepods/*rook".to_owned()),
        ..rule("pod")
    };
    let rules = Rules::new(vec![unit, cgroup]).unwrap();
    let in_unit = "12:cpu:/x\n0::/system.slice/system-minio.slice/minio@3.service\n";
    assert_eq!(call(&rules, "minio", "", in_unit), identity("minio", ""));
    assert_eq!(
        call(&rules, "x", "", "0::/kubepods/burstable/pod7-rook/abc\n"),
        identity("pod", "")
    );
    assert_eq!(call(&rules, "x", "", "0::/user.slice\n"), None);
    assert_eq!(rules.needed("anything"), Needed::CommandLineAndCgroups);
}

#[test]
fn own_rules_come_first_and_keep_the_known_instance() {
    let renamed = DaemonRule {
        comm: Some("ceph-osd".to_owned()),
        ..rule("osd-under-test")
    };
    let rules = Rules::new(vec![renamed]).unwrap();
    assert_eq!(
        call(&rules, "ceph-osd", "ceph-osd --id 3", ""),
        identity("osd-under-test", "osd.3")
    );
}

#[test]
fn rules_that_match_everything_are_refused() {
    let check = |rule: DaemonRule, expected: RuleError| {
        assert_eq!(Rules::new(vec![rule]).unwrap_err().1, expected);
    };
    check(rule(" "), RuleError::NoName);
    check(rule("x"), RuleError::NoCondition);
    check(
        DaemonRule {
            comm: Some(String::new()),
            ..rule("x")
        },
        RuleError::EmptyPattern { key: "comm" },
    );
    check(
        DaemonRule {
            cmdline: Some("* *".to_owned()),
            ..rule("x")
        },
        RuleError::EmptyPattern { key: "cmdline" },
    );
}

#[test]
fn patterns() {
    let check = |pattern: &str, text: &str, expected: bool| {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}")
    };
    check("abc", "abc", true);
    check("abc", "abcd", false);
    check("a*c", "abbc", true);
    check("a*c", "ac", true);
    check("a*a", "a", false);
    check("*b*", "abc", true);
    check("a*b*c", "a1b2c", true);
    check("a*b*c", "acb", false);
    check("*", "", true);
    assert!(
        occurs("b", "abc") && occurs("", "") && occurs("a*c", "xabcx") && !occurs("c*a", "abc")
    );
}

#[test]
fn rules_come_from_a_configuration_file() {
    let rule: DaemonRule = serde_json::from_str(
        r#"{"name": "minio", "cmdline": "minio server", "instance-option": "--address"}"#,
    )
    .unwrap();
    assert_eq!(rule.instance_option.as_deref(), Some("--address"));
    let unknown =
        serde_json::from_str::<DaemonRule>(r#"{"name": "minio", "cmd": "x"}"#).unwrap_err();
    assert!(
        unknown.to_string().contains("unknown field `cmd`"),
        "{unknown}"
    );
}
