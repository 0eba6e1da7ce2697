//! The head of an HTTP/1.1 request, read strictly: what two readers could
//! understand differently is refused.

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::{Bytes, BytesMut};
use mooring_wire::tunnel::Connection;

/// Bytes that a head may have.
const MOST_BYTES: usize = 16 << 10;
/// Fields that it may have.
const MOST_FIELDS: usize = 100;

/// A request's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// `GET`, `CONNECT`, …
    pub method: String,
    /// As it was sent.
    pub target: Target,
    fields: Vec<(String, String)>,
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// `CONNECT host:port`.
    Connect {
        /// As it was sent.
        host: String,
        /// From 1.
        port: u16,
    },
    /// `GET http://host/…`: plain HTTP by a proxy.
    Absolute(String),
    /// `GET /…`: for this server itself.
    Origin(String),
}

/// What is wrong with a head.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHead {
    /// The other side sent nothing, or stopped in the middle.
    #[error("the request ends in the middle")]
    Cut,
    /// Too large.
    #[error("the request's head has more than {} KiB or {MOST_FIELDS} fields", MOST_BYTES >> 10)]
    TooLarge,
    /// Not HTTP/1.1 as one reads it.
    #[error("{0}")]
    Wrong(&'static str),
}

/// Reads a head: it, its length in bytes, and all that was read.
pub async fn read(connection: &Connection) -> Result<(Head, usize, Bytes), BadHead> {
    let mut read = BytesMut::new();
    loop {
        let piece = connection.piece().await.map_err(|_| BadHead::Cut)?;
        let piece = piece.ok_or(BadHead::Cut)?;
        let from = read.len().saturating_sub(3);
        read.extend_from_slice(&piece);
        if let Some(at) = find(&read[from..]) {
            let end = from + at + 4;
            if end > MOST_BYTES {
                return Err(BadHead::TooLarge);
            }
            let head = parse(&read[..end - 2])?;
            return Ok((head, end, read.freeze()));
        }
        if read.len() > MOST_BYTES {
            return Err(BadHead::TooLarge);
        }
        // Nothing that begins so can become a request.
        if !read[0].is_ascii_uppercase() {
            return Err(BadHead::Wrong("this is no HTTP request"));
        }
    }
}

fn find(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|window| window == b"\r\n\r\n")
}

/// All lines of a head, each with its line end.
fn parse(bytes: &[u8]) -> Result<Head, BadHead> {
    let wrong = BadHead::Wrong;
    let text = std::str::from_utf8(bytes).map_err(|_| wrong("the head is not ASCII"))?;
    if !text.is_ascii() {
        return Err(wrong("the head is not ASCII"));
    }
    let mut lines = text.strip_suffix("\r\n").unwrap_or(text).split("\r\n");
    let request = lines.next().unwrap_or_default();
    let control = |line: &str| line.bytes().any(|b| b < b' ' && b != b'\t' || b == 0x7f);
    if control(request) {
        return Err(wrong("the request line holds control characters"));
    }
    let mut words = request.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong("the request line is not METHOD TARGET VERSION"));
    };
    if !is_token(method) || !matches!(version, "HTTP/1.1" | "HTTP/1.0") {
        return Err(wrong("only HTTP/1.1 requests are taken"));
    }
    let mut fields = Vec::new();
    for line in lines {
        let (name, value) = line
            .split_once(':')
            .ok_or(wrong("a field has no colon, or is folded"))?;
        if !is_token(name) {
            return Err(wrong("a field's name is not a plain word"));
        }
        if control(value) {
            return Err(wrong("a field holds control characters"));
        }
        if fields.len() == MOST_FIELDS {
            return Err(BadHead::TooLarge);
        }
        fields.push((name.to_ascii_lowercase(), value.trim().to_owned()));
    }
    let head = Head {
        method: method.to_owned(),
        target: parse_target(method, target)?,
        fields,
    };
    head.check()?;
    Ok(head)
}

fn is_token(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn parse_target(method: &str, target: &str) -> Result<Target, BadHead> {
    if method == "CONNECT" {
        let wrong = BadHead::Wrong("CONNECT needs host:port");
        let (host, port) = target.rsplit_once(':').ok_or(wrong.clone())?;
        let plain = port.len() <= 5 && port.bytes().all(|b| b.is_ascii_digit());
        let port = port.parse().ok().filter(|port| *port > 0 && plain);
        return Ok(Target::Connect {
            host: host.to_owned(),
            port: port.ok_or(wrong)?,
        });
    }
    match target {
        target if target.starts_with('/') => Ok(Target::Origin(target.to_owned())),
        target if target.contains("://") => Ok(Target::Absolute(target.to_owned())),
        _ => Err(BadHead::Wrong(
            "the request's target is no path and no address",
        )),
    }
}

impl Head {
    /// The one value of a field; the empty text where it is absent.
    pub fn field(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(field, _)| field == name);
        found.map_or("", |(_, value)| value)
    }

    /// User name and secret of a Basic credential in this field.
    pub fn basic(&self, name: &str) -> Option<(String, String)> {
        let (scheme, value) = self.field(name).split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("basic") {
            return None;
        }
        let decoded = STANDARD.decode(value.trim()).ok()?;
        let (user, secret) = std::str::from_utf8(&decoded).ok()?.split_once(':')?;
        Some((user.to_owned(), secret.to_owned()))
    }

    /// Whatever two readers could take for different requests.
    fn check(&self) -> Result<(), BadHead> {
        let count = |name: &str| self.fields.iter().filter(|(it, _)| it == name).count();
        for name in [
            "host",
            "content-length",
            "transfer-encoding",
            "authorization",
            "proxy-authorization",
        ] {
            if count(name) > 1 {
                return Err(BadHead::Wrong(
                    "a field that may be there once is there twice",
                ));
            }
        }
        if count("content-length") + count("transfer-encoding") > 1 {
            return Err(BadHead::Wrong(
                "Content-Length and Transfer-Encoding together can be read in two ways",
            ));
        }
        if let Target::Connect { host, port } = &self.target {
            let named = self.field("host");
            let (full, bare) = (format!("{host}:{port}"), host.as_str());
            if !named.is_empty()
                && !named.eq_ignore_ascii_case(&full)
                && !named.eq_ignore_ascii_case(bare)
            {
                return Err(BadHead::Wrong(
                    "the Host field names another host than CONNECT",
                ));
            }
            if !matches!(self.field("content-length"), "" | "0") || count("transfer-encoding") > 0 {
                return Err(BadHead::Wrong("CONNECT has no body"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parsed(lines: &str) -> Result<Head, BadHead> {
        parse(lines.replace('\n', "\r\n").as_bytes())
    }

    #[test]
    fn a_target_is_one_of_three_kinds() {
        for (line, target) in [
            (
                "CONNECT a.example:443 HTTP/1.1\n",
                Target::Connect {
                    host: "a.example".into(),
                    port: 443,
                },
            ),
            (
                "GET http://a.example/x HTTP/1.1\n",
                Target::Absolute("http://a.example/x".into()),
            ),
            ("GET /git/x HTTP/1.0\n", Target::Origin("/git/x".into())),
        ] {
            assert_eq!(parsed(line).unwrap().target, target, "{line}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let long = format!("GET / HTTP/1.1\n{}", "a: b\n".repeat(MOST_FIELDS + 1));
        for text in [
            "GET / HTTP/2.0\n",
            "GET /\n",
            "GET  / HTTP/1.1\n",
            "GET / HTTP/1.1 \n",
            " GET / HTTP/1.1\n",
            "GET x HTTP/1.1\n",
            "G@T / HTTP/1.1\n",
            "CONNECT a.example HTTP/1.1\n",
            "CONNECT a.example:0 HTTP/1.1\n",
            "CONNECT a.example:65536 HTTP/1.1\n",
            "CONNECT a.example:+443 HTTP/1.1\n",
            "CONNECT a.example:000443 HTTP/1.1\n",
            "CONNECT a.example:443 HTTP/1.1\nHost: b.example:443\n",
            "CONNECT a.example:443 HTTP/1.1\nHost: a.example:80\n",
            "CONNECT a.example:443 HTTP/1.1\nHost: a.example\nhost: a.example\n",
            "CONNECT a.example:443 HTTP/1.1\nContent-Length: 5\n",
            "CONNECT a.example:443 HTTP/1.1\nTransfer-Encoding: chunked\n",
            "POST / HTTP/1.1\nContent-Length: 5\nTransfer-Encoding: chunked\n",
            "POST / HTTP/1.1\nContent-Length: 5\nContent-Length: 6\n",
            "GET / HTTP/1.1\na b: c\n",
            "GET / HTTP/1.1\na : c\n",
            "GET / HTTP/1.1\na: b\n folded\n",
            "GET / HTTP/1.1\n: b\n",
            "GET / HTTP/1.1\na: b\u{0}c\n",
            "GET / HTTP/1.1\na: b\rc: d\n",
            "GET /\u{e9} HTTP/1.1\n",
            long.as_str(),
        ] {
            assert!(parsed(text).is_err(), "{text:?}");
        }
        // A line feed alone ends no line.
        assert!(parse(b"GET / HTTP/1.1\r\na: b\nc: d\r\n").is_err());
    }

    #[test]
    fn a_credential_is_read_whole() {
        let head = |value: &str| {
            parsed(&format!(
                "CONNECT a.example:443 HTTP/1.1\nProxy-Authorization: {value}\n"
            ))
            .unwrap()
            .basic("proxy-authorization")
        };
        let pair = ("user".to_owned(), "se:cret".to_owned());
        assert_eq!(head("Basic dXNlcjpzZTpjcmV0"), Some(pair.clone()));
        assert_eq!(head("basic  dXNlcjpzZTpjcmV0 "), Some(pair));
        for value in [
            "",
            "Basic",
            "Bearer dXNlcjpzZTpjcmV0",
            "Basic !",
            "Basic dXNlcg==",
        ] {
            assert_eq!(head(value), None, "{value}");
        }
    }
}
