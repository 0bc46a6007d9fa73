//! Real processes to be sampled: the bench program itself, started again with `--sleeper`. They sleep and wake briefly,
//! as a daemon's timers do. The interval is a parameter for the first thread and a second for the others.

#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use benchmesh_workloads::clock::{MonoNanos, sleep_until};
use rustix::event::{PollFd, PollFlags, Timespec};

/// The process name of this bench's sleepers, which a rule matches without matching those of other runs.
pub fn comm() -> String {
    format!("bm-sl-{}", std::process::id())
}

pub struct Sleepers {
    children: Vec<Child>,
}

impl Sleepers {
    /// Returns when all of them have their name and their threads.
    pub fn start(count: usize, threads: usize, wake_every: Option<Duration>) -> Sleepers {
        let own = std::env::current_exe().unwrap();
        let start = || {
            let mut command = Command::new(&own);
            let wake_ms = wake_every.map_or(0, |every| every.as_millis());
            command.args([
                "--sleeper",
                &comm(),
                &threads.to_string(),
                &wake_ms.to_string(),
            ]);
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let mut children: Vec<Child> = (0..count).map(|_| start()).collect();
        for child in &mut children {
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        }
        Sleepers { children }
    }

    #[allow(dead_code, reason = "one of the programs reads their files itself")]
    pub fn pids(&self) -> Vec<u32> {
        self.children.iter().map(Child::id).collect()
    }
}

impl Drop for Sleepers {
    /// Each child ends when its standard input is closed.
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Whether this process was a sleeper and is done; false in the bench itself.
pub fn has_slept() -> bool {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some("--sleeper") {
        return false;
    }
    let comm = std::ffi::CString::new(arguments.next().unwrap()).unwrap();
    rustix::thread::set_name(&comm).unwrap();
    let threads: usize = arguments.next().unwrap().parse().unwrap();
    let wake_ms: i32 = arguments.next().unwrap().parse().unwrap();
    let asleep = wake_ms == 0;
    for _ in 1..threads {
        std::thread::spawn(move || {
            loop {
                if asleep {
                    std::thread::park()
                } else {
                    sleep_until(MonoNanos::now().saturating_add(Duration::from_secs(1)))
                }
            }
        });
    }
    std::io::stdout().write_all(b".").unwrap();
    std::io::stdout().flush().unwrap();
    // Sleeps until the bench closes the other end.
    let every = Timespec {
        tv_sec: (wake_ms / 1000).into(),
        tv_nsec: (wake_ms % 1000 * 1_000_000).into(),
    };
    loop {
        let stdin = std::io::stdin();
        let mut input = [PollFd::new(&stdin, PollFlags::IN)];
        if rustix::event::poll(&mut input, (!asleep).then_some(&every)).unwrap() > 0 {
            return true;
        }
    }
}
