//! The process above everything that runs: process 1 of a namespace or a pod.
//!
//! It has one thread and little memory, so that it can fork a supervisor per
//! execution in well under a millisecond; it buries orphans; and it ends when
//! the daemon does, which ends all the rest.

use std::collections::HashSet;
use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags};
use rustix::net::SendFlags;
use rustix::process::{Pid, Signal, WaitOptions, kill_process};

use crate::descendants;
use crate::protocol::{self, Job, ProbeResult, ProbeTarget, Report};
use crate::supervisor::{self, Surroundings};
use crate::sys::{self, Forked};

/// How long supervisors may take to end their commands once the daemon is gone.
const FAREWELL: Duration = Duration::from_secs(12);

/// Serves the daemon's jobs until it ends; returns its exit status.
pub fn run(daemon: Pid, jobs: OwnedFd, surroundings: &Surroundings) -> io::Result<i32> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let mut mask = SigSet::empty();
    for signal in [NixSignal::SIGCHLD, NixSignal::SIGTERM, NixSignal::SIGINT] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut init = Init {
        daemon,
        jobs: Some(jobs),
        supervisors: HashSet::new(),
        ended: None,
    };
    let mut buffer = Vec::new();
    loop {
        let mut fds = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
        if let Some(jobs) = &init.jobs {
            fds.push(PollFd::new(jobs, PollFlags::IN));
        }
        match rustix::event::poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let job = fds.get(1).is_some_and(|fd| !fd.revents().is_empty());
        drop(fds);
        while let Ok(Some(signal)) = signals.read_signal() {
            if signal.ssi_signo != NixSignal::SIGCHLD as u32 {
                // Nothing needs saving: all that counts is on disk already.
                let _ = kill_process(daemon, Signal::KILL);
            }
        }
        init.reap();
        if let Some(status) = init.ended {
            init.farewell();
            return Ok(status);
        }
        if job {
            init.take_job(&mut buffer, surroundings)?;
        }
    }
}

struct Init {
    daemon: Pid,
    /// `None` once the daemon has closed its side.
    jobs: Option<OwnedFd>,
    supervisors: HashSet<Pid>,
    ended: Option<i32>,
}

impl Init {
    fn take_job(&mut self, buffer: &mut Vec<u8>, surroundings: &Surroundings) -> io::Result<()> {
        let Some(jobs) = &self.jobs else {
            return Ok(());
        };
        let Some((job, control)) = protocol::receive_job(jobs, buffer)? else {
            self.jobs = None;
            return Ok(());
        };
        match sys::fork() {
            Ok(Forked::Child) => {
                self.jobs = None;
                match job {
                    Job::Run(run) => supervisor::supervise(&run, &control, surroundings),
                    Job::Probe(targets) => probe(&targets, &control, surroundings),
                }
                std::process::exit(0);
            }
            Ok(Forked::Parent(pid)) => {
                self.supervisors.insert(pid);
            }
            Err(error) => {
                let finished = protocol::Finished {
                    end: protocol::End::Failed,
                    code: 0,
                    message: format!("no process for it: {error}"),
                    output_bytes: 0,
                    peak_memory: 0,
                };
                let report = Report::Finished(finished);
                let _ = protocol::send(control.as_fd(), &report, SendFlags::DONTWAIT);
            }
        }
        Ok(())
    }

    fn reap(&mut self) {
        let mut crashed = false;
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            if pid == self.daemon {
                let signal = status.terminating_signal().map(|signal| 128 + signal);
                self.ended = Some(status.exit_status().or(signal).unwrap_or(1));
            } else if self.supervisors.remove(&pid) && status.exit_status() != Some(0) {
                crashed = true;
            }
        }
        if crashed {
            self.kill_strays();
        }
    }

    /// What a killed supervisor leaves becomes a child of this process.
    fn kill_strays(&self) {
        for pid in descendants::children() {
            let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
                continue;
            };
            if pid != self.daemon && !self.supervisors.contains(&pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Supervisors see the daemon's end by themselves. Process 1 of a pid
    /// namespace need not wait: its own end kills them and all below.
    fn farewell(&mut self) {
        if rustix::process::getpid().as_raw_nonzero().get() == 1 {
            return;
        }
        let until = Instant::now() + FAREWELL;
        while !self.supervisors.is_empty() && Instant::now() < until {
            self.reap();
            self.kill_strays();
            let pause = rustix::event::Timespec {
                tv_sec: 0,
                tv_nsec: 5_000_000,
            };
            let _ = rustix::event::poll(&mut [], Some(&pause));
        }
    }
}

/// Tries the targets as a command would, under the same confinement.
fn probe(targets: &[ProbeTarget], control: &OwnedFd, surroundings: &Surroundings) {
    let results = match surroundings.confinement.apply() {
        Ok(()) => std::thread::scope(|scope| {
            let tries: Vec<_> = targets
                .iter()
                .map(|target| (target, scope.spawn(move || reach(target))))
                .collect();
            tries
                .into_iter()
                .map(|(target, attempt)| {
                    let outcome = attempt
                        .join()
                        .unwrap_or_else(|_| Err("the probe broke".into()));
                    ProbeResult {
                        name: target.name.clone(),
                        reached: outcome.is_ok(),
                        detail: outcome.unwrap_or_else(|detail| detail),
                    }
                })
                .collect()
        }),
        // Not applied means not tested: say so as the worst case.
        Err(error) => targets
            .iter()
            .map(|target| ProbeResult {
                name: target.name.clone(),
                reached: true,
                detail: format!("not tried: {error}"),
            })
            .collect(),
    };
    let _ = protocol::send(
        control.as_fd(),
        &Report::Probed(results),
        SendFlags::empty(),
    );
}

fn reach(target: &ProbeTarget) -> Result<String, String> {
    let told = |error: io::Error| error.to_string();
    let address: SocketAddr = target
        .address
        .parse()
        .map_err(|_| format!("`{}` is no ip:port", target.address))?;
    let timeout = Duration::from_millis(u64::from(target.timeout_ms.clamp(1, 30_000)));
    if !target.udp {
        return TcpStream::connect_timeout(&address, timeout)
            .map(|_| format!("{address} accepted a connection"))
            .map_err(told);
    }
    let any = if address.is_ipv4() {
        "0.0.0.0:0"
    } else {
        "[::]:0"
    };
    let socket = UdpSocket::bind(any).map_err(told)?;
    socket.set_read_timeout(Some(timeout)).map_err(told)?;
    socket.connect(address).map_err(told)?;
    // A query for the name servers of the root (RFC 1035), which every resolver answers.
    let query = b"\x4d\x6f\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";
    socket.send(query).map_err(told)?;
    let mut answer = [0; 512];
    socket
        .recv(&mut answer)
        .map(|count| format!("{address} answered {count} bytes"))
        .map_err(told)
}
