#![allow(clippy::unwrap_used)]
use super::*;
use crate::targets::TargetNames;

fn policy(change: impl FnOnce(&mut PolicyConfig)) -> Policy {
    let mut config = PolicyConfig::default();
    change(&mut config);
    Policy::open(&config).unwrap()
}

/// Each refusal names its key, the value and the request.
#[test]
fn refusals_name_the_key_the_value_and_what_was_asked() {
    let check = |denied: Result<(), Denial>, key: &str, value: &str, asked: &str| {
        let denial = denied.unwrap_err();
        assert_eq!(denial.key, key);
        let text = denial.to_string();
        let named = format!("`{key}` is {value}");
        assert!(text.contains(&named) && text.contains(asked), "{text}");
    };
    let nothing = policy(|_| {});
    check(nothing.check_workload("io"), "allow", "not set", "`io`");
    check(
        nothing.check_workload("network"),
        "allow-network",
        "not set",
        "`network`",
    );
    assert!(nothing.taken_workloads().is_empty());

    let some = policy(|it| {
        it.targets = TargetNames::directories(["/tmp"]);
        it.workloads = "io,network".parse().unwrap();
        it.allow_network = vec!["10.1.0.0/16".parse().unwrap()];
    });
    some.check_workload("io").unwrap();
    some.check_workload("network").unwrap();
    check(
        some.check_workload("fill"),
        "workloads",
        "io,network",
        "`fill`",
    );
    let names: Vec<&str> = some.taken_workloads().iter().map(|it| it.0).collect();
    assert_eq!(names, ["io", "network"]);
    some.check_peer("10.1.9.9".parse().unwrap()).unwrap();
    let stranger = some.check_peer("10.2.0.1".parse().unwrap());
    check(stranger, "allow-network", "10.1.0.0/16", "10.2.0.1");
}

#[test]
fn the_mesh_is_told_the_policy_with_its_defaults_resolved() {
    let facts = policy(|it| {
        it.limits[Limit::Threads] = Some(Setting::Amount(7));
        it.limits[Limit::Memory] = Some(Setting::Amount(1 << 30));
        it.allow_network = vec!["10.1.2.3/24".parse().unwrap()];
    })
    .facts();
    assert_eq!(facts.limits.amount(Limit::Threads), Some(7));
    assert_eq!(facts.limits.amount(Limit::Memory), Some(1 << 30));
    assert_eq!(facts.networks, ["10.1.2.0/24"]);
    let defaults = policy(|_| {}).facts();
    let limits = defaults.limits;
    assert!(limits.amount(Limit::Threads) >= Some(64) && limits.amount(Limit::Memory) > Some(0));
    assert_eq!(limits[Limit::Rate], None);
    let inodes = limits[Limit::FreeInodes].unwrap();
    assert_eq!(Limit::FreeInodes.notation(inodes), "1%, at most 10000");
    assert!(defaults.workloads.is_empty());
}
