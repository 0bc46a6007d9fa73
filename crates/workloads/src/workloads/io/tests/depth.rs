//! Many operations in flight, through io_uring and through the threads of the fallback.

use super::super::ring::Ring;
use super::*;
use crate::measure::recorder::{ErrorCount, Settings, pair};
use crate::registry;
use crate::target::data::{DataSpec, EntropyPool};
use benchmesh_testing::{measured, scheduled, timing};

/// Installs a seccomp filter that refuses `io_uring_setup`, in the calling thread and the threads that it starts.
fn forbid_io_uring() {
    let [read_number, equal, give] = [
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    ]
    .map(|code| u16::try_from(code).unwrap());
    let statement = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let setup = u32::try_from(libc::SYS_io_uring_setup).unwrap();
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned();
    let mut filter = [
        statement(read_number, 0, 0, 0),
        statement(equal, setup, 0, 1),
        statement(give, refuse, 0, 0),
        statement(give, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog {
        len: 4,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program is valid for both calls, which affect this thread alone.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program),
            0
        );
    }
}

#[test]
fn each_mode_counts_every_block_at_any_depth() {
    let scene = Scene::new();
    for (depth, direct, fsync) in [(1, false, 0), (4, true, 16), (1024, false, 0)] {
        let params = json!({
            "size": "140k", "bs": "4k", "numjobs": 2, "fsync": fsync, "direct": direct,
            "iodepth": depth, "ioengine": "io_uring", "loops": 2,
        });
        for mode in block_modes() {
            let (end, intervals) = scene.run(mode.name, params.clone());
            let place = format!("{} at {depth}", mode.name);
            assert_eq!((end.state, &end.error), (End::Done, &None), "{place}");
            assert_eq!(totals(&intervals), (140, 140 * 4096, 0), "{place}");
            assert!(intervals.iter().all(|it| mode.ops.contains(&it.op)));
            assert_eq!(fs::metadata(scene.file(1)).unwrap().len(), 35 * 4096);
        }
    }
}

/// Each block comes from the pool, or from a copy if its place in the pool was in use.
#[test]
fn each_block_is_the_pools_at_its_offset_with_a_stamp_of_its_own() {
    let scene = Scene::new();
    for (direct, variety) in [(true, 1 << 20), (false, 256 << 10)] {
        let params = json!({
            "size": "4m", "bs": "4k", "direct": direct, "iodepth": 64, "ioengine": "io_uring",
        });
        let (end, _) = scene.run("randwrite", params);
        assert_eq!((end.state, &end.error), (End::Done, &None));
        let content = Content::new(DataSpec::default(), 1);
        let pool = EntropyPool::with_variety(&content, 4096, variety);
        let mut pooled = vec![0; pool.length()];
        pool.fill(&content, &mut pooled);
        let written = fs::read(scene.file(0)).unwrap();
        let mut stamps = HashSet::new();
        for (block, offset) in written.chunks_exact(4096).zip((0..).step_by(4096)) {
            let from = pool.at(0, offset);
            assert_eq!(block[8..], pooled[from + 8..from + 4096], "{offset}");
            assert!(stamps.insert(&block[..8]), "{offset}");
        }
        assert_eq!(stamps.len(), 1024);
    }
}

#[test]
fn no_two_slots_share_a_page_of_the_pool() {
    let file = tempfile::tempfile().unwrap();
    let mut ring = Ring::open(file.into(), 3, 8192, 64 << 10).unwrap();
    assert!(ring.claim(0, 4096, 8192));
    assert!(!ring.claim(1, 8192 + 512, 512), "its page is in use");
    assert!(!ring.claim(1, 60 << 10, 8192), "it ends beyond the pool");
    assert!(ring.claim(1, 12_288, 8192));
    let [first, second] = [0, 1].map(|slot| ring.block(slot, 8192).as_ptr().addr());
    assert_eq!(second - first, 8192);
    ring.block(0, 8192).fill(7);
    ring.copy_from_pool(2, 8192, 512);
    assert_eq!(ring.block(2, 513)[511..], [7, 0]);
    ring.release(0);
    assert!(ring.claim(2, 8192, 512));
    assert_eq!(ring.block(2, 512), [7; 512]);
    assert!(ring.block(2, 513).is_empty(), "more than it has claimed");
}

/// In memory, operations run one at a time and a note says so, unless the plan names an engine. On a disk the plan's
/// depth applies.
#[test]
fn memory_is_read_one_block_at_a_time() {
    let notes = |target: &Path, engine: Option<&str>| {
        let root = tempfile::tempdir_in(target).unwrap();
        let scene = Scene {
            run: Scene::run_at(root.path()),
            _root: Some(root),
        };
        let mut params = json!({"size": "128k", "bs": "4k", "iodepth": 8});
        if let Some(engine) = engine {
            params["ioengine"] = json!(engine);
        }
        let spec = scene.spec("randread", params);
        let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
        let notes = task.notes();
        arm_soon(&mut task);
        let mut intervals = Vec::new();
        let end = task.run_to_end(&mut |interval| intervals.push(interval));
        assert_eq!((end.state, &end.error), (End::Done, &None));
        assert_eq!(totals(&intervals), (32, 32 * 4096, 0));
        let kinds = notes.into_iter().map(|note| note.kind.as_str());
        kinds.collect::<Vec<_>>()
    };
    let memory = Path::new("/dev/shm");
    assert_eq!(notes(memory, None), ["engine-psync"]);
    assert_eq!(notes(memory, Some("io_uring")), [""; 0]);
    assert_eq!(notes(Path::new("/var/tmp"), None), [""; 0]);
}

#[test]
fn what_is_written_at_depth_stands_where_it_belongs() {
    let scene = Scene::new();
    // All 4 KiB blocks of a laid-out file differ from each other, and a pass of writes changes every one.
    let params = json!({"size": "4m", "bssplit": "4k/70:32k/30", "iodepth": 32, "offset": "16k"});
    scene.run("read", params.clone());
    let before = fs::read(scene.file(0)).unwrap();
    scene.run("rewrite", params);
    let after = fs::read(scene.file(0)).unwrap();
    assert_eq!(after.len(), before.len());
    let pages = || before.chunks(4096).zip(after.chunks(4096));
    assert!(pages().take(4).all(|(before, after)| before == after));
    assert!(pages().skip(4).all(|(before, after)| before != after));
    let all: HashSet<&[u8]> = after.chunks(4096).collect();
    assert_eq!(all.len(), after.len() / 4096);
}

#[test]
fn blocks_beyond_the_end_are_an_error_each_with_their_place() {
    let scene = Scene::new();
    let params = json!({"size": "400k", "bs": "4k", "iodepth": 16});
    let spec = scene.spec("randread", params);
    let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    let file = fs::File::options().write(true).open(scene.file(0)).unwrap();
    file.set_len(5000).unwrap();
    arm_soon(&mut task);
    let mut intervals = Vec::new();
    let end = task.run_to_end(&mut |interval| intervals.push(interval));
    assert_eq!((end.state, totals(&intervals)), (End::Done, (1, 4096, 99)));
    let [
        ErrorCount {
            errno,
            count,
            first,
            ..
        },
    ] = &end.errors[..]
    else {
        panic!("{:?}", end.errors)
    };
    assert_eq!((*errno, *count), (libc::ENODATA, 99));
    assert!(first.starts_with("read w0.dat at offset "), "{first}");
}

#[test]
fn a_full_target_stops_it_and_nothing_is_left_in_flight() {
    let Some(small) = SmallFileSystem::mount() else {
        return;
    };
    let scene = Scene {
        _root: None,
        run: Scene::run_at(small.0.path()),
    };
    let params = json!({"size": "8m", "bs": "64k", "iodepth": 8});
    let (end, intervals) = scene.run("write", params);
    assert_eq!(end.state, End::Failed);
    assert!(end.error.unwrap().contains("no space left: write w0.dat"));
    let (_, bytes, errors) = totals(&intervals);
    assert!(
        bytes > 1 << 20 && (1..=8).contains(&errors),
        "{bytes} {errors}"
    );
}

#[test]
fn a_rate_is_kept_at_depth_and_a_runtime_ends_it() {
    measured(|| {
        let scene = Scene::new();
        let params = json!({
            "size": "1m", "iodepth": 8, "rate_iops": 400, "runtime": "500ms", "ramp_time": "100ms",
        });
        let (end, intervals) = scene.run("randread", params);
        assert_eq!(end.state, End::Done);
        let counted = |ramp| {
            let of_kind = intervals.iter().filter(|it| it.ramp == ramp);
            of_kind.map(|it| it.ops).sum::<u64>()
        };
        let all = counted(true) + counted(false);
        scheduled(all, 150..=240)?;
        // An operation that is due in the ramp and ends after it counts as after it.
        timing!((100..=205).contains(&counted(false)), "{}", counted(false));
        let response = intervals.iter().filter_map(|it| it.response.as_ref());
        // All that were due, issued or not.
        assert_eq!(response.map(|it| it.count()).sum::<u64>(), 240);
        Ok(())
    });
}

#[test]
fn a_kernel_that_forbids_io_uring_is_told_or_replaced_by_threads() {
    let scene = Scene::new();
    let params = json!({"size": "64k", "bs": "4k", "iodepth": 4, "numjobs": 2, "loops": 3});
    let mut allowed = params.clone();
    allowed["ioengine-fallback"] = json!("psync");
    let refused = scene.spec("randrw", params);
    let replaced = scene.spec("randrw", allowed.clone());
    let mut paced = allowed;
    paced["rate_iops"] = json!(400);
    let paced = scene.spec("randrw", paced);
    let outcome = std::thread::spawn(move || {
        forbid_io_uring();
        let error = registry::prepare(&refused, &PrepareControl::silent()).unwrap_err();
        let task = registry::prepare(&replaced, &PrepareControl::silent()).unwrap();
        (
            crate::error_chain(&error),
            task.notes(),
            run(&replaced),
            run(&paced),
        )
    });
    let (error, notes, (end, intervals), (paced, _)) = outcome.join().unwrap();
    for part in [
        "refuses io_uring",
        "seccomp",
        "ioengine-fallback = \"psync\"",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let [note] = &notes[..] else {
        panic!("{notes:?}")
    };
    assert_eq!(note.kind.as_str(), "engine-fallback");
    assert!(
        note.message.contains("4 threads per file"),
        "{}",
        note.message
    );
    assert_eq!((end.state, end.workers), (End::Done, 8));
    assert_eq!(totals(&intervals), (96, 96 * 4096, 0));
    // 48 operations per file at 400 per second, with any number of threads.
    let took = paced.ended.since(paced.planned_start);
    assert!(took.as_millis() >= 110, "{took:?}");

    let spec = scene.spec("read", json!({"size": "64k", "iodepth": 4}));
    let task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    assert_eq!(task.notes(), []);
}

/// Threads that share a file may or may not leave holes; this test makes sure that they do.
#[test]
fn what_threads_that_share_a_file_have_left_out_is_laid_out() {
    measured(|| {
        let scene = Scene::new();
        let params = json!({
            "size": "1m", "iodepth": 4, "ioengine-fallback": "psync", "rate_iops": 100, "runtime": "100ms", "verify": true
        });
        let write = scene.spec("write", params.clone());
        let written = std::thread::spawn(move || {
            forbid_io_uring();
            run(&write)
        });
        let (end, intervals) = written.join().unwrap();
        let (ops, _, _) = totals(&intervals);
        assert_eq!((end.workers, &end.errors[..]), (4, &[][..]));
        scheduled(ops, 4..=20)?;
        let file = fs::File::options().write(true).open(scene.file(0)).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[0; 4096], 4096).unwrap();
        let params = json!({"size": "1m", "verify": true});
        for _ in 0..2 {
            let (end, intervals) = scene.run("read", params.clone());
            assert_eq!((totals(&intervals).0, &end.errors[..]), (256, &[][..]));
        }
        let before = fs::metadata(scene.file(0)).unwrap();
        scene.run("reread", params);
        let after = fs::metadata(scene.file(0)).unwrap();
        assert_eq!(
            before.modified().unwrap(),
            after.modified().unwrap(),
            "laid out once"
        );
        Ok(())
    });
}

#[test]
fn whose_turn_it_is_among_threads_is_no_part_of_an_operation() {
    measured(|| {
        let scene = Scene::new();
        let spec = scene.spec(
            "read",
            json!({"size": "32m", "iodepth": 1024, "ioengine-fallback": "psync"}),
        );
        let load = std::thread::spawn(move || {
            forbid_io_uring();
            IO.load(&spec).unwrap().load
        });
        let load = load.join().unwrap();
        assert_eq!(load.issue().shards, 1024);
        load.prepare(&PrepareControl::silent()).unwrap();
        let mut worker = load.worker(0).unwrap();
        let (mut recorder, consumer) = pair(Settings::of(&[Op::Read]));
        let start = MonoNanos::now();
        recorder.set_start(start);
        worker.run(&mut recorder).unwrap();
        let took = MonoNanos::now().since(start).as_secs_f64();
        assert_eq!(recorder.finish(), []);
        let (mut ops, mut served) = (0, 0.0);
        consumer.take(&mut |buffer| {
            ops += buffer.series[0].service.count();
            // By the median: a preemption of this thread affects one operation.
            served += buffer.series[0].service.count() as f64
                * buffer.series[0].service.quantile(0.5) as f64
                / 1e9;
        });
        assert_eq!(ops, 8);
        // Each thread skips 1023 blocks of others for each of its own.
        timing!(served < took / 2.0, "{served} s of {took} s");
        Ok(())
    });
}
