//! Parameters that `io` accepts and refuses without a target.

use super::*;
use crate::engine::workload::Footprint;
use crate::registry;

fn checked(mode: &str, params: &Value) -> Result<Footprint, ParamError> {
    registry::check(IO, mode, params.as_object().unwrap())
}

#[test]
fn parameters_are_refused_by_name() {
    let check_in = |mode: &str, params: Value, key: &str, part: &str| {
        let error = checked(mode, &params).unwrap_err();
        assert_eq!(error.key.as_deref(), Some(key), "{params}: {error}");
        assert!(error.message.contains(part), "{params}: {error}");
    };
    let check = |params, key, part| check_in("write", params, key, part);
    check(json!({}), "size", "is missing");
    check(
        json!({"size": "1m", "bs": "2m"}),
        "size",
        "less than one block of 2MiB",
    );
    check(json!({"size": "1m", "bs": 0}), "bs", "1 to 1g");
    check(json!({"size": "8t", "bs": "2g"}), "bs", "1 to 1g");
    check(
        json!({"size": "1m", "bs": 1000, "direct": 1}),
        "bs",
        "multiple of 512",
    );
    check(
        json!({"size": "1m", "offset": 1000, "direct": 1}),
        "offset",
        "multiple of 512",
    );
    check(
        json!({"size": "1m", "bssplit": "1000/50:2000/50", "direct": 1}),
        "bssplit",
        "multiple of 512",
    );
    check(json!({"size": "16000p"}), "size", "that large");
    check(
        json!({"size": "1m", "offset": "16000p"}),
        "size",
        "that large",
    );
    check(json!({"size": "1m", "numjobs": 100_000}), "numjobs", "4096");
    check(json!({"size": "1m", "sync": "often"}), "sync", "\"dsync\"");
    check(
        json!({"size": "1m", "iodepht": 3}),
        "iodepht",
        "unknown key",
    );
    check(
        json!({"size": "1m", "bs": "4k", "bssplit": "4k/100"}),
        "bssplit",
        "leave one out",
    );
    check(
        json!({"size": "1m", "bssplit": "4k/60:64k/30"}),
        "bssplit",
        "not 100",
    );
    check(
        json!({"size": "1m", "bssplit": "4k/50:2m/50"}),
        "size",
        "less than one block of 2MiB",
    );
    check(
        json!({"size": "4g", "bssplit": "4k/50:2g/50"}),
        "bssplit",
        "between 1 and 1GiB",
    );
    for depth in [0, 1025] {
        check(
            json!({"size": "1m", "iodepth": depth}),
            "iodepth",
            "1 to 1024",
        );
    }
    check(
        json!({"size": "1m", "iodepth": 2, "ioengine": "psync"}),
        "iodepth",
        "more numjobs",
    );
    check(
        json!({"size": "1g", "bs": "16m", "iodepth": 512}),
        "iodepth",
        "8GiB of buffers",
    );
    check(
        json!({"size": "1m", "ioengine": "libaio"}),
        "ioengine",
        "expected \"psync\", \"io_uring\" or \"stdio\"",
    );
    check(
        json!({"size": "1m", "ioengine-fallback": "threads"}),
        "ioengine-fallback",
        "expected \"none\" or \"psync\"",
    );
    check(
        json!({"size": "1m", "iodepth": 1024, "numjobs": 8, "ioengine-fallback": "psync"}),
        "ioengine-fallback",
        "more than the 4096",
    );
    check(json!({"size": "1m", "loops": 0}), "loops", "1 or more");
    check(
        json!({"size": "1m", "loops": 2, "io_size": "4m"}),
        "io_size",
        "leave one out",
    );
    check(
        json!({"size": "1m", "io_size": "1k"}),
        "io_size",
        "less than one block of 4KiB",
    );
    check(
        json!({"size": "1m", "runtime": 0}),
        "runtime",
        "longer than 0",
    );
    check_in(
        "rw",
        json!({"size": "1m", "rwmixread": 101}),
        "rwmixread",
        "0 to 100",
    );
    for (stride, part) in [
        ("4k", "two or more"),
        ("10k", "whole blocks"),
        ("1m", "not less than the range"),
    ] {
        let params = json!({"size": "1m", "stride": stride});
        check_in("strideread", params, "stride", part);
    }
    // If the default of 17 blocks exceeds the file, blocks are read one after another.
    for (size, bs) in [("17m", "1m"), ("64k", "4k")] {
        let params = json!({"size": size, "bs": bs});
        check_in("strideread", params, "stride", "17 blocks");
    }
    for mode in ["strideread", "recrewrite"] {
        let params = json!({"size": "1m", "bssplit": "4k/50:8k/50"});
        check_in(mode, params, "bssplit", "one size");
    }
    for (distribution, part) in [("zipf", "zipf:1.1"), ("zipf:0", "0.01 to 10")] {
        let params = json!({"size": "1m", "random_distribution": distribution});
        check_in("randread", params, "random_distribution", part);
    }
}

#[test]
fn a_footprint_is_what_a_task_takes() {
    let params = json!({"size": "100k", "bs": "64k", "numjobs": 4, "sync": 1, "runtime": 5});
    let footprint = checked("read", &params).unwrap();
    assert_eq!((footprint.files, footprint.bytes), (4, 4 << 16));
    assert_eq!(footprint.runtime, Some(Duration::from_secs(5)));

    let params = json!({"size": "128k", "offset": "1m", "bs": "64k", "loops": 3});
    let footprint = checked("randrw", &params).unwrap();
    assert_eq!(
        (footprint.bytes, footprint.moved_bytes),
        (1152 << 10, 384 << 10)
    );

    let params = json!({"size": "1m", "io_size": "70k", "numjobs": 2, "iodepth": 32});
    let footprint = checked("randread", &params).unwrap();
    assert_eq!(footprint.moved_bytes, 136 << 10);
    assert_eq!(footprint.workers, 2);
}
