//! Where a database may lie, and whether what lies there is one.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
};

use crate::error::OpenError;

/// The name of a network file system by its magic number (statfs(2)), on which
/// SQLite's WAL does not work: its shared memory is per machine.
pub(crate) fn network_name(magic: u64) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517B => "SMB",
        0xFF53_4D42 => "CIFS",
        0xFE53_4D42 => "SMB2",
        0x5346_414F => "AFS",
        0x7375_7245 => "Coda",
        0x0102_1997 => "9p",
        0x00C3_6400 => "Ceph",
        0x0BD0_0BD0 => "Lustre",
        0x4750_4653 => "GPFS",
        0x564C => "NCP",
        _ => return None,
    })
}

/// Refuses network file systems.
pub(crate) fn check_filesystem(path: &Path) -> Result<(), OpenError> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let stat = rustix::fs::statfs(folder).map_err(|error| OpenError::Other {
        path: folder.into(),
        reason: error.to_string(),
    })?;
    // The type's width differs between machines; magic numbers fit 32 bits.
    refuse_network(path, stat.f_type as u64 & 0xFFFF_FFFF)
}

/// Refuses by magic number.
pub(crate) fn refuse_network(path: &Path, magic: u64) -> Result<(), OpenError> {
    match network_name(magic) {
        Some(name) => Err(OpenError::NetworkFilesystem {
            path: path.into(),
            filesystem: name.into(),
        }),
        None => Ok(()),
    }
}

/// What lies at a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing, or an empty file.
    Nothing,
    /// A database.
    Database,
}

/// Looks at the header before SQLite does, so that damage is named and nothing is
/// written over it.
pub(crate) fn look(path: &Path, expected: bool) -> Result<Found, OpenError> {
    let corrupt = |reason: String| OpenError::Corrupt {
        path: path.into(),
        reason,
    };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return Err(OpenError::ReadOnly {
                path: path.into(),
                reason: error.to_string(),
            });
        }
        Err(error) => {
            return Err(OpenError::Other {
                path: path.into(),
                reason: error.to_string(),
            });
        }
    };
    let length = file
        .metadata()
        .map_err(|error| OpenError::Other {
            path: path.into(),
            reason: error.to_string(),
        })?
        .len();
    // A file whose first transaction is still in its log alone is empty, too.
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let logged = std::fs::metadata(&log).is_ok_and(|log| log.len() > 0);
    if length == 0 {
        return match expected && !logged {
            true => Err(corrupt("it is empty, but held a database before".into())),
            false => Ok(Found::Nothing),
        };
    }
    let mut header = [0; 100];
    file.read_exact(&mut header)
        .map_err(|_| corrupt(format!("it is cut off after {length} bytes")))?;
    if !header.starts_with(b"SQLite format 3\0") {
        return Err(corrupt("it is not an SQLite database".into()));
    }
    let page = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65_536,
        size => u64::from(size),
    };
    let pages = u64::from(u32::from_be_bytes([
        header[28], header[29], header[30], header[31],
    ]));
    // What is missing may stand in the log: a checkpoint that was ended in its middle
    // has written the first page, with the number of all, and not yet the last.
    if !logged && length < pages * page {
        return Err(corrupt(format!(
            "it is cut off: {length} of {} bytes are left",
            pages * page
        )));
    }
    Ok(Found::Database)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_known_by_their_magic() {
        for (magic, name) in [
            (0x6969, Some("NFS")),
            (0xFF53_4D42, Some("CIFS")),
            (0xFE53_4D42, Some("SMB2")),
            (0x00C3_6400, Some("Ceph")),
            (0xEF53, None),      // ext4
            (0x0102_1994, None), // tmpfs
            (0x5846_5342, None), // XFS
            (0x9123_683E, None), // btrfs
            (0x794C_7630, None), // overlayfs
        ] {
            assert_eq!(network_name(magic), name, "{magic:x}");
        }
    }

    #[test]
    fn a_short_file_is_damaged_unless_its_log_may_have_the_rest() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("mooring.db");
        let mut file = vec![0; 4096];
        file[..16].copy_from_slice(b"SQLite format 3\0");
        file[16..18].copy_from_slice(&4096_u16.to_be_bytes());
        file[28..32].copy_from_slice(&3_u32.to_be_bytes());
        std::fs::write(&path, &file).expect("a file");
        let error = look(&path, true).expect_err("cut off").to_string();
        assert!(error.contains("4096 of 12288 bytes are left"), "{error}");
        std::fs::write(folder.path().join("mooring.db-wal"), [1]).expect("a log");
        assert_eq!(look(&path, true).expect("the log is read"), Found::Database);
    }

    #[test]
    fn a_network_file_system_is_refused_with_what_to_use_instead() {
        let error = refuse_network(Path::new("/srv/nfs/mooring.db"), 0x6969)
            .expect_err("refused")
            .to_string();
        assert!(
            error.contains("/srv/nfs/mooring.db")
                && error.contains("NFS")
                && error.contains("local disk"),
            "{error}"
        );
        assert!(refuse_network(Path::new("/srv/mooring.db"), 0xEF53).is_ok());
    }
}
