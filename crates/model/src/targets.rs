//! The kinds of storage that load works on.

/// One kind of target.
#[derive(Debug, PartialEq, Eq)]
pub struct TargetKind {
    pub name: &'static str,
    /// In a sentence, with its article.
    pub noun: &'static str,
}

pub const DIRECTORY: TargetKind = TargetKind {
    name: "directory",
    noun: "a directory",
};

pub const DEVICE: TargetKind = TargetKind {
    name: "device",
    noun: "a block device",
};
