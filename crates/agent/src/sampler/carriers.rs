//! The carrier of each interface, as the kernel reports it: each change is an event.
//!
//! An interface that was down when it was first seen is not reported; it may never have been up.

use super::sampled::{CarrierChange, NetSample};
use benchmesh_workloads::clock::MonoNanos;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The kernel's directory of interfaces.
pub(crate) const INTERFACES: &str = "/sys/class/net";
/// A host with more has interfaces of containers, whose peers come and go with them.
const MAX_WATCHED: usize = 64;

#[derive(Debug)]
pub(crate) struct Carriers {
    root: PathBuf,
    known: Vec<(Arc<str>, bool)>,
}

impl Carriers {
    pub(crate) fn new(root: impl Into<PathBuf>) -> Carriers {
        Carriers {
            root: root.into(),
            known: Vec::new(),
        }
    }

    /// Whether an interface had its carrier at the last sample; `None`: it is not watched, or its carrier is unknown.
    pub(crate) fn has(&self, interface: &str) -> Option<bool> {
        let known = self.known.iter().find(|(name, _)| **name == *interface);
        known.map(|(_, has_carrier)| *has_carrier)
    }

    /// Carrier changes since the last sample, for the interfaces in this sample.
    pub(crate) fn changes(&mut self, at: MonoNanos, sampled: &[NetSample]) -> Vec<CarrierChange> {
        let watched = sampled.iter().filter(|net| net.interface.as_ref() != "lo");
        let mut changes = Vec::new();
        let mut known = Vec::with_capacity(self.known.len());
        for net in watched.take(MAX_WATCHED) {
            let interface = Arc::clone(&net.interface);
            let Some(has_carrier) = carrier(&self.root.join(interface.as_ref())) else {
                continue;
            };
            let before = self.known.iter().find(|(name, _)| *name == interface);
            if before.is_some_and(|(_, had)| *had != has_carrier) {
                changes.push(CarrierChange {
                    at,
                    interface: Arc::clone(&interface),
                    has_carrier,
                });
            }
            known.push((interface, has_carrier));
        }
        self.known = known;
        changes
    }
}

/// `None`: the interface does not exist here. For an interface that is down, the kernel refuses the read.
fn carrier(interface: &Path) -> Option<bool> {
    match std::fs::read_to_string(interface.join("carrier")) {
        Ok(text) => Some(text.trim() == "1"),
        Err(_) => interface.exists().then_some(false),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use benchmesh_model::figures::{Figures, NetFigures};

    fn net(interface: &str) -> NetSample {
        NetSample {
            at: MonoNanos(1),
            interface: interface.into(),
            figures: NetFigures::UNREAD,
        }
    }

    #[test]
    fn a_cut_link_is_reported_once_and_its_return_too() {
        let root = tempfile::tempdir().unwrap();
        for interface in ["eth0", "eth1", "lo"] {
            std::fs::create_dir(root.path().join(interface)).unwrap();
        }
        let set = |interface: &str, carrier: &str| {
            std::fs::write(root.path().join(interface).join("carrier"), carrier).unwrap();
        };
        set("eth0", "1\n");
        set("eth1", "0\n");
        set("lo", "1\n");
        let mut carriers = Carriers::new(root.path());
        // `none` is in another namespace than /sys.
        let nets = ["eth0", "eth1", "lo", "none"].map(net);
        let mut changes = || {
            let changes = carriers.changes(MonoNanos(5), &nets);
            let told = changes
                .iter()
                .map(|change| (change.interface.to_string(), change.has_carrier));
            told.collect::<Vec<_>>()
        };
        assert_eq!(changes(), []);
        assert_eq!(changes(), []);
        set("eth0", "0\n");
        set("lo", "0\n");
        assert_eq!(changes(), [("eth0".to_owned(), false)]);
        assert_eq!(changes(), []);
        // The interface is down: the file cannot be read.
        std::fs::remove_file(root.path().join("eth0/carrier")).unwrap();
        assert_eq!(changes(), []);
        set("eth0", "1\n");
        assert_eq!(changes(), [("eth0".to_owned(), true)]);
    }
}
