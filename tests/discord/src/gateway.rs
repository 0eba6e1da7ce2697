//! The gateway, version 10: HELLO, IDENTIFY, READY, RESUME, heartbeats, opcodes
//! 7 and 9, close codes, zlib-stream.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message as Frame, WebSocket, WebSocketUpgrade};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use flate2::{Compress, Compression, FlushCompress};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::Shared;
use crate::clock::Id;
use crate::fault::{DispatchFaultKind, malform, meet_dispatch};
use crate::permission::VIEW_CHANNEL;
use crate::show;
use crate::world::World;

const PRIVILEGED: u64 = 1 << 1 | 1 << 8 | 1 << 15;
const MESSAGE_CONTENT: u64 = 1 << 15;
const KNOWN_INTENTS: u64 = (1 << 26) - 1;
/// Guilds above which Discord demands shards.
const GUILDS_OF_A_SHARD: usize = 2_500;
/// Frames that wait for a slow client before it is cut off.
const QUEUED_FRAMES: usize = 16_384;

/// A session: what a client can resume.
#[derive(Debug)]
pub(crate) struct Session {
    application: Id,
    intents: u64,
    shard: (u64, u64),
    sequence: u64,
    replay: VecDeque<(u64, Arc<str>)>,
    connection: Option<mpsc::Sender<Out>>,
    gone_ms: u64,
    held: Option<Arc<str>>,
}

impl Session {
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    fn send(&mut self, out: Out) {
        if let Some(connection) = &self.connection
            && connection.try_send(out).is_err()
        {
            self.connection = None;
        }
    }

    fn dispatch(&mut self, replay: usize, event: &str, data: &Value) -> Arc<str> {
        self.sequence += 1;
        let text: Arc<str> = json!({"op": 0, "t": event, "s": self.sequence, "d": data})
            .to_string()
            .into();
        self.replay.push_back((self.sequence, text.clone()));
        while self.replay.len() > replay {
            self.replay.pop_front();
        }
        text
    }
}

/// To a connection.
#[derive(Debug)]
enum Out {
    Text(Arc<str>),
    Close(u16, &'static str),
    Cut,
    Zombie,
}

/// What is done to every open connection.
#[derive(Clone, Copy, Debug)]
pub enum GatewayAct {
    /// Opcode 7.
    Reconnect,
    /// Opcode 9; resumable or not.
    InvalidSession(bool),
    /// A close frame with this code.
    Close(u16),
    /// The socket is dropped without a word.
    Cut,
    /// The socket stays and nothing is heard or said any more.
    Zombie,
}

/// Does something to every open connection.
pub fn act_on_gateway(world: &mut World, act: GatewayAct) {
    let ids: Vec<String> = world.sessions.keys().cloned().collect();
    for id in ids {
        let Some(session) = world.sessions.get_mut(&id) else {
            continue;
        };
        match act {
            GatewayAct::Reconnect => session.send(text(&json!({"op": 7, "d": null}))),
            GatewayAct::InvalidSession(resumable) => {
                session.send(text(&json!({"op": 9, "d": resumable})));
                if !resumable {
                    world.sessions.remove(&id);
                }
            }
            GatewayAct::Close(code) => {
                session.send(Out::Close(code, "told to"));
                if matches!(code, 4004 | 4007 | 4009 | 4010..=4014) {
                    world.sessions.remove(&id);
                }
            }
            GatewayAct::Cut => session.send(Out::Cut),
            GatewayAct::Zombie => session.send(Out::Zombie),
        }
    }
}

/// One dispatch before it is known who gets it.
pub(crate) struct Event {
    name: &'static str,
    intent: u64,
    data: Value,
    blank: Option<Value>,
    channel: Option<Id>,
    guild: Option<Id>,
    only: Option<Id>,
}

impl Event {
    /// `intent` 0: everyone gets it.
    pub(crate) fn new(name: &'static str, intent: u64, data: Value) -> Event {
        Event {
            name,
            intent,
            data,
            blank: None,
            channel: None,
            guild: None,
            only: None,
        }
    }

    pub(crate) fn only_to(mut self, application: Id) -> Event {
        self.only = Some(application);
        self
    }

    /// Who sees the channel gets it.
    pub(crate) fn in_channel(mut self, channel: Id) -> Event {
        self.channel = Some(channel);
        self
    }

    /// Who is in the guild gets it.
    pub(crate) fn in_guild(mut self, guild: Id) -> Event {
        self.guild = Some(guild);
        self
    }

    /// What is sent without the message content intent.
    pub(crate) fn without_content(mut self, blank: Value) -> Event {
        self.blank = Some(blank);
        self
    }
}

/// Sends a dispatch to all sessions that get it, and lets it meet its faults.
pub(crate) fn emit(world: &mut World, event: Event) {
    let guild = event
        .channel
        .and_then(|channel| world.channels.get(&channel))
        .map(|channel| channel.guild)
        .or(event.guild);
    let getters: Vec<String> = world
        .sessions
        .iter()
        .filter(|(_, session)| event.only.is_none_or(|only| only == session.application))
        .filter(|(_, session)| event.intent == 0 || session.intents & event.intent != 0)
        .filter(|(_, session)| {
            guild.is_none_or(|guild| {
                (guild >> 22) % session.shard.1 == session.shard.0
                    && world
                        .guilds
                        .get(&guild)
                        .is_some_and(|guild| guild.members.contains_key(&session.application))
            })
        })
        .filter(|(_, session)| {
            event
                .channel
                .and_then(|channel| world.channels.get(&channel))
                .is_none_or(|channel| {
                    world.permissions(channel, session.application) & VIEW_CHANNEL != 0
                })
        })
        .map(|(id, _)| id.clone())
        .collect();
    if getters.is_empty() {
        return;
    }
    let fault = meet_dispatch(&mut world.dispatch_faults, event.name);
    if fault == Some(DispatchFaultKind::Drop) {
        return;
    }
    let replay = world.settings.replay;
    for id in getters {
        let Some(session) = world.sessions.get_mut(&id) else {
            continue;
        };
        let mut data = match &event.blank {
            Some(blank) if session.intents & MESSAGE_CONTENT == 0 => blank.clone(),
            _ => event.data.clone(),
        };
        if fault == Some(DispatchFaultKind::Malform) {
            malform(&mut data);
        }
        let frame = session.dispatch(replay, event.name, &data);
        match fault {
            Some(DispatchFaultKind::Cut) => session.send(Out::Cut),
            Some(DispatchFaultKind::Swap) => session.held = Some(frame),
            Some(DispatchFaultKind::Duplicate) => {
                session.send(Out::Text(frame.clone()));
                session.send(Out::Text(frame));
            }
            _ => {
                session.send(Out::Text(frame));
                if let Some(held) = session.held.take() {
                    session.send(Out::Text(held));
                }
            }
        }
    }
}

/// `GET /`: the upgrade.
pub(crate) async fn connect(
    State(shared): State<Shared>,
    Query(query): Query<HashMap<String, String>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    if shared.look(|world| world.gateway_down) {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    }
    upgrade
        .max_message_size(1 << 20)
        .on_upgrade(move |socket| async move {
            let compression = query.get("compress").map(String::as_str) == Some("zlib-stream");
            let mut wire = Wire {
                socket,
                stream: compression.then(|| Compress::new(Compression::fast(), true)),
                payloads: false,
            };
            let bad_version = query.get("v").is_some_and(|version| version != "10");
            if bad_version {
                wire.close(4012, "Invalid API version").await;
                return;
            }
            serve(&shared, &mut wire).await;
        })
}

/// The socket with its compression.
struct Wire {
    socket: WebSocket,
    stream: Option<Compress>,
    payloads: bool,
}

impl Wire {
    async fn send(&mut self, text: &str) -> bool {
        let frame = if let Some(stream) = &mut self.stream {
            Frame::Binary(deflate(stream, text, FlushCompress::Sync).into())
        } else if self.payloads {
            let mut whole = Compress::new(Compression::fast(), true);
            Frame::Binary(deflate(&mut whole, text, FlushCompress::Finish).into())
        } else {
            Frame::Text(text.into())
        };
        self.socket.send(frame).await.is_ok()
    }

    async fn close(&mut self, code: u16, reason: &'static str) {
        let _ = self
            .socket
            .send(Frame::Close(Some(CloseFrame {
                code,
                reason: reason.into(),
            })))
            .await;
        // The peer answers with its own close frame; give it a moment.
        let _ = tokio::time::timeout(Duration::from_millis(500), async {
            while let Some(Ok(frame)) = self.socket.recv().await {
                if matches!(frame, Frame::Close(_)) {
                    break;
                }
            }
        })
        .await;
    }
}

fn deflate(stream: &mut Compress, text: &str, flush: FlushCompress) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() / 2 + 64);
    let start = stream.total_in();
    loop {
        let taken = usize::try_from(stream.total_in() - start).unwrap_or(text.len());
        let _ = stream.compress_vec(&text.as_bytes()[taken..], &mut out, flush);
        let all = stream.total_in() - start == text.len() as u64;
        if all && out.len() < out.capacity() {
            return out;
        }
        out.reserve(text.len() / 2 + 64);
    }
}

fn text(value: &Value) -> Out {
    Out::Text(value.to_string().into())
}

async fn serve(shared: &Shared, wire: &mut Wire) {
    let heartbeat_ms = shared.act(|world| {
        let now = world.clock.now_ms();
        world.ledger.gateway(now, "connect", "");
        world.settings.heartbeat_ms
    });
    let (sender, mut receiver) = mpsc::channel(QUEUED_FRAMES);
    let hello = json!({"op": 10, "d": {"heartbeat_interval": heartbeat_ms}, "t": null, "s": null});
    if !wire.send(&hello.to_string()).await {
        return;
    }
    let mut session: Option<String> = None;
    let mut zombie = false;
    let patience = Duration::from_millis(heartbeat_ms * 2);
    let mut heard = tokio::time::Instant::now();
    let mut events = (tokio::time::Instant::now(), 0u32);
    let close = loop {
        tokio::select! {
            out = receiver.recv() => match out {
                Some(Out::Text(text)) => {
                    if !zombie && !wire.send(&text).await {
                        break None;
                    }
                }
                Some(Out::Close(code, reason)) => break Some((code, reason)),
                Some(Out::Zombie) => zombie = true,
                Some(Out::Cut) | None => break None,
            },
            frame = wire.socket.recv() => match frame {
                Some(Ok(Frame::Text(text))) if !zombie => {
                    heard = tokio::time::Instant::now();
                    if events.0.elapsed() > Duration::from_secs(60) {
                        events = (heard, 0);
                    }
                    events.1 += 1;
                    if events.1 > 120 {
                        break Some((4008, "You are being rate limited."));
                    }
                    match shared.act(|world| hear(world, &text, &sender, &mut session)) {
                        Ok(compress) => wire.payloads |= compress,
                        Err(close) => break Some(close),
                    }
                }
                Some(Ok(Frame::Binary(_))) if !zombie => break Some((4002, "Error while decoding payload.")),
                Some(Ok(Frame::Close(frame))) => {
                    // A client that says goodbye with 1000 or 1001 ends its session.
                    let ends = frame.is_none_or(|frame| matches!(frame.code, 1000 | 1001));
                    if let Some(id) = session.take_if(|_| ends) {
                        shared.act(|world| world.sessions.remove(&id));
                    }
                    break None;
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => break None,
            },
            () = tokio::time::sleep_until(heard + patience), if !zombie => {
                break Some((4009, "Session timed out."));
            }
        }
    };
    shared.act(|world| {
        let now = world.clock.now_ms();
        let code = close.map_or("cut".into(), |(code, _)| code.to_string());
        world.ledger.gateway(now, "close", code);
        if let Some(session) = session.and_then(|id| world.sessions.get_mut(&id)) {
            // A resume may have put a newer connection in its place.
            if session
                .connection
                .as_ref()
                .is_some_and(|own| own.same_channel(&sender))
            {
                session.connection = None;
                session.gone_ms = now;
            }
        }
    });
    if let Some((code, reason)) = close {
        wire.close(code, reason).await;
    }
}

type Close = (u16, &'static str);

/// Takes one frame of the client. `Ok(true)`: it asked for compressed payloads.
fn hear(
    world: &mut World,
    frame: &str,
    sender: &mpsc::Sender<Out>,
    session: &mut Option<String>,
) -> Result<bool, Close> {
    let frame: Value =
        serde_json::from_str(frame).map_err(|_| (4002, "Error while decoding payload."))?;
    let op = frame["op"].as_u64().ok_or((4001, "Unknown opcode."))?;
    let data = &frame["d"];
    match op {
        1 => {
            world.ledger.heartbeats += 1;
            let _ = sender.try_send(text(&json!({"op": 11, "d": null})));
            Ok(false)
        }
        2 if session.is_some() => Err((4005, "Already authenticated.")),
        2 => {
            *session = identify(world, data, sender)?;
            Ok(data["compress"].as_bool().unwrap_or(false))
        }
        6 if session.is_some() => Err((4005, "Already authenticated.")),
        6 => {
            *session = resume(world, data, sender)?;
            Ok(false)
        }
        3 | 4 | 8 | 31 if session.is_some() => Ok(false),
        3 | 4 | 8 | 31 => Err((4003, "Not authenticated.")),
        _ => Err((4001, "Unknown opcode.")),
    }
}

fn bare(token: &str) -> &str {
    token.strip_prefix("Bot ").unwrap_or(token)
}

fn identify(
    world: &mut World,
    data: &Value,
    sender: &mpsc::Sender<Out>,
) -> Result<Option<String>, Close> {
    let now = world.clock.now_ms();
    let token = data["token"].as_str().unwrap_or("");
    let id = world
        .by_token(bare(token))
        .map(|application| application.id)
        .ok_or((4004, "Authentication failed."))?;
    let intents = data["intents"]
        .as_u64()
        .ok_or((4013, "Invalid intent(s)."))?;
    if intents & !KNOWN_INTENTS != 0 {
        return Err((4013, "Invalid intent(s)."));
    }
    let shard = match data["shard"].as_array().map(Vec::as_slice) {
        Some([id, total]) => (id.as_u64().unwrap_or(0), total.as_u64().unwrap_or(0)),
        _ => (0, 1),
    };
    if shard.0 >= shard.1 {
        return Err((4010, "Invalid shard."));
    }
    world.refresh_identifies(id);
    let settings = world.settings.clone();
    let application = world
        .applications
        .get_mut(&id)
        .ok_or((4004, "Authentication failed."))?;
    if intents & PRIVILEGED & !application.privileged != 0 {
        return Err((4014, "Disallowed intent(s)."));
    }
    if application.identifies_left == 0 {
        application.token = format!("reset-{now}");
        world.ledger.gateway(now, "budget-exhausted", "token reset");
        return Err((4004, "Authentication failed."));
    }
    application.identifies_left -= 1;
    let too_soon = application.identified_ms + settings.identify_interval_ms > now;
    application.identified_ms = now;
    world.ledger.gateway(now, "identify", shard.0.to_string());
    if too_soon {
        world.ledger.gateway(now, "invalid", "identified too soon");
        let _ = sender.try_send(text(&json!({"op": 9, "d": false})));
        return Ok(None);
    }
    let guilds: Vec<Id> = world
        .guilds
        .values()
        .filter(|guild| guild.members.contains_key(&id))
        .map(|guild| guild.id)
        .collect();
    if guilds.len() > GUILDS_OF_A_SHARD && shard.1 == 1 {
        return Err((4011, "Sharding required."));
    }
    let guilds: Vec<Id> = guilds
        .into_iter()
        .filter(|guild| (guild >> 22) % shard.1 == shard.0)
        .collect();
    let name = format!("session-{:x}", world.clock.id());
    let ready = json!({
        "v": 10, "user": world.users.get(&id).map(show::own_user),
        "guilds": guilds.iter().map(|guild| json!({"id": guild.to_string(), "unavailable": true})).collect::<Vec<_>>(),
        "session_id": name, "session_type": "normal",
        "resume_gateway_url": world.address.replacen("http", "ws", 1),
        "shard": [shard.0, shard.1], "private_channels": [], "relationships": [], "presences": [],
        "user_settings": {}, "geo_ordered_rtc_regions": [], "guild_join_requests": [], "auth": {},
        "application": {"id": id.to_string(), "flags": show::application(world, &world.applications[&id])["flags"]},
        "_trace": ["stand-in"],
    });
    let created: Vec<Value> = guilds
        .iter()
        .map(|guild| show::guild_create(world, &world.guilds[guild], id))
        .collect();
    let mut session = Session {
        application: id,
        intents,
        shard,
        sequence: 0,
        replay: VecDeque::new(),
        connection: Some(sender.clone()),
        gone_ms: 0,
        held: None,
    };
    let frame = session.dispatch(settings.replay, "READY", &ready);
    session.send(Out::Text(frame));
    if intents & 1 != 0 {
        for guild in created {
            let frame = session.dispatch(settings.replay, "GUILD_CREATE", &guild);
            session.send(Out::Text(frame));
        }
    }
    world.sessions.insert(name.clone(), session);
    Ok(Some(name))
}

fn resume(
    world: &mut World,
    data: &Value,
    sender: &mpsc::Sender<Out>,
) -> Result<Option<String>, Close> {
    let now = world.clock.now_ms();
    let id = world
        .by_token(bare(data["token"].as_str().unwrap_or("")))
        .map(|application| application.id)
        .ok_or((4004, "Authentication failed."))?;
    let name = data["session_id"].as_str().unwrap_or("").to_owned();
    let seen = data["seq"].as_u64().unwrap_or(0);
    world.ledger.gateway(now, "resume", name.clone());
    let (resume_ms, replay) = (world.settings.resume_ms, world.settings.replay);
    let usable = world.sessions.get(&name).is_some_and(|session| {
        let kept = session
            .replay
            .front()
            .map_or(session.sequence, |(first, _)| first - 1);
        session.application == id
            && (session.is_connected() || session.gone_ms + resume_ms > now)
            && (kept..=session.sequence).contains(&seen)
    });
    let Some(session) = world.sessions.get_mut(&name).filter(|_| usable) else {
        world.sessions.remove(&name);
        world.ledger.gateway(now, "invalid", name);
        let _ = sender.try_send(text(&json!({"op": 9, "d": false})));
        return Ok(None);
    };
    if let Some(old) = session.connection.replace(sender.clone()) {
        let _ = old.try_send(Out::Cut);
    }
    session.held = None;
    let missed: Vec<Arc<str>> = session
        .replay
        .iter()
        .filter(|(sequence, _)| *sequence > seen)
        .map(|(_, frame)| frame.clone())
        .collect();
    for frame in missed {
        session.send(Out::Text(frame));
    }
    let frame = session.dispatch(replay, "RESUMED", &json!({"_trace": ["stand-in"]}));
    session.send(Out::Text(frame));
    world.ledger.gateway(now, "resumed", name.clone());
    Ok(Some(name))
}
