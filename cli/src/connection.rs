//! The connection to the project's harness, which is started where none runs.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use mooring_wire::harness::harness_client::HarnessClient;
use mooring_wire::harness::{
    ConfigureRequest, StatusRequest, StatusResponse, StopRequest, ViewRequest,
};
use rustix::fs::FlockOperation;
use tonic::transport::Channel;

use crate::cards;
use crate::error::Error;
use crate::keys::{self, Agreed, Destination};
use crate::processes::{Plan, Started, start_harness};
use mooring_harness::Remote;

/// The harness's methods.
pub type Client = HarnessClient<Channel>;

/// How long a harness may take until it answers: opening a large database after
/// a crash reads its write-ahead log first.
const START_BOUND: Duration = Duration::from_secs(30);
/// How long a harness and its sandbox may take to end.
const STOP_BOUND: Duration = Duration::from_secs(15);
/// How long the terminal waits for a sandbox that is just starting.
const SANDBOX_BOUND: Duration = Duration::from_secs(3);
/// How often a method is called again after the harness was lost.
const RETRIES: u32 = 3;
/// Between two looks at a socket that is not there yet.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// An answer or a tool's output can be large; the harness bounds both.
const MESSAGE_BYTES: usize = 64 << 20;

/// A connection to the harness of one project.
#[derive(Clone)]
pub struct Connection {
    plan: Plan,
    client: Client,
    /// What the harness said of itself when the connection was made.
    pub status: StatusResponse,
    /// Keys of this environment that a server would get to which nobody has
    /// agreed yet. The harness does not have them.
    pub held_back: Vec<Destination>,
}

impl Connection {
    /// Connects to the harness that runs; an error where none does.
    pub async fn attach(plan: Plan) -> Result<Self, Error> {
        match Self::try_attach(&plan).await? {
            Some((client, status)) => Ok(Connection {
                plan,
                client,
                status,
                held_back: Vec::new(),
            }),
            None => Err(Error::NotRunning {
                project: plan.project.root.clone(),
            }),
        }
    }

    /// Connects to the harness, starting it where none runs, and hands it the
    /// keys of this process's environment.
    pub async fn open(plan: Plan) -> Result<Self, Error> {
        if plan.cluster.is_some() {
            return Self::open_in_cluster(plan).await;
        }
        // One that is just ending may answer and be gone before it is told of keys.
        for attempt in 1..=RETRIES {
            match Self::open_once(plan.clone()).await {
                Err(error) if error.is_connection_loss() => {
                    tokio::time::sleep(LOOK_AGAIN * 10 * attempt).await;
                }
                opened => return opened,
            }
        }
        Self::open_once(plan).await
    }

    async fn open_once(plan: Plan) -> Result<Self, Error> {
        // A wrong file is told here, before anything is started with it.
        let workspace = plan.workspace.as_deref().map(read_workspace).transpose()?;
        let (mut client, mut status) = Self::attach_or_start(&plan).await?;
        check_database(&status)?;
        check_workspace(&plan, &status)?;
        check_sandbox(&plan, &status)?;
        let unwilling = plan.allow_unisolated && is_unisolated_refused(&status);
        if (is_outdated(&status) || unwilling) && status.running == 0 {
            stop(&plan).await?;
            (client, status) = Self::attach_or_start(&plan).await?;
        }
        let mut connection = Connection {
            plan,
            client,
            status,
            held_back: Vec::new(),
        };
        let mut names = keys::usual();
        names.extend(mooring_harness::git::VARIABLES.map(String::from));
        match workspace.or_else(|| connection.running_workspace()) {
            Some(workspace) => names.extend(keys::of(&workspace.spec)),
            None => names.extend(connection.status.missing_keys.iter().cloned()),
        }
        connection.hand_over_keys(names).await?;
        Ok(connection)
    }

    /// Connects to a harness in a cluster, which somebody else keeps running, and
    /// waits a while for one that is on its way.
    async fn open_in_cluster(plan: Plan) -> Result<Self, Error> {
        let begun = Instant::now();
        loop {
            match Self::try_attach(&plan).await {
                Ok(Some((client, status))) => {
                    return Ok(Connection {
                        plan,
                        client,
                        status,
                        held_back: Vec::new(),
                    });
                }
                Ok(None) if begun.elapsed() < START_BOUND => {}
                Err(error) if error.is_connection_loss() && begun.elapsed() < START_BOUND => {}
                Ok(None) => {
                    return Err(Error::Broken("the harness does not answer".into()));
                }
                Err(error) => return Err(error),
            }
            tokio::time::sleep(LOOK_AGAIN * 100).await;
        }
    }

    /// The Workspace that the harness runs with, where it is a file that can be read.
    pub fn running_workspace(&self) -> Option<mooring_crds::Workspace> {
        let path = Path::new(&self.status.workspace_path);
        (!path.as_os_str().is_empty())
            .then(|| read_workspace(path).ok())
            .flatten()
    }

    /// The harness's methods; cheap.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Whether there is such a conversation; the error says so where not.
    pub async fn check_conversation(&self, conversation: i64) -> Result<(), Error> {
        if conversation != 0 {
            let request = ViewRequest {
                conversation,
                entries: 1,
                ..ViewRequest::default()
            };
            self.client().view(request).await?;
        }
        Ok(())
    }

    /// The project and its state.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// After a loss: connects again, starting the harness where it is gone.
    pub async fn reopen(&mut self) -> Result<(), Error> {
        if was_stopped(&self.plan, self.status.pid) {
            return Err(Error::Stopped);
        }
        *self = Self::open(self.plan.clone()).await?;
        Ok(())
    }

    /// Calls a method, again where the harness is lost meanwhile: each method
    /// that changes something finds what the first try did.
    pub async fn call<T, F, R>(&self, method: F) -> Result<T, Error>
    where
        F: Fn(Client) -> R,
        R: Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    {
        let mut connection = self.clone();
        let mut attempt = 0;
        loop {
            match method(connection.client()).await.map_err(Error::from) {
                Ok(response) => return Ok(response.into_inner()),
                Err(error) if error.is_connection_loss() && attempt < RETRIES => {
                    // One that is about to end still answers for a moment.
                    tokio::time::sleep(LOOK_AGAIN * 10 * attempt).await;
                    connection.reopen().await?;
                    attempt += 1;
                }
                Err(error) => return Err(connection.told(error)),
            }
        }
    }

    /// What an error of the harness means for this project.
    pub fn told(&self, error: Error) -> Error {
        error.about(Path::new(&self.status.database_path))
    }

    /// Whether the harness is in a cluster, where nobody knows who is at this terminal.
    pub fn is_attached(&self) -> bool {
        self.plan.cluster.is_some()
    }

    /// Whether the harness is of another version than this program.
    pub fn is_outdated(&self) -> bool {
        self.plan.cluster.is_none() && is_outdated(&self.status)
    }

    /// Ends the harness and starts it again with `allow_unisolated`.
    pub async fn restart_unisolated(&mut self) -> Result<(), Error> {
        stop(&self.plan).await?;
        self.plan.allow_unisolated = true;
        self.reopen().await
    }

    /// Whether the sandbox cannot hold commands and nobody has agreed to that.
    pub fn is_unisolated_refused(&self) -> bool {
        is_unisolated_refused(&self.status)
    }

    /// Waits for a sandbox that is just starting, a few seconds at most.
    pub async fn wait_for_sandbox(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        let known = |status: &StatusResponse| {
            status
                .sandbox
                .as_ref()
                .is_some_and(|sandbox| !cards::is_starting(sandbox))
        };
        while !known(&self.status) && begun.elapsed() < SANDBOX_BOUND {
            tokio::time::sleep(LOOK_AGAIN).await;
            match self.refresh_status().await {
                Err(error) if error.is_connection_loss() => self.reopen().await?,
                refreshed => drop(refreshed?),
            }
        }
        Ok(())
    }

    /// Asks the harness how it is.
    pub async fn refresh_status(&mut self) -> Result<&StatusResponse, Error> {
        self.status = self.client().status(StatusRequest {}).await?.into_inner();
        Ok(&self.status)
    }

    /// Remembers where keys may be sent, and hands them over.
    pub async fn agree_to(&mut self, destinations: &[Destination]) -> Result<(), Error> {
        let mut agreed = Agreed::read(self.plan.state.key_servers());
        for destination in destinations {
            agreed.add(destination)?;
        }
        let names = self.status.missing_keys.clone();
        self.hand_over_keys(
            names
                .into_iter()
                .filter(|name| !name.contains('@'))
                .collect(),
        )
        .await
    }

    async fn hand_over_keys(&mut self, names: Vec<String>) -> Result<(), Error> {
        let agreed = Agreed::read(self.plan.state.key_servers());
        let mut found = keys::from_env(names, |name| std::env::var(name).ok());
        // The harness may name a variable that only it knows of.
        for _ in 0..2 {
            let request = ConfigureRequest {
                keys: found,
                ..Default::default()
            };
            let needed = self.client().configure(request).await?.into_inner().needed;
            let allowed = |name: &str| match Destination::of(name) {
                None => std::env::var(name).ok(),
                Some(to) if agreed.covers(&to) => std::env::var(&to.variable).ok(),
                Some(_) => None,
            };
            let more = keys::from_env(needed.clone(), allowed);
            self.held_back = needed
                .iter()
                .filter_map(|name| Destination::of(name))
                .filter(|to| !agreed.covers(to))
                .filter(|to| std::env::var(&to.variable).is_ok_and(|key| !key.trim().is_empty()))
                .collect();
            self.status.missing_keys = needed;
            if more.is_empty() {
                break;
            }
            found = more;
        }
        Ok(())
    }

    async fn try_attach(plan: &Plan) -> Result<Option<(Client, StatusResponse)>, Error> {
        let channel = match &plan.cluster {
            Some(target) => target.connect().await?,
            None => match mooring_wire::uds::connect(&plan.state.socket).await {
                Ok(channel) => channel,
                Err(_) => return Ok(None),
            },
        };
        let mut client = HarnessClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES)
            .max_encoding_message_size(MESSAGE_BYTES);
        match client.status(StatusRequest {}).await.map_err(Error::from) {
            Ok(status) => Ok(Some((client, status.into_inner()))),
            Err(error) if error.is_connection_loss() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn attach_or_start(plan: &Plan) -> Result<(Client, StatusResponse), Error> {
        let begun = Instant::now();
        let mut lock = None;
        let mut started: Option<Started> = None;
        let mut ended = None;
        loop {
            let attempt = Self::try_attach(plan);
            match tokio::time::timeout(START_BOUND.saturating_sub(begun.elapsed()), attempt).await {
                Ok(Ok(Some(connected))) => return Ok(connected),
                Ok(Ok(None)) if begun.elapsed() < START_BOUND => {}
                Ok(Err(error)) => return Err(error),
                _ => {
                    return Err(ended.unwrap_or(Error::HarnessSilent {
                        seconds: START_BOUND.as_secs(),
                        log: plan.state.log(),
                    }));
                }
            }
            if lock.is_none() {
                lock = try_lock(&plan.state.start_lock())?;
                if lock.is_some() {
                    // Who held the lock until now may have started it.
                    continue;
                }
            }
            if lock.is_some() && started.is_none() {
                started = Some(start_harness(plan)?);
            }
            if let Some(process) = &mut started
                && let Some(status) = process.child.try_wait()?
            {
                let error = Error::HarnessEnded {
                    status: status.to_string(),
                    log: plan.state.log(),
                    tail: process.log_tail(),
                };
                // A harness that is still closing holds the database for a moment.
                if status.code() != Some(i32::from(crate::processes::OWNED))
                    || begun.elapsed() > STOP_BOUND
                {
                    return Err(error);
                }
                ended = Some(error);
                started = None;
                tokio::time::sleep(LOOK_AGAIN * 20).await;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

fn read_workspace(path: &Path) -> Result<mooring_crds::Workspace, Error> {
    let text = std::fs::read_to_string(path).map_err(|error| Error::Path {
        path: path.to_owned(),
        why: error.to_string(),
    })?;
    Ok(mooring_crds::read_workspace(
        &text,
        &path.display().to_string(),
    )?)
}

fn is_outdated(status: &StatusResponse) -> bool {
    status.version != env!("CARGO_PKG_VERSION")
}

fn is_unisolated_refused(status: &StatusResponse) -> bool {
    status
        .sandbox
        .as_ref()
        .is_some_and(|sandbox| sandbox.grade == "not-isolated" && !sandbox.error.is_empty())
}

/// Nothing is begun on a database that is damaged.
fn check_database(status: &StatusResponse) -> Result<(), Error> {
    match status.database_error.as_str() {
        "" => Ok(()),
        why => Err(Error::Damaged {
            path: status.database_path.clone().into(),
            why: why.to_owned(),
        }),
    }
}

/// An explicit file must be the one in use; none attaches to whatever runs.
fn check_workspace(plan: &Plan, status: &StatusResponse) -> Result<(), Error> {
    match &plan.workspace {
        Some(asked) if asked.as_path() != Path::new(&status.workspace_path) => {
            Err(Error::OtherWorkspace {
                running: match status.workspace_path.as_str() {
                    "" => "the default Workspace".into(),
                    path => path.into(),
                },
                asked: asked.clone(),
            })
        }
        _ => Ok(()),
    }
}

/// The sandbox that is named must be the one in use.
fn check_sandbox(plan: &Plan, status: &StatusResponse) -> Result<(), Error> {
    let running = status.sandbox.as_ref().map_or("", |s| s.address.as_str());
    let asked = plan.sandbox.as_ref().map_or("", |remote| remote.address());
    if !plan.sandbox_named {
        return Ok(());
    }
    if running == asked {
        // Also for the next harness, whatever was kept before.
        return plan
            .state
            .use_sandbox(plan.sandbox.as_ref().map(Remote::address));
    }
    let told = |address: &str| match address {
        "" => "a sandbox on this machine".to_owned(),
        address => format!("the sandbox at {address}"),
    };
    Err(Error::OtherSandbox {
        running: told(running),
        asked: told(asked),
    })
}

/// The lock, or nothing where another client has it. Dropping the file frees it.
fn try_lock(path: &PathBuf) -> Result<Option<File>, Error> {
    let fail = |error: std::io::Error| Error::Path {
        path: path.clone(),
        why: error.to_string(),
    };
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(path)
        .map_err(fail)?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(fail(error.into())),
    }
}

/// Notes that a person ends the harness, so that its clients do not start it again.
pub async fn note_stop(plan: &Plan) -> Result<(), Error> {
    let Some((_, status)) = Connection::try_attach(plan).await? else {
        return Ok(());
    };
    let path = plan.state.stopped();
    std::fs::write(&path, status.pid.to_string()).map_err(|error| Error::Path {
        path,
        why: error.to_string(),
    })
}

/// Whether a person has ended that harness.
fn was_stopped(plan: &Plan, pid: u32) -> bool {
    std::fs::read_to_string(plan.state.stopped()).is_ok_and(|text| text == pid.to_string())
}

/// Ends the harness and the sandbox of the project and waits until they are
/// gone; `false` where none ran.
pub async fn stop(plan: &Plan) -> Result<bool, Error> {
    let Some((mut client, status)) = Connection::try_attach(plan).await? else {
        return Ok(false);
    };
    match client
        .stop(StopRequest { sandbox: true })
        .await
        .map_err(Error::from)
    {
        Ok(_) => {}
        // It may be gone before it has answered.
        Err(error) if error.is_connection_loss() => {}
        Err(error) => return Err(error),
    }
    drop(client);
    let begun = Instant::now();
    while is_alive(status.pid) {
        if begun.elapsed() > STOP_BOUND {
            return Err(Error::Broken(format!(
                "the harness (process {}) did not end within {} s; `kill {}` ends it, and \
                 nothing that was shown is lost",
                status.pid,
                STOP_BOUND.as_secs(),
                status.pid
            )));
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
    Ok(true)
}

/// Whether the process runs. One that this process started and that has ended,
/// but was not waited for, counts as gone.
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        let state = stat
            .rsplit_once(") ")
            .map(|(_, rest)| rest.as_bytes().first().copied());
        !matches!(state, Some(Some(b'Z' | b'X')))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_one_client_at_a_time_may_start_the_harness() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("start.lock");
        let first = try_lock(&path).unwrap();
        assert!(first.is_some());
        assert!(try_lock(&path).unwrap().is_none());
        drop(first);
        assert!(try_lock(&path).unwrap().is_some());
    }

    #[test]
    fn a_process_that_ended_is_not_alive_even_before_it_is_waited_for() {
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .spawn()
            .unwrap();
        assert!(is_alive(child.id()));
        child.kill().unwrap();
        let begun = Instant::now();
        while is_alive(child.id()) {
            assert!(begun.elapsed() < Duration::from_secs(10));
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
