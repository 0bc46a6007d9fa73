//! A log in elbencho's format.

use super::*;

/// The columns of elbencho 3.1, from its source; the figures are made up.
pub(super) const ELBENCHO: &str = "\
ISO date,label,path type,paths,hosts,threads,dirs,files,file size,block size,direct IO,random,random aligned,IO depth,\
shared paths,truncate,operation,time ms [first],time ms [last],entries/s [first],entries/s [last],IOPS [first],\
IOPS [last],MiB/s [first],MiB/s [last],CPU% [first],CPU% [last],entries [first],entries [last],MiB [first],MiB [last],\
Ent lat us [min],Ent lat us [avg],Ent lat us [max],IO lat us [min],IO lat us [avg],IO lat us [max],\
rwmix read entries/s [first],rwmix read entries/s [last],rwmix read IOPS [first],rwmix read IOPS [last],\
rwmix read MiB/s [first],rwmix read MiB/s [last],rwmix read entries [first],rwmix read entries [last],\
rwmix read MiB [first],rwmix read MiB [last],rwmix read Ent lat us [min],rwmix read Ent lat us [avg],\
rwmix read Ent lat us [max],rwmix read IO lat us [min],rwmix read IO lat us [avg],rwmix read IO lat us [max],version,command
2026-05-22T16:09:38.125+0200,,dir,1,2,8,1,4,268435456,1048576,1,0,,4,1,0,MKDIRS,2,5,3277,1466,,,,,8,7,8,8,,,812,1068,1378,,,,,,,,,,,,,,,,,,,,3.1-1,\"elbencho\" \"-w\" 
2026-05-22T16:09:38.131+0200,,dir,1,2,8,1,4,268435456,1048576,1,0,,4,1,0,WRITE,2134,2784,11,12,3494,2941,3493,2940,10,9,25,32,7460,8192,290635,609112,867164,1661,9383,120903,,,,,,,,,,,,,,,,,3.1-1,\"elbencho\" \"-w\" 
2026-05-22T16:09:41.020+0200,,dir,1,2,8,1,4,268435456,1048576,1,0,,4,1,0,SYNC,3,4,,,,,,,1,1,,,,,,,,,,,,,,,,,,,,,,,,,,,3.1-1,\"elbencho\" \"-w\" 
2026-05-22T16:09:42.020+0200,,file,1,2,8,,,268435456,4096,1,1,1,4,1,0,RWMIX70,900,1000,,,300,290,1,1,9,8,,,1,1,,,,20,30,40,,,700,690,2,2,,,2,2,,,,21,31,41,3.1-1,\"elbencho\" \"-w\" 
";

#[test]
fn elbencho_keeps_blocks_and_entries_of_each_phase() {
    let read = parsed(ELBENCHO).unwrap();
    assert_eq!(read.tool, "elbencho 3.1-1");
    assert_eq!(read.started_us, 1_779_458_978_125_000);
    let modes: Vec<&str> = read.steps.iter().map(|step| step.mode.as_str()).collect();
    assert_eq!(modes, ["mkdir", "write", "randrw"], "SYNC has no load");
    let write = &read.steps[1];
    assert_eq!(
        (write.tasks, write.clients, write.lasted_us, write.at_us),
        (16, Some(2), 2_784_000, 5_000)
    );
    assert_eq!(
        Value::Object(write.params.clone()),
        serde_json::json!({"size": "256m", "bs": "1m", "numjobs": 8, "iodepth": 4, "dirs": 1, "files": 4, "direct": true})
    );
    let [blocks, files] = write.ops.as_slice() else {
        panic!("{write:?}")
    };
    assert_eq!(
        (blocks.op.as_str(), blocks.ops_per_s, blocks.bytes),
        ("write", Some(2941.0), Some(8192 << 20))
    );
    assert_eq!(blocks.bytes_per_s, Some(2940.0 * 1_048_576.0));
    assert_eq!(
        (blocks.min_ns, blocks.mean_ns, blocks.max_ns),
        (Some(1_661_000), Some(9_383_000.0), Some(120_903_000))
    );
    assert_eq!(
        (files.op.as_str(), files.ops, files.ops_per_s),
        ("create", Some(32), Some(12.0))
    );
    let mixed = &read.steps[2];
    let ops: Vec<(&str, Option<f64>)> = mixed
        .ops
        .iter()
        .map(|op| (op.op.as_str(), op.ops_per_s))
        .collect();
    assert_eq!(ops, [("write", Some(290.0)), ("read", Some(690.0))]);
    assert_eq!(mixed.params["rwmixread"], Value::from(70));
    // A row per phase: a log truncated within a row is refused, one truncated after a row has fewer phases.
    for cut in (0..ELBENCHO.len()).filter(|cut| ELBENCHO.is_char_boundary(*cut)) {
        let part = &ELBENCHO[..cut];
        if Tool::of(part) == Some(Tool::Elbencho)
            && let Ok(part) = parsed(part)
        {
            assert!(ELBENCHO[..cut].ends_with('\n'), "cut at byte {cut}");
            assert!(read.steps.starts_with(&part.steps));
        }
    }
    let cut = parsed(&ELBENCHO[..ELBENCHO.len() - 30]).unwrap_err();
    assert!(cut.line == Some(5) && cut.what.contains("cut off"), "{cut}");
    let other = parsed(&ELBENCHO.replace("IOPS [last]", "IO/s [last]")).unwrap_err();
    assert!(
        other.line == Some(2) && other.what.contains("version is not known"),
        "{other}"
    );
    let wrong = parsed(&ELBENCHO.replace(",2941,", ",many,")).unwrap_err();
    assert!(
        wrong.line == Some(3) && wrong.what.contains("no whole number"),
        "{wrong}"
    );
}
