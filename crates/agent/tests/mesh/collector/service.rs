//! The service of the collector in memory.

use super::*;

pub(super) struct Service(pub(super) Arc<Shared>);

#[tonic::async_trait]
impl Mesh for Service {
    type AttachStream = Down<v1::CollectorMessage>;
    type PublishStream = Down<v1::Ack>;

    async fn attach(
        &self,
        request: Request<Streaming<v1::AgentMessage>>,
    ) -> Result<Response<Self::AttachStream>, Status> {
        if let Some((code, message)) = self.0.with(|state| state.faults.refuse) {
            return Err(Status::new(code, message));
        }
        let mut heard = request.into_inner();
        let first = heard.message().await?.and_then(|message| message.body);
        let Some(v1::agent_message::Body::Hello(hello)) = first else {
            return Err(Status::invalid_argument("it does not begin with a hello"));
        };
        let (down, out) = mpsc::channel(256);
        self.0.with(|state| {
            let welcome = v1::collector_message::Body::Welcome(welcome(state, hello));
            down.try_send(Ok(message(welcome))).unwrap();
            state.command = Some(down.clone());
        });
        let shared = Arc::clone(&self.0);
        tokio::spawn(async move {
            while let Ok(Some(message)) = heard.message().await {
                on_message(&shared, message, &down).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(out))))
    }

    async fn publish(
        &self,
        request: Request<Streaming<v1::Batch>>,
    ) -> Result<Response<Self::PublishStream>, Status> {
        let token = request.metadata().get(benchmesh_proto::SESSION_KEY);
        let token = token
            .and_then(|token| token.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let known = self
            .0
            .with(|state| format!("session-{}", state.hellos.len()));
        if token != known {
            return Err(Status::unauthenticated(format!(
                "token {token:?} is not {known:?}"
            )));
        }
        let shared = Arc::clone(&self.0);
        let acks = request.into_inner().map(move |batch| take(&shared, batch?));
        let acks = acks.filter_map(|ack| match ack {
            Ok(None) => None,
            Ok(Some(ack)) => Some(Ok(ack)),
            Err(status) => Some(Err(status)),
        });
        Ok(Response::new(Box::pin(acks)))
    }
}

fn message(body: v1::collector_message::Body) -> v1::CollectorMessage {
    v1::CollectorMessage { body: Some(body) }
}

fn welcome(state: &mut State, hello: v1::Hello) -> v1::Welcome {
    let spools = hello.spool_ids.iter().map(|id| v1::SpoolPosition {
        spool_id: id.clone(),
        last_sequence: state.positions.get(id).copied().unwrap_or(0),
    });
    let spools = spools.collect();
    state.hellos.push(hello);
    v1::Welcome {
        wire_version: state.wire_version,
        collector_version: "0.0.0".to_owned(),
        mesh_uid: state.mesh_uid.clone(),
        agent_id: 1,
        session: format!("session-{}", state.hellos.len()),
        spools,
        sampling: Some(state.sampling.clone()),
    }
}

async fn on_message(
    shared: &Shared,
    heard: v1::AgentMessage,
    down: &mpsc::Sender<Result<v1::CollectorMessage, Status>>,
) {
    use v1::agent_message::Body;
    match heard.body {
        Some(Body::ClockProbe(probe)) => {
            let ahead = shared.with(|state| state.faults.clock_ahead_ns);
            let now = i64::try_from(now_ns()).unwrap() + ahead;
            let reply = v1::ClockReply {
                agent_sent_ns: probe.agent_sent_ns,
                mesh_received_ns: now,
                mesh_sent_ns: now,
            };
            let _ = down
                .send(Ok(message(v1::collector_message::Body::ClockReply(reply))))
                .await;
            shared.with(|state| state.probes += 1);
        }
        Some(Body::Reply(reply)) => shared.with(|state| {
            if let Some(first) = state.replies.insert(reply.id, reply) {
                state.violations.push(format!("two replies: {first:?}"));
            }
        }),
        Some(Body::SpoolBlocked(_)) => {}
        Some(Body::Progress(progress)) => shared.with(|state| state.progress.push(progress)),
        Some(Body::Hello(_)) | None => {
            shared.with(|state| {
                state
                    .violations
                    .push("an empty message or a second hello".to_owned())
            });
        }
    }
}

/// Stores a batch by the contract: the next one is accepted, a known one is acked again, a gap is an error.
fn take(shared: &Shared, batch: v1::Batch) -> Result<Option<v1::Ack>, Status> {
    shared.with(|state| {
        match &mut state.faults.break_after {
            Some(0) => {
                state.faults.break_after = None;
                return Err(Status::unavailable("broken on purpose"));
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let (spool, sequence) = (batch.spool_id.clone(), batch.sequence);
        let held = state
            .seen
            .entry((spool.clone(), sequence))
            .or_insert_with(|| batch.clone());
        if *held != batch {
            state
                .violations
                .push(format!("batch {sequence} of {spool} has changed"));
        }
        let refused = state.faults.refuse_task;
        if refused.is_some()
            && batch
                .op_intervals
                .iter()
                .any(|row| Some(row.task_id) == refused)
        {
            // A batch that was never stored may be replaced by a record of its absence.
            state.seen.remove(&(spool, sequence));
            return Err(Status::invalid_argument("task is no task of this agent"));
        }
        let last = state.positions.get(&spool).copied().unwrap_or(0);
        if sequence <= last {
            state.repeats += 1;
        } else if batch.first_sequence == last + 1 {
            state.positions.insert(spool.clone(), sequence);
            state.batches.push(batch);
        } else {
            state
                .violations
                .push(format!("{} of {spool} after {last}", batch.first_sequence));
            return Err(Status::failed_precondition("a hole"));
        }
        Ok((!state.faults.withhold_acks).then_some(v1::Ack {
            spool_id: spool,
            sequence,
        }))
    })
}
