//! The first checkout: an empty project folder is filled with the Workspace's
//! repository before the first tool runs.
//!
//! It is an execution in the sandbox like others, which fetches through the gateway
//! and outlives this process. Its number lies beside the database, so that the next
//! process attaches to the same one.

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use mooring_crds::Repo;
use mooring_durable::{
    id::{ConversationId, Hash, Incarnation, SubmissionId, TaskId},
    tool::Call,
};
use mooring_wire::sandbox::{
    AttachRequest, ExecRequest, ExecResponse, Execution, Outcome, ReleaseRequest,
    attach_frame::Frame, exec_response::Start, outcome::End,
};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    boundary::Boundary,
    sandbox::{Link, State as Sandbox},
    workspace::Source,
};

const SCRIPT: &str = include_str!("first_checkout.sh");
/// How long it may take.
const LONGEST: Duration = Duration::from_secs(6 * 3600);
/// Between a failure and the next try: doubling from, and to.
const AGAIN: Duration = Duration::from_secs(2);
const LATEST: Duration = Duration::from_secs(60);
/// Between two tries to reach it.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a call waits before it is shown as waiting.
const MOMENT: Duration = Duration::from_secs(1);
/// Characters of git's words that are shown.
const SHOWN: usize = 300;

/// How the checkout stands.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Tools wait; the text is for people.
    Waits(String),
    /// There is nothing to wait for.
    Done,
}

/// The checkout of one harness.
pub struct FirstCheckout {
    source: Arc<Source>,
    state: watch::Sender<State>,
    /// The execution that may be running, which the daemon has to keep.
    execution: Mutex<Option<String>>,
    number: PathBuf,
}

/// The repository, where the Workspace names its address.
fn named(source: &Source) -> Option<Repo> {
    let repo = source.current().spec.repo.clone();
    repo.filter(|repo| !repo.url.is_empty())
}

/// How one try ended.
enum Tried {
    Done,
    /// For people; tried again with another number.
    Failed(String),
    /// The sandbox was not reached; the same try goes on.
    Lost,
    /// The daemon knows it as something else, or not at all.
    Anew,
}

impl FirstCheckout {
    /// A checkout whose number lies in the file `number`.
    pub fn new(source: Arc<Source>, number: PathBuf) -> Arc<FirstCheckout> {
        let state = match named(&source) {
            None => State::Done,
            Some(_) => State::Waits("the project folder is looked at".into()),
        };
        Arc::new(FirstCheckout {
            source,
            state: watch::Sender::new(state),
            execution: Mutex::default(),
            number,
        })
    }

    /// Why tools wait; `None` where they do not.
    pub fn waits(&self) -> Option<String> {
        match &*self.state.borrow() {
            State::Waits(text) => Some(text.clone()),
            State::Done => None,
        }
    }

    /// As [`FirstCheckout::waits`], after a moment in which a quick look comes to its end.
    pub async fn soon(&self) -> Option<String> {
        let mut state = self.state.subscribe();
        let done = state.wait_for(|state| *state == State::Done);
        let _ = tokio::time::timeout(MOMENT, done).await;
        self.waits()
    }

    /// The execution that the daemon has to keep.
    pub fn execution(&self) -> Option<String> {
        let execution = self.execution.lock();
        execution.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn show(&self, text: String) {
        self.state.send_replace(State::Waits(text));
    }

    /// The number of the present try.
    fn tries(&self) -> u64 {
        let text = std::fs::read_to_string(&self.number).unwrap_or_default();
        text.trim().parse().unwrap_or(1)
    }

    fn next(&self) {
        if let Err(error) = std::fs::write(&self.number, (self.tries() + 1).to_string()) {
            tracing::warn!(%error, path = %self.number.display(), "the checkout's number is not kept");
        }
    }

    /// Names the try, so that a daemon is told to keep it before it is reached.
    pub fn opened(&self, incarnation: &Incarnation) {
        let execution = self.waits().map(|_| self.name(incarnation));
        *self
            .execution
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = execution;
    }

    fn name(&self, incarnation: &Incarnation) -> String {
        format!("{}-0-{}", incarnation.0, self.tries())
    }

    /// Makes the checkout, and returns once it is there.
    pub async fn make(&self, link: &Link, boundary: &Boundary, incarnation: &Incarnation) {
        let mut sandboxes = link.changes();
        let mut again = AGAIN;
        while self.waits().is_some() {
            let ready = |state: &Sandbox| state.usable().is_some();
            if sandboxes.wait_for(ready).await.is_err() {
                return;
            }
            let Some(repo) = named(&self.source) else {
                break;
            };
            self.opened(incarnation);
            match self.attempt(link, boundary, &repo, incarnation).await {
                Tried::Done => break,
                Tried::Lost => tokio::time::sleep(PAUSE).await,
                Tried::Anew => self.next(),
                Tried::Failed(why) => {
                    tracing::warn!(url = repo.url, why, "the repository is not checked out");
                    self.next();
                    self.show(format!(
                        "checkout of {} failed: {why}; it is tried again",
                        repo.url
                    ));
                    let mut workspaces = self.source.changes();
                    tokio::select! {
                        () = tokio::time::sleep(again) => {}
                        _ = workspaces.changed() => {}
                    }
                    again = (again * 2).min(LATEST);
                }
            }
        }
        self.state.send_replace(State::Done);
        *self
            .execution
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn attempt(
        &self,
        link: &Link,
        boundary: &Boundary,
        repo: &Repo,
        incarnation: &Incarnation,
    ) -> Tried {
        let (Ok(mut client), Some(status)) = (link.client(), link.status()) else {
            return Tried::Lost;
        };
        let call = call(self.name(incarnation), repo);
        let mut env = boundary.environment(&call, &status.tunnel_address);
        let file = self.source.path().and_then(|path| path.file_name());
        let file = file.map(|name| name.to_string_lossy().into_owned());
        let partial = if repo.partial_clone { "yes" } else { "" };
        for (name, value) in [
            ("MOORING_REPO_URL", repo.url.clone()),
            (
                "MOORING_REPO_REF",
                repo.reference.clone().unwrap_or_default(),
            ),
            ("MOORING_REPO_PARTIAL", partial.to_owned()),
            ("MOORING_WORKSPACE_FILE", file.unwrap_or_default()),
        ] {
            env.push((name.to_owned(), value));
        }
        let request = ExecRequest {
            execution: Some(Execution {
                id: call.execution.clone(),
                args_hash: call.arguments_hash.0.clone(),
            }),
            command: SCRIPT.into(),
            timeout_ms: LONGEST.as_millis() as u64,
            env: env.into_iter().collect(),
            state_id: status.state_id.clone(),
            boot_id: status.boot_id.clone(),
            ..ExecRequest::default()
        };
        self.show(format!("checkout of {}", repo.url));
        match client.exec(request).await.map(tonic::Response::into_inner) {
            Ok(ExecResponse { start, .. }) if start == Start::OtherSandbox as i32 => {
                return Tried::Lost;
            }
            Ok(_) => {}
            Err(status) if link.broke(&status) => return Tried::Lost,
            // Another Workspace made this try, or the daemon does not take it.
            Err(status) if status.code() == tonic::Code::AlreadyExists => return Tried::Anew,
            Err(status) => return Tried::Failed(status.message().to_owned()),
        }
        let attach = AttachRequest {
            execution_id: call.execution.clone(),
            offset: 0,
        };
        let Ok(frames) = client.attach(attach).await else {
            return Tried::Lost;
        };
        let mut frames = frames.into_inner();
        let mut words = Words::default();
        let tried = loop {
            let frame = match frames.message().await {
                Ok(Some(frame)) => frame.frame,
                Ok(None) | Err(_) => return Tried::Lost,
            };
            match frame {
                Some(Frame::Output(piece)) => {
                    words.add(&piece.data);
                    self.show(format!("{}: checkout of {}", words.last(), repo.url));
                }
                Some(Frame::Finished(outcome)) => break ended(&outcome, &words),
                Some(Frame::Gone(_) | Frame::NeverSeen(_)) => break Tried::Anew,
                Some(Frame::Running(_) | Frame::Gap(_)) | None => {}
            }
        };
        boundary.credentials.end(&call.execution);
        let release = ReleaseRequest {
            execution_ids: vec![call.execution],
        };
        // The next connect releases what this does not.
        let _ = client.release(release).await;
        tried
    }
}

fn ended(outcome: &Outcome, words: &Words) -> Tried {
    match (outcome.end(), outcome.code) {
        (End::Exited, 0) => Tried::Done,
        (End::Exited, code) => match words.last() {
            "" => Tried::Failed(format!("git ended with status {code}")),
            text => Tried::Failed(text.to_owned()),
        },
        (End::TimedOut, _) => Tried::Failed("it took more than six hours".into()),
        _ => Tried::Failed("it was ended".into()),
    }
}

/// Who speaks to the gateway: no call of a conversation, but with a name like one's.
fn call(execution: String, repo: &Repo) -> Call {
    let arguments = json!({ "repo": repo, "script": SCRIPT });
    Call {
        conversation: ConversationId(0),
        run: SubmissionId(0),
        task: TaskId(0),
        execution,
        call_id: String::new(),
        tool: "checkout".into(),
        arguments_hash: Hash::of(arguments.to_string().as_bytes()),
        arguments,
        requesters: Vec::new(),
        autonomous: true,
        binding: Value::Null,
    }
}

/// The last line that git has said; its progress writes over itself.
#[derive(Default)]
struct Words {
    line: String,
    told: String,
}

impl Words {
    fn add(&mut self, bytes: &[u8]) {
        for c in String::from_utf8_lossy(bytes).chars() {
            match c {
                '\n' | '\r' => {
                    if !self.line.trim().is_empty() {
                        self.told = std::mem::take(&mut self.line).trim().to_owned();
                    }
                    self.line.clear();
                }
                c if c.is_control() || self.line.len() >= SHOWN => {}
                c => self.line.push(c),
            }
        }
    }

    fn last(&self) -> &str {
        match self.line.trim() {
            "" => &self.told,
            line => line,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_of_git_are_shown() {
        let mut words = Words::default();
        words.add(b"remote: Counting\rReceiving objects:  10%\rReceiving objects:  40%");
        assert_eq!(words.last(), "Receiving objects:  40%");
        words.add(b"\nfatal: remote error: git.test wants a credential\n\x1b\n");
        assert_eq!(
            words.last(),
            "fatal: remote error: git.test wants a credential"
        );
    }
}
