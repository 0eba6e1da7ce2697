//! The `mooring` program: a terminal client, and – run again by itself under a
//! hidden subcommand – the harness and the sandbox daemon.

mod args;
mod cards;
mod cluster;
mod commands;
mod connection;
mod demo;
mod error;
mod exit;
mod format;
mod json;
mod keys;
mod pairing;
mod printer;
mod processes;
mod project;
mod setup;
mod slash;
mod style;
mod terminal;
mod text;
mod view;
mod watching;

use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::exit::Exit;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match cli.command {
        // These two make threads and namespaces of their own.
        Command::Harness(args) => processes::run_harness(cli.project, args),
        Command::SandboxDaemon(args) => processes::run_sandbox_daemon(cli.project, args),
        Command::Policy(args) => commands::policy::run(&args),
        Command::Sandbox(args) => commands::sandbox::run(cli.project.as_deref(), args.command),
        command => run_client(cli.project, command),
    }
}

fn run_client(project: Option<std::path::PathBuf>, command: Command) -> ExitCode {
    let result = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(error::Error::from)
        .and_then(|runtime| {
            let result = runtime.block_on(commands::run(project, command));
            // A thread that reads the terminal never ends by itself.
            runtime.shutdown_background();
            result
        });
    match result {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mooring: {error}");
            ExitCode::from(Exit::from(&error).code())
        }
    }
}
