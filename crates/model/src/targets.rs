//! The kinds of storage that load works on, and how a target is named.
//!
//! A plan names a target by a key of `[targets.NAME]`, an agent allows it by an option, and between them a [`Locator`]
//! is one text. Keys, options, schema and messages are made from the tables here.

use std::fmt;
use std::path::Path;

/// A key of `[targets.NAME]` that says where the target is. Several kinds may share it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LocatorKey {
    pub name: &'static str,
    /// Lines of text.
    pub doc: &'static [&'static str],
    /// Its values are absolute paths on the agents' hosts.
    pub is_path: bool,
}

pub const PATH: LocatorKey = LocatorKey {
    name: "path",
    doc: &["Where every client of the run has it mounted, or a block device."],
    is_path: true,
};

/// Every key. A target has exactly one.
pub const LOCATOR_KEYS: &[&LocatorKey] = &[&PATH];

/// One kind of target.
#[derive(Debug, PartialEq, Eq)]
pub struct TargetKind {
    pub name: &'static str,
    /// In a sentence, with its article.
    pub noun: &'static str,
    /// What the targets of it that an agent allows are called.
    pub plural: &'static str,
    pub key: &'static LocatorKey,
    /// The option of `benchmesh agent` that allows it, without dashes; its key in a configuration file too.
    pub option: &'static str,
    /// The option's value in messages and help.
    pub value_name: &'static str,
    /// The option's help.
    pub help: &'static str,
    /// A run makes a directory of its own there, so nothing else of the agent's may lie in it.
    pub has_run_directory: bool,
    /// What is free there is known, and stays above the floors of the agent's policy.
    pub has_free_space: bool,
}

pub const DIRECTORY: TargetKind = TargetKind {
    name: "directory",
    noun: "a directory",
    plural: "target directories",
    key: &PATH,
    option: "allow",
    value_name: "PATH",
    help: "A directory that targets may lie in; may be given several times",
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
    help: "A raw block device that targets may be, and whose content is lost; may be given several times",
    has_run_directory: false,
    has_free_space: false,
};

/// Every kind, the usual one first.
pub const KINDS: &[&TargetKind] = &[&DIRECTORY, &DEVICE];

/// Where a target is. As text, which the wire and the database have, it is a path as it stands, and otherwise
/// `KEY:VALUE`.
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

    /// What has no known key is taken for a path.
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

    /// The kind that it is of, as far as the text tells. A path alone does not tell a directory from a device.
    pub fn likely_kind(&self) -> &'static TargetKind {
        let path = Path::new(&self.value);
        let is_device = path.starts_with("/dev") && !path.starts_with("/dev/shm");
        match KINDS.iter().find(|kind| kind.key == self.key) {
            Some(kind) if !(self.key.is_path && is_device) => kind,
            Some(_) | None => &DEVICE,
        }
    }

    /// The option that allows it, as a command line has it.
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
        for text in ["/mnt/a", "relative", "/mnt/path:a", "path:/mnt/a", "pool:a"] {
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
