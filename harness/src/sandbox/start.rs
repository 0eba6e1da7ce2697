//! Starts the sandbox daemon of a project on this machine.

use std::{
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
};

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
    pub fn start(&self) -> Result<(), String> {
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
        let mut command = Command::new(&self.program);
        command
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
            .process_group(0);
        let mut child = command.spawn().map_err(told)?;
        // Reaped when it ends; it may outlive this process.
        std::thread::Builder::new()
            .name("sandbox-daemon-wait".into())
            .spawn(move || child.wait())
            .map_err(told)?;
        Ok(())
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
