//! The double's gRPC side: the harness's contract over its state.

use std::pin::Pin;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mooring_wire::code::{Code, status};
use mooring_wire::harness as wire;
use mooring_wire::harness::harness_server::Harness;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::double::{Double, Input, Thread, larger, now_ms};

pub struct Service(pub Arc<Double>);

type Answer<T> = Result<Response<T>, Status>;
type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl Service {
    fn here(&self) -> Result<(), Status> {
        if self.0.look(|state| state.away) {
            return Err(Status::unavailable("nobody listens"));
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl Harness for Service {
    type WatchStream = Frames<wire::WatchFrame>;
    type OutboxStream = Frames<wire::OutboxRow>;
    type ExportStream = Frames<wire::ExportChunk>;

    async fn submit(&self, request: Request<wire::SubmitRequest>) -> Answer<wire::SubmitResponse> {
        self.here()?;
        if self.0.act(|state| {
            state.submits += usize::from(state.takes_nothing);
            state.takes_nothing
        }) {
            return Err(Status::unavailable("nothing is taken now"));
        }
        let request = request.into_inner();
        self.0.act(|state| {
            state.submits += 1;
            let author = request.author.unwrap_or_default();
            if state.strangers.contains(&author.discord_user_id) {
                return Err(status(
                    Code::Forbidden,
                    "you are no member of this workspace",
                ));
            }
            let thread = request.thread.unwrap_or_default();
            if let Some(known) = state.input(&request.request_id) {
                return Ok(Response::new(wire::SubmitResponse {
                    conversation: known.conversation,
                    submission: known.id,
                    state: known.state.into(),
                    repeated: true,
                    note: String::new(),
                }));
            }
            if request.edit {
                // Nothing is queued where every input is answered at once.
                return Ok(Response::new(wire::SubmitResponse {
                    state: "unchanged".into(),
                    ..wire::SubmitResponse::default()
                }));
            }
            let row = state
                .threads
                .entry(thread.thread_id.clone())
                .or_insert_with(|| Thread {
                    channel: thread.channel_id.clone(),
                    cursor: thread.previous_message_id.clone(),
                    ..Thread::default()
                });
            if row.conversation == 0 {
                state.conversations += 1;
                row.conversation = state.conversations;
            }
            let newest = thread
                .also_message_ids
                .iter()
                .chain([&thread.message_id])
                .max()
                .unwrap();
            if !thread.previous_message_id.is_empty()
                && row.cursor == thread.previous_message_id
                && larger(newest, &row.cursor)
            {
                row.cursor = newest.clone();
            }
            let conversation = row.conversation;
            let busy = state.running.contains_key(&conversation);
            if busy && request.when_busy == wire::WhenBusy::Reject as i32 {
                return Err(status(Code::Busy, "a run is going"));
            }
            let id = state.inputs.len() as i64 + 1;
            let mut text = String::new();
            let mut images = 0;
            for part in request.content {
                match part.part {
                    Some(wire::part::Part::Text(more)) => text.push_str(&more),
                    Some(wire::part::Part::Image(_)) => images += 1,
                    None => {}
                }
            }
            let request_id = request.request_id;
            state.inputs.push(Input {
                id,
                request_id,
                conversation,
                text,
                images,
                author,
                thread,
                state: "queued",
            });
            if !busy {
                state.begin(id);
            }
            if state.cut_submits > 0 {
                state.cut_submits -= 1;
                return Err(Status::unavailable("cut after the commit"));
            }
            Ok(Response::new(wire::SubmitResponse {
                conversation,
                submission: id,
                state: "queued".into(),
                repeated: false,
                note: String::new(),
            }))
        })
    }

    async fn view(&self, request: Request<wire::ViewRequest>) -> Answer<wire::ConversationView> {
        self.here()?;
        let conversation = request.into_inner().conversation;
        Ok(Response::new(self.0.look(|state| {
            wire::ConversationView {
                conversation,
                run: Some(wire::Run {
                    state: if state.running.contains_key(&conversation) {
                        "requesting"
                    } else {
                        "idle"
                    }
                    .into(),
                    ..wire::Run::default()
                }),
                inbox: state
                    .inputs
                    .iter()
                    .filter(|input| input.conversation == conversation && input.state == "queued")
                    .map(|input| wire::Submission {
                        id: input.id,
                        request_id: input.request_id.clone(),
                        state: "queued".into(),
                        text: input.text.clone(),
                        thread: Some(input.thread.clone()),
                        ..wire::Submission::default()
                    })
                    .collect(),
                ..wire::ConversationView::default()
            }
        })))
    }

    async fn conversations(
        &self,
        _: Request<wire::ConversationsRequest>,
    ) -> Answer<wire::ConversationsResponse> {
        self.here()?;
        Ok(Response::new(self.0.look(|state| {
            wire::ConversationsResponse {
                conversations: state
                    .threads
                    .iter()
                    .filter(|(_, thread)| thread.conversation != 0)
                    .map(|(id, thread)| wire::conversations_response::Conversation {
                        id: thread.conversation,
                        thread_id: id.clone(),
                        state: if state.running.contains_key(&thread.conversation) {
                            "requesting"
                        } else {
                            "idle"
                        }
                        .into(),
                        ..Default::default()
                    })
                    .collect(),
            }
        })))
    }

    async fn approvals(
        &self,
        _: Request<wire::ApprovalsRequest>,
    ) -> Answer<wire::ApprovalsResponse> {
        self.here()?;
        let approvals = self
            .0
            .look(|state| state.approvals.values().cloned().collect());
        Ok(Response::new(wire::ApprovalsResponse { approvals }))
    }

    async fn decide(&self, request: Request<wire::DecideRequest>) -> Answer<wire::DecideResponse> {
        self.here()?;
        let delay = self.0.look(|state| state.decide_delay);
        tokio::time::sleep(delay).await;
        let request = request.into_inner();
        self.0.act(|state| {
            let author = request.author.clone().unwrap_or_default();
            if state.strangers.contains(&author.discord_user_id) {
                return Err(status(Code::Forbidden, "approving needs the role Approver"));
            }
            let found = state.approvals.get(&request.id).cloned();
            let Some(found) = found else {
                return Err(status(Code::NotFound, "there is no such approval"));
            };
            let first = found.state == "pending";
            if first {
                state.settle(
                    &request.id,
                    request.approve,
                    &author.display_name,
                    &request.via,
                );
            }
            state.decisions.push(request.clone());
            let approval = state.approvals.get(&request.id).cloned();
            Ok(Response::new(wire::DecideResponse { first, approval }))
        })
    }

    async fn abort(&self, request: Request<wire::AbortRequest>) -> Answer<wire::AbortResponse> {
        self.here()?;
        let conversation = request.into_inner().conversation;
        let was_running = self.0.act(|state| {
            let running = state.running.get(&conversation).copied();
            if let Some(input) = running {
                state.end(input, Err("aborted"), 5);
            }
            running.is_some()
        });
        Ok(Response::new(wire::AbortResponse {
            was_running,
            withdrawn: vec![],
        }))
    }

    async fn withdraw(
        &self,
        request: Request<wire::WithdrawRequest>,
    ) -> Answer<wire::WithdrawResponse> {
        self.here()?;
        let wanted = request.into_inner().submission;
        self.0.act(|state| {
            let Some(input) = state.inputs.iter_mut().find(|input| input.id == wanted) else {
                return Err(status(Code::NotFound, "there is no such submission"));
            };
            if input.state == "queued" {
                input.state = "unanswered";
            }
            let submission = wire::Submission {
                id: wanted,
                state: input.state.into(),
                ..Default::default()
            };
            Ok(Response::new(wire::WithdrawResponse {
                submission: Some(submission),
            }))
        })
    }

    async fn usage(&self, _: Request<wire::UsageRequest>) -> Answer<wire::UsageResponse> {
        self.here()?;
        let row = wire::usage_response::Row {
            day: "2026-01-02".into(),
            model: "main".into(),
            requests: 3,
            input_tokens: 1_000,
            output_tokens: 50,
            cost_micros: 1_230_000,
            cost_known: true,
            ..Default::default()
        };
        Ok(Response::new(wire::UsageResponse { rows: vec![row] }))
    }

    async fn status(&self, _: Request<wire::StatusRequest>) -> Answer<wire::StatusResponse> {
        self.here()?;
        let running = self.0.look(|state| state.running.len() as u32);
        Ok(Response::new(wire::StatusResponse {
            running,
            ..Default::default()
        }))
    }

    async fn threads(&self, _: Request<wire::ThreadsRequest>) -> Answer<wire::ThreadsResponse> {
        self.here()?;
        Ok(Response::new(self.0.look(|state| {
            wire::ThreadsResponse {
                rows: state
                    .threads
                    .iter()
                    .map(|(id, thread)| wire::threads_response::Row {
                        thread_id: id.clone(),
                        channel_id: thread.channel.clone(),
                        conversation: thread.conversation,
                        cursor: thread.cursor.clone(),
                        deleted: thread.deleted,
                        queued: state.inputs.iter().any(|input| {
                            input.conversation == thread.conversation && input.state == "queued"
                        }),
                        ..Default::default()
                    })
                    .collect(),
            }
        })))
    }

    async fn advance(
        &self,
        request: Request<wire::AdvanceRequest>,
    ) -> Answer<wire::AdvanceResponse> {
        self.here()?;
        let request = request.into_inner();
        Ok(Response::new(self.0.act(|state| {
            if request.deleted {
                if let Some(thread) = state.threads.get_mut(&request.thread_id) {
                    thread.deleted = true;
                }
            } else if request.from.is_empty() {
                state
                    .threads
                    .entry(request.thread_id.clone())
                    .or_insert_with(|| Thread {
                        channel: request.channel_id.clone(),
                        cursor: request.to.clone(),
                        ..Thread::default()
                    });
            } else if let Some(thread) = state.threads.get_mut(&request.thread_id)
                && thread.cursor == request.from
                && larger(&request.to, &thread.cursor)
            {
                thread.cursor = request.to.clone();
            }
            let cursor = state
                .threads
                .get(&request.thread_id)
                .map(|thread| thread.cursor.clone());
            wire::AdvanceResponse {
                cursor: cursor.unwrap_or_default(),
            }
        })))
    }

    async fn outbox(&self, _: Request<wire::OutboxRequest>) -> Answer<Self::OutboxStream> {
        self.here()?;
        let double = self.0.clone();
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        tokio::spawn(async move {
            let mut changes = double.changed.subscribe();
            let epoch = double.look(|state| state.epoch);
            let mut given: Vec<String> = Vec::new();
            loop {
                changes.borrow_and_update();
                if double.look(|state| state.epoch != epoch || state.away) {
                    return;
                }
                // Committed as offered before it is given.
                let due = {
                    let mut state = double.state.lock().unwrap_or_else(PoisonError::into_inner);
                    given.retain(|key| {
                        state
                            .rows
                            .iter()
                            .any(|row| row.key == *key && row.next_at <= now_ms())
                    });
                    state.due(&given)
                };
                match due {
                    Some(row) => {
                        given.push(row.key.clone());
                        if sender.send(Ok(row)).await.is_err() {
                            return;
                        }
                    }
                    None => {
                        let _ = tokio::time::timeout(Duration::from_millis(100), changes.changed())
                            .await;
                        if sender.is_closed() {
                            return;
                        }
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn ack(&self, request: Request<wire::AckRequest>) -> Answer<wire::AckResponse> {
        self.here()?;
        let request = request.into_inner();
        self.0.act(|state| {
            let row = state
                .rows
                .iter_mut()
                .find(|row| row.key == request.key)
                .unwrap();
            if row.closed.is_some() {
                return;
            }
            if !request.undeliverable.is_empty() {
                row.closed = Some(request.undeliverable.clone());
            } else if !request.retry.is_empty() {
                row.next_at = now_ms() + 300;
            } else {
                row.message = Some(request.message_id.clone());
                row.closed = Some("delivered".into());
            }
        });
        Ok(Response::new(wire::AckResponse {}))
    }

    async fn watch(&self, _: Request<wire::WatchRequest>) -> Answer<Self::WatchStream> {
        Err(Status::unimplemented("watch"))
    }

    async fn entries(&self, _: Request<wire::EntriesRequest>) -> Answer<wire::EntriesResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn grants(&self, _: Request<wire::GrantsRequest>) -> Answer<wire::GrantsResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn revoke_grant(
        &self,
        _: Request<wire::RevokeGrantRequest>,
    ) -> Answer<wire::RevokeGrantResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn audit(&self, _: Request<wire::AuditRequest>) -> Answer<wire::AuditResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn egress(&self, _: Request<wire::EgressRequest>) -> Answer<wire::EgressResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn configure(
        &self,
        _: Request<wire::ConfigureRequest>,
    ) -> Answer<wire::ConfigureResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn reset(&self, _: Request<wire::ResetRequest>) -> Answer<wire::ResetResponse> {
        Err(Status::unimplemented("the double has no commands"))
    }

    async fn fork(&self, _: Request<wire::ForkRequest>) -> Answer<wire::ForkResponse> {
        Err(Status::unimplemented("the double has no commands"))
    }

    async fn compact(&self, _: Request<wire::CompactRequest>) -> Answer<wire::CompactResponse> {
        Err(Status::unimplemented("the double has no commands"))
    }

    async fn diff(&self, _: Request<wire::DiffRequest>) -> Answer<wire::DiffResponse> {
        Err(Status::unimplemented("the double has no commands"))
    }

    async fn answer(&self, _: Request<wire::AnswerRequest>) -> Answer<wire::AnswerResponse> {
        Err(Status::unimplemented("the double asks nothing"))
    }

    async fn model(&self, _: Request<wire::ModelRequest>) -> Answer<wire::ModelResponse> {
        Err(Status::unimplemented("the double has no commands"))
    }

    async fn explain(&self, _: Request<wire::ExplainRequest>) -> Answer<wire::ExplainResponse> {
        Err(Status::unimplemented("the double has no commands"))
    }

    async fn role(&self, request: Request<wire::RoleRequest>) -> Answer<wire::RoleResponse> {
        self.here()?;
        let author = request.into_inner().author.unwrap_or_default();
        if self
            .0
            .look(|state| state.strangers.contains(&author.discord_user_id))
        {
            return Err(status(
                Code::Forbidden,
                "you are no member of this workspace",
            ));
        }
        Ok(Response::new(wire::RoleResponse {
            role: "Approver".into(),
        }))
    }

    async fn task_graph(
        &self,
        _: Request<wire::TaskGraphRequest>,
    ) -> Answer<wire::TaskGraphResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn upload(
        &self,
        _: Request<Streaming<wire::UploadRequest>>,
    ) -> Answer<wire::UploadResponse> {
        Err(Status::unimplemented("the double has no sandbox"))
    }

    async fn resume(&self, _: Request<wire::ResumeRequest>) -> Answer<wire::ResumeResponse> {
        Err(Status::unimplemented("the double has no commands"))
    }

    async fn worktrees(
        &self,
        _: Request<wire::WorktreesRequest>,
    ) -> Answer<wire::WorktreesResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn delete(&self, _: Request<wire::DeleteRequest>) -> Answer<wire::DeleteResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn export(&self, _: Request<wire::ExportRequest>) -> Answer<Self::ExportStream> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn import(
        &self,
        _: Request<Streaming<wire::ImportRequest>>,
    ) -> Answer<wire::ImportResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }

    async fn stop(&self, _: Request<wire::StopRequest>) -> Answer<wire::StopResponse> {
        Err(Status::unimplemented("the bot never asks for it"))
    }
}
