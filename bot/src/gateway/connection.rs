//! One connection: frames, heartbeats, and why it ended.

use std::time::Duration;

use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use super::{Event, INTENTS, Session};
use crate::BotError;
use crate::health::Health;

/// Bytes of one frame; a large guild's GUILD_CREATE has a few megabytes.
const FRAME: usize = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

/// Why a connection ended, and what comes next.
pub(super) enum End {
    Resume(String),
    Identify(String),
    Unreachable(String),
    Final(BotError),
}

pub(super) struct Connection {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    interval: Duration,
}

impl Connection {
    /// Connects and waits for HELLO.
    pub async fn open(address: &str) -> Result<Connection, String> {
        let url = format!("{}/?v=10&encoding=json", address.trim_end_matches('/'));
        let mut config = WebSocketConfig::default();
        config.max_message_size = Some(FRAME);
        config.max_frame_size = Some(FRAME);
        let connecting = tokio_tungstenite::connect_async_with_config(url, Some(config), true);
        let (socket, _) = tokio::time::timeout(PATIENCE, connecting)
            .await
            .map_err(|_| "no connection in time".to_owned())?
            .map_err(|error| error.to_string())?;
        let mut connection = Connection {
            socket,
            interval: Duration::ZERO,
        };
        let hello = tokio::time::timeout(PATIENCE, connection.frame())
            .await
            .map_err(|_| "no HELLO in time".to_owned())?;
        match hello {
            Ok(frame) if frame["op"] == 10 => {
                let interval = frame["d"]["heartbeat_interval"].as_u64().unwrap_or(41_250);
                connection.interval = Duration::from_millis(interval.max(10));
                Ok(connection)
            }
            Ok(frame) => Err(format!(
                "a frame of opcode {} in place of HELLO",
                frame["op"]
            )),
            Err(end) => Err(end.map_or("cut".into(), |(code, reason)| format!("{code} {reason}"))),
        }
    }

    pub async fn identify(&mut self, token: &str) -> Result<(), String> {
        let properties =
            json!({"os": std::env::consts::OS, "browser": "mooring", "device": "mooring"});
        let data = json!({"token": token, "intents": INTENTS, "properties": properties,
                          "large_threshold": 50, "shard": [0, 1]});
        self.say(json!({"op": 2, "d": data})).await
    }

    pub async fn resume(&mut self, token: &str, session: &Session) -> Result<(), String> {
        let data = json!({"token": token, "session_id": session.id, "seq": session.sequence});
        self.say(json!({"op": 6, "d": data})).await
    }

    async fn say(&mut self, frame: Value) -> Result<(), String> {
        let sending = self.socket.send(Frame::text(frame.to_string()));
        match tokio::time::timeout(PATIENCE, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the connection takes nothing any more".into()),
        }
    }

    /// The next frame that is JSON. `Err(None)`: cut without a close frame.
    async fn frame(&mut self) -> Result<Value, Option<(u16, String)>> {
        loop {
            match self.socket.next().await {
                Some(Ok(Frame::Text(text))) => match serde_json::from_str(&text) {
                    Ok(frame) => return Ok(frame),
                    // Nothing is known of it, not even its sequence: a resume
                    // brings it again, or the sweep finds what it told.
                    Err(error) => tracing::error!(%error, "a frame is not JSON"),
                },
                Some(Ok(Frame::Close(close))) => {
                    let close = close.map(|close| (close.code.into(), close.reason.to_string()));
                    return Err(Some(close.unwrap_or((1000, String::new()))));
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return Err(None),
            }
        }
    }

    /// Says goodbye so that the session can be resumed.
    async fn leave(&mut self) {
        let close = CloseFrame {
            code: 4900.into(),
            reason: "resuming".into(),
        };
        let closing = self.socket.close(Some(close));
        let _ = tokio::time::timeout(Duration::from_secs(1), closing).await;
    }

    /// Reads events until the connection ends.
    pub async fn run(
        mut self,
        session: &mut Option<Session>,
        events: &mpsc::Sender<Event>,
        health: &Health,
    ) -> End {
        // The first beat comes at a random part of the interval, as Discord asks.
        let first = self.interval.mul_f64(rand::random_range(0.0..1.0));
        let mut beat = Instant::now() + first;
        let mut acknowledged = true;
        loop {
            let frame = tokio::select! {
                () = tokio::time::sleep_until(beat) => {
                    if !acknowledged {
                        self.leave().await;
                        return End::Resume("a heartbeat was not acknowledged".into());
                    }
                    let sequence = session.as_ref().map(|session| session.sequence);
                    if let Err(why) = self.say(json!({"op": 1, "d": sequence})).await {
                        return End::Resume(why);
                    }
                    acknowledged = false;
                    beat = Instant::now() + self.interval;
                    continue;
                }
                frame = self.frame() => match frame {
                    Ok(frame) => frame,
                    Err(close) => return closed(close, session.is_some()),
                }
            };
            match frame["op"].as_u64() {
                Some(0) => {
                    self.take(frame, session, events, health).await;
                }
                Some(1) => beat = Instant::now(),
                Some(7) => {
                    self.leave().await;
                    return End::Resume("Discord asked for a new connection".into());
                }
                Some(9) => {
                    let resumable = frame["d"].as_bool().unwrap_or(false);
                    self.leave().await;
                    return if resumable && session.is_some() {
                        End::Resume("the session was interrupted".into())
                    } else {
                        End::Identify("the session is invalid".into())
                    };
                }
                Some(11) => {
                    acknowledged = true;
                    health.heartbeat(self.interval);
                }
                _ => {}
            }
        }
    }

    async fn take(
        &mut self,
        mut frame: Value,
        session: &mut Option<Session>,
        events: &mpsc::Sender<Event>,
        health: &Health,
    ) {
        let name = frame["t"].as_str().unwrap_or("").to_owned();
        let data = frame["d"].take();
        match name.as_str() {
            "READY" => {
                *session = Some(Session {
                    id: data["session_id"].as_str().unwrap_or("").to_owned(),
                    address: data["resume_gateway_url"].as_str().unwrap_or("").to_owned(),
                    sequence: 0,
                });
                health.heartbeat(self.interval);
                health.connected();
            }
            "RESUMED" => {
                health.heartbeat(self.interval);
                health.connected();
            }
            _ => {}
        }
        // Events wait here when the bot is behind: the socket's own flow control
        // then slows Discord down, and nothing is thrown away.
        if events.send(Event { name, data }).await.is_ok()
            && let (Some(session), Some(sequence)) = (session.as_mut(), frame["s"].as_u64())
        {
            session.sequence = session.sequence.max(sequence);
        }
    }
}

/// What a close means: Discord's documentation, "Gateway Close Event Codes".
fn closed(close: Option<(u16, String)>, session: bool) -> End {
    let Some((code, reason)) = close else {
        let why = "the connection was cut".to_owned();
        return if session {
            End::Resume(why)
        } else {
            End::Identify(why)
        };
    };
    match code {
        4004 => End::Final(BotError::Token),
        4014 => End::Final(BotError::Intents),
        4010..=4013 => End::Final(BotError::Final { code, reason }),
        1000 | 1001 | 4003 | 4007 | 4009 => End::Identify(format!("closed with {code} {reason}")),
        _ if session => End::Resume(format!("closed with {code} {reason}")),
        _ => End::Identify(format!("closed with {code} {reason}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_close_code_tells_what_comes_next() {
        for (code, session, expected) in [
            (Some(4000), true, "resume"),
            (Some(4008), true, "resume"),
            (Some(4009), true, "identify"),
            (Some(4007), true, "identify"),
            (Some(1000), true, "identify"),
            (Some(4000), false, "identify"),
            (None, true, "resume"),
            (Some(4004), true, "final"),
            (Some(4010), true, "final"),
            (Some(4011), true, "final"),
            (Some(4012), true, "final"),
            (Some(4013), true, "final"),
            (Some(4014), true, "final"),
        ] {
            let end = match closed(code.map(|code| (code, String::new())), session) {
                End::Resume(_) => "resume",
                End::Identify(_) => "identify",
                End::Unreachable(_) => "unreachable",
                End::Final(_) => "final",
            };
            assert_eq!(end, expected, "{code:?}");
        }
    }
}
