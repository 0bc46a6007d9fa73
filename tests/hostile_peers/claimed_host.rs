//! An agent with a valid certificate that claims another agent's host: the description and samples of that host stay
//! unchanged.

use super::LIMIT;
use crate::support::fake_agent::{FakeAgent, converse, hello, now_us};
use crate::support::mesh::Mesh;
use crate::support::wait::until_true;
use benchmesh_proto::v1 as wire;

fn osd(at_us: i64) -> wire::DaemonSeen {
    wire::DaemonSeen {
        pid: 77,
        start_ticks: 7,
        name: "ceph-osd".to_owned(),
        instance: "osd.1".to_owned(),
        cmdline: "/usr/bin/ceph-osd -i 1".to_owned(),
        at_us,
        ..wire::DaemonSeen::default()
    }
}

fn samples(at_us: i64, cpu_us: i64) -> wire::DaemonSamples {
    wire::DaemonSamples {
        pid: vec![77],
        start_ticks: vec![7],
        at_us: vec![at_us],
        figures: std::iter::once(cpu_us)
            .chain([1; 12])
            .map(|value| vec![value].into())
            .collect(),
    }
}

/// Everything stored about hosts, except the attach times of agents.
fn known(mesh: &Mesh) -> Vec<String> {
    mesh.db().column(
        "SELECT format('host %s %s %d', name, kernel, cpus) FROM hosts
         UNION ALL SELECT format('daemon %s %s %s %s %d', name, instance, cmdline, ended_us, is_parent) FROM daemons
         UNION ALL SELECT format('sample %d %d', at_us, cpu_user_us) FROM daemon_samples
         UNION ALL SELECT format('host sample %d %d', at_us, user_us) FROM host_samples
         UNION ALL SELECT format('disk %s %d', name, stacked) FROM disks
         UNION ALL SELECT format('disk sample %d %d', at_us, reads) FROM disk_samples
         UNION ALL SELECT format('interface %s', name) FROM interfaces
         UNION ALL SELECT format('event %s %s', kind, message) FROM events WHERE source = 'agent' ORDER BY 1",
    )
}

#[test]
fn whoever_claims_the_host_of_another_changes_nothing_of_it() {
    let mesh = Mesh::start();
    let before = std::cell::RefCell::new(Vec::new());
    converse(LIMIT, async {
        let mut first = FakeAgent::attach(mesh.address(), hello("first"))
            .await
            .unwrap();
        let start = now_us();
        let of_all = |at_us: i64, reads: i64| wire::Batch {
            daemon_samples: Some(samples(at_us, reads)),
            host_samples: vec![wire::HostSample {
                at_us,
                figures: vec![reads; 23],
                others: None,
            }],
            disk_samples: vec![wire::DiskSample {
                at_us,
                disk: "sda".to_owned(),
                stacked: false,
                figures: vec![reads; 11],
            }],
            net_samples: vec![wire::NetSample {
                at_us,
                interface: "eth0".to_owned(),
                figures: vec![reads; 8],
            }],
            events: vec![wire::Event {
                at_us,
                severity: "warning".to_owned(),
                kind: "daemon-restarted".to_owned(),
                message: format!("sample {reads}"),
                ..wire::Event::default()
            }],
            ..wire::Batch::default()
        };
        for second in 0..5 {
            let mut batch = first.next_batch();
            let (spool_id, sequence) = (batch.spool_id, batch.sequence);
            batch = of_all(start + second * 1000, second);
            batch.daemons = vec![osd(start)];
            (batch.spool_id, batch.first_sequence, batch.sequence) = (spool_id, sequence, sequence);
            first.publish(batch).await.unwrap();
        }
        before.replace(known(&mesh));
        let mut claim = hello("rogue");
        claim.host = Some(wire::Host {
            name: "renamed".to_owned(),
            kernel: "0.1".to_owned(),
            cpus: 4096,
            ..hello("first").host.unwrap()
        });
        let mut rogue = FakeAgent::attach(mesh.address(), claim).await.unwrap();
        assert!(!rogue.welcome.sampling.clone().unwrap().host_wide);
        // Past, present and slightly future; a daemon renamed, ended and made a parent.
        for (offset, cpu_us) in [(-1, 1 << 40), (2_500, 1 << 41), (60_000_000, 1 << 42)] {
            let next = rogue.next_batch();
            let mut batch = of_all(start + offset, cpu_us);
            (batch.spool_id, batch.first_sequence) = (next.spool_id, next.first_sequence);
            batch.sequence = next.sequence;
            batch.disk_samples[0].stacked = true;
            let lie = wire::DaemonSeen {
                name: "nothing".to_owned(),
                ended: true,
                is_parent: true,
                ..osd(start + offset)
            };
            let new = wire::DaemonSeen {
                pid: 78,
                ..osd(start + offset)
            };
            batch.daemons = vec![lie, new];
            rogue.publish(batch).await.unwrap();
        }
        // The first agent continues.
        let mut batch = first.next_batch();
        batch.daemon_samples = Some(samples(start + 9_000, 9));
        first.publish(batch).await.unwrap();
    });
    let mut expected = before.take();
    expected.push(format!("sample {} 9", expected_sample(&mesh)));
    expected.sort();
    assert_eq!(known(&mesh), expected);
    let event = "SELECT count(*) FROM events AS e JOIN agents AS a ON a.id = e.agent_id
        WHERE e.kind = 'host-of-another' AND a.name = 'rogue'";
    until_true("it is an event", LIMIT, || mesh.db().one::<i64>(event) == 1);
}

/// The time of the first agent's last sample.
fn expected_sample(mesh: &Mesh) -> i64 {
    mesh.db()
        .one("SELECT at_us FROM daemon_samples WHERE cpu_user_us = 9")
}
