//! The range of ports for links: whether it is free, and whether the kernel assigns its ports to connections.

use super::Finding;
use crate::config::AgentConfig;
use benchmesh_workloads::params::PortRange;
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use std::net::{Ipv4Addr, SocketAddrV4};

const CHECK: &str = "link-ports";

/// `None` without the option.
pub fn examine(config: &AgentConfig) -> Option<Finding> {
    let range = config.policy.link_ports?;
    if config.policy.allow_network.is_empty() {
        return Some(Finding::warn(
            CHECK,
            format!("{range} has no effect: no network is allowed for links"),
            "allow one: --allow-network NETWORK",
        ));
    }
    let read = |name: &str| {
        std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap_or_default()
    };
    let shared = shared_with_connections(
        range,
        &read("ip_local_port_range"),
        &read("ip_local_reserved_ports"),
    );
    let free = [("TCP", SocketType::STREAM), ("UDP", SocketType::DGRAM)].map(|(name, kind)| {
        let free = range.ports().filter(|port| is_free(*port, kind)).count();
        (name, free)
    });
    Some(verdict(range, free, shared))
}

pub(super) fn verdict(
    range: PortRange,
    free: [(&str, usize); 2],
    shared: Option<PortRange>,
) -> Finding {
    let count = range.count();
    let parts = free.map(|(protocol, free)| format!("{free} of {count} free over {protocol}"));
    let found = format!("{range}: {}", parts.join(", "));
    if free.iter().any(|(_, free)| *free == 0) {
        let remedy = "end the programs that use them (ss -lntup), or choose others: --link-ports FIRST-LAST (below \
                      1024 needs CAP_NET_BIND_SERVICE)";
        return Finding::fail(CHECK, found, remedy);
    }
    match shared {
        Some(kernels) => Finding::warn(
            CHECK,
            format!("{found}; the kernel also assigns ports of {kernels} to connections"),
            format!(
                "choose ports outside of that range, or: sysctl net.ipv4.ip_local_reserved_ports={range}"
            ),
        ),
        None => Finding::ok(CHECK, found),
    }
}

/// The kernel's range of ephemeral ports, if it contains a port of ours that is not reserved.
pub(super) fn shared_with_connections(
    range: PortRange,
    kernels: &str,
    reserved: &str,
) -> Option<PortRange> {
    let mut ends = kernels.split_whitespace().map(str::parse);
    let (Some(Ok(first)), Some(Ok(last))) = (ends.next(), ends.next()) else {
        return None;
    };
    let kernels = PortRange::new(first, last)?;
    let reserved: Vec<PortRange> = reserved
        .trim()
        .split(',')
        .filter_map(|text| text.parse().ok())
        .collect();
    let is_reserved = |port: &u16| reserved.iter().any(|it| it.ports().contains(port));
    let is_shared = |port: u16| kernels.ports().contains(&port) && !is_reserved(&port);
    range.ports().any(is_shared).then_some(kernels)
}

/// Whether a socket can be bound to the port. It does not listen, so no peer can connect meanwhile.
fn is_free(port: u16, kind: SocketType) -> bool {
    let tried = socket(AddressFamily::INET, kind, None).and_then(|socket| {
        // As at the receiving end: a closed connection does not block its port.
        if kind == SocketType::STREAM {
            sockopt::set_socket_reuseaddr(&socket, true)?;
        }
        bind(&socket, &SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
    });
    tried.is_ok()
}
