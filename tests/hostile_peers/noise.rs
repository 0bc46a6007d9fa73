//! Data that are not messages: noise, other protocols, bytes that do not parse.

use super::{LIMIT, while_a_run_goes_on};
use crate::support::fake_agent::{converse, dial};
use benchmesh_proto::v1 as wire;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio_stream::StreamExt;
use tonic::client::Grpc;
use tonic_prost::ProstCodec;

#[test]
fn noise_and_other_protocols_on_the_port() {
    let mesh = while_a_run_goes_on(|mesh| {
        for noise in noises() {
            send_noise(mesh.address(), &noise);
        }
        // Silent connections, all open at the same time.
        let silent: Vec<TcpStream> = (0..200)
            .map(|_| TcpStream::connect(mesh.address()).unwrap())
            .collect();
        mesh.until_attached(&["honest"]);
        drop(silent);
    });
    let agents: Vec<String> = mesh.db().column("SELECT name FROM agents");
    assert_eq!(agents, ["honest"]);
    mesh.assert_no_complaints();
}

fn noises() -> Vec<Vec<u8>> {
    let mut state: u64 = 88_172_645_463_325_252;
    let mut random = |length: usize| -> Vec<u8> {
        let mut bytes = Vec::with_capacity(length);
        for _ in 0..length {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes.push((state >> 32) as u8);
        }
        bytes
    };
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let mut noises = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"POST /benchmesh.v1.Mesh/Attach HTTP/1.1\r\nContent-Length: 99999999\r\n\r\n".to_vec(),
        vec![
            0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
        ],
        [preface.clone(), vec![0xff; 64]].concat(),
        // A frame that claims 16 MiB.
        [preface.clone(), vec![0xff, 0xff, 0xff, 0x00, 0, 0, 0, 0, 1]].concat(),
        // Headers that are not valid HPACK.
        [
            preface.clone(),
            vec![
                0, 0, 4, 4, 0, 0, 0, 0, 0, 0, 0, 4, 1, 4, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff,
            ],
        ]
        .concat(),
    ];
    for length in [1, 7, 100, 5000, 200_000] {
        noises.push(random(length));
        noises.push([preface.clone(), random(length)].concat());
    }
    noises
}

/// Sends the data and reads until the collector answers or closes; both are correct, and must not take long.
fn send_noise(address: SocketAddr, noise: &[u8]) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    stream
        .set_write_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let _ = stream.write_all(noise);
    let _ = stream.read(&mut [0; 4096]);
}

#[test]
fn malformed_protobuf_on_each_stream() {
    let mesh = while_a_run_goes_on(|mesh| {
        for bytes in [
            vec![0xff; 40],
            vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
            vec![0; 9 << 20],
        ] {
            for path in ["/benchmesh.v1.Mesh/Attach", "/benchmesh.v1.Mesh/Publish"] {
                let status = converse(LIMIT, send_bytes(mesh.address(), path, bytes.clone()));
                let code = status.code();
                assert!(
                    !matches!(code, tonic::Code::Ok | tonic::Code::DeadlineExceeded),
                    "{path}: {status:?}"
                );
            }
        }
    });
    assert_eq!(mesh.db().one::<i64>("SELECT count(*) FROM agents"), 1);
}

/// Sends a message with these bytes as its first field, whatever type the collector expects there.
async fn send_bytes(address: SocketAddr, path: &'static str, bytes: Vec<u8>) -> tonic::Status {
    let mut client = Grpc::new(dial(address, "noise").await);
    client.ready().await.unwrap();
    // A bytes value is field 1 of its message: where the collector expects Hello, or a spool id in UTF-8.
    let codec = ProstCodec::<Vec<u8>, wire::Ack>::default();
    let messages = tokio_stream::once(bytes).chain(tokio_stream::pending());
    let request = tonic::Request::new(messages);
    let answer = client
        .streaming(
            request,
            tonic::codegen::http::uri::PathAndQuery::from_static(path),
            codec,
        )
        .await;
    match answer {
        Err(status) => status,
        Ok(answer) => match answer.into_inner().message().await {
            Err(status) => status,
            Ok(message) => panic!("{path} answered {message:?}"),
        },
    }
}
