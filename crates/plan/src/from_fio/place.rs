//! Where a job works: the target of its phase. benchmesh makes files and images of its own there.

use super::options::FioJob;
use super::{RemarkKind, SOMEWHERE};
use benchmesh_model::targets::{Locator, POOL_NAME};

impl FioJob<'_> {
    /// The directory or device, where a plan's target is; and whether the workers share a file.
    pub(super) fn place_of_files(&mut self) -> (Locator, bool) {
        let names = self
            .options
            .iter()
            .find(|option| option.name == "filename")
            .cloned();
        let target = self.place();
        let is_device = target.value.starts_with("/dev/") && !target.value.starts_with("/dev/shm");
        (target, names.is_some() && !is_device)
    }

    pub(super) fn place(&mut self) -> Locator {
        let directory = self.take("directory");
        let first = |text: &str| {
            let mut names = text.split(':');
            let first = names.next().unwrap_or_default().trim().to_owned();
            (first, names.next().is_some())
        };
        let mut path = None;
        if let Some(option) = &directory {
            let (name, has_others) = first(&option.value);
            if has_others {
                self.remark(
                    option,
                    RemarkKind::LeftOut,
                    "only the first directory is a target",
                );
            }
            path = Some(name).filter(|name| name.starts_with('/'));
        }
        if let Some(option) = self.take("filename") {
            let (name, has_others) = first(&option.value);
            let is_device = name.starts_with("/dev/") && !name.starts_with("/dev/shm/");
            if has_others {
                let why = match is_device {
                    true => "only the first device is a target",
                    false => "a worker has one file",
                };
                self.remark(&option, RemarkKind::LeftOut, why);
            }
            if is_device {
                path = Some(name);
            } else {
                self.remark(
                    &option,
                    RemarkKind::Changed,
                    "benchmesh makes files of its own in the target, and removes them",
                );
                let parent = name.rsplit_once('/').filter(|_| name.starts_with('/'));
                let parent = parent.map(|(parent, _)| if parent.is_empty() { "/" } else { parent });
                path = parent.map(str::to_owned).or(path);
            }
        }
        Locator::path(path.unwrap_or_else(|| {
            let why = format!(
                "it works in fio's own directory: the plan has {SOMEWHERE}, change it to the storage under test"
            );
            match &directory {
                Some(option) => self.remark(option, RemarkKind::Changed, &why),
                None => self.remark_job(RemarkKind::Changed, &why),
            }
            SOMEWHERE.to_owned()
        }))
    }

    pub(super) fn pool(&mut self) -> Locator {
        let pool = self.take("pool");
        let user = self.take("clientname");
        if let Some(option) = self.take("rbdname") {
            self.remark(
                &option,
                RemarkKind::Changed,
                "benchmesh makes images of its own, and removes them",
            );
        }
        let name = pool.map_or_else(|| String::from("rbd"), |option| option.value);
        let user = user.map(|option| option.value);
        let user = user.as_deref().map(|user| ("user", user));
        Locator::with_parts(&POOL_NAME, &name, user)
    }
}
