//! pkt-lines (gitprotocol-common): lines with their length in front, and the side band
//! that carries them beside what people read.

use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// A flush packet.
pub const FLUSH: &[u8] = b"0000";
/// Most bytes of a line, its length included.
const MOST: usize = 65_520;
/// Most bytes of one side-band packet's content.
const BAND: usize = MOST - 5;

/// One packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pkt {
    /// A line.
    Data(Vec<u8>),
    /// The end of a section.
    Flush,
    /// A delimiter or a response's end (protocol v2).
    Special,
}

/// Which band of the side band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Band {
    /// The answer itself.
    Data = 1,
    /// What people read while it goes on.
    Progress = 2,
    /// Why it ended.
    Error = 3,
}

/// A line.
pub fn line(data: &[u8]) -> Bytes {
    let mut out = BytesMut::with_capacity(data.len() + 4);
    out.put_slice(format!("{:04x}", data.len() + 4).as_bytes());
    out.put_slice(data);
    out.freeze()
}

/// Content on a band, in as many packets as it takes; a packet without content keeps
/// a connection open.
pub fn band(band: Band, data: &[u8]) -> Bytes {
    let mut out = BytesMut::new();
    let mut put = |chunk: &[u8]| {
        out.put_slice(format!("{:04x}", chunk.len() + 5).as_bytes());
        out.put_u8(band as u8);
        out.put_slice(chunk);
    };
    match data.is_empty() {
        true => put(data),
        false => data.chunks(BAND).for_each(put),
    }
    out.freeze()
}

/// Reads one packet; `None` at the end of the stream.
///
/// # Errors
/// Of the stream, and where it ends within a packet or has no packet.
pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<Pkt>> {
    let mut length = [0_u8; 4];
    let mut have = 0;
    while have < 4 {
        match from.read(&mut length[have..]).await? {
            0 if have == 0 => return Ok(None),
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => have += count,
        }
    }
    let wrong = || std::io::Error::new(std::io::ErrorKind::InvalidData, "it is no pkt-line");
    let text = std::str::from_utf8(&length).map_err(|_| wrong())?;
    if !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(wrong());
    }
    let length = usize::from_str_radix(text, 16).map_err(|_| wrong())?;
    match length {
        0 => Ok(Some(Pkt::Flush)),
        1 | 2 => Ok(Some(Pkt::Special)),
        3 => Err(wrong()),
        length if length > MOST => Err(wrong()),
        length => {
            let mut data = vec![0; length - 4];
            from.read_exact(&mut data).await?;
            Ok(Some(Pkt::Data(data)))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn packets_are_read_as_they_are_written() {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&line(b"one\n"));
        bytes.extend_from_slice(FLUSH);
        bytes.extend_from_slice(b"0001");
        bytes.extend_from_slice(&band(Band::Progress, &[b'x'; BAND + 1]));
        let mut from = bytes.as_slice();
        assert_eq!(
            read(&mut from).await.unwrap(),
            Some(Pkt::Data(b"one\n".to_vec()))
        );
        assert_eq!(read(&mut from).await.unwrap(), Some(Pkt::Flush));
        assert_eq!(read(&mut from).await.unwrap(), Some(Pkt::Special));
        for expected in [BAND + 1, 2] {
            let Some(Pkt::Data(data)) = read(&mut from).await.unwrap() else {
                panic!("a packet is expected");
            };
            assert_eq!((data[0], data.len()), (2, expected));
        }
        assert_eq!(read(&mut from).await.unwrap(), None);
        assert_eq!(band(Band::Data, b"").as_ref(), b"0005\x01");
    }

    #[tokio::test]
    async fn what_is_no_packet_is_refused() {
        for bytes in [&b"0003"[..], b"+004", b"fff1", b"zzzz", b"00", b"0009ab"] {
            assert!(read(&mut &bytes[..]).await.is_err(), "{bytes:?}");
        }
    }
}
