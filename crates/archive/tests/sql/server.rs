//! A PostgreSQL of its own, as an ordinary user in a temporary directory, that listens on a socket there only.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Stopped when it is dropped.
pub struct TestServer {
    directory: tempfile::TempDir,
    programs: PathBuf,
}

impl TestServer {
    /// `None` if no PostgreSQL is installed, which is reported as a skip.
    pub fn start(test: &str) -> Option<Self> {
        let Some(programs) = programs() else {
            benchmesh_testing::skip(
                "postgres",
                &format!("{test}: no initdb in /usr/lib/postgresql or PATH"),
            );
            return None;
        };
        let directory = tempfile::tempdir().unwrap();
        let everyone = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), everyone).unwrap();
        let server = Self {
            directory,
            programs,
        };
        server.run(
            "initdb",
            &[
                "-U",
                "postgres",
                "-A",
                "trust",
                "-E",
                "UTF8",
                "--locale",
                "C.UTF-8",
                "--no-sync",
            ],
        );
        let socket = server.path().display().to_string();
        let options =
            format!("-k '{socket}' -c listen_addresses= -c fsync=off -c max_connections=20");
        server.run(
            "pg_ctl",
            &[
                "-w",
                "-o",
                &options,
                "-l",
                &format!("{socket}/log"),
                "start",
            ],
        );
        Some(server)
    }

    pub fn url(&self) -> String {
        let socket = self.path().display().to_string().replace('/', "%2F");
        format!("postgres://postgres@{socket}/postgres")
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// PostgreSQL refuses to run as root.
    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.output(program, arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program}: {error}");
    }

    fn output(&self, program: &str, arguments: &[&str]) -> Output {
        let program = self.programs.join(program);
        let is_root = std::fs::metadata("/proc/self").is_ok_and(|found| {
            use std::os::unix::fs::MetadataExt;
            found.uid() == 0
        });
        let mut command = Command::new("setpriv");
        if is_root {
            command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups"]);
        }
        command
            .arg(program)
            .arg("-D")
            .arg(self.path().join("data"))
            .args(arguments);
        command.current_dir("/").stdout(std::process::Stdio::null());
        command.output().unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.output("pg_ctl", &["-m", "immediate", "-w", "stop"]);
    }
}

/// The directory of the newest installed server's programs.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut found: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    found.sort();
    found.extend(
        std::env::var_os("PATH")
            .iter()
            .flat_map(std::env::split_paths),
    );
    found.into_iter().find(|path| path.join("initdb").exists())
}
