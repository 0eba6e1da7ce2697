//! Workspaces from a folder of files, for a bot without a cluster.

use std::path::Path;

use mooring_crds::read_workspace;

use crate::BotError;
use crate::harness::Address;
use crate::workspace::{Rejected, Roster, Wanted};

/// Annotation that names the harness's address.
pub const HARNESS: &str = "mooring.dev/harness";

/// Reads every `*.yaml` of the folder, in the order of their names; one that cannot
/// be served does not stop the others.
///
/// # Errors
/// The folder cannot be read, or no file of it can be served.
pub fn read(folder: &Path) -> Result<Roster, BotError> {
    let told = |error| BotError::Argument(format!("{}: {error}", folder.display()));
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map_err(told)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|ext| ext == "yaml" || ext == "yml")
        })
        .collect();
    files.sort();
    let mut roster = Roster::new();
    for file in files {
        let text = std::fs::read_to_string(&file)
            .map_err(|error| BotError::Argument(format!("{}: {error}", file.display())))?;
        roster.push(wanted(&text, &file.display().to_string()));
    }
    if !roster.iter().any(Result::is_ok) {
        let why: Vec<_> = roster
            .into_iter()
            .filter_map(|one| Some(one.err()?.message))
            .collect();
        return Err(BotError::Workspace(format!(
            "{}: no Workspace can be served: {}",
            folder.display(),
            if why.is_empty() {
                "there is no file *.yaml".into()
            } else {
                why.join("; ")
            }
        )));
    }
    Ok(roster)
}

fn wanted(text: &str, file: &str) -> Result<Wanted, Rejected> {
    let bad = |message: String| Rejected::invalid(file, message);
    let workspace = read_workspace(text, file).map_err(|error| bad(error.to_string()))?;
    let name = workspace
        .metadata
        .name
        .clone()
        .unwrap_or_else(|| file.to_owned());
    let discord = workspace
        .spec
        .discord
        .as_ref()
        .ok_or_else(|| bad(format!("{file}: spec.discord is missing")))?;
    let address = workspace
        .metadata
        .annotations
        .as_ref()
        .and_then(|annotations| annotations.get(HARNESS))
        .ok_or_else(|| bad(format!("{file}: the annotation {HARNESS} is missing")))?;
    let harness =
        Address::parse(address).map_err(|why| bad(format!("{file}: {HARNESS}: {why}")))?;
    Wanted::read(name, file, discord, harness)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn files_are_taken_in_the_order_of_their_names_and_a_wrong_one_stops_no_other() {
        let file = |name: &str, harness: &str| {
            format!(
                "apiVersion: mooring.dev/v1alpha1\nkind: Workspace\nmetadata:\n  name: {name}\n  annotations:\n    \
                 mooring.dev/harness: {harness}\nspec:\n  models: [{{name: m, provider: rehearsal}}]\n  \
                 discord: {{guildId: \"1\", channelId: \"10\"}}\n"
            )
        };
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("b.yaml", file("second", "unix:/run/second.sock")),
            ("a.yaml", file("first", "http://127.0.0.1:1")),
            ("c.yaml", "nonsense: [".to_owned()),
            ("d.yaml", file("fourth", "ftp://there")),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let roster = read(folder.path()).unwrap();
        let names: Vec<_> = roster
            .iter()
            .map(|one| one.as_ref().map(|one| one.name.as_str()).map_err(|_| ()))
            .collect();
        assert_eq!(names, [Ok("first"), Ok("second"), Err(()), Err(())]);
        let told = &roster[3].as_ref().unwrap_err().message;
        assert!(
            told.contains("mooring.dev/harness") && told.contains("ftp://there"),
            "{told}"
        );
    }

    #[test]
    fn an_empty_folder_is_an_error_that_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("there is no file *.yaml"), "{error}");
    }
}
