//! The daemon as a program of its own: in the sandbox pod, or for one project.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use mooring_sandbox::{
    CommandEnvironment, DevOptions, Egress, Limits, Listen, PodOptions, SandboxError, Unisolated,
};

/// Serves files and commands of one sandbox.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    place: Place,
}

#[derive(Subcommand)]
enum Place {
    /// On this machine, in namespaces of its own.
    Dev(Dev),
    /// In a pod, over mutual TLS.
    Pod(Pod),
}

#[derive(Args)]
struct Common {
    /// The project's folder.
    #[arg(long)]
    project: PathBuf,
    /// Folder for records and output.
    #[arg(long)]
    state: PathBuf,
    /// PATH of commands.
    #[arg(long)]
    path: Option<String>,
    /// NAME=VALUE for commands; may be given several times.
    #[arg(long = "env", value_parser = pair)]
    variables: Vec<(String, String)>,
    /// Output that is kept of one command, in bytes.
    #[arg(long)]
    output_bytes: Option<u64>,
    /// Output that is kept of all commands together, in bytes.
    #[arg(long)]
    output_total_bytes: Option<u64>,
}

#[derive(Args)]
struct Dev {
    #[command(flatten)]
    common: Common,
    /// Socket that the harness connects to.
    #[arg(long)]
    socket: PathBuf,
    /// The user's home.
    #[arg(long, env = "HOME")]
    home: PathBuf,
    /// Folder that commands may read; may be given several times.
    #[arg(long)]
    read_only: Vec<PathBuf>,
    /// File that commands may not change; may be given several times.
    #[arg(long)]
    protect: Vec<PathBuf>,
    /// Serve even where commands cannot be isolated.
    #[arg(long)]
    allow_unisolated: bool,
}

#[derive(Args)]
struct Pod {
    #[command(flatten)]
    common: Common,
    /// Address to listen on.
    #[arg(long, default_value = "0.0.0.0:7443")]
    listen: SocketAddr,
    /// Folder with tls.crt, tls.key and ca.crt.
    #[arg(long)]
    certificates: PathBuf,
    /// DNS name in the harness's certificate.
    #[arg(long)]
    harness: String,
    /// Home of commands.
    #[arg(long, default_value = "/home/agent")]
    home: PathBuf,
    /// Start commands though no probe has found the network closed.
    #[arg(long)]
    egress_warn: bool,
}

impl Common {
    fn environment(&self) -> CommandEnvironment {
        let default = CommandEnvironment::default();
        CommandEnvironment {
            path: self.path.clone().unwrap_or(default.path),
            variables: self.variables.iter().cloned().collect::<BTreeMap<_, _>>(),
            ..CommandEnvironment::default()
        }
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            output_bytes: self.output_bytes.unwrap_or(default.output_bytes),
            output_total_bytes: self
                .output_total_bytes
                .unwrap_or(default.output_total_bytes),
            ..default
        }
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("needs the form NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

fn main() -> Result<(), anyhow::Error> {
    mooring_sandbox::log_to_stderr();
    Ok(run(Arguments::parse().place)?)
}

fn run(place: Place) -> Result<(), SandboxError> {
    match place {
        Place::Dev(dev) => mooring_sandbox::run_dev(DevOptions {
            environment: dev.common.environment(),
            limits: dev.common.limits(),
            project: dev.common.project,
            state: dev.common.state,
            listen: Listen::Socket(dev.socket),
            home: dev.home,
            read_only: dev.read_only,
            protected: dev.protect,
            unisolated: if dev.allow_unisolated {
                Unisolated::Allowed
            } else {
                Unisolated::Refused
            },
        }),
        Place::Pod(pod) => mooring_sandbox::run_pod(PodOptions {
            environment: pod.common.environment(),
            limits: pod.common.limits(),
            project: pod.common.project,
            state: pod.common.state,
            listen: pod.listen,
            certificates: pod.certificates,
            harness: pod.harness,
            home: pod.home,
            egress: if pod.egress_warn {
                Egress::Warn
            } else {
                Egress::Enforce
            },
        }),
    }
}
