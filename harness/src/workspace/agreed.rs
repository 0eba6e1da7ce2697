//! The version of a Workspace file that is agreed to, kept beside the database: what a
//! changed file permits in addition waits for a yes, also where the process has ended
//! in between.

use std::path::{Path, PathBuf};

use mooring_crds::{Workspace, WorkspaceSpec};
use mooring_wire::private_file;
use serde::{Deserialize, Serialize};

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
    pub fn read(&self, file: &Path) -> Option<Workspace> {
        let text = std::fs::read(&self.path).ok()?;
        match serde_json::from_slice::<Record>(&text) {
            Ok(record) => (record.file == file).then(|| Workspace::new(&record.name, record.spec)),
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the agreed Workspace cannot be read");
                None
            }
        }
    }

    /// Keeps a version of `file`. Where that fails, the next process asks about what
    /// this one has taken already.
    pub fn keep(&self, file: &Path, name: &str, spec: &WorkspaceSpec) {
        let record = Record {
            file: file.to_owned(),
            name: name.to_owned(),
            spec: spec.clone(),
        };
        let json = serde_json::to_vec(&record).expect("a spec is always JSON");
        if let Err(error) = private_file::write(&self.path, &json) {
            tracing::warn!(path = %self.path.display(), %error, "the agreed Workspace was not kept");
        }
    }
}
