//! The file system that commands see under `mooring dev`: built from nothing
//! on a tmpfs, in a mount namespace of the daemon's own.
//!
//! What is not put here is not there: the daemon's state and socket, other
//! users' homes, `/run`, `/sys`. The daemon keeps its folders by descriptors
//! that it opened before.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, MountPropagationFlags, UnmountFlags};
use sha2::{Digest, Sha256};

use crate::error::SandboxError;
use crate::guard::Guarded;
use crate::sys;

/// Where output files are seen from inside.
pub const OUTPUT: &str = "/run/mooring/output";

const SYSTEM: &[&str] = &[
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "etc", "opt", "nix", "gnu",
];
const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
/// Parts of `/proc` that change the machine; root may write them without any capability.
const PROC_READ_ONLY: &[&str] = &["sys", "sysrq-trigger", "irq", "bus", "fs"];

/// What goes where. All host paths are canonical.
pub struct Plan<'a> {
    pub project: &'a Path,
    pub home: &'a Path,
    /// Canonical source, and the path that it gets.
    pub read_only: &'a [(PathBuf, PathBuf)],
    pub guarded: &'a Guarded,
    pub state: &'a Path,
    pub socket: Option<&'a Path>,
}

/// Builds the file system and makes it the caller's root; returns what it lacks.
///
/// The caller is process 1 of its namespaces and has all capabilities there.
pub fn enter(plan: &Plan<'_>) -> Result<Vec<String>, SandboxError> {
    let mut missing = Vec::new();
    step(
        "/",
        "private mounts",
        rustix::mount::mount_change(
            "/",
            MountPropagationFlags::REC | MountPropagationFlags::PRIVATE,
        ),
    )?;
    let base = "/tmp";
    step(base, "tmpfs", tmpfs(base, c"mode=0755,size=16m"))?;
    for folder in ["/tmp/new", "/tmp/old"] {
        step(folder, "folder", std::fs::create_dir(folder))?;
    }
    step(base, "pivot", rustix::process::pivot_root(base, "/tmp/old"))?;
    step("/", "chdir", rustix::process::chdir("/"))?;
    step("/new", "tmpfs", tmpfs("/new", c"mode=0755,size=64m"))?;

    system()?;
    devices()?;
    processes()?;
    step(
        "/tmp",
        "folder",
        bind(
            &old(&plan.state.join("tmp")),
            Path::new("/new/tmp"),
            Writable::Yes,
        ),
    )?;
    step(
        "/var/tmp",
        "folder",
        bind(
            &old(&plan.state.join("tmp")),
            Path::new("/new/var/tmp"),
            Writable::Yes,
        ),
    )?;
    step(
        plan.home,
        "home",
        bind(
            &old(&plan.state.join("home")),
            &new(plan.home),
            Writable::Yes,
        ),
    )?;
    for (source, target) in plan.read_only {
        if let Err(error) = overlay(plan.state, source, target) {
            step(
                target,
                "read-only folder",
                bind(&old(source), &new(target), Writable::No),
            )?;
            missing.push(format!(
                "no writable cache over {}: {error}",
                target.display()
            ));
        }
    }
    step(
        OUTPUT,
        "output",
        bind(
            &old(&plan.state.join("output")),
            &new(Path::new(OUTPUT)),
            Writable::No,
        ),
    )?;
    step(
        plan.project,
        "project",
        bind(&old(plan.project), &new(plan.project), Writable::Yes),
    )?;
    for outside in plan.guarded.outside.iter().chain(&plan.guarded.threads) {
        step(
            outside,
            "git folder",
            bind(&old(outside), &new(outside), Writable::Yes),
        )?;
    }
    for pinned in &plan.guarded.pinned {
        step(
            pinned,
            "git folder",
            bind(&new(pinned), &new(pinned), Writable::Yes),
        )?;
    }
    for path in &plan.guarded.read_only {
        step(
            path,
            "read-only file",
            bind(&new(path), &new(path), Writable::No),
        )?;
    }
    hide(plan.state)?;
    plan.socket.map_or(Ok(()), hide)?;
    let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID;
    step(
        "/new",
        "read-only root",
        rustix::mount::mount_remount("/new", flags, ""),
    )?;
    step(
        "/old",
        "old root",
        rustix::mount::unmount("/old", UnmountFlags::DETACH),
    )?;
    step("/new", "chdir", rustix::process::chdir("/new"))?;
    step("/new", "pivot", rustix::process::pivot_root(".", "."))?;
    step(
        "/",
        "base",
        rustix::mount::unmount(".", UnmountFlags::DETACH),
    )?;
    step("/", "chdir", rustix::process::chdir("/"))?;
    Ok(missing)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Writable {
    Yes,
    No,
}

fn old(path: &Path) -> PathBuf {
    below("/old", path)
}

fn new(path: &Path) -> PathBuf {
    below("/new", path)
}

fn below(root: &str, path: &Path) -> PathBuf {
    Path::new(root).join(path.strip_prefix("/").unwrap_or(path))
}

fn step<T, E: Into<io::Error>>(
    path: impl AsRef<Path>,
    what: &str,
    done: Result<T, E>,
) -> Result<T, SandboxError> {
    done.map_err(|error| {
        SandboxError::setup(format!("mount of {} ({what})", path.as_ref().display()))(error.into())
    })
}

fn system() -> Result<(), SandboxError> {
    for name in SYSTEM {
        let source = Path::new("/old").join(name);
        let target = Path::new("/new").join(name);
        let Ok(kind) = source.symlink_metadata() else {
            continue;
        };
        if kind.is_symlink() {
            let to = step(&source, "link", std::fs::read_link(&source))?;
            step(&target, "link", std::os::unix::fs::symlink(to, &target))?;
        } else {
            step(
                &target,
                "system folder",
                bind(&source, &target, Writable::No),
            )?;
        }
    }
    for folder in ["/new/run", "/new/var/lib", "/new/var/cache", "/new/sys"] {
        step(folder, "folder", std::fs::create_dir_all(folder))?;
    }
    step(
        "/var/run",
        "link",
        std::os::unix::fs::symlink("/run", "/new/var/run"),
    )?;
    if rustix::process::geteuid().is_root() {
        mask_private(Path::new("/new/etc"))?;
    }
    Ok(())
}

/// What an ordinary user could not read below `/etc`, a command of root cannot either.
fn mask_private(folder: &Path) -> Result<(), SandboxError> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        if metadata.is_symlink() {
            continue;
        }
        let open = if metadata.is_dir() { 0o5 } else { 0o4 };
        if metadata.mode() & open != open {
            cover(&path, metadata.is_dir())?;
        } else if metadata.is_dir() {
            mask_private(&path)?;
        }
    }
    Ok(())
}

fn hide(path: &Path) -> Result<(), SandboxError> {
    let inside = new(path);
    match inside.symlink_metadata() {
        Ok(metadata) => cover(&inside, metadata.is_dir()),
        Err(_) => Ok(()),
    }
}

/// Lays something empty over a path.
fn cover(path: &Path, is_folder: bool) -> Result<(), SandboxError> {
    if is_folder {
        return step(
            path,
            "cover",
            rustix::mount::mount(
                "tmpfs",
                path,
                "tmpfs",
                MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV,
                c"mode=0555,size=4k",
            ),
        );
    }
    // Lies in the base, which nobody sees later.
    step(path, "cover", std::fs::write("/empty", ""))?;
    step(path, "cover", bind(Path::new("/empty"), path, Writable::No))
}

fn devices() -> Result<(), SandboxError> {
    let dev = Path::new("/new/dev");
    step("/dev", "folder", std::fs::create_dir(dev))?;
    step("/dev", "tmpfs", tmpfs(dev, c"mode=0755,size=64k"))?;
    for name in DEVICES {
        let source = Path::new("/old/dev").join(name);
        if source.exists() {
            step(
                &source,
                "device",
                bind(&source, &dev.join(name), Writable::Yes),
            )?;
        }
    }
    for (name, to) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        step(name, "link", std::os::unix::fs::symlink(to, dev.join(name)))?;
    }
    for name in ["pts", "shm"] {
        step(name, "folder", std::fs::create_dir(dev.join(name)))?;
    }
    step(
        "/dev/pts",
        "devpts",
        rustix::mount::mount(
            "devpts",
            dev.join("pts"),
            "devpts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            c"newinstance,ptmxmode=0666,mode=620",
        ),
    )?;
    step("/dev/shm", "tmpfs", tmpfs(dev.join("shm"), c"mode=1777"))
}

fn processes() -> Result<(), SandboxError> {
    let proc = Path::new("/new/proc");
    step("/proc", "folder", std::fs::create_dir(proc))?;
    step(
        "/proc",
        "proc",
        rustix::mount::mount(
            "proc",
            proc,
            "proc",
            MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC,
            None,
        ),
    )?;
    // A user namespace inside would only widen what of the kernel is within reach.
    let _ = std::fs::write(proc.join("sys/user/max_user_namespaces"), "0");
    for name in PROC_READ_ONLY {
        let path = proc.join(name);
        if path.exists() {
            step(
                &path,
                "read-only part of /proc",
                bind(&path, &path, Writable::No),
            )?;
        }
    }
    Ok(())
}

fn tmpfs(target: impl AsRef<Path>, data: &std::ffi::CStr) -> rustix::io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("tmpfs", target.as_ref(), "tmpfs", flags, data)
}

/// Binds a file or folder with all that is mounted below; makes the target where it is missing.
fn bind(source: &Path, target: &Path, writable: Writable) -> io::Result<()> {
    if source.is_dir() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(target)?;
    } else if target.symlink_metadata().is_err() {
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::File::create(target)?.set_permissions(std::fs::Permissions::from_mode(0o644))?;
    }
    rustix::mount::mount_bind_recursive(source, target)?;
    if writable == Writable::Yes {
        return Ok(());
    }
    let path = CString::new(target.as_os_str().as_bytes())?;
    sys::set_read_only_tree(&path).or_else(|error| {
        if error.raw_os_error() != Some(nix::libc::ENOSYS) {
            return Err(error);
        }
        let flags = MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount_remount(target, flags, "").map_err(io::Error::from)
    })
}

/// The folder as it is on the machine, with what commands write kept in the state folder.
fn overlay(state: &Path, source: &Path, target: &Path) -> io::Result<()> {
    if !old(source).is_dir() {
        return bind(&old(source), &new(target), Writable::No);
    }
    let name = hex::encode(&Sha256::digest(source.as_os_str().as_bytes())[..8]);
    let cache = old(state).join("cache").join(name);
    let (upper, work) = (cache.join("upper"), cache.join("work"));
    for folder in [&upper, &work] {
        std::fs::create_dir_all(folder)?;
    }
    let lower = old(source);
    let mut data = Vec::new();
    for (key, path) in [
        ("lowerdir", &lower),
        ("upperdir", &upper),
        ("workdir", &work),
    ] {
        let bytes = path.as_os_str().as_bytes();
        if bytes.iter().any(|byte| b",:\\".contains(byte)) {
            return Err(io::Error::other(
                "its path has a comma, a colon or a backslash",
            ));
        }
        data.extend_from_slice(key.as_bytes());
        data.push(b'=');
        data.extend_from_slice(bytes);
        data.push(b',');
    }
    data.extend_from_slice(b"userxattr");
    std::fs::create_dir_all(new(target))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    let data = CString::new(data)?;
    rustix::mount::mount("overlay", new(target), "overlay", flags, data.as_c_str())?;
    Ok(())
}
