//! The command line of the processes that `mooring` starts of itself.

use std::path::PathBuf;

use clap::Args;

/// What commands in a sandbox find.
#[derive(Clone, Debug, Default, Args)]
pub struct CommandArgs {
    /// Folder of this machine that commands may read; may be given several times.
    #[arg(long, value_name = "FOLDER")]
    pub read_only: Vec<PathBuf>,
    /// Environment of commands, as NAME=VALUE; may be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Bytes of output kept whole for one command.
    #[arg(long, value_name = "BYTES")]
    pub output_bytes: Option<u64>,
}

/// `mooring harness`: what a client starts.
#[derive(Clone, Debug, Args)]
pub struct HarnessArgs {
    /// The state folder.
    #[arg(long)]
    pub state: PathBuf,
    /// The socket to serve on.
    #[arg(long)]
    pub socket: PathBuf,
    /// The sandbox daemon's socket.
    #[arg(long)]
    pub sandbox_socket: PathBuf,
    /// The Workspace file.
    #[arg(long, conflicts_with = "default_workspace")]
    pub workspace: Option<PathBuf>,
    /// No file: the default Workspace.
    #[arg(long)]
    pub default_workspace: bool,
    /// Run commands even where nothing can hold them in a sandbox.
    #[arg(long)]
    pub allow_unisolated: bool,
    /// Destinations in private networks that may be reached (`10.1.2.0/24:443`).
    #[arg(
        long = "private-destination",
        env = "MOORING_PRIVATE_DESTINATIONS",
        value_delimiter = ','
    )]
    pub private_destinations: Vec<mooring_crds::Destination>,
    /// Names that lead elsewhere than the resolver says (`crates.io:443=10.1.2.3:8443`).
    #[arg(long, env = "MOORING_CONNECT_TO", value_delimiter = ',')]
    pub connect_to: Vec<mooring_harness::boundary::ConnectTo>,
    /// HOST:PORT of the sandbox on another machine.
    #[arg(long)]
    pub sandbox: Option<String>,
}

/// `mooring sandbox-daemon`: what a harness starts.
#[derive(Clone, Debug, Args)]
pub struct SandboxArgs {
    /// Folder of records, output and the sandbox's home.
    #[arg(long)]
    pub state: PathBuf,
    /// The socket to serve on.
    #[arg(long)]
    pub socket: PathBuf,
    /// Files of the project that commands may not change.
    #[arg(long)]
    pub protect: Vec<PathBuf>,
    /// What commands find.
    #[command(flatten)]
    pub commands: CommandArgs,
}
