//! Servers that behave badly: each time there is a clear end, bounded memory, and the
//! server can be called again.

#![allow(clippy::unwrap_used)]

use std::{
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::post,
};
use mooring_crds::{McpReplay, McpServer};
use mooring_durable::tool::{ToolEnd, ToolFailure};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    limits::Limits,
    server::{Means, Server, Standing},
};
use crate::{
    model::KeyStore,
    sandbox::{Daemon, Link, Place},
    workspace::{Source, default_workspace},
};

/// How long anything may take before a test gives up on it.
const BOUND: Duration = Duration::from_secs(60);

/// What the stand-in does with a request.
enum Act {
    Result(Value),
    Error(&'static str),
    Raw(String),
    Status(u16),
    /// Messages before the result.
    Events(Vec<Value>, Value),
    /// The connection ends in the middle of the answer.
    Cut,
    Hang,
}

type Behave = dyn Fn(&str, &Value) -> Act + Send + Sync;

struct Stand {
    behave: Box<Behave>,
    seen: Mutex<Vec<Value>>,
}

async fn answer(State(stand): State<Arc<Stand>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    stand.seen.lock().unwrap().push(request.clone());
    let id = request["id"].clone();
    let method = request["method"].as_str().unwrap_or_default().to_owned();
    if id.is_null() {
        return StatusCode::ACCEPTED.into_response();
    }
    let reply = |result: Value| json!({"jsonrpc": "2.0", "id": id, "result": result});
    let as_json = |text: String| ([("content-type", "application/json")], text).into_response();
    let act = match method.as_str() {
        "initialize" => Act::Result(json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "stand-in", "version": "1"},
        })),
        _ => (stand.behave)(&method, &request["params"]),
    };
    match act {
        Act::Result(result) => as_json(reply(result).to_string()),
        Act::Error(message) => as_json(
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": message}})
                .to_string(),
        ),
        Act::Raw(text) => as_json(text),
        Act::Status(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Act::Events(before, result) => {
            let all = before.into_iter().chain([reply(result)]);
            let text: String = all.map(|message| format!("data: {message}\n\n")).collect();
            ([("content-type", "text/event-stream")], text).into_response()
        }
        Act::Cut => {
            let pieces = futures::stream::iter([
                Ok(Bytes::from_static(b"{\"jsonrpc\":")),
                Err(std::io::Error::other("cut")),
            ]);
            let mut response = Body::from_stream(pieces).into_response();
            let kind = "application/json".parse().unwrap();
            response.headers_mut().insert("content-type", kind);
            response
        }
        Act::Hang => std::future::pending().await,
    }
}

/// Serves at `port`, or at any.
async fn serve(
    port: u16,
    behave: impl Fn(&str, &Value) -> Act + Send + Sync + 'static,
) -> (u16, Arc<Stand>) {
    let stand = Arc::new(Stand {
        behave: Box::new(behave),
        seen: Mutex::default(),
    });
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port))
        .await
        .unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = Router::new()
        .route("/", post(answer))
        .with_state(stand.clone());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (port, stand)
}

fn tool(name: &str) -> Value {
    json!({"name": name, "description": "A tool.", "inputSchema": {"type": "object"}})
}

fn fine() -> Act {
    Act::Result(json!({"content": [{"type": "text", "text": "fine"}]}))
}

struct Kept {
    server: Arc<Server>,
    changed: Arc<Notify>,
}

impl Kept {
    fn new(port: u16, replay: McpReplay) -> Kept {
        let limits = Limits {
            start: Duration::from_secs(10),
            call: Duration::from_secs(2),
            message: 1 << 20,
            tools: 50,
            pause: Duration::from_millis(10),
            longest_pause: Duration::from_millis(50),
            ..Limits::default()
        };
        let spec = McpServer {
            name: "s".into(),
            url: Some(format!("http://127.0.0.1:{port}/")),
            replay,
            ..McpServer::default()
        };
        let server = Server::new(spec, Vec::new(), limits);
        let place = Place::Here {
            socket: PathBuf::from("/nowhere"),
            daemon: Daemon {
                program: PathBuf::from("/nowhere"),
                arguments: Vec::new(),
                log: PathBuf::from("/nowhere"),
            },
        };
        let means = Means {
            link: Link::new(place, false),
            source: Arc::new(Source::open(None, default_workspace("x", |_| false), None).unwrap()),
            keys: Arc::new(KeyStore::new()),
            outside: None,
            limits,
        };
        let changed = Arc::new(Notify::new());
        let rung = changed.clone();
        tokio::spawn(server.clone().run(means, move || rung.notify_one()));
        Kept { server, changed }
    }

    async fn until(&self, what: &str, seen: impl Fn(&Server) -> bool) {
        let waited = tokio::time::timeout(BOUND, async {
            while !seen(&self.server) {
                self.changed.notified().await;
            }
        });
        if waited.await.is_err() {
            panic!("waited for {what} in vain: {:?}", self.server.standing());
        }
    }

    async fn ready(&self) {
        self.until("the server", |server| server.standing() == Standing::Ready)
            .await;
    }

    async fn call(&self, tool: &str) -> Result<ToolEnd, ToolFailure> {
        self.ready().await;
        let arguments = json!({"a": 1});
        let call = self.server.call(tool, &arguments, CancellationToken::new());
        tokio::time::timeout(BOUND, call)
            .await
            .expect("every call ends")
            .map(|answered| answered.end)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.server.stop.cancel();
    }
}

/// How a call ended, in a few words.
fn told(end: Result<ToolEnd, ToolFailure>) -> String {
    match end {
        Ok(ToolEnd::Completed(result)) => {
            let word = if result.is_error { "error" } else { "done" };
            format!("{word}: {}", crate::books::plain(&result.content))
        }
        Ok(ToolEnd::Interrupted { note }) => format!("interrupted: {note}"),
        Ok(other) => format!("{other:?}"),
        Err(ToolFailure::Unreachable(text)) => format!("unreachable: {text}"),
        Err(failure) => format!("{failure:?}"),
    }
}

#[tokio::test]
async fn a_call_has_a_clear_end_whatever_the_server_does() {
    let (port, stand) = serve(0, |method, params| {
        match (method, params["name"].as_str()) {
            ("tools/list", _) => Act::Result(json!({"tools": [tool("fine")]})),
            (_, Some("hang")) => Act::Hang,
            (_, Some("flood")) => {
                Act::Result(json!({"content": [{"type": "text", "text": "x".repeat(3 << 20)}]}))
            }
            (_, Some("long")) => Act::Result(
                json!({"content": [{"type": "text", "text": "line\n".repeat(150_000)}]}),
            ),
            (_, Some("garbage")) => Act::Raw("{\"jsonrpc\": \"2.0\", oh no".into()),
            (_, Some("page")) => Act::Raw("<html>".into()),
            (_, Some("refuse")) => Act::Error("no such table"),
            (_, Some("status")) => Act::Status(503),
            (_, Some("login")) => Act::Status(401),
            (_, Some("cut")) => Act::Cut,
            _ => fine(),
        }
    })
    .await;
    for (replay, tool, expected) in [
        (McpReplay::Never, "fine", "done: fine"),
        (
            McpReplay::Never,
            "hang",
            "error: It did not answer within 2 s",
        ),
        (
            McpReplay::Never,
            "flood",
            "error: The server did not take the call",
        ),
        (McpReplay::Never, "long", "done: line\nline\n"),
        (
            McpReplay::Never,
            "garbage",
            "error: The server did not take the call",
        ),
        (
            McpReplay::Never,
            "page",
            "error: The server did not take the call",
        ),
        (McpReplay::Never, "refuse", "error: no such table"),
        (
            McpReplay::Never,
            "status",
            "error: The server did not take the call",
        ),
        (
            McpReplay::Never,
            "login",
            "error: The server did not take the call",
        ),
        (McpReplay::Never, "cut", "interrupted: The connection"),
        (McpReplay::Safe, "cut", "unreachable: the server s"),
    ] {
        let kept = Kept::new(port, replay);
        let end = told(kept.call(tool).await);
        assert!(end.starts_with(expected), "{tool}: {end}");
        assert!(end.len() < 60 * 1024, "{tool}: {} bytes", end.len());
        assert_eq!(told(kept.call("fine").await), "done: fine", "after {tool}");
    }
    let seen = stand.seen.lock().unwrap();
    let call = seen
        .iter()
        .find(|request| request["method"] == "tools/call");
    assert_eq!(call.unwrap()["params"]["arguments"], json!({"a": 1}));
}

#[tokio::test]
async fn a_flood_of_tools_is_cut_and_the_list_follows_what_the_server_says() {
    let (port, _stand) = serve(0, |method, params| match method {
        "tools/list" => {
            // Pages without end.
            let page: u64 = params["cursor"]
                .as_str()
                .map_or(0, |page| page.parse().unwrap());
            let tools: Vec<Value> = (0..20).map(|at| tool(&format!("t{page}_{at}"))).collect();
            Act::Result(json!({"tools": tools, "nextCursor": format!("{}", page + 1)}))
        }
        _ => fine(),
    })
    .await;
    let kept = Kept::new(port, McpReplay::Never);
    kept.ready().await;
    assert_eq!(kept.server.offers().len(), 50);

    let asked = std::sync::atomic::AtomicUsize::new(0);
    let (port, _stand) = serve(0, move |method, _| match method {
        "tools/list" => {
            let before = asked.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let name = if before == 0 { "old" } else { "new" };
            Act::Result(json!({"tools": [tool(name), tool(name)]}))
        }
        _ => {
            let news = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
            Act::Events(vec![news], json!({"content": []}))
        }
    })
    .await;
    let kept = Kept::new(port, McpReplay::Never);
    kept.ready().await;
    let names = |server: &Server| -> Vec<String> {
        server
            .offers()
            .iter()
            .map(|offer| offer.name.clone())
            .collect()
    };
    assert_eq!(names(&kept.server), ["mcp__s__old"]);
    assert_eq!(told(kept.call("old").await), "done: (nothing)");
    kept.until("the new list", |server| names(server) == ["mcp__s__new"])
        .await;
}

#[tokio::test]
async fn a_server_that_is_down_is_seen_and_reached_again() {
    // A port that nobody listens at.
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let kept = Kept::new(port, McpReplay::Never);
    kept.until("the failure", |server| {
        matches!(server.standing(), Standing::Down { .. })
    })
    .await;
    let why = kept.server.unreachable().unwrap();
    assert!(why.starts_with("the server s: "), "{why}");
    let end = kept
        .server
        .call("fine", &json!({}), CancellationToken::new())
        .await
        .map(|answered| answered.end);
    assert!(told(end).starts_with("unreachable"));
    let (_, _stand) = serve(port, |method, _| match method {
        "tools/list" => Act::Error("no tools today"),
        _ => fine(),
    })
    .await;
    kept.until("the other failure", |server| {
        matches!(server.standing(), Standing::Down { error, .. } if error.contains("no tools today"))
    })
    .await;
}

#[tokio::test]
async fn a_call_that_is_stopped_ends_and_the_server_is_told() {
    let (port, stand) = serve(0, |method, _| match method {
        "tools/list" => Act::Result(json!({"tools": []})),
        _ => Act::Hang,
    })
    .await;
    let kept = Kept::new(port, McpReplay::Never);
    kept.ready().await;
    let cancel = CancellationToken::new();
    cancel.cancel();
    let end = kept.server.call("x", &json!({}), cancel).await;
    let end = end.map(|answered| answered.end);
    assert_eq!(end, Err(ToolFailure::Cancelled));
    let heard = || {
        let seen = stand.seen.lock().unwrap();
        seen.iter()
            .any(|request| request["method"] == "notifications/cancelled")
    };
    let waited = tokio::time::timeout(BOUND, async {
        while !heard() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("the server is told");
}
