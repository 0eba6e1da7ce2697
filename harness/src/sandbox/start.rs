//! Starts the sandbox daemon of a project on this machine.

use std::{path::PathBuf, process::Stdio};

use tokio::process::{Child, Command};

/// How the daemon is started: this program again, with a hidden subcommand, in a
/// session of its own, so that the end of the harness never ends it.
#[derive(Clone, Debug)]
pub struct Daemon {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Where its log goes.
    pub log: PathBuf,
}

impl Daemon {
    /// Starts it. That it serves is seen at its socket; the error is one for people.
    pub fn start(&self) -> Result<Child, String> {
        let told = |error: std::io::Error| {
            format!(
                "the sandbox daemon ({}) does not start: {error}",
                self.program.display()
            )
        };
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)
            .map_err(told)?;
        let errors = log.try_clone().map_err(told)?;
        // The running program itself, also where its file was replaced meanwhile.
        Command::new("/proc/self/exe")
            .arg0(&self.program)
            .args(&self.arguments)
            // Nothing of the harness's environment reaches the sandbox.
            .env_clear()
            .envs(
                ["HOME", "PATH", "USER", "XDG_CACHE_HOME", "RUST_LOG"]
                    .into_iter()
                    .filter_map(|name| std::env::var_os(name).map(|value| (name, value))),
            )
            .stdin(Stdio::null())
            .stdout(log)
            .stderr(errors)
            .spawn()
            .map_err(told)
    }

    /// The end of its log, for an error that people read.
    pub fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        let tail = &text[text.len().saturating_sub(2_000)..];
        let tail = String::from_utf8_lossy(tail);
        tail.lines()
            .rev()
            .take(5)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join("\n")
    }
}
