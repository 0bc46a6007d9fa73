//! Checks the files under packaging as far as possible without building a package; `packaging/test` does the rest.

use crate::support::command::{CommandOutput, benchmesh};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging")
}

fn run(command: &mut Command) -> CommandOutput {
    CommandOutput::of(&command.output().unwrap())
}

#[test]
fn scripts_are_sound_shell() {
    for (shell, script) in [
        ("bash", "build"),
        ("bash", "test"),
        ("bash", "deploy-agents"),
        ("sh", "install"),
        ("sh", "debian/postinst"),
        ("sh", "debian/prerm"),
        ("sh", "debian/postrm"),
    ] {
        let output = run(Command::new(shell).arg("-n").arg(packaging().join(script)));
        assert_eq!(output.code, 0, "{script}: {}", output.all());
    }
    let without_arguments = run(&mut Command::new(packaging().join("deploy-agents")));
    assert_eq!(without_arguments.code, 2, "{}", without_arguments.all());
    assert!(without_arguments.err.contains("--collector HOST:PORT"));
}

/// The directory that the tar unpacks to, with a substitute for the binary.
fn unpacked() -> TempDir {
    let place = tempfile::tempdir().unwrap();
    for name in ["install", "deploy-agents", "agent.toml", "collector.toml"] {
        std::fs::copy(packaging().join(name), place.path().join(name)).unwrap();
    }
    for directory in [
        "man",
        "completions",
        "systemd",
        "docs",
        "plans/examples",
        "plans/studies",
    ] {
        std::fs::create_dir_all(place.path().join(directory)).unwrap();
    }
    for unit in ["benchmesh-agent.service", "benchmesh-collector.service"] {
        let from = packaging().join("systemd").join(unit);
        std::fs::copy(from, place.path().join("systemd").join(unit)).unwrap();
    }
    for name in [
        "benchmesh",
        "man/benchmesh.1",
        "completions/benchmesh.bash",
        "completions/_benchmesh",
        "completions/benchmesh.fish",
        "docs/plan.md",
        "plans/quickstart.toml",
        "plans/examples/io.toml",
        "plans/studies/five-systems.toml",
    ] {
        std::fs::write(place.path().join(name), "x").unwrap();
    }
    place
}

/// Every path below the directory, with its permissions.
fn modes(directory: &Path, found: &mut Vec<(PathBuf, u32)>) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
        found.push((entry.path(), mode));
        if entry.file_type().unwrap().is_dir() {
            modes(&entry.path(), found);
        }
    }
}

/// `deploy-agents` sets a umask that keeps the join token private.
#[test]
fn the_tar_installs_for_all_users_whatever_the_umask() {
    let (place, root) = (unpacked(), tempfile::tempdir().unwrap());
    let install = |arguments: &str| {
        let script = format!("umask 077; ./install --prefix /usr --root \"$1\" {arguments}");
        let mut shell = Command::new("sh");
        shell.args(["-ec", &script, "sh"]).arg(root.path());
        let output = run(shell.current_dir(place.path()));
        assert_eq!(output.code, 0, "{}", output.all());
        let mut found = Vec::new();
        modes(root.path(), &mut found);
        found
    };
    let installed = install("");
    assert!(installed.len() > 15, "{installed:?}");
    for (path, mode) in &installed {
        let expected = match path.file_name().unwrap().to_str().unwrap() {
            "agent.toml" => 0o600,
            "benchmesh" if path.ends_with("bin/benchmesh") => 0o755,
            "benchmesh-deploy-agents" => 0o755,
            _ if path.is_dir() => 0o755,
            _ => 0o644,
        };
        assert_eq!(*mode, expected, "{}", path.display());
    }
    let left = install("--remove");
    let files = left.iter().filter(|(path, _)| path.is_file());
    let files: Vec<_> = files.map(|(path, _)| path.file_name().unwrap()).collect();
    assert_eq!(files.len(), 2, "{files:?}");
}

/// The command lines of the units are valid, and the units contain no other options.
#[test]
fn units_start_what_there_is() {
    for name in ["agent", "collector"] {
        let unit = packaging().join(format!("systemd/benchmesh-{name}.service"));
        let unit = std::fs::read_to_string(unit).unwrap();
        let line = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        let words: Vec<&str> = line.unwrap().split(' ').collect();
        let file = format!("/etc/benchmesh/{name}.toml");
        assert_eq!(
            words,
            ["/usr/bin/benchmesh", name, "--config", file.as_str()]
        );
        assert!(unit.contains("Type=notify\n") && unit.contains("WatchdogSec="));
    }
}

/// The token of one host is useless on the next, and a host that has joined gets none.
#[test]
fn each_host_gets_a_join_token_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
        path
    };
    // Each call returns a new token; hosts only record their commands.
    write(
        "benchmesh",
        "#!/bin/sh\necho \"$*\" >> \"$0.calls\"\ncase $* in *cancel*) cat >> \"$0.cancelled\" ;; *) echo \"token-$$\" ;; esac\n",
    );
    let ssh = write(
        "ssh",
        "#!/bin/sh\ncase $2 in\n*credentials.json*) [ \"$1\" = joined ] ;;\n\
         *mktemp*) [ \"$1\" != away ] || exit 255; cat > /dev/null; echo /tmp/none/x.deb ;;\n\
         *) cat > \"$0.$1\"; [ \"$1\" != failing ] ;;\nesac\n",
    );
    let (package, config) = (write("x.deb", "x"), write("agents.toml", ""));
    let path = format!(
        "{}:{}",
        place.path().display(),
        std::env::var("PATH").unwrap()
    );
    let deploy = |hosts: &[&str]| {
        let mut deploy = Command::new(packaging().join("deploy-agents"));
        deploy.env("PATH", &path).env("BENCHMESH_SSH", &ssh);
        deploy.args(["--collector", "central:4750", "--package"]);
        deploy
            .arg(&package)
            .arg("--config")
            .arg(&config)
            .args(hosts);
        run(&mut deploy)
    };
    let output = deploy(&["a", "b", "joined"]);
    assert_eq!(output.code, 0, "{}", output.all());
    let tokens = |host: &str| {
        let script = std::fs::read_to_string(place.path().join(format!("ssh.{host}"))).unwrap();
        let tokens = script.lines().filter(|line| line.starts_with("token-"));
        tokens.map(str::to_owned).collect::<Vec<_>>()
    };
    let (a, b) = (tokens("a"), tokens("b"));
    assert!(a.len() == 1 && b.len() == 1 && a != b, "{a:?} {b:?}");
    assert_eq!(tokens("joined"), [] as [String; 0]);
    let calls = std::fs::read_to_string(place.path().join("benchmesh.calls")).unwrap();
    assert_eq!(calls, "collector token\ncollector token\n");

    std::fs::remove_file(place.path().join("benchmesh.calls")).unwrap();
    let output = deploy(&["away", "failing"]);
    assert_eq!(output.code, 1, "{}", output.all());
    let calls = std::fs::read_to_string(place.path().join("benchmesh.calls")).unwrap();
    assert_eq!(
        calls,
        "collector token\ncollector token cancel --token-file -\n"
    );
    let cancelled = std::fs::read_to_string(place.path().join("benchmesh.cancelled")).unwrap();
    assert_eq!(cancelled.lines().collect::<Vec<_>>(), tokens("failing"));
}

/// Validated by the schemas of Kubernetes' API; the configuration in it by doctor.
#[test]
fn the_daemon_set_is_valid() {
    let manifest = packaging().join("kubernetes/agent.yaml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let after = text.split("  agent.toml: |\n").nth(1).unwrap();
    let lines = after.lines().map_while(|line| line.strip_prefix("    "));
    let config = lines.collect::<Vec<_>>().join("\n");
    assert!(config.contains("allow = "), "{config}");
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("agent.toml");
    // Names of a cluster do not resolve here.
    std::fs::write(&file, config.replace("central:4750", "127.0.0.1:1")).unwrap();
    let mut doctor = benchmesh();
    doctor.arg("doctor").arg("--config").arg(&file);
    let output = run(doctor.arg("--state-dir").arg(place.path().join("state")));
    assert_eq!(output.code, 1, "{}", output.all());
    assert!(output.out.contains("/mnt/cephfs"), "{}", output.all());

    let python = match benchmesh_testing::python("python-kubernetes", &["kubernetes_validate"]) {
        Ok(python) => python,
        Err(problem) => {
            benchmesh_testing::skip("pypi", &problem);
            return;
        }
    };
    let validate = |file: &Path| {
        let mut command = Command::new(python.with_file_name("kubernetes-validate"));
        run(command.arg("--strict").arg(file))
    };
    let output = validate(&manifest);
    assert_eq!(output.code, 0, "{}", output.all());
    let wrong = place.path().join("wrong.yaml");
    std::fs::write(&wrong, text.replace("hostPID: true", "hostPid: true")).unwrap();
    assert_ne!(validate(&wrong).code, 0, "a wrong key is accepted");
}
