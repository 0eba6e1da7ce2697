//! The boundary: all that commands in the sandbox send to the world passes here,
//! and is decided here.
//!
//! | part | what |
//! |---|---|
//! | `tunnel` | connections of commands, as the daemon carries them |
//! | `head`, `hello` | what they want, read strictly |
//! | `credential` | whose they are: each execution has its own |
//! | `proxy`, `ask` | the HTTPS allow-list |
//! | `hold` | a command's time limit, while a person is waited for |
//! | `book` | what is kept of each connection, and limits |
//! | `outside`, `address` | the one connector to the world |
//!
//! Everything that comes through the tunnel is untrusted: the daemon shares a pod
//! with the commands.

mod address;
mod ask;
mod begun;
mod book;
mod credential;
mod head;
mod hello;
mod hold;
mod outside;
mod proxy;
mod refusal;
#[cfg(test)]
mod tests;
mod tunnel;

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use mooring_durable::{Engine, error::SessionError, tool::Call};
use mooring_wire::tunnel::Connection;
use tokio::sync::Notify;

pub use address::is_public;
pub use begun::Begun;
pub use credential::{Credentials, Origin};
pub use head::{Head, Target};
pub use hold::Hold;
pub use outside::{ConnectTo, Outside, Reach, Refusal, Resolver};
pub use refusal::Answer;
pub use tunnel::follow;

use self::book::Book;
use crate::{git::Gateway, metrics::Metrics, record::secret, workspace::Source};

/// How long a request's head may take.
const HEAD_PATIENCE: Duration = Duration::from_secs(10);
/// Connections whose head is not there yet; of more, the oldest give way.
const MOST_HEADS: usize = 256;

/// What passes between the sandbox and the world.
pub struct Boundary {
    /// The Workspace in use.
    pub source: Arc<Source>,
    /// Who may speak.
    pub credentials: Credentials,
    /// The world.
    pub outside: Outside,
    /// The Workspace's repositories.
    pub git: Arc<Gateway>,
    book: Arc<Book>,
    engine: OnceLock<Engine>,
    heads: Heads,
}

impl Boundary {
    /// The boundary of one harness.
    pub fn new(
        source: Arc<Source>,
        outside: Outside,
        git: Arc<Gateway>,
        metrics: Arc<Metrics>,
    ) -> Arc<Boundary> {
        Arc::new(Boundary {
            source,
            credentials: Credentials::default(),
            outside,
            git,
            book: Book::new(metrics),
            engine: OnceLock::new(),
            heads: Heads::default(),
        })
    }

    /// The database is open: from now on commands can speak.
    pub async fn opened(&self, engine: &Engine) -> Result<(), SessionError> {
        self.book.opened(engine).await?;
        let _ = self.engine.set(engine.clone());
        self.credentials.opened(secret::key(engine, "proxy").await?);
        Ok(())
    }

    /// What a command needs to speak to the listener at `address`, as variables of
    /// its environment; none where the sandbox has no listener.
    pub fn environment(&self, call: &Call, address: &str) -> Vec<(String, String)> {
        if address.is_empty() {
            return Vec::new();
        }
        let Some(secret) = self.credentials.admit(call) else {
            return Vec::new();
        };
        let proxy = format!("http://{}:{secret}@{address}", call.execution);
        let git = self.git.environment(&proxy);
        let here = "localhost,127.0.0.1,::1";
        [
            ("http_proxy", proxy.as_str()),
            ("https_proxy", &proxy),
            ("HTTP_PROXY", &proxy),
            ("HTTPS_PROXY", &proxy),
            ("no_proxy", here),
            ("NO_PROXY", here),
            // Node's own client asks for this before it looks at the others.
            ("NODE_USE_ENV_PROXY", "1"),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .chain(git)
        .collect()
    }

    /// Serves one connection of a command to its end.
    pub async fn serve(self: Arc<Self>, connection: Connection) {
        let place = self.heads.enter();
        let head = tokio::select! {
            head = head::read(&connection) => head,
            () = tokio::time::sleep(HEAD_PATIENCE) => {
                return Answer::new(408, "the request's head took more than 10 s").send(&connection).await;
            }
            () = place.crowded_out() => {
                return connection.reset("too many connections without a request");
            }
        };
        drop(place);
        let (head, used, read) = match head {
            Ok(read) => read,
            Err(error) => {
                return Answer::new(400, error.to_string()).send(&connection).await;
            }
        };
        self.route(head, used, read, connection).await;
    }

    async fn route(self: Arc<Self>, head: Head, used: usize, read: Bytes, connection: Connection) {
        match &head.target {
            Target::Connect { host, port } => {
                let Some(origin) = self.origin(&head, "proxy-authorization").await else {
                    return stranger(407).send(&connection).await;
                };
                let rest = read.slice(used..);
                tokio::select! {
                    () = self.credentials.ended(&origin) => {}
                    () = proxy::serve(&self, origin.clone(), (host, *port), rest, connection) => {}
                }
            }
            Target::Absolute(_) => {
                let Some(origin) = self.origin(&head, "proxy-authorization").await else {
                    return stranger(407).send(&connection).await;
                };
                let text = "plain HTTP does not leave the sandbox; use https";
                self.credentials.note(&origin, text.to_owned());
                Answer::new(403, text).send(&connection).await;
            }
            Target::Origin(path) if path.starts_with("/git/") => {
                let Some(origin) = self.origin(&head, "authorization").await else {
                    return stranger(401).send(&connection).await;
                };
                let stream = Begun::new(read, connection);
                tokio::select! {
                    () = self.credentials.ended(&origin) => {}
                    () = self.git.clone().serve(origin.clone(), stream) => {}
                }
            }
            Target::Origin(_) => {
                Answer::new(404, "nothing is served here")
                    .send(&connection)
                    .await;
            }
        }
    }

    /// Whose request it is, by the Basic credential in this field.
    async fn origin(&self, head: &Head, field: &str) -> Option<Origin> {
        let (execution, secret) = head.basic(field)?;
        self.credentials.check(&execution, &secret).await
    }
}

/// Who has no credential of a running command.
fn stranger(status: u16) -> Answer {
    let text = "this connection has no credential of a running command; commands find theirs \
                in http_proxy and https_proxy";
    Answer {
        field: Some(match status {
            407 => "Proxy-Authenticate: Basic realm=\"mooring\"",
            _ => "WWW-Authenticate: Basic realm=\"mooring\"",
        }),
        ..Answer::new(status, text)
    }
}

/// Connections that have not said yet what they want.
#[derive(Default)]
struct Heads {
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    places: BTreeMap<u64, Arc<Notify>>,
}

struct HeadPlace<'a> {
    heads: &'a Heads,
    number: u64,
    out: Arc<Notify>,
}

impl Heads {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a newcomer; the oldest goes where there are too many.
    fn enter(&self) -> HeadPlace<'_> {
        let mut waiting = self.lock();
        if waiting.places.len() >= MOST_HEADS
            && let Some((_, oldest)) = waiting.places.pop_first()
        {
            oldest.notify_one();
        }
        let number = waiting.next;
        waiting.next += 1;
        let out = Arc::new(Notify::new());
        waiting.places.insert(number, out.clone());
        drop(waiting);
        HeadPlace {
            heads: self,
            number,
            out,
        }
    }
}

impl HeadPlace<'_> {
    /// Returns where another took the place.
    async fn crowded_out(&self) {
        self.out.notified().await;
    }
}

impl Drop for HeadPlace<'_> {
    fn drop(&mut self) {
        self.heads.lock().places.remove(&self.number);
    }
}
