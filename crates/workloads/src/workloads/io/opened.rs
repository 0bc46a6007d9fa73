//! A worker's file or image as the layout uses it: one blocking operation at a time.

use crate::engine::author::*;
use rustix::fd::{AsFd, OwnedFd};
use std::path::Path;

pub(super) enum FileOrImage {
    File(OwnedFd),
    Image(Image),
}

impl FileOrImage {
    pub(super) fn write_at(&self, path: &Path, piece: &[u8], at: u64) -> Result<(), TaskError> {
        match self {
            FileOrImage::File(file) => write_at(file.as_fd(), piece, at).map_err(|failed| {
                let doing = format!("lay out {} at offset {at}", path.display());
                TaskError::io(doing, failed.errno)
            }),
            FileOrImage::Image(image) => image.write_at(piece, at).map_err(TaskError::Pool),
        }
    }

    /// Bytes read; 0 at the end.
    pub(super) fn read_at(
        &self,
        path: &Path,
        piece: &mut [u8],
        at: u64,
    ) -> Result<usize, TaskError> {
        match self {
            FileOrImage::File(file) => rustix::io::pread(file, piece, at).map_err(|errno| {
                let doing = format!("read {} at offset {at} to warm it", path.display());
                TaskError::io(doing, errno)
            }),
            FileOrImage::Image(image) => image.read_at(piece, at).map_err(TaskError::Pool),
        }
    }

    pub(super) fn sync(&self, path: &Path) -> Result<(), TaskError> {
        match self {
            FileOrImage::File(file) => rustix::fs::fdatasync(file)
                .map_err(|errno| TaskError::io(format!("sync {}", path.display()), errno)),
            FileOrImage::Image(image) => image
                .flush()
                .map_err(|errno| TaskError::Pool(image.failed("flush the writes", errno))),
        }
    }
}
