//! What holds a command back on top of its namespaces or its pod.

use std::io;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, Scope,
};
use rustix::process::{Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::options::Limits;

/// The newest Landlock whose rights are handled; older kernels take what they know.
const NEWEST: ABI = ABI::V6;

/// Which paths a command may use.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// Read and execute, with all below.
    pub read: Vec<PathBuf>,
    /// Everything, with all below.
    pub write: Vec<PathBuf>,
}

/// Whether a command may make sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sockets {
    /// A network namespace or the pod's policy keeps them in.
    Free,
    /// No socket but a connected pair: a socket's path or address would lead out.
    PairsOnly,
}

/// Whether capabilities are given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// All are dropped for good, root's too.
    Dropped,
    /// As the daemon has them (only where nothing is isolated).
    Kept,
}

/// Prepared once, applied to each command between fork and exec.
#[derive(Debug)]
pub struct Confinement {
    landlock: Option<RulesetCreated>,
    sockets: Option<BpfProgram>,
    privileges: Privileges,
}

impl Confinement {
    /// Opens the paths of `reach`; those that do not exist are left out.
    pub fn prepare(
        reach: Option<&Reach>,
        sockets: Sockets,
        privileges: Privileges,
    ) -> io::Result<Self> {
        Ok(Self {
            landlock: reach.map(ruleset).transpose()?,
            sockets: match sockets {
                Sockets::Free => None,
                Sockets::PairsOnly => Some(pairs_only()?),
            },
            privileges,
        })
    }

    /// Holds the calling process and all that it starts.
    pub fn apply(&self) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true)?;
        if self.privileges == Privileges::Dropped {
            drop_privileges()?;
        }
        if let Some(ruleset) = &self.landlock {
            ruleset
                .try_clone()?
                .restrict_self()
                .map_err(io::Error::other)?;
        }
        if let Some(filter) = &self.sockets {
            seccompiler::apply_filter(filter).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Sets the limits of a command.
pub fn limit(limits: &Limits) -> io::Result<()> {
    for (resource, value) in [
        (Resource::Nproc, limits.processes),
        (Resource::Nofile, limits.open_files),
        (Resource::Fsize, limits.file_bytes),
        (Resource::Core, 0),
    ] {
        let hard = rustix::process::getrlimit(resource).maximum;
        let value = hard.map_or(value, |hard| hard.min(value));
        rustix::process::setrlimit(
            resource,
            Rlimit {
                current: Some(value),
                maximum: Some(value),
            },
        )?;
    }
    Ok(())
}

fn drop_privileges() -> io::Result<()> {
    for capability in CapabilitySet::all().iter() {
        // Refused where the daemon has none itself, and for those that the kernel does not know.
        let _ = rustix::thread::remove_capability_from_bounding_set(capability);
    }
    let _ = rustix::thread::clear_ambient_capability_set();
    rustix::thread::set_capabilities(
        None,
        CapabilitySets {
            effective: CapabilitySet::empty(),
            permitted: CapabilitySet::empty(),
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(())
}

fn ruleset(reach: &Reach) -> io::Result<RulesetCreated> {
    let all = AccessFs::from_all(NEWEST);
    let read = AccessFs::from_read(NEWEST);
    let created = || {
        Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(all)?
            .scope(Scope::Signal | Scope::AbstractUnixSocket)?
            .create()
    };
    let mut ruleset = created().map_err(io::Error::other)?;
    for (paths, access) in [(&reach.read, read), (&reach.write, all)] {
        for path in paths {
            let Some(fd) = open(path)? else { continue };
            let access = if path.is_dir() {
                access
            } else {
                access & AccessFs::from_file(NEWEST)
            };
            ruleset = ruleset
                .add_rule(PathBeneath::new(fd, access))
                .map_err(io::Error::other)?;
        }
    }
    Ok(ruleset)
}

fn open(path: &Path) -> io::Result<Option<PathFd>> {
    match path.try_exists() {
        Ok(true) => PathFd::new(path).map(Some).map_err(io::Error::other),
        _ => Ok(None),
    }
}

/// Refuses `socket` and `io_uring_setup`, which makes sockets without it.
fn pairs_only() -> io::Result<BpfProgram> {
    let refused = [nix::libc::SYS_socket, nix::libc::SYS_io_uring_setup];
    let filter = SeccompFilter::new(
        refused.into_iter().map(|call| (call, Vec::new())).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(nix::libc::EACCES.unsigned_abs()),
        std::env::consts::ARCH
            .try_into()
            .map_err(io::Error::other)?,
    )
    .map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}
