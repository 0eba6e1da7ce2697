//! `mooring policy`: review of a policy, without a harness and without a sandbox.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use mooring_policy::ReviewEnvironment;
use mooring_policy::review::calls::{RecordedCall, read_calls};
use mooring_policy::review::{self, Output, Report, ReviewError, Source};

/// Check, explain, compare and test policies.
#[derive(Debug, Args)]
pub struct PolicyArgs {
    #[command(subcommand)]
    command: PolicyCommand,
    /// Form of the output.
    #[arg(long, global = true, value_enum, default_value_t = Form::Human)]
    output: Form,
    /// Project folder in the sandbox.
    #[arg(long, global = true, default_value = "/work", value_name = "FOLDER")]
    project_folder: String,
    /// Home folder in the sandbox.
    #[arg(
        long,
        global = true,
        default_value = "/home/agent",
        value_name = "FOLDER"
    )]
    home_folder: String,
}

#[derive(Debug, Subcommand)]
enum PolicyCommand {
    /// Find what is wrong with a policy; exit status 1 when something is.
    Check {
        /// A Workspace or a policy, YAML or JSON; `-` reads standard input.
        file: PathBuf,
    },
    /// Show the facts of one call, each with the rule that decided it.
    #[command(group(clap::ArgGroup::new("call").required(true).multiple(true).args(["bash", "path", "tool", "push", "egress"])))]
    Explain {
        /// A Workspace or a policy, YAML or JSON; `-` reads standard input.
        file: PathBuf,
        /// A script for the bash tool.
        #[arg(long, conflicts_with_all = ["path", "tool"])]
        bash: Option<String>,
        /// A path; written, unless `--tool` names a tool that reads.
        #[arg(long)]
        path: Option<String>,
        /// A tool's name.
        #[arg(long)]
        tool: Option<String>,
        /// A ref that is pushed, by its whole name (`refs/heads/main`).
        #[arg(long, value_name = "REF", conflicts_with_all = ["bash", "path", "tool"])]
        push: Option<String>,
        /// The push is no fast-forward.
        #[arg(long, requires = "push", conflicts_with = "delete")]
        force: bool,
        /// The push removes the ref.
        #[arg(long, requires = "push")]
        delete: bool,
        /// A connection of a command (`crates.io:443`).
        #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["bash", "path", "tool", "push"])]
        egress: Option<String>,
    },
    /// Show which calls are decided differently; exit status 1 when something became more permissive.
    Diff {
        /// The policy as it was.
        old: PathBuf,
        /// The policy as it would be.
        new: PathBuf,
        /// Recorded calls, one JSON object a line; without it, calls made from the rules of both.
        #[arg(long, value_name = "FILE.jsonl")]
        calls: Option<PathBuf>,
    },
    /// Check a policy's own expectations, or cases; exit status 1 when one fails.
    Test {
        /// A Workspace or a policy, YAML or JSON; `-` reads standard input.
        #[arg(required_unless_present = "cases", conflicts_with = "cases")]
        file: Option<PathBuf>,
        /// Cases, one JSON object a line, each with a policy of its own.
        #[arg(long, value_name = "FILE.jsonl")]
        cases: Option<PathBuf>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Form {
    /// For people.
    Human,
    /// One JSON document.
    Json,
    /// Annotations of GitHub Actions.
    Github,
}

/// Why nothing could be reviewed: exit status 2.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{}: {error}", .path.display())]
    File {
        path: PathBuf,
        error: std::io::Error,
    },
    #[error("{0:?} is no whole name of a ref; write refs/heads/NAME or refs/tags/NAME")]
    Reference(String),
    #[error("{0:?} is no HOST:PORT, such as crates.io:443")]
    Destination(String),
    #[error(transparent)]
    Review(#[from] ReviewError),
    #[error("standard output: {0}")]
    Output(std::io::Error),
}

/// Runs a review. Exit status 0: nothing found; 1: something found; 2: not reviewed.
pub fn run(args: &PolicyArgs) -> ExitCode {
    let done = report(args).and_then(|report| {
        let mut output = std::io::stdout().lock();
        output
            .write_all(report.text.as_bytes())
            .and_then(|()| output.flush())
            .map_err(Error::Output)?;
        Ok(report.failed)
    });
    match done {
        Ok(failed) => ExitCode::from(u8::from(failed)),
        Err(error) => {
            eprintln!("mooring policy: {error}");
            ExitCode::from(2)
        }
    }
}

fn report(args: &PolicyArgs) -> Result<Report, Error> {
    let output = match args.output {
        Form::Human => Output::Human,
        Form::Json => Output::Json,
        Form::Github => Output::Github,
    };
    let place = ReviewEnvironment::new(&args.project_folder, &args.home_folder);
    Ok(match &args.command {
        PolicyCommand::Check { file } => review::check(&source(file)?, output),
        PolicyCommand::Explain {
            file,
            push: Some(reference),
            force,
            delete,
            ..
        } => {
            let push = mooring_policy::Push {
                reference,
                force: *force,
                delete: *delete,
            };
            let call = RecordedCall::push(&push.text())
                .ok_or_else(|| Error::Reference(reference.clone()))?;
            review::explain(&source(file)?, &call, &place, output)
        }
        PolicyCommand::Explain {
            file,
            egress: Some(destination),
            ..
        } => {
            let call = RecordedCall::connection(destination)
                .ok_or_else(|| Error::Destination(destination.clone()))?;
            review::explain(&source(file)?, &call, &place, output)
        }
        PolicyCommand::Explain {
            file,
            bash,
            path,
            tool,
            ..
        } => {
            let call = match (bash, path, tool) {
                (Some(text), _, _) => RecordedCall::bash(text),
                (None, Some(path), tool) => {
                    RecordedCall::path(tool.as_deref().unwrap_or("write"), path)
                }
                (None, None, tool) => RecordedCall::tool(tool.as_deref().unwrap_or_default()),
            };
            review::explain(&source(file)?, &call, &place, output)
        }
        PolicyCommand::Diff { old, new, calls } => {
            let calls = match calls {
                Some(file) => Some(read_calls(&file.display().to_string(), &text(file)?)?),
                None => None,
            };
            review::diff(
                &source(old)?,
                &source(new)?,
                calls.as_deref(),
                &place,
                output,
            )
        }
        PolicyCommand::Test {
            cases: Some(file), ..
        } => {
            let name = file.display().to_string();
            review::cases(
                &name,
                &text(file)?,
                &args.project_folder,
                &args.home_folder,
                output,
            )?
        }
        PolicyCommand::Test { file, .. } => {
            review::test(&source(file.as_deref().unwrap_or(Path::new("-")))?, output)
        }
    })
}

fn source(path: &Path) -> Result<Source, Error> {
    Ok(Source::new(&path.display().to_string(), &text(path)?)?)
}

fn text(path: &Path) -> Result<String, Error> {
    let read = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    read.map_err(|error| Error::File {
        path: path.to_owned(),
        error,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        policy: PolicyArgs,
    }

    fn reviewed(words: &[&str]) -> Result<Report, Error> {
        let words = std::iter::once("policy").chain(words.iter().copied());
        report(&Program::try_parse_from(words).unwrap().policy)
    }

    #[test]
    fn each_subcommand_reports_on_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let strict = file(
            "strict.yaml",
            "tool: {bash: ask}\nbash: {\"git push*\": deny}\n",
        );
        let open = file(
            "open.yaml",
            "tool: {bash: ask}\nbash: {\"git push*\": allow}\n",
        );
        let calls = file(
            "calls.jsonl",
            "{\"tool\": \"bash\", \"bash\": \"git push\"}\n",
        );
        assert!(!reviewed(&["check", &strict]).unwrap().failed);
        assert!(!reviewed(&["test", &strict]).unwrap().failed);
        assert!(
            reviewed(&["diff", &strict, &open, "--calls", &calls])
                .unwrap()
                .failed
        );
        assert!(
            !reviewed(&["diff", &open, &strict, "--calls", &calls])
                .unwrap()
                .failed
        );
        let explained =
            reviewed(&["explain", &strict, "--bash", "git push", "--output", "json"]).unwrap();
        let document: serde_json::Value = serde_json::from_str(&explained.text).unwrap();
        assert_eq!(document["verdict"], "deny");
        assert_eq!(document["facts"][0]["rule"]["pattern"], "git push*");
        assert!(reviewed(&["check", "no-such-file"]).is_err());
        for (words, expected) in [
            (&["refs/heads/main"][..], "ask: "),
            (&["refs/heads/mooring/x"], "allow: "),
            (&["refs/heads/mooring/x", "--force"], "ask: "),
            (&["refs/heads/mooring/x", "--delete"], "ask: "),
        ] {
            let told = reviewed(&[&["explain", &strict, "--push"], words].concat()).unwrap();
            assert!(told.text.starts_with(expected), "{words:?} {}", told.text);
        }
        assert!(reviewed(&["explain", &strict, "--push", "main"]).is_err());
        let told = reviewed(&["explain", &strict, "--egress", "crates.io:443"]).unwrap();
        assert!(told.text.starts_with("deny: "), "{}", told.text);
        assert!(
            told.text.contains("no rule in the egress table"),
            "{}",
            told.text
        );
        assert!(reviewed(&["explain", &strict, "--egress", "crates.io"]).is_err());
    }
}
