//! The contract's methods: checks what comes in, answers in its words.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::{Stream, StreamExt};
use mooring_wire::sandbox::exec_response::Start;
use mooring_wire::sandbox::file_outcome::{self, Written};
use mooring_wire::sandbox::sandbox_server::Sandbox;
use mooring_wire::sandbox::signal_request::Signal;
use mooring_wire::sandbox::status_response::{Known as WireKnown, known};
use mooring_wire::sandbox::{
    AttachFrame, AttachRequest, EditRequest, ExecRequest, ExecResponse, Execution, FileOutcome,
    ListRequest, ListResponse, ProbeRequest, ProbeResponse, ReadRequest, ReadResponse,
    ReleaseRequest, ReleaseResponse, ResolveRequest, ResolveResponse, SearchRequest,
    SearchResponse, SignalRequest, SignalResponse, StatRequest, StatResponse, StatusRequest,
    StatusResponse, StopRequest, StopResponse, TunnelFrame, WorktreeRequest, WorktreeResponse,
    WriteRequest, probe_response,
};
use rustix::fs::OFlags;
use rustix::net::RecvFlags;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::attach::Attachment;
use crate::authorities;
use crate::executions::{ExecutionError, Executions, FileTurn, Started, State};
use crate::journal::FileEnd;
use crate::options::Egress;
use crate::paths::{CanonicalPath, FileError, Paths};
use crate::protocol::{self, Job, Order, ProbeResult, ProbeTarget, Report, Run};
use crate::tunnel::Tunnel;
use crate::worktrees::{self, Worktrees};
use crate::write::{self, Change, FileLocks, WriteError};
use crate::{read, search};

/// `MAX_ARG_STRLEN` of execve(2), less the closing zero byte, is what the kernel takes.
const MAX_COMMAND_BYTES: usize = 128 * 1024 - 1;
const MAX_ID_BYTES: usize = 512;
const MAX_ENVIRONMENT_BYTES: usize = 32 << 10;
/// Denial comes late on some networks: a first probe is repeated this long.
const FIRST_PROBE_PATIENCE: Duration = Duration::from_secs(30);
/// Whoever holds a time limit longer says so again.
const MAX_HOLD_MS: u32 = 60_000;
const MAX_PROBE_TARGETS: usize = 16;

/// What the status tells that never changes.
pub struct Identity {
    pub state_id: String,
    pub boot_id: String,
    pub grade: String,
    pub missing: Vec<String>,
    pub landlock_abi: u32,
}

/// The service.
pub struct Service {
    pub executions: Arc<Executions>,
    pub paths: Arc<Paths>,
    pub locks: Arc<FileLocks>,
    pub identity: Identity,
    pub variables: Vec<(String, String)>,
    pub output_limit: u64,
    pub egress: Egress,
    /// Whether a probe has found every target closed.
    pub denied: AtomicBool,
    pub tunnel: Arc<Tunnel>,
    pub worktrees: Arc<Worktrees>,
}

type TunnelStream = Pin<Box<dyn Stream<Item = Result<TunnelFrame, Status>> + Send>>;
type AttachStream = Pin<Box<dyn Stream<Item = Result<AttachFrame, Status>> + Send>>;

#[tonic::async_trait]
impl Sandbox for Service {
    async fn resolve(
        &self,
        request: Request<ResolveRequest>,
    ) -> Result<Response<ResolveResponse>, Status> {
        let ResolveRequest { path, base } = request.into_inner();
        let found = self
            .blocking(move |paths| paths.resolve(&path, &paths.base(&base)?))
            .await?;
        Ok(Response::new(ResolveResponse {
            canonical: read::shown(&found.canonical),
            exists: found.exists,
            in_project: found.in_project,
            kind: found.kind.into(),
            hard_links: found.hard_links,
        }))
    }

    async fn stat(&self, request: Request<StatRequest>) -> Result<Response<StatResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |paths| search::stat(paths, &request))
            .await
            .map(Response::new)
    }

    async fn read(&self, request: Request<ReadRequest>) -> Result<Response<ReadResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |paths| read::read(paths, &request))
            .await
            .map(Response::new)
    }

    async fn write(&self, request: Request<WriteRequest>) -> Result<Response<FileOutcome>, Status> {
        let WriteRequest {
            execution,
            path,
            content,
        } = request.into_inner();
        if content.len() as u64 > write::MAX_FILE_BYTES {
            return Err(Status::invalid_argument(
                "a file of more than 32 MiB is not written at once",
            ));
        }
        self.change(execution, path, Change::Write(content)).await
    }

    async fn edit(&self, request: Request<EditRequest>) -> Result<Response<FileOutcome>, Status> {
        let EditRequest {
            execution,
            path,
            replacements,
        } = request.into_inner();
        self.change(execution, path, Change::Edit(replacements))
            .await
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |paths| search::list(paths, &request))
            .await
            .map(Response::new)
    }

    async fn search(
        &self,
        request: Request<SearchRequest>,
    ) -> Result<Response<SearchResponse>, Status> {
        let request = request.into_inner();
        self.blocking(move |paths| search::search(paths, &request))
            .await
            .map(Response::new)
    }

    async fn exec(&self, request: Request<ExecRequest>) -> Result<Response<ExecResponse>, Status> {
        let request = request.into_inner();
        let Execution { id, args_hash } = checked(request.execution.clone())?;
        if let Some(output) = self
            .executions
            .lookup(&id, &args_hash)
            .map_err(|e| execution_status(&e))?
        {
            return Ok(self.started(Start::Known, &output));
        }
        let other = |asked: &str, own: &str| !asked.is_empty() && asked != own;
        if other(&request.state_id, &self.identity.state_id)
            || other(&request.boot_id, &self.identity.boot_id)
        {
            let answer = ExecResponse {
                start: Start::OtherSandbox.into(),
                output_path: String::new(),
            };
            return Ok(Response::new(answer));
        }
        self.may_start()?;
        let run = self.command(&request)?;
        let executions = Arc::clone(&self.executions);
        // In a task of its own: a caller that goes away half-way leaves no half-started command.
        let task = tokio::spawn(async move { executions.exec(&id, &args_hash, run).await });
        let (started, output) = task
            .await
            .map_err(|error| Status::internal(error.to_string()))?
            .map_err(|error| execution_status(&error))?;
        let start = match started {
            Started::New => Start::Started,
            Started::Known => Start::Known,
        };
        Ok(self.started(start, &output))
    }

    type AttachStream = AttachStream;

    async fn attach(
        &self,
        request: Request<AttachRequest>,
    ) -> Result<Response<AttachStream>, Status> {
        let AttachRequest {
            execution_id,
            offset,
        } = request.into_inner();
        let (frames, stream) = mpsc::channel(2);
        let attachment = Attachment {
            executions: Arc::clone(&self.executions),
            output_path: self.paths.output.clone(),
            limit: self.output_limit,
            frames,
        };
        tokio::spawn(attachment.run(execution_id, offset));
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn release(
        &self,
        request: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        let ids = request.into_inner().execution_ids;
        self.executions
            .release(&ids)
            .await
            .map_err(|e| execution_status(&e))?;
        Ok(Response::new(ReleaseResponse {}))
    }

    async fn signal(
        &self,
        request: Request<SignalRequest>,
    ) -> Result<Response<SignalResponse>, Status> {
        let SignalRequest {
            execution_id,
            signal,
        } = request.into_inner();
        let size = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        let order = match signal {
            Some(Signal::Stdin(bytes)) => Order::Stdin(bytes.to_vec()),
            Some(Signal::StdinClose(_)) => Order::StdinClose,
            Some(Signal::Resize(to)) => Order::Resize(size(to.rows), size(to.columns)),
            Some(Signal::Kill(_)) => Order::Kill,
            Some(Signal::HoldMs(ms)) => Order::Hold(ms.min(MAX_HOLD_MS)),
            None => return Err(Status::invalid_argument("no signal was given")),
        };
        let known = self
            .executions
            .order(&execution_id, order)
            .await
            .map_err(|e| execution_status(&e))?;
        Ok(Response::new(SignalResponse { known }))
    }

    async fn probe(
        &self,
        request: Request<ProbeRequest>,
    ) -> Result<Response<ProbeResponse>, Status> {
        let request = request.into_inner();
        if request.targets.is_empty() || request.targets.len() > MAX_PROBE_TARGETS {
            return Err(Status::invalid_argument("a probe takes 1 to 16 targets"));
        }
        let timeout_ms = if request.timeout_ms == 0 {
            2000
        } else {
            request.timeout_ms
        };
        let first = self.egress == Egress::Enforce && !self.denied.load(Ordering::Acquire);
        let until = Instant::now() + FIRST_PROBE_PATIENCE;
        loop {
            let targets = request
                .targets
                .iter()
                .map(|target| ProbeTarget {
                    name: target.name.clone(),
                    address: target.address.clone(),
                    udp: target.udp,
                    timeout_ms,
                })
                .collect();
            let results = self.probe_once(targets).await?;
            let denied = results.iter().all(|result| !result.reached);
            if denied {
                self.denied.store(true, Ordering::Release);
            }
            if denied || !first || Instant::now() >= until {
                let results = results
                    .into_iter()
                    .map(
                        |ProbeResult {
                             name,
                             reached,
                             detail,
                         }| probe_response::Result {
                            name,
                            reached,
                            detail,
                        },
                    )
                    .collect();
                return Ok(Response::new(ProbeResponse { results }));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    type TunnelStream = TunnelStream;

    async fn tunnel(
        &self,
        request: Request<Streaming<TunnelFrame>>,
    ) -> Result<Response<TunnelStream>, Status> {
        let outgoing = self.tunnel.take_over(request.into_inner());
        Ok(Response::new(Box::pin(outgoing.map(Ok))))
    }

    async fn worktree(
        &self,
        request: Request<WorktreeRequest>,
    ) -> Result<Response<WorktreeResponse>, Status> {
        let request = request.into_inner();
        self.act_on_worktree(request).await.map(Response::new)
    }

    async fn stop(&self, _: Request<StopRequest>) -> Result<Response<StopResponse>, Status> {
        self.executions.end_all().await;
        // The answer goes first; whoever still listens sees the connection end.
        tokio::spawn(async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            std::process::exit(0);
        });
        Ok(Response::new(StopResponse {}))
    }

    async fn status(&self, _: Request<StatusRequest>) -> Result<Response<StatusResponse>, Status> {
        let executions = self
            .executions
            .all()
            .into_iter()
            // A harness ends those that it does not know.
            .filter(|(id, ..)| !id.starts_with(worktrees::OWN))
            .map(|(id, state, released)| {
                let state = match state {
                    State::Running => known::State::Running,
                    State::Finished => known::State::Finished,
                    State::Gone => known::State::Gone,
                };
                WireKnown {
                    id,
                    state: state.into(),
                    released,
                }
            })
            .collect();
        Ok(Response::new(StatusResponse {
            version: env!("CARGO_PKG_VERSION").into(),
            state_id: self.identity.state_id.clone(),
            boot_id: self.identity.boot_id.clone(),
            executions,
            grade: self.identity.grade.clone(),
            missing: self.identity.missing.clone(),
            project: read::shown(&self.paths.project),
            home: read::shown(&self.paths.home),
            landlock_abi: self.identity.landlock_abi,
            tunnel_address: self.tunnel.address(),
        }))
    }
}

impl Service {
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Paths) -> Result<T, FileError> + Send + 'static,
    ) -> Result<T, Status> {
        let paths = Arc::clone(&self.paths);
        tokio::task::spawn_blocking(move || work(&paths))
            .await
            .map_err(|error| Status::internal(error.to_string()))?
            .map_err(|error| file_status(&error))
    }

    fn started(&self, start: Start, output: &str) -> Response<ExecResponse> {
        Response::new(ExecResponse {
            start: start.into(),
            output_path: read::shown(&self.paths.output.join(output)),
        })
    }

    /// Whether commands may be started at all.
    pub(crate) fn may_start(&self) -> Result<(), Status> {
        if self.egress == Egress::Enforce && !self.denied.load(Ordering::Acquire) {
            return Err(Status::failed_precondition(
                "no probe has found the network closed yet; nothing is started before",
            ));
        }
        Ok(())
    }

    pub(crate) fn command(&self, request: &ExecRequest) -> Result<Run, Status> {
        let invalid = Status::invalid_argument;
        if request.command.len() > MAX_COMMAND_BYTES {
            return Err(invalid(format!(
                "the command has {} bytes, the kernel takes {MAX_COMMAND_BYTES}; write it to a file and run that",
                request.command.len()
            )));
        }
        let cwd = match request.cwd.as_str() {
            "" => read::shown(&self.paths.project),
            cwd => {
                let path = CanonicalPath::parse(cwd).map_err(|e| file_status(&e))?;
                self.paths
                    .open(&path, OFlags::PATH | OFlags::DIRECTORY)
                    .map_err(|e| file_status(&e))?;
                cwd.to_owned()
            }
        };
        let mut environment: std::collections::BTreeMap<String, String> =
            self.variables.iter().cloned().collect();
        if request.pty {
            environment.insert("TERM".into(), "xterm-256color".into());
        }
        if !request.ca_bundle.is_empty() {
            let (folder, seen) = (self.executions.output_folder(), &self.paths.output);
            let named =
                authorities::install(folder, seen, &request.ca_bundle).map_err(|error| {
                    Status::internal(format!("the certificates could not be written: {error}"))
                })?;
            environment.extend(named);
        }
        for (name, value) in &request.env {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(invalid(format!(
                    "`{name}` cannot be a variable of the environment"
                )));
            }
            environment.insert(name.clone(), value.clone());
        }
        if request.command.contains('\0') {
            return Err(invalid("the command holds a zero byte".into()));
        }
        let env: Vec<(String, String)> = environment.into_iter().collect();
        if env
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            > MAX_ENVIRONMENT_BYTES
        {
            return Err(invalid(format!(
                "the environment has more than {MAX_ENVIRONMENT_BYTES} bytes"
            )));
        }
        let size = |value: u32, default: u16| match value {
            0 => default,
            value => u16::try_from(value).unwrap_or(u16::MAX),
        };
        Ok(Run {
            command: request.command.clone(),
            cwd,
            env,
            timeout_ms: request.timeout_ms,
            pty: request
                .pty
                .then(|| (size(request.rows, 24), size(request.columns, 80))),
            stdin: request.stdin,
            output: String::new(),
        })
    }

    async fn change(
        &self,
        execution: Option<Execution>,
        path: String,
        change: Change,
    ) -> Result<Response<FileOutcome>, Status> {
        let Execution { id, args_hash } = checked(execution)?;
        let path = CanonicalPath::parse(&path).map_err(|e| file_status(&e))?;
        let turn = self
            .executions
            .file_turn(&id, &args_hash, path.as_path())
            .await
            .map_err(|e| execution_status(&e))?;
        let interrupted = match turn {
            FileTurn::Done(end) => return Ok(file_outcome(end, true)),
            FileTurn::Yours => None,
            FileTurn::Interrupted { before, after } => Some((before, after)),
        };
        let repeated = interrupted.is_some();
        let (executions, paths, locks) = (
            Arc::clone(&self.executions),
            Arc::clone(&self.paths),
            Arc::clone(&self.locks),
        );
        // Not cut short where the caller goes away; the outcome waits for its return.
        let task = tokio::task::spawn_blocking(move || {
            let done = write::change(
                &paths,
                &executions,
                &locks,
                &id,
                &path,
                &change,
                interrupted,
            );
            // What may not be done is an outcome as well: it is told the model.
            let done = match done {
                Err(WriteError::File(
                    error @ (FileError::Refused(..) | FileError::NotFound(_)),
                )) => Ok(FileEnd::Refused(error.to_string())),
                other => other,
            };
            executions.file_end(&id, done.as_ref().ok());
            done
        });
        match task
            .await
            .map_err(|error| Status::internal(error.to_string()))?
        {
            Ok(end) => Ok(file_outcome(end, repeated)),
            Err(WriteError::File(error)) => Err(file_status(&error)),
            Err(WriteError::Execution(error)) => Err(execution_status(&error)),
        }
    }

    async fn probe_once(&self, targets: Vec<ProbeTarget>) -> Result<Vec<ProbeResult>, Status> {
        let failed = |error: std::io::Error| Status::internal(format!("probe: {error}"));
        let control = self.executions.job(&Job::Probe(targets)).map_err(failed)?;
        let mut buffer = Vec::new();
        let report = control
            .async_io(tokio::io::Interest::READABLE, |control| {
                protocol::receive::<Report>(
                    std::os::fd::AsFd::as_fd(control),
                    &mut buffer,
                    protocol::MAX_REPORT,
                    RecvFlags::DONTWAIT,
                )
            })
            .await
            .map_err(failed)?;
        match report {
            Some(Report::Probed(results)) => Ok(results),
            _ => Err(Status::internal("the probe ended without a result")),
        }
    }
}

fn checked(execution: Option<Execution>) -> Result<Execution, Status> {
    match execution {
        Some(execution)
            if !execution.id.is_empty()
                && execution.id.len() <= MAX_ID_BYTES
                && execution.args_hash.len() <= 128 =>
        {
            Ok(execution)
        }
        _ => Err(Status::invalid_argument(
            "an execution needs an id of 1 to 512 bytes and a hash",
        )),
    }
}

fn file_outcome(end: FileEnd, repeated: bool) -> Response<FileOutcome> {
    let outcome = match end {
        FileEnd::Written {
            created,
            bytes,
            before,
            after,
            diff,
        } => file_outcome::Outcome::Written(Written {
            created,
            bytes,
            sha256_before: before,
            sha256_after: after,
            diff,
        }),
        FileEnd::Refused(text) => file_outcome::Outcome::Refused(text),
    };
    Response::new(FileOutcome {
        repeated,
        outcome: Some(outcome),
    })
}

fn file_status(error: &FileError) -> Status {
    let text = error.to_string();
    match error {
        FileError::NotFound(_) => Status::not_found(text),
        FileError::Changed(_) => Status::failed_precondition(text),
        FileError::Refused(..) => Status::permission_denied(text),
        FileError::Invalid(_) => Status::invalid_argument(text),
        FileError::Io(_, error) => match error.kind() {
            std::io::ErrorKind::PermissionDenied => Status::permission_denied(text),
            std::io::ErrorKind::NotADirectory => Status::failed_precondition(text),
            std::io::ErrorKind::StorageFull => Status::resource_exhausted(text),
            _ => Status::internal(text),
        },
    }
}

pub(crate) fn execution_status(error: &ExecutionError) -> Status {
    let text = error.to_string();
    match error {
        ExecutionError::OtherArguments(_) | ExecutionError::OtherKind(..) => {
            Status::already_exists(text)
        }
        ExecutionError::Released(_) => Status::failed_precondition(text),
        ExecutionError::InputFull(_) | ExecutionError::Record(..) => {
            Status::resource_exhausted(text)
        }
        ExecutionError::Io(..) => Status::internal(text),
    }
}

/// The output folder is a place that may be read though it lies among closed ones.
pub fn paths(
    project: &Path,
    threads: Option<PathBuf>,
    home: &Path,
    private: Vec<PathBuf>,
    output: &Path,
) -> Paths {
    Paths {
        project: project.to_owned(),
        threads,
        home: home.to_owned(),
        private,
        output: output.to_owned(),
    }
}
