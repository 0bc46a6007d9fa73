//! Verified blocks: wrong data is found wherever it is.

use super::*;
use crate::registry;
use crate::testing::{expect_mismatches, flip};
use std::os::unix::fs::FileExt;

const EVERY: [&str; 7] = [
    "write",
    "read",
    "randwrite",
    "randread",
    "rewrite",
    "backread",
    "strideread",
];

#[test]
fn what_was_written_is_found_again_in_every_mode() {
    for more in [
        json!({}),
        json!({"iodepth": 16}),
        json!({"direct": 1, "bs": "16k"}),
    ] {
        let scene = Scene::new();
        let mut params =
            json!({"size": "512k", "numjobs": 2, "verify": true, "data": {"compress": 50}});
        params
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        for mode in EVERY.into_iter().chain(["recrewrite", "read"]) {
            let (end, intervals) = scene.run(mode, params.clone());
            assert_eq!(
                (end.state, &end.errors[..]),
                (End::Done, &[][..]),
                "{mode} {params}"
            );
            assert_eq!(totals(&intervals).1, 1 << 20);
        }
        if params.get("iodepth").is_none() {
            for mode in ["rw", "randrw", "read"] {
                let (end, _) = scene.run(mode, params.clone());
                assert_eq!(end.errors, [], "{mode} {params}");
            }
        }
    }
}

#[test]
fn every_flipped_bit_is_an_error_at_its_offset() {
    for depth in [1, 8] {
        let scene = Scene::new();
        let params = json!({"size": "1m", "verify": true, "iodepth": depth});
        scene.run("write", params.clone());
        let flipped = [5000, 90_000, 90_001, 1_048_575];
        flip(&scene.file(0), &flipped);
        let (end, intervals) = scene.run("randread", params);
        assert_eq!(totals(&intervals), (253, 253 * 4096, 3));
        let places = [5000, 90_000, 1_048_575].map(|at| format!("at offset {at}: "));
        expect_mismatches(&end, 3, &places);
    }
}

#[test]
fn every_wrong_sector_of_a_block_is_counted() {
    for depth in [1, 8] {
        let scene = Scene::new();
        let params = json!({"size": "1m", "bs": "256k", "verify": true, "iodepth": depth});
        scene.run("write", params.clone());
        // Four sectors in the first block, one in the last.
        let flipped = [5000, 5001, 9000, 65_536, 262_143, 1_048_575];
        flip(&scene.file(0), &flipped);
        let (end, intervals) = scene.run("read", params);
        assert_eq!(totals(&intervals), (2, 2 * (256 << 10), 2));
        let places = ["at offset 5000: ", "at offset 9000: ", "at offset 65536: "];
        expect_mismatches(&end, 5, &places);
    }
}

#[test]
fn a_lost_write_is_found_once_all_was_written_again() {
    let scene = Scene::new();
    let params = json!({"size": "256k", "verify": true});
    scene.run("write", params.clone());
    let before = fs::read(scene.file(0)).unwrap();
    scene.run("rewrite", params.clone());
    let file = fs::File::options().write(true).open(scene.file(0)).unwrap();
    // Simulates a storage that has kept the block of the first mode.
    file.write_all_at(&before[8192..12_288], 8192).unwrap();
    let (end, _) = scene.run("read", params);
    assert_eq!(end.errors.len(), 1, "{:?}", end.errors);
    let first = &end.errors[0].first;
    assert!(
        first.contains("at offset 8192: found what was written"),
        "{first}"
    );
    assert!(first.contains("as generation 1"), "{first}");
}

#[test]
fn a_mode_that_ends_in_its_midst_leaves_two_generations_that_are_both_right() {
    let scene = Scene::new();
    let params = json!({"size": "256k", "verify": true});
    scene.run("write", params.clone());
    let mut half = params.clone();
    half["io_size"] = json!("128k");
    scene.run("randwrite", half);
    let (end, _) = scene.run("read", params);
    assert_eq!(end.errors, []);
}

#[test]
fn blocks_of_a_mix_may_be_read_in_another_cut_than_they_were_written_in() {
    for depth in [1, 8] {
        let scene = Scene::new();
        let params = json!({
            "size": "1m", "bssplit": "4k/50:16k/40:64k/10", "verify": true, "iodepth": depth, "loops": 2
        });
        let mut half = params.clone();
        half.as_object_mut().unwrap().remove("loops");
        half["io_size"] = json!("512k");
        let clean = |mode: &str, params: &Value| {
            let (end, intervals) = scene.run(mode, params.clone());
            assert_eq!(end.errors, [], "{mode} at {depth}");
            assert!(totals(&intervals).1 >= 512 << 10, "{mode} at {depth}");
        };
        // A part of it is written, and the rest is laid out.
        clean("write", &half);
        clean("read", &params);
        clean("randwrite", &half);
        clean("randread", &params);
        if depth == 1 {
            clean("randrw", &params);
            clean("rw", &params);
        }
        let flipped = [5000, 90_000, 1_048_575];
        flip(&scene.file(0), &flipped);
        half["io_size"] = json!("1m");
        let (end, _) = scene.run("read", half);
        expect_mismatches(&end, 3, &flipped.map(|at| format!("at offset {at}: ")));
    }
}

/// Simulates an agent that was killed during a write.
#[test]
fn a_block_may_be_of_two_generations_where_a_write_did_not_end() {
    let scene = Scene::new();
    let params = json!({"size": "256k", "bs": "16k", "verify": true});
    scene.run("write", params.clone());
    let before = fs::read(scene.file(0)).unwrap();
    let state = scene.file(0).with_file_name("state");
    let spec = scene.spec("rewrite", params.clone());
    let mut task = registry::prepare(&spec, &PrepareControl::silent()).unwrap();
    let midst = fs::read(&state).unwrap();
    arm_soon(&mut task);
    assert_eq!(task.run_to_end(&mut |_| ()).state, End::Done);
    let (end, _) = scene.run("read", params.clone());
    assert_eq!(end.errors, []);
    let file = fs::File::options().write(true).open(scene.file(0)).unwrap();
    file.write_all_at(&before[40_960..49_152], 40_960).unwrap();
    // It is an error after a complete pass, and none after an interrupted one.
    let (end, _) = scene.run("read", params.clone());
    expect_mismatches(&end, 2, &["at offset 40960: ", "at offset 45056: "]);
    fs::write(&state, midst).unwrap();
    let (end, _) = scene.run("read", params);
    assert_eq!(end.errors, []);
}
