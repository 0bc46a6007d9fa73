//! The cells of a phase: keys that advance together, sizes relative to memory, and caches in a matrix.

use crate::support::mesh::Mesh;
use crate::support::plan;
use std::fs;

/// The plan's `0.0001 x ram` on this host, in whole MiB.
fn size_of_memory() -> String {
    let text = fs::read_to_string("/proc/meminfo").unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .unwrap();
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    format!("{}MiB", (kib * 1024 / 10_000).div_ceil(1 << 20))
}

#[test]
fn cells_are_measured_and_reported_with_what_they_were_made_of() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["c1", "c2"], target.path());
    let text = plan::on(
        target.path(),
        "",
        "[[phase]]\nname = \"cells\"\nworkload = \"io\"\nmodes = [\"write\", \"read\"]\nsize = \"0.0001 x ram\"\n\
         data = { pattern = \"0x55\" }\n\
         matrix = { cache = [\"asis\", \"warm\"], bs = [\"4k\", \"64k\"], iodepth = [4, 1] }\nzip = [[\"bs\", \"iodepth\"]]\n\
         [[phase]]\nname = \"kept\"\nworkload = \"fill\"\nmodes = [\"fill\", \"read\"]\namount = \"3m\"\nfloor = 0\nverify = true\n\
         data = { pattern = \"0xff00\" }\n",
    );
    let file = mesh.plan(&text);
    let path = file.to_str().unwrap();
    let checked = mesh.command(&["plan", "check", path]).out;
    assert!(
        checked.contains("phase `cells`: size = 0.0001 x ram"),
        "{checked}"
    );
    let offline = mesh
        .command(&["plan", "show", path, "--assume-agents", "2"])
        .out;
    assert!(offline.contains("size=0.0001 x ram"), "{offline}");
    let size = size_of_memory();
    let shown = mesh.command(&["run", path, "--dry-run"]).out;
    for words in [format!("size={size}"), String::from("cache=warm")] {
        assert!(shown.contains(&words), "{words}: {shown}");
    }

    mesh.run(&text);
    let db = mesh.db();
    let rows = db.rows(
        "SELECT cache, mode, json_extract(params, '$.bs') AS bs, json_extract(params, '$.iodepth') AS iodepth,
                json_extract(params, '$.size') AS size, state
         FROM steps AS s WHERE phase = 'cells' AND NOT EXISTS (
             SELECT 1 FROM steps AS later WHERE later.ordinal = s.ordinal AND later.attempt > s.attempt)
         ORDER BY ordinal",
    );
    let cells: Vec<String> = rows
        .iter()
        .map(|row| {
            let texts = ["cache", "mode", "bs", "size", "state"].map(|column| row.text(column));
            format!("{} iodepth={}", texts.join(" "), row.integer("iodepth"))
        })
        .collect();
    let expected: Vec<String> = ["asis", "warm"]
        .iter()
        .flat_map(|cache| [("4k", 4), ("64k", 1)].map(|(bs, depth)| (cache, bs, depth)))
        .flat_map(|(cache, bs, depth)| {
            ["write", "read"].map(|mode| format!("{cache} {mode} {bs} {size} done iodepth={depth}"))
        })
        .collect();
    assert_eq!(cells, expected);
    let errors: i64 = db.one("SELECT sum(errors) FROM v_results");
    assert_eq!(errors, 0);

    let report = mesh.command(&["report"]).out;
    for words in ["64k 1", "4k 4", "warm", "kept"] {
        assert!(report.contains(words), "{words}: {report}");
    }
}
