//! What a server answered, as the model reads it: bounded, whatever it was.

use mooring_durable::{
    message::Part,
    tool::ToolResult,
    window::{self, Retain, Window},
};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};
use serde_json::{Value, json};

/// Images that a result may have.
const IMAGES: usize = 4;
/// Bytes of an image, in base64.
const IMAGE_BYTES: usize = 5 << 20;
/// What models see.
const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// A result, and its whole text where the model is shown less.
pub struct Answer {
    /// As the model is shown it.
    pub result: ToolResult,
    /// All of the text.
    pub whole: Option<String>,
}

/// A call's result.
pub fn result(answer: CallToolResult) -> Answer {
    let mut text = String::new();
    let mut images = Vec::new();
    let mut blocks = 0;
    for block in answer.content {
        blocks += 1;
        match block {
            ContentBlock::Text(said) => line(&mut text, &said.text),
            ContentBlock::Image(image) => {
                let media_type = image.mime_type;
                if IMAGE_TYPES.contains(&media_type.as_str())
                    && image.data.len() <= IMAGE_BYTES
                    && images.len() < IMAGES
                {
                    images.push(Part::Image {
                        media_type,
                        data: image.data,
                    });
                } else {
                    unshown(&mut text, "image", &media_type, image.data.len());
                }
            }
            ContentBlock::Audio(audio) => {
                unshown(&mut text, "audio", &audio.mime_type, audio.data.len());
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents {
                    uri, text: said, ..
                } => {
                    line(&mut text, &format!("[{uri}]"));
                    line(&mut text, &said);
                }
                ResourceContents::BlobResourceContents {
                    uri,
                    mime_type,
                    blob,
                    ..
                } => {
                    let kind = mime_type.unwrap_or_default();
                    unshown(&mut text, &uri, &kind, blob.len());
                }
                _ => line(&mut text, "[a resource of an unknown form]"),
            },
            ContentBlock::ResourceLink(link) => {
                line(&mut text, &format!("[{}: {}]", link.name, link.uri));
            }
            _ => line(&mut text, "[content of an unknown form]"),
        }
    }
    if let Some(structured) = answer.structured_content.filter(|_| blocks == 0) {
        let json = serde_json::to_string_pretty(&structured).unwrap_or_default();
        line(&mut text, &json);
    }
    let mut window = Window::new(Retain::Head);
    window.push(&text);
    let mut shown = window.render();
    let is_cut = text.len() > window::MAX_BYTES || text.lines().count() > window::MAX_LINES;
    if shown.trim().is_empty() && images.is_empty() {
        shown = "(nothing)".into();
    }
    let mut content = Vec::new();
    if !shown.trim().is_empty() {
        content.push(Part::text(shown.trim_end()));
    }
    content.extend(images);
    Answer {
        result: ToolResult {
            content,
            is_error: answer.is_error.unwrap_or(false),
            terminate: false,
            data: Value::Null,
            documents: Vec::new(),
        },
        whole: is_cut.then_some(text),
    }
}

/// A result that says why there is none.
pub fn failed(text: String) -> ToolResult {
    let mut window = Window::new(Retain::Head);
    window.push(&text);
    ToolResult {
        content: vec![Part::text(window.render().trim_end())],
        is_error: true,
        terminate: false,
        data: json!({}),
        documents: Vec::new(),
    }
}

fn line(text: &mut String, said: &str) {
    text.push_str(said);
    if !said.ends_with('\n') {
        text.push('\n');
    }
}

fn unshown(text: &mut String, what: &str, kind: &str, base64: usize) {
    let bytes = base64 / 4 * 3;
    line(text, &format!("[{what} {kind}, {bytes} bytes, not shown]"));
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn of(json: Value) -> ToolResult {
        result(serde_json::from_value(json).unwrap()).result
    }

    fn text(result: &ToolResult) -> String {
        crate::books::plain(&result.content)
    }

    #[test]
    fn every_kind_of_content_is_told() {
        let told = of(json!({"isError": true, "content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "image", "data": "aGk=", "mimeType": "image/tiff"},
            {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "file:///a.bin", "blob": "aGkhaGkh", "mimeType": "application/x"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]}));
        assert!(told.is_error);
        assert_eq!(
            text(&told),
            "one\n[image image/tiff, 3 bytes, not shown]\n[audio audio/wav, 3 bytes, not shown]\n\
             [file:///a.txt]\ninside\n[file:///a.bin application/x, 6 bytes, not shown]\n[b: file:///b]"
        );
        assert!(
            matches!(&told.content[1], Part::Image { media_type, .. } if media_type == "image/png")
        );
    }

    #[test]
    fn structured_content_stands_where_there_is_nothing_else() {
        assert_eq!(
            text(&of(json!({"content": [], "structuredContent": {"n": 1}}))),
            "{\n  \"n\": 1\n}"
        );
        let both = of(
            json!({"content": [{"type": "text", "text": "n is 1"}], "structuredContent": {"n": 1}}),
        );
        assert_eq!(text(&both), "n is 1");
        assert_eq!(text(&of(json!({"content": []}))), "(nothing)");
    }

    #[test]
    fn a_flood_is_cut_and_says_so() {
        let told = of(json!({"content": [{"type": "text", "text": "word\n".repeat(1_000_000)}]}));
        assert!(text(&told).len() < 60 * 1024, "{}", text(&told).len());
        assert!(
            text(&told).contains("bytes not shown"),
            "{}",
            &text(&told)[40_000..]
        );
        for (lines, is_cut) in [(2_000, false), (2_001, true), (1_000_000, true)] {
            let content = json!({"content": [{"type": "text", "text": "word\n".repeat(lines)}]});
            let told = result(serde_json::from_value(content).unwrap());
            let whole = is_cut.then(|| "word\n".repeat(lines));
            assert_eq!(told.whole, whole, "{lines}");
        }
        let images = vec![json!({"type": "image", "data": "aGk=", "mimeType": "image/png"}); 50];
        let told = of(json!({ "content": images }));
        let shown = told
            .content
            .iter()
            .filter(|part| matches!(part, Part::Image { .. }));
        assert_eq!(shown.count(), IMAGES);
        assert!(text(&failed("x".repeat(1_000_000))).len() < 60 * 1024);
    }
}
