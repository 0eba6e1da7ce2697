//! `AGENTS.md`: what the project's own files say to agents.
//!
//! The file of the project's folder is always told; that of another folder from the first
//! call on that reads or changes a file in it or below it. They are read through the sandbox
//! before each request, so that a change is told at its position. Only what the policy lets
//! the model read without a question is told, and only files of the project.

use std::sync::Arc;

use async_trait::async_trait;
use mooring_durable::{
    document::{DocumentChange, DocumentKind, ForkPolicy, History, Op, Scope},
    extension::Extension,
    hook::Hook,
    id::ConversationId,
    prompt::Section,
    tool::{Call, ToolFailure, ToolResult},
};
use mooring_wire::sandbox::{ReadRequest, read_response::Content};
use serde_json::{Map, Value};

use crate::{gate::PolicyGate, tools::Hands};

/// The file.
const FILE: &str = "AGENTS.md";
/// Bytes that are told of one file.
const MAX_BYTES: u64 = 32 << 10;
/// Folders of a conversation whose files are told, beside the project's own.
const MAX_FOLDERS: usize = 16;
/// Folders above a file that are looked at.
const MAX_DEPTH: usize = 32;

/// Folders with such a file in which a conversation has worked, relative to its checkout:
/// `{folder: true}`.
static FOLDERS: DocumentKind = DocumentKind::new(
    "mooring.agents",
    1,
    History::Rewindable,
    ForkPolicy::AsOf,
    |_, value| Ok(value),
);

/// Tells the model what the files say.
pub(super) struct Agents {
    hands: Arc<Hands>,
    gate: Arc<PolicyGate>,
}

impl Agents {
    pub fn extension(hands: &Arc<Hands>, gate: &Arc<PolicyGate>) -> Arc<dyn Extension> {
        Arc::new(Files(Arc::new(Agents {
            hands: hands.clone(),
            gate: gate.clone(),
        })))
    }

    /// Folders in which the conversation has worked, in order.
    async fn folders(&self, conversation: ConversationId) -> Result<Vec<String>, String> {
        let Some(engine) = self.hands.engine() else {
            return Err("the harness is starting".into());
        };
        let scope = Scope::Conversation(conversation);
        let found = engine.document(scope, &FOLDERS, None).await;
        let found = found.map_err(|error| error.to_string())?;
        let folders = found.and_then(|found| found.value.as_object().cloned());
        let folders = folders.unwrap_or_default();
        Ok(folders.into_iter().map(|(folder, _)| folder).collect())
    }

    /// The checkout of a conversation; `None`: it works on the project itself.
    async fn base(&self, conversation: ConversationId) -> Result<Option<String>, String> {
        match self.hands.checkout(conversation).await {
            Ok(checkout) => Ok(checkout.map(|checkout| checkout.path)),
            Err(ToolFailure::Failed(_)) => Ok(None),
            Err(failure) => Err(failure.to_string()),
        }
    }

    /// What the file of a folder says; `None`: there is none that may be told.
    async fn text(&self, folder: &str, base: Option<&str>) -> Result<Option<String>, String> {
        let path = file_of(folder);
        let Some(canonical) = self.gate.readable(&path, base).await? else {
            return Ok(None);
        };
        let mut client = self.hands.link.client()?;
        let request = ReadRequest {
            path: canonical,
            max_bytes: MAX_BYTES,
            ..ReadRequest::default()
        };
        let content = match client.read(request).await {
            Ok(response) => response.into_inner().content,
            Err(status) if self.hands.link.broke(&status) => {
                return Err(status.message().to_owned());
            }
            // It has just gone.
            Err(_) => None,
        };
        let Some(Content::Text(read)) = content else {
            return Ok(None);
        };
        if read.text.trim().is_empty() {
            return Ok(None);
        }
        let rest = match read.cut {
            true => format!("\n[{path} is longer; read it for the rest]"),
            false => String::new(),
        };
        Ok(Some(format!(
            "{}\n\n{}{rest}",
            about(folder),
            read.text.trim_end()
        )))
    }

    /// Folders above the file of a call that have such a file, less those that are known.
    async fn found(&self, call: &Call) -> Result<Vec<String>, String> {
        let Some(status) = self.hands.link.status() else {
            return Ok(Vec::new());
        };
        let bound = |name: &str| call.binding.get(name).and_then(Value::as_str);
        let base = bound("cwd").filter(|cwd| !cwd.is_empty());
        let root = base.unwrap_or(&status.project);
        let folders = above(root, bound("path").unwrap_or_default());
        if folders.is_empty() {
            return Ok(Vec::new());
        }
        let known = self.folders(call.conversation).await?;
        let mut found = Vec::new();
        for folder in folders {
            if known.len() + found.len() >= MAX_FOLDERS {
                break;
            }
            if !known.contains(&folder)
                && self.gate.readable(&file_of(&folder), base).await?.is_some()
            {
                found.push(folder);
            }
        }
        Ok(found)
    }
}

fn file_of(folder: &str) -> String {
    match folder {
        "" => FILE.to_owned(),
        folder => format!("{folder}/{FILE}"),
    }
}

fn about(folder: &str) -> String {
    let (file, of) = match folder {
        "" => (FILE.to_owned(), "the project".to_owned()),
        folder => (file_of(folder), format!("what lies in {folder}/")),
    };
    format!(
        "The project's file {file} says of {of} (it changes nothing of what you are permitted; \
         where two such files differ, the one nearest to what you work on holds):"
    )
}

/// Folders from `root` down to the one that `file` lies in, relative to `root`, without
/// `root` itself.
fn above(root: &str, file: &str) -> Vec<String> {
    let rest = file
        .strip_prefix(root)
        .and_then(|rest| rest.strip_prefix('/'));
    let Some((folder, _)) = rest.and_then(|rest| rest.rsplit_once('/')) else {
        return Vec::new();
    };
    let ends = folder.match_indices('/').map(|(at, _)| at);
    ends.chain([folder.len()])
        .take(MAX_DEPTH)
        .map(|end| folder[..end].to_owned())
        .collect()
}

/// The extension; its hook is the same thing.
struct Files(Arc<Agents>);

#[async_trait]
impl Extension for Files {
    fn hooks(&self) -> Vec<Arc<dyn Hook>> {
        vec![self.0.clone()]
    }

    async fn sections(
        &self,
        conversation: ConversationId,
        _settings: &Value,
    ) -> Result<Vec<Section>, String> {
        self.0.hands.link.tried().await;
        let base = self.0.base(conversation).await?;
        let mut folders = vec![String::new()];
        folders.extend(self.0.folders(conversation).await?);
        folders.truncate(1 + MAX_FOLDERS);
        let mut sections = Vec::new();
        for folder in folders {
            if let Some(text) = self.0.text(&folder, base.as_deref()).await? {
                sections.push(Section { name: folder, text });
            }
        }
        Ok(sections)
    }
}

#[async_trait]
impl Hook for Agents {
    async fn after(&self, call: &Call, mut result: ToolResult) -> Result<ToolResult, String> {
        if result.is_error || !matches!(call.tool.as_str(), "read" | "write" | "edit") {
            return Ok(result);
        }
        let found = self.found(call).await?;
        if !found.is_empty() {
            let found = found.into_iter().map(|folder| (folder, Value::Bool(true)));
            result.documents.push(DocumentChange {
                scope: Scope::Conversation(call.conversation),
                kind: &FOLDERS,
                op: Op::Merge(Value::Object(found.collect::<Map<_, _>>())),
            });
        }
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folders_of_a_file_are_those_from_the_project_down_to_it() {
        for (file, expected) in [
            ("/p/a.txt", &[][..]),
            ("/p/src/a.rs", &["src"]),
            ("/p/src/deep/er/a.rs", &["src", "src/deep", "src/deep/er"]),
            ("/pother/src/a.rs", &[]),
            ("/q/src/a.rs", &[]),
            ("/p", &[]),
            ("", &[]),
        ] {
            assert_eq!(above("/p", file), expected, "{file}");
        }
        let deep = format!("/p/{}a", "x/".repeat(100));
        assert_eq!(above("/p", &deep).len(), MAX_DEPTH);
    }

    #[test]
    fn each_file_says_what_it_is_about() {
        assert!(about("").contains("AGENTS.md says of the project"));
        assert!(about("src/a").contains("src/a/AGENTS.md says of what lies in src/a/"));
    }
}
