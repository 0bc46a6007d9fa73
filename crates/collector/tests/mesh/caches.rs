//! The caches dropped for a cold step, their hosts, and the report on caches that cannot be dropped.

use super::{
    fake_agent::{FakeAgent, Script},
    stage::{Stage, messages, state},
};

const PLAN: &str = "[clients]\nselect = \"role=client\"\n[targets.a]\nsystem = \"s\"\npath = \"/mnt/a\"\n[[phase]]\nworkload = \"io\"\nsize = \"1m\"\nmodes = [\"read\"]\ncache = \"cold\"\n";

fn on(host: &str, role: &str) -> Script {
    Script {
        host: host.to_owned(),
        labels: vec![(String::from("role"), role.to_owned())],
        ..Script::default()
    }
}

fn drops(agent: &FakeAgent) -> usize {
    let journal = agent.journal();
    journal.iter().filter(|entry| *entry == "drop").count()
}

async fn run(stage: &Stage) -> String {
    let started = stage.start(PLAN).await.unwrap();
    let updates = stage.watch(started.run_id).await;
    assert_eq!(state(&updates), ("done", false), "{}", messages(&updates));
    messages(&updates)
}

#[tokio::test]
async fn one_kernel_is_asked_once_and_another_agent_of_it_where_the_first_may_not() {
    let stage = Stage::new().await;
    let agents = [
        stage.agent("c1", on("h1", "client")).await,
        stage.agent("c2", on("h1", "client")).await,
        stage
            .agent(
                "s1",
                Script {
                    no_root: true,
                    ..on("h2", "storage")
                },
            )
            .await,
        stage.agent("s2", on("h2", "other")).await,
        // Neither a client nor storage.
        stage.agent("x", on("h3", "other")).await,
    ];
    // The fake agent that may drop caches reports its second cache as not permitted, so both agents of a kernel are
    // asked.
    let told = run(&stage).await;
    assert_eq!(agents.each_ref().map(drops), [1, 1, 1, 1, 0]);
    // The first answer of each kernel counts.
    assert_eq!(
        stage.rows("select a.name, d.what, d.dropped, d.error from cache_drops d join agents a on a.id = d.agent_id order by 1, 2").await,
        [
            "c1|dentries-inodes|0|not permitted",
            "c1|page-cache|1|NULL",
            "s1|page-cache|0|run it as root"
        ]
    );
    assert!(
        told.contains("not all caches of the step were dropped"),
        "{told}"
    );
}

#[tokio::test]
async fn caches_inside_processes_are_recorded_as_not_dropped() {
    let stage = Stage::new().await;
    let fuse = Script {
        file_system_type: String::from("fuse.glusterfs"),
        ..on("h1", "client")
    };
    let _client = stage.agent("c", fuse).await;
    let storage = stage.agent("s", on("h2", "storage")).await;
    storage.sample(0, 0);
    let there = "select count(*) from daemons";
    while stage.rows(there).await != ["1"] {
        tokio::task::yield_now().await;
    }
    let told = run(&stage).await;
    let kept = stage
        .rows("select a.name, d.what, d.error from cache_drops d join agents a on a.id = d.agent_id where d.what in ('fuse-client', 'daemon-caches') and d.dropped = 0 order by 1")
        .await;
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert!(
        kept[0].starts_with("c|fuse-client|the fuse.glusterfs client"),
        "{kept:?}"
    );
    assert!(
        kept[1].starts_with("s|daemon-caches|ceph-osd (1) may cache"),
        "{kept:?}"
    );
    // A property of every run on such a storage does not deserve a warning.
    assert!(!told.contains("fuse-client"), "{told}");
}
