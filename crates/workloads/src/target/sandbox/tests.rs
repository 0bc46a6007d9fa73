#![allow(clippy::unwrap_used, clippy::indexing_slicing)]
use super::dir::{DIRECTORY, open_beneath, open_by_component};
use super::marker::Marker;
use super::run_directory::mark_new;
use super::*;
use rustix::fs::RenameFlags;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use tempfile::TempDir;

const MESH: &str = "mesh-1";
const RUN: &str = "run-1";

struct Scene {
    root: TempDir,
    allowed: Allowed,
}

impl Scene {
    fn new() -> Scene {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("target")).unwrap();
        fs::write(root.path().join("secret"), "not yours").unwrap();
        let allowed = Allowed::new(vec![root.path().join("target")]).unwrap();
        Scene { root, allowed }
    }

    fn target(&self) -> PathBuf {
        self.root.path().join("target")
    }

    fn run_path(&self) -> PathBuf {
        self.target().join(format!("benchmesh-{RUN}"))
    }

    fn open(&self, make: Make) -> Result<Option<(RunDirectory, bool)>, SandboxError> {
        RunDirectory::open_or_make(&self.allowed, &self.target(), MESH, RUN, make)
    }

    fn made(&self) -> RunDirectory {
        self.open(Make::IfMissing).unwrap().unwrap().0
    }
}

#[test]
fn only_what_lies_beneath_an_allowed_path_is_permitted() {
    let scene = Scene::new();
    let inside = scene.target().join("inside");
    fs::create_dir(&inside).unwrap();
    fs::create_dir(scene.root.path().join("targets")).unwrap();
    symlink(scene.root.path(), inside.join("out")).unwrap();
    symlink(&inside, scene.root.path().join("in")).unwrap();

    let inside = inside.canonicalize().unwrap();
    assert_eq!(scene.allowed.permits(&inside).unwrap(), inside);
    // By the name under which it was allowed, even if that is a symlink.
    let by_link = Allowed::new(vec![scene.root.path().join("in")]).unwrap();
    let named = by_link.permits(&scene.root.path().join("in")).unwrap();
    assert_eq!(named, inside);
    symlink("/nowhere/at/all", inside.join("dangling")).unwrap();
    symlink("dangling", inside.join("twice")).unwrap();
    for outside in [
        "",
        "in",
        "targets",
        "targets/none",
        "none",
        "target/../none",
        "target/../targets",
        "target/inside/out/none",
        "target/inside/dangling",
        "target/inside/dangling/none",
        "target/inside/twice",
        "target/inside/out",
        "target/..",
        "target/inside/out/secret",
    ] {
        let error = scene
            .allowed
            .permits(&scene.root.path().join(outside))
            .unwrap_err();
        assert!(error.to_string().contains("--allow PATH"), "{error}");
    }
    let missing = scene
        .allowed
        .permits(&scene.target().join("missing"))
        .unwrap_err();
    assert_eq!(missing.errno(), Some(libc::ENOENT));
    assert!(matches!(
        scene.allowed.permits(Path::new("target")),
        Err(SandboxError::NotAbsolute { .. })
    ));
    assert!(
        Allowed::default()
            .permits(&inside)
            .unwrap_err()
            .to_string()
            .contains("(none)")
    );
}

#[test]
fn a_run_directory_is_made_once_and_found_again() {
    let scene = Scene::new();
    assert!(scene.open(Make::Never).unwrap().is_none());
    let (first, made) = scene.open(Make::IfMissing).unwrap().unwrap();
    let (second, made_again) = scene.open(Make::Never).unwrap().unwrap();
    assert_eq!((made, made_again), (true, false));
    assert_eq!(first.nonce(), second.nonce());
    assert!(first.free_bytes().unwrap() > 0);
    assert_eq!(fs::read_dir(scene.target()).unwrap().count(), 1);
}

#[test]
fn makers_at_the_same_time_agree_on_one_directory() {
    let scene = Scene::new();
    let nonces: Vec<String> = std::thread::scope(|scope| {
        let makers: Vec<_> = (0..8).map(|_| scope.spawn(|| scene.made())).collect();
        makers
            .into_iter()
            .map(|maker| maker.join().unwrap().nonce().to_owned())
            .collect()
    });
    assert!(nonces.iter().all(|nonce| *nonce == nonces[0]));
    assert_eq!(fs::read_dir(scene.target()).unwrap().count(), 1);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let check = |prepare: &dyn Fn(&Path), part: &str| {
        let scene = Scene::new();
        prepare(&scene.run_path());
        let error = scene.open(Make::IfMissing).unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert!(fs::symlink_metadata(scene.run_path()).is_ok());
    };
    let with_marker = |text: &'static str| {
        move |path: &Path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join(".benchmesh"), text).unwrap();
        }
    };
    check(&|path| fs::create_dir(path).unwrap(), "no .benchmesh in it");
    check(&|path| fs::write(path, "a file").unwrap(), "cannot open");
    check(&|path| symlink("/tmp", path).unwrap(), "cannot open");
    check(&with_marker("{}"), "not a marker");
    check(
        &with_marker(r#"{"mesh":"other","run":"run-1","nonce":"1"}"#),
        "mesh other",
    );
    check(
        &with_marker(r#"{"mesh":"mesh-1","run":"other","nonce":"1"}"#),
        "run other",
    );
}

#[test]
fn names_that_climb_are_refused() {
    let scene = Scene::new();
    let run = scene.made();
    for name in [
        "",
        ".",
        "..",
        "a/b",
        "../x",
        ".hidden",
        "a b",
        "ü",
        &"x".repeat(101),
    ] {
        assert!(
            matches!(run.cell(name), Err(SandboxError::BadName { .. })),
            "{name}"
        );
        let made =
            RunDirectory::open_or_make(&scene.allowed, &scene.target(), MESH, name, Make::Never);
        assert!(made.is_err());
    }
    assert!(run.cell("files-1.r2_x").is_ok());
}

#[test]
fn no_symlink_and_no_way_up_leads_out() {
    let scene = Scene::new();
    let run = scene.made();
    let cell = run.cell("cell").unwrap();
    symlink(scene.root.path(), scene.run_path().join("cell/out")).unwrap();
    symlink("../../../secret", scene.run_path().join("cell/near")).unwrap();
    symlink("w0.dat", scene.run_path().join("cell/alias")).unwrap();
    fs::write(scene.run_path().join("cell/w0.dat"), "x").unwrap();
    let absolute = scene.root.path().join("secret");
    let bad = [
        "out/secret",
        "near",
        "alias",
        "../../../secret",
        absolute.to_str().unwrap(),
        "out",
    ];
    for name in bad {
        let path = Path::new(name);
        for outcome in [
            open_beneath(&cell.fd(), path, OFlags::RDONLY, Mode::empty()),
            open_by_component(cell.fd(), path, OFlags::RDONLY, Mode::empty()),
        ] {
            let errno = outcome.unwrap_err();
            assert!(
                [Errno::LOOP, Errno::XDEV, Errno::NOTDIR].contains(&errno),
                "{name} {errno}"
            );
        }
    }
    for good in ["w0.dat", "./w0.dat"] {
        let path = Path::new(good);
        assert!(open_beneath(&cell.fd(), path, OFlags::RDONLY, Mode::empty()).is_ok());
        assert!(open_by_component(cell.fd(), path, OFlags::RDONLY, Mode::empty()).is_ok());
    }
    assert!(open_by_component(cell.fd(), Path::new("."), DIRECTORY, Mode::empty()).is_ok());
    assert_eq!(cell.file_bytes("w0.dat").unwrap(), Some(1));
    assert_eq!(cell.file_bytes("alias").unwrap(), None);
}

/// Files, directories, deep ones, odd names, and symlinks to files that must stay.
fn fill(path: &Path, outside: &Path) {
    let mut deep = path.to_owned();
    for level in 0..60 {
        deep = deep.join(format!("d{level}"));
        fs::create_dir(&deep).unwrap();
        fs::write(deep.join("file"), "x").unwrap();
    }
    for index in 0..1500 {
        fs::write(path.join(format!("f{index}")), "").unwrap();
    }
    for index in 0..40 {
        let dir = path.join(format!("wide{index}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join(OsStr::from_bytes(b"\xff\n")), "").unwrap();
        symlink(outside, dir.join("out")).unwrap();
    }
    fs::create_dir(path.join(OsStr::from_bytes(b"\xfe"))).unwrap();
}

#[test]
fn removal_takes_everything_within_and_nothing_without() {
    let scene = Scene::new();
    let run = scene.made();
    let cell = run.cell("cell").unwrap();
    cell.make_dir("t0").unwrap();
    cell.make_dir("t1").unwrap();
    fill(&scene.run_path().join("cell/t0"), scene.root.path());
    let mut reports = Vec::new();
    run.remove_cell("cell", 0, &mut |removed| reports.push(removed))
        .unwrap();
    assert_eq!(reports, [1000, 60 * 2 + 1500 + 40 * 3 + 1]);
    assert!(!scene.run_path().join("cell/t0").exists());
    assert!(scene.run_path().join("cell/t1").exists());
    run.remove_cell("cell", 1, &mut |_| {}).unwrap();
    assert!(!scene.run_path().join("cell").exists());
    run.remove_cell("cell", 1, &mut |_| {}).unwrap();

    fill(run.cell("other").unwrap().path(), scene.root.path());
    run.remove(&mut |_| {}).unwrap();
    assert_eq!(fs::read_dir(scene.target()).unwrap().count(), 0);
    assert_eq!(
        fs::read_to_string(scene.root.path().join("secret")).unwrap(),
        "not yours"
    );
}

#[test]
fn a_directory_that_vanished_or_changed_hands_is_no_trouble() {
    let scene = Scene::new();
    let vanished = scene.made();
    fs::remove_dir_all(scene.run_path()).unwrap();
    vanished.remove(&mut |_| {}).unwrap();

    let replaced = scene.made();
    fs::rename(scene.run_path(), scene.target().join("kept")).unwrap();
    fs::create_dir(scene.run_path()).unwrap();
    replaced.remove(&mut |_| {}).unwrap();
    assert!(scene.run_path().exists());
}

#[test]
fn without_its_marker_a_directory_is_not_removed() {
    let scene = Scene::new();
    let run = scene.made();
    fs::write(scene.run_path().join("precious"), "x").unwrap();
    fs::remove_file(scene.run_path().join(".benchmesh")).unwrap();
    assert!(matches!(
        run.remove(&mut |_| {}),
        Err(SandboxError::NotOurs { .. })
    ));
    assert!(scene.run_path().join("precious").exists());
}

/// A directory outside of the run's, bind-mounted beneath it: the device is the same on both sides.
#[test]
fn removal_never_crosses_a_bind_mount_of_the_same_file_system() {
    if !rustix::process::geteuid().is_root() {
        return benchmesh_testing::skip("root", "mounts a directory beneath a run's");
    }
    let scene = Scene::new();
    let run = scene.made();
    let outside = scene.target().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept"), "x").unwrap();
    let mount = |at: &Path| {
        std::fs::create_dir_all(at).unwrap();
        let mounted = std::process::Command::new("mount")
            .arg("--bind")
            .args([&*outside, at])
            .status();
        assert!(mounted.unwrap().success());
    };
    let unmount = |at: &Path| {
        let unmounted = std::process::Command::new("umount").arg(at).status();
        assert!(unmounted.unwrap().success());
    };
    let check = |at: PathBuf, remove: &dyn Fn() -> Result<(), SandboxError>| {
        mount(&at);
        let removed = remove();
        let kept = outside.join("kept").exists();
        unmount(&at);
        let error = removed.unwrap_err().to_string();
        assert!(
            kept && error.contains("something is mounted there"),
            "{error}"
        );
    };
    let cell = scene.run_path().join("c1");
    check(cell.join("t0/deep"), &|| {
        run.remove_cell("c1", 0, &mut |_| {})
    });
    check(cell.join("t0"), &|| run.remove_cell("c1", 0, &mut |_| {}));
    check(cell.clone(), &|| run.remove_cell("c1", 0, &mut |_| {}));
    check(cell.join("t0/deep"), &|| scene.made().remove(&mut |_| {}));
    // It is removed once nothing is mounted there.
    run.remove(&mut |_| {}).unwrap();
    assert!(!scene.run_path().exists());
}

/// The owner of the target replaces a new directory with a tree of another user before it is opened.
#[test]
fn a_tree_that_takes_the_place_of_a_new_directory_is_left_alone() {
    let target = tempfile::tempdir().unwrap();
    let (unborn, tree) = (target.path().join("unborn"), target.path().join("tree"));
    fs::create_dir_all(tree.join("deep")).unwrap();
    fs::write(tree.join("deep/gold"), "gold").unwrap();
    rustix::fs::mkdirat(CWD, &unborn, Mode::RWXU).unwrap();
    rustix::fs::renameat_with(CWD, &unborn, CWD, &tree, RenameFlags::EXCHANGE).unwrap();
    let marker = Marker {
        mesh: MESH.to_owned(),
        run: RUN.to_owned(),
        nonce: "n".to_owned(),
    };
    let parent = open_canonical(&target.path().canonicalize().unwrap()).unwrap();
    let refused = mark_new(&parent, "unborn", "benchmesh-r", &marker).unwrap_err();
    assert!(refused.to_string().contains("is not empty"), "{refused}");
    assert_eq!(fs::read(unborn.join("deep/gold")).unwrap(), b"gold");
    assert!(!unborn.join(".benchmesh").exists());
}

/// Even with a marker in it: anyone who may write to the directory may have put it there.
#[test]
fn a_directory_that_others_may_write_to_is_no_runs() {
    let scene = Scene::new();
    let open =
        || RunDirectory::open_or_make(&scene.allowed, &scene.target(), MESH, RUN, Make::IfMissing);
    let (run, _) = open().unwrap().unwrap();
    fs::write(run.dir().path().join("gold"), "gold").unwrap();
    let set = |mode| fs::set_permissions(run.dir().path(), fs::Permissions::from_mode(mode));
    let path = run.dir().path().to_owned();
    set(0o770).unwrap();
    let refused = open().unwrap_err().to_string();
    assert!(
        refused.contains("others than its owner may write"),
        "{refused}"
    );
    run.remove(&mut |_| {}).unwrap_err();
    assert!(path.join("gold").exists());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains("belongs to another user"), "{refused}");
    }
}
