//! How the bot is started.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// One Discord bot for every workspace.
#[derive(Clone, Debug, Parser)]
#[command(name = "mooring-bot", version)]
pub struct Args {
    /// Folder of Workspace files, one a file (`*.yaml`), each with the annotation
    /// `mooring.dev/harness`: the address of its harness, `unix:/path/to/socket` or
    /// `http://host:port`.
    /// Without it the Workspaces of the cluster are served.
    #[arg(long, env = "MOORING_WORKSPACES", value_name = "DIR")]
    pub workspaces: Option<PathBuf>,

    /// What it needs in a cluster.
    #[command(flatten)]
    pub cluster: crate::cluster::Settings,

    /// The bot's token.
    #[arg(
        long,
        env = "DISCORD_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    pub token: String,

    /// Base address of Discord's REST interface, in front of `/api/v10`.
    #[arg(
        long,
        env = "DISCORD_REST",
        default_value = "https://discord.com",
        value_name = "URL"
    )]
    pub rest: String,

    /// Address of the gateway. When absent Discord is asked for it.
    #[arg(long, env = "DISCORD_GATEWAY", value_name = "URL")]
    pub gateway: Option<String>,

    /// Where `/healthz`, `/readyz`, `/metrics` and `/conditions` are served.
    #[arg(
        long,
        env = "MOORING_HTTP",
        default_value = "127.0.0.1:0",
        value_name = "ADDRESS"
    )]
    pub http: SocketAddr,

    /// Seconds between two searches for what the gateway did not bring.
    #[arg(
        long,
        env = "MOORING_BOT_SWEEP",
        default_value_t = 300,
        value_name = "SECONDS"
    )]
    pub sweep: u64,

    /// Requests to Discord a second, over all. Discord allows 50, and more to the bots of
    /// many guilds.
    #[arg(
        long = "requests-per-second",
        env = "MOORING_BOT_REQUESTS_PER_SECOND",
        default_value_t = crate::rest::GLOBAL,
        value_name = "COUNT"
    )]
    pub per_second: u32,
}
