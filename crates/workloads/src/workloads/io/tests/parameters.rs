//! Parameters that `io` accepts and refuses without a target.

use super::*;
use crate::engine::workload::Footprint;
use crate::registry;
use benchmesh_testing::table;

fn checked(mode: &str, params: &Value) -> Result<Footprint, ParamError> {
    registry::check(IO, mode, params.as_object().unwrap())
}

#[test]
fn parameters_are_refused_by_name() {
    for [mode, params, key, part] in table(
        r#"
        write      | {}                                              | size                | is missing
        write      | {"size": "1m", "bs": "2m"}                      | size                | less than one block of 2MiB
        write      | {"size": "1m", "bs": 0}                         | bs                  | 1 to 1g
        write      | {"size": "8t", "bs": "2g"}                      | bs                  | 1 to 1g
        write      | {"size": "1m", "bs": 1000, "direct": 1}         | bs                  | multiple of 512
        write      | {"size": "1m", "offset": 1000, "direct": 1}     | offset              | multiple of 512
        write      | {"size": "1m", "bssplit": "1000/50:2000/50", "direct": 1} | bssplit   | multiple of 512
        write      | {"size": "16000p"}                              | size                | that large
        write      | {"size": "1m", "offset": "16000p"}              | size                | that large
        write      | {"size": "1m", "numjobs": 100000}               | numjobs             | 4096
        write      | {"size": "1m", "sync": "often"}                 | sync                | "dsync"
        write      | {"size": "1m", "iodepht": 3}                    | iodepht             | unknown key
        write      | {"size": "1m", "bs": "4k", "bssplit": "4k/100"} | bssplit             | leave one out
        write      | {"size": "1m", "bssplit": "4k/60:64k/30"}       | bssplit             | not 100
        write      | {"size": "1m", "bssplit": "4k/50:2m/50"}        | size                | less than one block of 2MiB
        write      | {"size": "4g", "bssplit": "4k/50:2g/50"}        | bssplit             | between 1 and 1GiB
        write      | {"size": "1m", "iodepth": 0}                    | iodepth             | 1 to 1024
        write      | {"size": "1m", "iodepth": 1025}                 | iodepth             | 1 to 1024
        write      | {"size": "1m", "iodepth": 2, "ioengine": "psync"} | iodepth           | more numjobs
        write      | {"size": "1g", "bs": "16m", "iodepth": 512}     | iodepth             | 8GiB of buffers
        write      | {"size": "1m", "ioengine": "libaio"}            | ioengine
            | expected "psync", "io_uring" or "stdio"
        write      | {"size": "1m", "ioengine-fallback": "threads"}  | ioengine-fallback   | expected "none" or "psync"
        write      | {"size": "1m", "iodepth": 1024, "numjobs": 8, "ioengine-fallback": "psync"} | ioengine-fallback
            | more than the 4096
        write      | {"size": "1m", "loops": 0}                      | loops               | 1 or more
        write      | {"size": "1m", "loops": 2, "io_size": "4m"}     | io_size             | leave one out
        write      | {"size": "1m", "io_size": "1k"}                 | io_size             | less than one block of 4KiB
        write      | {"size": "1m", "runtime": 0}                    | runtime             | longer than 0
        rw         | {"size": "1m", "rwmixread": 101}                | rwmixread           | 0 to 100
        strideread | {"size": "1m", "stride": "4k"}                  | stride              | two or more
        strideread | {"size": "1m", "stride": "10k"}                 | stride              | whole blocks
        strideread | {"size": "1m", "stride": "1m"}                  | stride              | not less than the range
        // If the default of 17 blocks exceeds the file, blocks are read one after another.
        strideread | {"size": "17m", "bs": "1m"}                     | stride              | 17 blocks
        strideread | {"size": "64k", "bs": "4k"}                     | stride              | 17 blocks
        strideread | {"size": "1m", "bssplit": "4k/50:8k/50"}        | bssplit             | one size
        recrewrite | {"size": "1m", "bssplit": "4k/50:8k/50"}        | bssplit             | one size
        randread   | {"size": "1m", "random_distribution": "zipf"}   | random_distribution | zipf:1.1
        randread   | {"size": "1m", "random_distribution": "zipf:0"} | random_distribution | 0.01 to 10
        "#,
    ) {
        let params: Value = serde_json::from_str(&params).unwrap();
        let error = checked(&mode, &params).unwrap_err();
        assert_eq!(error.key.as_ref(), Some(&key), "{params}: {error}");
        assert!(error.message.contains(&part), "{params}: {error}");
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
