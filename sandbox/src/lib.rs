//! The daemon in the sandbox: files, executions, probe.
//!
//! Every file and every process operation of the agent goes through it. A
//! program that wants to be the daemon calls, before it starts any thread,
//!
//! 1. [`enter`] (under `mooring dev`) or [`enter_pod`], which returns in a new
//!    process inside the sandbox,
//! 2. [`runtime`] and in it [`serve`], which never ends by itself;
//!
//! or [`run_dev`] for both. It keeps running when its starter dies.
//!
//! | process | what | ends |
//! |---|---|---|
//! | outer | waits outside the namespaces | with init, and init with it |
//! | init | process 1: forks supervisors, buries orphans | with the daemon |
//! | daemon | serves the contract; one thread | never by itself |
//! | supervisor | one per command: its output, input and time | with all descendants of the command |

mod attach;
mod authorities;
mod confine;
mod descendants;
mod enter;
mod error;
mod executions;
mod folders;
mod gitconfig;
mod guard;
mod init;
mod journal;
mod mounts;
mod options;
mod pairing;
mod paths;
mod protocol;
mod read;
mod record;
mod repositories;
mod retention;
mod search;
mod serve;
mod service;
mod spool;
mod supervisor;
mod sys;
mod toolchains;
mod tunnel;
mod worktrees;
mod write;

pub use enter::{Entered, Grade, enter, enter_pod};
pub use error::SandboxError;
pub use options::{CommandEnvironment, DevOptions, Egress, Limits, Listen, PodOptions, Unisolated};
pub use pairing::{CODE_LIFE, Pairing};
pub use serve::{runtime, serve};
pub use toolchains::toolchains;

/// [`enter`], then [`serve`] in a [`runtime`] of its own.
///
/// # Errors
/// As those two.
pub fn run_dev(options: DevOptions) -> Result<(), SandboxError> {
    run(enter(options)?)
}

/// [`enter_pod`], then [`serve`] in a [`runtime`] of its own.
///
/// # Errors
/// As those two.
pub fn run_pod(options: PodOptions) -> Result<(), SandboxError> {
    run(enter_pod(options)?)
}

fn run(entered: Entered) -> Result<(), SandboxError> {
    let runtime = runtime().map_err(SandboxError::setup("runtime"))?;
    runtime.block_on(serve(entered))
}

/// Writes the daemon's log to standard error, as `RUST_LOG` says or at `info`.
pub fn log_to_stderr() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_env_filter(
            tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()),
        )
        .init();
}
