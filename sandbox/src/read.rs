//! Reading a file for the model: lines of text, or a picture.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use mooring_wire::sandbox::read_response::{Binary, Content, Image, Text};
use mooring_wire::sandbox::{ReadRequest, ReadResponse};
use sha2::{Digest, Sha256};

use crate::paths::{CanonicalPath, FileError, Paths};

const DEFAULT_BYTES: u64 = 50 << 10;
/// An answer must fit in a message of the wire.
const MAX_BYTES: u64 = 2 << 20;
const MAX_IMAGE_BYTES: u64 = 3 << 20;
/// Larger files are not hashed.
pub const MAX_HASHED_BYTES: u64 = 64 << 20;
/// As many bytes decide whether a file is text.
const SNIFFED: usize = 8 << 10;

/// Answers a `Read`.
pub fn read(paths: &Paths, request: &ReadRequest) -> Result<ReadResponse, FileError> {
    let path = CanonicalPath::parse(&request.path)?;
    let (mut file, stat) = paths.open_file(&path)?;
    let failed = |error: io::Error| FileError::at(path.as_path(), error);
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    let mut start = Vec::new();
    (&file)
        .take(SNIFFED as u64)
        .read_to_end(&mut start)
        .map_err(failed)?;
    let is_output = path.as_path().starts_with(&paths.output);
    let content = match media_type(&start) {
        Some(media_type) if media_type.starts_with("image/") && size <= MAX_IMAGE_BYTES => {
            file.rewind().map_err(failed)?;
            let mut data = Vec::new();
            (&file)
                .take(MAX_IMAGE_BYTES)
                .read_to_end(&mut data)
                .map_err(failed)?;
            Content::Image(Image {
                media_type: media_type.into(),
                data: data.into(),
            })
        }
        // What a command printed is shown, whatever it is.
        Some(media_type) if !is_output => Content::Binary(Binary {
            media_type: media_type.into(),
        }),
        _ => {
            file.rewind().map_err(failed)?;
            Content::Text(lines(&file, request).map_err(failed)?)
        }
    };
    file.rewind().map_err(failed)?;
    Ok(ReadResponse {
        content: Some(content),
        size,
        sha256: hash(&file, size).map_err(failed)?,
    })
}

/// The file's SHA-256 in hex; empty beyond [`MAX_HASHED_BYTES`].
pub fn hash(file: &File, size: u64) -> io::Result<String> {
    if size > MAX_HASHED_BYTES {
        return Ok(String::new());
    }
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    let mut file = file.take(MAX_HASHED_BYTES);
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hex::encode(hasher.finalize()));
        }
        hasher.update(&buffer[..count]);
    }
}

/// Lines from the first one asked for, as many as fit; then only counts.
fn lines(file: &File, request: &ReadRequest) -> io::Result<Text> {
    let first = request.first_line.max(1);
    let wanted = if request.lines == 0 {
        u64::MAX
    } else {
        request.lines
    };
    let max = match request.max_bytes {
        0 => DEFAULT_BYTES,
        bytes => bytes.min(MAX_BYTES),
    };
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let mut reader = BufReader::with_capacity(64 << 10, file);
    let mut kept: Vec<u8> = Vec::new();
    let mut taken = 0;
    let mut number = 0;
    let mut full = false;
    let mut line = Vec::new();
    loop {
        let read = reader
            .by_ref()
            .take(max as u64 + 1)
            .read_until(b'\n', &mut line)?;
        if read == 0 {
            break;
        }
        number += 1;
        let ended = line.last() == Some(&b'\n');
        let asked = number >= first && taken < wanted && !full;
        if asked && kept.len() + line.len() <= max {
            kept.extend_from_slice(&line);
            taken += 1;
        } else if asked {
            full = true;
            // A line that is longer than an answer may be is cut; others stay whole.
            if kept.is_empty() {
                kept.extend_from_slice(&line[..max.min(line.len())]);
                taken += 1;
            }
        }
        line.clear();
        if !ended {
            skip_line(&mut reader)?;
        }
    }
    let mut text = String::from_utf8_lossy(&kept).into_owned();
    text.truncate(text.floor_char_boundary(MAX_BYTES as usize));
    Ok(Text {
        text,
        first_line: first,
        lines: taken,
        total_lines: number,
        cut: full || first.saturating_sub(1).saturating_add(taken) < number,
    })
}

fn skip_line(reader: &mut impl BufRead) -> io::Result<()> {
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Ok(());
        }
        match available.iter().position(|byte| *byte == b'\n') {
            Some(at) => {
                reader.consume(at + 1);
                return Ok(());
            }
            None => {
                let length = available.len();
                reader.consume(length);
            }
        }
    }
}

/// The type of what is no text; `None` for text.
fn media_type(start: &[u8]) -> Option<&'static str> {
    const MAGIC: &[(&[u8], &str)] = &[
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff", "image/jpeg"),
        (b"GIF87a", "image/gif"),
        (b"GIF89a", "image/gif"),
        (b"%PDF-", "application/pdf"),
        (b"PK\x03\x04", "application/zip"),
        (b"\x1f\x8b", "application/gzip"),
        (b"\x28\xb5\x2f\xfd", "application/zstd"),
        (b"\x7fELF", "application/x-elf"),
        (b"SQLite format 3\0", "application/vnd.sqlite3"),
    ];
    if start.starts_with(b"RIFF") && start.get(8..12) == Some(b"WEBP") {
        return Some("image/webp");
    }
    MAGIC
        .iter()
        .find(|(magic, _)| start.starts_with(magic))
        .map(|(_, media_type)| *media_type)
        .or_else(|| start.contains(&0).then_some("application/octet-stream"))
}

/// Whether a file can be shown as text, by its first bytes.
pub fn is_text(start: &[u8]) -> bool {
    media_type(&start[..start.len().min(SNIFFED)]).is_none()
}

/// The canonical path as text.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn read_bytes(bytes: &[u8], first_line: u64, lines: u64, max_bytes: u64) -> ReadResponse {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().canonicalize().unwrap();
        let path = project.join("file");
        std::fs::write(&path, bytes).unwrap();
        let paths = Paths {
            threads: None,
            project,
            home: "/".into(),
            private: Vec::new(),
            output: "/nowhere".into(),
        };
        let path = path.to_str().unwrap().to_owned();
        read(
            &paths,
            &ReadRequest {
                path,
                first_line,
                lines,
                max_bytes,
            },
        )
        .unwrap()
    }

    #[test]
    fn text_is_read_by_lines_and_bytes() {
        type Row = (&'static [u8], u64, u64, u64, &'static str, u64, u64, bool);
        let table: &[Row] = &[
            (b"", 0, 0, 0, "", 0, 0, false),
            (b"a\nb\nc\n", 0, 0, 0, "a\nb\nc\n", 3, 3, false),
            (b"a\nb\nc", 2, 0, 0, "b\nc", 2, 3, false),
            (b"a\nb\nc\n", 2, 1, 0, "b\n", 1, 3, true),
            (b"aa\nbb\ncc\n", 1, 0, 7, "aa\nbb\n", 2, 3, true),
            (b"aaaaaaaaaa\nb\n", 1, 0, 4, "aaaa", 1, 2, true),
            (b"a\nb\n", 9, 0, 0, "", 0, 2, false),
            (b"\xff\xfea\n", 1, 0, 0, "\u{fffd}\u{fffd}a\n", 1, 1, false),
        ];
        for (bytes, first, lines, max, text, taken, total, cut) in table {
            let answer = read_bytes(bytes, *first, *lines, *max);
            let Some(Content::Text(found)) = answer.content else {
                panic!("{bytes:?} is no text")
            };
            assert_eq!(found.text, *text, "{bytes:?}");
            assert_eq!(
                (found.lines, found.total_lines, found.cut),
                (*taken, *total, *cut),
                "{bytes:?}"
            );
            assert_eq!(answer.sha256, hex::encode(Sha256::digest(bytes)));
        }
    }

    #[test]
    fn pictures_are_given_and_other_binary_files_are_named() {
        let png = [b"\x89PNG\r\n\x1a\n".as_slice(), &[0; 100]].concat();
        let Some(Content::Image(image)) = read_bytes(&png, 0, 0, 0).content else {
            panic!("no image")
        };
        assert_eq!(
            (image.media_type.as_str(), image.data.len()),
            ("image/png", png.len())
        );
        for (bytes, media_type) in [
            (b"\x7fELF\x02".as_slice(), "application/x-elf"),
            (b"a\0b", "application/octet-stream"),
        ] {
            let Some(Content::Binary(binary)) = read_bytes(bytes, 0, 0, 0).content else {
                panic!("not binary")
            };
            assert_eq!(binary.media_type, media_type);
        }
        let large = [png, vec![0; 4 << 20]].concat();
        assert!(matches!(
            read_bytes(&large, 0, 0, 0).content,
            Some(Content::Binary(_))
        ));
    }
}
