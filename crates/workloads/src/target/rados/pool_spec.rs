//! A pool and how to reach it, in the syntax of the agent's option and of plans.

use super::RadosError;
use benchmesh_model::targets::{CONF, KEYRING, Locator, POOL_NAME, USER};
use std::ffi::CString;
use std::path::PathBuf;

/// The default user of `ceph` and `rados`.
const DEFAULT_USER: &str = "admin";

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolSpec {
    pub pool: String,
    /// `None`: librados' defaults, `$CEPH_CONF` and `/etc/ceph/ceph.conf`.
    pub conf: Option<PathBuf>,
    /// Without `client.`.
    pub user: String,
    /// `None`: the path in the configuration.
    pub keyring: Option<PathBuf>,
}

impl PoolSpec {
    /// Parses `POOL[,conf=FILE][,user=ID][,keyring=FILE]`.
    pub fn parse(value: &str) -> Result<PoolSpec, RadosError> {
        let refused = |why| {
            Err(RadosError::BadName {
                value: value.to_owned(),
                why,
            })
        };
        if CString::new(value).is_err() {
            return refused("it contains a zero byte");
        }
        let locator = Locator {
            key: &POOL_NAME,
            value: value.to_owned(),
        };
        if locator.name().is_empty() {
            return refused("the name is empty");
        }
        let paths = [locator.part(&CONF), locator.part(&KEYRING)];
        let relative = |path: &&str| !path.starts_with('/');
        if paths.iter().flatten().any(relative) {
            return refused("`conf` and `keyring` are absolute paths");
        }
        let [conf, keyring] = paths.map(|path| path.map(PathBuf::from));
        let user = locator.part(&USER).unwrap_or(DEFAULT_USER);
        if user.is_empty() || user.starts_with("client.") {
            return refused("`user` is a Ceph user without `client.`, such as admin");
        }
        Ok(PoolSpec {
            pool: locator.name().to_owned(),
            conf,
            user: user.to_owned(),
            keyring,
        })
    }

    /// For messages: `client.admin (/etc/ceph/ceph.conf)`.
    pub fn who(&self) -> String {
        match &self.conf {
            Some(conf) => format!("client.{} ({})", self.user, conf.display()),
            None => format!("client.{}", self.user),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn specs_are_read() {
        let spec = PoolSpec::parse("bench,conf=/l/c.conf,user=b,keyring=/l/k").unwrap();
        assert_eq!((spec.pool.as_str(), spec.user.as_str()), ("bench", "b"));
        assert_eq!(spec.conf, Some(PathBuf::from("/l/c.conf")));
        assert_eq!(spec.keyring, Some(PathBuf::from("/l/k")));
        assert_eq!(spec.who(), "client.b (/l/c.conf)");
        assert_eq!(PoolSpec::parse("a").unwrap().who(), "client.admin");
        for (bad, why) in [
            ("", "empty"),
            (",user=a", "empty"),
            ("a,conf=ceph.conf", "absolute"),
            ("a,keyring=", "absolute"),
            ("a,user=client.admin", "without `client.`"),
            ("a\0", "zero byte"),
        ] {
            let error = PoolSpec::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad:?}: {error}");
        }
    }
}
