//! `mooring init`: the Workspace that holds where there is no file.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use mooring_crds::Workspace;

use super::say;
use crate::args::InitArgs;
use crate::error::Error;
use crate::exit::Exit;
use crate::{keys, setup};

/// Prints it or writes it; a file that is there is left alone.
pub fn run(project: Option<&Path>, args: &InitArgs) -> Result<Exit, Error> {
    let project = setup::project(project)?;
    let found = keys::from_env(keys::usual(), |name| std::env::var(name).ok());
    let workspace =
        mooring_harness::default_workspace(&project.name(), |name| found.contains_key(name));
    let text = yaml(&workspace)?;
    let Some(path) = &args.file else {
        write!(std::io::stdout(), "{text}")?;
        return Ok(Exit::Done);
    };
    let fail = |error: std::io::Error| Error::Path {
        path: path.clone(),
        why: match error.kind() {
            std::io::ErrorKind::AlreadyExists => "is there already and was left as it is".into(),
            _ => error.to_string(),
        },
    };
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(path)
        .map_err(fail)?;
    file.write_all(text.as_bytes()).map_err(fail)?;
    say(format_args!(
        "wrote {0}; start with: mooring dev {0}",
        path.display()
    ))?;
    Ok(Exit::Done)
}

fn yaml(workspace: &Workspace) -> Result<String, Error> {
    let body = serde_saphyr::to_string(workspace)
        .map_err(|error| Error::Usage(format!("the default Workspace is no YAML: {error}")))?;
    Ok(format!(
        "# What the agent of this project may do, and with which model.\n\
         # A change takes effect while it runs; one that permits more asks first.\n{body}"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use mooring_crds::{Provider, read_workspace};

    #[test]
    fn what_init_prints_is_a_valid_workspace_for_one_person() {
        for (key, provider) in [
            ("ANTHROPIC_API_KEY", Provider::Anthropic),
            ("OPENAI_API_KEY", Provider::OpenAI),
            ("", Provider::Rehearsal),
        ] {
            let made = mooring_harness::default_workspace("My Project", |name| name == key);
            let read = read_workspace(&yaml(&made).unwrap(), "workspace.yaml").unwrap();
            assert_eq!(read.spec.models[0].provider, provider);
            assert!(read.spec.approvals.requester_may_approve);
            assert_eq!(read.spec.approvals.timeout, "never");
        }
    }
}
