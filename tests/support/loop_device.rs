//! Real file systems on loop devices, and tmpfs, each mounted for one test and removed on drop.

use super::command::{must, succeeds};
use std::fs::File;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A file system with its own size, mounted in a temporary directory.
#[derive(Debug)]
pub struct Mounted {
    directory: TempDir,
    device: Option<String>,
    /// The mount that contains the device's image, if there is one; dropped last.
    _beneath: Option<Box<Mounted>>,
}

impl Mounted {
    /// `kind` (ext4, xfs, btrfs) on a loop device with direct I/O on its backing file.
    pub fn on_loop(kind: &str, bytes: u64) -> Self {
        let directory = temporary();
        let image = directory.path().join("image");
        Self::on_image(kind, bytes, directory, &image, None)
    }

    /// The same on an image in memory, so that no disk of the machine is the limit.
    pub fn on_memory_loop(kind: &str, bytes: u64) -> Self {
        let beneath = Self::tmpfs(bytes + (16 << 20));
        let image = beneath.path().join("image");
        Self::on_image(kind, bytes, temporary(), &image, Some(Box::new(beneath)))
    }

    /// ext4 with this number of inodes, or a few more.
    pub fn with_few_inodes(bytes: u64, inodes: u32) -> Self {
        let directory = temporary();
        let image = directory.path().join("image");
        let few = ["-N".to_owned(), inodes.to_string()];
        Self::made("ext4", bytes, &few, directory, &image, None)
    }

    fn on_image(
        kind: &str,
        bytes: u64,
        directory: TempDir,
        image: &Path,
        beneath: Option<Box<Self>>,
    ) -> Self {
        Self::made(kind, bytes, &[], directory, image, beneath)
    }

    /// `options` are passed to mkfs.
    fn made(
        kind: &str,
        bytes: u64,
        options: &[String],
        directory: TempDir,
        image: &Path,
        beneath: Option<Box<Self>>,
    ) -> Self {
        File::create(image).unwrap().set_len(bytes).unwrap();
        let mut arguments = vec!["-f", "--show", text(image)];
        if beneath.is_none() {
            arguments.push("--direct-io=on");
        }
        let device = must("losetup", &arguments);
        let device = device.trim().to_owned();
        let mounted = Self {
            directory,
            device: Some(device.clone()),
            _beneath: beneath,
        };
        let options = options.iter().map(String::as_str);
        // Complete immediately: otherwise the kernel would write the inode tables later, during the measurement.
        let whole = (kind == "ext4").then_some(["-E", "lazy_itable_init=0"]);
        let arguments: Vec<&str> = ["-q"]
            .into_iter()
            .chain(whole.into_iter().flatten())
            .chain(options)
            .chain([&*device])
            .collect();
        must(&format!("mkfs.{kind}"), &arguments);
        std::fs::create_dir(mounted.path()).unwrap();
        must("mount", &["-t", kind, &device, text(&mounted.path())]);
        mounted
    }

    pub fn tmpfs(bytes: u64) -> Self {
        let directory = temporary();
        let mounted = Self {
            directory,
            device: None,
            _beneath: None,
        };
        std::fs::create_dir(mounted.path()).unwrap();
        let size = format!("size={bytes}");
        must(
            "mount",
            &["-t", "tmpfs", "-o", &size, "tmpfs", text(&mounted.path())],
        );
        mounted
    }

    /// The mount point.
    pub fn path(&self) -> PathBuf {
        self.directory.path().join("fs")
    }

    /// The loop device's `major:minor`.
    pub fn device_number(&self) -> String {
        let device = self.device.as_ref().unwrap();
        let device = Path::new(device).file_name().unwrap();
        let number = Path::new("/sys/class/block").join(device).join("dev");
        std::fs::read_to_string(number).unwrap().trim().to_owned()
    }

    /// The loop device's name in the kernel's counters (`loop0`).
    pub fn device_name(&self) -> String {
        let device = Path::new(self.device.as_ref().unwrap());
        device.file_name().unwrap().to_string_lossy().into_owned()
    }

    /// Names directly below its root, except those that mkfs made.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
        names.filter(|name| name != "lost+found").collect()
    }
}

/// A loop device without a file system.
#[derive(Debug)]
pub struct Bare {
    directory: TempDir,
    device: String,
}

impl Bare {
    pub fn on_loop(bytes: u64) -> Self {
        let directory = temporary();
        let image = directory.path().join("image");
        File::create(&image).unwrap().set_len(bytes).unwrap();
        let device = must("losetup", &["-f", "--show", text(&image)]);
        let device = device.trim().to_owned();
        Self { directory, device }
    }

    pub fn path(&self) -> &Path {
        Path::new(&self.device)
    }

    /// The image file of the device.
    pub fn image(&self) -> PathBuf {
        self.directory.path().join("image")
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        let _ = succeeds("losetup", &["-d", &self.device]);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let path = self.path();
        if path.exists() && !succeeds("umount", &[text(&path)]) {
            succeeds("umount", &["-l", text(&path)]);
        }
        if let Some(device) = &self.device {
            succeeds("losetup", &["-d", device]);
        }
    }
}

fn temporary() -> TempDir {
    tempfile::Builder::new().prefix("bm-fs-").tempdir().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
