//! GlusterFS: volumes, their bricks and pending heals.
//!
//! Its XML consists of flat elements with text; they are read in order, without building a tree.

use super::{EACH, FactCommand, Facts, HEALTH, NotReadable, Value};

pub(super) const COMMANDS: &[FactCommand] = &[
    FactCommand {
        arguments: &["--mode=script", "volume", "info", "--xml"],
        each: None,
        parse: info,
    },
    FactCommand {
        arguments: &[
            "--mode=script",
            "volume",
            "status",
            "all",
            "detail",
            "--xml",
        ],
        each: None,
        parse: status,
    },
    FactCommand {
        arguments: &[
            "--mode=script",
            "volume",
            "heal",
            EACH,
            "statistics",
            "heal-count",
        ],
        each: Some(volumes_that_heal),
        parse: heal_count,
    },
    FactCommand {
        arguments: &["--version"],
        each: None,
        parse: version,
    },
];

/// Each element with what follows its opening tag: `<a>x</a>` is (`a`, `x`). Closing tags are left out.
fn elements(xml: &str) -> impl Iterator<Item = (&str, &str)> {
    xml.split('<').skip(1).filter_map(|piece| {
        let (tag, text) = piece.split_once('>')?;
        let name = tag.split([' ', '/']).next()?;
        (!name.is_empty()).then_some((name, text.trim()))
    })
}

/// The elements of a successful response.
fn answer(output: &str) -> Result<impl Iterator<Item = (&str, &str)>, NotReadable> {
    let value = |wanted: &str| elements(output).find(|(name, _)| *name == wanted);
    match value("opRet") {
        Some((_, "0")) => Ok(elements(output)),
        Some(_) => Err(NotReadable(match value("opErrstr") {
            Some((_, why)) if !why.is_empty() => why.to_owned(),
            _ => "gluster refused the command and gave no reason".to_owned(),
        })),
        None => Err(NotReadable("it has no `opRet`".to_owned())),
    }
}

fn info(output: &str, _: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    let mut volume = String::new();
    let mut volumes: u32 = 0;
    let mut is_next = false;
    for (name, text) in answer(output)? {
        match name {
            "volume" => is_next = true,
            "name" if is_next => {
                (volume, is_next) = (text.to_owned(), false);
                volumes = volumes.saturating_add(1);
            }
            "statusStr" => facts.add_text(format!("volume.{volume}.status"), text),
            "typeStr" => facts.add_text(format!("volume.{volume}.type"), text),
            _ => {
                let fact = match name {
                    "replicaCount" => "replica",
                    "brickCount" => "bricks",
                    "disperseCount" => "disperse",
                    "redundancyCount" => "redundancy",
                    "arbiterCount" => "arbiter",
                    _ => continue,
                };
                if let Ok(number) = text.parse::<u32>() {
                    facts.add_number(format!("volume.{volume}.{fact}"), f64::from(number), "");
                }
            }
        }
    }
    facts.add_number("volumes", f64::from(volumes), "");
    Ok(())
}

#[derive(Default)]
struct Bricks {
    online: u32,
    total_bytes: f64,
    free_bytes: f64,
}

fn status(output: &str, _: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    let mut bricks = Bricks::default();
    let mut is_brick = false;
    for (name, text) in answer(output)? {
        match name {
            "node" => is_brick = false,
            "path" => {
                // Other daemons have a host there instead of a brick path.
                is_brick = text.starts_with('/');
            }
            "status" if is_brick => bricks.online += u32::from(text == "1"),
            "sizeTotal" if is_brick => bricks.total_bytes += text.parse().unwrap_or(0.0),
            "sizeFree" if is_brick => bricks.free_bytes += text.parse().unwrap_or(0.0),
            _ => {}
        }
    }
    facts.add_number("bricks_online", f64::from(bricks.online), "");
    // Summed over all bricks: each copy counts.
    facts.add_number("total_bytes", bricks.total_bytes, "bytes");
    facts.add_number(
        "used_bytes",
        bricks.total_bytes - bricks.free_bytes,
        "bytes",
    );
    Ok(())
}

/// The started volumes.
fn started(facts: &Facts) -> impl Iterator<Item = &str> {
    facts.as_slice().iter().filter_map(|fact| {
        let name = fact.name.strip_prefix("volume.")?.strip_suffix(".status")?;
        matches!(&fact.value, Value::Text(text) if text == "Started").then_some(name)
    })
}

/// Volumes with copies; gluster has no heal count for others.
fn volumes_that_heal(facts: &Facts) -> Vec<String> {
    let copies = |name: &str| facts.number(&format!("volume.{name}.replica"));
    let heals = |name: &&str| copies(name).is_some_and(|copies| copies > 1.0);
    started(facts).filter(heals).map(str::to_owned).collect()
}

/// Each brick lists the pending heals that it holds for others: the longest list is a lower bound of their number.
fn heal_count(output: &str, volume: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    let counts = output
        .lines()
        .filter_map(|line| line.strip_prefix("Number of entries: "));
    let most = counts
        .filter_map(|count| count.trim().parse::<u32>().ok())
        .max();
    let most = most.ok_or_else(|| NotReadable("it has no `Number of entries`".to_owned()))?;
    facts.add_number(
        format!("volume.{volume}.heals_pending"),
        f64::from(most),
        "",
    );
    Ok(())
}

/// `glusterfs 10.3`
fn version(output: &str, _: &str, facts: &mut Facts) -> Result<(), NotReadable> {
    let version = output
        .lines()
        .next()
        .and_then(|line| line.strip_prefix("glusterfs "));
    let version = version.ok_or_else(|| NotReadable("it has no version".to_owned()))?;
    facts.add_text("version", version);
    Ok(())
}

/// GlusterFS does not report the health of a cluster. If a count is missing, the cluster may or may not be degraded.
pub(super) fn conclude(facts: &mut Facts) {
    let count = |name: &str| facts.number(&format!("volume.{name}.bricks"));
    // A host that is down is missing from the status.
    let bricks: f64 = started(facts).filter_map(count).sum();
    let pending = |name: &String| facts.number(&format!("volume.{name}.heals_pending"));
    let healing = volumes_that_heal(facts);
    let pending: Option<f64> = healing.iter().map(pending).sum();
    if let Some(pending) = pending.filter(|_| !healing.is_empty()) {
        facts.add_number("heals_pending", pending, "");
    }
    let Some(online) = facts
        .number("bricks_online")
        .filter(|_| facts.get("volumes").is_some())
    else {
        return;
    };
    facts.add_number("bricks", bricks, "");
    match pending {
        _ if online < bricks => facts.add_text(HEALTH, "degraded"),
        Some(pending) if pending > 0.0 => facts.add_text(HEALTH, "degraded"),
        Some(_) => facts.add_text(HEALTH, "ok"),
        None => {}
    }
}
