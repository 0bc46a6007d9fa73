//! The kinds of storage under test, and how a target is named.
//!
//! A plan names a target by a key of `[targets.NAME]`, and an agent allows it by an option. Between them a [`Locator`]
//! is one text: `NAME`, or `NAME,PART=VALUE,...` for a key that has parts. Keys, options, schema and messages are
//! generated from the tables here.

use std::fmt;
use std::path::Path;

/// A key of `[targets.NAME]` that locates the target. Several kinds may share it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocatorKey {
    pub name: &'static str,
    /// Lines of text.
    pub doc: &'static [&'static str],
    /// Its values are absolute paths on the agents' hosts.
    pub is_path: bool,
    /// Additional keys that describe how the target is reached.
    pub parts: &'static [LocatorPart],
}

/// An additional key of `[targets.NAME]`. If absent, the agent's option decides.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocatorPart {
    pub name: &'static str,
    /// Lines of text.
    pub doc: &'static [&'static str],
}

pub const PATH: LocatorKey = LocatorKey {
    name: "path",
    doc: &["Its mount point on every client of the run, or a block device."],
    is_path: true,
    parts: &[],
};

pub const CONF: LocatorPart = LocatorPart {
    name: "conf",
    doc: &[
        "With `pool`: the cluster's ceph.conf on the agents' hosts. The agents' option must name the same.",
    ],
};

pub const USER: LocatorPart = LocatorPart {
    name: "user",
    doc: &["With `pool`: the Ceph user, without `client.`. The agents' option must name the same."],
};

pub const KEYRING: LocatorPart = LocatorPart {
    name: "keyring",
    doc: &[
        "With `pool`: the file with the user's key on the agents' hosts. The agents' option must name the same.",
    ],
};

pub const POOL_NAME: LocatorKey = LocatorKey {
    name: "pool",
    doc: &[
        "A RADOS pool of Ceph: for the workload `objects` through librados, and for `io` on RBD images through librbd.",
    ],
    is_path: false,
    parts: &[CONF, USER, KEYRING],
};

/// All keys. A target has exactly one.
pub const LOCATOR_KEYS: &[&LocatorKey] = &[&PATH, &POOL_NAME];

/// One kind of target.
#[derive(Debug, PartialEq, Eq)]
pub struct TargetKind {
    pub name: &'static str,
    /// The noun with its article.
    pub noun: &'static str,
    /// The plural for the targets that an agent allows.
    pub plural: &'static str,
    pub key: &'static LocatorKey,
    /// The option of `benchmesh agent` that allows it, without dashes; also its key in a configuration file.
    pub option: &'static str,
    /// The placeholder of the option's value in messages and help.
    pub value_name: &'static str,
    /// The option's help.
    pub help: &'static str,
    /// A run creates its own directory there, so no other data of the agent may be in it.
    pub has_run_directory: bool,
    /// Its free space is known, and stays above the minimums of the agent's policy.
    pub has_free_space: bool,
}

pub const DIRECTORY: TargetKind = TargetKind {
    name: "directory",
    noun: "a directory",
    plural: "target directories",
    key: &PATH,
    option: "allow",
    value_name: "PATH",
    help: "Allow targets in this directory; may be given several times",
    has_run_directory: true,
    has_free_space: true,
};

pub const DEVICE: TargetKind = TargetKind {
    name: "device",
    noun: "a block device",
    plural: "devices",
    key: &PATH,
    option: "allow-device",
    value_name: "DEVICE",
    help: "Allow this raw block device as a target; its content is lost; may be given several times",
    has_run_directory: false,
    has_free_space: false,
};

pub const POOL: TargetKind = TargetKind {
    name: "pool",
    noun: "a RADOS pool",
    plural: "pools",
    key: &POOL_NAME,
    option: "allow-pool",
    value_name: "POOL[,conf=FILE][,user=ID][,keyring=FILE]",
    help: "Allow this RADOS pool as a target, with the ceph.conf, user and keyring to reach it; may be given several \
           times",
    has_run_directory: false,
    has_free_space: true,
};

/// Reported among the options of a pool if the library for RBD images is installed: `librbd=1.16.0`.
pub const IMAGE_LIBRARY: &str = "librbd";

/// All kinds, the usual one first.
pub const KINDS: &[&TargetKind] = &[&DIRECTORY, &DEVICE, &POOL];

/// The location of a target. As text, on the wire and in the database, a path is unchanged and others are `KEY:VALUE`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Locator {
    pub key: &'static LocatorKey,
    pub value: String,
}

impl Locator {
    pub fn path(path: impl Into<String>) -> Locator {
        Locator {
            key: &PATH,
            value: path.into(),
        }
    }

    /// A text without a known key is a path.
    pub fn parse(text: &str) -> Locator {
        let keyed = LOCATOR_KEYS.iter().filter(|key| !key.is_path);
        let mut keyed = keyed.filter_map(|key| {
            let value = text.strip_prefix(key.name)?.strip_prefix(':')?;
            Some(Locator {
                key,
                value: value.to_owned(),
            })
        });
        keyed.next().unwrap_or_else(|| Locator::path(text))
    }

    /// With the given parts of its key.
    pub fn with_parts<'a>(
        key: &'static LocatorKey,
        name: &str,
        given: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Locator {
        let mut value = name.to_owned();
        for (part, text) in given {
            value.push_str(&format!(",{part}={text}"));
        }
        Locator { key, value }
    }

    /// Its value without parts.
    pub fn name(&self) -> &str {
        let starts = self.parts().map(|(at, _)| at);
        let end = starts.min().unwrap_or(self.value.len());
        self.value.get(..end).unwrap_or_default()
    }

    /// The value of a part.
    pub fn part(&self, wanted: &LocatorPart) -> Option<&str> {
        let (at, _) = self.parts().find(|(_, part)| *part == wanted)?;
        let from = at + wanted.name.len() + 2;
        let ends = self.parts().map(|(at, _)| at).filter(|end| *end > from);
        self.value.get(from..ends.min().unwrap_or(self.value.len()))
    }

    /// The position of each given part.
    fn parts(&self) -> impl Iterator<Item = (usize, &'static LocatorPart)> + '_ {
        self.key.parts.iter().filter_map(|part| {
            let at = self.value.find(&format!(",{}=", part.name))?;
            Some((at, part))
        })
    }

    /// Whether a configuration that contains `self` allows `asked`: a path beneath it; otherwise the same name, with no
    /// differing part.
    pub fn allows(&self, asked: &Locator) -> bool {
        if self.key != asked.key {
            return false;
        }
        if self.key.is_path {
            return Path::new(&asked.value).starts_with(&self.value);
        }
        let agrees = |part: &LocatorPart| {
            let wanted = asked.part(part);
            wanted.is_none() || wanted == self.part(part)
        };
        self.name() == asked.name() && self.key.parts.iter().all(agrees)
    }

    /// Its kind, as far as the text shows. A path alone does not distinguish a directory from a device.
    pub fn likely_kind(&self) -> &'static TargetKind {
        let path = Path::new(&self.value);
        let is_device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
        match KINDS.iter().find(|kind| kind.key == self.key) {
            Some(kind) if !(self.key.is_path && is_device) => kind,
            Some(_) | None => &DEVICE,
        }
    }

    /// The option that allows it, as written on a command line.
    pub fn option(&self) -> String {
        format!("--{} {}", self.likely_kind().option, self.value)
    }
}

impl fmt::Display for Locator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.is_path {
            true => f.write_str(&self.value),
            false => write!(f, "{}:{}", self.key.name, self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_locator_is_its_text_and_back() {
        for text in [
            "/mnt/a",
            "relative",
            "/mnt/path:a",
            "path:/mnt/a",
            "bucket:a",
        ] {
            assert_eq!(Locator::parse(text), Locator::path(text));
            assert_eq!(Locator::parse(text).to_string(), text);
        }
        for key in LOCATOR_KEYS.iter().filter(|key| !key.is_path) {
            let text = format!("{}:a:b", key.name);
            let locator = Locator::parse(&text);
            assert_eq!((locator.key, locator.value.as_str()), (*key, "a:b"));
            assert_eq!(locator.to_string(), text);
        }
    }

    #[test]
    fn parts_are_read_back_and_have_to_agree() {
        let pool = |value: &str| Locator::parse(&format!("pool:{value}"));
        let full = Locator::with_parts(
            &POOL_NAME,
            "a,b",
            [("conf", "/etc/x,y.conf"), ("user", "u=1")],
        );
        assert_eq!(full, pool("a,b,conf=/etc/x,y.conf,user=u=1"));
        assert_eq!(full.name(), "a,b");
        assert_eq!(full.part(&CONF), Some("/etc/x,y.conf"));
        assert_eq!(full.part(&USER), Some("u=1"));
        assert_eq!(full.part(&KEYRING), None);
        for (allowed, asked, allows) in [
            ("a", "a", true),
            ("a,user=u", "a", true),
            ("a,user=u", "a,user=u", true),
            ("a,user=u", "a,user=v", false),
            ("a", "a,user=u", false),
            ("a", "a,keyring=/etc/shadow", false),
            ("a", "b", false),
            ("a", "ab", false),
        ] {
            assert_eq!(
                pool(allowed).allows(&pool(asked)),
                allows,
                "{allowed} {asked}"
            );
        }
        assert!(Locator::path("/mnt").allows(&Locator::path("/mnt/a")));
        assert!(!Locator::path("/mnt").allows(&pool("/mnt/a")));
    }

    #[test]
    fn the_option_fits_the_path() {
        for (path, option) in [
            ("/mnt/a", "--allow /mnt/a"),
            ("/dev/sdb", "--allow-device /dev/sdb"),
            ("/dev/shm/a", "--allow /dev/shm/a"),
            ("/devices", "--allow /devices"),
        ] {
            assert_eq!(Locator::path(path).option(), option);
        }
    }

    #[test]
    fn every_kind_has_a_name_and_an_option_of_its_own() {
        for (at, kind) in KINDS.iter().enumerate() {
            assert!(LOCATOR_KEYS.contains(&kind.key), "{}", kind.name);
            for other in KINDS.iter().skip(at + 1) {
                assert!(kind.name != other.name && kind.option != other.option);
            }
        }
    }
}
