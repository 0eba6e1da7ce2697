//! The version of a Workspace file that is agreed to, kept beside the database: what a
//! changed file permits in addition waits for a yes, also where the process has ended
//! in between.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

use mooring_crds::{Workspace, WorkspaceSpec};
use mooring_wire::private_file;
use serde::{Deserialize, Serialize};

use super::Loaded;
use crate::error::Error;

/// Where the agreed version is kept.
#[derive(Debug)]
pub struct Agreed {
    path: PathBuf,
}

#[derive(Deserialize, Serialize)]
struct Record {
    /// The Workspace file that it is a version of: another file is a choice of its own.
    file: PathBuf,
    name: String,
    spec: WorkspaceSpec,
}

impl Agreed {
    /// In a project's state folder.
    pub fn of(state: &Path) -> Agreed {
        Agreed {
            path: state.join("workspace.agreed.json"),
        }
    }

    /// The version of `file`; `None` where none is kept.
    ///
    /// # Errors
    /// When there is a record that cannot be read: without it nobody would be asked.
    pub fn read(&self, file: &Path) -> Result<Option<Workspace>, Error> {
        let wrong = |why: String| {
            Error::Workspace(format!(
                "{} cannot be read: {why}; it tells what of {} was agreed to: look at what \
                 that file permits, and remove the record to agree to all of it",
                self.path.display(),
                file.display()
            ))
        };
        let text = match std::fs::read(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(wrong(error.to_string())),
        };
        let record: Record =
            serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
        Ok((record.file == file).then(|| Workspace::new(&record.name, record.spec)))
    }

    /// Keeps a version of `file`. Where that fails, the next process asks about what it
    /// permits beyond the one that was kept last.
    pub fn keep(&self, file: &Path, version: &Loaded) {
        let record = Record {
            file: file.to_owned(),
            name: version.name.clone(),
            spec: version.spec.clone(),
        };
        let json = serde_json::to_vec(&record).expect("a spec is always JSON");
        if let Err(error) = private_file::write(&self.path, &json) {
            tracing::warn!(path = %self.path.display(), %error, "the agreed Workspace was not kept");
        }
    }
}
