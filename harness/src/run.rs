//! The harness of one project on this machine, from its start to its end.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tonic::transport::Server;

use crate::{
    assembly::{Assembly, init_logging},
    boundary::{Outside, Reach},
    clients::{Clients, CountLayer, idle},
    error::Error,
    git,
    model::KeyStore,
    sandbox::{Daemon, Link, Place, Remote},
    workspace::{Agreed, Source, default_workspace},
};

/// How a harness is started.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The project folder, canonical.
    pub project: PathBuf,
    /// Folder of the database, the logs and the sandbox's state.
    pub state: PathBuf,
    /// Socket to serve at.
    pub socket: PathBuf,
    /// Socket of the sandbox daemon.
    pub sandbox_socket: PathBuf,
    /// A sandbox on another machine, in place of a daemon on this one.
    pub remote: Option<Remote>,
    /// Workspace file; the default Workspace without one.
    pub workspace: Option<PathBuf>,
    /// Commands may run without isolation.
    pub allow_unisolated: bool,
    /// What of the world may be reached that is not public.
    pub reach: Reach,
    /// The process ends this long after the last client when nothing runs.
    pub idle_exit: Duration,
}

impl Launch {
    fn database(&self) -> PathBuf {
        self.state.join("mooring.db")
    }

    /// The daemon is this program again.
    fn daemon(&self, source: &Source) -> Result<Daemon, Error> {
        let program = std::env::current_exe().map_err(|source| Error::Socket {
            path: self.sandbox_socket.clone(),
            source,
        })?;
        let spec = &source.current().spec.sandbox;
        let mut arguments: Vec<String> = vec!["sandbox-daemon".into()];
        let mut push = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        push("--project", self.project.display().to_string());
        push("--state", self.state.join("sandbox").display().to_string());
        push("--socket", self.sandbox_socket.display().to_string());
        if let Some(file) = source.path() {
            push("--protect", file.display().to_string());
        }
        for path in &spec.read_only {
            push("--read-only", path.clone());
        }
        if let Some(bytes) = spec.output_bytes {
            push("--output-bytes", bytes.to_string());
        }
        Ok(Daemon {
            program,
            arguments,
            log: self.state.join("sandbox.log"),
        })
    }
}

/// Runs one harness until it is stopped or idle for long. An error after the
/// session has failed asks for a new process; that carries on from the last
/// commit.
pub async fn run(launch: Launch) -> Result<(), Error> {
    init_logging();
    std::fs::create_dir_all(&launch.state).map_err(|source| Error::Socket {
        path: launch.state.clone(),
        source,
    })?;
    let name = launch
        .project
        .file_name()
        .map(|n| n.to_string_lossy().into_owned());
    let keys = Arc::new(KeyStore::new());
    let fallback = default_workspace(&name.unwrap_or_default(), |key| keys.has(key));
    let source = Arc::new(Source::open(
        launch.workspace.clone(),
        fallback,
        Some(Agreed::of(&launch.state)),
    )?);
    let script_folder = launch.workspace.as_ref().and_then(|path| path.parent());
    let place = match &launch.remote {
        Some(remote) => Place::Remote(remote.clone()),
        None => Place::Here {
            socket: launch.sandbox_socket.clone(),
            daemon: launch.daemon(&source)?,
        },
    };
    let mut harness = Assembly {
        database: launch.database(),
        project: launch.project.clone(),
        scripts: script_folder.unwrap_or(&launch.project).to_owned(),
        source: source.clone(),
        keys: keys.clone(),
        link: Link::new(place, launch.allow_unisolated),
        outside: Outside::new(launch.reach.clone()),
        git: git::Credentials::Machine {
            keys: keys.clone(),
            since: std::time::Instant::now(),
        },
        local: true,
    }
    .open()
    .await?;
    let incoming = mooring_wire::uds::listen(&launch.socket)
        .await
        .map_err(|source| Error::Socket {
            path: launch.socket.clone(),
            source,
        })?;
    tokio::spawn(async move { source.follow().await });
    harness.start();
    tracing::info!(project = %launch.project.display(), "the harness serves");

    let clients = Arc::new(Clients::default());
    let server = Server::builder()
        .layer(CountLayer(clients.clone()))
        .add_service(harness.grpc());
    let engine = harness.engine().clone();
    let mut stop_sandbox = false;
    let result = tokio::select! {
        ended = server.serve_with_incoming(incoming) => {
            Err(Error::Serve(ended.err().map(|e| e.to_string()).unwrap_or_default()))
        }
        ended = harness.ended() => ended.map(|sandbox| stop_sandbox = sandbox),
        () = idle(&clients, &engine, launch.idle_exit) => {
            tracing::info!("idle: the harness ends");
            Ok(())
        }
    };
    let _ = std::fs::remove_file(&launch.socket);
    result.and(harness.close(stop_sandbox).await)
}
