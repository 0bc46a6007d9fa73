//! The mount table: which file system a path is on.
//!
//! Reading it may hang if the path is on a dead network file system.

use super::{Layers, MountedOn};
use rustix::fs::{AtFlags, CWD, StatxFlags};
use std::fs;
use std::path::Path;

/// A mounted file system.
#[derive(Debug, PartialEq, Eq)]
pub struct Mount {
    pub kind: String,
    /// `MAJOR:MINOR`.
    pub device: String,
    pub source: String,
    /// May contain secrets.
    pub options: String,
}

impl Mount {
    /// The devices beneath it.
    pub fn beneath(&self) -> Vec<String> {
        beneath(&self.as_mounted())
    }

    fn as_mounted(&self) -> MountedOn {
        MountedOn {
            kind: self.kind.clone(),
            device: self.device.clone(),
            source: self.source.clone(),
        }
    }
}

/// The devices beneath a mount, or a device itself.
pub fn beneath(mounted: &MountedOn) -> Vec<String> {
    let mount_of = |file: &Path| Some(mount(file)?.as_mounted());
    Layers {
        sys: Path::new("/sys"),
        proc: Path::new("/proc"),
        mount_of: &mount_of,
    }
    .beneath(mounted)
}

/// The mounted file system that a path is on, by its mount id.
pub fn mount(path: &Path) -> Option<Mount> {
    let stat = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::MNT_ID).ok()?;
    let table = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let device = format!("{}:{}", stat.stx_dev_major, stat.stx_dev_minor);
    Some(mount_of(&table, stat.stx_mnt_id).unwrap_or_else(|| unlisted(&table, device)))
}

/// A mount that is missing from the table, such as the root in a chroot: taken from another mount of its device, or
/// from the device alone.
fn unlisted(table: &str, device: String) -> Mount {
    let mut mounts = table.lines().filter_map(|line| Some(parsed(line)?.1));
    match mounts.find(|mount| mount.device == device) {
        Some(mount) => Mount {
            options: String::new(),
            ..mount
        },
        None => Mount {
            kind: String::new(),
            device,
            source: String::new(),
            options: String::new(),
        },
    }
}

fn mount_of(table: &str, id: u64) -> Option<Mount> {
    let mut mounts = table.lines().filter_map(parsed);
    mounts.find(|(number, _)| *number == id).map(|(_, it)| it)
}

/// Parses a line of the table: mount id, parent, device, root, mount point, options, optional fields, `-`, type,
/// source.
fn parsed(line: &str) -> Option<(u64, Mount)> {
    let mut fields = line.split(' ');
    let id = fields.next()?.parse().ok()?;
    let device = fields.nth(1)?.to_owned();
    let options = fields.nth(2)?;
    let mut fields = fields.skip_while(|field| *field != "-").skip(1);
    let kind = fields.next()?;
    let source = unescaped(fields.next().unwrap_or_default());
    let of_file_system = fields.next().unwrap_or_default();
    // MooseFS can only be recognized by its source.
    let kind = match source.strip_prefix("mfs#") {
        Some(_) if kind == "fuse" => "fuse.moosefs",
        _ => kind,
    };
    Some((
        id,
        Mount {
            kind: kind.to_owned(),
            device,
            source,
            options: unescaped(&joined(options, of_file_system)),
        },
    ))
}

/// An option of NFS 4: this host's own address, which differs between otherwise equal mounts.
const OWN_ADDRESS: &str = "clientaddr=";

/// The options of a mount and of its file system, each once.
fn joined(of_mount: &str, of_file_system: &str) -> String {
    let mut all: Vec<&str> = Vec::new();
    for option in of_mount.split(',').chain(of_file_system.split(',')) {
        let is_known = all.contains(&option) || option.starts_with(OWN_ADDRESS);
        if !option.is_empty() && !is_known {
            all.push(option);
        }
    }
    all.join(",")
}

/// The table escapes blanks, `#` and the like as a backslash and three octal digits.
fn unescaped(field: &str) -> String {
    let mut parts = field.split('\\');
    let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        match part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok())
        {
            Some(byte) => {
                out.push(byte);
                out.extend(part.bytes().skip(3));
            }
            None => {
                out.push(b'\\');
                out.extend(part.bytes());
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_mount_that_is_not_listed_is_known_by_its_device() {
        let table = "66 43 0:22 / /sys ro - sysfs sysfs rw\n70 43 254:0 /usr /usr ro - ext4 /dev/vda rw,discard";
        let known = unlisted(table, "254:0".to_owned());
        assert_eq!(
            (
                known.kind.as_str(),
                known.source.as_str(),
                known.options.as_str()
            ),
            ("ext4", "/dev/vda", "")
        );
        let unknown = unlisted(table, "8:1".to_owned());
        assert_eq!(
            (unknown.kind.as_str(), unknown.device.as_str()),
            ("", "8:1")
        );
    }

    #[test]
    fn mount_tables_are_read_by_id() {
        let table = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
                     9 22 0:42 /vol /mnt/my\\040ceph rw - ceph 10.0.0.1:/ rw\nnonsense\n31 22 0:5\n\
                     40 22 0:50 / /mnt/mfs rw,nosuid - fuse mfs\\04310.0.0.7:9421 rw,user_id=0\n\
                     41 22 0:51 / /mnt/nfs rw - nfs4 10.0.0.8:/ rw,vers=4.2,clientaddr=10.0.0.1,addr=10.0.0.8";
        let moose = mount_of(table, 40).unwrap();
        assert_eq!(
            (
                moose.kind.as_str(),
                moose.source.as_str(),
                moose.options.as_str()
            ),
            ("fuse.moosefs", "mfs#10.0.0.7:9421", "rw,nosuid,user_id=0")
        );
        let mount = mount_of(table, 9).unwrap();
        assert_eq!(
            (mount.kind.as_str(), mount.device.as_str()),
            ("ceph", "0:42")
        );
        let nfs = mount_of(table, 41).unwrap().options;
        assert_eq!(nfs, "rw,vers=4.2,addr=10.0.0.8");
        assert_eq!(mount_of(table, 22).unwrap().kind, "ext4");
        assert_eq!(mount_of(table, 31), None);
        assert_eq!(mount_of(table, 77), None);
    }
}
