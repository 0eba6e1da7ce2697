//! How long output files stay: until all together are too large.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Removes the oldest files that are not `kept` until `limit` bytes are left.
pub fn trim(folder: &OwnedFd, kept: &HashSet<String>, limit: u64) -> io::Result<()> {
    let mut files = Vec::new();
    let mut total = 0;
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name.starts_with('.') {
            continue;
        }
        let stat = rustix::fs::statat(folder, name, rustix::fs::AtFlags::SYMLINK_NOFOLLOW)?;
        let bytes = u64::try_from(stat.st_blocks).unwrap_or(0) * 512;
        total += bytes;
        if !kept.contains(name) {
            let written = (stat.st_mtime, stat.st_mtime_nsec);
            files.push((written, PathBuf::from(name), bytes));
        }
    }
    files.sort();
    for (_, name, bytes) in files {
        if total <= limit {
            break;
        }
        rustix::fs::unlinkat(folder, &name, rustix::fs::AtFlags::empty())?;
        total -= bytes;
    }
    Ok(())
}
