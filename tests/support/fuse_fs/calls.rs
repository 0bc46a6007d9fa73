//! The file system's calls as fuser delivers them: each is named, logged and answered from the tree.

use super::{Op, Shared, State};
use fuser::{
    CopyFileRangeFlags, Errno, FileAttr, FileHandle, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
    Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// The kernel caches no names or attributes.
const AT_ONCE: Duration = Duration::ZERO;

/// As statfs reports it.
const FREE_BYTES: u64 = 64 << 30;

/// The callbacks of fuser; they only translate.
#[derive(Debug)]
pub(super) struct Logging(pub(super) Arc<Shared>);

type Handle = FileHandle;

impl Logging {
    fn entry(result: Result<FileAttr, Errno>, reply: ReplyEntry) {
        match result {
            Ok(attr) => reply.entry(&AT_ONCE, &attr, Generation(0)),
            Err(errno) => reply.error(errno),
        }
    }

    fn empty(result: Result<(), Errno>, reply: ReplyEmpty) {
        match result {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn attr(result: Result<FileAttr, Errno>, reply: ReplyAttr) {
        match result {
            Ok(attr) => reply.attr(&AT_ONCE, &attr),
            Err(errno) => reply.error(errno),
        }
    }

    fn on<T>(
        &self,
        op: Op,
        ino: INodeNo,
        offset: u64,
        body: impl FnOnce(&mut State) -> Result<(T, u64), Errno>,
    ) -> Result<T, Errno> {
        self.0.call(op, offset, |nodes| nodes.path(ino.0), body)
    }

    fn named<T>(
        &self,
        op: Op,
        parent: INodeNo,
        name: &OsStr,
        body: impl FnOnce(&mut State) -> Result<(T, u64), Errno>,
    ) -> Result<T, Errno> {
        self.0
            .call(op, 0, |nodes| nodes.path(parent.0).join(name), body)
    }
}

impl Filesystem for Logging {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // A read of 1 MiB must arrive in one piece, or the log could not be compared call by call.
        let _ = config.add_capabilities(InitFlags::FUSE_MAX_PAGES);
        let _ = config.set_max_write(1 << 20);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let result = self.named(Op::Lookup, parent, name, |state| {
            Ok((state.nodes.lookup(parent.0, name)?, 0))
        });
        Self::entry(result, reply);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<Handle>, reply: ReplyAttr) {
        let result = self.on(Op::Getattr, ino, 0, |state| {
            Ok((state.nodes.attr(ino.0)?, 0))
        });
        Self::attr(result, reply);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<Handle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let result = self.on(Op::Setattr, ino, 0, |state| {
            Ok((state.nodes.set(ino.0, mode, size)?, 0))
        });
        Self::attr(result, reply);
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let result = self.named(Op::Mkdir, parent, name, |state| {
            Ok((state.nodes.mkdir(parent.0, name, mode)?, 0))
        });
        Self::entry(result, reply);
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let result = self.named(Op::Create, parent, name, |state| {
            Ok((state.nodes.create(parent.0, name, mode)?, 0))
        });
        match result {
            Ok(attr) => reply.created(
                &AT_ONCE,
                &attr,
                Generation(0),
                FileHandle(attr.ino.0),
                FopenFlags::FOPEN_DIRECT_IO,
            ),
            Err(errno) => reply.error(errno),
        }
    }

    fn open(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let result = self.on(Op::Open, ino, 0, |state| {
            state.nodes.open(ino.0)?;
            Ok(((), 0))
        });
        match result {
            Ok(()) => reply.opened(FileHandle(ino.0), FopenFlags::FOPEN_DIRECT_IO),
            Err(errno) => reply.error(errno),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Handle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let result = self.on(Op::Read, ino, offset, |state| {
            let mut data = state.nodes.read(ino.0, offset, size.min(state.most))?;
            state.flip(ino.0, offset, &mut data);
            let amount = data.len() as u64;
            Ok((data, amount))
        });
        match result {
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(errno),
        }
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Handle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let result = self.on(Op::Write, ino, offset, |state| {
            let data = &data[..data.len().min(state.most as usize)];
            state.nodes.write(ino.0, offset, data)?;
            Ok((data.len() as u32, data.len() as u64))
        });
        match result {
            Ok(written) => reply.written(written),
            Err(errno) => reply.error(errno),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        from: INodeNo,
        _: Handle,
        from_offset: u64,
        to: INodeNo,
        _: Handle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let result = self.on(Op::CopyFileRange, to, to_offset, |state| {
            let most = u32::try_from(len).unwrap_or(u32::MAX).min(state.most);
            let data = state.nodes.read(from.0, from_offset, most)?;
            state.nodes.write(to.0, to_offset, &data)?;
            Ok((data.len() as u32, data.len() as u64))
        });
        match result {
            Ok(copied) => reply.written(copied),
            Err(errno) => reply.error(errno),
        }
    }

    fn flush(&self, _: &Request, ino: INodeNo, _: Handle, _: LockOwner, reply: ReplyEmpty) {
        Self::empty(self.on(Op::Flush, ino, 0, |_| Ok(((), 0))), reply);
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        _: Handle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        let result = self.on(Op::Release, ino, 0, |state| {
            state.nodes.close(ino.0);
            Ok(((), 0))
        });
        Self::empty(result, reply);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: Handle, _: bool, reply: ReplyEmpty) {
        Self::empty(self.on(Op::Fsync, ino, 0, |_| Ok(((), 0))), reply);
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: Handle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        let result = self.on(Op::Opendir, ino, 0, |state| {
            Ok((state.nodes.open_directory(ino.0)?, 0))
        });
        match result {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(errno) => reply.error(errno),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: Handle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let result = self.on(Op::Readdir, ino, offset, |state| {
            if offset == 0 {
                state.nodes.rewind(ino.0, fh.0)?;
            }
            let mut given = 0;
            for (index, (ino, kind, name)) in state.nodes.entries(fh.0, offset)?.enumerate() {
                let next = offset + index as u64 + 1;
                if reply.add(INodeNo(ino), next, kind, name) {
                    break;
                }
                given += 1;
            }
            Ok(((), given))
        });
        match result {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(errno),
        }
    }

    fn releasedir(&self, _: &Request, _: INodeNo, fh: Handle, _: OpenFlags, reply: ReplyEmpty) {
        self.0.lock().nodes.close_directory(fh.0);
        reply.ok();
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let result = self.named(Op::Symlink, parent, name, |state| {
            Ok((state.nodes.symlink(parent.0, name, target)?, 0))
        });
        Self::entry(result, reply);
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let result = self.named(Op::Link, newparent, newname, |state| {
            Ok((state.nodes.link(ino.0, newparent.0, newname)?, 0))
        });
        Self::entry(result, reply);
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        match self.0.lock().nodes.target(ino.0) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(errno),
        }
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        if !is_a_user_s(name) {
            return reply.error(Errno::ENOTSUP);
        }
        let result = self.on(Op::Setxattr, ino, 0, |state| {
            state.nodes.set_attribute(ino.0, name, value)?;
            Ok(((), value.len() as u64))
        });
        Self::empty(result, reply);
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        if !is_a_user_s(name) {
            return reply.error(Errno::NO_XATTR);
        }
        let result = self.on(Op::Getxattr, ino, 0, |state| {
            let value = state.nodes.attribute(ino.0, name)?;
            let amount = value.len() as u64;
            Ok((value, amount))
        });
        match result {
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
            Err(errno) => reply.error(errno),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.named(Op::Unlink, parent, name, |state| {
            Ok((state.nodes.unlink(parent.0, name)?, 0))
        });
        Self::empty(result, reply);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let result = self.named(Op::Rmdir, parent, name, |state| {
            Ok((state.nodes.rmdir(parent.0, name)?, 0))
        });
        Self::empty(result, reply);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let result = self.named(Op::Rename, parent, name, |state| {
            let keep = flags.contains(RenameFlags::RENAME_NOREPLACE);
            state
                .nodes
                .rename((parent.0, name), (newparent.0, newname), keep)?;
            Ok(((), 0))
        });
        Self::empty(result, reply);
    }

    fn statfs(&self, _: &Request, ino: INodeNo, reply: ReplyStatfs) {
        match self.on(Op::Statfs, ino, 0, |_| Ok(((), 0))) {
            Ok(()) => {
                let blocks = FREE_BYTES / 4096;
                reply.statfs(blocks, blocks, blocks, 1 << 30, 1 << 30, 4096, 255, 4096);
            }
            Err(errno) => reply.error(errno),
        }
    }
}

/// The kernel queries its own attributes before a write; a user did not make those calls.
fn is_a_user_s(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b"user.")
}
