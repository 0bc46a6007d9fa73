//! Attacks with valid certificates and from within the host: each is refused, and logged once, during a step that loses
//! no operation.

use super::{LIMIT, peak_rss_kib};
use crate::needs;
use crate::support::fake_agent::{certified, converse};
use crate::support::mesh::{Agent, Mesh};
use crate::support::wait::until_true;
use benchmesh_trust::{Credentials, Security};
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;

const OPS: i64 = 8000;

/// A mesh with an agent `honest` and its paced step, which must lose no operation.
fn while_a_step_goes_on(mesh: &mut Mesh, attack: impl FnOnce(&Mesh)) {
    mesh.add(Agent::named("honest"));
    let mut run = mesh.begin(&format!(
        "[clients]\nagents = [\"honest\"]\n[[phase]]\nworkload = \"null\"\nops = {OPS}\nrate_iops = 1000\n"
    ));
    mesh.until_step_is("run", "running", LIMIT);
    attack(mesh);
    let ended = run.exit_within(LIMIT).expect("the honest run ends");
    assert!(ended.success(), "{ended}:\n{}", run.log());
    let db = mesh.db();
    db.assert_sound();
    let row = &db.rows(
        "SELECT r.partial, s.ops, s.errors FROM runs r JOIN steps t ON t.run_id = r.id
         JOIN step_results s ON s.step_id = t.id ORDER BY r.id LIMIT 1",
    )[0];
    assert_eq!(
        (
            row.integer("partial"),
            row.integer("ops"),
            row.integer("errors")
        ),
        (0, OPS, 0)
    );
    assert!(!mesh.collector().log().contains("panicked"));
}

/// A plan that writes files below `path`.
fn files_in(path: &Path) -> String {
    format!(
        "[clients]\nagents = [\"bounded\"]\n[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\n\
         workload = \"files\"\nfiles = 5\nsize = \"4k\"\nmodes = [\"create\", \"delete\"]\n",
        path.display()
    )
}

#[test]
fn no_path_leads_out_of_what_an_agent_allows() {
    let allowed = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let treasure = outside.path().join("treasure");
    std::fs::write(&treasure, "gold").unwrap();
    symlink(outside.path(), allowed.path().join("link")).unwrap();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("bounded").allow(allowed.path()));
    while_a_step_goes_on(&mut mesh, |mesh| {
        let name = outside.path().file_name().unwrap();
        let pid = mesh.agent("bounded").pid().to_string();
        let by_root = |process: &str| {
            let root = Path::new("/proc").join(process).join("root");
            root.join(outside.path().strip_prefix("/").unwrap())
        };
        for path in [
            outside.path().to_owned(),
            allowed.path().join("..").join(name),
            allowed.path().join("link"),
            by_root("self"),
            by_root(&pid),
            PathBuf::from("/proc/self/cwd"),
        ] {
            let plan = mesh.plan(&files_in(&path));
            let refused = mesh.command(&["run", plan.to_str().unwrap()]);
            assert_ne!(refused.code, 0, "{}: {}", path.display(), refused.all());
            let is_said = ["allow", "..", "symlink"]
                .iter()
                .any(|word| refused.err.contains(word));
            assert!(is_said, "{}: {}", path.display(), refused.all());
        }
    });
    let left: Vec<_> = std::fs::read_dir(outside.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "{left:?}");
    assert_eq!(std::fs::read_to_string(&treasure).unwrap(), "gold");
}

/// A hard link in a run's directory to a file elsewhere: the name is removed with the run, and the file stays
/// unchanged. Only the agent's user can create one there.
#[test]
fn a_hard_link_in_a_runs_directory_costs_its_name_alone() {
    hard_link_in_a_runs_directory();
}

fn hard_link_in_a_runs_directory() {
    let parent = tempfile::tempdir().unwrap();
    let allowed = parent.path().join("allowed");
    std::fs::create_dir(&allowed).unwrap();
    let treasure = parent.path().join("treasure");
    std::fs::write(&treasure, "gold").unwrap();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("bounded").allow(&allowed));
    let mut run = mesh.begin(&format!(
        "[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\nworkload = \"io\"\nmodes = [\"write\"]\n\
         size = \"64k\"\nbs = \"4k\"\nruntime = \"4s\"\nrate_iops = 50\n",
        allowed.display()
    ));
    mesh.until_step_is("write", "running", LIMIT);
    let made = std::fs::read_dir(&allowed)
        .unwrap()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(
        made.metadata().unwrap().permissions().mode() & 0o077,
        0,
        "{made:?}"
    );
    std::fs::hard_link(&treasure, made.path().join("link")).unwrap();
    assert_eq!(treasure.metadata().unwrap().nlink(), 2);
    let ended = run.exit_within(LIMIT).expect("the run ends");
    assert!(ended.success(), "{ended}:\n{}", run.log());
    until_true("the run's directory is gone", LIMIT, || {
        std::fs::read_dir(&allowed).unwrap().next().is_none()
    });
    let facts = treasure.metadata().unwrap();
    assert_eq!(
        (facts.nlink(), facts.mode() & 0o777),
        (1, 0o644 & facts.mode())
    );
    assert_eq!(std::fs::read_to_string(&treasure).unwrap(), "gold");
}

/// A bind mount that is removed on drop.
struct BindMount(PathBuf);

impl BindMount {
    fn of(source: &Path, at: PathBuf) -> Self {
        std::fs::create_dir(&at).unwrap();
        rustix::mount::mount_bind(source, &at).unwrap();
        Self(at)
    }
}

impl Drop for BindMount {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A directory of the same file system is mounted into a run's directory during a load: nothing in it is removed, and
/// an event names the leftovers.
#[test]
fn a_mount_in_a_runs_directory_is_left_alone() {
    needs!("root");
    mount_in_a_runs_directory();
}

fn mount_in_a_runs_directory() {
    let (allowed, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let treasure = outside.path().join("treasure");
    std::fs::write(&treasure, "gold").unwrap();
    let mut mesh = Mesh::start();
    mesh.add(Agent::named("bounded").allow(allowed.path()));
    let mut run = mesh.begin(&format!(
        "[clients]\nagents = [\"bounded\"]\n[targets.t]\nsystem = \"local\"\npath = \"{}\"\n[[phase]]\nworkload = \"io\"\n\
         modes = [\"write\"]\nsize = \"64k\"\nbs = \"4k\"\nruntime = \"4s\"\nrate_iops = 50\n",
        allowed.path().display()
    ));
    mesh.until_step_is("write", "running", LIMIT);
    let made = std::fs::read_dir(allowed.path()).unwrap().next();
    let made = made.unwrap().unwrap().path();
    let mount = BindMount::of(outside.path(), made.join("mounted"));
    let ended = run.exit_within(LIMIT).expect("the run ends");
    assert!(ended.success(), "{ended}:\n{}", run.log());
    let left = "SELECT message FROM events WHERE kind = 'directory-left'";
    let left = mesh.db().column::<String>(left);
    assert!(
        matches!(&left[..], [one] if one.contains("something is mounted there")),
        "{left:?}"
    );
    drop(mount);
    assert_eq!(std::fs::read_to_string(&treasure).unwrap(), "gold");
}

/// A TLS connection, before HTTP/2.
async fn secured(address: SocketAddr, own: &Credentials) -> TlsStream<tokio::net::TcpStream> {
    let Security::Tls(config) = Security::of(own).unwrap() else {
        panic!("it is TLS");
    };
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("collector.benchmesh").unwrap();
    TlsConnector::from(config)
        .connect(name, stream)
        .await
        .unwrap()
}

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut frame = length[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header field in HPACK, neither indexed nor compressed.
fn field(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        field.push(u8::try_from(text.len()).unwrap());
        field.extend(text.bytes());
    }
    field
}

/// The headers of a call.
fn call(path: &str) -> Vec<u8> {
    [
        field(":method", "POST"),
        field(":scheme", "https"),
        field(":path", path),
        field(":authority", "collector.benchmesh"),
        field("te", "trailers"),
        field("content-type", "application/grpc"),
    ]
    .concat()
}

/// Whether the responses contain a frame that ends a stream.
fn has_end(answers: &[u8]) -> bool {
    let mut rest = answers;
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        if head[3] == HEADERS && head[4] & END_STREAM != 0 {
            return true;
        }
        rest = after.get(length..).unwrap_or_default();
    }
    false
}

/// Sends pieces with a pause after each, until the collector ends the call or the connection; returns its response, or
/// `None` if it accepted all.
async fn sends_until_cut(
    mut stream: TlsStream<tokio::net::TcpStream>,
    mut piece: impl FnMut() -> Vec<u8>,
    pause: Duration,
    most: usize,
) -> Option<Vec<u8>> {
    let mut answers = Vec::new();
    let mut buffer = vec![0; 4096];
    for _ in 0..most {
        if stream.write_all(&piece()).await.is_err() {
            return Some(answers);
        }
        match tokio::time::timeout(pause, stream.read(&mut buffer)).await {
            Ok(Ok(0) | Err(_)) => return Some(answers),
            Ok(Ok(read)) => answers.extend(&buffer[..read]),
            Err(_) => {}
        }
        if has_end(&answers) {
            return Some(answers);
        }
    }
    None
}

/// Waits about 10 s for the collector to time out on a hello that arrives byte by byte.
#[test]
fn slow_senders_and_endless_messages_are_cut_off() {
    let mut mesh = Mesh::start();
    while_a_step_goes_on(&mut mesh, |mesh| {
        let address = mesh.address();
        let before = peak_rss_kib(mesh.collector().pid());
        converse(LIMIT * 2, async {
            let own = certified(address, "slow").await;
            let begin = |path: &str, payload: &[u8]| {
                let headers = frame(HEADERS, END_HEADERS, 1, &call(path));
                [PREFACE, &headers, &frame(DATA, 0, 1, payload)].concat()
            };
            // A hello of 8 MiB, slowed to less than a byte at a time.
            let mut slow = Vec::new();
            for _ in 0..8 {
                let mut stream = secured(address, &own).await;
                let claimed = [0, 0, 0x80, 0, 0];
                let begun = begin("/benchmesh.v1.Mesh/Attach", &claimed);
                stream.write_all(&begun).await.unwrap();
                let piece = || frame(DATA, 0, 1, b"x");
                let sent = sends_until_cut(stream, piece, Duration::from_millis(100), 1000);
                slow.push(tokio::spawn(sent));
            }
            // A message that claims 4 GiB.
            let own = certified(address, "huge").await;
            let mut stream = secured(address, &own).await;
            let begun = begin("/benchmesh.v1.Mesh/Attach", &[0, 0xff, 0xff, 0xff, 0xff]);
            stream.write_all(&begun).await.unwrap();
            let piece = || frame(DATA, 0, 1, &[0; 16]);
            let huge = sends_until_cut(stream, piece, Duration::from_millis(50), 1000).await;
            assert!(
                huge.is_some(),
                "a message of 4 GiB is refused by its length"
            );
            // Headers that never end.
            let mut stream = secured(address, &own).await;
            let begun = [PREFACE, &frame(HEADERS, 0, 1, &call("/x"))].concat();
            stream.write_all(&begun).await.unwrap();
            let piece = || {
                frame(
                    CONTINUATION,
                    0,
                    1,
                    &field("x", &"y".repeat(100)).repeat(100),
                )
            };
            let endless = sends_until_cut(stream, piece, Duration::ZERO, 20_000).await;
            assert!(endless.is_some(), "headers without end are cut off");
            for sent in slow {
                assert!(sent.await.unwrap().is_some(), "a slow hello is cut off");
            }
        });
        let grown = peak_rss_kib(mesh.collector().pid()) - before;
        assert!(grown < 100_000, "{grown} KiB");
    });
    mesh.assert_no_complaints();
}
