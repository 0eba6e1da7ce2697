//! Requests that are being served, for a process that ends when nobody needs it.

use std::{sync::Arc, time::Duration};

use mooring_durable::Engine;

/// Requests that are being served, and when the last one ended.
#[derive(Default)]
pub struct Clients {
    open: std::sync::atomic::AtomicUsize,
    left: tokio::sync::Notify,
}

/// Returns once nobody has called for `patience` and nothing runs.
pub async fn idle(clients: &Clients, engine: &Engine, patience: Duration) {
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
pub struct CountLayer(pub Arc<Clients>);

impl<S> tower::Layer<S> for CountLayer {
    type Service = Count<S>;
    fn layer(&self, inner: S) -> Count<S> {
        Count {
            inner,
            clients: self.0.clone(),
        }
    }
}

/// What [`CountLayer`] makes.
#[derive(Clone)]
pub struct Count<S> {
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
