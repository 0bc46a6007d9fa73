//! The in-memory tree of the FUSE file system: inodes, names, contents. It does not know calls, logs or rules.

use fuser::{Errno, FileAttr, FileType, INodeNo};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

const ROOT: u64 = 1;
/// The inode number of a deleted file in a listing.
const GHOST: u64 = u64::MAX - 1;

#[derive(Debug)]
pub struct Nodes {
    nodes: HashMap<u64, Node>,
    next: u64,
    /// Open directories, with their entries at the time of opening.
    listings: HashMap<u64, Vec<(u64, FileType, OsString)>>,
    /// Unlinked files that are still listed, each with its directory; `None` if the feature is off.
    ghosts: Option<Vec<(u64, OsString)>>,
}

#[derive(Debug)]
struct Node {
    parent: u64,
    name: OsString,
    mode: u16,
    content: Content,
    attributes: HashMap<OsString, Vec<u8>>,
    /// Whether a directory still has an entry for it.
    linked: bool,
    /// Additional hard links, each with its directory.
    others: Vec<(u64, OsString)>,
    opens: u64,
}

#[derive(Debug)]
enum Content {
    File(Vec<u8>),
    Directory(BTreeMap<OsString, u64>),
    Symlink(Vec<u8>),
}

impl Nodes {
    pub fn new() -> Self {
        let root = Node {
            parent: ROOT,
            name: OsString::new(),
            mode: 0o755,
            content: Content::Directory(BTreeMap::new()),
            attributes: HashMap::new(),
            linked: true,
            others: Vec::new(),
            opens: 0,
        };
        Self {
            nodes: HashMap::from([(ROOT, root)]),
            next: ROOT + 1,
            listings: HashMap::new(),
            ghosts: None,
        }
    }

    /// The path from the root, without a leading slash.
    pub fn path(&self, ino: u64) -> PathBuf {
        let mut parts = Vec::new();
        let mut at = ino;
        while at != ROOT {
            let Some(node) = self.nodes.get(&at) else {
                break;
            };
            parts.push(&node.name);
            at = node.parent;
        }
        parts.into_iter().rev().collect()
    }

    /// Every name below the root.
    pub fn names(&self) -> Vec<PathBuf> {
        let linked = self.nodes.iter();
        let linked = linked.filter(|(ino, node)| **ino != ROOT && node.linked);
        let names = linked.flat_map(|(ino, node)| {
            let others = node.others.iter();
            let others = others.map(|(parent, name)| self.path(*parent).join(name));
            others.chain([self.path(*ino)])
        });
        let mut names: Vec<PathBuf> = names.collect();
        names.sort();
        names
    }

    pub fn lookup(&self, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let ino = self.directory(parent)?.get(name).ok_or(Errno::ENOENT)?;
        self.attr(*ino)
    }

    pub fn attr(&self, ino: u64) -> Result<FileAttr, Errno> {
        let node = self.node(ino)?;
        let (kind, size, nlink) = match &node.content {
            Content::File(data) => {
                let names = 1 + node.others.len() as u32;
                (FileType::RegularFile, data.len() as u64, names)
            }
            Content::Directory(_) => (FileType::Directory, 4096, 2),
            Content::Symlink(target) => (FileType::Symlink, target.len() as u64, 1),
        };
        Ok(FileAttr {
            ino: INodeNo(ino),
            size,
            blocks: size.div_ceil(512),
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm: node.mode,
            nlink: if node.linked { nlink } else { 0 },
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        })
    }

    pub fn set(
        &mut self,
        ino: u64,
        mode: Option<u32>,
        size: Option<u64>,
    ) -> Result<FileAttr, Errno> {
        let node = self.node_mut(ino)?;
        if let Some(mode) = mode {
            node.mode = (mode & 0o7777) as u16;
        }
        if let Some(size) = size {
            match &mut node.content {
                Content::File(data) => data.resize(size as usize, 0),
                Content::Directory(_) => return Err(Errno::EISDIR),
                Content::Symlink(_) => return Err(Errno::EINVAL),
            }
        }
        self.attr(ino)
    }

    pub fn mkdir(&mut self, parent: u64, name: &OsStr, mode: u32) -> Result<FileAttr, Errno> {
        self.add(parent, name, mode, Content::Directory(BTreeMap::new()))
    }

    pub fn symlink(&mut self, parent: u64, name: &OsStr, target: &Path) -> Result<FileAttr, Errno> {
        let target = target.as_os_str().as_encoded_bytes().to_vec();
        self.add(parent, name, 0o777, Content::Symlink(target))
    }

    /// Adds a hard link to a file.
    pub fn link(&mut self, ino: u64, parent: u64, name: &OsStr) -> Result<FileAttr, Errno> {
        let names = self.directory_mut(parent)?;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), ino);
        let others = &mut self.node_mut(ino)?.others;
        others.push((parent, name.to_owned()));
        self.attr(ino)
    }

    /// The target of a symlink.
    pub fn target(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        match &self.node(ino)?.content {
            Content::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    pub fn set_attribute(&mut self, ino: u64, name: &OsStr, value: &[u8]) -> Result<(), Errno> {
        let attributes = &mut self.node_mut(ino)?.attributes;
        attributes.insert(name.to_owned(), value.to_vec());
        Ok(())
    }

    pub fn attribute(&self, ino: u64, name: &OsStr) -> Result<Vec<u8>, Errno> {
        let value = self.node(ino)?.attributes.get(name);
        value.cloned().ok_or(Errno::NO_XATTR)
    }

    /// Creates a file and opens it.
    pub fn create(&mut self, parent: u64, name: &OsStr, mode: u32) -> Result<FileAttr, Errno> {
        let attr = self.add(parent, name, mode, Content::File(Vec::new()))?;
        self.open(attr.ino.0)?;
        Ok(attr)
    }

    fn add(
        &mut self,
        parent: u64,
        name: &OsStr,
        mode: u32,
        content: Content,
    ) -> Result<FileAttr, Errno> {
        let ino = self.next;
        let names = self.directory_mut(parent)?;
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        names.insert(name.to_owned(), ino);
        self.next += 1;
        let node = Node {
            parent,
            name: name.to_owned(),
            mode: (mode & 0o7777) as u16,
            content,
            attributes: HashMap::new(),
            linked: true,
            others: Vec::new(),
            opens: 0,
        };
        self.nodes.insert(ino, node);
        self.attr(ino)
    }

    pub fn open(&mut self, ino: u64) -> Result<(), Errno> {
        self.node_mut(ino)?.opens += 1;
        Ok(())
    }

    pub fn close(&mut self, ino: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.opens = node.opens.saturating_sub(1);
        }
        self.forget_unused(ino);
    }

    pub fn read(&self, ino: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let Content::File(data) = &self.node(ino)?.content else {
            return Err(Errno::EISDIR);
        };
        let from = data.len().min(offset as usize);
        let until = data.len().min(from + size as usize);
        Ok(data[from..until].to_vec())
    }

    pub fn write(&mut self, ino: u64, offset: u64, bytes: &[u8]) -> Result<(), Errno> {
        let Content::File(data) = &mut self.node_mut(ino)?.content else {
            return Err(Errno::EISDIR);
        };
        let from = offset as usize;
        let until = from + bytes.len();
        if data.len() < until {
            data.resize(until, 0);
        }
        data[from..until].copy_from_slice(bytes);
        Ok(())
    }

    /// Opens a directory: its handle shows the current entries until it is rewound.
    pub fn open_directory(&mut self, ino: u64) -> Result<u64, Errno> {
        let listing = self.listing(ino)?;
        let handle = self.next;
        self.next += 1;
        self.listings.insert(handle, listing);
        Ok(handle)
    }

    /// Refreshes the entries of a directory that is read from its beginning.
    pub fn rewind(&mut self, ino: u64, handle: u64) -> Result<(), Errno> {
        let listing = self.listing(ino)?;
        self.listings.insert(handle, listing);
        Ok(())
    }

    fn listing(&self, ino: u64) -> Result<Vec<(u64, FileType, OsString)>, Errno> {
        let mut listing = vec![
            (ino, FileType::Directory, OsString::from(".")),
            (
                self.node(ino)?.parent,
                FileType::Directory,
                OsString::from(".."),
            ),
        ];
        for (name, child) in self.directory(ino)? {
            listing.push((*child, self.attr(*child)?.kind, name.clone()));
        }
        for (_, name) in self.ghosts.iter().flatten().filter(|ghost| ghost.0 == ino) {
            listing.push((GHOST, FileType::RegularFile, name.clone()));
        }
        Ok(listing)
    }

    pub fn entries(
        &self,
        handle: u64,
        from: u64,
    ) -> Result<impl Iterator<Item = (u64, FileType, &OsStr)>, Errno> {
        let listing = self.listings.get(&handle).ok_or(Errno::EBADF)?;
        let entries = listing.iter().skip(from as usize);
        Ok(entries.map(|(ino, kind, name)| (*ino, *kind, name.as_os_str())))
    }

    pub fn close_directory(&mut self, handle: u64) {
        self.listings.remove(&handle);
    }

    pub fn unlink(&mut self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let ino = *self.directory(parent)?.get(name).ok_or(Errno::ENOENT)?;
        if matches!(self.node(ino)?.content, Content::Directory(_)) {
            return Err(Errno::EISDIR);
        }
        if let Some(ghosts) = &mut self.ghosts {
            ghosts.push((parent, name.to_owned()));
        }
        self.detach(parent, name, ino)
    }

    /// From now on listings include unlinked files.
    pub fn list_unlinked(&mut self) {
        self.ghosts.get_or_insert_default();
    }

    pub fn rmdir(&mut self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        let ino = *self.directory(parent)?.get(name).ok_or(Errno::ENOENT)?;
        if !self.directory(ino)?.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        self.detach(parent, name, ino)
    }

    /// Renames; replaces an existing file of the new name, unless `keep` forbids that.
    pub fn rename(
        &mut self,
        from: (u64, &OsStr),
        to: (u64, &OsStr),
        keep: bool,
    ) -> Result<(), Errno> {
        let ino = *self.directory(from.0)?.get(from.1).ok_or(Errno::ENOENT)?;
        if let Some(old) = self.directory(to.0)?.get(to.1).copied() {
            if keep {
                return Err(Errno::EEXIST);
            }
            self.detach(to.0, to.1, old)?;
        }
        self.directory_mut(from.0)?.remove(from.1);
        self.directory_mut(to.0)?.insert(to.1.to_owned(), ino);
        let node = self.node_mut(ino)?;
        node.parent = to.0;
        node.name = to.1.to_owned();
        Ok(())
    }

    fn detach(&mut self, parent: u64, name: &OsStr, ino: u64) -> Result<(), Errno> {
        self.directory_mut(parent)?.remove(name);
        let node = self.node_mut(ino)?;
        let is_it =
            |(other, called): &(u64, OsString)| (*other, called.as_os_str()) == (parent, name);
        match node.others.iter().position(is_it) {
            Some(place) => drop(node.others.swap_remove(place)),
            None => match node.others.pop() {
                Some(other) => (node.parent, node.name) = other,
                None => node.linked = false,
            },
        }
        self.forget_unused(ino);
        Ok(())
    }

    fn forget_unused(&mut self, ino: u64) {
        let unused = |node: &Node| !node.linked && node.opens == 0;
        if self.nodes.get(&ino).is_some_and(unused) {
            self.nodes.remove(&ino);
        }
    }

    fn node(&self, ino: u64) -> Result<&Node, Errno> {
        self.nodes.get(&ino).ok_or(Errno::ESTALE)
    }

    fn node_mut(&mut self, ino: u64) -> Result<&mut Node, Errno> {
        self.nodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    fn directory(&self, ino: u64) -> Result<&BTreeMap<OsString, u64>, Errno> {
        match &self.node(ino)?.content {
            Content::Directory(names) => Ok(names),
            Content::File(_) | Content::Symlink(_) => Err(Errno::ENOTDIR),
        }
    }

    fn directory_mut(&mut self, ino: u64) -> Result<&mut BTreeMap<OsString, u64>, Errno> {
        match &mut self.node_mut(ino)?.content {
            Content::Directory(names) => Ok(names),
            Content::File(_) | Content::Symlink(_) => Err(Errno::ENOTDIR),
        }
    }
}
