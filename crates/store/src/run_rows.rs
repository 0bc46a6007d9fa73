//! Selects the rows of a table that belong to one run: those that refer to it, to its steps or its tasks, and those of
//! its agents, their hosts and what was sampled there. Samples are those of the run's time: what takes single runs out of
//! a database adds that condition.

/// Whether a table has rows of all times for what a run refers to, so that only those of its time belong to the run.
pub fn is_limited_to_its_time(table: &str) -> bool {
    table.ends_with("_samples") || table == "clock_offsets"
}

/// The condition for a run's rows, by the first of these columns that the table has.
pub fn condition(table: &str, run: i64, has: &dyn Fn(&str) -> bool) -> String {
    let hosts = format!("(SELECT host_id FROM run_agents WHERE run_id = {run})");
    let agents = format!("(SELECT agent_id FROM run_agents WHERE run_id = {run})");
    let steps = format!("(SELECT id FROM steps WHERE run_id = {run})");
    let on_hosts = |what: &str| format!("(SELECT id FROM {what} WHERE host_id IN {hosts})");
    match table {
        "runs" => return format!("id = {run}"),
        "hosts" => return format!("id IN {hosts}"),
        "agents" => return format!("id IN {agents}"),
        "events" => return format!("run_id = {run} OR step_id IN {steps}"),
        _ => {}
    }
    if has("run_id") {
        format!("run_id = {run}")
    } else if has("step_id") {
        format!("step_id IN {steps}")
    } else if has("task_id") {
        format!("task_id IN (SELECT id FROM tasks WHERE step_id IN {steps})")
    } else if has("daemon_id") {
        format!("daemon_id IN {}", on_hosts("daemons"))
    } else if has("disk_id") {
        format!("disk_id IN {}", on_hosts("disks"))
    } else if has("interface_id") {
        format!("interface_id IN {}", on_hosts("interfaces"))
    } else if has("target_id") {
        format!("target_id IN (SELECT id FROM targets WHERE run_id = {run})")
    } else if has("agent_id") {
        format!("agent_id IN {agents}")
    } else if has("host_id") {
        format!("host_id IN {hosts}")
    } else {
        String::from("true")
    }
}
