//! Runs the service on its socket.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use mooring_wire::pairing::{self, Desk, Peer};
use mooring_wire::sandbox::sandbox_server::SandboxServer;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Server;
use tonic::{Request, Status};

use crate::enter::{Entered, Grade, Listener};
use crate::error::SandboxError;
use crate::executions::Executions;
use crate::journal::Journal;
use crate::service::{self, Identity, Service};
use crate::tunnel::Tunnel;
use crate::worktrees::Worktrees;
use crate::write::FileLocks;

/// A request may carry a whole file.
const MAX_REQUEST_BYTES: usize = 40 << 20;
/// Threads for file operations; each keeps some memory while it waits.
const MAX_FILE_THREADS: usize = 8;

/// A runtime that suits the daemon: one thread, and a few for files.
///
/// # Errors
/// The system has no thread or descriptor left.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(MAX_FILE_THREADS)
        .thread_stack_size(512 << 10)
        .thread_keep_alive(std::time::Duration::from_secs(5))
        .build()
}

/// Serves until the process is killed; nothing needs a graceful end.
///
/// # Errors
/// Records that cannot be read, or a socket that fails.
pub async fn serve(entered: Entered) -> Result<(), SandboxError> {
    let Entered {
        jobs,
        listener,
        records,
        records_path,
        output,
        output_path,
        project,
        threads,
        home,
        private,
        grade,
        missing,
        landlock_abi,
        guarded,
        variables,
        limits,
        egress,
        uid,
        lock: _lock,
    } = entered;
    let worktrees = Worktrees {
        folder: threads.clone(),
        records: records
            .try_clone()
            .map_err(SandboxError::path(&records_path, "opening"))?,
        turn: Arc::default(),
    };
    let (journal, replayed) = Journal::open(records, &records_path)?;
    let identity = Identity {
        state_id: replayed.state_id.clone(),
        boot_id: hex::encode(rand::random::<[u8; 16]>()),
        grade: grade.as_str().into(),
        missing,
        landlock_abi,
    };
    tracing::info!(grade = grade.as_str(), landlock_abi, project = %project.display(), "serving");
    let executions = Executions::new(
        journal,
        replayed,
        jobs,
        output,
        limits.output_total_bytes,
        guarded,
    );
    let tunnel = match grade {
        // Its commands make no sockets.
        Grade::Confined => Tunnel::none(),
        _ => Tunnel::listen()
            .await
            .map_err(SandboxError::setup("listening on loopback"))?,
    };
    let service = Service {
        executions: Arc::new(executions),
        paths: Arc::new(service::paths(
            &project,
            threads,
            &home,
            private,
            &output_path,
        )),
        locks: Arc::new(FileLocks::default()),
        identity,
        variables,
        output_limit: limits.output_bytes,
        egress,
        denied: AtomicBool::new(false),
        tunnel,
        worktrees: Arc::new(worktrees),
    };
    let service = SandboxServer::new(service).max_decoding_message_size(MAX_REQUEST_BYTES);
    let mut builder =
        Server::builder().http2_keepalive_interval(Some(std::time::Duration::from_secs(30)));
    match listener {
        Listener::Unix(listener) => {
            let incoming = mooring_wire::uds::incoming_from(listener, uid)
                .map_err(SandboxError::setup("socket"))?;
            builder
                .add_service(service)
                .serve_with_incoming(incoming)
                .await?;
        }
        Listener::Tls {
            listener,
            credentials,
            harness,
        } => {
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(SandboxError::setup("socket"))?;
            let incoming = mooring_wire::tls::incoming(listener, credentials, &[harness])?;
            builder
                .add_service(service)
                .serve_with_incoming(incoming)
                .await?;
        }
        Listener::Paired { listener, pairing } => {
            let listener = tokio::net::TcpListener::from_std(listener)
                .map_err(SandboxError::setup("socket"))?;
            let version = env!("CARGO_PKG_VERSION");
            let certificate = pairing.certificate().clone();
            let desk = Arc::clone(&pairing);
            let incoming = pairing::incoming(listener, &certificate, version, desk)?;
            // One that was forgotten is refused in the middle of its connection, too.
            let service = InterceptedService::new(service, move |request: Request<()>| {
                let peer = request.extensions().get::<Peer>().map(|peer| peer.0);
                match peer.is_some() && peer == pairing.paired() {
                    true => Ok(request),
                    false => Err(Status::permission_denied(
                        "this sandbox is paired with another harness now, or with none",
                    )),
                }
            });
            builder
                .add_service(service)
                .serve_with_incoming(incoming)
                .await?;
        }
    }
    Ok(())
}
