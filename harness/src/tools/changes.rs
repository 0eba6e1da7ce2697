//! What a conversation changed: of each file that its calls wrote, how it was before.

use std::collections::BTreeMap;

use mooring_durable::{
    document::{DocumentChange, DocumentKind, ForkPolicy, History, Op, Scope},
    id::ConversationId,
    tool::{Call, ToolFailure},
};
use mooring_wire::sandbox::{ReadRequest, read_response::Content};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use similar::TextDiff;
use tonic::Code;

use super::Hands;

/// Files by canonical path, as they were before the first call that wrote them.
pub static CHANGES: DocumentKind = DocumentKind::new(
    "mooring.changes",
    1,
    History::Latest,
    ForkPolicy::Current,
    |_, value| Ok(value),
);

/// Bytes of a file that are kept; of a longer one its hash is.
const KEPT: u64 = 256 << 10;

/// A file as it is or was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum File {
    /// There is none.
    Absent,
    /// All of its text.
    Text(String),
    /// It is no text, or too long: its SHA-256.
    Other(String),
}

impl Hands {
    /// A file as it is now.
    pub(crate) async fn file(&self, path: &str) -> Result<File, ToolFailure> {
        let request = ReadRequest {
            path: path.to_owned(),
            max_bytes: KEPT,
            ..ReadRequest::default()
        };
        let response = match self.client()?.read(request).await {
            Ok(response) => response.into_inner(),
            Err(status) if status.code() == Code::NotFound => return Ok(File::Absent),
            Err(status) => return Err(self.failure(&status)),
        };
        Ok(match response.content {
            Some(Content::Text(text)) if !text.cut && text.text.len() as u64 <= KEPT => {
                File::Text(text.text)
            }
            _ => File::Other(response.sha256),
        })
    }

    /// What an intent to write remembers: also how the file is before, where no call of
    /// the conversation has written it.
    pub(super) async fn bind_write(&self, call: &Call) -> Result<Value, ToolFailure> {
        let mut binding = self.bind(call).await?;
        let Some(path) = binding["path"].as_str().map(str::to_owned) else {
            return Ok(binding);
        };
        if !self.known(call.conversation).await?.contains_key(&path) {
            binding["baseline"] = json!(self.file(&path).await?);
        }
        Ok(binding)
    }

    /// The baselines of a conversation.
    pub(crate) async fn known(
        &self,
        conversation: ConversationId,
    ) -> Result<BTreeMap<String, File>, ToolFailure> {
        let Some(engine) = self.engine.get() else {
            return Ok(BTreeMap::new());
        };
        let document = engine
            .document(Scope::Conversation(conversation), &CHANGES, None)
            .await
            .map_err(|error| ToolFailure::Failed(error.to_string()))?;
        let value = document.map_or(json!({}), |document| document.value);
        serde_json::from_value(value).map_err(|error| ToolFailure::Failed(error.to_string()))
    }
}

/// The change that goes with the result of a call that wrote a file.
pub(super) fn baseline(call: &Call) -> Vec<DocumentChange> {
    let (Some(path), Some(baseline)) =
        (call.binding["path"].as_str(), call.binding.get("baseline"))
    else {
        return Vec::new();
    };
    vec![DocumentChange {
        scope: Scope::Conversation(call.conversation),
        kind: &CHANGES,
        // What an earlier call kept stays.
        op: Op::Keep(json!({ path: baseline })),
    }]
}

/// A unified diff of one file; empty where it is as it was.
pub(crate) fn diff(name: &str, before: &File, now: &File) -> String {
    if before == now {
        return String::new();
    }
    let text = |file: &File| match file {
        File::Absent => Some(String::new()),
        File::Text(text) => Some(text.clone()),
        File::Other(_) => None,
    };
    let (Some(old), Some(new)) = (text(before), text(now)) else {
        return format!("{name} differs; it is no text, or too long to be shown\n");
    };
    let header = |side: &str, file: &File| match file {
        File::Absent => "/dev/null".to_owned(),
        _ => format!("{side}/{name}"),
    };
    TextDiff::from_lines(&old, &new)
        .unified_diff()
        .context_radius(3)
        .header(&header("a", before), &header("b", now))
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diffs_by_what_a_file_was_and_is() {
        let text = |text: &str| File::Text(text.into());
        let other = |hash: &str| File::Other(hash.into());
        for (before, now, expected) in [
            (text("a\n"), text("a\n"), ""),
            (other("1"), other("1"), ""),
            (
                text("a\n"),
                text("b\n"),
                "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n",
            ),
            (
                File::Absent,
                text("b\n"),
                "--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+b\n",
            ),
            (
                text("a\n"),
                File::Absent,
                "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n",
            ),
            (
                other("1"),
                text("b\n"),
                "f differs; it is no text, or too long to be shown\n",
            ),
        ] {
            assert_eq!(diff("f", &before, &now), expected);
        }
    }
}
