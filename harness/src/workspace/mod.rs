//! The Workspace in use: loaded, watched, replaced without a restart.

mod agreed;
mod default;
mod loosened;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, RwLock},
};

use mooring_crds::{Workspace, WorkspaceSpec, read_workspace};
use mooring_policy::Rules;
use tokio::sync::watch;

pub use agreed::Agreed;
pub use default::default_workspace;
pub use loosened::loosened;

use crate::error::Error;

/// A Workspace as it is in use: never changed, only replaced.
#[derive(Debug)]
pub struct Loaded {
    /// `metadata.name`.
    pub name: String,
    /// What the team wants.
    pub spec: WorkspaceSpec,
    /// Its policy, compiled.
    pub rules: Rules,
    /// SHA-256 of the whole spec's JSON: names this version.
    pub digest: String,
}

impl Loaded {
    fn new(workspace: Workspace) -> Loaded {
        let json = serde_json::to_vec(&workspace.spec).expect("a spec is always JSON");
        Loaded {
            name: workspace
                .metadata
                .name
                .unwrap_or_else(|| "workspace".into()),
            rules: Rules::new(&workspace.spec.policy),
            digest: mooring_durable::id::Hash::of(&json).0,
            spec: workspace.spec,
        }
    }

    /// The environment that the team gives to commands.
    pub fn environment(&self) -> HashMap<String, String> {
        self.spec.sandbox.env.clone().into_iter().collect()
    }

    /// How long an approval stays open; `None` is for ever.
    pub fn approval_timeout(&self) -> Option<std::time::Duration> {
        mooring_crds::duration::duration(&self.spec.approvals.timeout)
            .ok()
            .flatten()
    }
}

/// A newer version of the file that is not in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pending {
    /// The file is the version in use.
    None,
    /// It permits more, and waits for a yes.
    NeedsYes {
        /// Names the version that is agreed to.
        digest: String,
        /// What it would permit.
        lines: Vec<String>,
    },
    /// It is wrong; the last good one stays in use.
    Wrong(String),
}

/// Where a Workspace comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    /// A file, which may change.
    File(PathBuf),
    /// Nowhere: the default Workspace.
    Default,
    /// The API server, which says who may change it.
    Cluster,
}

/// The Workspace in use, and where it comes from.
pub struct Source {
    origin: Origin,
    current: watch::Sender<Arc<Loaded>>,
    pending: RwLock<Pending>,
    /// Of a file alone.
    agreed: Option<Agreed>,
}

impl Source {
    /// Reads the Workspace at `path`, or takes `fallback` where there is no path. What
    /// the file permits beyond its version in `agreed` waits for a yes.
    pub fn open(
        path: Option<PathBuf>,
        fallback: Workspace,
        agreed: Option<Agreed>,
    ) -> Result<Source, Error> {
        let Some(path) = path else {
            return Ok(Source::new(Origin::Default, fallback, None));
        };
        // Wrong in a new process is an error: whoever starts it is told.
        let workspace = read(&path)?;
        let before = match &agreed {
            Some(agreed) => agreed.read(&path)?,
            None => None,
        };
        let source = Source::new(Origin::File(path), before.unwrap_or(workspace), agreed);
        source.keep(&source.current());
        source.reload(None);
        Ok(source)
    }

    /// A Workspace of the cluster; [`Source::replace`] brings its changes.
    pub fn of_cluster(workspace: Workspace) -> Source {
        Source::new(Origin::Cluster, workspace, None)
    }

    fn new(origin: Origin, workspace: Workspace, agreed: Option<Agreed>) -> Source {
        Source {
            origin,
            agreed,
            current: watch::Sender::new(Arc::new(Loaded::new(workspace))),
            pending: RwLock::new(Pending::None),
        }
    }

    /// The version in use.
    pub fn current(&self) -> Arc<Loaded> {
        self.current.borrow().clone()
    }

    /// Tells each replacement.
    pub fn changes(&self) -> watch::Receiver<Arc<Loaded>> {
        self.current.subscribe()
    }

    /// The file; `None` where the default Workspace is in use.
    pub fn path(&self) -> Option<&PathBuf> {
        match &self.origin {
            Origin::File(path) => Some(path),
            Origin::Default | Origin::Cluster => None,
        }
    }

    /// Whether it is one of a cluster, not of somebody's own machine.
    pub fn is_of_cluster(&self) -> bool {
        self.origin == Origin::Cluster
    }

    /// Whether a newer version waits.
    pub fn pending(&self) -> Pending {
        self.pending
            .read()
            .expect("never poisoned: no panic while held")
            .clone()
    }

    /// Reads the file again. A version that permits no more than the one in use
    /// is taken at once, and so is the one named by `accepted`.
    pub fn reload(&self, accepted: Option<&str>) {
        let Some(path) = self.path() else { return };
        let pending = match read(path) {
            Err(error) => Pending::Wrong(error.to_string()),
            Ok(workspace) => {
                let new = Loaded::new(workspace);
                let old = self.current();
                let lines = loosened(&old.spec, &new.spec);
                if new.digest == old.digest {
                    Pending::None
                } else if lines.is_empty() || accepted == Some(new.digest.as_str()) {
                    tracing::info!(digest = %new.digest, "the Workspace has changed and is in use");
                    self.keep(&new);
                    self.current.send_replace(Arc::new(new));
                    Pending::None
                } else {
                    Pending::NeedsYes {
                        digest: new.digest,
                        lines,
                    }
                }
            }
        };
        self.set_pending(pending);
    }

    /// Keeps a version as the one that is agreed to.
    fn keep(&self, version: &Loaded) {
        if let (Some(agreed), Some(file)) = (&self.agreed, self.path()) {
            agreed.keep(file, version);
        }
    }

    /// Takes a changed Workspace of the cluster, whatever it permits: whoever
    /// wrote it was allowed to.
    pub fn replace(&self, workspace: Workspace) {
        let new = Loaded::new(workspace);
        if new.digest != self.current().digest {
            tracing::info!(digest = %new.digest, "the Workspace has changed and is in use");
            self.current.send_replace(Arc::new(new));
        }
        self.set_pending(Pending::None);
    }

    /// A changed Workspace of the cluster is wrong: the last good one stays in use.
    pub fn refuse(&self, error: String) {
        self.set_pending(Pending::Wrong(error));
    }

    fn set_pending(&self, pending: Pending) {
        let mut slot = self
            .pending
            .write()
            .expect("never poisoned: no panic while held");
        if *slot != pending {
            if let Pending::Wrong(error) = &pending {
                tracing::warn!(%error, "the changed Workspace is wrong; the last good one stays in use");
            }
            *slot = pending;
        }
    }

    /// Replaces the policy in use, where the default Workspace is in use.
    pub fn adapt_default(&self, change: impl FnOnce(&mut WorkspaceSpec)) {
        if self.origin != Origin::Default {
            return;
        }
        let old = self.current();
        let mut workspace = Workspace::new(&old.name, old.spec.clone());
        change(&mut workspace.spec);
        let new = Loaded::new(workspace);
        if new.digest != old.digest {
            self.current.send_replace(Arc::new(new));
        }
    }

    /// Reads the file again whenever it has changed, for ever. Looks once a
    /// second: editors replace files in ways that change notices miss.
    pub async fn follow(&self) {
        let Some(path) = self.path() else {
            return std::future::pending().await;
        };
        let seen = |path: &PathBuf| {
            std::fs::metadata(path)
                .ok()
                .map(|m| (m.modified().ok(), m.len()))
        };
        let mut last = seen(path);
        let mut tick = tokio::time::interval(std::time::Duration::from_secs(1));
        loop {
            tick.tick().await;
            let now = seen(path);
            if now != last {
                last = now;
                self.reload(None);
            }
        }
    }
}

fn read(path: &PathBuf) -> Result<Workspace, Error> {
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::Workspace(format!("{name} cannot be read: {error}")))?;
    let workspace =
        read_workspace(&text, &name).map_err(|error| Error::Workspace(error.to_string()))?;
    check_policy(&workspace, &name)?;
    Ok(workspace)
}

/// A broken expectation is a wrong Workspace, like a wrong field.
pub fn check_policy(workspace: &Workspace, name: &str) -> Result<(), Error> {
    let problems = mooring_policy::validate(&workspace.spec.policy);
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Workspace(format!(
            "{name}: {}",
            problems
                .iter()
                .map(|problem| format!("spec.policy.{problem}"))
                .collect::<Vec<_>>()
                .join("; ")
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKS: &str = "\
apiVersion: mooring.dev/v1alpha1
kind: Workspace
metadata: {name: w}
spec:
  models: [{name: rehearsal, provider: rehearsal, model: ''}]
  policy:
    bash: {'touch *': TOUCH}
";

    #[test]
    fn what_a_changed_file_permits_waits_for_a_yes_in_the_next_process_too() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("w.yaml");
        let write = |verdict: &str| {
            std::fs::write(&file, ASKS.replace("TOUCH", verdict)).expect("written");
        };
        let open = |file: &PathBuf| {
            let agreed = Agreed::of(folder.path());
            let fallback = default_workspace("x", |_| false);
            Source::open(Some(file.clone()), fallback, Some(agreed)).expect("it is right")
        };
        write("deny");
        let denied = open(&file).current().digest.clone();
        write("allow");
        for _ in 0..2 {
            let source = open(&file);
            assert_eq!(source.current().digest, denied);
            assert!(matches!(source.pending(), Pending::NeedsYes { .. }));
        }
        // A yes is for the next process as well, and so is what permits less.
        let source = open(&file);
        let Pending::NeedsYes { digest, .. } = source.pending() else {
            panic!("it waits")
        };
        source.reload(Some(&digest));
        assert_eq!(open(&file).current().digest, digest);
        write("ask");
        let asked = open(&file).current().digest.clone();
        assert_ne!(asked, digest);
        write("allow");
        assert_eq!(open(&file).current().digest, asked);
        // A record that cannot be read is no agreement to all that the file permits.
        let record = folder.path().join("workspace.agreed.json");
        let kept = std::fs::read(&record).expect("it is kept");
        std::fs::write(&record, "{").expect("written");
        let fallback = default_workspace("x", |_| false);
        let agreed = Some(Agreed::of(folder.path()));
        let error = Source::open(Some(file.clone()), fallback, agreed).err();
        let error = error.expect("it is refused").to_string();
        assert!(error.contains("remove the record"), "{error}");
        std::fs::write(&record, kept).expect("written");
        // Another file is the choice of whoever names it.
        let other = folder.path().join("other.yaml");
        std::fs::copy(&file, &other).expect("copied");
        assert_eq!(open(&other).current().digest, digest);
    }
}
