//! A git worktree for each conversation, on a branch of its own.
//!
//! They lie in a folder beside the daemon's state, at the same path inside and
//! outside, because git writes it down. What git does, it does as a command: it
//! obeys the repository's configuration. That a worktree is whole is recorded where
//! no command can write; one that is not recorded was left half done, and is made
//! anew.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use mooring_wire::sandbox::worktree_request::Act;
use mooring_wire::sandbox::{ExecRequest, WorktreeRequest, WorktreeResponse};
use rustix::fs::AtFlags;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::sync::Mutex;
use tonic::Status;

use crate::executions::{Executions, Known};
use crate::protocol::{End, Run};
use crate::read;
use crate::record;
use crate::service::{Service, execution_status};
use crate::spool;

/// What ids of the daemon's own commands begin with.
pub const OWN: &str = "daemon-";

const SCRIPT: &str = include_str!("worktrees.sh");
/// A checkout of a large repository takes its time.
const PATIENCE_MS: u64 = 10 * 60 * 1000;
/// What is read of the script's output.
const MAX_OUTPUT: usize = 64 << 10;
const MAX_NAME: usize = 40;

/// The worktrees of one daemon.
#[derive(Debug)]
pub struct Worktrees {
    /// None where the sandbox has no such folder.
    pub folder: Option<PathBuf>,
    /// Where it is recorded which are whole.
    pub records: OwnedFd,
    /// Git itself does not take two at once well.
    pub turn: Arc<Mutex<()>>,
}

/// A worktree that is whole.
#[derive(Debug, Serialize, Deserialize)]
struct Whole {
    branch: String,
    folder: String,
}

impl Worktrees {
    /// Where the worktree is, or would be, and its branch where it is whole.
    fn find(&self, key: &Key) -> Result<(PathBuf, Option<String>), Status> {
        let folder = self.folder.as_ref().ok_or_else(|| {
            Status::failed_precondition("this sandbox has no folder for worktrees")
        })?;
        if let Some(Whole {
            branch,
            folder: own,
        }) = record::read(&self.records, &key.record())
        {
            return Ok((folder.join(own), Some(branch)));
        }
        let free = self
            .is_free(key)
            .map_err(|error| Status::internal(format!("the records of worktrees: {error}")))?;
        Ok((folder.join(key.folder(free)), None))
    }

    /// Whether nobody else has a worktree of this name.
    fn is_free(&self, key: &Key) -> std::io::Result<bool> {
        let own = key.record();
        let end = format!("-{}.json", key.name);
        let others = rustix::fs::Dir::read_from(&self.records)?;
        Ok(!others.flatten().any(|entry| {
            let name = entry.file_name().to_bytes();
            name.starts_with(b"worktree-")
                && name.ends_with(end.as_bytes())
                && name != own.as_bytes()
        }))
    }

    /// The names of the worktrees of one owner.
    fn names(&self, owner: &str) -> std::io::Result<Vec<String>> {
        let begin = format!("worktree-{}-", owner_digits(owner));
        let entries = rustix::fs::Dir::read_from(&self.records)?;
        Ok(entries
            .flatten()
            .filter_map(|entry| {
                let name = entry.file_name().to_str().ok()?;
                let name = name.strip_prefix(&begin)?.strip_suffix(".json")?;
                Some(name.to_owned())
            })
            .collect())
    }

    fn forget(&self, key: &Key) -> std::io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.records,
            key.record(),
            AtFlags::empty(),
        )?)
    }
}

/// Eight digits that stand for whose a worktree is.
fn owner_digits(owner: &str) -> String {
    hex::encode(&Sha256::digest(owner.as_bytes())[..4])
}

/// Names one worktree.
#[derive(Clone, Debug)]
struct Key {
    name: String,
    /// Eight digits of the SHA-256 of whose name it is.
    owner: String,
}

impl Key {
    fn new(name: &str, owner: &str) -> Result<Key, Status> {
        let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if name.is_empty() || name.len() > MAX_NAME || !name.bytes().all(fits) {
            return Err(Status::invalid_argument(format!(
                "`{name}` cannot be the name of a worktree"
            )));
        }
        Ok(Key {
            name: name.to_owned(),
            owner: owner_digits(owner),
        })
    }

    fn record(&self) -> String {
        format!("worktree-{}-{}.json", self.owner, self.name)
    }

    fn folder(&self, free: bool) -> String {
        match free {
            true => self.name.clone(),
            false => format!("{}-{}", self.name, self.owner),
        }
    }
}

/// What the script has told.
#[derive(Debug, Default, PartialEq, Eq)]
struct Told {
    branch: Option<String>,
    uncommitted: u32,
    unpushed: u32,
    removed: bool,
    refused: Option<String>,
    /// The rest.
    git: String,
}

impl Told {
    fn of(output: &str) -> Told {
        let mut told = Told::default();
        for line in output.lines() {
            let words = line.strip_prefix("mooring ").unwrap_or_default();
            match words.split_once(' ').unwrap_or((words, "")) {
                ("branch", branch) => told.branch = Some(branch.to_owned()),
                ("uncommitted", count) => told.uncommitted = count.parse().unwrap_or(u32::MAX),
                ("unpushed", count) => told.unpushed = count.parse().unwrap_or(u32::MAX),
                ("removed", _) => told.removed = true,
                ("refused", why) => told.refused = Some(why.to_owned()),
                _ => {
                    told.git.push_str(line);
                    told.git.push('\n');
                }
            }
        }
        told
    }
}

impl Service {
    /// Adds, looks at or removes the worktree of one conversation.
    pub async fn act_on_worktree(
        &self,
        request: WorktreeRequest,
    ) -> Result<WorktreeResponse, Status> {
        let worktrees = Arc::clone(&self.worktrees);
        if let Some(Act::List(_)) = request.act {
            let names = worktrees.names(&request.owner);
            let names = names
                .map_err(|error| Status::internal(format!("the records of worktrees: {error}")))?;
            return Ok(WorktreeResponse {
                names,
                ..WorktreeResponse::default()
            });
        }
        let key = Key::new(&request.name, &request.owner)?;
        let (act, from) = match &request.act {
            Some(Act::Add(add)) if add.from.is_empty() => ("add", None),
            Some(Act::Add(add)) => ("add", Some(Key::new(&add.from, &request.owner)?)),
            Some(Act::Status(_)) => ("look", None),
            Some(Act::Remove(_)) => ("remove", None),
            Some(Act::List(_)) | None => {
                return Err(Status::invalid_argument("nothing is to be done"));
            }
        };
        self.may_start()?;
        // Held to the end: what is recorded must be what git has done.
        let turn = Arc::clone(&worktrees.turn).lock_owned().await;
        let (path, branch) = worktrees.find(&key)?;
        let from = from.map(|from| worktrees.find(&from)).transpose()?;
        // One that is not whole has nothing to be taken over.
        let from = from.and_then(|(path, branch)| branch.map(|_| path));
        let mut response = WorktreeResponse {
            exists: branch.is_some(),
            path: read::shown(&path),
            branch: branch.clone().unwrap_or_default(),
            ..WorktreeResponse::default()
        };
        if branch.is_none() && act != "add" {
            return Ok(response);
        }
        let from = from.map(|from| read::shown(&from)).unwrap_or_default();
        let environment = [
            ("ACT", act),
            ("PROJECT", &read::shown(&self.paths.project)),
            ("DIR", &response.path),
            ("NAME", &request.name),
            ("BRANCH", &response.branch),
            ("FROM", &from),
        ];
        let run = self.command(&ExecRequest {
            command: SCRIPT.into(),
            timeout_ms: PATIENCE_MS,
            env: environment
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..ExecRequest::default()
        })?;
        let executions = Arc::clone(&self.executions);
        let folder = path.file_name().unwrap_or_default().to_owned();
        // In a task of its own: what is begun is recorded though the caller goes away.
        let task = tokio::spawn(async move {
            let _turn = turn;
            let told = run_to_end(&executions, run).await?;
            let recorded = match (&told.branch, told.removed) {
                (Some(branch), _) => {
                    let whole = Whole {
                        branch: branch.clone(),
                        folder: folder.to_string_lossy().into_owned(),
                    };
                    record::write(&worktrees.records, &key.record(), &whole)
                }
                (None, true) => worktrees.forget(&key),
                (None, false) => Ok(()),
            };
            recorded.map_err(|error| Status::internal(format!("the record: {error}")))?;
            Ok::<_, Status>(told)
        });
        let told = task
            .await
            .map_err(|error| Status::internal(error.to_string()))??;
        if let Some(branch) = told.branch {
            response.branch = branch;
        }
        response.exists = !told.removed;
        response.removed = told.removed;
        response.uncommitted = told.uncommitted;
        response.unpushed = told.unpushed;
        Ok(response)
    }
}

/// Runs the script as a command; what it refuses is an error.
async fn run_to_end(executions: &Arc<Executions>, run: Run) -> Result<Told, Status> {
    let id = format!("{OWN}{}", hex::encode(rand::random::<[u8; 16]>()));
    let status = |error| execution_status(&error);
    executions.exec(&id, "", run).await.map_err(status)?;
    let gone = || Status::unavailable("git was ended before it was done");
    let (finished, output) = loop {
        match executions.known(&id).map_err(status)? {
            Some(Known::Running { mut progress, .. }) => {
                let ended = progress.wait_for(|progress| progress.end.is_some()).await;
                ended.map_err(|_| gone())?;
            }
            Some(Known::Finished {
                finished, output, ..
            }) => break (finished, output),
            Some(Known::Gone { .. }) | None => return Err(gone()),
        }
    };
    let mut text = vec![0; MAX_OUTPUT];
    let count = spool::open(executions.output_folder().as_fd(), &output)
        .and_then(|file| file.read_at(&mut text, 0))
        .unwrap_or(0);
    executions.release(&[id]).await.map_err(status)?;
    let told = Told::of(&String::from_utf8_lossy(&text[..count]));
    match (&finished.end, finished.code) {
        (End::Exited, 0) => Ok(told),
        (End::Exited, _) => {
            let why = told
                .refused
                .unwrap_or_else(|| format!("git ended with status {}", finished.code));
            let git: Vec<&str> = told.git.lines().take(5).collect();
            let separator = if git.is_empty() { "" } else { ": " };
            Err(Status::failed_precondition(format!(
                "{why}{separator}{}",
                git.join("; ")
            )))
        }
        _ => Err(gone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_script_tells_is_kept_apart_from_what_git_says() {
        let told = Told::of(
            "warning: x\nmooring branch mooring/7\nmooring uncommitted 2\nmooring unpushed 1\n",
        );
        let expected = Told {
            branch: Some("mooring/7".into()),
            uncommitted: 2,
            unpushed: 1,
            git: "warning: x\n".into(),
            ..Told::default()
        };
        assert_eq!(told, expected);
        let told = Told::of("mooring unpushed many\nmooring refused no commit\n");
        assert_eq!(
            (told.unpushed, told.refused.as_deref()),
            (u32::MAX, Some("no commit"))
        );
    }
}
