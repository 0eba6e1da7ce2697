//! The server: its listener, its shared state, and connections that can be cut.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::ServiceExt;

use crate::world::World;

/// A response with this extension is never sent: the connection is cut.
#[derive(Clone, Copy)]
pub(crate) struct Cut;

/// The world behind its lock, and a signal that it changed.
#[derive(Clone)]
pub struct Shared {
    world: Arc<Mutex<World>>,
    changed: Arc<watch::Sender<u64>>,
}

impl Shared {
    /// Reads the world.
    pub fn look<T>(&self, look: impl FnOnce(&World) -> T) -> T {
        look(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Changes the world, and wakes who waits in [`Shared::until`].
    pub fn act<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        let done = act(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|count| *count += 1);
        done
    }

    /// Waits until `found` finds something in the world; `None` after `bound`.
    pub async fn until<T>(
        &self,
        bound: Duration,
        mut found: impl FnMut(&World) -> Option<T>,
    ) -> Option<T> {
        let mut changes = self.changed.subscribe();
        tokio::time::timeout(bound, async {
            loop {
                if let Some(found) = self.look(&mut found) {
                    return found;
                }
                if changes.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        })
        .await
        .ok()
    }
}

/// A running stand-in; it stops when dropped.
pub struct StandIn {
    shared: Shared,
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl std::ops::Deref for StandIn {
    type Target = Shared;
    fn deref(&self) -> &Shared {
        &self.shared
    }
}

impl StandIn {
    /// Starts it on loopback; port 0 lets the kernel choose one.
    pub async fn start(port: u16) -> std::io::Result<StandIn> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let address = listener.local_addr()?;
        let world = World {
            address: format!("http://{address}"),
            ..World::default()
        };
        let shared = Shared {
            world: Arc::new(Mutex::new(world)),
            changed: Arc::new(watch::Sender::new(0)),
        };
        let router = Router::new()
            .merge(crate::rest::routes())
            .route("/", axum::routing::get(crate::gateway::connect))
            .nest("/control", crate::control::routes())
            .with_state(shared.clone());
        let task = tokio::spawn(accept(listener, router));
        Ok(StandIn {
            shared,
            address,
            task,
        })
    }

    /// `http://127.0.0.1:port`: in front of `/api/v10/…`.
    pub fn rest(&self) -> String {
        format!("http://{}", self.address)
    }

    /// `ws://127.0.0.1:port`.
    pub fn gateway(&self) -> String {
        format!("ws://{}", self.address)
    }
}

async fn accept(listener: TcpListener, router: Router) {
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            continue;
        };
        let _ = stream.set_nodelay(true);
        let router = router.clone();
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
                answer(router.clone(), request.map(Body::new))
            });
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .with_upgrades()
                .await;
        });
    }
}

/// An error here makes hyper drop the connection without an answer.
async fn answer(router: Router, request: Request) -> Result<Response, std::io::Error> {
    let response = match router.oneshot(request).await {
        Ok(response) => response,
        Err(never) => {
            let never: Infallible = never;
            match never {}
        }
    };
    match response.extensions().get::<Cut>() {
        Some(Cut) => Err(std::io::Error::other("cut by script")),
        None => Ok(response),
    }
}
