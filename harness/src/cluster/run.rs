//! One harness process in a cluster, from its start to its end.

use std::sync::Arc;

use mooring_wire::tls::{self, Credentials, Identity, Role};
use tokio::signal::unix::{SignalKind, signal};
use tonic::transport::Server;

use super::{
    Settings,
    approvals::Mirror,
    caller::{CallerLayer, Callers},
    health::Health,
    secrets::Secrets,
    surroundings,
    workspace::Watched,
};
use crate::{
    assembly::{Assembly, Harness, init_logging},
    boundary::Outside,
    error::Error,
    git,
    model::KeyStore,
    sandbox::{Link, Place},
    workspace::Source,
};

/// Where the sandbox has the project.
const PROJECT: &str = "/work/project";

/// Serves one Workspace until a signal comes. An error after the session has
/// failed asks for a new process; that carries on from the last commit.
pub async fn run(settings: Settings) -> Result<(), Error> {
    init_logging();
    tls::install_provider();
    let told = |error: std::io::Error| Error::Serve(error.to_string());
    let mut terminate = signal(SignalKind::terminate()).map_err(told)?;
    let health = Health::default();
    health.waits("starting");
    let http = listen(settings.http).await?;
    let routes = health.routes();
    tokio::spawn(async move { axum::serve(http, routes).await });
    let opened = tokio::select! {
        opened = open(&settings, &health) => opened?,
        // Without a handler, the first process of a pod would not notice.
        _ = terminate.recv() => return Ok(()),
    };
    serve(&settings, &health, opened).await
}

struct Opened {
    harness: Harness,
    mirror: Mirror,
    watched: Watched,
    secrets: Secrets,
    credentials: Arc<Credentials>,
}

async fn open(settings: &Settings, health: &Health) -> Result<Opened, Error> {
    let credentials =
        Credentials::load(&settings.tls).map_err(|error| Error::Serve(error.to_string()))?;
    let client = kube::Client::try_default()
        .await
        .map_err(|error| Error::Serve(format!("no way to the API server: {error}")))?;
    let mut watched = Watched::new(
        client.clone(),
        &settings.namespace,
        &settings.workspace,
        &settings.data,
    );
    let workspace = watched.first(|why| health.waits(why)).await;
    let keys = Arc::new(KeyStore::new());
    let secrets = Secrets::new(settings.keys.clone(), keys.clone());
    secrets.load(&workspace.spec);
    let sandbox = Identity {
        role: Role::Sandbox,
        workspace: Some(settings.workspace.clone()),
        namespace: settings.namespace.clone(),
    };
    let place = Place::Pod {
        address: settings.sandbox.clone(),
        name: sandbox.to_string(),
        credentials: credentials.clone(),
        aims: surroundings::aims(settings.listen.port()),
    };
    health.waits("opening the database");
    let harness = Assembly {
        database: settings.data.join("mooring.db"),
        project: PROJECT.into(),
        scripts: settings.data.clone(),
        source: Arc::new(Source::of_cluster(workspace.clone())),
        keys,
        link: Link::new(place, false),
        outside: Outside::new(settings.reach()),
        git: git::Credentials::Secret {
            folder: settings.keys.clone(),
        },
        local: false,
    }
    .open()
    .await?;
    let mirror = Mirror::new(client, harness.service().clone(), &workspace);
    Ok(Opened {
        harness,
        mirror,
        watched,
        secrets,
        credentials,
    })
}

async fn serve(settings: &Settings, health: &Health, opened: Opened) -> Result<(), Error> {
    let Opened {
        mut harness,
        mut mirror,
        watched,
        secrets,
        credentials,
    } = opened;
    let callers = Callers::new(
        &settings.workspace,
        &settings.namespace,
        &settings.installation,
    );
    let listener = listen(settings.listen).await?;
    let incoming = tls::incoming(listener, credentials, &callers.names())
        .map_err(|error| Error::Serve(error.to_string()))?;
    let service = harness.service().clone();
    tokio::spawn(watched.follow(service.source.clone()));
    let (source, engine) = (service.source.clone(), service.engine.clone());
    let servers = service.servers.clone();
    tokio::spawn(async move {
        secrets
            .follow(
                || source.current(),
                || {
                    engine.models_changed();
                    servers.wake();
                },
            )
            .await;
    });
    mirror.catch_up().await;
    harness.start();
    tokio::spawn(mirror.run());
    health.serves(service);
    tracing::info!(
        workspace = settings.workspace,
        namespace = settings.namespace,
        "the harness serves"
    );
    let server = Server::builder()
        .layer(CallerLayer(callers))
        .add_service(harness.grpc());
    let result = tokio::select! {
        ended = server.serve_with_incoming(incoming) => {
            Err(Error::Serve(ended.err().map(|error| error.to_string()).unwrap_or_default()))
        }
        ended = harness.ended() => ended.map(drop),
    };
    result.and(harness.close(false).await)
}

async fn listen(address: std::net::SocketAddr) -> Result<tokio::net::TcpListener, Error> {
    tokio::net::TcpListener::bind(address)
        .await
        .map_err(|error| Error::Serve(format!("listening on {address}: {error}")))
}
