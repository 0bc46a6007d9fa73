//! Wrong requests, foreign directories, interrupted exports and full disks.

use super::*;
use std::process::Command;

#[test]
fn wrong_requests_are_refused_in_words() {
    let scene = Scene::new(&Shape::small());
    scene.change("UPDATE runs SET state = 'running', ended_us = NULL WHERE id = 3");
    let refused = |request: &Request, reason: &str| {
        let before = request
            .directory
            .exists()
            .then(|| files(&request.directory));
        let error = export(request, &mut |_| ()).unwrap_err();
        let message = error.to_string();
        assert!(error.is_request() && message.contains(reason), "{message}");
        let after = request
            .directory
            .exists()
            .then(|| files(&request.directory));
        assert_eq!(before, after, "{reason}");
    };
    let table = |name: &str| Request {
        tables: vec![String::from("runs"), name.to_owned()],
        ..scene.request()
    };
    let run = |name: &str| Request {
        run: Some(name.to_owned()),
        ..scene.request()
    };
    let site = |name: &str| Request {
        site: Some(name.to_owned()),
        ..scene.request()
    };
    refused(
        &table("v_results"),
        "views such as v_results are not written as Parquet",
    );
    refused(
        &table("baselines"),
        "baselines is not written as Parquet (names that",
    );
    refused(&table("stepz"), "there is no table \"stepz\"");
    refused(
        &run("3"),
        "run 3 (soak) is running; a run is archived when it has ended",
    );
    refused(&run("nobody"), "there is no run \"nobody\"");
    for name in ["../lab", "", "a b", ".hidden"] {
        refused(&site(name), "is not the name of a site: at most 64 letters");
    }
    let at = |name: &str, file: &str, text: &str| {
        let directory = scene.db(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join(file), text).unwrap();
        Request {
            directory,
            ..scene.request()
        }
    };
    refused(
        &at("csv", "runs.csv", "id"),
        "has files, but not those of a Parquet export",
    );
    refused(
        &at("other", "_benchmesh.json", "{}"),
        "is not the marker of a Parquet export",
    );
    refused(
        &at("newer", "_benchmesh.json", "{\"version\": 2}"),
        "has layout 2, this benchmesh writes layout 1",
    );
    scene.export().unwrap();
    let other = scene.db("other.db");
    std::fs::copy(scene.db("benchmesh.db"), &other).unwrap();
    change(&other, "UPDATE meta SET mesh_uid = 'another'");
    let of_other = Request {
        db: other,
        ..scene.request()
    };
    refused(&of_other, "site \"lab1\" in");
    refused(&of_other, "here another); name another with --site NAME");
}

#[test]
fn one_export_at_a_time() {
    let scene = Scene::new(&Shape::small());
    let mut refusal = None;
    export(&scene.request(), &mut |progress| {
        if matches!(progress, Progress::Begin(_)) {
            refusal = Some(scene.export().unwrap_err());
        }
    })
    .unwrap();
    let refusal = refusal.unwrap();
    assert!(refusal.is_request());
    assert!(
        refusal.to_string().starts_with("another export writes to"),
        "{refusal}"
    );
}

/// The states that a kill leaves behind: temporary files, some of a run's files published, a mark that is missing, cut
/// or older than the files. `tests/database_files.rs` kills the program.
#[test]
fn an_interrupted_export_is_completed() {
    let scene = Scene::new(&Shape::small());
    scene.export().unwrap();
    let mesh = scene.mesh();
    let complete = files(&mesh);
    let names: Vec<String> = complete.keys().cloned().collect();
    let sizes = |found: &BTreeMap<String, (u64, u64)>| -> BTreeMap<String, u64> {
        let sizes = found.iter().map(|(name, (size, _))| (name.clone(), *size));
        sizes.collect()
    };
    let folder = mesh.join("steps/site=lab1/month=2025-06");
    std::fs::write(folder.join(".run-1.parquet.tmp"), "PAR1").unwrap();
    std::fs::write(folder.join(".gone.parquet.tmp"), "PAR1").unwrap();
    std::fs::remove_file(mesh.join("_runs/lab1/run-1.json")).unwrap();
    std::fs::write(mesh.join("_runs/lab1/run-2.json"), "{\"run_uid\"").unwrap();
    std::fs::write(mesh.join("_runs/lab1/.run-3.json.tmp"), "{").unwrap();
    for run in ["run-1", "run-3"] {
        std::fs::remove_file(folder.join(format!("{run}.parquet"))).unwrap();
    }
    let exported = scene.export().unwrap();
    assert_eq!(exported.runs_written, 3);
    let after = files(&mesh);
    assert_eq!(after.keys().cloned().collect::<Vec<_>>(), names);
    assert_eq!(sizes(&after), sizes(&complete));
    // Of run 3 only the file was missing.
    let untouched = "op_intervals/site=lab1/month=2025-06/run-3.parquet";
    assert_eq!(after[untouched], complete[untouched]);
    assert_eq!(scene.export().unwrap().runs_unchanged, 3);
}

/// A tmpfs that is unmounted at the end.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn mount(&self, options: &str) -> bool {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]);
        mount.arg(&self.0).status().is_ok_and(|done| done.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn after_a_full_disk_the_export_goes_on() {
    let scene = Scene::new(&Shape::small());
    let whole = scene.export().unwrap().bytes;
    let request = Request {
        directory: scene.db("disk"),
        ..scene.request()
    };
    std::fs::create_dir(&request.directory).unwrap();
    let disk = SmallDisk(request.directory.clone());
    // Too small for everything, large enough for a run.
    if !disk.mount(&format!("size={}", whole * 2 / 3)) {
        return benchmesh_testing::skip("tmpfs", "mount failed");
    }
    let error = export(&request, &mut |_| ()).unwrap_err();
    assert!(matches!(error, ExportError::Full { .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .contains("is full; free some of it and export again"),
        "{error}"
    );
    let marks = |found: &BTreeMap<String, (u64, u64)>| -> Vec<String> {
        let marks = found.keys().filter(|name| name.starts_with("_runs"));
        marks
            .map(|name| name.rsplit(['/', '.']).nth(1).unwrap().to_owned())
            .collect()
    };
    let there = files(&request.directory);
    assert!(!marks(&there).is_empty());
    for name in there.keys() {
        let of_complete_run = marks(&there).iter().any(|run| name.contains(run));
        assert!(
            of_complete_run || name == "_benchmesh.json",
            "{name} is half of a run"
        );
    }
    assert!(disk.mount("remount,size=64m"));
    let exported = export(&request, &mut |_| ()).unwrap();
    assert_eq!(exported.runs_unchanged, marks(&there).len());
    assert_eq!(exported.runs_written + exported.runs_unchanged, 3);
    let names = |directory: &Path| files(directory).into_keys().collect::<Vec<_>>();
    assert_eq!(names(&request.directory), names(&scene.mesh()));
}

#[test]
fn files_have_the_mode_of_the_database() {
    use std::os::unix::fs::PermissionsExt;
    let scene = Scene::new(&Shape::small());
    let db = scene.db("benchmesh.db");
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for (of_file, of_folder) in [(0o600, 0o700), (0o640, 0o750), (0o666, 0o777)] {
        std::fs::set_permissions(&db, std::fs::Permissions::from_mode(of_file)).unwrap();
        let directory = scene.db(&format!("mesh-{of_file:o}")).join("all");
        let request = Request {
            directory: directory.clone(),
            ..scene.request()
        };
        export(&request, &mut |_| ()).unwrap();
        let mut folders = vec![directory.clone()];
        let mut count = 0;
        while let Some(folder) = folders.pop() {
            assert_eq!(mode(&folder), of_folder, "{}", folder.display());
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    assert_eq!(mode(&path), of_file, "{}", path.display());
                    count += 1;
                }
            }
        }
        assert!(count > 60, "{count}");
    }
    // A folder that is there stays as it is.
    let directory = scene.db("shared");
    std::fs::create_dir(&directory).unwrap();
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o775)).unwrap();
    let request = Request {
        directory: directory.clone(),
        ..scene.request()
    };
    export(&request, &mut |_| ()).unwrap();
    assert_eq!(mode(&directory), 0o775);
}
