//! The other process, with all the agents. For each command named on its standard input it prints on one line when each
//! agent received it, in microseconds.

use crate::fake_agent::{FakeAgent, Script};
use std::io::BufRead;
use std::time::Duration;

/// How long a task runs, unless it runs for whole seconds.
const RUNS_FOR: Duration = Duration::from_millis(200);
/// Number of concurrent connection attempts.
const AT_ONCE: usize = 32;

/// `seconds`: duration of a task, with a row per second; 0 means a short task with one row.
pub fn run(address: &str, count: usize, seconds: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let address = address.parse().unwrap();
    let agents: Vec<FakeAgent> = (0..count)
        .map(|agent| {
            let script = Script {
                runs_for: match seconds {
                    0 => RUNS_FOR,
                    seconds => Duration::from_secs(seconds),
                },
                row_per_second: seconds > 0,
                host: format!("host-{agent}"),
                ..Script::default()
            };
            FakeAgent::new(&format!("agent-{agent:04}"), script)
        })
        .collect();
    runtime.block_on(async {
        for some in agents.chunks(AT_ONCE) {
            let attaching = some.iter().map(|agent| agent.attach(address));
            for attached in futures::future::join_all(attaching).await {
                attached.unwrap();
            }
        }
        println!("attached");
        // Reads block, so they run on a thread of their own.
        loop {
            let line = tokio::task::spawn_blocking(|| {
                let mut line = String::new();
                std::io::stdin().lock().read_line(&mut line).unwrap();
                line
            });
            let line = line.await.unwrap();
            if line.is_empty() {
                return;
            }
            let heard: Vec<String> = agents
                .iter()
                .flat_map(|agent| agent.heard(line.trim()))
                .map(|at| at.to_string())
                .collect();
            println!("{}", heard.join(" "));
        }
    });
}
