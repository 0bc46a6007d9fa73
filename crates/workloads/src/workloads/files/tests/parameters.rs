//! Parameters that are accepted and refused.

use super::*;
use crate::engine::workload::Params;

#[test]
fn parameters_are_checked() {
    let check = |params: Value| FILES.check("create", params.as_object().unwrap());
    let footprint = check(json!({"files": 10_000, "size": "40k", "numjobs": 4})).unwrap();
    assert_eq!((footprint.workers, footprint.files), (4, 10_000));
    // Three for the 2500 files of each worker, and the workers' own.
    assert_eq!(footprint.directories, 4 * 3 + 4);
    let shared = json!({"files": 10_000, "numjobs": 4, "dirs": 100, "directories-per": "task"});
    assert_eq!(check(shared).unwrap().directories, 100 + 4);
    assert_eq!(
        (footprint.bytes, footprint.moved_bytes),
        (409_600_000, 409_600_000)
    );
    let rounded = check(json!({"files": 10, "size": 1})).unwrap();
    assert_eq!((rounded.bytes, rounded.moved_bytes), (40_960, 10));
    for (bad, key) in [
        (json!({"files": 3, "numjobs": 4}), "files"),
        (json!({"files": 0}), "files"),
        (json!({"files": 2_000_000_000_u64}), "files"),
        (json!({"dirs": 0}), "dirs"),
        (json!({"bs": 0}), "bs"),
        (json!({"bs": "2g"}), "bs"),
        (json!({"size": "4q"}), "size"),
        (json!({"size": {"min": 5, "max": 4}}), "size"),
        (json!({"size": {"mean": 5, "sigma": "x"}}), "size"),
        (json!({"fsync": 2}), "fsync"),
        (json!({"file": 1}), "file"),
        (json!({"runtime": 0}), "runtime"),
        (json!({"append": 0}), "append"),
        (json!({"xattr-size": 0}), "xattr-size"),
        (json!({"xattr-size": "65k"}), "xattr-size"),
        (json!({"order": "backward"}), "order"),
        (json!({"directories-per": "host"}), "directories-per"),
        (
            json!({"files": 1_000_000_000, "numjobs": 3, "directories-per": "step"}),
            "files",
        ),
    ] {
        let error = check(bad.clone()).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{bad}: {error}");
    }
    assert!(FILES.check("walk", &Params::new()).is_err());
    let cell = TestCell::new(NAME);
    let spec = TaskSpec {
        cache: Cache::Bypass,
        ..cell.spec("read", json!({}))
    };
    assert!(matches!(
        FILES.load(&spec),
        Err(TaskError::Unsupported { .. })
    ));
}
