//! Identity of a block device, independent of its name: a name such as `/dev/sdb` may mean another disk after
//! re-plugging.
//!
//! It comes from sysfs, or from udev's database if sysfs has none: a WWN, a serial number, the identifier of a
//! device-mapper or md array, or the file behind a loop device. A device without any of these is identified by its
//! number only.

use rustix::fs::{major, minor};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Files in a disk's sysfs directory, best first, and their meaning.
const FILES: [(&str, &str); 8] = [
    ("wwid", "WWN"),
    ("device/wwid", "WWN"),
    ("dm/uuid", "device-mapper UUID"),
    ("md/uuid", "md UUID"),
    ("serial", "serial number"),
    ("device/serial", "serial number"),
    ("device/cid", "card's identifier"),
    ("loop/backing_file", "backing file"),
];
/// Properties in udev's database, best first.
const PROPERTIES: [(&str, &str); 4] = [
    ("E:ID_WWN_WITH_EXTENSION=", "WWN"),
    ("E:ID_WWN=", "WWN"),
    ("E:ID_SERIAL=", "serial number"),
    ("E:DM_UUID=", "device-mapper UUID"),
];

/// Identity of a disk or a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceIdentity {
    what: &'static str,
    value: String,
    /// For a partition: its number on the disk.
    partition: Option<String>,
}

impl DeviceIdentity {
    /// Identity of the device with this number.
    pub(super) fn of(device: u64) -> DeviceIdentity {
        let number = format!("{}:{}", major(device), minor(device));
        let name = |root: &str, kind: &str| PathBuf::from(format!("{root}/{kind}{number}"));
        read(
            &name("/sys/dev/block", ""),
            &name("/run/udev/data", "b"),
            &number,
        )
    }

    /// Whether anything but its number is known.
    pub fn is_known(&self) -> bool {
        self.what != NUMBER
    }
}

const NUMBER: &str = "device number";

impl fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.what, self.value)?;
        match &self.partition {
            Some(number) => write!(f, ", partition {number}"),
            None => Ok(()),
        }
    }
}

fn read(directory: &Path, udev: &Path, number: &str) -> DeviceIdentity {
    let text = |path: PathBuf| {
        let text = fs::read_to_string(path).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    let directory = directory
        .canonicalize()
        .unwrap_or_else(|_| directory.to_owned());
    let partition = text(directory.join("partition"));
    let disk = match (&partition, directory.parent()) {
        (Some(_), Some(disk)) => disk,
        _ => directory.as_path(),
    };
    let of_kernel = FILES
        .iter()
        .find_map(|(file, what)| Some((*what, text(disk.join(file))?)));
    let of_udev = || {
        let known = fs::read_to_string(udev).ok()?;
        PROPERTIES.iter().find_map(|(property, what)| {
            let value = known.lines().find_map(|line| line.strip_prefix(property))?;
            Some((*what, value.to_owned()))
        })
    };
    let (what, value) = of_kernel
        .or_else(of_udev)
        .unwrap_or_else(|| (NUMBER, number.to_owned()));
    DeviceIdentity {
        what,
        value,
        partition,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_best_that_is_known_tells_disks_apart() {
        let home = tempfile::tempdir().unwrap();
        let disk = home.path().join("sda");
        let part = disk.join("sda2");
        let udev = home.path().join("b8:2");
        fs::create_dir_all(disk.join("device")).unwrap();
        fs::create_dir(&part).unwrap();
        fs::write(part.join("partition"), "2\n").unwrap();
        let identity = |directory: &Path| read(directory, &udev, "8:2").to_string();
        assert_eq!(identity(&disk), "device number 8:2");
        assert!(!read(&disk, &udev, "8:2").is_known());
        fs::write(
            &udev,
            "S:disk/by-id/x\nE:ID_SERIAL=ACME_1\nE:ID_WWN=0x5000\n",
        )
        .unwrap();
        assert_eq!(identity(&disk), "WWN 0x5000");
        fs::write(disk.join("device/serial"), "  S123 \n").unwrap();
        assert_eq!(identity(&disk), "serial number S123");
        // A partition is identified by its disk and its number.
        assert_eq!(identity(&part), "serial number S123, partition 2");
        fs::write(disk.join("device/wwid"), "naa.5000c5\n").unwrap();
        assert_eq!(identity(&part), "WWN naa.5000c5, partition 2");
        assert_ne!(read(&part, &udev, "8:2"), read(&disk, &udev, "8:2"));
    }
}
