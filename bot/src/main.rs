//! `mooring-bot`: reads its arguments and runs.

use clap::Parser;
use mooring_bot::args::Args;
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .init();
    // Both ring and aws-lc are linked in by others; without a choice TLS panics.
    let _ = rustls::crypto::ring::default_provider().install_default();
    mooring_bot::run(args).await?;
    Ok(())
}
