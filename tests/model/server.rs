//! The server: records, chooses a reply, and plays it or its fault.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{DefaultBodyLimit, State},
    http::{HeaderMap, Response, Uri},
    routing::post,
};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

use super::{Fault, Reply, anthropic, fault, openai};

/// The key that the server refuses; it takes every other one.
pub const WRONG_KEY: &str = "wrong-key";

/// Bytes of one frame of an answer without end.
const HUGE_PIECE: usize = 64 * 1024;

/// Whose wire a request spoke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// `/v1/chat/completions`.
    OpenAi,
    /// `/v1/messages`.
    Anthropic,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Whose wire it spoke.
    pub wire: Wire,
    /// Path and query.
    pub uri: String,
    /// Headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Bytes,
    /// The body; null where it is no JSON.
    pub json: Value,
    /// The status that it was answered with.
    pub status: u16,
}

/// What a check found of the conversation.
#[derive(Debug, Default)]
pub(super) struct Conversation {
    pub(super) first_user: Option<String>,
    pub(super) answers: usize,
}

/// Why a request is refused.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// A model server on loopback; it ends when it is dropped.
pub struct ModelServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

struct Shared {
    state: Mutex<Scene>,
    count: watch::Sender<usize>,
}

#[derive(Default)]
struct Scene {
    scripts: Vec<Script>,
    queue: VecDeque<Planned>,
    requests: Vec<Recorded>,
}

struct Script {
    marker: String,
    turns: Vec<Planned>,
}

/// A reply and how many attempts have come.
struct Planned {
    reply: Reply,
    attempts: usize,
}

impl Planned {
    fn new(reply: Reply) -> Planned {
        Planned { reply, attempts: 0 }
    }

    fn next(&mut self) -> (Reply, Option<Fault>) {
        let fault = self.reply.faults.get(self.attempts).cloned();
        self.attempts += 1;
        (self.reply.clone(), fault)
    }
}

impl ModelServer {
    /// Starts a server at a port that the kernel chooses.
    pub async fn start() -> ModelServer {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        let address = listener
            .local_addr()
            .expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            count: watch::Sender::new(0),
        });
        let router = Router::new()
            .route("/v1/chat/completions", post(chat_completions))
            .route("/v1/messages", post(messages))
            .layer(DefaultBodyLimit::max(64 * 1024 * 1024))
            .with_state(shared.clone());
        let task = tokio::spawn(async move {
            axum::serve(listener, router)
                .await
                .expect("serving ends only with the task");
        });
        ModelServer {
            address,
            shared,
            task,
        }
    }

    /// Its address without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The `endpoint` for `provider: openai`.
    pub fn openai_url(&self) -> String {
        format!("{}/v1", self.url())
    }

    /// The `endpoint` for `provider: anthropic`.
    pub fn anthropic_url(&self) -> String {
        self.url()
    }

    /// Plays these turns to conversations whose first user message has `marker`
    /// in it; a later script of the same marker takes its place.
    pub fn script(&self, marker: &str, turns: impl IntoIterator<Item = Reply>) {
        let turns = turns.into_iter().map(Planned::new).collect();
        let mut scene = self.shared.scene();
        scene.scripts.retain(|script| script.marker != marker);
        scene.scripts.push(Script {
            marker: marker.to_owned(),
            turns,
        });
    }

    /// Plays this reply to the next conversation that has no script.
    pub fn queue(&self, reply: Reply) {
        self.shared.scene().queue.push_back(Planned::new(reply));
    }

    /// All requests so far, in the order in which they came.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.scene().requests.clone()
    }

    /// Waits until there are at least `count` requests; panics after `bound`.
    pub async fn wait_for_requests(&self, count: usize, bound: Duration) {
        let mut seen = self.shared.count.subscribe();
        let waited = tokio::time::timeout(bound, seen.wait_for(|now| *now >= count)).await;
        let now = self.shared.scene().requests.len();
        assert!(
            waited.is_ok(),
            "{now} of {count} requests came within {bound:?}"
        );
    }
}

impl Drop for ModelServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    fn scene(&self) -> MutexGuard<'_, Scene> {
        self.state
            .lock()
            .expect("no code panics while it holds the scene")
    }
}

async fn chat_completions(
    state: State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    answer(Wire::OpenAi, state, uri, headers, body)
}

async fn messages(
    state: State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    answer(Wire::Anthropic, state, uri, headers, body)
}

fn answer(
    wire: Wire,
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let json: Value = serde_json::from_slice(&body).unwrap_or_default();
    let mut scene = shared.scene();
    let response = match admitted(wire, &headers, &json)
        .and_then(|conversation| scene.choose(wire, &conversation))
    {
        Err(refused) => plain(refused.status, refused.body.to_string(), None),
        Ok((reply, fault)) => play(wire, &json, &reply, fault),
    };
    let text = |value: &axum::http::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    scene.requests.push(Recorded {
        wire,
        uri: uri.to_string(),
        headers: headers
            .iter()
            .map(|(name, value)| (name.as_str().to_owned(), text(value)))
            .collect(),
        body,
        json,
        status: response.status().as_u16(),
    });
    shared.count.send_replace(scene.requests.len());
    response
}

/// Key and version, then the request itself.
fn admitted(wire: Wire, headers: &HeaderMap, json: &Value) -> Result<Conversation, Refused> {
    let header = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
    };
    let key = match wire {
        Wire::OpenAi => header("authorization")
            .strip_prefix("Bearer ")
            .unwrap_or_default(),
        Wire::Anthropic => header("x-api-key"),
    };
    if key.is_empty() || key == WRONG_KEY {
        return Err(Refused {
            status: 401,
            body: fault::body(wire, 401),
        });
    }
    match wire {
        Wire::OpenAi => openai::check(json),
        Wire::Anthropic if header("anthropic-version") != "2023-06-01" => Err(Refused {
            status: 400,
            body: json!({"type": "error", "error": {"type": "invalid_request_error", "message": "anthropic-version: header is required"}}),
        }),
        Wire::Anthropic => anthropic::check(json),
    }
}

impl Scene {
    fn choose(
        &mut self,
        wire: Wire,
        conversation: &Conversation,
    ) -> Result<(Reply, Option<Fault>), Refused> {
        let first = conversation.first_user.as_deref().unwrap_or_default();
        let lacking = |what: String| {
            let message = json!({"message": what, "type": "invalid_request_error"});
            let body = match wire {
                Wire::OpenAi => json!({"error": message}),
                Wire::Anthropic => json!({"type": "error", "error": message}),
            };
            Refused { status: 400, body }
        };
        if let Some(script) = self
            .scripts
            .iter_mut()
            .find(|script| first.contains(&script.marker))
        {
            let turn = script.turns.get_mut(conversation.answers);
            let turn = turn.ok_or_else(|| {
                lacking(format!(
                    "the stand-in has no turn {} of `{}`",
                    conversation.answers + 1,
                    script.marker
                ))
            })?;
            return Ok(turn.next());
        }
        let next = self
            .queue
            .front_mut()
            .ok_or_else(|| lacking(format!("the stand-in has no script for {first:?}")))?;
        let chosen = next.next();
        if chosen.1.is_none() {
            self.queue.pop_front();
        }
        Ok(chosen)
    }
}

fn play(wire: Wire, request: &Value, reply: &Reply, fault: Option<Fault>) -> Response<Body> {
    let frames = match wire {
        Wire::OpenAi => openai::frames(reply, request),
        Wire::Anthropic => anthropic::frames(reply, request),
    };
    let first = |count: usize| frames.iter().take(count).cloned().collect::<Vec<_>>();
    let error = |kind: &str| match wire {
        Wire::OpenAi => openai::error(kind),
        Wire::Anthropic => anthropic::error(kind),
    };
    match fault {
        None => events(paced(frames, reply.pace)),
        Some(Fault::Status {
            status,
            retry_after,
        }) => plain(
            status,
            fault::body(wire, status).to_string(),
            retry_after.as_deref(),
        ),
        Some(Fault::Body { status, body }) => plain(status, body, None),
        Some(Fault::Redirect { to }) => {
            let redirect = Response::builder().status(307).header("location", to);
            redirect
                .body(Body::empty())
                .expect("an address is a header's value")
        }
        Some(Fault::Overflow) => plain(400, fault::overflow(wire).to_string(), None),
        Some(Fault::Cut { after }) => {
            let cut = stream::once(async {
                // What came before is sent first.
                tokio::task::yield_now().await;
                Err(std::io::Error::other("the stand-in cuts the stream"))
            });
            events(paced(first(after), reply.pace).chain(cut))
        }
        Some(Fault::End { after }) => events(paced(first(after), reply.pace)),
        Some(Fault::Stall { after }) => {
            events(paced(first(after), reply.pace).chain(stream::pending()))
        }
        Some(Fault::Event { after, kind }) => {
            let mut frames = first(after);
            frames.push(error(&kind));
            events(paced(frames, reply.pace))
        }
        Some(Fault::Garbage { after }) => {
            let mut frames = first(after);
            let name = if wire == Wire::Anthropic {
                "event: content_block_delta\n"
            } else {
                ""
            };
            frames.push(format!("{name}data: {{broken\n\n"));
            events(paced(frames, reply.pace))
        }
        Some(Fault::Huge { bytes }) => events(without_end(wire, bytes, false)),
        Some(Fault::HugeArguments { bytes }) => events(without_end(wire, bytes, true)),
    }
}

type Frame = Result<Bytes, std::io::Error>;

fn paced(frames: Vec<String>, pace: Duration) -> impl Stream<Item = Frame> + Send + 'static {
    stream::iter(frames).then(move |frame| async move {
        if pace.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(pace).await;
        }
        Ok(Bytes::from(frame))
    })
}

fn without_end(
    wire: Wire,
    bytes: usize,
    in_arguments: bool,
) -> impl Stream<Item = Frame> + Send + 'static {
    let begin = match wire {
        Wire::OpenAi => openai::begin(in_arguments),
        Wire::Anthropic => anthropic::begin(in_arguments),
    };
    let piece = "x".repeat(HUGE_PIECE);
    let more = match wire {
        Wire::OpenAi => openai::more(&piece, in_arguments),
        Wire::Anthropic => anthropic::more(&piece, in_arguments),
    };
    let more = Bytes::from(more);
    let count = bytes.div_ceil(HUGE_PIECE);
    stream::iter(
        begin
            .into_iter()
            .map(Bytes::from)
            .chain(std::iter::repeat_n(more, count)),
    )
    .map(Ok)
}

fn events(frames: impl Stream<Item = Frame> + Send + 'static) -> Response<Body> {
    let response = Response::builder().header("content-type", "text/event-stream");
    response
        .body(Body::from_stream(frames))
        .expect("the headers are well formed")
}

fn plain(status: u16, body: String, retry_after: Option<&str>) -> Response<Body> {
    let mut response = Response::builder()
        .status(status)
        .header("content-type", "application/json");
    if let Some(after) = retry_after {
        response = response.header("retry-after", after);
    }
    response
        .body(Body::from(body))
        .expect("the headers are well formed")
}
