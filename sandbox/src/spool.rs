//! The output file of one execution: written once, bounded, readable at any time.
//!
//! While the command runs, a byte's place in the file is its place in the
//! output. Beyond the limit the middle becomes a hole: the first and the last
//! half stay. At the end the hole is closed and a line `[N bytes not kept]`
//! stands in its place, so that the file is plain text for whoever reads it.
//! Nothing but the file is needed to know what it holds ([`Layout::of`]).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};

/// Holes begin and end at multiples of this many bytes.
const GRAIN: u64 = 64 << 10;

/// Where the kept tail of `total` bytes begins; equal to `half` where nothing is lost.
fn tail_start(total: u64, half: u64) -> u64 {
    let start = total.saturating_sub(half) / GRAIN * GRAIN;
    start.max(half)
}

fn marker(bytes: u64) -> String {
    format!("\n[{bytes} bytes not kept]\n")
}

/// What an output file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Output bytes so far, kept or not.
    pub total: u64,
    /// Bytes that were not kept: from, length. Length 0: all were kept.
    pub gap: (u64, u64),
    /// How far the bytes behind the gap lie before their place in the output.
    shift: u64,
}

impl Layout {
    /// Reads it from the file; `limit` is the one that the file was written with.
    pub fn of(file: &File, limit: u64) -> io::Result<Self> {
        let half = half_of(limit);
        let length = file.metadata()?.len();
        let start = tail_start(length, half);
        if let Some(closed) = Self::closed(file, length, half)? {
            return Ok(closed);
        }
        Ok(Self {
            total: length,
            gap: (half.min(length), start.saturating_sub(half)),
            shift: 0,
        })
    }

    fn closed(file: &File, length: u64, half: u64) -> io::Result<Option<Self>> {
        if length <= half * 2 {
            return Ok(None);
        }
        let mut bytes = [0u8; 48];
        let count = file.read_at(&mut bytes, half)?;
        let text = String::from_utf8_lossy(&bytes[..count]);
        let lost = text
            .strip_prefix("\n[")
            .and_then(|text| text.split_once(" bytes not kept]\n"))
            .and_then(|(number, _)| number.parse::<u64>().ok());
        let Some(lost) = lost else { return Ok(None) };
        let marker = marker(lost).len() as u64;
        let Some(total) = (length - marker).checked_add(lost) else {
            return Ok(None);
        };
        // A command may print such a line itself; then the sums do not agree.
        if lost == 0 || tail_start(total, half) != half + lost {
            return Ok(None);
        }
        Ok(Some(Self {
            total,
            gap: (half, lost),
            shift: lost - marker,
        }))
    }

    /// The place in the file of an output offset, and how many bytes follow there
    /// in one piece; `None` inside the gap and at the end.
    pub fn place(&self, offset: u64) -> Option<(u64, u64)> {
        let (gap, lost) = self.gap;
        if offset >= self.total {
            None
        } else if lost == 0 {
            Some((offset, self.total - offset))
        } else if offset < gap {
            Some((offset, gap - offset))
        } else if offset >= gap + lost {
            Some((offset - self.shift, self.total - offset))
        } else {
            None
        }
    }
}

fn half_of(limit: u64) -> u64 {
    (limit / 2 / GRAIN * GRAIN).max(GRAIN)
}

/// Opens an output file for reading; never follows a symlink.
pub fn open(folder: BorrowedFd<'_>, name: &str) -> io::Result<File> {
    let file = rustix::fs::openat(
        folder,
        name,
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW,
        Mode::empty(),
    )?;
    Ok(File::from(file))
}

/// The writing side, in the supervisor.
pub struct Spool {
    folder: OwnedFd,
    name: String,
    file: File,
    half: u64,
    /// Bytes that were stored, from the start on.
    stored: u64,
    /// Bytes behind them that could not be.
    lost: u64,
    /// Where the hole ends.
    hole_end: u64,
    holes: Holes,
    failed: Option<io::Error>,
}

/// How the middle is given back to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holes {
    /// By punching, where the file system can.
    Punch,
    /// By copying head and tail into a new sparse file.
    Copy,
}

impl Spool {
    /// Makes the file anew.
    pub fn create(
        folder: BorrowedFd<'_>,
        name: &str,
        limit: u64,
        holes: Holes,
    ) -> io::Result<Self> {
        let file = rustix::fs::openat(
            folder,
            name,
            OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::from_raw_mode(0o644),
        )?;
        let half = half_of(limit);
        Ok(Self {
            folder: folder.try_clone_to_owned()?,
            name: name.to_owned(),
            file: File::from(file),
            half,
            stored: 0,
            lost: 0,
            hole_end: half,
            holes,
            failed: None,
        })
    }

    /// Output bytes so far, kept or not.
    pub fn total(&self) -> u64 {
        self.stored + self.lost
    }

    /// How many bytes between the kept halves are not kept; `None` where all are.
    pub fn gap(&self) -> Option<u64> {
        let start = tail_start(self.stored, self.half);
        (start > self.half).then_some(start - self.half)
    }

    /// How many bytes at the end could not be stored, and why.
    pub fn failure(&self) -> Option<(u64, &io::Error)> {
        self.failed.as_ref().map(|error| (self.lost, error))
    }

    /// Appends. A full disk never stops the command: what cannot be stored is
    /// counted, and [`Spool::failure`] says why.
    pub fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while self.failed.is_none() && !rest.is_empty() {
            match self.file.write_at(rest, self.stored) {
                Ok(0) => self.failed = Some(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    self.stored += count as u64;
                    rest = &rest[count..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.failed = Some(error),
            }
        }
        self.lost += rest.len() as u64;
        if self.failed.is_some() {
            return;
        }
        if let Err(error) = self.make_hole() {
            self.failed = Some(error);
        }
    }

    fn make_hole(&mut self) -> io::Result<()> {
        let start = tail_start(self.stored, self.half);
        if start <= self.hole_end {
            return Ok(());
        }
        if self.holes == Holes::Punch {
            let punched = rustix::fs::fallocate(
                &self.file,
                FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                self.hole_end,
                start - self.hole_end,
            );
            match punched {
                Ok(()) => {
                    self.hole_end = start;
                    return Ok(());
                }
                Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                    self.holes = Holes::Copy;
                }
                Err(error) => return Err(error.into()),
            }
        }
        // A copy costs a whole limit, so it waits until another half has come in.
        if start - self.hole_end < self.half {
            return Ok(());
        }
        let mut to = self.temporary()?;
        self.copy(&mut to, 0, self.half)?;
        to.seek(SeekFrom::Start(start))?;
        self.copy(&mut to, start, self.stored - start)?;
        self.replace(to)?;
        self.hole_end = start;
        Ok(())
    }

    /// Closes the hole with the marker's line. Returns the output's length.
    pub fn finish(&mut self) -> io::Result<u64> {
        let start = tail_start(self.stored, self.half);
        if start > self.half {
            let mut to = self.temporary()?;
            self.copy(&mut to, 0, self.half)?;
            to.write_all(marker(start - self.half).as_bytes())?;
            self.copy(&mut to, start, self.stored - start)?;
            self.replace(to)?;
        }
        Ok(self.total())
    }

    fn temporary_name(&self) -> String {
        format!("{}.tmp", self.name)
    }

    fn temporary(&self) -> io::Result<File> {
        let file = rustix::fs::openat(
            &self.folder,
            self.temporary_name(),
            OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW,
            Mode::from_raw_mode(0o644),
        )?;
        Ok(File::from(file))
    }

    fn copy(&mut self, to: &mut File, from: u64, length: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(from))?;
        let copied = io::copy(&mut (&self.file).take(length), to)?;
        if copied == length {
            Ok(())
        } else {
            Err(io::Error::from(io::ErrorKind::UnexpectedEof))
        }
    }

    fn replace(&mut self, to: File) -> io::Result<()> {
        let temporary = self.temporary_name();
        rustix::fs::renameat(&self.folder, &temporary, &self.folder, &self.name)?;
        self.file = to;
        Ok(())
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // Left over only where a copy failed half-way.
        let _ = rustix::fs::unlinkat(self.folder.as_fd(), self.temporary_name(), AtFlags::empty());
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const LIMIT: u64 = 4 * GRAIN;

    fn byte(offset: u64) -> u8 {
        b'a' + u8::try_from(offset / 1000 % 26).unwrap()
    }

    fn check(folder: &std::path::Path, total: u64) {
        let folder = File::open(folder).unwrap();
        let file = open(folder.as_fd(), "out").unwrap();
        let layout = Layout::of(&file, LIMIT).unwrap();
        assert_eq!(layout.total, total);
        let mut offset = 0;
        while offset < total {
            let Some((place, length)) = layout.place(offset) else {
                assert_eq!(offset, layout.gap.0);
                offset += layout.gap.1;
                continue;
            };
            let mut bytes = vec![0; usize::try_from(length).unwrap()];
            file.read_exact_at(&mut bytes, place).unwrap();
            for (at, found) in (offset..).zip(&bytes) {
                assert_eq!(*found, byte(at), "offset {at} of {total}");
            }
            offset += length;
        }
        let kept = total - layout.gap.1;
        assert!(kept >= total.min(LIMIT), "{kept} of {total} kept");
        assert!(kept <= LIMIT + GRAIN, "{kept} of {total} kept");
    }

    #[test]
    fn the_first_and_the_last_half_are_kept_at_every_length() {
        for holes in [Holes::Punch, Holes::Copy] {
            for pieces in [0, 1, 3, 4, 5, 6, 40] {
                let folder = tempfile::tempdir().unwrap();
                let handle = File::open(folder.path()).unwrap();
                let mut spool = Spool::create(handle.as_fd(), "out", LIMIT, holes).unwrap();
                let mut total = 0;
                for piece in 0..pieces {
                    let length = GRAIN - 7 + piece;
                    let bytes: Vec<u8> = (total..total + length).map(byte).collect();
                    spool.write(&bytes);
                    total += length;
                    check(folder.path(), total);
                }
                assert!(spool.failure().is_none());
                assert_eq!(spool.finish().unwrap(), total);
                check(folder.path(), total);
                let blocks = {
                    use std::os::unix::fs::MetadataExt;
                    folder.path().join("out").metadata().unwrap().blocks() * 512
                };
                assert!(blocks <= LIMIT + 3 * GRAIN, "{blocks} on disk");
            }
        }
    }

    #[test]
    fn a_line_that_looks_like_the_marker_is_output() {
        let folder = tempfile::tempdir().unwrap();
        let handle = File::open(folder.path()).unwrap();
        let mut spool = Spool::create(handle.as_fd(), "out", LIMIT, Holes::Punch).unwrap();
        let half = usize::try_from(LIMIT / 2).unwrap();
        let mut bytes = vec![b'x'; half];
        bytes.extend_from_slice(b"\n[99 bytes not kept]\n");
        bytes.resize(half * 2 + 10, b'y');
        spool.write(&bytes);
        spool.finish().unwrap();
        let layout = Layout::of(&open(handle.as_fd(), "out").unwrap(), LIMIT).unwrap();
        assert_eq!(layout.total, bytes.len() as u64);
        assert_eq!(layout.gap.1, 0);
    }
}
