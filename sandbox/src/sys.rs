//! The few system calls that have no safe wrapper.
//!
//! This is the crate's only module with `unsafe`: fork and clone (safe here,
//! because the callers have one thread, which [`single_threaded`] checks),
//! `mount_setattr`, `close_range` and the loopback's interface request, each
//! with arguments that are built in the same function.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::libc;
use rustix::process::Pid;
use tokio::io::unix::AsyncFd;

/// Which side of a fork the caller is on.
pub enum Forked {
    /// The new process.
    Child,
    /// The old one, with the new one's id.
    Parent(Pid),
}

/// Forks a process that has a single thread, so that the child may do
/// anything that the parent might: no lock can be held by a lost thread.
pub fn fork() -> io::Result<Forked> {
    single_threaded()?;
    // SAFETY: there is no other thread whose locks the child could inherit.
    let pid = unsafe { libc::fork() };
    forked(i64::from(pid))
}

/// Forks into new namespaces (`CLONE_NEW*` flags).
pub fn fork_into(namespaces: i32) -> io::Result<Forked> {
    single_threaded()?;
    let flags = libc::c_long::from(namespaces | libc::SIGCHLD);
    // SAFETY: as in `fork`; a null stack makes clone(2) behave like fork, and
    // no other argument points anywhere.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    forked(pid)
}

fn forked(pid: i64) -> io::Result<Forked> {
    match pid {
        0 => Ok(Forked::Child),
        pid if pid > 0 => {
            let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
            Ok(Forked::Parent(
                pid.expect("the kernel's process ids are positive"),
            ))
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn single_threaded() -> io::Result<()> {
    let threads = std::fs::read_dir("/proc/self/task").map(Iterator::count);
    match threads {
        Ok(1) | Err(_) => Ok(()),
        Ok(count) => Err(io::Error::other(format!(
            "the process has {count} threads; start the sandbox before the runtime"
        ))),
    }
}

/// A pipe that no exec inherits: reading end, writing end.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?)
}

/// A descriptor that the runtime watches.
pub fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` stays the same open descriptor until it is dropped,
    // and nothing takes it out of the `AsyncFd`.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// Names the host of the caller's own UTS namespace.
pub fn name_host() {
    const NAME: &[u8] = b"sandbox";
    // SAFETY: the length is the name's. It is for people only, so an error is none.
    unsafe { libc::sethostname(NAME.as_ptr().cast(), NAME.len()) };
}

/// Makes a mount and all below it read-only, with no set-user-id and no device files.
///
/// `ENOSYS` before Linux 5.12.
pub fn set_read_only_tree(path: &CStr) -> io::Result<()> {
    let attributes = libc::mount_attr {
        attr_set: libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    // SAFETY: the path ends with a zero byte and the struct has the size given.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE,
            &raw const attributes,
            size_of::<libc::mount_attr>(),
        )
    };
    check(done)
}

/// Marks every file descriptor from 3 on to be closed by the next exec.
pub fn close_on_exec_from_3() -> io::Result<()> {
    // SAFETY: no pointers; descriptors are only marked, not closed.
    let done = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            3u32,
            u32::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };
    check(done)
}

/// Gives signals back what a program expects of them: none ignored, none blocked.
///
/// Rust's runtime ignores SIGPIPE, and an exec would keep that.
pub fn default_signals() -> io::Result<()> {
    for signal in [libc::SIGPIPE, libc::SIGHUP] {
        // SAFETY: the default action is no function that could be missing.
        if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    nix::sys::signal::SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Ignores SIGHUP: the daemon outlives the terminal it was started from.
pub fn ignore_hangup() {
    // SAFETY: ignoring is no function that could be missing.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

/// Brings the loopback interface of the caller's network namespace up.
pub fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    // SAFETY: all zero bytes are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request outlives the call and is the type SIOCSIFFLAGS takes.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw mut request) };
    check(i64::from(done))
}

/// The Landlock version of the running kernel, 0 where there is none.
pub fn landlock_abi() -> u32 {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the kernel reads no memory.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0usize,
            VERSION,
        )
    };
    u32::try_from(abi).unwrap_or(0)
}

/// Largest resident set of the children that were waited for, in bytes.
pub fn peak_memory_of_children() -> u64 {
    // SAFETY: all zero bytes are a valid rusage, and the call fills it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let done = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    if done != 0 {
        return 0;
    }
    u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024
}

fn check(done: i64) -> io::Result<()> {
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Leaves the caller's session keyring, which may hold keys of the user.
pub fn new_session_keyring() {
    const JOIN: libc::c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring. Where the kernel has
    // no keyrings there are no keys either.
    unsafe { libc::syscall(libc::SYS_keyctl, JOIN, std::ptr::null::<libc::c_char>()) };
}
