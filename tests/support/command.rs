//! Runs programs to completion: the machine's own (`ip`, `mkfs.xfs`, ...) and benchmesh's commands.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

/// The exit code and the output of a finished program.
#[derive(Debug)]
pub struct CommandOutput {
    /// Its exit code, or 128 + the signal that ended it.
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl CommandOutput {
    pub fn of(output: &Output) -> Self {
        use std::os::unix::process::ExitStatusExt;
        let status = output.status;
        Self {
            code: status
                .code()
                .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Both streams, for a failed assertion.
    pub fn all(&self) -> String {
        format!(
            "exit code {}\n--- stdout\n{}\n--- stderr\n{}",
            self.code, self.out, self.err
        )
    }
}

/// The real binary.
pub fn benchmesh() -> Command {
    let mut command = Command::new(binary());
    command
        .env_remove("BENCHMESH_COLLECTOR")
        .env_remove("BENCHMESH_DB")
        .env_remove("RUST_LOG")
        .env("BENCHMESH_CREDENTIALS", credentials_directory())
        .env("NO_COLOR", "1")
        .env("COLUMNS", "200")
        .stdin(Stdio::null());
    command
}

/// The credentials of the tests' own user: one file for each running collector.
pub fn credentials_directory() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("credentials")
}

/// The path of the binary: that of this build, or another one of the same sources named by `BENCHMESH_TEST_BINARY`.
pub fn binary() -> &'static Path {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let named = std::env::var_os("BENCHMESH_TEST_BINARY");
        named.map_or_else(|| env!("CARGO_BIN_EXE_benchmesh").into(), PathBuf::from)
    });
    &BINARY
}

/// Wraps `command` in another program, which gets `arguments` before it; keeps the environment.
pub fn run_by(program: &str, arguments: &[&str], command: &Command) -> Command {
    let mut outer = Command::new(program);
    outer
        .args(arguments)
        .arg(command.get_program())
        .args(command.get_args());
    for (key, value) in command.get_envs() {
        match value {
            Some(value) => outer.env(key, value),
            None => outer.env_remove(key),
        };
    }
    outer
}

/// Runs `command` in a time namespace with monotonic clocks that are ahead by this many whole seconds.
pub fn with_clock_ahead(ahead: Duration, command: &Command) -> Command {
    let seconds = ahead.as_secs().to_string();
    let arguments = ["--time", "--monotonic", &seconds, "--boottime", &seconds];
    run_by("unshare", &arguments, command)
}

/// Runs `command` in a mount namespace in which `source` is also mounted at `target`.
pub fn with_bind_mount(source: &Path, target: &Path, command: &Command) -> Command {
    let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
    let (source, target) = (source.to_str().unwrap(), target.to_str().unwrap());
    let arguments = ["--mount", "sh", "-c", script, source, target];
    run_by("unshare", &arguments, command)
}

/// Runs `command` with a limit of open files, set by util-linux.
pub fn with_most_files(count: u32, command: &Command) -> Command {
    let limit = format!("--nofile={count}:{count}");
    run_by("prlimit", &[&limit], command)
}

/// Runs `command` with a limit of bytes pinned for the kernel, and without the capability that lifts this limit.
pub fn with_most_pinned(bytes: u64, command: &Command) -> Command {
    let bound = run_by("setpriv", &["--bounding-set=-ipc_lock"], command);
    run_by("prlimit", &[&format!("--memlock={bytes}:{bytes}")], &bound)
}

/// Starts `command` with a filter that refuses `io_uring_setup`, to it and its children.
pub fn forbid_io_uring(command: &mut Command) {
    let [read_number, equal, give] = [
        libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
        libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
        libc::BPF_RET | libc::BPF_K,
    ]
    .map(|code| code as u16);
    let statement = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let refuse = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        statement(read_number, 0, 0, 0),
        statement(equal, libc::SYS_io_uring_setup as u32, 0, 1),
        statement(give, refuse, 0, 0),
        statement(give, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: the program is valid for both calls, which are async-signal-safe and affect only the calling thread.
        let installed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ) == 0
        };
        match installed {
            true => Ok(()),
            false => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes system calls between fork and exec.
    unsafe {
        command.pre_exec(install);
    }
}

/// Runs a program of the machine; panics with its output unless it succeeds. Returns its standard output.
pub fn must(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|error| panic!("start {program}: {error}"));
    let finished = CommandOutput::of(&output);
    assert!(
        finished.code == 0,
        "{program} {}: {}",
        arguments.join(" "),
        finished.all()
    );
    finished.out
}

/// Whether a program of the machine succeeds; its output is dropped.
pub fn succeeds(program: &str, arguments: &[&str]) -> bool {
    Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}
