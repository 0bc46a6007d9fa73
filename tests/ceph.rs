//! A real Ceph with three copies on three nodes: objects and RBD images from two clients, and its cost for each OSD.

use crate::needs;
use crate::support::command::must;
use crate::support::database::Database;
use crate::support::lab::{Lab, check_versions};
use crate::support::mesh::Mesh;
use benchmesh_workloads::clock::MonoNanos;
use benchmesh_workloads::registry;
use benchmesh_workloads::target::place::PoolRun;
use benchmesh_workloads::target::rados::PoolSpec;
use benchmesh_workloads::task::{End, Place, PrepareControl, Task, TaskSpec};
use serde_json::json;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// The lab, with the output of its own tools.
struct Cluster(Lab);

impl Cluster {
    fn fact(&self, key: &str) -> &str {
        self.0.fact(key)
    }

    /// The value of `--allow-pool` for the pool and user.
    fn pool(&self, pool: &str, user: &str) -> String {
        format!("{pool},conf={},user={user}", self.fact("conf"))
    }

    /// The names of all objects in the pool, in all namespaces.
    fn objects(&self) -> String {
        let conf = self.fact("conf");
        let listed = Command::new("rados")
            .args(["-c", conf, "-p", "bench", "--all", "ls"])
            .output()
            .unwrap();
        assert!(listed.status.success(), "{listed:?}");
        String::from_utf8(listed.stdout).unwrap()
    }

    /// The output of `rbd`.
    fn rbd(&self, arguments: &[&str]) -> String {
        let mut rbd = Command::new("rbd");
        let rbd = rbd.args(["-c", self.fact("conf")]).args(arguments);
        let said = rbd.output().unwrap();
        assert!(said.status.success(), "{arguments:?}: {said:?}");
        String::from_utf8(said.stdout).unwrap()
    }
}

#[test]
fn two_clients_on_a_real_ceph() {
    needs!("root", "ceph", "netns");
    let cluster = Cluster(Lab::up("ceph"));
    let mut mesh = cluster.0.mesh();
    let pool = cluster.pool("bench", "admin");
    cluster.0.add_clients(&mut mesh, |agent| {
        agent.argument("--allow-pool").argument(&pool)
    });
    let facts = format!("ceph --conf {}", cluster.fact("conf"));
    cluster.0.add_nodes(&mut mesh, |node, agent| match node {
        1 => agent.argument("--facts").argument(&facts),
        _ => agent,
    });
    let run = mesh.run(
        r#"
        name = "ceph"
        [targets.pool]
        system = "rados"
        pool = "bench"
        [clients]
        select = "role=client"
        [[phase]]
        name = "small"
        workload = "objects"
        size = "16k"
        bs = "8k"
        objects = 100
        numjobs = 2
        verify = true
        mix = { read = 6, write = 3, stat = 1 }
        modes = ["write", "seq", "rand", "stat", "omap", "mix", "delete"]
        [[phase]]
        name = "laid"
        workload = "objects"
        size = "64k"
        objects = 20
        runtime = "2s"
        modes = ["rand"]
        [[phase]]
        name = "timed"
        workload = "objects"
        size = "4k"
        iodepth = 4
        runtime = "2s"
        modes = ["write", "seq"]
        [[phase]]
        name = "images"
        workload = "io"
        size = "8m"
        bs = "64k"
        iodepth = 8
        numjobs = 2
        verify = true
        modes = ["write", "randread", "randwrite", "read"]
        "#,
    );
    let known =
        format!("SELECT count(*) FROM facts WHERE run_id = {run} AND name = 'pool.bench.size'");
    mesh.until_stored("the cluster's state is known", &known);
    let db = mesh.db();
    db.assert_sound();
    check_results(&db, run);
    check_facts(&db, run);
    check_versions(&mesh, &["ceph-osd", "ceph-mon"], "ceph-osd");
    check_reading_of_others(&cluster);
    check_images(&cluster);
    check_kept_data(&cluster, &mesh);
    // librbd's list of the pool's namespaces, which is empty.
    assert_eq!(cluster.objects(), "\trbd_namespace\n", "left in the pool");
    assert_eq!(cluster.rbd(&["namespace", "ls", "bench"]), "");
    mesh.assert_no_complaints();
}

/// CPU time that the agents' processes use outside their tasks in a step of 2 s.
const BESIDE_S: f64 = 0.05;

/// The CPU time of tasks equals that of their agents' processes, most of it in the libraries' threads.
fn check_client_cpu(db: &Database, run: i64) {
    let measured = db.rows(&format!(
        "SELECT s.mode, (SELECT sum(t.cpu_user_us + t.cpu_system_us) / 1e6 FROM tasks t WHERE t.step_id = s.id) AS tasks_s,
             (SELECT sum(u.cpu_s) FROM v_daemon_usage u WHERE u.step_id = s.id AND u.name = 'benchmesh'
                  AND u.instance LIKE '%client%') AS agents_s
         FROM steps s WHERE s.run_id = {run} AND s.phase = 'timed'"
    ));
    assert_eq!(measured.len(), 2, "{measured:?}");
    for step in &measured {
        let (tasks, agents) = (step.number("tasks_s"), step.number("agents_s"));
        assert!(
            tasks > 0.5 * agents - BESIDE_S && tasks < 1.1 * agents + BESIDE_S,
            "{step:?}"
        );
    }
}

/// Two tasks of one step read each other's objects, and the task that does not own a damaged object detects it. Also
/// covers objects and images that one run leaves in the pool, and another finds.
fn check_kept_data(cluster: &Cluster, mesh: &Mesh) {
    let plan = |objects: &str, images: &str, owner: &str| {
        format!(
            r#"
            [targets.pool]
            system = "rados"
            pool = "bench"
            [clients]
            select = "role=client"
            [[phase]]
            name = "objects"
            workload = "objects"
            size = "16k"
            objects = 20
            modes = [{objects}]
            {owner} = "some-objects"
            [[phase]]
            name = "images"
            workload = "io"
            size = "1m"
            bs = "64k"
            modes = [{images}]
            {owner} = "some-images"
            "#
        )
    };
    mesh.run(&plan("\"write\"", "\"write\"", "keep"));
    let kept = cluster.objects();
    let of = |set: &str| {
        kept.lines()
            .filter(|it| it.contains(&format!("data-{set}")))
            .count()
    };
    // Two clients: a state beside the objects of each, and the set's marker.
    assert_eq!(of("some-objects"), 43, "{kept}");
    assert!(of("some-images") > 2, "{kept}");
    let uses = mesh.run(&plan("\"seq\"", "\"read\"", "use"));
    let ops: Vec<String> = mesh.db().column(&format!(
        "SELECT s.mode || ' ' || ops || ' ' || errors FROM step_results JOIN steps AS s ON s.id = step_id
         WHERE s.run_id = {uses} ORDER BY s.id"
    ));
    assert_eq!(ops, ["seq 40 0", "read 32 0"]);
    for set in ["some-objects", "some-images"] {
        let removed = mesh.command(&["data", "remove", set, "--yes"]);
        assert_eq!(removed.code, 0, "{}", removed.all());
    }
    let left = cluster.objects();
    assert!(!left.contains("data-some"), "{left}");
}

fn check_reading_of_others(cluster: &Cluster) {
    let run = PoolRun {
        spec: PoolSpec::parse(&cluster.pool("bench", "admin")).unwrap(),
        mesh: "mesh".to_owned(),
        run: "others".to_owned(),
    };
    run.marker(true).unwrap().unwrap();
    let rados = |arguments: &[&str]| {
        let to_namespace = ["-c", cluster.fact("conf"), "-p", "bench", "-N"];
        let namespace = ["benchmesh.mesh.others"];
        must(
            "rados",
            &[&to_namespace[..], &namespace, arguments].concat(),
        );
    };
    // Neither task has written: each lays out its own objects, then waits for the other's.
    assert_eq!(errors_of_two(&run, "seq", 1), [0, 0]);
    let garbage = cluster.0.path().join("garbage");
    std::fs::write(&garbage, vec![b'x'; 8192]).unwrap();
    rados(&["put", "c1.t1.w1.3", garbage.to_str().unwrap()]);
    assert_eq!(errors_of_two(&run, "seq", 0), [0, 1]);
    assert_eq!(errors_of_two(&run, "seq", 1), [1, 0]);
    assert_eq!(errors_of_two(&run, "seq", 2), [0, 1], "modulo the tasks");
    assert_eq!(errors_of_two(&run, "stat", 1), [0, 0]);
    rados(&["rm", "c1.t1.w1.3"]);
    assert_eq!(errors_of_two(&run, "stat", 1), [1, 0]);
    assert_eq!(errors_of_two(&run, "stat", 0), [0, 1]);
    run.remove(&mut |_| ()).unwrap();
}

/// The errors of each of the two tasks of a step, which prepare and run at the same time.
fn errors_of_two(run: &PoolRun, mode: &str, reorder: u32) -> [u64; 2] {
    let mut params = json!({"size": "8k", "objects": 5, "numjobs": 2, "reorder-tasks": reorder});
    if mode == "seq" {
        params["verify"] = true.into();
    }
    let one = &|index| {
        let place = run.task("c1", index).unwrap().unwrap();
        let spec = TaskSpec {
            place: Some(Place::Pool(Arc::new(place))),
            task_index: index,
            tasks: 2,
            ..TaskSpec::new("objects", mode, params.as_object().unwrap().clone())
        };
        let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
        // A start that is in the past when this thread continues is refused, and another one is chosen.
        let soon = || MonoNanos::now().saturating_add(Duration::from_millis(20));
        while task.arm(soon()).is_err() {}
        let (mut ops, mut errors) = (0, 0);
        let end = task.run_to_end(&mut |interval| {
            ops += interval.ops;
            errors += interval.errors;
        });
        assert_eq!((end.state, ops + errors), (End::Done, 10), "{mode}");
        errors
    };
    thread::scope(|scope| {
        let tasks = [0, 1].map(|index| scope.spawn(move || one(index)));
        tasks.map(|task| task.join().unwrap())
    })
}

/// Images belong to their run, as `rbd` shows; another client's write to one is detected; an image that a client has
/// open is removed all the same, because those of a killed client must be.
fn check_images(cluster: &Cluster) {
    let run = PoolRun {
        spec: PoolSpec::parse(&cluster.pool("bench", "admin")).unwrap(),
        mesh: "mesh".to_owned(),
        run: "images".to_owned(),
    };
    run.marker(true).unwrap().unwrap();
    let namespace = "bench/benchmesh.mesh.images";
    let images = || cluster.rbd(&["ls", namespace]);
    let params = json!({"size": "10m", "bs": "64k", "iodepth": 4, "numjobs": 2});
    assert_eq!(ran(image_task(&run, "write", &params)), (320, 0));
    assert_eq!(images(), "c1.t0.w0.image\nc1.t0.w1.image\n");
    let image = format!("{namespace}/c1.t0.w1.image");
    assert!(cluster.rbd(&["info", &image]).contains("size 10 MiB"));
    let mut checked = params.clone();
    checked["verify"] = true.into();
    run.remove_cell("c1", 0, &mut |_| ()).unwrap();
    assert_eq!(images(), "");
    // The images are gone, so they are laid out again.
    assert_eq!(ran(image_task(&run, "randwrite", &checked)), (320, 0));
    assert_eq!(ran(image_task(&run, "read", &checked)), (320, 0));
    let damage = [
        "--io-type",
        "write",
        "--io-size",
        "64K",
        "--io-total",
        "64K",
    ];
    cluster.rbd(&[&["bench", &image][..], &damage].concat());
    assert_eq!(
        ran(image_task(&run, "randread", &checked)),
        (319, 1),
        "the damaged block"
    );
    let mut longer = checked.clone();
    longer["size"] = "12m".into();
    let open = image_task(&run, "rewrite", &longer);
    assert!(cluster.rbd(&["info", &image]).contains("size 12 MiB"));
    run.remove_cell("c1", 0, &mut |_| ()).unwrap();
    assert_eq!(images(), "");
    drop(open);
    let open = image_task(&run, "write", &longer);
    run.remove(&mut |_| ()).unwrap();
    drop(open);
}

/// A prepared task of `io` on the run's images.
fn image_task(run: &PoolRun, mode: &str, params: &serde_json::Value) -> Task {
    let place = run.task("c1", 0).unwrap().unwrap();
    let spec = TaskSpec {
        place: Some(Place::Pool(Arc::new(place))),
        ..TaskSpec::new("io", mode, params.as_object().unwrap().clone())
    };
    registry::prepare(&spec, &PrepareControl::silent()).unwrap()
}

/// The operations and the errors of a task.
fn ran(mut task: Task) -> (u64, u64) {
    let soon = || MonoNanos::now().saturating_add(Duration::from_millis(20));
    while task.arm(soon()).is_err() {}
    let (mut ops, mut errors) = (0, 0);
    let end = task.run_to_end(&mut |interval| {
        ops += interval.ops;
        errors += interval.errors;
    });
    assert_eq!(end.state, End::Done, "{:?}", end.error);
    (ops, errors)
}

/// The state that the cluster reported when the run began.
fn check_facts(db: &Database, run: i64) {
    for (name, value) in [
        ("osds", 3),
        ("osds_up", 3),
        ("mons", 1),
        ("pool.bench.size", 3),
    ] {
        let found: i64 = db.one(&format!(
            "SELECT value FROM facts WHERE run_id = {run} AND system = 'ceph' AND name = '{name}' ORDER BY at_us LIMIT 1"
        ));
        assert_eq!(found, value, "{name}");
    }
}

fn check_results(db: &Database, run: i64) {
    let results = db.rows(&format!(
        "SELECT phase, mode, op, system, clients, errors, ops_per_s, p99_ms FROM v_results WHERE run_id = {run}"
    ));
    assert_eq!(results.len(), 16, "{results:?}");
    for row in &results {
        assert_eq!(row.text("system"), "rados");
        assert_eq!(
            (row.integer("clients"), row.integer("errors")),
            (2, 0),
            "{row:?}"
        );
        assert!(
            row.number("ops_per_s") > 0.0 && row.number("p99_ms") > 0.0,
            "{row:?}"
        );
    }
    // Two clients with two workers of 100 objects each, in blocks of half an object.
    for (mode, ops) in [
        ("write", 800),
        ("seq", 800),
        ("rand", 800),
        ("stat", 400),
        ("omap", 400),
        ("delete", 400),
    ] {
        let done: i64 = db.one(&format!(
            "SELECT r.ops FROM step_results r JOIN steps s ON s.id = r.step_id
             WHERE s.run_id = {run} AND s.phase = 'small' AND s.mode = '{mode}'"
        ));
        assert_eq!(done, ops, "{mode}");
    }
    // Weights of 6, 3 and 1 out of 800 operations, within five standard deviations.
    let of_mix = |op: &str| -> i64 {
        db.one(&format!(
            "SELECT r.ops FROM step_results r JOIN steps s ON s.id = r.step_id
             WHERE s.run_id = {run} AND s.mode = 'mix' AND r.op = '{op}'"
        ))
    };
    let (reads, writes, stats) = (of_mix("read"), of_mix("write"), of_mix("stat"));
    assert_eq!(reads + writes + stats, 800);
    assert!(
        reads.abs_diff(480) < 70 && stats.abs_diff(80) < 43,
        "{reads} {writes} {stats}"
    );
    // The same, in images of 128 blocks.
    for mode in ["write", "randread", "randwrite", "read"] {
        let done: i64 = db.one(&format!(
            "SELECT r.ops FROM step_results r JOIN steps s ON s.id = r.step_id
             WHERE s.run_id = {run} AND s.phase = 'images' AND s.mode = '{mode}'"
        ));
        assert_eq!(done, 512, "{mode}");
    }
    for osd in 0..3 {
        let cpu: f64 = db.one(&format!(
            "SELECT sum(u.cpu_s) FROM v_daemon_usage u JOIN steps s ON s.id = u.step_id
             WHERE s.run_id = {run} AND u.name = 'ceph-osd' AND u.instance = 'osd.{osd}'"
        ));
        assert!(cpu > 0.0, "osd.{osd}: {cpu} s");
    }
    check_client_cpu(db, run);
    let named: i64 = db.one(&format!(
        "SELECT count(*) FROM run_targets WHERE run_id = {run} AND mount_source LIKE '%:bench'
         AND mount_options LIKE '%,librbd=%'"
    ));
    assert_eq!(
        named, 2,
        "both clients name the cluster, the pool and the library"
    );
}
