//! The Discord front of Mooring: one bot for every workspace.
//!
//! It translates; it decides nothing and stores nothing. What was said in Discord
//! goes to the workspace's harness with the message's id as request id; what is to
//! be shown comes from the harness's outbox and is acked with the id of the message
//! that shows it. A bot that is killed at any time and started anew continues from
//! the harness's cursors and the outbox.
//!
//! | module | what it does |
//! |---|---|
//! | [`gateway`] | the connection that brings events: resume, heartbeats, budget |
//! | [`rest`] | requests with Discord's limits and a clear outcome |
//! | [`api`] | the requests that the bot makes |
//! | [`intake`] | messages to inputs: routing, joining of split pastes, attachments |
//! | [`catchup`] | what was said while nobody listened |
//! | [`deliver`] | outbox rows to messages, each once |
//! | [`interact`], [`look`], [`branch`], [`complete`] | slash commands and buttons |
//! | [`check`] | start-up checks of intents and permissions |
//! | [`health`] | probes, metrics, conditions |
//! | [`folder`], [`cluster`] | where workspaces come from: files, or the API server |
//!
//! The connection is our own because serenity 0.12 (and so its `Client`) offers no
//! way to keep these rules: it falls back to Discord's public gateway when the
//! configured one cannot be reached, identifies again without looking at the
//! budget, goes on after the fatal close codes 4010 to 4012, and gives an event that
//! it cannot parse away as unknown.

pub mod api;
pub mod args;
pub mod attachment;
pub mod bot;
pub mod branch;
pub mod catchup;
pub mod check;
pub mod cluster;
pub mod command;
pub mod complete;
pub mod deliver;
pub mod error;
pub mod export;
pub mod folder;
pub mod gateway;
pub mod guild;
pub mod harness;
pub mod health;
pub mod id;
pub mod intake;
pub mod interact;
pub mod lane;
pub mod look;
pub mod member;
pub mod payload;
pub mod queued;
pub mod render;
pub mod rest;
pub mod send;
pub mod split;
pub mod threads;
pub mod typing;
pub mod workspace;

pub use bot::{Front, Settings, run};
pub use error::BotError;
