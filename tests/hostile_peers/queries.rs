//! An operator that opens queries without end leaves half of their places to others.

use super::LIMIT;
use crate::support::fake_agent::{converse, dial_as, joined_as, owner};
use crate::support::mesh::Mesh;
use benchmesh_proto::v1::{QueryReply, QueryRequest, control_client::ControlClient};
use benchmesh_trust::{Credentials, Role};
use std::net::SocketAddr;
use tonic::{Code, Status, Streaming};

async fn begin_query(
    address: SocketAddr,
    own: &Credentials,
) -> Result<Streaming<QueryReply>, Status> {
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let request = QueryRequest {
        sql: sql.to_owned(),
    };
    let mut control = ControlClient::new(dial_as(address, own).await.unwrap());
    control
        .query(request)
        .await
        .map(|answer| answer.into_inner())
}

#[test]
fn one_operator_has_half_of_the_places_for_queries() {
    let mesh = Mesh::start();
    let address = mesh.address();
    let token = mesh.command(&["collector", "token", "--role", "operator"]);
    assert_eq!(token.code, 0, "{}", token.all());
    let token = token.out.trim().parse().unwrap();
    converse(LIMIT, async {
        let greedy = joined_as(address, Role::Operator, "greedy", &token, "").await;
        let greedy = greedy.unwrap();
        let mut queries = Vec::new();
        // Each on a connection of its own.
        for _ in 0..4 {
            queries.push(begin_query(address, &greedy).await.unwrap());
        }
        let refused = begin_query(address, &greedy).await.unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted, "{refused:?}");
        assert!(refused.message().contains("one operator"), "{refused:?}");
        let other = owner(address);
        for _ in 0..4 {
            queries.push(begin_query(address, &other).await.unwrap());
        }
    });
}
