//! The layers beneath a mounted file system, from top to bottom: `loop`, `fuse.rbd-fuse`; `dm`, `iscsi`; `disk`.
//!
//! An ext4 on a network block device is served by that device's daemons, which its own type does not reveal. The layers
//! are read from sysfs; for a loop device, the mount of its backing file is looked up. The list ends at the first
//! unreadable layer.

use std::fs;
use std::path::{Path, PathBuf};

/// Maximum depth; more layers mean a cycle.
const MAX_DEPTH: usize = 8;

/// A mount: its type, its device as `MAJOR:MINOR`, and its source.
#[derive(Debug, Clone)]
pub struct MountedOn {
    pub kind: String,
    pub device: String,
    pub source: String,
}

/// Sources of the layers.
pub struct Layers<'a> {
    /// `/sys`
    pub sys: &'a Path,
    /// `/proc`
    pub proc: &'a Path,
    /// Finds the mount that contains a file.
    pub mount_of: &'a dyn Fn(&Path) -> Option<MountedOn>,
}

impl Layers<'_> {
    /// The layers beneath a mount, without the mount's own type. Empty if there is no block device.
    #[must_use]
    pub fn beneath(&self, mount: &MountedOn) -> Vec<String> {
        let mut layers = Vec::new();
        self.descend(mount, &mut layers);
        layers
    }

    fn descend(&self, mount: &MountedOn, layers: &mut Vec<String>) {
        if let Some(block) = self.block_device(mount) {
            self.descend_block(&block, layers);
        }
    }

    /// The sysfs directory of a mount's block device. A file system such as btrfs has a device number of its own and
    /// names the block device as its source.
    fn block_device(&self, mount: &MountedOn) -> Option<PathBuf> {
        let by_number = self.sys.join("dev/block").join(&mount.device);
        let directory = fs::canonicalize(by_number).ok().or_else(|| {
            let node = mount.source.strip_prefix("/dev/")?;
            let name = fs::canonicalize(&mount.source).ok();
            let name = name.as_deref().and_then(Path::file_name);
            let name = name.unwrap_or(std::ffi::OsStr::new(node));
            fs::canonicalize(self.sys.join("class/block").join(name)).ok()
        })?;
        match directory.join("partition").exists() {
            true => directory.parent().map(Path::to_owned),
            false => Some(directory),
        }
    }

    fn descend_block(&self, block: &Path, layers: &mut Vec<String>) {
        if layers.len() >= MAX_DEPTH {
            return;
        }
        let name = block
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if let Some(file) = text(&block.join("loop/backing_file")) {
            layers.push("loop".to_owned());
            if let Some(mount) = (self.mount_of)(Path::new(&file)) {
                layers.push(mount.kind.clone());
                self.descend(&mount, layers);
            }
            return;
        }
        let mut lower = self.slaves(block).peekable();
        if lower.peek().is_some() {
            layers.push(letters(&name));
            for block in lower {
                self.descend_block(&block, layers);
            }
            return;
        }
        layers.push(match letters(&name).as_str() {
            // The name of the driver's client: `rbd-nbd`, `qemu-nbd`.
            "nbd" => self.nbd_client(block).unwrap_or_else(|| "nbd".to_owned()),
            kind @ ("rbd" | "drbd" | "zram" | "ram") => kind.to_owned(),
            _ if block.to_string_lossy().contains("/session") => "iscsi".to_owned(),
            _ => "disk".to_owned(),
        });
    }

    fn nbd_client(&self, block: &Path) -> Option<String> {
        let pid = text(&block.join("pid"))?;
        pid.parse::<u32>().ok()?;
        text(&self.proc.join(pid).join("comm"))
    }

    /// The devices that make up a mapped device or a RAID.
    fn slaves(&self, block: &Path) -> impl Iterator<Item = PathBuf> + use<> {
        let mut slaves: Vec<PathBuf> = fs::read_dir(block.join("slaves"))
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| fs::canonicalize(entry.path()).ok())
            .map(|path| match path.join("partition").exists() {
                true => path.parent().map_or_else(|| path.clone(), Path::to_owned),
                false => path,
            })
            .collect();
        slaves.sort();
        slaves.into_iter()
    }
}

fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// `dm` of `dm-3`, `md` of `md127`.
fn letters(name: &str) -> String {
    name.chars().take_while(char::is_ascii_alphabetic).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::symlink;

    /// Block devices as laid out in sysfs: one directory each, found by number and by name.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            let tree = Self(tempfile::tempdir().unwrap());
            for directory in ["dev/block", "class/block"] {
                fs::create_dir_all(tree.0.path().join(directory)).unwrap();
            }
            tree
        }

        fn device(&self, number: &str, path: &str) -> PathBuf {
            let directory = self.0.path().join("devices").join(path);
            fs::create_dir_all(&directory).unwrap();
            let name = directory.file_name().unwrap();
            symlink(&directory, self.0.path().join("dev/block").join(number)).unwrap();
            symlink(&directory, self.0.path().join("class/block").join(name)).unwrap();
            directory
        }

        fn file(&self, path: &Path, content: &str) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }

        fn slave(&self, upper: &Path, lower: &Path) {
            fs::create_dir_all(upper.join("slaves")).unwrap();
            symlink(lower, upper.join("slaves").join(lower.file_name().unwrap())).unwrap();
        }

        fn check(&self, mount: (&str, &str), files_on: &MountedOn, expected: &[&str]) {
            let mounted = |_: &Path| Some(files_on.clone());
            let layers = Layers {
                sys: self.0.path(),
                proc: &self.0.path().join("proc"),
                mount_of: &mounted,
            };
            let (device, source) = mount;
            assert_eq!(layers.beneath(&on("ext4", device, source)), expected);
        }
    }

    fn on(kind: &str, device: &str, source: &str) -> MountedOn {
        MountedOn {
            kind: kind.to_owned(),
            device: device.to_owned(),
            source: source.to_owned(),
        }
    }

    #[test]
    fn the_chain_of_devices_is_followed() {
        let tree = Tree::new();
        let disk = tree.device("8:0", "pci/ata1/block/sda");
        let partition = tree.device("8:1", "pci/ata1/block/sda/sda1");
        tree.file(&partition.join("partition"), "1\n");
        let remote = tree.device("8:16", "platform/host3/session1/target/block/sdb");
        let mapped = tree.device("253:0", "virtual/block/dm-0");
        tree.slave(&mapped, &remote);
        tree.slave(&mapped, &partition);
        let image = tree.device("7:0", "virtual/block/loop0");
        tree.file(&image.join("loop/backing_file"), "/mnt/images/img\n");
        tree.device("252:0", "virtual/block/rbd0");
        let nbd = tree.device("43:0", "virtual/block/nbd0");
        tree.file(&nbd.join("pid"), "77\n");
        tree.file(&tree.0.path().join("proc/77/comm"), "rbd-nbd\n");

        let local = on("xfs", "8:1", "/dev/sda1");
        let sheepfs = on("fuse.sheepfs", "0:50", "sheepfs");
        assert!(disk.is_dir());
        tree.check(("8:1", "/dev/sda1"), &local, &["disk"]);
        tree.check(("253:0", "/dev/mapper/x"), &local, &["dm", "disk", "iscsi"]);
        tree.check(("7:0", "/dev/loop0"), &sheepfs, &["loop", "fuse.sheepfs"]);
        tree.check(("7:0", "/dev/loop0"), &local, &["loop", "xfs", "disk"]);
        tree.check(("252:0", "/dev/rbd0"), &local, &["rbd"]);
        tree.check(("43:0", "/dev/nbd0"), &local, &["rbd-nbd"]);
        // btrfs has its own device number, with no device beneath it.
        tree.check(("0:44", "/dev/sda1"), &local, &["disk"]);
        tree.check(("0:50", "sheepfs"), &local, &[]);
        tree.check(("9:9", "/dev/none"), &local, &[]);
    }

    #[test]
    fn a_circle_of_devices_ends() {
        let tree = Tree::new();
        let image = tree.device("7:0", "virtual/block/loop0");
        tree.file(&image.join("loop/backing_file"), "/mnt/img\n");
        let itself = on("ext4", "7:0", "/dev/loop0");
        let expected = ["loop", "ext4"].repeat(MAX_DEPTH / 2);
        tree.check(("7:0", "/dev/loop0"), &itself, &expected);
    }
}
