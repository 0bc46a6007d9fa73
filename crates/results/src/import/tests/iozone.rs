//! Logs of a real iozone, if it is installed.

use super::*;

/// From the package `iozone3`, which is not in Debian's main archive.
fn iozone(arguments: &[&str]) -> Option<String> {
    let log = run("iozone", arguments)?;
    assert!(log.contains("iozone test complete."), "{log}");
    Some(log)
}

#[test]
fn figures_of_a_real_iozone_are_its_own_to_the_digit() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("f");
    let file = file.to_str().unwrap();
    let table = [
        "-a", "-s", "256k", "-s", "1m", "-r", "4k", "-r", "64k", "-f", file,
    ];
    let Some(log) = iozone(&table) else { return };
    let read = parsed(&log).unwrap();
    assert!(read.tool.starts_with("iozone 3."), "{}", read.tool);
    assert_eq!(read.steps.len(), 4 * 13);
    let rows: Vec<Vec<f64>> = log
        .lines()
        .map(|line| {
            line.split_whitespace()
                .map_while(|word| word.parse().ok())
                .collect()
        })
        .filter(|row: &Vec<f64>| row.len() == 15)
        .collect();
    let figures = rows
        .iter()
        .flat_map(|row| row[2..].iter().map(move |kib| (row[0], row[1], *kib)));
    for (step, (size, record, kib)) in read.steps.iter().zip(figures) {
        let op = &step.ops[0];
        assert_eq!(op.bytes_per_s, Some(kib * 1024.0), "{step:?}");
        assert_eq!(op.ops_per_s, Some(kib * 1024.0 / (record * 1024.0)));
        assert_eq!(op.bytes.map(crate::real), Some(size * 1024.0), "{step:?}");
        assert_eq!(op.ops.map(crate::real), Some(size / record), "{step:?}");
    }
    let modes: Vec<&str> = read.steps[..13]
        .iter()
        .map(|step| step.mode.as_str())
        .collect();
    assert_eq!(
        modes[..5],
        ["write", "rewrite", "read", "reread", "randread"]
    );
    assert_eq!(
        (&read.steps[0].params["bs"], &read.steps[51].params["size"]),
        (&Value::from("4k"), &Value::from("1m"))
    );
    cut_anywhere(&log, &read);
    let half = &log[..log.len() - "iozone test complete.\n".len()];
    let error = parsed(half).unwrap_err();
    assert_eq!(error.line, Some(half.lines().count()), "{error}");
    assert!(error.what.contains("cut off"), "{error}");
    // Omitted tests are blank columns.
    let part = [
        "-a", "-I", "-s", "256k", "-r", "64k", "-i", "0", "-i", "2", "-f", file,
    ];
    let read = parsed(&iozone(&part).unwrap()).unwrap();
    let modes: Vec<&str> = read.steps.iter().map(|step| step.mode.as_str()).collect();
    assert_eq!(modes, ["write", "rewrite", "randread", "randwrite"]);
    assert_eq!(read.steps[0].params["direct"], Value::from(true));
    let other = log.replace("fwrite frewrite", "fwrite      cpu");
    let error = parsed(&other).unwrap_err();
    assert!(
        error.line.is_some() && error.what.contains("columns"),
        "{error}"
    );
    let other = log.replace("$Revision: 3.", "$Revision: 4.");
    let error = parsed(&other).unwrap_err();
    assert!(
        error.line == Some(2) && error.what.contains("is not known"),
        "{error}"
    );
}

/// Columns of 3.397 and 3.408 are narrower than later ones.
#[test]
fn columns_are_found_by_their_names_in_any_version() {
    let older = concat!(
        "\tIozone: Performance Test of File I/O\n\t        Version $Revision: 3.397 $\n",
        "              KB  reclen   write rewrite    read    reread    read   write    read  rewrite     read   fwrite \
         frewrite   fread  freread\n",
        "            1024       4  100001  100002   100003   100004  100005  100006          \n",
        "            1024      64  100001  100002                    100005  100006          \n",
        "\niozone test complete.\n",
    );
    let read = parsed(older).unwrap();
    let found: Vec<(&str, f64)> = read
        .steps
        .iter()
        .map(|step| {
            (
                step.mode.as_str(),
                step.ops[0].bytes_per_s.unwrap() / 1024.0 - 100_000.0,
            )
        })
        .collect();
    let all = [
        "write",
        "rewrite",
        "read",
        "reread",
        "randread",
        "randwrite",
    ];
    let all = all.into_iter().zip([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    let part = ["write", "rewrite", "randread", "randwrite"];
    let part = part.into_iter().zip([1.0, 2.0, 5.0, 6.0]);
    assert_eq!(found, all.chain(part).collect::<Vec<_>>());
}

#[test]
fn units_and_children_of_a_real_iozone_are_understood() {
    let directory = TempDir::new().unwrap();
    let files = ["a", "b"].map(|name| directory.path().join(name).display().to_string());
    let children = [
        "-t", "2", "-s", "1m", "-r", "64k", "-i", "0", "-i", "1", "-F", &files[0], &files[1],
    ];
    let Some(log) = iozone(&children) else { return };
    let read = parsed(&log).unwrap();
    let modes: Vec<&str> = read.steps.iter().map(|step| step.mode.as_str()).collect();
    assert_eq!(modes, ["write", "rewrite", "read", "reread"]);
    for step in &read.steps {
        let lines = log.lines().filter(|line| line.contains("Children see"));
        let figures: Vec<f64> = lines
            .map(|line| {
                line.split_whitespace()
                    .rev()
                    .nth(1)
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect();
        let kib = step.ops[0].bytes_per_s.unwrap() / 1024.0;
        assert!(figures.contains(&kib), "{kib} {figures:?}");
        let least = log.lines().filter(|line| line.contains("Min xfer"));
        let is_whole = least.clone().all(|line| line.contains("1024.00"));
        assert_eq!(step.tasks, 2);
        // Only if no process was stopped before its end.
        if is_whole {
            assert_eq!(step.ops[0].bytes, Some(2 << 20));
        }
    }
    cut_anywhere(&log, &read);
    for (unit, ns) in [("-O", false), ("-N", true)] {
        let log = iozone(&[
            "-a", unit, "-s", "1m", "-r", "4k", "-i", "0", "-f", &files[0],
        ])
        .unwrap();
        let row = log
            .lines()
            .rev()
            .find(|line| line.trim_start().starts_with("1024"))
            .unwrap();
        let figure: f64 = row.split_whitespace().nth(2).unwrap().parse().unwrap();
        let op = &parsed(&log).unwrap().steps[0].ops[0];
        match ns {
            false => assert_eq!(op.ops_per_s, Some(figure), "{log}"),
            true => assert_eq!(op.mean_ns, Some(figure * 1e3), "{log}"),
        }
    }
}
