//! One harness process, from its start to its end.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mooring_crds::Verdict;
use mooring_durable::{
    Durability, Engine, Options, Ports,
    clock::{Clock, SystemClock},
};
use mooring_wire::harness::harness_server::HarnessServer;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{Mutex, watch},
};
use tonic::transport::Server;

use crate::{
    books::Books,
    error::Error,
    gate::PolicyGate,
    model::{Catalog, KeyStore, Limits},
    prompt::Sections,
    record,
    sandbox::{Daemon, Link, State},
    service::Service,
    tools::{BuiltIn, Hands},
    workspace::{Source, default_workspace},
};

/// A message may carry images.
const MAX_MESSAGE: usize = 64 << 20;
/// How long a stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

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
    /// Workspace file; the default Workspace without one.
    pub workspace: Option<PathBuf>,
    /// Commands may run without isolation.
    pub allow_unisolated: bool,
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
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let name = launch
        .project
        .file_name()
        .map(|n| n.to_string_lossy().into_owned());
    let keys = Arc::new(KeyStore::new());
    let fallback = default_workspace(&name.unwrap_or_default(), |key| keys.has(key));
    let source = Arc::new(Source::open(launch.workspace.clone(), fallback)?);
    let script_folder = launch.workspace.as_ref().and_then(|path| path.parent());
    let catalog = Arc::new(Catalog::new(
        keys.clone(),
        script_folder.unwrap_or(&launch.project),
        Limits::default(),
    ));
    let models = &source.current().spec.models;
    catalog
        .replace(models)
        .map_err(|error| Error::Workspace(error.to_string()))?;
    let link = Link::new(
        launch.sandbox_socket.clone(),
        launch.daemon(&source)?,
        launch.allow_unisolated,
    );
    let hands = Hands::new(link.clone(), source.clone());
    let gate = PolicyGate::new(hands.clone(), clock.clone());
    let books = Books::new(source.clone(), catalog.clone());
    let engine = Engine::open(
        &launch.database(),
        Options {
            durability: Durability::Full,
            clock: clock.clone(),
            components: vec![record::COMPONENT],
        },
        Ports {
            models: catalog.clone(),
            tools: Arc::new(BuiltIn::new(&hands)),
            gate: gate.clone(),
            ledger: books.clone(),
            prompt: Arc::new(Sections {
                source: source.clone(),
                link: link.clone(),
            }),
        },
    )
    .await?;
    books.opened(engine.incarnation());
    let (stop, mut stopped) = watch::channel(None);
    let service = Arc::new(Service {
        engine: engine.clone(),
        source: source.clone(),
        catalog: catalog.clone(),
        keys: keys.clone(),
        link: link.clone(),
        gate,
        books,
        started: clock.now(),
        clock,
        project: launch.project.clone(),
        database: launch.database(),
        stop,
        making: Mutex::new(()),
    });
    service
        .reload_grants()
        .await
        .map_err(|status| Error::Serve(status.message().to_owned()))?;
    let incoming = mooring_wire::uds::listen(&launch.socket)
        .await
        .map_err(|source| Error::Socket {
            path: launch.socket.clone(),
            source,
        })?;
    let clients = Arc::new(Clients::default());
    tokio::spawn(follow(
        source.clone(),
        catalog,
        engine.clone(),
        link.clone(),
    ));
    let files = source.clone();
    tokio::spawn(async move { files.follow().await });
    let (linked, wanted) = (link.clone(), engine.clone());
    let linking = tokio::spawn(async move {
        linked
            .run(|| {
                let engine = wanted.clone();
                async move { engine.open_executions().await.ok() }
            })
            .await;
    });
    engine.start();
    // The policy may have changed while nobody ran: calls that wait are decided anew.
    engine.policy_changed();
    tracing::info!(project = %launch.project.display(), "the harness serves");

    let server = Server::builder()
        .layer(CountLayer(clients.clone()))
        .add_service(
            HarnessServer::from_arc(service.clone())
                .max_decoding_message_size(MAX_MESSAGE)
                .max_encoding_message_size(MAX_MESSAGE),
        );
    let mut terminate =
        signal(SignalKind::terminate()).map_err(|error| Error::Serve(error.to_string()))?;
    let mut interrupt =
        signal(SignalKind::interrupt()).map_err(|error| Error::Serve(error.to_string()))?;
    let mut stop_sandbox = false;
    let result = tokio::select! {
        ended = server.serve_with_incoming(incoming) => {
            Err(Error::Serve(ended.err().map(|e| e.to_string()).unwrap_or_default()))
        }
        error = engine.failed() => Err(Error::Session(error)),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
        asked = stopped.wait_for(Option::is_some) => {
            stop_sandbox = asked.ok().and_then(|value| *value).unwrap_or(false);
            // The answer to the caller goes out first.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(())
        }
        () = idle(&clients, &engine, launch.idle_exit) => {
            tracing::info!("idle: the harness ends");
            Ok(())
        }
    };
    let _ = std::fs::remove_file(&launch.socket);
    // From here on nobody starts a daemon again.
    linking.abort();
    if stop_sandbox {
        crate::sandbox::stop(&link).await;
    }
    match tokio::time::timeout(STOP_PATIENCE, engine.close()).await {
        Ok(closed) => result.and(closed.map_err(Error::from)),
        Err(_) => result,
    }
}

/// Carries each change of the Workspace and of the sandbox to those who work by it.
async fn follow(source: Arc<Source>, catalog: Arc<Catalog>, engine: Engine, link: Arc<Link>) {
    let mut workspaces = source.changes();
    let mut sandboxes = link.changes();
    loop {
        tokio::select! {
            changed = workspaces.changed() => {
                if changed.is_err() {
                    return;
                }
                let workspace = workspaces.borrow_and_update().clone();
                if let Err(error) = catalog.replace(&workspace.spec.models) {
                    tracing::warn!(%error, "the models stay as they were");
                }
                engine.policy_changed();
                engine.models_changed();
            }
            changed = sandboxes.changed() => {
                if changed.is_err() {
                    return;
                }
                let state = sandboxes.borrow_and_update().clone();
                if let State::Ready(status) = state {
                    // The default Workspace runs commands at once only where
                    // they are isolated.
                    let verdict =
                        if status.grade == "isolated" { Verdict::Allow } else { Verdict::Ask };
                    source.adapt_default(|spec| {
                        spec.policy.bash.insert("*".into(), verdict);
                    });
                }
            }
        }
    }
}

fn init_logging() {
    use tracing_subscriber::EnvFilter;
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| {
        // Warnings of the model library can hold what a provider sent.
        EnvFilter::new("info,genai=off")
    });
    let _ = tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .try_init();
}

/// Requests that are being served, and when the last one ended.
#[derive(Default)]
struct Clients {
    open: std::sync::atomic::AtomicUsize,
    left: tokio::sync::Notify,
}

/// Returns once nobody has called for `patience` and nothing runs.
async fn idle(clients: &Clients, engine: &Engine, patience: Duration) {
    use std::sync::atomic::Ordering::SeqCst;
    loop {
        tokio::select! {
            () = tokio::time::sleep(patience) => {
                if clients.open.load(SeqCst) == 0 && engine.running() == 0 {
                    return;
                }
            }
            () = clients.left.notified() => {}
        }
    }
}

/// Counts requests, streams for as long as they are read.
#[derive(Clone)]
struct CountLayer(Arc<Clients>);

impl<S> tower::Layer<S> for CountLayer {
    type Service = Count<S>;
    fn layer(&self, inner: S) -> Count<S> {
        Count {
            inner,
            clients: self.0.clone(),
        }
    }
}

#[derive(Clone)]
struct Count<S> {
    inner: S,
    clients: Arc<Clients>,
}

impl<S, R> tower::Service<R> for Count<S>
where
    S: tower::Service<R>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = std::pin::Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(
        &mut self,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        let guard = Guard::new(self.clients.clone());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let _guard = guard;
            answer.await
        })
    }
}

struct Guard(Arc<Clients>);

impl Guard {
    fn new(clients: Arc<Clients>) -> Guard {
        clients
            .open
            .fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        Guard(clients)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.0
            .open
            .fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
        self.0.left.notify_waiters();
    }
}
