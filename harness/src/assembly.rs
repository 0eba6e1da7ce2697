//! A harness put together from its parts, wherever it runs.

use std::{path::PathBuf, sync::Arc, time::Duration};

use mooring_crds::Verdict;
use mooring_durable::{
    Durability, Engine, Options, Ports,
    clock::{Clock, SystemClock},
};
use mooring_wire::harness::harness_server::HarnessServer;
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::{Mutex, watch},
    task::JoinHandle,
};

use crate::{
    books::Books,
    boundary::{Boundary, Outside},
    error::Error,
    extension::{self, Tools},
    first_checkout::FirstCheckout,
    gate::PolicyGate,
    git::{self, Gateway},
    mcp::{self, Servers},
    metrics::Metrics,
    model::{Catalog, KeyStore, Limits},
    record,
    sandbox::{Link, State},
    service::Service,
    tools::Hands,
    workspace::Source,
};

/// A message may carry images.
const MAX_MESSAGE: usize = 64 << 20;
/// How long a stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(9);

/// What a harness is made from.
pub struct Assembly {
    /// The database file.
    pub database: PathBuf,
    /// The project's folder, as people know it.
    pub project: PathBuf,
    /// Folder that paths of rehearsal scripts are relative to.
    pub scripts: PathBuf,
    /// The Workspace in use.
    pub source: Arc<Source>,
    /// Keys of model providers.
    pub keys: Arc<KeyStore>,
    /// The sandbox.
    pub link: Arc<Link>,
    /// The world.
    pub outside: Outside,
    /// Where the credential of the git host comes from.
    pub git: git::Credentials,
    /// Whether the project's folder is on this machine.
    pub local: bool,
}

/// A harness whose database is open.
pub struct Harness {
    service: Arc<Service>,
    stopped: watch::Receiver<Option<bool>>,
    linking: Option<JoinHandle<()>>,
    /// Listened to since it was opened: what comes meanwhile is not lost.
    terminate: Signal,
    interrupt: Signal,
}

impl Assembly {
    /// Opens the database and puts all parts together. Nothing runs before
    /// [`Harness::start`].
    pub async fn open(self) -> Result<Harness, Error> {
        let Assembly {
            database,
            project,
            scripts,
            source,
            keys,
            link,
            outside,
            git,
            local,
        } = self;
        let told = |error: std::io::Error| Error::Serve(error.to_string());
        let terminate = signal(SignalKind::terminate()).map_err(told)?;
        let interrupt = signal(SignalKind::interrupt()).map_err(told)?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let catalog = Arc::new(Catalog::new(keys.clone(), scripts, Limits::default()));
        catalog
            .replace(&source.current().spec.models)
            .map_err(|error| Error::Workspace(error.to_string()))?;
        let metrics = Arc::new(Metrics::new());
        let git = Gateway::new(git::Parts {
            source: source.clone(),
            world: Arc::new(outside.clone()),
            credentials: git,
            tls: None,
            patience: git::Patience::default(),
            folder: database.with_file_name("git"),
            project: local.then(|| project.clone()),
        });
        let boundary = Boundary::new(
            source.clone(),
            outside.clone(),
            git.clone(),
            metrics.clone(),
        );
        let checkout = FirstCheckout::new(source.clone(), database.with_file_name("checkout"));
        let hands = Hands::new(
            link.clone(),
            source.clone(),
            boundary.clone(),
            checkout.clone(),
        );
        link.only_warn(source.current().spec.sandbox.egress_verification.is_warn());
        let gate = PolicyGate::new(hands.clone(), clock.clone());
        let servers = Servers::new(mcp::Means {
            link: link.clone(),
            source: source.clone(),
            keys: keys.clone(),
            // Under `mooring dev` a loopback address is the person's own machine.
            outside: source.is_of_cluster().then(|| outside.clone()),
            limits: mcp::Limits::default(),
        });
        let extensions = extension::built_in(&extension::Parts {
            hands: hands.clone(),
            gate: gate.clone(),
            git: git.clone(),
            servers: servers.clone(),
        });
        let books = Books::new(
            source.clone(),
            catalog.clone(),
            metrics.clone(),
            hands.clone(),
        );
        let engine = Engine::open(
            &database,
            Options {
                durability: Durability::Full,
                clock: clock.clone(),
                components: vec![record::COMPONENT],
            },
            Ports {
                models: catalog.clone(),
                tools: Arc::new(Tools {
                    source: source.clone(),
                    extensions: extensions.clone(),
                }),
                gate: gate.clone(),
                ledger: books.clone(),
                prompt: extensions.clone(),
            },
        )
        .await?;
        books.opened(engine.incarnation());
        hands.opened(engine.clone());
        git.opened(engine.clone());
        git.hold.linked(link.clone());
        boundary.opened(&engine).await?;
        checkout.opened(&engine.incarnation());
        servers.opened(&engine).await;
        let (stop, stopped) = watch::channel(None);
        let service = Arc::new(Service {
            engine,
            source,
            catalog,
            keys,
            link,
            hands,
            gate,
            books,
            metrics,
            servers,
            extensions,
            started: clock.now(),
            clock,
            project,
            database,
            stop,
            making: Mutex::new(()),
        });
        service
            .reload_grants()
            .await
            .map_err(|status| Error::Serve(status.message().to_owned()))?;
        Ok(Harness {
            service,
            stopped,
            linking: None,
            terminate,
            interrupt,
        })
    }
}

impl Harness {
    /// Begins to work: on the sandbox's link, and on whatever waits in the database.
    pub fn start(&mut self) {
        let service = &self.service;
        tokio::spawn(follow(
            service.source.clone(),
            service.catalog.clone(),
            service.engine.clone(),
            service.link.clone(),
        ));
        let (link, engine) = (service.link.clone(), service.engine.clone());
        let checkout = service.hands.first_checkout.clone();
        self.linking = Some(tokio::spawn(async move {
            link.run(|| {
                let (engine, checkout) = (engine.clone(), checkout.clone());
                async move {
                    let mut open = engine.open_executions().await.ok()?;
                    open.extend(checkout.execution());
                    Some(open)
                }
            })
            .await;
        }));
        let (link, hands) = (service.link.clone(), service.hands.clone());
        let incarnation = service.engine.incarnation();
        tokio::spawn(async move {
            let made = hands
                .first_checkout
                .make(&link, &hands.boundary, &incarnation);
            made.await;
        });
        tokio::spawn(crate::retention::run(
            service.source.clone(),
            service.engine.clone(),
            service.clock.clone(),
        ));
        tokio::spawn(crate::boundary::follow(
            service.link.clone(),
            service.hands.boundary.clone(),
        ));
        service.servers.start();
        service.engine.start();
        // The policy may have changed while nobody ran: calls that wait are decided anew.
        service.engine.policy_changed();
    }

    /// What its callers see.
    pub fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// The engine.
    pub fn engine(&self) -> &Engine {
        &self.service.engine
    }

    /// The service for a server.
    pub fn grpc(&self) -> HarnessServer<Service> {
        HarnessServer::from_arc(self.service.clone())
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE)
    }

    /// Returns when a signal or a caller asks for the end, or the session has
    /// failed; `true` where the sandbox shall end too.
    pub async fn ended(&mut self) -> Result<bool, Error> {
        tokio::select! {
            error = self.service.engine.failed() => Err(Error::Session(error)),
            _ = self.terminate.recv() => Ok(false),
            _ = self.interrupt.recv() => Ok(false),
            asked = self.stopped.wait_for(Option::is_some) => {
                let sandbox = asked.ok().and_then(|value| *value).unwrap_or(false);
                // The answer to the caller goes out first.
                tokio::time::sleep(Duration::from_millis(20)).await;
                Ok(sandbox)
            }
        }
    }

    /// Ends the work within ten seconds and closes the database; what did not
    /// end by then carries on from its last commit.
    pub async fn close(mut self, stop_sandbox: bool) -> Result<(), Error> {
        // From here on nobody starts a daemon again.
        if let Some(linking) = self.linking.take() {
            linking.abort();
        }
        self.service.servers.stop().await;
        if stop_sandbox {
            crate::sandbox::stop(&self.service.link).await;
        }
        match tokio::time::timeout(STOP_PATIENCE, self.service.engine.close()).await {
            Ok(closed) => closed.map_err(Error::from),
            Err(_) => Ok(()),
        }
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
                link.only_warn(workspace.spec.sandbox.egress_verification.is_warn());
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

/// JSON lines on the standard error.
pub fn init_logging() {
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::{
        sandbox::{Daemon, Place},
        workspace::default_workspace,
    };

    #[tokio::test]
    async fn a_signal_that_comes_before_the_harness_serves_ends_it_when_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Here {
            socket: folder.path().join("sandbox.sock"),
            daemon: Daemon {
                program: "/nonexistent".into(),
                arguments: Vec::new(),
                log: folder.path().join("sandbox.log"),
            },
        };
        let fallback = default_workspace("test", |_| false);
        let mut harness = Assembly {
            database: folder.path().join("mooring.db"),
            project: folder.path().to_owned(),
            scripts: folder.path().to_owned(),
            source: Arc::new(Source::open(None, fallback, None).unwrap()),
            keys: Arc::new(KeyStore::new()),
            link: Link::new(place, true),
            outside: Outside::new(crate::boundary::Reach::default()),
            git: git::Credentials::None,
            local: false,
        }
        .open()
        .await
        .unwrap();
        // As while decisions of the cluster are caught up with.
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM).unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(30), harness.ended()).await;
        assert!(!ended.expect("it ends").unwrap());
        harness.close(false).await.unwrap();
    }
}
