//! The engine `stdio`: whole passes through tasks on real files, compared with the content on disk.

use super::*;
use crate::testing::{TestCell, Tmpfs, expect_mismatches, flip};
use benchmesh_testing::scheduled;
use std::os::unix::fs::FileExt;

fn cell() -> TestCell {
    TestCell::new("io")
}

fn file(cell: &TestCell, worker: u32) -> PathBuf {
    cell.task_dir().join(format!("w{worker}.dat"))
}

/// 50000 bytes are twelve buffers of 4 KiB and 848 bytes.
fn params() -> Value {
    json!({"size": 50_000, "numjobs": 2, "bs": 1000, "seeks": 100})
}

#[test]
fn every_mode_moves_each_byte_once() {
    let cell = cell();
    cell.run("putc", params())
        .expect(&[(Op::Putc, 26, 100_000)]);
    let written = fs::read(file(&cell, 1)).unwrap();
    assert_eq!(written.len(), 50_000);
    assert_ne!(written, fs::read(file(&cell, 0)).unwrap());
    cell.run("getc", params())
        .expect(&[(Op::Getc, 26, 100_000)]);
    cell.run("fread", params())
        .expect(&[(Op::Fread, 20, 100_000)]);
    assert_eq!(fs::read(file(&cell, 1)).unwrap(), written);
    cell.run("rmw", params())
        .expect(&[(Op::Rewrite, 26, 100_000)]);
    let changed = fs::read(file(&cell, 1)).unwrap();
    assert_eq!(changed.len(), 50_000);
    for (old, new) in written.chunks(4096).zip(changed.chunks(4096)) {
        assert_ne!(old, new, "each buffer is another one");
    }
    cell.run("fwrite", params())
        .expect(&[(Op::Fwrite, 20, 100_000)]);
    assert_eq!(fs::read(file(&cell, 1)).unwrap().len(), 50_000);
    let outcome = cell.run("seek", params());
    let (ops, bytes, errors) = outcome.of(Op::Seek);
    assert_eq!((ops, errors), (200, 0));
    let rewritten = (bytes - 200_000) / 1000;
    assert!((3..60).contains(&rewritten), "a tenth of 200: {rewritten}");
}

#[test]
fn what_is_counted_is_written_when_the_time_is_over() {
    measured(|| {
        let cell = cell();
        let params = json!({
            "size": "64m", "bs": 5000, "buffer": "4k", "numjobs": 2, "rate_iops": 100, "runtime": "200ms"
        });
        let outcome = cell.run("fwrite", params);
        let (ops, bytes, errors) = outcome.of(Op::Fwrite);
        assert_eq!(errors, 0, "{outcome:?}");
        scheduled(ops, 10..=40)?;
        let written = [0, 1].map(|worker| fs::metadata(file(&cell, worker)).unwrap().len());
        assert_eq!((bytes, written[0] + written[1]), (ops * 5000, bytes));
        Ok(())
    });
}

#[test]
fn passes_and_seeks_are_counted_or_ended_by_time_whichever_comes_first() {
    let cell = cell();
    let run = |mode: &str, more: Value| {
        let mut params = params();
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        let footprint = IO.check(mode, params.as_object().unwrap()).unwrap();
        (cell.run(mode, params), footprint.moved_bytes)
    };
    run("putc", json!({})).0.expect(&[(Op::Putc, 26, 100_000)]);
    let written = fs::read(file(&cell, 1)).unwrap();
    for (mode, op, ops) in [
        ("getc", Op::Getc, 26),
        ("fread", Op::Fread, 20),
        ("rmw", Op::Rewrite, 26),
    ] {
        for more in [json!({"loops": 3}), json!({"loops": 3, "runtime": "1h"})] {
            let (outcome, moved) = run(mode, more);
            outcome.expect(&[(op, 3 * ops, 300_000)]);
            assert_eq!(moved, 300_000);
        }
        let (outcome, _) = run(mode, json!({"loops": 1_000_000_000, "runtime": "150ms"}));
        let ran = outcome.end.ended.since(outcome.end.planned_start);
        assert!(
            outcome.end.state == End::Done && ran.as_millis() >= 150,
            "{mode}: {ran:?}"
        );
    }
    assert_eq!(fs::read(file(&cell, 1)).unwrap().len(), written.len());
    for more in [json!({}), json!({"runtime": "1h"})] {
        let (outcome, _) = run("seek", more);
        assert_eq!(
            (outcome.of(Op::Seek).0, outcome.end.state),
            (200, End::Done)
        );
    }
    let (outcome, _) = run("seek", json!({"seeks": 1_000_000_000, "runtime": "150ms"}));
    assert!(
        outcome
            .end
            .ended
            .since(outcome.end.planned_start)
            .as_millis()
            >= 150
    );
    // The passes after the first overwrite the new file.
    run("fwrite", json!({"loops": 3}))
        .0
        .expect(&[(Op::Fwrite, 60, 300_000)]);
    assert_eq!(fs::read(file(&cell, 1)).unwrap().len(), written.len());
}

#[test]
fn a_mode_without_its_file_lays_it_out_and_timed_ones_repeat() {
    for mode in ["getc", "rmw", "fread", "seek"] {
        let cell = cell();
        let timed = json!({"size": 20_000, "bs": 100, "runtime": "150ms"});
        let outcome = cell.run(mode, timed);
        assert_eq!(outcome.end.state, End::Done, "{:?}", outcome.end);
        let ran = outcome.end.ended.since(outcome.end.planned_start);
        assert!(ran.as_millis() >= 150, "{mode}: {ran:?}");
        assert_eq!(fs::metadata(file(&cell, 0)).unwrap().len(), 20_000);
    }
}

#[test]
fn a_file_that_ends_early_is_a_counted_error() {
    let cell = cell();
    cell.run("putc", params());
    let spec = cell.spec("getc", params());
    let task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    // A preparation would lay out the missing data.
    fs::File::options()
        .write(true)
        .open(file(&cell, 1))
        .unwrap()
        .set_len(40_000)
        .unwrap();
    let outcome = crate::testing::run_prepared(task);
    let (ops, bytes, errors) = outcome.of(Op::Getc);
    // Nine whole buffers can be read; the other four cannot.
    assert_eq!((ops, bytes, errors), (13 + 9, 50_000 + 9 * 4096, 4));
    assert!(
        outcome.end.errors[0].first.contains("w1.dat at offset"),
        "{:?}",
        outcome.end.errors
    );
}

#[test]
fn a_full_target_ends_it_with_the_reason() {
    let Some(tmpfs) = Tmpfs::mount(256) else {
        return;
    };
    let cell = TestCell::beneath("io", &tmpfs.path);
    for mode in ["putc", "fwrite"] {
        let outcome = cell.run(mode, json!({"size": "1m"}));
        assert_eq!(outcome.end.state, End::Failed);
        assert!(outcome.end.error.unwrap().contains("no space left"));
    }
}

fn verified() -> Value {
    json!({"size": "256k", "numjobs": 2, "seeks": 100, "verify": true, "data": {"compress": 50}})
}

#[test]
fn what_was_written_is_found_again_whatever_wrote_it() {
    let cell = cell();
    // Each mode lays out the data it lacks, then reads what the mode before it has left.
    for mode in [
        "fread", "putc", "getc", "seek", "getc", "rmw", "fread", "seek", "rmw", "getc", "fwrite",
        "seek",
    ] {
        let outcome = cell.run(mode, verified());
        assert_eq!(
            (outcome.end.state, &outcome.end.errors[..]),
            (End::Done, &[][..]),
            "{mode}"
        );
    }
    let mut timed = verified();
    timed["runtime"] = json!("150ms");
    for mode in ["rmw", "seek", "getc"] {
        let outcome = cell.run(mode, timed.clone());
        assert_eq!(outcome.end.errors, [], "{mode}");
    }
}

#[test]
fn every_flipped_bit_is_an_error_at_its_offset() {
    for (mode, op) in [
        ("getc", Op::Getc),
        ("fread", Op::Fread),
        ("rmw", Op::Rewrite),
        ("seek", Op::Seek),
    ] {
        let cell = cell();
        // This number of seeks reaches every place. None writes back, so that each place is verified each time.
        let mut params = verified();
        params["seeks"] = json!(2000);
        params["rewrite-share"] = json!(0);
        cell.run("putc", params.clone());
        let flipped = [5000, 90_000, 262_143];
        flip(&file(&cell, 1), &flipped);
        let outcome = cell.run(mode, params.clone());
        let [error] = &outcome.end.errors[..] else {
            panic!("{mode}: {:?}", outcome.end.errors)
        };
        assert_eq!(error.errno, libc::EBADMSG);
        for at in flipped {
            let place = format!("w1.dat at offset {at}: ");
            assert!(
                mode == "seek" || error.first.contains(&place),
                "{mode} {at}: {}",
                error.first
            );
        }
        let (_, _, errors) = outcome.of(op);
        assert_eq!(errors, error.count);
        match mode {
            "seek" => assert!(
                (90..300).contains(&errors),
                "3 of 32 records, 2000 times: {errors}"
            ),
            _ => assert_eq!(errors, 3, "{mode}"),
        }
        // Overwritten blocks are valid again; blocks that were only read are not.
        let (_, _, errors) = cell.run("getc", params).of(Op::Getc);
        assert_eq!(errors, if mode == "rmw" { 0 } else { 3 }, "{mode}");
    }
}

#[test]
fn every_wrong_sector_of_an_operation_is_counted() {
    for (mode, op) in [
        ("getc", Op::Getc),
        ("fread", Op::Fread),
        ("seek", Op::Seek),
        ("rmw", Op::Rewrite),
    ] {
        let cell = cell();
        let params = json!({
            "size": "256k", "buffer": "64k", "bs": "64k", "seeks": 200, "rewrite-share": 0, "verify": true
        });
        cell.run("putc", params.clone());
        // Three sectors in the first operation's block, one in the last one's.
        flip(&file(&cell, 0), &[5000, 5001, 9000, 65_535, 262_143]);
        let outcome = cell.run(mode, params);
        let (_, _, errors) = outcome.of(op);
        if mode == "seek" {
            // The seeks hit each place several times, one with three wrong sectors and one with a single one.
            let wrong = outcome.end.errors[0].count;
            assert!(wrong > errors && wrong < 3 * errors, "{wrong} {errors}");
            assert_eq!((wrong - errors) % 2, 0);
            continue;
        }
        assert_eq!(errors, 2, "{mode}");
        let places = ["at offset 5000: ", "at offset 9000: ", "at offset 65535: "];
        expect_mismatches(&outcome.end, 4, &places);
    }
}

#[test]
fn a_lost_write_is_found() {
    let cell = cell();
    cell.run("fwrite", verified());
    let before = fs::read(file(&cell, 0)).unwrap();
    cell.run("rmw", verified());
    let kept = fs::File::options()
        .write(true)
        .open(file(&cell, 0))
        .unwrap();
    kept.write_all_at(&before[8192..12_288], 8192).unwrap();
    // Simulates a write of the other file's block here.
    let other = fs::read(file(&cell, 1)).unwrap();
    kept.write_all_at(&other[40_960..45_056], 40_960).unwrap();
    let outcome = cell.run("getc", verified());
    let error = &outcome.end.errors[0];
    assert_eq!(error.count, 2, "{error:?}");
    for part in [
        "at offset 8192: found what was written to file 0 at offset 8192 as generation 1",
        "at offset 40960: found what was written to file 1 at offset 40960 as generation 2",
    ] {
        assert!(error.first.contains(part), "{}", error.first);
    }
}

#[test]
fn parameters_are_checked() {
    let check = |mode: &str, params: Value| IO.check(mode, params.as_object().unwrap());
    let footprint = check("seek", params()).unwrap();
    assert_eq!((footprint.workers, footprint.moved_bytes), (2, 200_000));
    for (bad, key) in [
        (json!({"size": 0}), "size"),
        (json!({"size": "1m", "buffer": 0}), "buffer"),
        (json!({"size": "1m", "bs": 0}), "bs"),
        (json!({"bs": "8k", "size": "4k"}), "bs"),
        (json!({"size": "1m", "seeks": 0}), "seeks"),
        (json!({"size": "1m", "rewrite-share": 101}), "rewrite-share"),
        (json!({"verify": true, "size": "64k", "bs": 1000}), "verify"),
        (
            json!({"verify": true, "size": "1m", "data": "zero"}),
            "verify",
        ),
        (json!({"size": "1m", "numjobs": 0}), "numjobs"),
    ] {
        let error = check("seek", bad.clone()).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{bad}: {error}");
    }
    for mode in ["getc", "fread", "rmw"] {
        let error = check(mode, json!({"verify": true, "size": 50_000})).unwrap_err();
        assert_eq!(error.key.as_deref(), Some("verify"), "{mode}");
    }
}

/// iozone's frewrite: the file stays, and its content changes.
#[test]
fn frewrite_writes_over_the_existing_file() {
    let cell = cell();
    cell.run("fwrite", params())
        .expect(&[(Op::Fwrite, 20, 100_000)]);
    let (written, inode) = (fs::read(file(&cell, 1)).unwrap(), inode_of(&file(&cell, 1)));
    cell.run("frewrite", params())
        .expect(&[(Op::Fwrite, 20, 100_000)]);
    let rewritten = fs::read(file(&cell, 1)).unwrap();
    assert_eq!(
        (rewritten.len(), inode_of(&file(&cell, 1))),
        (50_000, inode)
    );
    assert_ne!(rewritten, written);
    let verified = json!({"size": 65_536, "bs": 8192, "verify": true, "loops": 2});
    for mode in ["frewrite", "fread", "frewrite", "fread"] {
        let outcome = cell.run(mode, verified.clone());
        assert_eq!(outcome.sum(|it| it.errors), 0, "{mode}");
    }
}

fn inode_of(path: &std::path::Path) -> u64 {
    std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap())
}

/// bonnie++'s rewrite: a block with one byte changed.
#[test]
fn a_rewrite_of_one_byte_changes_one_byte_of_each_buffer() {
    let cell = cell();
    let params = json!({"size": 50_000, "buffer": 8192, "change": "one"});
    cell.run("putc", params.clone());
    let written = fs::read(file(&cell, 0)).unwrap();
    cell.run("rmw", params).expect(&[(Op::Rewrite, 7, 50_000)]);
    let rewritten = fs::read(file(&cell, 0)).unwrap();
    let changed = written.chunks(8192).zip(rewritten.chunks(8192));
    for (old, new) in changed {
        let differing = old.iter().zip(new).filter(|(old, new)| old != new);
        assert_eq!(differing.count(), 1);
    }
}

/// bonnie++'s seekers: several on one file, after its other modes.
#[test]
fn seekers_share_a_file() {
    let cell = cell();
    let shared = |more: Value| {
        let mut params = json!({
            "size": 50_000, "bs": 1000, "seeks": 40, "numjobs": 5, "file-per": "task", "ranges": "whole"
        });
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        params
    };
    let footprint = IO
        .check("seek", shared(json!({})).as_object().unwrap())
        .unwrap();
    assert_eq!(
        (footprint.workers, footprint.files, footprint.bytes),
        (5, 1, 50_000)
    );
    let outcome = cell.run("seek", shared(json!({})));
    let (ops, _, errors) = outcome.of(Op::Seek);
    assert_eq!((ops, errors, outcome.end.workers), (200, 0, 5));
    let made = fs::metadata(cell.task_dir().join("shared.dat")).unwrap();
    assert_eq!(made.len(), 50_000);
    // Segments of a file can be read and written as streams.
    let segments = shared(json!({"ranges": "segmented", "size": 10_000}));
    for (mode, op) in [("putc", Op::Putc), ("getc", Op::Getc)] {
        cell.run(mode, segments.clone())
            .expect(&[(op, 5 * 3, 50_000)]);
    }
    for (mode, params, key) in [
        (
            "seek",
            shared(json!({"size": "64k", "bs": "4k", "verify": true})),
            "verify",
        ),
        (
            "rmw",
            json!({"size": "64k", "change": "one", "verify": true}),
            "verify",
        ),
        ("getc", shared(json!({"ranges": "strided"})), "ranges"),
        ("putc", json!({"size": "64k", "direct": true}), "direct"),
        ("getc", json!({"size": "64k", "iodepth": 2}), "iodepth"),
        (
            "getc",
            json!({"size": "64k", "ioengine": "psync"}),
            "ioengine",
        ),
        (
            "read",
            json!({"size": "64k", "ioengine": "stdio"}),
            "ioengine",
        ),
        (
            "fread",
            json!({"size": "64k", "bssplit": "4k/100"}),
            "bssplit",
        ),
        ("putc", json!({"size": "1k", "buffer": "4k"}), "buffer"),
    ] {
        let refused = IO.check(mode, params.as_object().unwrap()).unwrap_err();
        assert_eq!(refused.key.as_deref(), Some(key), "{mode} {params}");
    }
    let named = json!({"size": "64k", "ioengine": "stdio"});
    assert!(IO.check("getc", named.as_object().unwrap()).is_ok());
}

/// The engines share one file: a phase may run every bonnie++ test on it.
#[test]
fn other_engines_read_what_was_put_and_the_other_way_round() {
    let cell = cell();
    let params = json!({
        "size": "256k", "bs": "16k", "buffer": "8k", "numjobs": 2, "seeks": 100, "verify": true
    });
    for mode in [
        "putc",
        "read",
        "write",
        "getc",
        "rmw",
        "randread",
        "randwrite",
        "seek",
        "fread",
    ] {
        let outcome = cell.run(mode, params.clone());
        assert_eq!(
            (outcome.end.state, &outcome.end.errors[..]),
            (End::Done, &[][..]),
            "{mode}"
        );
    }
    let mut cut = params.clone();
    (cut["rate_iops"], cut["runtime"]) = (json!(50), json!("100ms"));
    for mode in ["rmw", "seek", "randwrite"] {
        cell.run(mode, cut.clone());
        for reader in ["read", "fread", "getc"] {
            let outcome = cell.run(reader, params.clone());
            assert_eq!(outcome.end.errors, [], "{reader} after a part of {mode}");
        }
    }
}
