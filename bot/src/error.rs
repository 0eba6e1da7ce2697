//! What ends the bot, by what its operator can do.

/// Why the bot cannot run.
#[derive(Debug, thiserror::Error)]
pub enum BotError {
    /// The token is refused.
    #[error(
        "Discord refuses the token: copy it anew from the application's Bot page into DISCORD_TOKEN"
    )]
    Token,
    /// An intent that is switched off for the application.
    #[error(
        "Discord refuses the intents: switch on \"Message Content Intent\" on the application's Bot page"
    )]
    Intents,
    /// Another close code after which trying again is of no use.
    #[error("Discord closed the gateway with {code} ({reason}), which is final")]
    Final {
        /// The close code.
        code: u16,
        /// Discord's word for it.
        reason: String,
    },
    /// A Workspace file that cannot be used.
    #[error("{0}")]
    Workspace(String),
    /// An address or path that was given is wrong.
    #[error("{0}")]
    Argument(String),
    /// The API server could not be used.
    #[error("the cluster: {0}")]
    Cluster(String),
    /// Another bot has the lease now; this one must not speak any more.
    #[error("the lease {0} was lost: another bot speaks now")]
    LeaseLost(&'static str),
    /// The health server could not listen.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// Where.
        address: String,
        /// Why.
        source: std::io::Error,
    },
}
