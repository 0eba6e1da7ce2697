//! Records: small JSON files in a folder that is held open, each written in one step.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

/// What the record says; nothing where there is none, or where it is no such record.
pub fn read<T: for<'de> Deserialize<'de>>(folder: &OwnedFd, name: &str) -> Option<T> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file = rustix::fs::openat(folder, name, flags, Mode::empty()).ok()?;
    let mut text = Vec::new();
    File::from(file).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Writes the record, for nobody else to read; whatever ends this process leaves the old
/// one or the new one.
///
/// # Errors
/// The folder cannot be written.
pub fn write(folder: &OwnedFd, name: &str, value: &impl Serialize) -> std::io::Result<()> {
    let new = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    let file = rustix::fs::openat(folder, &new, flags | OFlags::NOFOLLOW, mode)?;
    let mut file = File::from(file);
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    Ok(rustix::fs::renameat(folder, &new, folder, name)?)
}
