//! `run` and `watch` on a real terminal: the view comes, follows its size, and gives the terminal back however it ends.

use crate::support::mesh::Mesh;
use crate::support::plan;
use crate::support::wait::{until, until_true};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// The alternate screen, and back.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const CTRL_C: &[u8] = b"\x03";
/// Only a hang reaches it.
const LIMIT: Duration = Duration::from_secs(60);

/// A command on a terminal of its own, which it controls.
struct OnTerminal {
    terminal: File,
    child: Child,
    output: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
    before: Termios,
}

impl OnTerminal {
    fn start(mut command: Command, columns: u16, rows: u16) -> Self {
        let master =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let terminal = File::from(rustix::fs::open(name.as_c_str(), flags, Mode::empty()).unwrap());
        let master = File::from(master);
        set_size(&master, columns, rows);
        let before = tcgetattr(&terminal).unwrap();
        command
            .env("TERM", "xterm")
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal);
        // SAFETY: both calls are async-signal-safe; descriptor 0 is the terminal.
        unsafe {
            command.pre_exec(|| {
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        let output = Arc::<Mutex<Vec<u8>>>::default();
        let (mut reader, kept) = (master.try_clone().unwrap(), Arc::clone(&output));
        let reader = std::thread::spawn(move || {
            let mut piece = [0; 4096];
            // Ends with the last process on the terminal.
            while let Ok(count @ 1..) = reader.read(&mut piece) {
                kept.lock().unwrap().extend(&piece[..count]);
            }
        });
        Self {
            terminal: master,
            child,
            output,
            reader: Some(reader),
            before,
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    fn until_shown(&self, text: &str) {
        until_true(text, LIMIT, || self.shown().contains(text));
    }

    fn type_in(&mut self, keys: &[u8]) {
        self.terminal.write_all(keys).unwrap();
    }

    /// The exit code, and what is on the terminal after the view; the terminal is as it was.
    fn end(mut self) -> (Option<i32>, String) {
        let ended = until("the end of the command", LIMIT, || {
            self.child.try_wait().unwrap()
        });
        // Nobody writes to the terminal now; its modes are still there.
        let after = tcgetattr(&self.terminal).unwrap();
        self.reader.take().unwrap().join().unwrap();
        let modes = |termios: &Termios| {
            (
                termios.local_modes,
                termios.input_modes,
                termios.output_modes,
                format!("{:?}", termios.special_codes),
            )
        };
        assert_eq!(modes(&after), modes(&self.before));
        let shown = self.shown();
        assert_eq!(shown.matches(ENTER).count(), 1, "{shown:?}");
        let (_, rest) = shown.split_once(LEAVE).unwrap();
        (ended.code(), rest.replace("\r\n", "\n"))
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // Both fail only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn set_size(terminal: &File, columns: u16, rows: u16) {
    let size = Winsize {
        ws_col: columns,
        ws_row: rows,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

#[test]
fn the_view_of_a_run_is_left_and_taken_up_again_and_stops_it() {
    let target = tempfile::tempdir().unwrap();
    let mesh = Mesh::of(&["c1", "c2"], target.path());
    let plan = mesh.plan(&plan::endless_writes(target.path()));
    let begin = |arguments: &[&str]| {
        let mut command = mesh.benchmesh();
        command.args(arguments);
        OnTerminal::start(command, 100, 30)
    };

    let mut run = begin(&["run", "--new-agents", plan.to_str().unwrap()]);
    run.until_shown("q: detach, the run continues    Ctrl-C: stop the run");
    run.until_shown("clients (2), slowest first");
    // Arrows contain letters.
    run.type_in(b"\x1b[A\x1bOQ");
    run.type_in(b"q");
    let (code, rest) = run.end();
    assert_eq!(code, Some(0));
    assert_eq!(
        rest,
        "detached from run 1, which continues\nfollow it with: benchmesh watch 1\nstop it with: benchmesh stop 1\n"
    );

    let mut watch = begin(&["watch"]);
    watch.until_shown("q or Ctrl-C: stop watching, the run continues");
    set_size(&watch.terminal, 30, 8);
    watch.until_shown("q: stop watching");
    watch.type_in(CTRL_C);
    let (code, rest) = watch.end();
    assert_eq!(code, Some(0));
    assert_eq!(
        rest,
        "stopped watching; the run continues\nwatch it again with: benchmesh watch 1\n"
    );

    // The run ends while it is watched.
    let watch = begin(&["watch", "1"]);
    watch.until_shown("clients (2), slowest first");
    assert_eq!(mesh.command(&["stop", "1"]).code, 0);
    let (code, rest) = watch.end();
    assert_eq!(code, Some(3), "{rest}");
    assert!(rest.starts_with("run 1 "), "{rest}");

    let objective = "rate > 1 for 1% of seconds";
    let mut run = begin(&["run", "--objective", objective, plan.to_str().unwrap()]);
    run.until_shown("q: detach, the run continues    Ctrl-C: stop the run");
    run.type_in(b"q");
    let (code, rest) = run.end();
    assert_eq!(code, Some(3), "{rest}");
    assert_eq!(
        rest.lines().last(),
        Some(
            "the objectives were not judged: the run has not ended; judge them later with: benchmesh report 2 --junit FILE"
        ),
        "{rest}"
    );
    assert_eq!(mesh.command(&["stop", "2"]).code, 0);

    let mut run = begin(&["run", plan.to_str().unwrap()]);
    run.until_shown("clients (2), slowest first");
    run.type_in(CTRL_C);
    let (code, rest) = run.end();
    assert_eq!(code, Some(3), "{rest}");
    assert!(rest.starts_with("run 3 "), "{rest}");
}
