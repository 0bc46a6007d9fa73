//! A PostgreSQL server of a test's own: in a temporary directory, on a socket there, as an ordinary user, since it
//! refuses root. It ends with the value.

use crate::skip;
use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const NOBODY: u32 = 65_534;
const UP_WITHIN: Duration = Duration::from_secs(60);

/// A server that is stopped or runs.
#[derive(Debug)]
pub struct PostgresServer {
    programs: PathBuf,
    directory: PathBuf,
    child: Option<Child>,
    settings: Vec<String>,
    /// Of the network, if it listens there, and part of the socket's name.
    port: u16,
}

impl PostgresServer {
    /// A running server with a superuser `postgres` whom every local user may be. `None` (and a skipped test) if
    /// PostgreSQL 15 or newer is not installed.
    pub fn start() -> Option<Self> {
        let mut server = Self::stopped()?;
        server.run(&["-c", "fsync=off"]);
        Some(server)
    }

    /// One that has not been started yet.
    pub fn stopped() -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let Some(programs) = programs() else {
            skip(
                "postgres",
                "no PostgreSQL 15 or newer in /usr/lib/postgresql",
            );
            return None;
        };
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("benchmesh-postgres-{}-{nth}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir(&directory).expect("a directory for the server");
        let server = Self {
            programs,
            directory,
            child: None,
            settings: Vec::new(),
            port: 5432,
        };
        server.give(&server.directory, 0o755);
        let mut initdb = server.command("initdb");
        initdb.args([
            "-U",
            "postgres",
            "-A",
            "trust",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
            "-D",
        ]);
        let made = initdb.arg(server.data()).output().expect("initdb runs");
        let said = String::from_utf8_lossy(&made.stderr).into_owned();
        assert!(made.status.success(), "initdb: {said}");
        Some(server)
    }

    /// Starts it with further settings, such as `-c` and `ssl=on`, and waits until it takes connections.
    pub fn run(&mut self, settings: &[&str]) {
        self.settings = settings.iter().map(|one| (*one).to_owned()).collect();
        self.again();
    }

    /// Listens on a port of the loopback interface from the next start on.
    pub fn listen(&mut self) -> u16 {
        let free =
            std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
        self.port = free.expect("a free port").port();
        self.port
    }

    /// Starts it as before.
    #[expect(
        clippy::disallowed_methods,
        reason = "the pause between two looks at a condition with a deadline"
    )]
    pub fn again(&mut self) {
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.join("log"))
            .expect("a log");
        let listen = match self.port {
            5432 => "listen_addresses=",
            _ => "listen_addresses=127.0.0.1",
        };
        let mut postgres = self.command("postgres");
        postgres
            .arg("-D")
            .arg(self.data())
            .arg("-k")
            .arg(&self.directory)
            .arg("-p")
            .arg(self.port.to_string())
            .args(["-c", listen, "-c", "shared_buffers=16MB"])
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.child = Some(postgres.spawn().expect("postgres starts"));
        let deadline = Instant::now() + UP_WITHIN;
        while self.try_sql("postgres", "SELECT 1").is_err() {
            assert!(Instant::now() < deadline, "not up: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops it at once, as a crash does.
    pub fn crash(&mut self) {
        self.signal(rustix::process::Signal::QUIT);
    }

    fn signal(&mut self, signal: rustix::process::Signal) {
        if let Some(mut child) = self.child.take() {
            let pid = rustix::process::Pid::from_child(&child);
            let _ = rustix::process::kill_process(pid, signal);
            let _ = child.wait();
        }
    }

    /// Its directory: the socket, and beneath it `data`.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    pub fn data(&self) -> PathBuf {
        self.directory.join("data")
    }

    /// The URL of a database for a user, over the socket.
    pub fn url(&self, user: &str, database: &str) -> String {
        let host = self.directory.display();
        format!(
            "postgres:///{database}?user={user}&host={host}&port={}",
            self.port
        )
    }

    /// Makes a file in its data directory that only the server reads.
    pub fn file(&self, name: &str, text: &str) {
        let path = self.data().join(name);
        std::fs::write(&path, text).expect("a file of the server");
        self.give(&path, 0o600);
    }

    /// Makes an existing directory or file the server's.
    pub fn give(&self, path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("permissions");
        if rustix::process::geteuid().is_root() {
            chown(path, Some(NOBODY), Some(NOBODY)).expect("an owner");
        }
    }

    /// Runs statements as the superuser; the rows of the last one, columns separated by `|`.
    ///
    /// # Panics
    ///
    /// If the server refuses one.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        match self.try_sql(database, statements) {
            Ok(rows) => rows,
            Err(error) => panic!("{statements}: {error}"),
        }
    }

    /// Runs a script of psql, which may have its own commands.
    ///
    /// # Panics
    ///
    /// If a line of it fails.
    pub fn script(&self, database: &str, script: &str) {
        let file = self.directory.join("script.sql");
        std::fs::write(&file, script).expect("a script");
        let ran = self
            .psql(database)
            .arg("-f")
            .arg(&file)
            .output()
            .expect("psql runs");
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{script}: {said}");
    }

    fn psql(&self, database: &str) -> Command {
        let mut psql = Command::new(self.programs.join("psql"));
        psql.args([
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "postgres",
            "-h",
        ])
        .arg(&self.directory)
        .args(["-p", &self.port.to_string(), "-d", database])
        .stdin(Stdio::null());
        psql
    }

    fn try_sql(&self, database: &str, statements: &str) -> Result<String, String> {
        let psql = self.psql(database).args(["-c", statements]).output();
        let psql = psql.map_err(|error| error.to_string())?;
        match psql.status.success() {
            true => Ok(String::from_utf8_lossy(&psql.stdout).trim_end().to_owned()),
            false => Err(String::from_utf8_lossy(&psql.stderr).into_owned()),
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// A program of the server, as its user.
    fn command(&self, program: &str) -> Command {
        let program = self.programs.join(program);
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("setpriv");
                let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
                command.args([&user, &group, "--clear-groups"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        command.current_dir(&self.directory);
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.signal(rustix::process::Signal::QUIT);
        if std::thread::panicking() {
            let log = self.log();
            let from = log.len().saturating_sub(4000);
            crate::say(&format!(
                "the server's log: {}",
                log.get(from..).unwrap_or(&log)
            ));
        }
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Of the newest version that is installed.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").ok()?;
    let versions =
        versions.filter_map(|version| version.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let newest = versions.filter(|version| *version >= 15).max()?;
    let programs = PathBuf::from(format!("/usr/lib/postgresql/{newest}/bin"));
    programs.join("initdb").is_file().then_some(programs)
}
