//! Targets: what agents found at each when the run began.

use super::agents::versions;
use crate::report::Table;
use crate::report::row::Statement;
use crate::results::real;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const GIB: f64 = 1_073_741_824.0;

/// What agents found at a target when the run began.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    pub target: String,
    pub system: String,
    /// How many agents found the same.
    pub agents: i64,
    pub mount_type: Option<String>,
    pub mount_source: Option<String>,
    #[serde(default)]
    pub mount_options: Option<String>,
    #[serde(default)]
    pub path: String,
    pub size_bytes: Option<i64>,
    /// Package -> version.
    pub packages: Option<Map<String, Value>>,
}

pub(in crate::report) const TARGETS: Statement = Statement {
    what: "run_targets",
    sql: "SELECT target, system, path, count(*) AS agents, mount_type, mount_source, mount_options,
                 max(size_bytes) AS size_bytes, packages
          FROM run_targets WHERE run_id = ?
          GROUP BY target, system, path, mount_type, mount_source, mount_options, packages ORDER BY target, agents DESC",
};

pub(in crate::report) fn table(targets: &[TargetReport]) -> Option<Table> {
    Table::of("Targets", targets)
        .text("target", |one| &one.target)
        .text("system", |one| &one.system)
        .figure("agents", |one| one.agents)
        .text("path", |one| &one.path)
        .if_any()
        .text("type", |one| one.mount_type.as_deref().unwrap_or_default())
        .if_any()
        .text("source", |one| {
            one.mount_source.as_deref().unwrap_or_default()
        })
        .if_any()
        .rate("GiB", |one| one.size_bytes.map(|bytes| real(bytes) / GIB))
        .text("packages", |one| versions(one.packages.as_ref()))
        .if_any()
        .text("options", |one| {
            one.mount_options.as_deref().unwrap_or_default()
        })
        .if_any()
        .spare(&["options", "packages", "path"])
        .done()
}
