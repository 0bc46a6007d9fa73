//! The calls that are served, and who may make them.

use super::control::ControlService;
use super::gate::{Gate, Needed};
use super::mesh::MeshService;
use super::trust::TrustService;
use axum::middleware;
use benchmesh_proto::MAX_MESSAGE_BYTES;
use benchmesh_proto::v1::control_server::ControlServer;
use benchmesh_proto::v1::mesh_server::MeshServer;
use benchmesh_proto::v1::trust_server::TrustServer;
use std::sync::Arc;
use tonic::service::Routes;
use tonic::service::interceptor::InterceptedService;
use tonic::{Request, Status};

/// Limit of a trust message: a request for a certificate or a token is small.
const MAX_TRUST_BYTES: usize = 64 << 10;

/// Routes for all calls. A client without a certificate gets the same answer to every call but one, whether the call
/// exists or not.
pub(super) fn routes(
    mesh: MeshService,
    control: ControlService,
    trust: TrustService,
    gate: &Arc<Gate>,
) -> Routes {
    let services = Routes::new(InterceptedService::new(
        MeshServer::new(mesh)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
        needs(gate, Needed::Agent),
    ))
    .add_service(InterceptedService::new(
        ControlServer::new(control)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES),
        needs(gate, Needed::Operator),
    ))
    .add_service(TrustServer::new(trust).max_decoding_message_size(MAX_TRUST_BYTES));
    let gate = Arc::clone(gate);
    let strangers = middleware::from_fn(
        move |request: axum::extract::Request, next: middleware::Next| {
            let refusal = gate.refuse_stranger(&request);
            async move {
                match refusal {
                    Some(status) => status.into_http(),
                    None => next.run(request).await,
                }
            }
        },
    );
    // As the fallback of a router without routes: a router's own answer differs slightly between existing and missing
    // routes.
    let services = axum::Router::new().fallback_service(services.into_axum_router());
    Routes::from(services.layer(strangers))
}

/// Admits calls with a certificate of the right role.
fn needs(
    gate: &Arc<Gate>,
    needed: Needed,
) -> impl Fn(Request<()>) -> Result<Request<()>, Status> + Clone + use<> {
    let gate = Arc::clone(gate);
    move |request| gate.check(&request, needed).map(|()| request)
}
