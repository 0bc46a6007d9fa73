//! Real processes that sleep, to be sampled: the bench program itself, started again with `--sleeper`.

#![allow(clippy::unwrap_used, reason = "a bench may panic")]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

/// What the kernel calls them, so that a rule finds them.
pub const COMM: &str = "bm-sleeper";

pub struct Sleepers {
    children: Vec<Child>,
}

impl Sleepers {
    /// Returns when all of them have their name and their threads.
    pub fn start(count: usize, threads: usize) -> Sleepers {
        let own = std::env::current_exe().unwrap();
        let start = || {
            let mut command = Command::new(&own);
            command.args(["--sleeper", &threads.to_string()]);
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
    /// Each ends with its standard input.
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// Never returns in a sleeper; does nothing in the bench itself.
pub fn sleep_if_told() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some("--sleeper") {
        return;
    }
    let threads: usize = arguments.next().unwrap().parse().unwrap();
    rustix::thread::set_name(&std::ffi::CString::new(COMM).unwrap()).unwrap();
    for _ in 1..threads {
        std::thread::spawn(|| {
            loop {
                std::thread::park();
            }
        });
    }
    std::io::stdout().write_all(b".").unwrap();
    std::io::stdout().flush().unwrap();
    // Until the bench lets go of the other end.
    let _ = std::io::stdin().read(&mut [0]);
    std::process::exit(0);
}
