//! `/control/…`: what tests in other languages, and people, do to the stand-in.
//!
//! | route | body | answer |
//! |---|---|---|
//! | `POST users` | `{name, bot?}` | `{id}` |
//! | `POST applications` | `{name, token, privileged?}` | `{id}` |
//! | `POST guilds` | `{name, owner}` | `{id}` |
//! | `POST roles` | `{guild, name, permissions}` | `{id}` |
//! | `POST members` | `{guild, user, roles}` | `{}` |
//! | `DELETE members` | `{guild, user}` | `{}` |
//! | `POST channels` | `{guild, name, kind}` | `{id}` |
//! | `DELETE channels` | `{channel}` | `{}` |
//! | `POST overwrites` | `{channel, overwrites}` | `{}` |
//! | `POST messages` | `{channel, author, content, replyTo?}` | `{id}` |
//! | `PATCH messages` | `{channel, message, content}` | `{}` |
//! | `DELETE messages` | `{channel, message}` | `{}` |
//! | `GET messages/{channel}` | | `[{id, author, content, …}]` |
//! | `POST threads` | `{channel, owner, name, message?}` | `{id}` |
//! | `POST archive` | `{thread, archived, locked?}` | `{}` |
//! | `POST commands` | `{application, channel, user, name, options}` | `{id}` |
//! | `POST clicks` | `{application, channel, user, message, customId}` | `{id}` |
//! | `GET interactions/{id}` | | `{callback, shown, answeredAfterMs, followups}` |
//! | `POST clock` | `{advanceMs}` | `{nowMs}` |
//! | `PUT settings` | fields of `Settings` | all settings |
//! | `POST faults` | a `Fault` | `{}` |
//! | `POST dispatch-faults` | a `DispatchFault` | `{}` |
//! | `POST gateway` | `{act: reconnect, invalid, invalid-resumable, close, cut, zombie, down, up; code?}` | `{}` |
//! | `GET ledger` | | `{writes, gateway, heartbeats}` |
//!
//! Ids are strings, as Discord's are.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::Shared;
use crate::act::{Act, Draft};
use crate::clock::Id;
use crate::gateway::{GatewayAct, act_on_gateway};
use crate::world::{Overwrite, PUBLIC_THREAD, TEXT, World};

type Outcome = Result<Value, String>;

pub(crate) fn routes() -> Router<Shared> {
    Router::new()
        .route("/{what}", post(add).patch(change).delete(remove))
        .route("/settings", put(settings))
        .route("/ledger", get(ledger))
        .route("/messages/{channel}", get(messages))
        .route("/interactions/{interaction}", get(interaction))
}

fn answer(outcome: Outcome) -> Response {
    match outcome {
        Ok(value) => Json(value).into_response(),
        Err(why) => (StatusCode::BAD_REQUEST, Json(json!({"error": why}))).into_response(),
    }
}

fn id(body: &Value, field: &str) -> Result<Id, String> {
    body[field]
        .as_str()
        .and_then(|text| text.parse().ok())
        .or_else(|| body[field].as_u64())
        .ok_or_else(|| format!("`{field}` must be an id"))
}

fn text<'a>(body: &'a Value, field: &str) -> Result<&'a str, String> {
    body[field]
        .as_str()
        .ok_or_else(|| format!("`{field}` must be text"))
}

fn read<T: DeserializeOwned>(body: &Value) -> Result<T, String> {
    serde_json::from_value(body.clone()).map_err(|error| error.to_string())
}

async fn add(
    State(shared): State<Shared>,
    Path(what): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    answer(shared.act(|world| add_to(world, &what, &body)))
}

fn add_to(world: &mut World, what: &str, body: &Value) -> Outcome {
    let made = match what {
        "users" => world.add_user(text(body, "name")?, body["bot"].as_bool().unwrap_or(false)),
        "applications" => world.add_application(
            text(body, "name")?,
            text(body, "token")?,
            body["privileged"].as_u64().unwrap_or(0),
        ),
        "guilds" => world.add_guild(text(body, "name")?, id(body, "owner")?),
        "roles" => world.add_role(
            id(body, "guild")?,
            text(body, "name")?,
            id(body, "permissions")?,
        ),
        "channels" => {
            let kind = body["kind"]
                .as_u64()
                .and_then(|kind| u8::try_from(kind).ok());
            world.add_channel(
                id(body, "guild")?,
                text(body, "name")?,
                kind.unwrap_or(TEXT),
            )
        }
        "messages" => {
            let draft = Draft {
                content: text(body, "content")?.into(),
                reply_to: id(body, "replyTo").ok(),
                ..Draft::default()
            };
            world.write(id(body, "channel")?, id(body, "author")?, draft)
        }
        "threads" => world.open_thread(
            id(body, "channel")?,
            id(body, "message").ok(),
            id(body, "owner")?,
            text(body, "name")?,
            PUBLIC_THREAD,
            1440,
        ),
        "commands" => {
            let act = Act::Command {
                name: text(body, "name")?.into(),
                options: body["options"].clone(),
            };
            world.interact(
                id(body, "application")?,
                id(body, "channel")?,
                id(body, "user")?,
                act,
            )
        }
        "clicks" => {
            let act = Act::Click {
                message: id(body, "message")?,
                custom_id: text(body, "customId")?.into(),
            };
            world.interact(
                id(body, "application")?,
                id(body, "channel")?,
                id(body, "user")?,
                act,
            )
        }
        _ => return put_to(world, what, body),
    };
    Ok(json!({"id": made.to_string()}))
}

/// What makes nothing that has an id.
fn put_to(world: &mut World, what: &str, body: &Value) -> Outcome {
    match what {
        "members" => {
            let roles: Vec<Id> = body["roles"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|role| role.as_str()?.parse().ok())
                .collect();
            world.add_member(id(body, "guild")?, id(body, "user")?, &roles);
        }
        "overwrites" => {
            let overwrites: Vec<Overwrite> = read(&body["overwrites"])?;
            let channel = id(body, "channel")?;
            world
                .channels
                .get_mut(&channel)
                .ok_or_else(|| format!("no channel {channel}"))?
                .overwrites = overwrites;
            world.tell_channel("CHANNEL_UPDATE", channel);
        }
        "archive" => {
            let locked = body["locked"].as_bool().unwrap_or(false);
            world.set_archived(
                id(body, "thread")?,
                body["archived"].as_bool().unwrap_or(true),
                locked,
            );
        }
        "clock" => {
            world.advance(body["advanceMs"].as_u64().unwrap_or(0));
            return Ok(json!({"nowMs": world.clock.now_ms(), "now": world.now()}));
        }
        "faults" => world.faults.push(read(body)?),
        "dispatch-faults" => world.dispatch_faults.push(read(body)?),
        "gateway" => {
            let act = match text(body, "act")? {
                "reconnect" => GatewayAct::Reconnect,
                "invalid" => GatewayAct::InvalidSession(false),
                "invalid-resumable" => GatewayAct::InvalidSession(true),
                "close" => {
                    let code = body["code"]
                        .as_u64()
                        .and_then(|code| u16::try_from(code).ok());
                    GatewayAct::Close(code.unwrap_or(4000))
                }
                "cut" => GatewayAct::Cut,
                "zombie" => GatewayAct::Zombie,
                state @ ("down" | "up") => {
                    world.gateway_down = state == "down";
                    return Ok(json!({}));
                }
                other => return Err(format!("no such act: {other}")),
            };
            act_on_gateway(world, act);
        }
        _ => return Err(format!("nothing is added at `{what}`")),
    }
    Ok(json!({}))
}

async fn change(
    State(shared): State<Shared>,
    Path(what): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    answer(shared.act(|world| match what.as_str() {
        "messages" => {
            world.edit(
                id(&body, "channel")?,
                id(&body, "message")?,
                text(&body, "content")?,
            );
            Ok(json!({}))
        }
        _ => Err(format!("nothing is changed at `{what}`")),
    }))
}

async fn remove(
    State(shared): State<Shared>,
    Path(what): Path<String>,
    Json(body): Json<Value>,
) -> Response {
    answer(shared.act(|world| {
        match what.as_str() {
            "messages" => world.remove_message(id(&body, "channel")?, id(&body, "message")?),
            "channels" => world.remove_channel(id(&body, "channel")?),
            "members" => world.remove_member(id(&body, "guild")?, id(&body, "user")?),
            _ => return Err(format!("nothing is removed at `{what}`")),
        }
        Ok(json!({}))
    }))
}

async fn settings(State(shared): State<Shared>, Json(body): Json<Value>) -> Response {
    answer(shared.act(|world| {
        let mut all = serde_json::to_value(&world.settings).map_err(|error| error.to_string())?;
        for (name, value) in body.as_object().into_iter().flatten() {
            all[name] = value.clone();
        }
        world.settings = read(&all)?;
        Ok(all)
    }))
}

async fn ledger(State(shared): State<Shared>) -> Response {
    Json(shared.look(|world| {
        json!({"writes": world.ledger.writes, "gateway": world.ledger.gateway,
               "heartbeats": world.ledger.heartbeats})
    }))
    .into_response()
}

async fn messages(State(shared): State<Shared>, Path(channel): Path<Id>) -> Response {
    Json(shared.look(|world| {
        world
            .messages(channel)
            .map(|message| json!({
                "id": message.id.to_string(), "author": message.author.to_string(),
                "content": message.content, "type": message.kind, "edits": message.edits,
                "replyTo": message.reply_to.map(|id| id.to_string()),
                "components": message.components, "reactions": message.reactions,
                "attachments": message.attachments.iter().map(|file| &file.name).collect::<Vec<_>>(),
                "pings": message.pings,
            }))
            .collect::<Value>()
    }))
    .into_response()
}

async fn interaction(State(shared): State<Shared>, Path(interaction): Path<Id>) -> Response {
    answer(shared.look(|world| {
        let found = world
            .interactions
            .get(&interaction)
            .ok_or("no such interaction")?;
        Ok(json!({"callback": found.callback, "shown": found.shown,
                  "answeredAfterMs": found.answered_after_ms, "followups": found.followups}))
    }))
}
