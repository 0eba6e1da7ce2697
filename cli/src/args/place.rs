//! The command line of a sandbox for another machine.

use clap::{Args, Subcommand};

use super::CommandArgs;

/// `mooring sandbox`.
#[derive(Clone, Debug, Args)]
pub struct PlaceArgs {
    /// What to do.
    #[command(subcommand)]
    pub command: PlaceCommand,
}

/// What to do with a sandbox for another machine.
#[derive(Clone, Debug, Subcommand)]
pub enum PlaceCommand {
    /// Serve the project's folder on this machine to the harness of another one.
    ///
    /// Files and commands of the agent are here, in a sandbox without network;
    /// conversations, keys and decisions stay there. A code that is printed pairs
    /// the two once; `mooring dev --sandbox HOST:PORT` there asks for it.
    Serve(ServeArgs),
    /// Show with which harness this project's sandbox is paired, or make a new code.
    Pair {
        /// Make a new code; whoever uses it takes the place of the paired harness.
        #[arg(long)]
        new: bool,
    },
    /// End a pairing: with an address that of this project's harness with the sandbox
    /// there, without one that of the sandbox which is served here.
    Forget {
        /// The sandbox that this project no longer uses.
        #[arg(value_name = "HOST:PORT")]
        address: Option<String>,
    },
}

/// `mooring sandbox serve`.
#[derive(Clone, Debug, Args)]
pub struct ServeArgs {
    /// Where to listen.
    #[arg(long, value_name = "ADDR:PORT", default_value = "0.0.0.0:7443")]
    pub listen: std::net::SocketAddr,
    /// Run commands even where nothing can hold them in a sandbox.
    #[arg(long)]
    pub allow_unisolated: bool,
    /// What commands find.
    #[command(flatten)]
    pub commands: CommandArgs,
}
