//! The connection to the sandbox daemon: made, watched, made again.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use mooring_durable::id::Millis;
use mooring_wire::sandbox::{
    ReleaseRequest, SignalRequest, StatusRequest, StatusResponse, sandbox_client::SandboxClient,
    signal_request::Signal,
};
use tokio::sync::{Notify, watch};
use tonic::transport::Channel;

use super::{
    place::{Place, Pulse},
    probe::Proof,
};

/// A message may carry a whole file.
const MAX_MESSAGE: usize = 32 << 20;
/// How long a started daemon may take until it answers.
const START_PATIENCE: Duration = Duration::from_secs(10);
/// How often a quiet connection is checked.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often the absence of a network is proved anew.
const PROBE_EVERY: Duration = Duration::from_secs(600);
/// How often it is tried to prove it where it is not proved.
const PROBE_AGAIN: Duration = Duration::from_secs(10);
/// The longest pause between two attempts to reach a daemon on this machine,
/// which each of them starts.
const PAUSE_HERE: Duration = Duration::from_secs(2);
/// The same to one that somebody else keeps running.
const PAUSE_ELSEWHERE: Duration = Duration::from_millis(500);

/// Why a sandbox is not reached that was not tried yet.
const STARTING: &str = "starting";

/// How the sandbox stands.
#[derive(Clone, Debug)]
pub enum State {
    /// Reached, and proved to have no network (or told that it need not be).
    Ready(Arc<StatusResponse>),
    /// Reached, and not proved to have no network, which the Workspace only wants to
    /// be told (`egressVerification: Warn`).
    Unproved {
        /// What the daemon says of itself.
        status: Arc<StatusResponse>,
        /// What was found, for people.
        reason: String,
        /// What the last probe showed.
        egress: Egress,
    },
    /// Reached, but tools are refused.
    Refused {
        /// What the daemon says of itself.
        status: Arc<StatusResponse>,
        /// Why, for people.
        reason: String,
        /// What the last probe showed.
        egress: Egress,
    },
    /// Not reached.
    Down {
        /// Since when.
        since: Millis,
        /// Why, for people.
        error: String,
    },
}

impl State {
    /// What a daemon says of itself that runs tools.
    pub fn usable(&self) -> Option<&Arc<StatusResponse>> {
        match self {
            State::Ready(status) | State::Unproved { status, .. } => Some(status),
            State::Refused { .. } | State::Down { .. } => None,
        }
    }

    /// What a daemon says of itself that is reached.
    pub fn status(&self) -> Option<&Arc<StatusResponse>> {
        match self {
            State::Refused { status, .. } => Some(status),
            state => state.usable(),
        }
    }
}

/// What the last probe of the sandbox's network showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Egress {
    /// Nothing could be reached.
    Denied,
    /// Something answered.
    Reached,
    /// Nothing is proved.
    Unknown,
}

impl Egress {
    /// As it stands on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Egress::Denied => "denied",
            Egress::Reached => "reached",
            Egress::Unknown => "unknown",
        }
    }
}

/// The link of one harness to its daemon.
pub struct Link {
    place: Place,
    allow_unisolated: bool,
    /// A network is reported, and tools run all the same.
    only_warn: AtomicBool,
    state: watch::Sender<State>,
    client: Mutex<Option<SandboxClient<Channel>>>,
    lost: Notify,
}

impl Link {
    /// A link that is not made yet; [`Link::run`] makes it.
    pub fn new(place: Place, allow_unisolated: bool) -> Arc<Link> {
        Arc::new(Link {
            place,
            allow_unisolated,
            only_warn: AtomicBool::new(false),
            state: watch::Sender::new(State::Down {
                since: now(),
                error: STARTING.into(),
            }),
            client: Mutex::new(None),
            lost: Notify::new(),
        })
    }

    /// Where a sandbox on another machine is (`HOST:PORT`).
    pub fn remote(&self) -> Option<&str> {
        match &self.place {
            Place::Remote(remote) => Some(remote.address()),
            Place::Here { .. } | Place::Pod { .. } => None,
        }
    }

    /// Whether the daemon runs without this harness.
    pub fn is_kept_by_others(&self) -> bool {
        self.place.daemon().is_none()
    }

    /// Whether a sandbox that is not proved to have no network runs tools all the same.
    /// Counts from the next probe on, which is made at once where it changes something.
    pub fn only_warn(&self, yes: bool) {
        if self.only_warn.swap(yes, Ordering::AcqRel) != yes {
            self.lost();
        }
    }

    /// How the sandbox stands.
    pub fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Tells each change of the state.
    pub fn changes(&self) -> watch::Receiver<State> {
        self.state.subscribe()
    }

    /// What the daemon said of itself when it was last reached.
    pub fn status(&self) -> Option<Arc<StatusResponse>> {
        self.state.borrow().status().cloned()
    }

    /// A client of a reached daemon; the error says why there is none.
    pub fn client(&self) -> Result<SandboxClient<Channel>, String> {
        let client = self
            .client
            .lock()
            .expect("never poisoned: no panic while held")
            .clone();
        client.ok_or_else(|| match self.state() {
            State::Down { error, .. } => error,
            _ => "the sandbox is being reached".into(),
        })
    }

    /// A connection of its own, beside the one for calls. The error is for people.
    pub async fn channel(&self) -> Result<Channel, String> {
        self.place.connect().await
    }

    /// A call found the connection broken: it is made again at once.
    pub fn lost(&self) {
        self.lost.notify_one();
    }

    /// Waits until the daemon is reached.
    pub async fn reached(&self) {
        let mut changes = self.state.subscribe();
        // The sender lives as long as `self`.
        let _ = changes
            .wait_for(|state| !matches!(state, State::Down { .. }))
            .await;
    }

    /// Whether a failed method says that the connection is broken; it is then made again.
    pub fn broke(&self, status: &tonic::Status) -> bool {
        use tonic::Code;
        let broke = matches!(
            status.code(),
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown
        );
        if broke {
            self.lost();
        }
        broke
    }

    /// Waits until it was tried to reach the daemon, a few seconds at most: a call that
    /// goes on right after a restart need not be told that its sandbox is away.
    pub async fn tried(&self) {
        let mut changes = self.state.subscribe();
        let _ = changes
            .wait_for(|state| !matches!(state, State::Down { error, .. } if error == STARTING))
            .await;
    }

    /// Makes the link and keeps it, for ever. `open` lists the executions that
    /// are still wanted; on every connect all others are ended and forgotten.
    pub async fn run<F>(&self, open: impl Fn() -> F)
    where
        F: Future<Output = Option<Vec<String>>>,
    {
        let mut since = now();
        let mut pause = Duration::from_millis(50);
        loop {
            match self.connect().await {
                Ok((client, status)) => {
                    pause = Duration::from_millis(50);
                    self.sweep(&mut client.clone(), &status, open().await).await;
                    self.keep(client, status).await;
                    since = now();
                }
                Err(error) => {
                    tracing::warn!(%error, "the sandbox is not reached");
                    *self
                        .client
                        .lock()
                        .expect("never poisoned: no panic while held") = None;
                    self.state.send_replace(State::Down { since, error });
                    tokio::time::sleep(pause).await;
                    let longest = match self.place.daemon() {
                        Some(_) => PAUSE_HERE,
                        None => PAUSE_ELSEWHERE,
                    };
                    pause = (pause * 2).min(longest);
                }
            }
        }
    }

    async fn connect(&self) -> Result<(SandboxClient<Channel>, StatusResponse), String> {
        let daemon = match (self.reach().await, self.place.daemon()) {
            (Ok(found), _) => return Ok(found),
            (Err(error), None) => return Err(error),
            (Err(_), Some(daemon)) => daemon,
        };
        let mut process = daemon.start()?;
        let patience = std::time::Instant::now() + START_PATIENCE;
        let mut step = Duration::from_millis(2);
        loop {
            let error = match self.reach().await {
                Ok(found) => {
                    // It outlives this process; where it does not, it is reaped.
                    tokio::spawn(async move { process.wait().await });
                    return Ok(found);
                }
                Err(error) => error,
            };
            let ended = process.try_wait().ok().flatten();
            if ended.is_some() || std::time::Instant::now() > patience {
                let words = daemon.last_words();
                let how = ended.map_or("does not answer".to_owned(), |s| format!("ended ({s})"));
                let place = &self.place;
                return Err(format!(
                    "the sandbox daemon {how}; at {place}: {error}\n{words}"
                ));
            }
            tokio::time::sleep(step).await;
            step = (step * 2).min(Duration::from_millis(100));
        }
    }

    async fn reach(&self) -> Result<(SandboxClient<Channel>, StatusResponse), String> {
        let channel = self.place.connect().await?;
        let mut client = SandboxClient::new(channel)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let status = tokio::time::timeout(Duration::from_secs(5), client.status(StatusRequest {}))
            .await
            .map_err(|_| "no answer in 5 s".to_owned())?
            .map_err(|status| status.message().to_owned())?;
        Ok((client, status.into_inner()))
    }

    /// Ends and forgets executions that no open call wants.
    async fn sweep(
        &self,
        client: &mut SandboxClient<Channel>,
        status: &StatusResponse,
        open: Option<Vec<String>>,
    ) {
        let Some(open) = open else { return };
        let open: HashSet<String> = open.into_iter().collect();
        let unwanted: Vec<String> = status
            .executions
            .iter()
            .filter(|known| !known.released && !open.contains(&known.id))
            .map(|known| known.id.clone())
            .collect();
        for id in &unwanted {
            let kill = SignalRequest {
                execution_id: id.clone(),
                signal: Some(Signal::Kill(true)),
            };
            let _ = client.signal(kill).await;
        }
        if !unwanted.is_empty() {
            tracing::info!(
                count = unwanted.len(),
                "ended executions that no call waits for"
            );
            let _ = client
                .release(ReleaseRequest {
                    execution_ids: unwanted,
                })
                .await;
        }
    }

    /// Serves a connection until it is lost.
    async fn keep(&self, mut client: SandboxClient<Channel>, status: StatusResponse) {
        let boot = status.boot_id.clone();
        let status = Arc::new(status);
        let mut probed = std::time::Instant::now();
        let mut warned = self.only_warn.load(Ordering::Acquire);
        let state = self.judge(&mut client, status.clone()).await;
        let reached = !matches!(state, State::Down { .. });
        *self
            .client
            .lock()
            .expect("never poisoned: no panic while held") = reached.then(|| client.clone());
        self.state.send_replace(state);
        if !reached {
            return;
        }
        let mut pulse = Pulse::of(&self.place).await;
        loop {
            tokio::select! {
                () = self.lost.notified() => {}
                () = pulse.ended() => {}
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
            let answer = tokio::time::timeout(HEARTBEAT, client.status(StatusRequest {})).await;
            match answer {
                Ok(Ok(now)) if now.get_ref().boot_id == boot => {}
                // Another daemon, a broken connection or silence.
                _ => break,
            }
            let rest = match *self.state.borrow() {
                State::Refused { .. } | State::Unproved { .. } => PROBE_AGAIN,
                State::Ready(_) | State::Down { .. } => PROBE_EVERY,
            };
            let warns = self.only_warn.load(Ordering::Acquire);
            if probed.elapsed() > rest || warned != warns {
                probed = std::time::Instant::now();
                warned = warns;
                match self.judge(&mut client, status.clone()).await {
                    State::Down { .. } => break,
                    state => self.state.send_replace(state),
                };
            }
        }
        *self
            .client
            .lock()
            .expect("never poisoned: no panic while held") = None;
        self.state.send_replace(State::Down {
            since: now(),
            error: "the connection was lost".into(),
        });
    }

    /// What listens in the sandbox on its own loopback may by chance have a port of
    /// these: what answers has to answer at other ports too.
    async fn prove(&self, client: &mut SandboxClient<Channel>) -> Proof {
        match self.place.targets().await.probe(client).await {
            Proof::Reached(_) if self.place.daemon().is_some() => {
                self.place.targets().await.probe(client).await
            }
            proof => proof,
        }
    }

    async fn judge(
        &self,
        client: &mut SandboxClient<Channel>,
        status: Arc<StatusResponse>,
    ) -> State {
        if status.grade == "not-isolated" && !self.allow_unisolated {
            let reason = format!(
                "commands would not be isolated on this machine ({}); say yes in `mooring dev`, or start with --allow-unisolated",
                status.missing.join("; ")
            );
            return State::Refused {
                status,
                reason,
                egress: Egress::Unknown,
            };
        }
        let proof = self.prove(client).await;
        match proof {
            Proof::Denied => State::Ready(status),
            Proof::Lost(error) => State::Down {
                since: now(),
                error,
            },
            _ if status.grade == "not-isolated" => State::Ready(status),
            Proof::Reached(names) => self.unproved(
                status,
                format!("the sandbox has a network: {} answered", names.join(", ")),
                Egress::Reached,
            ),
            Proof::Unknown(reason) => self.unproved(
                status,
                format!("it is not proved that the sandbox has no network: {reason}"),
                Egress::Unknown,
            ),
        }
    }

    fn unproved(&self, status: Arc<StatusResponse>, reason: String, egress: Egress) -> State {
        match self.only_warn.load(Ordering::Acquire) {
            true => State::Unproved {
                status,
                reason,
                egress,
            },
            false => State::Refused {
                status,
                reason,
                egress,
            },
        }
    }
}

fn now() -> Millis {
    use mooring_durable::clock::Clock;
    mooring_durable::clock::SystemClock.now()
}
