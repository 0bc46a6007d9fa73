//! Tags, notes, marks and baselines of runs; the search for runs; comparisons of stored runs.

use super::{Mesh, S, T0, batch, interval, new_step, running, send, task_end};
use crate::annotate::{AnnotateError, Annotation, RunSearch};
use crate::ingest::batch::AgentEvent;
use crate::rows::{Row, RunChange};
use benchmesh_answers::compare::{CompareError, Subject, Verdict, compare};
use benchmesh_model::events::WireKind;
use benchmesh_model::mesh::{MeshMicros, RunId, RunState};
use benchmesh_workloads::random::Random;
use std::collections::BTreeMap;

const NOW: MeshMicros = MeshMicros(T0 + 3600 * S);

/// An ended run of 60 s at about `rate` operations per second; each second is up to a tenth faster.
pub(super) async fn run_of(mesh: &Mesh, uid: &str, rate: u64) -> RunId {
    let (publisher, agent, _) = mesh.publisher("a").await;
    let run = mesh.run(uid).await;
    let (step, tasks) = mesh
        .step(run, new_step(0, "files", "create"), &[agent])
        .await;
    let mut one = batch(uid, 1);
    let mut random = Random::new(rate);
    one.op_intervals = (0..60)
        .map(|second| {
            let ops = rate * (100 + random.below(11)) / 100;
            interval(
                tasks[0],
                T0 + second * S,
                "create",
                ops,
                1_000_000_000 / rate,
            )
        })
        .collect();
    one.task_ends = vec![task_end(tasks[0], 100, T0 + 60 * S)];
    send(&publisher, one).await.unwrap();
    mesh.finish(step, T0 + 60 * S).await;
    let ended = RunChange {
        state: RunState::Done,
        ..running(T0 + 60 * S)
    };
    for change in [running(T0), ended] {
        mesh.store
            .apply(vec![Row::Run { run, change }])
            .await
            .unwrap();
    }
    run
}

fn runs(a: &str, b: &str) -> Subject {
    Subject::Runs {
        a: a.into(),
        b: b.into(),
    }
}

#[tokio::test]
async fn stored_runs_are_compared() {
    let mesh = Mesh::new().await;
    run_of(&mesh, "before", 1000).await;
    run_of(&mesh, "after", 800).await;
    run_of(&mesh, "again", 1000).await;
    let ask = async |subject: Subject| compare(mesh.store.reader(), &subject.into()).await;
    let answer = ask(runs("before", "after")).await.unwrap();
    let one = &answer.comparisons[0];
    assert_eq!(one.rows.len(), 4, "{one:#?}");
    let (rate, beside) = one.rows.split_first().unwrap();
    assert_eq!(rate.verdict, Verdict::Slower, "{rate:#?}");
    for row in beside {
        assert_eq!(row.verdict, Verdict::NotJudged, "{row:#?}");
        assert!(row.low.unwrap() > 1.0, "latency is higher: {row:#?}");
    }
    assert!((rate.a.value / 1050.0 - 1.0).abs() < 0.01, "{rate:#?}");
    assert!((rate.ratio - 0.8).abs() < 0.01, "{rate:#?}");
    let answer = ask(runs("before", "again")).await.unwrap();
    let rate = &answer.comparisons[0].rows[0];
    assert_eq!(rate.verdict, Verdict::NoDifferenceShown, "{rate:#?}");
    let refused = |request| async { ask(request).await.unwrap_err() };
    assert!(matches!(
        refused(runs("nobody", "after")).await,
        CompareError::NoRun { .. }
    ));
    assert!(matches!(
        refused(runs("after", "after")).await,
        CompareError::SameRun { .. }
    ));
    let one_target = refused(Subject::Targets {
        run: "after".into(),
    })
    .await;
    assert!(matches!(one_target, CompareError::OneTarget { .. }));
    let unsaved = Subject::Baseline {
        name: "good".into(),
        run: "after".into(),
    };
    assert!(matches!(
        refused(unsaved.clone()).await,
        CompareError::NoBaseline { .. }
    ));
    let good = Annotation::Baseline("good".into());
    mesh.store.annotate("before", good, NOW).await.unwrap();
    let answer = ask(unsaved).await.unwrap();
    assert_eq!(answer.comparisons[0].a.label, "baseline good");
    assert_eq!(answer.comparisons[0].rows[0].verdict, Verdict::Slower);
    mesh.run("waiting").await;
    assert!(matches!(
        refused(runs("after", "waiting")).await,
        CompareError::NotEnded { .. }
    ));
    mesh.assert_sound().await;
}

#[tokio::test]
async fn runs_are_found_by_their_annotations() {
    let mesh = Mesh::new().await;
    let first = run_of(&mesh, "first", 10).await;
    let second = mesh.run("second").await;
    let tag = |set: &[(&str, &str)], remove: &[&str]| Annotation::Tag {
        set: set
            .iter()
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect(),
        remove: remove.iter().map(|key| (*key).to_owned()).collect(),
    };
    let say = async |run: &str, annotation| mesh.store.annotate(run, annotation, NOW).await;
    say("first", tag(&[("pool", "ssd"), ("old", "x")], &[]))
        .await
        .unwrap();
    say("first", tag(&[("pool", "hdd")], &["old"]))
        .await
        .unwrap();
    say("second", tag(&[("pool", "ssd")], &[])).await.unwrap();
    say("first", Annotation::Note("50% of the OSDs are new".into()))
        .await
        .unwrap();
    let find = async |change: &dyn Fn(&mut RunSearch)| -> Vec<RunId> {
        let mut search = RunSearch {
            limit: 10,
            ..RunSearch::default()
        };
        change(&mut search);
        let found = mesh.store.search_runs(&search).await.unwrap();
        found.into_iter().map(|one| one.run_id).collect()
    };
    assert_eq!(find(&|_| {}).await, [second, first]);
    assert_eq!(find(&|one| one.limit = 1).await, [second]);
    assert_eq!(find(&|one| one.text = "50% of".into()).await, [first]);
    assert_eq!(find(&|one| one.text = "50_ of".into()).await, []);
    assert_eq!(find(&|one| one.text = "run sec".into()).await, [second]);
    assert_eq!(
        find(&|one| one.tags = vec![("pool".into(), None)]).await,
        [second, first]
    );
    assert_eq!(
        find(&|one| one.tags = vec![("pool".into(), Some("hdd".into()))]).await,
        [first]
    );
    assert_eq!(find(&|one| one.tags = vec![("old".into(), None)]).await, []);
    assert_eq!(find(&|one| one.target = "cephfs".into()).await, [first]);
    assert_eq!(find(&|one| one.since = Some(MeshMicros(T0 + 1))).await, []);
    assert_eq!(
        find(&|one| one.until = Some(MeshMicros(T0 + 1))).await,
        [second, first]
    );
    let all = mesh
        .store
        .search_runs(&RunSearch {
            limit: 2,
            ..RunSearch::default()
        })
        .await
        .unwrap();
    assert_eq!(all[1].tags, BTreeMap::from([("pool".into(), "hdd".into())]));
    assert_eq!(all[1].notes, ["50% of the OSDs are new"]);
    let empty_key = tag(&[("", "x")], &[]);
    for wrong in [
        empty_key,
        tag(&[], &[]),
        Annotation::Note(" ".into()),
        Annotation::Baseline("a=b".into()),
    ] {
        let refused = say("first", wrong).await;
        assert!(
            matches!(refused, Err(AnnotateError::Wrong(_))),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn marks_and_daemons_are_on_the_time_line_of_their_run() {
    let mesh = Mesh::new().await;
    let run = run_of(&mesh, "first", 10).await;
    let (publisher, ..) = mesh.publisher("a").await;
    let mark = |at: Option<i64>| Annotation::Mark {
        text: "osd.7 out".into(),
        at: at.map(MeshMicros),
    };
    mesh.store
        .annotate("first", mark(Some(T0 + 10 * S)), NOW)
        .await
        .unwrap();
    // A mark without an instant means now, which is accepted shortly after the run's end too.
    let ended = mesh.store.find_run("first").await.unwrap().ended.unwrap();
    let soon = MeshMicros(ended.0 + 4 * S);
    mesh.store.annotate("", mark(None), soon).await.unwrap();
    for outside in [None, Some(T0 - 1), Some(ended.0 + 900 * S), Some(NOW.0 + 1)] {
        let refused = mesh.store.annotate("", mark(outside), NOW).await;
        assert!(
            matches!(refused, Err(AnnotateError::Wrong(_))),
            "{outside:?}: {refused:?}"
        );
    }
    let mut died = batch("died", 1);
    died.events = [
        ("daemon-ended", T0 + 20 * S),
        ("daemon-started", T0 + 90 * S),
        ("other", T0 + 30 * S),
    ]
    .map(|(kind, at)| AgentEvent {
        at: MeshMicros(at),
        run_uid: String::new(),
        run: None,
        step: None,
        kind: WireKind::received(kind.into(), "info"),
        message: "ceph-osd osd.7 (pid 1)".into(),
        detail_json: None,
    })
    .into();
    send(&publisher, died).await.unwrap();
    let marks: Vec<(i64, i64, String, Option<i64>)> =
        sqlx::query_as("SELECT run_id, (at_us - 1750000000000000) / 1000000, source, step_id FROM v_marks ORDER BY at_us")
            .fetch_all(mesh.store.reader())
            .await
            .unwrap();
    assert_eq!(
        marks,
        [
            (run.0, 10, "mark".to_owned(), Some(1)),
            (run.0, 20, "daemon-ended".to_owned(), Some(1)),
            (run.0, (soon.0 - T0) / S, "mark".to_owned(), None),
        ]
    );
}
