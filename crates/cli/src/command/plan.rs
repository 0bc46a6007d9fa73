//! `benchmesh plan check` and `plan show`, and reading a plan file for every command.

mod from_fio;
mod lasting;

pub use from_fio::convert;

use crate::args::plan::{PlanCheckArguments, PlanShowArguments};
use crate::args::{ListFormat, RunArguments};
use crate::client::{CallError, Client, RunRequest};
use crate::failure::{Outcome, WRONG_USAGE, wrong_usage};
use crate::input_file::{self, Accept};
use crate::{output, terminal};
use benchmesh_answers::report::Table;
use benchmesh_answers::report::figures::{self, plural};
use benchmesh_model::text::{did_you_mean, nearest};
use benchmesh_plan::{self as plan, Plan, PlanErrors};
use benchmesh_scheduler::snapshot::StepPlanned;
use benchmesh_workloads::registry;
use lasting::Lasting;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// Maximum size of a plan.
const MAX_PLAN_BYTES: u64 = 4 << 20;

/// A plan file, read and checked as far as possible without a mesh.
#[derive(Debug)]
pub struct PlanFile {
    /// The file's name, for messages.
    pub name: String,
    /// With overrides applied.
    pub text: String,
    pub plan: Plan,
}

/// Reads a plan; all of its mistakes are reported at once, as wrong usage.
pub fn read(path: &Path, overrides: &[String]) -> anyhow::Result<PlanFile> {
    let (name, text) = read_text(path)?;
    parse(name, &text, overrides).map_err(|errors| wrong_usage(errors.to_string()))
}

/// The plan of `run`: of its file, or of the one workload that is named instead; with its options applied.
pub fn of_run(arguments: &RunArguments) -> anyhow::Result<PlanFile> {
    let (name, text) = match workload(&arguments.plan)? {
        Some(workload) => {
            if arguments.target.is_empty() && plan::needs_target(workload) {
                return Err(wrong_usage(format!(
                    "{workload} needs a target: add --target PATH (a directory that the agents allow), or pool=NAME"
                )));
            }
            let name = format!("run {workload}");
            (name, plan::one_workload(workload, &arguments.target))
        }
        None if arguments.target.is_empty() => read_text(&arguments.plan)?,
        None => {
            return Err(wrong_usage(
                "--target belongs to a WORKLOAD; set the target of a plan with --set targets.NAME.path=PATH",
            ));
        }
    };
    let text = plan::with_objectives(&text, &arguments.objective);
    parse(name, &text, &arguments.set).map_err(|errors| wrong_usage(errors.to_string()))
}

/// The workload of this name, if there is no such file. A single word that is neither is refused with the nearest name.
fn workload(path: &Path) -> anyhow::Result<Option<&str>> {
    let word = path.to_str().filter(|word| !word.contains(['/', '.']));
    let Some(word) = word.filter(|word| *word != "-" && !path.exists()) else {
        return Ok(None);
    };
    if registry::find(word).is_some() {
        return Ok(Some(word));
    }
    let known: Vec<&str> = registry::all().iter().map(|one| one.name()).collect();
    let remedy = match (
        registry::successor(word),
        nearest(word, known.iter().copied()),
    ) {
        // As a plan would have it.
        (Some(remedy), _) => match named_workload(remedy) {
            Some((name, rest)) => format!("write `benchmesh run {name}`{rest}"),
            None => remedy.to_owned(),
        },
        (None, Some(near)) => did_you_mean(&format!("`{near}`")),
        (None, None) => format!("workloads are {}", known.join(", ")),
    };
    Err(wrong_usage(format!(
        "there is no plan {word} and no workload of that name\n  help: {remedy}"
    )))
}

/// `write workload = "io": its keys ...`: the name, and the rest.
fn named_workload(remedy: &str) -> Option<(&str, &str)> {
    remedy.strip_prefix("write workload = \"")?.split_once('"')
}

/// The plan with overrides applied, or all of its mistakes.
fn parse(name: String, text: &str, overrides: &[String]) -> Result<PlanFile, PlanErrors> {
    let text = plan::set(text, &name, overrides)?;
    let plan = plan::parse(&text, &name).map_err(|errors| name_overrides(errors, overrides))?;
    Ok(PlanFile { name, text, plan })
}

/// Adds to errors in overridden values that `--set` replaced them: the reported line of the file does not contain them.
fn name_overrides(mut errors: PlanErrors, overrides: &[String]) -> PlanErrors {
    let last = |path: &str| path.rsplit('.').next().map(|key| key.trim().to_owned());
    for error in &mut errors.errors {
        let given = overrides.iter().find(|given| {
            let key = given.split_once('=').map(|(key, _)| key);
            key.is_some_and(|key| last(key) == last(&error.key))
        });
        if let Some(given) = given {
            error.reason = format!("{} (set by --set {given})", error.reason);
        }
    }
    errors
}

fn read_text(path: &Path) -> anyhow::Result<(String, String)> {
    let name = match path == Path::new("-") {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    };
    let text = input_file::read_text(path, MAX_PLAN_BYTES, Accept::AnyFile)
        .map_err(|error| wrong_usage(format!("read the plan {name}: {error}")))?;
    Ok((name, text))
}

/// `plan schema`.
pub fn schema() -> anyhow::Result<Outcome> {
    output::document(&plan::schema())?;
    Ok(Outcome::Done)
}

/// `plan preset`: prints one preset, or the names of all with their summaries.
pub fn preset(name: Option<&str>) -> anyhow::Result<Outcome> {
    let Some(name) = name else {
        let presets = plan::PRESETS.iter();
        let table = Table::titled("")
            .text(
                "preset",
                presets.clone().map(|preset| preset.name.to_owned()),
            )
            .text("what it does", presets.map(plan::Preset::summary));
        output::result(&terminal::shown(&table, "json"))?;
        return Ok(Outcome::Done);
    };
    let Some(preset) = plan::find_preset(name) else {
        let known: Vec<&str> = plan::PRESETS.iter().map(|preset| preset.name).collect();
        return Err(wrong_usage(format!(
            "there is no preset {name:?}; there are {}",
            known.join(", ")
        )));
    };
    output::result(preset.text)?;
    Ok(Outcome::Done)
}

/// The mistakes of a plan as JSON.
fn mistakes(errors: &PlanErrors) -> serde_json::Value {
    let mistakes = errors.errors.iter().map(|error| {
        let place = error.place.as_ref();
        serde_json::json!({
            "line": place.map(|place| place.line).filter(|line| *line > 0),
            "column": place.map(|place| place.column),
            "key": error.key,
            "message": error.reason,
            "remedy": error.remedy,
        })
    });
    mistakes.collect()
}

/// `plan check`.
pub fn check(arguments: &PlanCheckArguments) -> anyhow::Result<Outcome> {
    let (name, text) = read_text(&arguments.plan)?;
    let file = match parse(name, &text, &arguments.set) {
        Ok(file) => file,
        Err(errors) if arguments.format == ListFormat::Json => {
            output::document(&serde_json::json!({
                "error": output::error_value(&errors.to_string(), WRONG_USAGE),
                "mistakes": mistakes(&errors),
            }))?;
            output::print_notice(&format!("error: {errors}"));
            return Ok(Outcome::WrongPlan);
        }
        Err(errors) => return Err(wrong_usage(errors.to_string())),
    };
    let warnings = file.plan.warnings();
    for warning in &warnings {
        output::print_notice(&format!("warning: {}", terminal::clean(warning)));
    }
    let sizes = file.plan.sizes_of_memory();
    let targets = file.plan.targets.len();
    let phases = file.plan.phases.len();
    match arguments.format {
        ListFormat::Table => output::result(&format!(
            "{}: valid. Plan {:?}: {}, {}, repeated {}.\n{}",
            file.name,
            file.plan.name,
            plural(phases, "phase"),
            plural(targets, "target"),
            match file.plan.loops.as_planned() {
                None => plural(file.plan.repeat as usize, "time"),
                Some(loops) => format!("{}, {loops}", plural(file.plan.repeat as usize, "time")),
            },
            sizes_of_memory(&sizes),
        ))?,
        ListFormat::Json => output::document(&serde_json::json!({
            "plan": file.plan.name,
            "phases": phases,
            "targets": targets,
            "repeat": file.plan.repeat,
            "loops": file.plan.loops.as_planned(),
            "sizes_of_memory": sizes,
            "warnings": warnings,
            "mistakes": [],
        }))?,
    }
    Ok(Outcome::Done)
}

/// A line for each size that depends on the clients.
fn sizes_of_memory(sizes: &[String]) -> String {
    let lines = sizes.iter().map(|size| {
        let size = terminal::clean(size);
        format!("{size}, from the client host with the most memory\n")
    });
    lines.collect()
}

/// `plan show`.
pub async fn show(arguments: PlanShowArguments) -> anyhow::Result<Outcome> {
    let file = read(&arguments.plan.plan, &arguments.plan.set)?;
    let (steps, warnings) = match arguments.assume_agents {
        Some(agents) => offline(&file.plan, agents)?,
        None => {
            let mut client = Client::connect(&arguments.collector.collector)
                .await
                .map_err(CallError::into_error);
            let client = client.as_mut().map_err(|error| {
                anyhow::anyhow!("{error}\n  or show the plan offline with --assume-agents N")
            })?;
            let answer = client
                .start_run(&dry_run(&file))
                .await
                .map_err(CallError::into_error)?;
            (answer.steps, answer.warnings)
        }
    };
    show_steps(&file.plan.name, &steps, &warnings, arguments.plan.format)?;
    Ok(Outcome::Done)
}

/// A request that expands the plan and queues nothing.
pub fn dry_run(file: &PlanFile) -> RunRequest {
    RunRequest {
        run_uid: uuid::Uuid::new_v4().to_string(),
        plan_name: file.name.clone(),
        plan: file.text.clone(),
        agents: 0,
        agents_wait: Duration::ZERO,
        dry_run: true,
        new_agents: false,
        due_us: 0,
    }
}

/// Prints the steps of a plan.
pub fn show_steps(
    plan: &str,
    steps: &[StepPlanned],
    warnings: &[String],
    format: ListFormat,
) -> anyhow::Result<()> {
    let warnings = &[warnings, &lasting::too_short(steps)].concat();
    for warning in warnings {
        output::print_notice(&format!("warning: {}", terminal::clean(warning)));
    }
    match format {
        ListFormat::Table => output::result(&format!(
            "{}\n{}\n",
            terminal::shown(&table(steps), "json"),
            totals(plan, steps)
        )),
        ListFormat::Json => {
            #[derive(Serialize)]
            struct ShownPlan<'a> {
                plan: &'a str,
                steps: &'a [StepPlanned],
                warnings: &'a [String],
            }
            output::document(&ShownPlan {
                plan,
                steps,
                warnings,
            })
        }
    }
}

fn offline(plan: &Plan, agents: u32) -> anyhow::Result<(Vec<StepPlanned>, Vec<String>)> {
    let expansion = plan::expand(plan, &plan::assumed_agents(plan, agents))
        .map_err(|errors| wrong_usage(errors.to_string()))?;
    let steps = expansion.steps.iter().map(StepPlanned::from);
    Ok((steps.collect(), expansion.warnings))
}

fn table(steps: &[StepPlanned]) -> Table {
    let cells = |cell: fn(&StepPlanned) -> String| steps.iter().map(cell).collect::<Vec<_>>();
    let mut table = Table::default().figures("step", cells(|step| step.ordinal.to_string()));
    if steps.iter().any(|step| step.repeat > 1) {
        table = table.figures("repeat", cells(|step| step.repeat.to_string()));
    }
    table
        .text("phase", cells(|step| step.phase.clone()))
        .text_if_any("target", cells(|step| step.target.clone()))
        .text_if_any("link", cells(|step| step.link.clone()))
        .text("workload", cells(|step| step.workload.clone()))
        .text("mode", cells(|step| step.mode.clone()))
        .text_if_any("parameters", cells(params))
        .figures("tasks", cells(|step| step.tasks.to_string()))
        .figures(
            "files",
            cells(|step| dash_if(step.files == 0, figures::count(step.files))),
        )
        .figures("bytes", cells(|step| step.bytes.map_or_else(dash, size)))
        .figures(
            "time",
            cells(|step| Lasting::of(step).shown().unwrap_or_else(dash)),
        )
}

fn totals(plan: &str, steps: &[StepPlanned]) -> String {
    let bytes = steps
        .iter()
        .filter_map(|step| step.bytes)
        .fold(0_i64, i64::saturating_add);
    let mut text = format!("{}: {}", terminal::clean(plan), plural(steps.len(), "step"));
    if bytes > 0 {
        text.push_str(&format!(", {} to move", size(bytes)));
    }
    text.push_str(&lasting::totals(steps));
    text
}

fn params(step: &StepPlanned) -> String {
    let params = step.params.iter();
    let params = params.map(|(key, value)| format!("{key}={}", figures::parameter(value)));
    let cache = Some(&step.cache).filter(|cache| !["", "asis"].contains(&cache.as_str()));
    let cache = cache.map(|cache| format!("cache={cache}"));
    params.chain(cache).collect::<Vec<String>>().join(" ")
}

fn size(bytes: i64) -> String {
    figures::bytes(u64::try_from(bytes).unwrap_or(0))
}

fn dash() -> String {
    figures::NONE.to_owned()
}

fn dash_if(nothing: bool, text: String) -> String {
    if nothing { dash() } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_steps_of_a_plan() {
        let text = include_str!("../../../../plans/examples/links.toml");
        let plan = plan::parse(text, "links.toml").unwrap();
        let (steps, warnings) = offline(&plan, 3).unwrap();
        assert_eq!(warnings, [""; 0]);
        let text = |width| {
            let table = terminal::fitting(&table(&steps), width, "json");
            format!("{table}\n{}\n", totals(&plan.name, &steps))
        };
        insta::assert_snapshot!(text(200));
        insta::assert_snapshot!("the_steps_of_a_plan_in_80_columns", text(80));
    }

    /// An agent that runs another load sends nothing meanwhile.
    #[test]
    fn the_place_of_links_beside_another_load_is_theirs_alone() {
        let text = "[[phase]]\n[[phase.group]]\nname = \"idle\"\nworkload = \"null\"\nruntime = \"1s\"\nagents = [\"a\"]\n\
                    [[phase.group]]\nname = \"traffic\"\nworkload = \"network\"\nmodes = [\"request\"]\nagents = [\"b\", \"c\"]\n\
                    from = [\"b\"]\n";
        let plan = plan::parse(text, "p.toml").unwrap();
        let (steps, _) = offline(&plan, 0).unwrap();
        let places: Vec<String> = steps.iter().map(StepPlanned::place).collect();
        assert_eq!(places, ["b -> c"]);
    }
}
