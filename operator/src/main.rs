//! `mooring-operator`: brings Workspaces up in a cluster and keeps them so.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Parser;
use mooring_operator::dry_run::dry_run;
use mooring_operator::metrics::Metrics;
use mooring_operator::{Settings, check, run};

/// Brings Workspaces up in a cluster and keeps them so.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// Print what would be made of the Workspace in --file, and end.
    #[arg(long, requires = "file")]
    dry_run: bool,
    /// Ask the operator at HOST:PORT whether it is ready, and end.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "dry_run")]
    check: Option<String>,
    /// With --check: also that Approvals of --namespace are held by the admission policy.
    #[arg(long, requires = "check")]
    check_admission: bool,
    /// A Workspace in YAML; `-` reads from the standard input.
    #[arg(short, long, requires = "dry_run")]
    file: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments {
        file,
        check,
        check_admission,
        settings,
        ..
    } = Arguments::parse();
    if let Some(file) = file {
        let name = file.display().to_string();
        let text = if name == "-" {
            std::io::read_to_string(std::io::stdin())
        } else {
            std::fs::read_to_string(&file)
        };
        print!(
            "{}",
            dry_run(&settings, &text.with_context(|| name.clone())?, &name)?
        );
        return Ok(());
    }
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("a TLS provider was installed before"))?;
    if let Some(address) = check {
        check::is_ready(&address).await?;
        println!("the operator at {address} is ready");
        if check_admission {
            let client = kube::Client::try_default()
                .await
                .context("no way to the API server")?;
            check::approvals_are_guarded(client, &settings.namespace).await?;
            println!("only harnesses make approvals");
        }
        return Ok(());
    }
    tracing_subscriber::fmt()
        .json()
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env()
                .unwrap_or_else(|_| "info,kube=warn,k8s_controller=warn".into()),
        )
        .init();

    let metrics = Metrics::new()?;
    let listener = tokio::net::TcpListener::bind(settings.http)
        .await
        .with_context(|| format!("listening on {}", settings.http))?;
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let health = tokio::spawn(axum::serve(listener, metrics.routes()).into_future());
    let client = kube::Client::try_default()
        .await
        .context("no way to the API server")?;
    let identity = std::env::var("POD_NAME")
        .or_else(|_| std::env::var("HOSTNAME"))
        .unwrap_or_else(|_| format!("mooring-operator-{}", std::process::id()));

    tokio::select! {
        ended = run::run(client, settings, metrics, &identity) => ended?,
        served = health => served??,
        _ = terminate.recv() => tracing::info!("asked to end"),
        _ = tokio::signal::ctrl_c() => tracing::info!("asked to end"),
    }
    Ok(())
}
