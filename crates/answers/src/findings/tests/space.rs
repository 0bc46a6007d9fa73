//! Targets that fill up or are nearly full, and those whose usage only rises and falls with their load.

use super::*;
use benchmesh_synthetic::soak::{HOSTS, Soak, soaks, start_us};
use benchmesh_workloads::random::Random;

const GIB: f64 = 1_073_741_824.0;
const SIZE_GIB: f64 = 100.0;
const HOURS: f64 = 6.0;
const SECONDS: u32 = 21_600;

/// A soak whose agents share a target.
struct Case {
    loops: u32,
    seed: u64,
    seconds: u32,
    size_gib: f64,
    /// Whether an agent samples the target in a second.
    samples: fn(i64, u32) -> bool,
    /// SQL that changes the steps.
    change: &'static str,
}

impl Default for Case {
    fn default() -> Self {
        Self {
            loops: 1,
            seed: 3,
            seconds: SECONDS,
            size_gib: SIZE_GIB,
            samples: |_, _| true,
            change: "",
        }
    }
}

async fn found(loops: u32, seed: u64, used_gib: impl Fn(f64) -> f64) -> Vec<Finding> {
    let case = Case {
        loops,
        seed,
        ..Case::default()
    };
    found_in(case, used_gib).await
}

/// The findings; `used_gib` is called with the hour.
async fn found_in(case: Case, used_gib: impl Fn(f64) -> f64) -> Vec<Finding> {
    let seed = case.seed;
    let soak = Soak {
        seed,
        seconds: case.seconds,
        loops: case.loops,
        sampled_every: 60,
        planted: Vec::new(),
    };
    let begin_us = start_us(std::slice::from_ref(&soak), 1);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("soak.db");
    let made = path.clone();
    tokio::task::spawn_blocking(move || soaks(&made, &[soak]).unwrap())
        .await
        .unwrap();
    let file = rusqlite::Connection::open(&path).unwrap();
    file.execute_batch("BEGIN").unwrap();
    file.execute_batch(case.change).unwrap();
    for agent in 1..=HOSTS {
        file.execute(
            "INSERT INTO run_targets (run_id, agent_id, target, system, path)
             VALUES (1, ?1, 'vol', 'glusterfs', '/mnt/vol')",
            [agent],
        )
        .unwrap();
        file.execute(
            "INSERT INTO targets (id, run_id, agent_id, path, nonce) VALUES (?1, 1, ?1, '/mnt/vol', 'n')",
            [agent],
        )
        .unwrap();
        let mut insert = file
            .prepare("INSERT INTO target_samples VALUES (?1, ?2, ?3, ?4, 1000000, ?5)")
            .unwrap();
        // Data of other users come and go.
        let mut random = Random::new(seed);
        let mut others = 0.0;
        for second in (0..case.seconds).step_by(10) {
            let noise = f64::from(u32::try_from(random.next_u64() >> 40).unwrap()) / 16_777_216.0;
            others = 0.9 * others + 0.02 * (noise - 0.5);
            let used = used_gib(f64::from(second) / 3600.0) + others;
            if !(case.samples)(agent.into(), second) {
                continue;
            }
            insert
                .execute((
                    agent,
                    begin_us + i64::from(second) * 1_000_000 + i64::from(agent),
                    whole(case.size_gib * GIB),
                    whole((case.size_gib - used) * GIB),
                    whole(1e6 - 500.0 * used.min(SIZE_GIB)),
                ))
                .unwrap();
        }
    }
    file.execute_batch("COMMIT").unwrap();
    let found = findings_of(&path, 1).await;
    for sql in found.iter().filter_map(|one| one.sql.as_ref()) {
        let mut statement = file.prepare(sql).unwrap();
        assert!(statement.raw_query().next().unwrap().is_some(), "{sql}");
    }
    found
}

#[expect(clippy::cast_possible_truncation, reason = "sizes of tests are small")]
fn whole(value: f64) -> i64 {
    value.round() as i64
}

/// The findings of the kind with these figures.
fn of_target<'f>(found: &'f [Finding], figures: &[&str]) -> Vec<&'f Finding> {
    let all = of_kind(found, "host");
    let found: Vec<Option<&str>> = all.iter().map(|one| one.figure.as_deref()).collect();
    let expected: Vec<Option<&str>> = figures.iter().copied().map(Some).collect();
    assert_eq!(found, expected, "{all:#?}");
    for one in &all {
        assert_eq!((one.subject.as_str(), one.host_id), ("vol", None));
    }
    all
}

/// The amount that a step writes in its first half and removes at its end.
fn sawtooth(hour: f64, loops: f64) -> f64 {
    let place = (hour * loops / HOURS).fract();
    20.0 * (2.0 * place).min(1.0)
}

#[tokio::test]
async fn a_target_that_fills_up_in_one_long_step_is_found_once_for_all_agents() {
    let found = found(1, 1, |hour| 40.0 + 1.2 * hour).await;
    let [space, files] = of_target(&found, &["free_bytes", "free_files"])[..] else {
        panic!("{found:#?}");
    };
    let gib_per_h = space.size.unwrap() / GIB;
    assert!((1.15..1.25).contains(&gib_per_h), "{gib_per_h}");
    // 53 GiB are left: 44 hours.
    assert_eq!(space.severity, "error");
    let sentence = &space.sentence;
    assert!(
        sentence.starts_with("free space of target vol (/mnt/vol) falls by 1.2")
            && sentence.contains(" of 100 GiB left after 5h ")
            && sentence.contains("; full at 2025-06-1"),
        "{sentence}"
    );
    // 976,000 of 1,000,000 inodes are left, and 600 are used per hour: 68 days.
    assert_eq!(files.severity, "warning", "{}", files.sentence);
    assert_eq!(files.unit.as_deref(), Some("1/h"));
}

#[tokio::test]
async fn what_a_loop_leaves_is_found_beneath_what_it_writes_and_removes() {
    let found = found(24, 2, |hour| 40.0 + sawtooth(hour, 24.0) + 0.5 * hour).await;
    let space = of_target(&found, &["free_bytes"])[0];
    let gib_per_h = space.size.unwrap() / GIB;
    assert!((0.45..0.55).contains(&gib_per_h), "{gib_per_h}");
    // 37 GiB are left at the maximum of the load: 75 hours.
    assert_eq!(space.severity, "error", "{}", space.sentence);
}

#[tokio::test]
async fn a_target_whose_use_rises_and_falls_with_its_load_is_not_found() {
    for seed in 0..6 {
        let loops = [1, 8, 24][usize::try_from(seed % 3).unwrap()];
        let of_load = move |hour| match loops {
            1 => 40.0,
            loops => 40.0 + sawtooth(hour, f64::from(loops)),
        };
        let found = found(loops, seed, of_load).await;
        of_target(&found, &[]);
    }
}

#[tokio::test]
async fn a_target_that_was_nearly_full_for_a_moment_is_found() {
    let found = found(1, 3, full_at(3.0)).await;
    let space = of_target(&found, &["free_percent"])[0];
    assert_eq!(space.severity, "error");
    assert!((1.4..1.6).contains(&space.size.unwrap()), "{space:#?}");
    let sentence = &space.sentence;
    assert!(
        sentence.starts_with("target vol (/mnt/vol) was nearly full: 1.")
            && sentence.contains(" % of 100 GiB) was free at the worst"),
        "{sentence}"
    );
}

/// 1.5 % are left for a minute.
fn full_at(begin: f64) -> impl Fn(f64) -> f64 {
    move |hour| match (begin..begin + 1.0 / 60.0).contains(&hour) {
        true => 98.5,
        false => 40.0,
    }
}

#[tokio::test]
async fn windows_shorter_than_the_period_of_samples_are_counted() {
    let case = Case {
        seconds: 3600,
        ..Case::default()
    };
    let found = found_in(case, full_at(0.5)).await;
    let sentence = &of_target(&found, &["free_percent"])[0].sentence;
    assert!(
        sentence.contains("; this lasted 1m 00s between "),
        "{sentence}"
    );
}

#[tokio::test]
async fn a_share_of_a_large_target_that_is_much_is_not_scarce() {
    let case = Case {
        size_gib: 102_400.0,
        ..Case::default()
    };
    let found = found_in(case, |_| 99_500.0).await;
    of_target(&found, &[]);
}

#[tokio::test]
async fn what_any_agent_has_sampled_counts() {
    let case = Case {
        samples: |agent, second| (agent == 1) == (second >= 12_000),
        ..Case::default()
    };
    let found = found_in(case, full_at(4.0)).await;
    of_target(&found, &["free_percent"]);
}

#[tokio::test]
async fn a_target_that_is_filled_on_purpose_is_not_found() {
    let fourth = "UPDATE steps SET workload = 'fill'
                  WHERE id = (SELECT id FROM steps ORDER BY start_us LIMIT 1 OFFSET 3)";
    for (change, figures) in [(fourth, &[][..]), ("", &["free_percent"][..])] {
        let case = Case {
            loops: 8,
            change,
            ..Case::default()
        };
        // In the middle of the fourth loop.
        let found = found_in(case, full_at(3.5 * HOURS / 8.0)).await;
        of_target(&found, figures);
    }
}
