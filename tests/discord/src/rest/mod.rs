//! The REST side: one entry that authenticates, limits, lets faults happen and
//! writes the ledger, and a file for each family of routes.

mod answer;
mod channels;
mod commands;
mod form;
mod guilds;
mod interactions;
mod messages;

use std::collections::HashMap;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use serde_json::{Value, json};

use crate::Shared;
use crate::clock::Id;
use crate::fault::{FaultKind, meet};
use crate::ledger::Write;
use crate::limit::{Scope, Told};
use crate::serve::Cut;
use crate::world::World;
use answer::{Done, Refusal};

/// Bytes of a request that are read at all.
const BODY: usize = 64 << 20;

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/api/v10/{*path}", any(enter))
        .route("/attachments/{channel}/{file}/{name}", get(attachment))
        .layer(axum::extract::DefaultBodyLimit::max(BODY))
}

/// A request as the routes see it.
pub(crate) struct Call<'a> {
    /// The application whose token came with it; 0 without one.
    pub application: Id,
    pub method: &'a str,
    pub path: Vec<&'a str>,
    pub query: &'a HashMap<String, String>,
    pub body: &'a Value,
    pub files: Vec<(String, Bytes)>,
}

async fn enter(State(shared): State<Shared>, request: Request) -> Response {
    let method = request.method().clone();
    let path = request
        .uri()
        .path()
        .trim_start_matches("/api/v10")
        .to_owned();
    let query = Query::<HashMap<String, String>>::try_from_uri(request.uri())
        .map(|query| query.0)
        .unwrap_or_default();
    let headers = request.headers().clone();
    let (body, files, size) = match read(request).await {
        Ok(read) => read,
        Err(refusal) => return refusal.respond(),
    };
    let fault = shared.act(|world| meet(&mut world.faults, method.as_str(), &path));
    match &fault {
        Some(FaultKind::CutBefore) => {
            shared.act(|world| {
                note(world, 0, &method, &path, &body, 0, fault.as_ref());
            });
            return cut();
        }
        Some(FaultKind::Status {
            status,
            body: answer,
        }) => {
            shared.act(|world| {
                note(world, 0, &method, &path, &body, *status, fault.as_ref());
            });
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::BAD_GATEWAY);
            return (status, axum::Json(answer.clone())).into_response();
        }
        _ => {}
    }
    let mut body = body;
    if let Some(FaultKind::Truncate { chars }) = fault
        && let Some(content) = body["content"].as_str()
    {
        body["content"] = content.chars().take(chars).collect::<String>().into();
    }
    let decoded = percent_decode(&path);
    let response = shared.act(|world| {
        perform(
            world,
            &method,
            &headers,
            &decoded,
            &query,
            &body,
            files,
            size,
            fault.as_ref(),
        )
    });
    match fault {
        Some(FaultKind::CommitThenCut) => cut(),
        Some(FaultKind::CommitThenStatus { status }) => StatusCode::from_u16(status)
            .unwrap_or(StatusCode::BAD_GATEWAY)
            .into_response(),
        Some(FaultKind::Delay { ms }) => {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            response
        }
        _ => response,
    }
}

fn cut() -> Response {
    let mut response = Response::default();
    response.extensions_mut().insert(Cut);
    response
}

type Read = (Value, Vec<(String, Bytes)>, usize);

/// The JSON of a request and its files, whichever way it is encoded.
async fn read(request: Request) -> Result<Read, Refusal> {
    let boundary = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("multipart/form-data"))
        .and_then(|value| value.split_once("boundary="))
        .map(|(_, boundary)| boundary.trim_matches('"').to_owned());
    let body = Bytes::from_request(request, &())
        .await
        .map_err(|_| Refusal::too_large())?;
    let size = body.len();
    if size == 0 {
        return Ok((Value::Null, vec![], 0));
    }
    match boundary {
        Some(boundary) => form::read(&body, &boundary).map(|(value, files)| (value, files, size)),
        None => {
            let value = serde_json::from_slice(&body).map_err(|_| Refusal::not_json())?;
            Ok((value, vec![], size))
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "the parts of one request")]
fn perform(
    world: &mut World,
    method: &Method,
    headers: &HeaderMap,
    path: &str,
    query: &HashMap<String, String>,
    body: &Value,
    files: Vec<(String, Bytes)>,
    size: usize,
    fault: Option<&FaultKind>,
) -> Response {
    let token = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.strip_prefix("Bot "));
    let application = token
        .and_then(|token| world.by_token(token))
        .map_or(0, |found| found.id);
    let call = Call {
        application,
        method: method.as_str(),
        path: path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .collect(),
        query,
        body,
        files,
    };
    let open = matches!(call.path.first(), Some(&"interactions" | &"webhooks"))
        || call.path[..] == ["gateway"];
    let (route, major) = bucket(&call);
    let mut told = None;
    let result = if world.rest_down {
        Err(Refusal::unavailable())
    } else if application == 0 && !open {
        Err(Refusal::unauthorized())
    } else {
        if world.settings.limits {
            let now = world.clock.now_ms();
            told = Some(world.limits.take(now, application, &route, &major, open));
        }
        match told
            .as_ref()
            .and_then(|told| told.refused.map(|scope| (scope, told.reset_ms)))
        {
            Some((scope, reset)) => Err(Refusal::limited(
                scope,
                reset.saturating_sub(world.clock.now_ms()),
            )),
            None if size > world.settings.upload_bytes => Err(Refusal::too_large()),
            None => route_call(world, call),
        }
    };
    let row = note(world, application, method, path, body, 0, fault);
    let mut response = match result {
        Ok(done) => {
            row.status = done.status;
            row.message = done.message;
            row.pings = done.pings.clone();
            row.repeated_nonce = done.repeated_nonce;
            let mut answer = done.body;
            if let Some(FaultKind::Garble { item }) = fault
                && let Some(found) = answer.get_mut(*item)
            {
                crate::fault::malform(found);
            }
            let status = StatusCode::from_u16(done.status).unwrap_or(StatusCode::OK);
            if status == StatusCode::NO_CONTENT {
                status.into_response()
            } else {
                (status, axum::Json(answer)).into_response()
            }
        }
        Err(refusal) => {
            row.status = refusal.status;
            row.code = Some(refusal.code);
            refusal.respond()
        }
    };
    // Without it discord.py takes a 429 for a ban by the proxy in front.
    response
        .headers_mut()
        .insert(header::VIA, HeaderValue::from_static("1.1 google"));
    if let Some(told) = told {
        limit_headers(world, response.headers_mut(), &told);
    }
    response
}

fn note<'a>(
    world: &'a mut World,
    application: Id,
    method: &Method,
    path: &str,
    body: &Value,
    status: u16,
    fault: Option<&FaultKind>,
) -> &'a mut Write {
    let at_ms = world.clock.now_ms();
    world.ledger.write(Write {
        at_ms,
        application,
        method: method.to_string(),
        path: path.to_owned(),
        body: body.clone(),
        status,
        code: None,
        message: None,
        pings: Default::default(),
        repeated_nonce: false,
        fault: fault
            .and_then(|fault| serde_json::to_value(fault).ok())
            .and_then(|fault| fault["do"].as_str().map(str::to_owned)),
    });
    world
        .ledger
        .writes
        .last_mut()
        .expect("a row was just written")
}

fn limit_headers(world: &World, headers: &mut HeaderMap, told: &Told) {
    let mut put = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    let after = told.reset_ms.saturating_sub(world.clock.now_ms());
    put("x-ratelimit-limit", told.limit.to_string());
    put("x-ratelimit-remaining", told.remaining.to_string());
    put(
        "x-ratelimit-reset",
        format!("{:.3}", told.reset_ms as f64 / 1_000.0),
    );
    put(
        "x-ratelimit-reset-after",
        format!("{:.3}", after as f64 / 1_000.0),
    );
    put("x-ratelimit-bucket", told.bucket.clone());
    if let Some(scope) = told.refused {
        put("retry-after", format!("{}", after.div_ceil(1_000).max(1)));
        put(
            "x-ratelimit-scope",
            if scope == Scope::Global {
                "global"
            } else {
                "user"
            }
            .into(),
        );
        if scope == Scope::Global {
            put("x-ratelimit-global", "true".into());
        }
    }
}

/// The route's bucket and its major id.
fn bucket(call: &Call<'_>) -> (String, String) {
    let major = call.path.get(1).copied().unwrap_or("").to_owned();
    let route = match (call.method, &call.path[..]) {
        (_, ["channels", _, "messages", _, "reactions", ..]) => "reaction".into(),
        (method, ["channels", _, "messages", _, "threads"] | ["channels", _, "threads"]) => {
            format!("{method} thread")
        }
        ("GET", ["channels", _, "messages"]) => "GET messages".into(),
        (method, ["channels", _, "messages", ..]) => format!("{method} message"),
        (_, ["channels", _, "typing"]) => "POST typing".into(),
        (method, ["channels", _]) => format!("{method} channel"),
        (_, ["guilds", _, "members", _]) => "GET member".into(),
        ("PUT", ["applications", .., "commands"]) => "PUT commands".into(),
        (method, path) => {
            let shape: Vec<&str> = path
                .iter()
                .map(|part| {
                    if part.parse::<Id>().is_ok() {
                        "id"
                    } else {
                        *part
                    }
                })
                .take(3)
                .collect();
            format!("{method} {}", shape.join("/"))
        }
    };
    (route, major)
}

fn route_call(world: &mut World, call: Call<'_>) -> Result<Done, Refusal> {
    match call.path.first().copied() {
        Some("channels") if call.path.get(2) == Some(&"messages") => messages::route(world, call),
        Some("channels") => channels::route(world, call),
        Some("guilds") => guilds::route(world, call),
        Some("applications" | "oauth2") => commands::route(world, call),
        Some("interactions" | "webhooks") => interactions::route(world, call),
        Some("gateway") => {
            world.refresh_identifies(call.application);
            let limits = world.applications.get(&call.application).map(|application| json!({
                "total": world.settings.identify_total, "remaining": application.identifies_left,
                "reset_after": application.identifies_reset_ms.saturating_sub(world.clock.now_ms()),
                "max_concurrency": 1,
            }));
            let mut answer = json!({"url": world.address.replacen("http", "ws", 1)});
            if call.path.get(1) == Some(&"bot") {
                answer["shards"] = (world.guilds.len() / 1_000 + 1).into();
                answer["session_start_limit"] = limits.unwrap_or_default();
            }
            Ok(Done::new(answer))
        }
        Some("users") => match &call.path[..] {
            ["users", "@me"] => world
                .users
                .get(&call.application)
                .map(|user| Done::new(crate::show::own_user(user)))
                .ok_or_else(Refusal::unauthorized),
            ["users", id] => id
                .parse::<Id>()
                .ok()
                .and_then(|id| world.users.get(&id))
                .map(|user| Done::new(crate::show::user(user)))
                .ok_or_else(|| Refusal::unknown(10013, "Unknown User")),
            _ => Err(Refusal::no_route()),
        },
        _ => Err(Refusal::no_route()),
    }
}

/// The id in a path's segment.
pub(crate) fn id(segment: &str) -> Result<Id, Refusal> {
    segment
        .parse()
        .map_err(|_| Refusal::form("id", "NUMBER_TYPE_COERCE", "Value is not snowflake."))
}

fn percent_decode(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = (bytes[at] == b'%')
            .then(|| path.get(at + 1..at + 3))
            .flatten();
        if let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            out.push(byte);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

async fn attachment(
    State(shared): State<Shared>,
    Path((channel, file, _name)): Path<(Id, Id, String)>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let fault = shared.act(|world| {
        meet(
            &mut world.faults,
            "GET",
            &format!("/attachments/{channel}/{file}"),
        )
    });
    match fault {
        Some(FaultKind::CutBefore | FaultKind::CommitThenCut) => return cut(),
        Some(FaultKind::Delay { ms }) => tokio::time::sleep(Duration::from_millis(ms)).await,
        Some(FaultKind::Status { status, .. } | FaultKind::CommitThenStatus { status }) => {
            return StatusCode::from_u16(status)
                .unwrap_or(StatusCode::BAD_GATEWAY)
                .into_response();
        }
        _ => {}
    }
    shared.look(|world| {
        let until = query
            .get("ex")
            .and_then(|ex| u64::from_str_radix(ex, 16).ok())
            .unwrap_or(0);
        if until <= world.clock.now_ms() {
            return (
                StatusCode::NOT_FOUND,
                "This content is no longer available.",
            )
                .into_response();
        }
        let found = world
            .messages(channel)
            .flat_map(|message| &message.attachments)
            .find(|attachment| attachment.id == file);
        match found {
            Some(found) => (
                [(header::CONTENT_TYPE, found.media_type.clone())],
                found.data.clone(),
            )
                .into_response(),
            None => StatusCode::NOT_FOUND.into_response(),
        }
    })
}
