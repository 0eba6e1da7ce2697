//! What the harness says of itself, and what it is told to keep in mind.

use mooring_durable::id::ConversationId;
use mooring_wire::{harness as wire, sandbox::StatusResponse};
use tonic::Status;

use super::{Service, session, storage};
use crate::{
    mcp::{Report, Standing},
    metrics,
    record::{outbox, usage},
    sandbox::{Egress, State},
    workspace::{Pending, default_workspace},
};

/// Figures of a status that are read from the database.
#[derive(Default)]
struct Recorded {
    pending_approvals: u32,
    conversations: u64,
    cost_today_micros: i64,
    tokens_today: u64,
}

impl Service {
    pub(super) fn configure(&self, request: wire::ConfigureRequest) -> wire::ConfigureResponse {
        for (name, value) in &request.keys {
            self.keys.set(name, value);
        }
        if !request.accept_workspace.is_empty() {
            self.source.reload(Some(&request.accept_workspace));
        }
        if !request.keys.is_empty() {
            // The default Workspace takes the best model that there is a key for.
            let best = default_workspace("", |name| self.keys.has(name))
                .spec
                .models;
            self.source.adapt_default(|spec| spec.models = best);
            self.engine.models_changed();
            self.servers.wake();
        }
        wire::ConfigureResponse {
            needed: self.missing_keys(),
        }
    }

    /// Names of keys that models of the Workspace take and that are not here.
    fn missing_keys(&self) -> Vec<String> {
        let mut missing: Vec<String> = self
            .catalog
            .needed_keys()
            .into_iter()
            .filter(|key| !key.present)
            .map(|key| key.name)
            .collect();
        missing.extend(self.servers.missing_keys());
        missing.sort();
        missing.dedup();
        missing
    }

    pub(super) async fn status(&self) -> Result<wire::StatusResponse, Status> {
        let workspace = self.source.current();
        // One whose database is damaged still says so, and can be told to stop.
        let (recorded, database_error) = match self.recorded().await {
            Err(status) if status.code() == tonic::Code::DataLoss => {
                (Recorded::default(), status.message().to_owned())
            }
            recorded => (recorded?, String::new()),
        };
        let (pending_workspace, pending_changes, workspace_error) = match self.source.pending() {
            Pending::None => Default::default(),
            Pending::NeedsYes { digest, lines } => (digest, lines, String::new()),
            Pending::Wrong(error) => (String::new(), Vec::new(), error),
        };
        let reached = |status: &StatusResponse, egress: Egress| wire::status_response::Sandbox {
            reachable: true,
            grade: status.grade.clone(),
            missing: status.missing.clone(),
            egress: egress.word().into(),
            ..Default::default()
        };
        let mut sandbox = match self.link.state() {
            State::Ready(status) => {
                let egress = match status.grade.as_str() {
                    "not-isolated" => Egress::Unknown,
                    _ => Egress::Denied,
                };
                reached(&status, egress)
            }
            State::Unproved {
                status,
                reason,
                egress,
            } => wire::status_response::Sandbox {
                warning: reason,
                ..reached(&status, egress)
            },
            State::Refused {
                status,
                reason,
                egress,
            } => wire::status_response::Sandbox {
                error: reason,
                ..reached(&status, egress)
            },
            State::Down { since, error } => wire::status_response::Sandbox {
                reachable: false,
                since_ms: since.0,
                error,
                ..Default::default()
            },
        };
        if sandbox.error.is_empty()
            && let Some(why) = self.hands.first_checkout.waits()
        {
            sandbox.checkout = why.clone();
            sandbox.error = why;
        }
        if let Some(address) = self.link.remote() {
            sandbox.address = address.to_owned();
            sandbox.project = self
                .link
                .status()
                .map(|status| status.project.clone())
                .unwrap_or_default();
        }
        Ok(wire::StatusResponse {
            version: env!("CARGO_PKG_VERSION").into(),
            workspace: workspace.name.clone(),
            workspace_path: self
                .source
                .path()
                .map(|path| path.display().to_string())
                .unwrap_or_default(),
            project: self.project.display().to_string(),
            policy_digest: workspace.rules.digest().to_owned(),
            incarnation: self.engine.incarnation().0,
            generation: self.engine.generation(),
            model: workspace
                .spec
                .models
                .first()
                .map(|m| m.name.clone())
                .unwrap_or_default(),
            sandbox: Some(sandbox),
            missing_keys: self.missing_keys(),
            running: self.engine.running() as u32,
            waiting: self.engine.waiting() as u32,
            pending_approvals: recorded.pending_approvals,
            pending_workspace,
            pending_changes,
            workspace_error,
            database_bytes: self.database_bytes(),
            started_ms: self.started.0,
            pid: std::process::id(),
            full_since_ms: self.engine.full_since().map_or(0, |since| since.0),
            database_path: self.database.display().to_string(),
            database_error,
            conversations: recorded.conversations,
            cost_today_micros: recorded.cost_today_micros,
            tokens_today: recorded.tokens_today,
            mcp: self.servers.reports().iter().map(server).collect(),
            extensions: self.extensions.names(),
        })
    }

    async fn recorded(&self) -> Result<Recorded, Status> {
        let (cost_today_micros, tokens_today) = self.spent_today().await?;
        Ok(Recorded {
            pending_approvals: self.pending_approvals().await?,
            conversations: self.engine.conversation_count().await.map_err(session)?,
            cost_today_micros,
            tokens_today,
        })
    }

    /// What stands at this moment, for the metrics.
    pub(crate) async fn standing(&self) -> Result<metrics::Standing, Status> {
        let outbox = outbox::waiting(self.engine.reader()).await;
        Ok(metrics::Standing {
            running: self.engine.running(),
            waiting: self.engine.waiting(),
            approvals: self.pending_approvals().await?.into(),
            outbox: outbox.map_err(|error| storage(&error))?,
            queued: self.engine.queued().await.map_err(session)?,
            database_bytes: self.database_bytes(),
            sandbox_ready: self.link.state().usable().is_some(),
            keys_missing: self.missing_keys().len(),
            servers: self
                .servers
                .reports()
                .into_iter()
                .map(|report| (report.name, report.standing == Standing::Ready))
                .collect(),
        })
    }

    /// Approvals that nobody has decided.
    async fn pending_approvals(&self) -> Result<u32, Status> {
        let pending = self
            .engine
            .approvals(None, mooring_durable::Approvals::Pending)
            .await
            .map_err(session)?;
        Ok(u32::try_from(pending.len()).unwrap_or(u32::MAX))
    }

    /// Millionths of a US dollar and tokens, since midnight UTC.
    async fn spent_today(&self) -> Result<(i64, u64), Status> {
        let today = usage::day(self.clock.now());
        let rows = usage::list(self.engine.reader(), None)
            .await
            .map_err(|error| storage(&error))?;
        let of_today = rows.iter().filter(|row| row.day == today);
        Ok(of_today.fold((0, 0), |(cost, tokens), row| {
            (cost + row.cost_micros, tokens + row.input + row.output)
        }))
    }

    /// The database and its write-ahead log.
    fn database_bytes(&self) -> u64 {
        let bytes = |suffix: &str| {
            let mut path = self.database.clone().into_os_string();
            path.push(suffix);
            std::fs::metadata(path).map_or(0, |meta| meta.len())
        };
        bytes("") + bytes("-wal")
    }

    pub(super) async fn usage(
        &self,
        request: wire::UsageRequest,
    ) -> Result<wire::UsageResponse, Status> {
        let conversation =
            (request.conversation != 0).then_some(ConversationId(request.conversation));
        let rows = usage::list(self.engine.reader(), conversation)
            .await
            .map_err(|error| storage(&error))?;
        let rows = rows
            .into_iter()
            .map(|row| wire::usage_response::Row {
                day: row.day,
                model: row.model,
                requests: row.requests,
                input_tokens: row.input,
                cached_tokens: row.cached,
                output_tokens: row.output,
                cost_micros: row.cost_micros,
                unknown_requests: row.unknown,
                cost_known: row.unpriced == 0,
            })
            .collect();
        Ok(wire::UsageResponse { rows })
    }
}

/// How a server stands, as it goes over the wire.
fn server(report: &Report) -> wire::status_response::McpServer {
    let (state, since_ms, error) = match &report.standing {
        Standing::Starting => ("starting", 0, String::new()),
        Standing::Ready => ("ready", 0, String::new()),
        Standing::Down { since, error } => ("down", since.0, error.clone()),
    };
    wire::status_response::McpServer {
        name: report.name.clone(),
        place: report.place.clone(),
        state: state.into(),
        since_ms,
        error,
        tools: report.tools as u32,
    }
}
