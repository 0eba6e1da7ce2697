//! The gRPC surface: who calls, what they may, and the engine's answer.

mod convert;
mod decide;
mod diff;
mod explain;
mod fork;
mod graph;
mod look;
mod model;
mod resume;
mod state;
mod talk;
mod threads;
mod transfer;
mod upload;
mod watch;
mod work;
mod worktrees;

use std::{pin::Pin, sync::Arc};

use mooring_crds::Role;
use mooring_durable::{
    Engine,
    clock::Clock,
    error::SessionError,
    extension::Extensions,
    id::{ConversationId, Millis},
    view::ConversationView,
};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tokio::sync::{Mutex, watch as signal};
use tokio_stream::Stream;
use tonic::{Request, Response, Status, Streaming, transport::server::UdsConnectInfo};

use crate::{
    books::Books,
    cluster::Caller,
    gate::PolicyGate,
    mcp::Servers,
    members::{ATTACHED, Actor, discord_role},
    metrics::Metrics,
    model::{Catalog, KeyStore},
    sandbox::Link,
    tools::Hands,
    workspace::Source,
};
use mooring_durable::submission::Requester;

/// One harness, as its callers see it.
pub struct Service {
    /// The engine.
    pub engine: Engine,
    /// The Workspace in use.
    pub source: Arc<Source>,
    /// Models and prices.
    pub catalog: Arc<Catalog>,
    /// Keys, in memory only.
    pub keys: Arc<KeyStore>,
    /// The sandbox.
    pub link: Arc<Link>,
    /// What tools act with.
    pub hands: Arc<Hands>,
    /// Decides calls.
    pub gate: Arc<PolicyGate>,
    /// Rows beside the engine's.
    pub books: Arc<Books>,
    /// Servers whose tools are offered.
    pub servers: Arc<Servers>,
    /// What conversations may have.
    pub extensions: Arc<Extensions>,
    /// Figures for operators.
    pub metrics: Arc<Metrics>,
    /// The engine's clock.
    pub clock: Arc<dyn Clock>,
    /// The project folder.
    pub project: std::path::PathBuf,
    /// The database file.
    pub database: std::path::PathBuf,
    /// When this process started.
    pub started: Millis,
    /// Set to end the process; `true` ends the sandbox daemon too.
    pub stop: signal::Sender<Option<bool>>,
    /// Held while a thread's conversation is found or made.
    pub making: Mutex<()>,
}

/// The storage answered in a way that callers can only wait out.
fn storage(error: &sqlx::Error) -> Status {
    status(
        Code::Corrupt,
        format!("the database does not answer: {error}"),
    )
}

/// An error of the engine, with its code.
fn session(error: SessionError) -> Status {
    let code = match &error {
        SessionError::StorageFull => Code::StorageFull,
        SessionError::Constraint(_) => Code::Invalid,
        SessionError::NoConversation(_) | SessionError::NotVisible { .. } => Code::NotFound,
        SessionError::Corrupt(_) => Code::Corrupt,
        SessionError::Working(_) => Code::Busy,
        SessionError::SessionFailed(_) | SessionError::Superseded | SessionError::Closed => {
            Code::Restarting
        }
    };
    let text = match &error {
        SessionError::StorageFull => {
            "no space left on the disk of the database: nothing of this was kept; make room \
             and send it again (`mooring status` names the file)"
                .to_owned()
        }
        error => error.to_string(),
    };
    status(code, text)
}

impl Service {
    /// Who calls: the person at the socket, the Discord user that the bot
    /// names, or somebody at a terminal attached to the cluster.
    fn actor<T>(&self, request: &Request<T>, author: Option<&wire::Author>) -> Actor {
        let caller = request.extensions().get::<Caller>().copied();
        if caller == Some(Caller::Terminal) {
            return Actor {
                requester: Requester::Local {
                    name: ATTACHED.into(),
                },
                role: Some(Role::User),
                also: Vec::new(),
            };
        }
        if let Some(author) = author.filter(|author| !author.discord_user_id.is_empty()) {
            let members = &self.source.current().spec.members;
            return Actor {
                role: discord_role(members, &author.discord_user_id, &author.discord_role_ids),
                requester: Requester::Discord {
                    id: author.discord_user_id.clone(),
                    name: author.display_name.clone(),
                },
                also: Vec::new(),
            };
        }
        if caller.is_some() {
            // A program of the installation, on nobody's behalf.
            return Actor {
                requester: Requester::Local {
                    name: "nobody".into(),
                },
                role: None,
                also: Vec::new(),
            };
        }
        let peer = request
            .extensions()
            .get::<UdsConnectInfo>()
            .and_then(|info| info.peer_cred);
        Actor {
            requester: talk::local_person(peer.map(|cred| cred.uid())),
            // The socket lies in a folder of this user's alone.
            role: Some(Role::Maintainer),
            also: Vec::new(),
        }
    }

    async fn view_of(
        &self,
        conversation: ConversationId,
        entries: usize,
    ) -> Result<ConversationView, Status> {
        self.engine
            .view(conversation, entries, None)
            .await
            .map_err(session)?
            .ok_or_else(|| {
                status(
                    Code::NotFound,
                    format!("there is no conversation {conversation}"),
                )
            })
    }

    fn convert(&self) -> convert::Convert<'_> {
        let grade = self
            .link
            .status()
            .map(|status| status.grade.clone())
            .unwrap_or_default();
        convert::Convert {
            books: &self.books,
            grade,
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;
type Frames<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl wire::harness_server::Harness for Service {
    async fn submit(&self, request: Request<wire::SubmitRequest>) -> Answer<wire::SubmitResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.submit(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    type WatchStream = Frames<wire::WatchFrame>;

    async fn watch(&self, request: Request<wire::WatchRequest>) -> Answer<Self::WatchStream> {
        self.watch(request.into_inner()).await.map(Response::new)
    }

    async fn view(&self, request: Request<wire::ViewRequest>) -> Answer<wire::ConversationView> {
        self.view(request.into_inner()).await.map(Response::new)
    }

    async fn conversations(
        &self,
        request: Request<wire::ConversationsRequest>,
    ) -> Answer<wire::ConversationsResponse> {
        self.conversations(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn entries(
        &self,
        request: Request<wire::EntriesRequest>,
    ) -> Answer<wire::EntriesResponse> {
        self.entries(request.into_inner()).await.map(Response::new)
    }

    async fn approvals(
        &self,
        request: Request<wire::ApprovalsRequest>,
    ) -> Answer<wire::ApprovalsResponse> {
        self.approvals(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn decide(&self, request: Request<wire::DecideRequest>) -> Answer<wire::DecideResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        let at = self.clock.now();
        self.decide(actor, request.into_inner(), at)
            .await
            .map(Response::new)
    }

    async fn grants(&self, request: Request<wire::GrantsRequest>) -> Answer<wire::GrantsResponse> {
        self.grants(request.into_inner()).await.map(Response::new)
    }

    async fn revoke_grant(
        &self,
        request: Request<wire::RevokeGrantRequest>,
    ) -> Answer<wire::RevokeGrantResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.revoke_grant(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn audit(&self, request: Request<wire::AuditRequest>) -> Answer<wire::AuditResponse> {
        self.audit(request.into_inner()).await.map(Response::new)
    }

    async fn egress(&self, request: Request<wire::EgressRequest>) -> Answer<wire::EgressResponse> {
        self.egress(request.into_inner()).await.map(Response::new)
    }

    async fn answer(&self, request: Request<wire::AnswerRequest>) -> Answer<wire::AnswerResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.answer(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn task_graph(
        &self,
        request: Request<wire::TaskGraphRequest>,
    ) -> Answer<wire::TaskGraphResponse> {
        self.task_graph(request.into_inner())
            .await
            .map(Response::new)
    }

    async fn abort(&self, request: Request<wire::AbortRequest>) -> Answer<wire::AbortResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.abort(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn withdraw(
        &self,
        request: Request<wire::WithdrawRequest>,
    ) -> Answer<wire::WithdrawResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        let terminal = request.extensions().get() == Some(&Caller::Terminal);
        let mut request = request.into_inner();
        if terminal {
            // It hears nothing from Discord.
            request.deleted_message.clear();
        }
        self.withdraw(actor, request).await.map(Response::new)
    }

    async fn reset(&self, request: Request<wire::ResetRequest>) -> Answer<wire::ResetResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.reset(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn diff(&self, request: Request<wire::DiffRequest>) -> Answer<wire::DiffResponse> {
        self.diff(request.into_inner()).await.map(Response::new)
    }

    async fn worktrees(
        &self,
        request: Request<wire::WorktreesRequest>,
    ) -> Answer<wire::WorktreesResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.worktrees(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn compact(
        &self,
        request: Request<wire::CompactRequest>,
    ) -> Answer<wire::CompactResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.compact(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn fork(&self, request: Request<wire::ForkRequest>) -> Answer<wire::ForkResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.fork(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn model(&self, request: Request<wire::ModelRequest>) -> Answer<wire::ModelResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.model(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn explain(
        &self,
        request: Request<wire::ExplainRequest>,
    ) -> Answer<wire::ExplainResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.explain(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn role(&self, request: Request<wire::RoleRequest>) -> Answer<wire::RoleResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.role(&actor).map(Response::new)
    }

    async fn delete(&self, request: Request<wire::DeleteRequest>) -> Answer<wire::DeleteResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.delete(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    type ExportStream = Frames<wire::ExportChunk>;

    async fn export(&self, request: Request<wire::ExportRequest>) -> Answer<Self::ExportStream> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.export(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn import(
        &self,
        request: Request<Streaming<wire::ImportRequest>>,
    ) -> Answer<wire::ImportResponse> {
        self.import(request).await.map(Response::new)
    }

    async fn usage(&self, request: Request<wire::UsageRequest>) -> Answer<wire::UsageResponse> {
        self.usage(request.into_inner()).await.map(Response::new)
    }

    async fn configure(
        &self,
        request: Request<wire::ConfigureRequest>,
    ) -> Answer<wire::ConfigureResponse> {
        Ok(Response::new(self.configure(request.into_inner())))
    }

    async fn status(&self, _request: Request<wire::StatusRequest>) -> Answer<wire::StatusResponse> {
        self.status().await.map(Response::new)
    }

    async fn stop(&self, request: Request<wire::StopRequest>) -> Answer<wire::StopResponse> {
        self.stop.send_replace(Some(request.into_inner().sandbox));
        Ok(Response::new(wire::StopResponse {}))
    }

    async fn threads(
        &self,
        _request: Request<wire::ThreadsRequest>,
    ) -> Answer<wire::ThreadsResponse> {
        self.threads().await.map(Response::new)
    }

    async fn advance(
        &self,
        request: Request<wire::AdvanceRequest>,
    ) -> Answer<wire::AdvanceResponse> {
        self.advance(request.into_inner()).await.map(Response::new)
    }

    type OutboxStream = Frames<wire::OutboxRow>;

    async fn outbox(&self, _request: Request<wire::OutboxRequest>) -> Answer<Self::OutboxStream> {
        Ok(Response::new(self.outbox()))
    }

    async fn upload(
        &self,
        request: Request<Streaming<wire::UploadRequest>>,
    ) -> Answer<wire::UploadResponse> {
        self.upload(request).await.map(Response::new)
    }

    async fn resume(&self, request: Request<wire::ResumeRequest>) -> Answer<wire::ResumeResponse> {
        let actor = self.actor(&request, request.get_ref().author.as_ref());
        self.resume(actor, request.into_inner())
            .await
            .map(Response::new)
    }

    async fn ack(&self, request: Request<wire::AckRequest>) -> Answer<wire::AckResponse> {
        self.ack(request.into_inner()).await.map(Response::new)
    }
}
