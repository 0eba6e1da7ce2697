//! The connection that brings events, supervised: it ends only by an error that
//! trying again cannot mend.
//!
//! It resumes first; it identifies only within the day's budget, which Discord
//! keeps across restarts of the bot; a connection whose heartbeat is not
//! acknowledged is given up.

mod connection;

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::BotError;
use crate::api::Api;
use crate::health::Health;
use crate::rest::RestError;
use connection::{Connection, End};

/// GUILDS, GUILD_MESSAGES and MESSAGE_CONTENT; interactions need none.
pub const INTENTS: u64 = 1 | 1 << 9 | 1 << 15;
/// Identifies of the day that are left alone, for people who restart the bot.
const RESERVE: u64 = 20;
/// Discord takes one identify in five seconds.
const BETWEEN_IDENTIFIES: Duration = Duration::from_millis(5_250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A connection that lasted so long was good.
const GOOD: Duration = Duration::from_secs(30);

/// An event of the gateway: its name and its data.
#[derive(Debug)]
pub struct Event {
    /// `MESSAGE_CREATE`, …
    pub name: String,
    /// As it came.
    pub data: Value,
}

/// What a resume needs.
#[derive(Clone, Debug, Default)]
pub struct Session {
    /// Its id.
    pub id: String,
    /// Where to resume.
    pub address: String,
    /// The last sequence number that was seen.
    pub sequence: u64,
}

/// The gateway with its supervision.
pub struct Gateway {
    api: Api,
    token: String,
    /// The configured address; it is used for resumes too.
    address: Option<String>,
    events: mpsc::Sender<Event>,
    health: Arc<Health>,
    session: Option<Session>,
    identified: Option<Instant>,
}

impl Gateway {
    /// A gateway that gives its events to `events`.
    pub fn new(
        api: Api,
        token: &str,
        address: Option<String>,
        events: mpsc::Sender<Event>,
        health: Arc<Health>,
    ) -> Gateway {
        let token = token.trim_start_matches("Bot ").to_owned();
        Gateway {
            api,
            token,
            address,
            events,
            health,
            session: None,
            identified: None,
        }
    }

    /// Runs until an error that is final.
    pub async fn run(mut self) -> BotError {
        let mut pause = Duration::from_millis(250);
        loop {
            let began = Instant::now();
            self.health.supervised();
            match self.connect_once().await {
                Ok(End::Final(error)) | Err(error) => return error,
                Ok(End::Resume(why)) => {
                    tracing::info!(why, "gateway connection ended; resuming");
                }
                Ok(End::Identify(why)) => {
                    tracing::warn!(why, "gateway session ended; identifying again");
                    self.session = None;
                }
                Ok(End::Unreachable(why)) => {
                    tracing::warn!(why, "gateway cannot be reached");
                }
            }
            self.health.disconnected();
            if began.elapsed() > GOOD {
                pause = Duration::from_millis(250);
            }
            // Jitter keeps many bots from coming back in one moment.
            let jitter = rand::random_range(0..=pause.as_millis() as u64 / 4);
            tokio::time::sleep(pause + Duration::from_millis(jitter)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn connect_once(&mut self) -> Result<End, BotError> {
        let address = match self.address().await {
            Ok(address) => address,
            Err(RestError::Refused { status: 401, .. }) => return Err(BotError::Token),
            Err(error) => return Ok(End::Unreachable(error.to_string())),
        };
        let mut connection = match Connection::open(&address).await {
            Ok(connection) => connection,
            Err(why) => return Ok(End::Unreachable(format!("{address}: {why}"))),
        };
        if let Some(session) = &self.session {
            if let Err(why) = connection.resume(&self.token, session).await {
                return Ok(End::Resume(why));
            }
        } else {
            if let Some(identified) = self.identified {
                tokio::time::sleep_until(identified + BETWEEN_IDENTIFIES).await;
            }
            self.identified = Some(Instant::now());
            if let Err(why) = connection.identify(&self.token).await {
                return Ok(End::Identify(why));
            }
        }
        Ok(connection
            .run(&mut self.session, &self.events, &self.health)
            .await)
    }

    /// Where to connect. Before an identify Discord is asked what is left of the
    /// budget, and waited for when it is spent.
    async fn address(&mut self) -> Result<String, RestError> {
        if let Some(session) = &self.session {
            return Ok(self
                .address
                .clone()
                .unwrap_or_else(|| session.address.clone()));
        }
        loop {
            let info = self.api.gateway().await?;
            let limit = info.session_start_limit;
            self.health.identifies_left(limit.remaining);
            if limit.remaining > RESERVE.min(limit.total / 50) {
                return Ok(self.address.clone().unwrap_or(info.url));
            }
            tracing::error!(
                remaining = limit.remaining,
                reset_after_ms = limit.reset_after,
                "the day's identifies are spent; waiting until Discord gives new ones"
            );
            self.health.supervised();
            // Asked again now and then: the wait may be most of a day.
            let wait = Duration::from_millis(limit.reset_after.clamp(1_000, 300_000));
            tokio::time::sleep(wait).await;
        }
    }
}
