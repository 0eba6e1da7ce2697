//! `mooring completion`.

use clap::CommandFactory;

use crate::args::Cli;
use crate::error::Error;
use crate::exit::Exit;

/// Prints the completion script of a shell.
pub fn run(shell: clap_complete::Shell) -> Result<Exit, Error> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "mooring", &mut script);
    std::io::Write::write_all(&mut std::io::stdout(), &script)?;
    Ok(Exit::Done)
}
