//! Files of a message: fetched at once, since their addresses expire, and put into the
//! sandbox; images and short texts are given to the model as well.

use std::time::Duration;

use bytes::Bytes;
use mooring_wire::harness::{Author, Part, part, upload_request::Header};

use crate::api::Api;
use crate::harness::HarnessError;
use crate::id::Id;
use crate::payload::Attachment;
use crate::render::{code_block, one_line};
use crate::workspace::Place;

/// Bytes of a text file that is given to the model as it is.
const TEXT: usize = 64 << 10;
/// Image types that models take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Tries at putting a file into a sandbox that is away.
const TRIES: u32 = 8;

/// What became of the files.
#[derive(Debug, Default)]
pub struct Fetched {
    /// For the model.
    pub parts: Vec<Part>,
    /// What people are told of the others.
    pub left_out: Vec<String>,
}

/// Takes the files of a message, within the Workspace's limits. One that fails does
/// not stop the message.
pub async fn fetch(
    api: &Api,
    place: &Place,
    author: &Author,
    message: Id,
    files: &[Attachment],
) -> Fetched {
    let mut fetched = Fetched::default();
    for (n, file) in files.iter().enumerate() {
        let name = one_line(&file.filename, 80).replace('`', "'");
        let mut left_out = |why: String| fetched.left_out.push(format!("`{name}`: {why}"));
        if n >= place.wanted.attachment_count {
            let count = place.wanted.attachment_count;
            left_out(format!("at most {count} files of one message are taken"));
            continue;
        }
        if file.size > place.wanted.attachment_bytes {
            left_out(format!(
                "it is larger than {} bytes",
                place.wanted.attachment_bytes
            ));
            continue;
        }
        let data = match api.download(&file.url, place.wanted.attachment_bytes).await {
            Ok(data) => data,
            Err(why) => {
                left_out(format!("could not be fetched: {why}"));
                continue;
            }
        };
        let media = file.content_type.as_deref().unwrap_or("");
        let media = media.split(';').next().unwrap_or("");
        let shown = if IMAGES.contains(&media) {
            let image = part::Image {
                media_type: media.to_owned(),
                data: data.clone(),
            };
            Some(Part {
                part: Some(part::Part::Image(image)),
            })
        } else {
            let short = (data.len() <= TEXT).then(|| std::str::from_utf8(&data).ok());
            short
                .flatten()
                .map(|content| Part::text(format!("File {name}:\n{}", code_block(content, TEXT))))
        };
        // Two of a name do not lie in one place.
        let twice = files[..n].iter().any(|one| one.filename == file.filename);
        let header = Header {
            message_id: message.to_string(),
            name: match twice {
                true => format!("{}-{}", n + 1, file.filename),
                false => file.filename.clone(),
            },
            bytes: data.len() as u64,
            author: Some(author.clone()),
        };
        match put(place, header, data).await {
            Ok(path) => {
                let size = file.size;
                let told = format!("Attached file {name} ({size} bytes) is in the sandbox: {path}");
                fetched.parts.push(Part::text(told));
            }
            // What the model is given is not missing.
            Err(_) if shown.is_some() => {}
            Err(error) => left_out(format!(
                "it could not be put into the sandbox: {}",
                one_line(&error.to_string(), 200)
            )),
        }
        fetched.parts.extend(shown);
    }
    fetched
}

async fn put(place: &Place, header: Header, data: Bytes) -> Result<String, HarnessError> {
    let mut pause = Duration::from_millis(200);
    let mut tries = 0;
    loop {
        match place.harness.upload(header.clone(), data.clone()).await {
            Ok(answer) => return Ok(answer.path),
            Err(HarnessError::Away(_)) if tries < TRIES && !place.is_gone() => {
                tries += 1;
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(10));
            }
            Err(error) => return Err(error),
        }
    }
}
