//! One server: reached, asked for its tools, watched, reached again.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use mooring_crds::McpServer;
use mooring_durable::{
    clock::{Clock, SystemClock},
    id::Millis,
    tool::{ToolEnd, ToolFailure},
};
use rmcp::{
    ClientHandler, RoleClient,
    model::{
        CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
        Implementation, PaginatedRequestParams, PingRequest, ServerResult,
    },
    service::{
        NotificationContext, Peer, PeerRequestOptions, RunningService, ServiceError,
        serve_client_with_ct,
    },
    transport::{async_rw::AsyncRwTransport, streamable_http_client::StreamableHttpError},
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{self, Answer},
    limits::Limits,
    name::tool_name,
    pipe::{Program, Why},
    remote, schema,
};
use crate::{
    boundary::Outside,
    model::KeyStore,
    sandbox::{Link, State},
    workspace::Source,
};

/// Pages of one list of tools.
const PAGES: usize = 64;
/// Bytes of all schemas and descriptions of one server.
const LIST_BYTES: usize = 1 << 20;
/// Between two lists of one server, however often it says that they changed.
const LIST_PAUSE: Duration = Duration::from_secs(1);

/// How a server stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It was not tried yet.
    Starting,
    /// It answers.
    Ready,
    /// It does not.
    Down {
        /// Since when.
        since: Millis,
        /// Why, for people.
        error: String,
    },
}

/// A tool that a server offers, as the model sees it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    /// Its name at the server.
    pub own: String,
    /// Its name here.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// What servers are reached with.
#[derive(Clone)]
pub struct Means {
    /// The sandbox.
    pub link: Arc<Link>,
    /// The Workspace in use.
    pub source: Arc<Source>,
    /// Values of headers.
    pub keys: Arc<KeyStore>,
    /// The connector to the world; without one every address is reached.
    pub outside: Option<Outside>,
    /// How long and how much.
    pub limits: Limits,
}

/// One server.
pub struct Server {
    /// What the Workspace says of it.
    pub spec: McpServer,
    limits: Limits,
    standing: watch::Sender<Standing>,
    peer: Mutex<Option<Peer<RoleClient>>>,
    offers: Mutex<Arc<Vec<Offer>>>,
    /// Calls that wait for its answer.
    calls: AtomicUsize,
    /// Something may have changed for it: it is tried at once.
    wake: Notify,
    /// A call found it gone.
    lost: Notify,
    /// It is not wanted any more.
    pub stop: CancellationToken,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Server {
    /// A server that offers what it offered last.
    pub fn new(spec: McpServer, offers: Vec<Offer>, limits: Limits) -> Arc<Server> {
        Arc::new(Server {
            spec,
            limits,
            standing: watch::Sender::new(Standing::Starting),
            peer: Mutex::default(),
            offers: Mutex::new(Arc::new(offers)),
            calls: AtomicUsize::new(0),
            wake: Notify::new(),
            lost: Notify::new(),
            stop: CancellationToken::new(),
        })
    }

    /// How it stands.
    pub fn standing(&self) -> Standing {
        self.standing.borrow().clone()
    }

    /// What it offers, or offered when it was last reached.
    pub fn offers(&self) -> Arc<Vec<Offer>> {
        lock(&self.offers).clone()
    }

    /// Waits until it was tried to reach it.
    pub async fn tried(&self) {
        let mut standing = self.standing.subscribe();
        tokio::select! {
            _ = standing.wait_for(|standing| *standing != Standing::Starting) => {}
            () = self.stop.cancelled() => {}
        }
    }

    /// It is tried at once where it is down, and again where its headers have changed.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Why it cannot be called now; nothing where it can.
    pub fn unreachable(&self) -> Option<String> {
        if lock(&self.peer).is_some() {
            return None;
        }
        let name = &self.spec.name;
        Some(match self.standing() {
            Standing::Down { error, .. } => format!("the server {name}: {error}"),
            _ => format!("the server {name} is being reached"),
        })
    }

    /// Reaches it and keeps it, until it is not wanted any more. `changed` is called
    /// whenever it stands otherwise or offers something else.
    pub async fn run(self: Arc<Server>, means: Means, changed: impl Fn() + Send + Sync) {
        let mut pause = self.limits.pause;
        let mut since = SystemClock.now();
        loop {
            let begun = tokio::time::Instant::now();
            let ended = tokio::select! {
                ended = self.keep(&means, &changed) => ended,
                () = self.stop.cancelled() => return self.put(None),
            };
            let was_ready = self.standing() == Standing::Ready;
            self.put(None);
            let Ended::Error(error) = ended else {
                // Reached again at once, with other headers.
                continue;
            };
            if was_ready {
                since = SystemClock.now();
            }
            if was_ready && begun.elapsed() > self.limits.longest_pause {
                pause = self.limits.pause;
            }
            tracing::warn!(server = self.spec.name, %error, "an MCP server is not reached");
            self.standing.send_replace(Standing::Down { since, error });
            changed();
            tokio::select! {
                () = self.sandbox_is_back(&means) => pause = self.limits.pause,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(self.limits.longest_pause),
                () = self.wake.notified() => pause = self.limits.pause,
                () = self.stop.cancelled() => return,
            }
        }
    }

    /// Returns once the sandbox of a server that runs there is reached, where it is not now.
    async fn sandbox_is_back(&self, means: &Means) {
        let mut states = means.link.changes();
        let away = |state: &State| matches!(state, State::Down { .. });
        if self.spec.url.is_some() || !away(&states.borrow()) {
            return std::future::pending().await;
        }
        let _ = states.wait_for(|state| !away(state)).await;
    }

    fn put(&self, peer: Option<Peer<RoleClient>>) {
        *lock(&self.peer) = peer;
    }

    /// Serves one connection from its beginning to its end.
    async fn keep(&self, means: &Means, changed: &(impl Fn() + Send + Sync)) -> Ended {
        let news = Arc::new(Notify::new());
        let connection = self.stop.child_token();
        // However this ends, the connection ends with it.
        let _guard = connection.clone().drop_guard();
        let why = Why::default();
        let told = |error: String| {
            Ended::Error(match why.get() {
                why if why.is_empty() => error,
                why => why,
            })
        };
        let headers = match &self.spec.url {
            Some(_) => match remote::headers(&self.spec, &means.keys) {
                Ok(headers) => headers,
                Err(missing) => return Ended::Error(missing),
            },
            None => {
                means.link.tried().await;
                if let State::Down { error, .. } = means.link.state() {
                    return Ended::Error(format!("the sandbox is not reached: {error}"));
                }
                Default::default()
            }
        };
        let opened = tokio::time::timeout(
            self.limits.start,
            self.open(means, headers.clone(), &connection, &news, &why),
        );
        let running = match opened.await {
            Ok(Ok(running)) => running,
            Ok(Err(error)) => return told(error),
            Err(_) => {
                return told(format!(
                    "it said nothing for {} s",
                    self.limits.start.as_secs()
                ));
            }
        };
        let peer = running.peer().clone();
        if let Err(error) = self.list(&peer).await {
            return told(error);
        }
        self.put(Some(peer.clone()));
        self.standing.send_replace(Standing::Ready);
        changed();
        let waiting = running.waiting();
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                _ = &mut waiting => return told("it closed the connection".into()),
                () = news.notified() => {
                    if let Err(error) = self.list(&peer).await {
                        return told(error);
                    }
                    changed();
                    tokio::time::sleep(LIST_PAUSE).await;
                }
                () = self.wake.notified() => {
                    if remote::headers(&self.spec, &means.keys).is_ok_and(|now| now != headers) {
                        return Ended::Anew;
                    }
                }
                () = self.lost.notified() => {
                    if let Err(error) = self.ping(&peer).await {
                        return told(error);
                    }
                }
                () = tokio::time::sleep(self.limits.pulse) => {
                    // One that works on a call may be deaf meanwhile.
                    if self.calls.load(Ordering::Acquire) == 0
                        && let Err(error) = self.ping(&peer).await
                    {
                        return told(error);
                    }
                }
            }
        }
    }

    async fn open(
        &self,
        means: &Means,
        headers: reqwest::header::HeaderMap,
        connection: &CancellationToken,
        news: &Arc<Notify>,
        why: &Why,
    ) -> Result<RunningService<RoleClient, Client>, String> {
        let client = Client(news.clone());
        let ended = connection.clone();
        let served = match &self.spec.url {
            Some(url) => {
                let outside = means.outside.clone();
                let transport = remote::transport(url, headers, outside, self.limits).await?;
                serve_client_with_ct(client, transport, ended).await
            }
            None => {
                let program = Program {
                    server: self.spec.name.clone(),
                    command: self.spec.command.clone(),
                    env: means.source.current().environment(),
                };
                let link = means.link.clone();
                let pipe = program
                    .start(link, self.limits, connection.clone(), why.clone())
                    .await?;
                let (read, write) = tokio::io::split(pipe);
                let transport = AsyncRwTransport::new_client(read, write)
                    .with_max_line_length(self.limits.message);
                serve_client_with_ct(client, transport, ended).await
            }
        };
        served.map_err(|error| chain(&error))
    }

    /// Asks for its tools, within bounds.
    async fn list(&self, peer: &Peer<RoleClient>) -> Result<(), String> {
        let listed = tokio::time::timeout(self.limits.start, self.pages(peer)).await;
        let offers = match listed {
            Ok(listed) => listed?,
            Err(_) => {
                return Err(format!(
                    "it did not list its tools within {} s",
                    self.limits.start.as_secs()
                ));
            }
        };
        *lock(&self.offers) = Arc::new(offers);
        Ok(())
    }

    async fn pages(&self, peer: &Peer<RoleClient>) -> Result<Vec<Offer>, String> {
        let mut offers: Vec<Offer> = Vec::new();
        let (mut cursor, mut bytes) = (None, 0);
        for _ in 0..PAGES {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = match peer.list_tools(Some(params)).await {
                Ok(page) => page,
                // It has none.
                Err(ServiceError::McpError(error)) if error.code.0 == -32601 => break,
                Err(error) => return Err(format!("it does not list its tools: {}", chain(&error))),
            };
            for tool in page.tools {
                let offer = Offer {
                    name: tool_name(&self.spec.name, &tool.name),
                    description: schema::description(
                        tool.description.as_deref().unwrap_or_default(),
                    ),
                    parameters: schema::clean(&tool.input_schema),
                    own: tool.name.into_owned(),
                };
                bytes += offer.description.len() + offer.parameters.to_string().len();
                if offers.len() == self.limits.tools || bytes > LIST_BYTES {
                    tracing::warn!(
                        server = self.spec.name,
                        taken = offers.len(),
                        "an MCP server lists more tools than are taken"
                    );
                    return Ok(offers);
                }
                if offers.iter().all(|other| other.name != offer.name) {
                    offers.push(offer);
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        Ok(offers)
    }

    async fn ping(&self, peer: &Peer<RoleClient>) -> Result<(), String> {
        let request = ClientRequest::PingRequest(PingRequest::default());
        let options = PeerRequestOptions::with_timeout(self.limits.start);
        let answered = match peer.send_request_with_option(request, options).await {
            Ok(handle) => handle.await_response().await.map(drop),
            Err(error) => Err(error),
        };
        match answered {
            // Also a server that does not know the question is there.
            Ok(()) | Err(ServiceError::McpError(_)) => Ok(()),
            Err(ServiceError::Timeout { .. }) => Err("it does not answer any more".into()),
            Err(error) => Err(chain(&error)),
        }
    }

    /// Calls one of its tools.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Value,
        cancel: CancellationToken,
    ) -> Result<Answered, ToolFailure> {
        let peer = lock(&self.peer).clone();
        let Some(peer) = peer else {
            let why = self.unreachable().unwrap_or_default();
            return Err(ToolFailure::Unreachable(why));
        };
        let arguments: Map<String, Value> = arguments.as_object().cloned().unwrap_or_default();
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        let request = ClientRequest::CallToolRequest(CallToolRequest::new(params));
        let options = PeerRequestOptions::with_timeout(self.limits.call)
            .reset_timeout_on_progress()
            .with_max_total_timeout(self.limits.whole);
        self.calls.fetch_add(1, Ordering::AcqRel);
        let _counted = Counted(&self.calls);
        let handle = match peer.send_request_with_option(request, options).await {
            Ok(handle) => handle,
            Err(error) => return self.not_sent(&error).map(Answered::from),
        };
        let id = handle.id.clone();
        let answered = tokio::select! {
            answered = handle.await_response() => answered,
            () = cancel.cancelled() => {
                let params = rmcp::model::CancelledNotificationParam::new(Some(id), Some("the call was stopped".into()));
                let told = peer.notify_cancelled(params);
                let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
                return Err(ToolFailure::Cancelled);
            }
        };
        let end = match answered {
            Ok(ServerResult::CallToolResult(result)) => {
                let Answer { result, whole } = answer::result(result);
                let end = ToolEnd::Completed(result);
                return Ok(Answered { end, whole });
            }
            Ok(_) => Ok(failed(
                "it answered with something that is no result of a call".into(),
            )),
            Err(ServiceError::McpError(error)) => Ok(failed(error.message.into_owned())),
            Err(ServiceError::Timeout { timeout }) => {
                self.lost.notify_one();
                Ok(failed(format!(
                    "It did not answer within {} s; whether it acted is not known.",
                    timeout.as_secs()
                )))
            }
            Err(error) => self.broken(&error),
        };
        end.map(Answered::from)
    }

    /// Nothing of the call has left this process.
    fn not_sent(&self, error: &ServiceError) -> Result<ToolEnd, ToolFailure> {
        self.lost.notify_one();
        Err(ToolFailure::Unreachable(format!(
            "the server {}: {}",
            self.spec.name,
            chain(error)
        )))
    }

    /// The connection broke under the call.
    fn broken(&self, error: &ServiceError) -> Result<ToolEnd, ToolFailure> {
        self.lost.notify_one();
        let text = chain(error);
        if never_arrived(error) {
            return self.not_sent(error);
        }
        if was_answered(error) {
            return Ok(failed(format!("The server did not take the call: {text}")));
        }
        match self.spec.replay {
            mooring_crds::McpReplay::Safe => self.not_sent(error),
            mooring_crds::McpReplay::Never => Ok(ToolEnd::Interrupted {
                note: format!(
                    "The connection to the server {} broke under it: {text}.",
                    self.spec.name
                ),
            }),
        }
    }
}

/// How a call ended.
pub struct Answered {
    /// As the engine takes it.
    pub end: ToolEnd,
    /// The whole text of the result, where the model is shown less.
    pub whole: Option<String>,
}

impl From<ToolEnd> for Answered {
    fn from(end: ToolEnd) -> Answered {
        Answered { end, whole: None }
    }
}

/// Why a connection has ended.
enum Ended {
    /// It broke, or was never made.
    Error(String),
    /// It is to be made anew.
    Anew,
}

struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn failed(text: String) -> ToolEnd {
    ToolEnd::Completed(answer::failed(text))
}

/// An error with what it comes from, each said once.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match text.char_indices().nth(500) {
        None => text,
        Some((cut, _)) => format!("{}…", &text[..cut]),
    }
}

fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Whether no connection was made at all.
fn never_arrived(error: &ServiceError) -> bool {
    let ServiceError::TransportSend(error) = error else {
        return false;
    };
    sources(error.error.as_ref()).any(|error| {
        error
            .downcast_ref::<reqwest::Error>()
            .is_some_and(reqwest::Error::is_connect)
    })
}

/// Whether the server has answered, though with no result.
fn was_answered(error: &ServiceError) -> bool {
    use StreamableHttpError as Http;
    let ServiceError::TransportSend(error) = error else {
        return false;
    };
    sources(error.error.as_ref())
        .find_map(|error| error.downcast_ref::<StreamableHttpError<reqwest::Error>>())
        .is_some_and(|error| {
            matches!(
                error,
                Http::HttpStatus(_)
                    | Http::UnexpectedServerResponse(_)
                    | Http::ResponseBodyTooLarge { .. }
                    | Http::UnexpectedContentType(_)
                    | Http::Deserialize(_)
                    | Http::AuthRequired(_)
                    | Http::InsufficientScope(_)
            )
        })
}

/// This side of the protocol.
struct Client(Arc<Notify>);

impl ClientHandler for Client {
    fn get_info(&self) -> ClientConfig {
        let own = Implementation::new("mooring", env!("CARGO_PKG_VERSION"));
        ClientConfig::new(ClientCapabilities::default(), own)
    }

    async fn on_tool_list_changed(&self, _context: NotificationContext<RoleClient>) {
        self.0.notify_one();
    }
}
