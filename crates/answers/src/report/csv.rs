//! The results of a report as CSV (RFC 4180, one header line, `\n`): one row per step and operation, raw units, all
//! digits.

use super::{Line, OpReport, Report};

const HEAD: &str = "run_id,run,step_id,ordinal,repeat,attempt,phase,target,system,workload,mode,params,clients,cache,\
    state,partial,from_agent,to_agent,start_us,skew_us,skew_error_us,group_name,op,ops,bytes,errors,headline,ops_per_s,bytes_per_s,\
    last_done_ops_per_s,last_done_bytes_per_s,mean_ms,stddev_ms,p50_ms,p90_ms,p95_ms,p99_ms,p999_ms,max_ms,\
    response_p50_ms,response_p99_ms,response_max_ms,last_done_s,cpu_user_s,cpu_system_s,seconds,zero_seconds,\
    ops_per_s_stddev,ops_per_s_min,ops_per_s_max,bytes_per_s_stddev,bytes_per_s_min,bytes_per_s_max,flags,loop";

/// The results as CSV. A step without a result has one row with its state and empty figures.
pub fn csv(report: &Report) -> String {
    let mut out = String::from(HEAD);
    out.push('\n');
    for step in &report.steps {
        for line in step.lines() {
            row(&mut out, report, &line);
        }
    }
    out
}

/// One field in CSV: quoted if necessary.
pub fn field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// A name that a user chose. One that a spreadsheet would interpret as a formula begins with an apostrophe.
fn name(text: &str) -> String {
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{text}")
    } else {
        text.to_owned()
    }
}

fn row(out: &mut String, report: &Report, line: &Line<'_>) {
    let (step, op) = (line.step, line.op);
    fn number<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(String::new, |value| value.to_string())
    }
    let params = serde_json::Value::Object(line.params().clone()).to_string();
    let real = |figure: fn(&OpReport) -> Option<f64>| number(op.and_then(figure));
    let whole = |figure: fn(&OpReport) -> Option<i64>| number(op.and_then(figure));
    let seconds = op.and_then(|op| op.seconds.as_ref());
    let fields = [
        report.run.id.to_string(),
        name(&report.run.name),
        step.id.to_string(),
        step.ordinal.to_string(),
        step.repeat.to_string(),
        step.attempt.to_string(),
        name(&step.phase),
        name(&step.target),
        name(&step.system),
        line.workload().to_owned(),
        line.mode().to_owned(),
        params,
        line.clients().to_string(),
        step.cache.clone(),
        step.state.clone(),
        i32::from(step.partial).to_string(),
        name(step.from_agent.as_deref().unwrap_or_default()),
        name(step.to_agent.as_deref().unwrap_or_default()),
        number(step.start_us),
        number(step.skew_us),
        number(step.skew_error_us),
        name(line.group_name()),
        op.map(|op| op.op.clone()).unwrap_or_default(),
        whole(|op| op.ops),
        whole(|op| op.bytes),
        whole(|op| op.errors),
        op.map(|op| op.headline.clone()).unwrap_or_default(),
        real(|op| op.ops_per_s),
        real(|op| op.bytes_per_s),
        real(|op| op.last_done_ops_per_s),
        real(|op| op.last_done_bytes_per_s),
        real(|op| op.mean_ms),
        real(|op| op.stddev_ms),
        real(|op| op.p50_ms),
        real(|op| op.p90_ms),
        real(|op| op.p95_ms),
        real(|op| op.p99_ms),
        real(|op| op.p999_ms),
        real(|op| op.max_ms),
        real(|op| op.response_p50_ms),
        real(|op| op.response_p99_ms),
        real(|op| op.response_max_ms),
        real(|op| op.last_done_s),
        number(step.cpu_user_s),
        number(step.cpu_system_s),
        number(seconds.map(|seconds| seconds.seconds)),
        number(seconds.map(|seconds| seconds.zero)),
        number(seconds.and_then(|seconds| seconds.ops_per_s_stddev)),
        number(seconds.and_then(|seconds| seconds.ops_per_s_min)),
        number(seconds.and_then(|seconds| seconds.ops_per_s_max)),
        number(seconds.and_then(|seconds| seconds.bytes_per_s_stddev)),
        number(seconds.and_then(|seconds| seconds.bytes_per_s_min)),
        number(seconds.and_then(|seconds| seconds.bytes_per_s_max)),
        step.flags.join(" "),
        step.loop_number.to_string(),
    ];
    let line: Vec<String> = fields.iter().map(|text| field(text)).collect();
    out.push_str(&line.join(","));
    out.push('\n');
}
