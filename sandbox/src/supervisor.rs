//! One process per execution: starts the command, keeps its output, its time
//! and its input, and ends with it everything that the command started.

use std::collections::VecDeque;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvFlags, SendFlags};
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use crate::confine::{self, Confinement};
use crate::descendants;
use crate::options::Limits;
use crate::protocol::{self, End, Finished, Order, Report, Run};
use crate::spool::{Holes, Spool};
use crate::sys::{self, Forked};

/// Between SIGTERM and SIGKILL where an execution is ended.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// The same for what a command left behind when it ended by itself.
const LEFTOVER_GRACE: Duration = Duration::from_millis(250);
/// How long processes that do not die are waited for.
const KILL_PATIENCE: Duration = Duration::from_secs(10);
/// The daemon hears of output at most this often.
const REPORT_EVERY: Duration = Duration::from_millis(5);

/// What all supervisors share; inherited from init by fork.
pub struct Surroundings {
    /// The folder of output files.
    pub output: OwnedFd,
    pub limits: Limits,
    pub confinement: Confinement,
    pub bash: CString,
}

/// Runs the command to its end and reports it. Called in a process of its own.
pub fn supervise(run: &Run, control: &OwnedFd, surroundings: &Surroundings) {
    let finished = match Supervisor::start(run, control, surroundings) {
        Ok(supervisor) => supervisor.run(),
        Err(error) => Some(Finished {
            end: End::Failed,
            code: 0,
            message: error.to_string(),
            output_bytes: 0,
            peak_memory: 0,
        }),
    };
    if let Some(finished) = finished {
        // Fails only where the daemon is gone, and with it whoever would read this.
        let _ = protocol::send(
            control.as_fd(),
            &Report::Finished(finished),
            SendFlags::empty(),
        );
    }
}

struct Supervisor<'a> {
    control: &'a OwnedFd,
    spool: Spool,
    main: Pid,
    /// The command's output; the terminal's own side where it has one.
    output: Option<OwnedFd>,
    input: Input,
    signals: SignalFd,
    deadline: Option<Instant>,
    /// Until then the time before the deadline does not run.
    held: Option<Instant>,
    ending: Option<Ending>,
    /// How it ended, as far as that is known.
    end: Option<End>,
    status: Option<(End, i32)>,
    reported: u64,
    reported_at: Option<Instant>,
}

struct Ending {
    kill_at: Instant,
    give_up_at: Instant,
}

enum Input {
    None,
    Pipe {
        fd: OwnedFd,
        queue: VecDeque<u8>,
        close: bool,
    },
    Terminal {
        queue: VecDeque<u8>,
    },
}

impl<'a> Supervisor<'a> {
    fn start(run: &Run, control: &'a OwnedFd, surroundings: &Surroundings) -> io::Result<Self> {
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let mut mask = SigSet::empty();
        mask.add(NixSignal::SIGCHLD);
        mask.thread_block()?;
        let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let spool = Spool::create(
            surroundings.output.as_fd(),
            &run.output,
            surroundings.limits.output_bytes,
            Holes::Punch,
        )?;
        let (stdio, output, input) = Stdio::make(run)?;
        let (failed_read, failed_write) = sys::pipe()?;
        let (go_read, go_write) = sys::pipe()?;
        let main = match sys::fork()? {
            Forked::Child => {
                drop(go_write);
                let error = match become_command(run, stdio, &go_read, surroundings) {
                    Ok(never) => match never {},
                    Err(error) => error,
                };
                let _ = rustix::io::write(&failed_write, error.as_bytes());
                std::process::exit(127)
            }
            Forked::Parent(pid) => pid,
        };
        drop((stdio, failed_write, go_read));
        let early = wait_for_go(control)?;
        // One that has failed already reads it no more.
        let _ = rustix::io::write(&go_write, b"g");
        drop(go_write);
        let mut error = String::new();
        io::Read::read_to_string(&mut std::fs::File::from(failed_read), &mut error)?;
        if !error.is_empty() {
            let _ = rustix::process::waitpid(Some(main), WaitOptions::empty());
            return Err(io::Error::other(error));
        }
        let mut supervisor = Self {
            control,
            spool,
            main,
            output: Some(output),
            input,
            signals,
            deadline: (run.timeout_ms > 0)
                .then(|| Instant::now().checked_add(Duration::from_millis(run.timeout_ms)))
                .flatten(),
            held: None,
            ending: None,
            end: None,
            status: None,
            reported: 0,
            reported_at: None,
        };
        for order in early {
            supervisor.obey(order);
        }
        Ok(supervisor)
    }

    /// `None` where the daemon is gone.
    fn run(mut self) -> Option<Finished> {
        let mut buffer = vec![0; 64 << 10];
        let mut message = Vec::new();
        loop {
            let ready = self.wait();
            if ready.control && !self.take_orders(&mut message) {
                self.perish();
                return None;
            }
            if ready.input {
                self.feed();
            }
            if ready.output {
                self.take_output(&mut buffer);
            }
            while let Ok(Some(_)) = self.signals.read_signal() {}
            let alone = self.reap();
            self.keep_time();
            self.report_output(false);
            let given_up = self
                .ending
                .as_ref()
                .is_some_and(|ending| Instant::now() >= ending.give_up_at);
            if alone || given_up {
                return Some(self.finish(&mut buffer, given_up));
            }
        }
    }

    fn wait(&self) -> Ready {
        let now = Instant::now();
        let mut until: Option<Instant> = self.deadline.filter(|_| self.ending.is_none());
        if let Some(ending) = &self.ending {
            let again = if now >= ending.kill_at {
                now + Duration::from_millis(10)
            } else {
                ending.kill_at
            };
            until = Some(again);
        }
        if self.spool.total() > self.reported {
            let at = self.reported_at.map_or(now, |at| at + REPORT_EVERY);
            until = Some(until.map_or(at, |other| other.min(at)));
        }
        let timeout = until.map(|at| {
            let left = at.saturating_duration_since(now);
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: i64::from(left.subsec_nanos()),
            }
        });
        let signals = self.signals.as_fd();
        let mut fds = vec![
            PollFd::new(self.control, PollFlags::IN),
            PollFd::from_borrowed_fd(signals, PollFlags::IN),
        ];
        let mut output_at = None;
        let mut input_at = None;
        if let Some(output) = &self.output {
            let mut flags = PollFlags::IN;
            if let Input::Terminal { queue } = &self.input
                && !queue.is_empty()
            {
                flags |= PollFlags::OUT;
                input_at = Some(fds.len());
            }
            output_at = Some(fds.len());
            fds.push(PollFd::new(output, flags));
        }
        if let Input::Pipe { fd, queue, .. } = &self.input
            && !queue.is_empty()
        {
            input_at = Some(fds.len());
            fds.push(PollFd::new(fd, PollFlags::OUT));
        }
        // Interrupted or not: the loop looks at everything anyway.
        let _ = rustix::event::poll(&mut fds, timeout.as_ref());
        let any = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
        let seen: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let is = |at: Option<usize>, flags| at.is_some_and(|at: usize| seen[at].intersects(flags));
        Ready {
            control: is(Some(0), any),
            output: is(output_at, any),
            input: is(input_at, PollFlags::OUT | PollFlags::ERR),
        }
    }

    /// False where the daemon is gone.
    fn take_orders(&mut self, message: &mut Vec<u8>) -> bool {
        loop {
            let order = match protocol::receive(
                self.control.as_fd(),
                message,
                protocol::MAX_MESSAGE,
                RecvFlags::DONTWAIT,
            ) {
                Ok(Some(order)) => order,
                Ok(None) => return false,
                Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
            };
            self.obey(order);
        }
    }

    fn obey(&mut self, order: Order) {
        match order {
            Order::Go => {}
            Order::Stdin(bytes) => match &mut self.input {
                Input::Pipe { queue, .. } | Input::Terminal { queue } => queue.extend(bytes),
                Input::None => {}
            },
            Order::StdinClose => match &mut self.input {
                Input::Pipe { close, .. } => *close = true,
                // What a terminal has for an end of input.
                Input::Terminal { queue } => queue.push_back(4),
                Input::None => {}
            },
            Order::Resize(rows, columns) => {
                if let (Input::Terminal { .. }, Some(terminal)) = (&self.input, &self.output) {
                    let _ = rustix::termios::tcsetwinsize(terminal, winsize(rows, columns));
                }
            }
            Order::Kill => self.end_all(End::Killed, TERM_GRACE),
            Order::Hold(ms) => self.hold(Duration::from_millis(ms.into())),
        }
        self.feed();
    }

    fn feed(&mut self) {
        let (fd, queue) = match (&mut self.input, &self.output) {
            (Input::Pipe { fd, queue, .. }, _) => (OwnedFd::as_fd(fd), queue),
            (Input::Terminal { queue }, Some(terminal)) => (terminal.as_fd(), queue),
            _ => return,
        };
        let mut taken = 0;
        let mut broken = false;
        while !queue.is_empty() {
            let front = queue.as_slices().0;
            match rustix::io::write(fd, front) {
                Ok(count) => {
                    queue.drain(..count);
                    taken += count as u64;
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(_) => {
                    broken = true;
                    break;
                }
            }
        }
        let done = match &self.input {
            Input::Pipe { queue, close, .. } => broken || (*close && queue.is_empty()),
            _ => broken,
        };
        if done {
            self.input = Input::None;
        }
        if taken > 0 {
            let _ = protocol::send(
                self.control.as_fd(),
                &Report::StdinTaken(taken),
                SendFlags::empty(),
            );
        }
    }

    fn take_output(&mut self, buffer: &mut [u8]) {
        let Some(output) = &self.output else { return };
        match rustix::io::read(output, &mut *buffer) {
            Ok(0) => self.output = None,
            Ok(count) => self.spool.write(&buffer[..count]),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            // EIO is how a terminal says that its other side was closed.
            Err(_) => self.output = None,
        }
    }

    /// Buries the dead; true where none is left alive.
    fn reap(&mut self) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.main => {
                    let end = match (status.exit_status(), status.terminating_signal()) {
                        (Some(code), _) => (End::Exited, code),
                        (_, signal) => (End::Signaled, signal.unwrap_or(0)),
                    };
                    self.status = Some(end);
                }
                Ok(Some(_)) => {}
                Ok(None) => {
                    if let Some((end, _)) = self.status {
                        self.end_all(end, LEFTOVER_GRACE);
                    }
                    return false;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return true,
            }
        }
    }

    fn end_all(&mut self, end: End, grace: Duration) {
        self.end.get_or_insert(end);
        if self.ending.is_none() {
            let kill_at = Instant::now() + grace;
            self.ending = Some(Ending {
                kill_at,
                give_up_at: kill_at + KILL_PATIENCE,
            });
            descendants::signal_all(Signal::TERM);
        }
    }

    /// Moves the deadline by the time that is not held already.
    fn hold(&mut self, time: Duration) {
        let now = Instant::now();
        let from = self.held.map_or(now, |held| held.max(now));
        let until = now + time;
        if until > from {
            self.deadline = self.deadline.map(|it| it + (until - from));
            self.held = Some(until);
        }
    }

    fn keep_time(&mut self) {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| now >= deadline) && self.ending.is_none() {
            self.end_all(End::TimedOut, TERM_GRACE);
        }
        if self
            .ending
            .as_ref()
            .is_some_and(|ending| now >= ending.kill_at)
        {
            descendants::signal_all(Signal::KILL);
        }
    }

    fn report_output(&mut self, last: bool) {
        let total = self.spool.total();
        let due = self
            .reported_at
            .is_none_or(|at| at.elapsed() >= REPORT_EVERY);
        if total == self.reported || !(due || last) {
            return;
        }
        // A daemon that is busy hears of it the next time.
        self.reported_at = Some(Instant::now());
        if protocol::send(
            self.control.as_fd(),
            &Report::Output(total),
            SendFlags::DONTWAIT,
        )
        .is_ok()
        {
            self.reported = total;
        }
    }

    fn finish(mut self, buffer: &mut [u8], given_up: bool) -> Finished {
        loop {
            let before = self.spool.total();
            self.take_output(buffer);
            if self.output.is_none() || self.spool.total() == before {
                break;
            }
        }
        let output_bytes = self.spool.total();
        let mut notes = Vec::new();
        if let Err(error) = self.spool.finish() {
            notes.push(format!(
                "the gap in the output file could not be closed: {error}"
            ));
        }
        // The same figure stands in the file.
        if let Some(missing) = self.spool.gap() {
            notes.push(format!(
                "{missing} bytes in the middle of the output were not kept"
            ));
        }
        if let Some((lost, error)) = self.spool.failure().filter(|(lost, _)| *lost > 0) {
            let why = match error.kind() {
                io::ErrorKind::StorageFull => "no space left on the disk".to_owned(),
                _ => error.to_string(),
            };
            notes.push(format!("{lost} bytes of output could not be kept: {why}"));
        }
        if given_up {
            notes.push("some processes did not end".into());
        }
        let (natural, code) = self
            .status
            .unwrap_or((End::Signaled, Signal::KILL.as_raw()));
        let end = match self.end {
            Some(end @ (End::Killed | End::TimedOut)) => end,
            _ => natural,
        };
        Finished {
            end,
            code,
            message: notes.join("; "),
            output_bytes,
            peak_memory: sys::peak_memory_of_children(),
        }
    }

    /// The daemon is gone: nothing may outlive it.
    fn perish(&mut self) {
        let until = Instant::now() + KILL_PATIENCE;
        while Instant::now() < until {
            descendants::signal_all(Signal::KILL);
            if self.reap() {
                return;
            }
            let pause = Timespec {
                tv_sec: 0,
                tv_nsec: 5_000_000,
            };
            let _ = rustix::event::poll(&mut [], Some(&pause));
        }
    }
}

struct Ready {
    control: bool,
    output: bool,
    input: bool,
}

/// The command's side of its standard streams.
enum Stdio {
    Pipes { stdin: OwnedFd, output: OwnedFd },
    Terminal(OwnedFd),
}

impl Stdio {
    fn make(run: &Run) -> io::Result<(Self, OwnedFd, Input)> {
        if let Some((rows, columns)) = run.pty {
            let master = rustix::pty::openpt(
                OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
            )?;
            rustix::pty::grantpt(&master)?;
            rustix::pty::unlockpt(&master)?;
            rustix::termios::tcsetwinsize(&master, winsize(rows, columns))?;
            let peer = rustix::pty::ioctl_tiocgptpeer(
                &master,
                OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC,
            )?;
            rustix::io::ioctl_fionbio(&master, true)?;
            return Ok((
                Self::Terminal(peer),
                master,
                Input::Terminal {
                    queue: VecDeque::new(),
                },
            ));
        }
        let (read, write) = sys::pipe()?;
        rustix::io::ioctl_fionbio(&read, true)?;
        // Refused beyond the user's quota of pipe memory; the default serves too.
        let _ = nix::fcntl::fcntl(&read, nix::fcntl::FcntlArg::F_SETPIPE_SZ(256 << 10));
        let (stdin, input) = if run.stdin {
            let (stdin, fd) = sys::pipe()?;
            rustix::io::ioctl_fionbio(&fd, true)?;
            (
                stdin,
                Input::Pipe {
                    fd,
                    queue: VecDeque::new(),
                    close: false,
                },
            )
        } else {
            let null =
                rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
            (null, Input::None)
        };
        Ok((
            Self::Pipes {
                stdin,
                output: write,
            },
            read,
            input,
        ))
    }
}

fn winsize(rows: u16, columns: u16) -> Winsize {
    Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// Waits until the command may start; returns the orders that came before.
/// Without a daemon it never may: the child sees its pipe closed and ends.
fn wait_for_go(control: &OwnedFd) -> io::Result<Vec<Order>> {
    let mut early = Vec::new();
    let mut message = Vec::new();
    loop {
        match protocol::receive(
            control.as_fd(),
            &mut message,
            protocol::MAX_MESSAGE,
            RecvFlags::empty(),
        )? {
            Some(Order::Go) => return Ok(early),
            Some(order) => early.push(order),
            None => return Err(io::Error::other("the daemon has ended")),
        }
    }
}

enum Never {}

/// From fork to exec, which waits for `go`. The text says which step failed.
fn become_command(
    run: &Run,
    stdio: Stdio,
    go: &OwnedFd,
    surroundings: &Surroundings,
) -> Result<Never, String> {
    let step = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let in_step = |what: &'static str| move |error: rustix::io::Errno| format!("{what}: {error}");
    rustix::process::setsid().map_err(in_step("new session"))?;
    let (stdin, output) = match &stdio {
        Stdio::Pipes { stdin, output } => (stdin, output),
        Stdio::Terminal(terminal) => {
            rustix::process::ioctl_tiocsctty(terminal).map_err(in_step("terminal"))?;
            (terminal, terminal)
        }
    };
    rustix::stdio::dup2_stdin(stdin).map_err(in_step("stdin"))?;
    rustix::stdio::dup2_stdout(output).map_err(in_step("stdout"))?;
    rustix::stdio::dup2_stderr(output).map_err(in_step("stderr"))?;
    rustix::process::chdir(run.cwd.as_str())
        .map_err(|error| format!("folder {}: {error}", run.cwd))?;
    confine::limit(&surroundings.limits).map_err(step("limits"))?;
    sys::default_signals().map_err(step("signals"))?;
    sys::close_on_exec_from_3().map_err(step("open files"))?;
    surroundings
        .confinement
        .apply()
        .map_err(step("confinement"))?;
    let text = |value: &str| {
        CString::new(value).map_err(|_| "a zero byte in the command or its environment".to_owned())
    };
    let arguments = [c"bash".to_owned(), c"-c".to_owned(), text(&run.command)?];
    let environment = run
        .env
        .iter()
        .map(|(name, value)| text(&format!("{name}={value}")))
        .collect::<Result<Vec<_>, _>>()?;
    let bash: &CStr = &surroundings.bash;
    if rustix::io::read(go, &mut [0; 1]) != Ok(1) {
        return Err("never allowed to start".into());
    }
    match nix::unistd::execve(bash, &arguments, &environment) {
        Ok(never) => match never {},
        Err(error) => Err(format!("{}: {}", bash.to_string_lossy(), error.desc())),
    }
}
