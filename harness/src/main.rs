//! `mooring-harness`: the harness as a program of its own, in a pod.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use mooring_harness::cluster;

/// Holds one workspace's conversations, keys and rules, and runs no command itself.
#[derive(Parser)]
#[command(name = "mooring-harness", version)]
struct Arguments {
    #[command(subcommand)]
    place: Place,
}

#[derive(Subcommand)]
enum Place {
    /// In a pod, for the Workspace of that name.
    Cluster(cluster::Settings),
}

#[tokio::main]
async fn main() -> ExitCode {
    let Place::Cluster(settings) = Arguments::parse().place;
    match cluster::run(settings).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "the harness ends");
            ExitCode::FAILURE
        }
    }
}
