//! Daemons in a few rows: by name, over the whole run.

use super::super::DaemonReport;
use super::super::figures;
use super::Table;
use std::collections::{BTreeMap, BTreeSet};

/// Daemons that serve no target are worth a row from this share of a CPU on.
const LEAST_PERCENT: f64 = 1.0;
/// Rows of them.
const OTHERS_SHOWN: usize = 8;

/// All daemons of one name.
#[derive(Debug, Default)]
struct OfName<'r> {
    daemons: usize,
    hosts: BTreeSet<&'r str>,
    cpu_s: f64,
    cpu_percent: f64,
    rss_max_mib: Option<f64>,
    read_mib: Option<f64>,
    written_mib: Option<f64>,
}

fn by_name<'r>(daemons: impl Iterator<Item = &'r DaemonReport>) -> BTreeMap<&'r str, OfName<'r>> {
    let mut names: BTreeMap<&str, OfName<'_>> = BTreeMap::new();
    let add = |sum: &mut Option<f64>, value: Option<f64>| {
        if let Some(value) = value {
            *sum = Some(sum.unwrap_or(0.0) + value);
        }
    };
    for one in daemons {
        let all = names.entry(one.name.as_str()).or_default();
        all.daemons += 1;
        all.hosts.insert(one.host.as_str());
        all.cpu_s += one.cpu_s.unwrap_or(0.0);
        all.cpu_percent += one.cpu_percent.unwrap_or(0.0);
        all.rss_max_mib = match (all.rss_max_mib, one.rss_max_mib) {
            (Some(a), Some(b)) => Some(f64::max(a, b)),
            (a, b) => a.or(b),
        };
        add(&mut all.read_mib, one.read_mib);
        add(&mut all.written_mib, one.written_mib);
    }
    names
}

/// The daemons that serve the targets, and what else was busy beside them.
pub(super) fn daemons(daemons: &[DaemonReport]) -> Vec<Table> {
    let serving = by_name(daemons.iter().filter(|one| one.serves != Some(false)));
    let others = by_name(daemons.iter().filter(|one| one.serves == Some(false)));
    let mut others: Vec<(&str, OfName<'_>)> = others
        .into_iter()
        .filter(|(_, all)| all.cpu_percent >= LEAST_PERCENT)
        .collect();
    others.sort_by(|(_, a), (_, b)| b.cpu_s.total_cmp(&a.cpu_s));
    others.truncate(OTHERS_SHOWN);
    let serving: Vec<(&str, OfName<'_>)> = serving.into_iter().collect();
    let mut tables = Vec::new();
    if !serving.is_empty() {
        tables.push(
            rows("Daemons during the steps", &serving).note(
                "CPU %: of one CPU, all daemons of the name together; --all shows each daemon.",
            ),
        );
    }
    if !others.is_empty() {
        tables.push(
            rows("Also busy on these hosts", &others)
                .note("They serve no target of this run, and are in no cost."),
        );
    }
    tables
}

fn rows(title: &str, names: &[(&str, OfName<'_>)]) -> Table {
    let cells = |cell: &dyn Fn(&OfName<'_>) -> String| -> Vec<String> {
        names.iter().map(|(_, all)| cell(all)).collect()
    };
    Table::titled(title)
        .text("daemon", names.iter().map(|(name, _)| (*name).to_owned()))
        .figures("daemons", cells(&|all| all.daemons.to_string()))
        .figures("hosts", cells(&|all| all.hosts.len().to_string()))
        .figures("CPU s", cells(&|all| figures::rate(all.cpu_s)))
        .figures("CPU %", cells(&|all| figures::rate(all.cpu_percent)))
        .figures(
            "RSS max MiB",
            cells(&|all| figures::maybe_rate(all.rss_max_mib)),
        )
        .figures("read MiB", cells(&|all| figures::maybe_rate(all.read_mib)))
        .figures(
            "written MiB",
            cells(&|all| figures::maybe_rate(all.written_mib)),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn daemon(name: &str, host: &str, serves: Option<bool>, cpu_percent: f64) -> DaemonReport {
        DaemonReport {
            daemon_id: 1,
            host: host.to_owned(),
            name: name.to_owned(),
            instance: String::new(),
            pid: 1,
            cpu_s: Some(cpu_percent / 10.0),
            cpu_percent: Some(cpu_percent),
            cpu_percent_max: None,
            rss_first_mib: None,
            rss_max_mib: Some(cpu_percent),
            rss_peak_mib: None,
            rss_last_mib: None,
            read_mib: None,
            written_mib: Some(1.0),
            serves,
            born_us: None,
            ended_us: None,
        }
    }

    #[test]
    fn daemons_are_summed_by_name_and_those_that_serve_nothing_stand_apart() {
        let all = [
            daemon("ceph-osd", "a", Some(true), 10.0),
            daemon("ceph-osd", "b", Some(true), 30.0),
            daemon("shardd", "b", None, 5.0),
            daemon("glusterfsd", "b", Some(false), 50.0),
            daemon("mfsmaster", "b", Some(false), 0.2),
        ];
        let tables = daemons(&all);
        let rows: Vec<Vec<Vec<String>>> = tables.iter().map(|table| table.rows.clone()).collect();
        let row = |cells: &[&str]| {
            cells
                .iter()
                .map(|cell| (*cell).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            rows,
            [
                vec![
                    row(&["ceph-osd", "2", "2", "4.00", "40.0", "30.0", "-", "2.00"]),
                    row(&["shardd", "1", "1", "0.500", "5.00", "5.00", "-", "1.00"]),
                ],
                vec![row(&[
                    "glusterfsd",
                    "1",
                    "1",
                    "5.00",
                    "50.0",
                    "50.0",
                    "-",
                    "1.00"
                ])],
            ]
        );
    }
}
