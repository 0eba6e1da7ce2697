//! `multipart/form-data` (RFC 7578), as clients send files with a message.

use axum::body::Bytes;
use serde_json::Value;

use super::answer::Refusal;

type Form = (Value, Vec<(String, Bytes)>);

/// The JSON of the field `payload_json`, and the files.
pub(super) fn read(body: &Bytes, boundary: &str) -> Result<Form, Refusal> {
    let (mut value, mut files) = (Value::Null, Vec::new());
    let delimiter = format!("--{boundary}");
    let mut at = find(body, delimiter.as_bytes(), 0).ok_or_else(Refusal::not_json)?;
    loop {
        at += delimiter.len();
        if body[at..].starts_with(b"--") {
            return Ok((value, files));
        }
        let head = at + 2; // behind the line break
        let gap = find(body, b"\r\n\r\n", head).ok_or_else(Refusal::not_json)?;
        let content = gap + 4;
        let next = find(body, format!("\r\n{delimiter}").as_bytes(), content)
            .ok_or_else(Refusal::not_json)?;
        let headers = String::from_utf8_lossy(&body[head..gap]);
        let data = body.slice(content..next);
        match (parameter(&headers, "name"), parameter(&headers, "filename")) {
            (_, Some(file)) => files.push((file, data)),
            (Some(name), None) if name == "payload_json" => {
                value = serde_json::from_slice(&data).map_err(|_| Refusal::not_json())?;
            }
            _ => {}
        }
        at = next + 2;
    }
}

fn find(body: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let rest = body.get(from..)?;
    rest.windows(wanted.len())
        .position(|window| window == wanted)
        .map(|at| at + from)
}

/// `name="value"` of the part's headers.
fn parameter(headers: &str, name: &str) -> Option<String> {
    let mut rest = headers;
    loop {
        let at = rest.find(&format!("{name}=\""))?;
        let value = &rest[at + name.len() + 2..];
        let own = rest[..at].ends_with([' ', ';']);
        if own {
            return Some(value.split('"').next().unwrap_or("").to_owned());
        }
        rest = value;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_form_gives_its_json_and_its_files() {
        let body = "--xyz\r\nContent-Disposition: form-data; name=\"payload_json\"\r\n\r\n{\"content\":\"a\"}\r\n\
                    --xyz\r\nContent-Disposition: form-data; name=\"files[0]\"; filename=\"a.md\"\r\n\
                    Content-Type: text/markdown\r\n\r\n# a\r\n--not\r\n--xyz--\r\n";
        let (value, files) = read(&Bytes::from(body), "xyz").unwrap();
        assert_eq!(value["content"], "a");
        assert_eq!(files, [("a.md".to_owned(), Bytes::from("# a\r\n--not"))]);
        assert!(read(&Bytes::from("nothing"), "xyz").is_err());
    }
}
