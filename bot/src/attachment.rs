//! Files of a message, fetched at once since their addresses expire.

use mooring_wire::harness::{Part, part};

use crate::api::Api;
use crate::payload::Attachment;

/// Bytes of a text file that is given to the model as it is.
const TEXT: u64 = 64 << 10;
/// Image types that models take.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// What became of the files.
#[derive(Debug, Default)]
pub struct Fetched {
    /// For the model.
    pub parts: Vec<Part>,
    /// What people are told of the others.
    pub left_out: Vec<String>,
}

/// Fetches at most `count` files of at most `bytes` each. One that fails does not
/// stop the message.
pub async fn fetch(api: &Api, files: &[Attachment], bytes: u64, count: usize) -> Fetched {
    let mut fetched = Fetched::default();
    for (n, file) in files.iter().enumerate() {
        let name = crate::render::one_line(&file.filename, 80).replace('`', "'");
        if n >= count {
            fetched.left_out.push(format!(
                "`{name}`: at most {count} files of one message are taken"
            ));
            continue;
        }
        if file.size > bytes {
            fetched
                .left_out
                .push(format!("`{name}`: it is larger than {bytes} bytes"));
            continue;
        }
        let media = file
            .content_type
            .as_deref()
            .unwrap_or("")
            .split(';')
            .next()
            .unwrap_or("");
        let is_image = IMAGES.contains(&media);
        if !is_image && file.size > TEXT {
            fetched.left_out.push(format!(
                "`{name}`: images, and texts of at most {TEXT} bytes, are taken"
            ));
            continue;
        }
        match api.download(&file.url, bytes).await {
            Err(why) => fetched
                .left_out
                .push(format!("`{name}`: could not be fetched: {why}")),
            Ok(data) if is_image => {
                let image = part::Image {
                    media_type: media.to_owned(),
                    data,
                };
                fetched.parts.push(Part {
                    part: Some(part::Part::Image(image)),
                });
            }
            Ok(data) => match std::str::from_utf8(&data) {
                Ok(text) => {
                    let text = format!(
                        "File {name}:\n{}",
                        crate::render::code_block(text, TEXT as usize)
                    );
                    fetched.parts.push(Part {
                        part: Some(part::Part::Text(text)),
                    });
                }
                Err(_) => fetched
                    .left_out
                    .push(format!("`{name}`: it is neither an image nor text")),
            },
        }
    }
    fetched
}
