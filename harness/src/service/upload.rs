//! Files of messages, put into the sandbox beside the project.

use mooring_durable::id::Hash;
use mooring_wire::{
    code::{Code, status},
    harness::{self as wire, upload_request::Part},
    sandbox::{Execution, ReleaseRequest, ResolveRequest, WriteRequest, file_outcome::Outcome},
};
use tonic::{Request, Status, Streaming};

use super::Service;
use crate::members::{Act, may};

/// Bytes that the sandbox takes at once, less what surrounds them.
const MAX_FILE: u64 = 24 << 20;
/// Characters of a name.
const NAME: usize = 100;

fn invalid(text: impl Into<String>) -> Status {
    status(Code::Invalid, text)
}

impl Service {
    pub(super) async fn upload(
        &self,
        request: Request<Streaming<wire::UploadRequest>>,
    ) -> Result<wire::UploadResponse, Status> {
        // Who acts stands in the header; who calls, in the connection.
        let (metadata, extensions, mut parts) = request.into_parts();
        let first = parts.message().await?.and_then(|first| first.part);
        let Some(Part::Header(header)) = first else {
            return Err(invalid("an upload begins with its header"));
        };
        let caller = Request::from_parts(metadata, extensions, ());
        let actor = self.actor(&caller, header.author.as_ref());
        may(&actor, Act::Talk).map_err(|text| status(Code::Forbidden, text))?;
        let discord = self.source.current().spec.discord.clone();
        let limit = discord
            .and_then(|discord| discord.attachments.bytes())
            .unwrap_or(MAX_FILE)
            .min(MAX_FILE);
        let too_large = || invalid(format!("it is larger than {limit} bytes"));
        if header.bytes > limit {
            return Err(too_large());
        }
        if header.message_id.is_empty() || !header.message_id.bytes().all(|b| b.is_ascii_digit()) {
            return Err(invalid("message_id is no Discord id"));
        }
        let mut content = Vec::new();
        while let Some(part) = parts.message().await? {
            let Some(Part::Chunk(chunk)) = part.part else {
                return Err(invalid("after the header come bytes"));
            };
            if content.len() as u64 + chunk.len() as u64 > limit {
                return Err(too_large());
            }
            content.extend_from_slice(&chunk);
        }
        if content.len() as u64 != header.bytes {
            return Err(invalid(format!(
                "{} bytes came of {}",
                content.len(),
                header.bytes
            )));
        }
        let name = harmless(&header.name);
        self.put(&header.message_id, &name, content).await
    }

    /// The same file once more, after an answer that was lost, is the same file.
    async fn put(
        &self,
        message: &str,
        name: &str,
        content: Vec<u8>,
    ) -> Result<wire::UploadResponse, Status> {
        let away = |text: String| status(Code::Restarting, format!("the sandbox: {text}"));
        let mut sandbox = self.link.client().map_err(away)?;
        let path = format!("~/attachments/{message}/{name}");
        let resolved = sandbox
            .resolve(ResolveRequest {
                path,
                ..ResolveRequest::default()
            })
            .await
            .map_err(|error| away(error.message().to_owned()))?
            .into_inner();
        let args_hash = Hash::of(&content).0;
        let id = format!("upload-{message}-{name}");
        let request = WriteRequest {
            execution: Some(Execution {
                id: id.clone(),
                args_hash,
            }),
            path: resolved.canonical.clone(),
            content: content.into(),
        };
        let outcome = sandbox
            .write(request)
            .await
            .map_err(|error| away(error.message().to_owned()))?
            .into_inner()
            .outcome;
        // Nobody asks for this execution again.
        let release = ReleaseRequest {
            execution_ids: vec![id],
        };
        let _ = sandbox.release(release).await;
        match outcome {
            Some(Outcome::Written(_)) => Ok(wire::UploadResponse {
                path: resolved.canonical,
            }),
            Some(Outcome::Refused(why)) => Err(invalid(why)),
            None => Err(away("it gave no outcome".into())),
        }
    }
}

/// A name that is one file of its folder and reads as it is, whatever was attached.
fn harmless(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| match c {
            '.' | '-' | '_' => c,
            c if c.is_alphanumeric() => c,
            _ => '_',
        })
        .collect();
    // The end holds what kind of file it is.
    let from = plain.chars().count().saturating_sub(NAME);
    let plain: String = plain.chars().skip(from).collect();
    match plain.trim_start_matches(['.', '-']) {
        "" => "file".into(),
        name => name.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_its_folder_hide_or_read_as_an_option() {
        for (name, expected) in [
            ("notes.txt", "notes.txt"),
            ("../../etc/passwd", "_.._etc_passwd"),
            ("..", "file"),
            ("", "file"),
            (".bashrc", "bashrc"),
            ("-rf", "rf"),
            ("a b\n@everyone.md", "a_b__everyone.md"),
            ("größe.png", "größe.png"),
        ] {
            assert_eq!(harmless(name), expected, "{name:?}");
        }
        let long = format!("{}.tar.gz", "x".repeat(500));
        assert!(harmless(&long).ends_with(".tar.gz") && harmless(&long).len() == NAME);
    }
}
