//! `read`, `grep`, `find`, `ls`: they change nothing and may run again.

use std::fmt::Write as _;

use async_trait::async_trait;
use base64::Engine as _;
use mooring_durable::{
    message::Part,
    tool::{Call, OutputSink, Replay, Start, ToolDeclaration, ToolEnd, ToolFailure, ToolResult},
};
use mooring_wire::sandbox::{
    ListRequest, ReadRequest, SearchRequest, SearchResponse, read_response::Content,
    search_request::What,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Act, Hands, decided_path, declare, done, failed, number, object, text};

/// Matches that one search gives back.
const SEARCH_LIMIT: u32 = 200;
/// Names that one listing gives back.
const LIST_LIMIT: u32 = 1_000;

pub(super) struct Read;

#[async_trait]
impl Act for Read {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "read",
            "Reads a text file by line range, or shows an image.",
            Replay::Safe,
            object(
                &["path"],
                json!({
                    "path": { "type": "string", "minLength": 1, "description": "Relative to the project, or absolute." },
                    "first_line": { "type": "integer", "minimum": 1, "description": "1 when absent." },
                    "lines": { "type": "integer", "minimum": 1, "description": "As many as fit when absent." },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        text(arguments, "path").to_owned()
    }

    async fn act(
        &self,
        hands: &Hands,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let request = ReadRequest {
            path: decided_path(call)?,
            first_line: number(&call.arguments, "first_line"),
            lines: number(&call.arguments, "lines"),
            max_bytes: 0,
        };
        let response = match hands.client()?.read(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => return hands.unreachable_or_told(&status),
        };
        match response.content {
            Some(Content::Text(read)) => {
                let mut shown = read.text;
                if read.cut {
                    let next = read.first_line + read.lines;
                    let _ = write!(
                        shown,
                        "\n[lines {}–{} of {}; read on with first_line {next}]",
                        read.first_line,
                        next.saturating_sub(1),
                        read.total_lines
                    );
                }
                if shown.is_empty() {
                    shown = "(an empty file)".into();
                }
                done(
                    shown,
                    json!({ "sha256": response.sha256, "size": response.size }),
                )
            }
            Some(Content::Image(image)) => Ok(ToolEnd::Completed(ToolResult {
                content: vec![Part::Image {
                    media_type: image.media_type,
                    data: base64::engine::general_purpose::STANDARD.encode(&image.data),
                }],
                is_error: false,
                terminate: false,
                data: json!({ "sha256": response.sha256, "size": response.size }),
                documents: Vec::new(),
            })),
            Some(Content::Binary(binary)) => failed(format!(
                "{} is no text: {}, {} bytes",
                text(&call.arguments, "path"),
                binary.media_type,
                response.size
            )),
            None => Err(ToolFailure::Failed("the sandbox gave no content".into())),
        }
    }
}

impl Hands {
    /// A refusal of the daemon is for the model to read; silence is not.
    fn unreachable_or_told(&self, status: &tonic::Status) -> Result<ToolEnd, ToolFailure> {
        match self.failure(status) {
            ToolFailure::Failed(why) => failed(why),
            other => Err(other),
        }
    }

    async fn search(&self, call: &Call, what: What) -> Result<ToolEnd, ToolFailure> {
        let request = SearchRequest {
            path: decided_path(call)?,
            what: Some(what),
            include: text(&call.arguments, "include").to_owned(),
            ignore_case: call
                .arguments
                .get("ignore_case")
                .and_then(Value::as_bool)
                .unwrap_or_default(),
            context: number(&call.arguments, "context").min(20) as u32,
            limit: SEARCH_LIMIT,
        };
        match self.client()?.search(request).await {
            Ok(response) => {
                let found = response.into_inner();
                done(
                    shown(&found),
                    json!({ "matches": found.matches.len(), "cut": found.cut }),
                )
            }
            Err(status) => self.unreachable_or_told(&status),
        }
    }
}

fn shown(found: &SearchResponse) -> String {
    if found.matches.is_empty() {
        return format!("Nothing found ({} files searched).", found.files_searched);
    }
    let mut out = String::new();
    for item in &found.matches {
        let _ = match (item.line, item.is_context) {
            (0, _) => writeln!(out, "{}", item.path),
            (line, false) => writeln!(out, "{}:{line}: {}", item.path, item.text),
            (line, true) => writeln!(out, "{}-{line}- {}", item.path, item.text),
        };
    }
    if found.cut {
        out.push_str("[there are more; narrow the search]\n");
    }
    out
}

fn path_or_project(mut arguments: Value) -> Value {
    if let Some(map) = arguments.as_object_mut() {
        map.entry("path")
            .or_insert_with(|| Value::String(".".into()));
    }
    arguments
}

pub(super) struct Grep;

#[async_trait]
impl Act for Grep {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "grep",
            "Searches file contents with a regular expression. Files that git ignores are left out.",
            Replay::Safe,
            object(
                &["pattern"],
                json!({
                    "pattern": { "type": "string", "minLength": 1, "description": "A regular expression (Rust's syntax)." },
                    "path": { "type": "string", "description": "Folder or file; the project when absent." },
                    "include": { "type": "string", "description": "Only files whose name matches this glob." },
                    "ignore_case": { "type": "boolean" },
                    "context": { "type": "integer", "minimum": 0, "maximum": 20, "description": "Lines around each match." },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        format!(
            "{} in {}",
            text(arguments, "pattern"),
            text(arguments, "path")
        )
    }

    async fn prepare(&self, arguments: Value) -> Result<Value, String> {
        Ok(path_or_project(arguments))
    }

    async fn act(
        &self,
        hands: &Hands,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        hands
            .search(
                call,
                What::Regex(text(&call.arguments, "pattern").to_owned()),
            )
            .await
    }
}

pub(super) struct Find;

#[async_trait]
impl Act for Find {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "find",
            "Finds files by name with a glob. Files that git ignores are left out.",
            Replay::Safe,
            object(
                &["glob"],
                json!({
                    "glob": { "type": "string", "minLength": 1, "description": "For instance **/*.rs." },
                    "path": { "type": "string", "description": "Folder; the project when absent." },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        format!("{} in {}", text(arguments, "glob"), text(arguments, "path"))
    }

    async fn prepare(&self, arguments: Value) -> Result<Value, String> {
        Ok(path_or_project(arguments))
    }

    async fn act(
        &self,
        hands: &Hands,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        hands
            .search(call, What::Glob(text(&call.arguments, "glob").to_owned()))
            .await
    }
}

pub(super) struct Ls;

#[async_trait]
impl Act for Ls {
    fn declaration(&self) -> ToolDeclaration {
        declare(
            "ls",
            "Lists a folder.",
            Replay::Safe,
            object(
                &[],
                json!({
                    "path": { "type": "string", "description": "The project when absent." },
                }),
            ),
        )
    }

    fn summary(&self, arguments: &Value) -> String {
        text(arguments, "path").to_owned()
    }

    async fn prepare(&self, arguments: Value) -> Result<Value, String> {
        Ok(path_or_project(arguments))
    }

    async fn act(
        &self,
        hands: &Hands,
        call: &Call,
        _start: Start,
        _output: &dyn OutputSink,
        _cancel: CancellationToken,
    ) -> Result<ToolEnd, ToolFailure> {
        let request = ListRequest {
            path: decided_path(call)?,
            limit: LIST_LIMIT,
        };
        let listed = match hands.client()?.list(request).await {
            Ok(response) => response.into_inner(),
            Err(status) => return hands.unreachable_or_told(&status),
        };
        let mut out = String::new();
        for item in &listed.items {
            let _ = match item.kind.as_str() {
                "directory" => writeln!(out, "{}/", item.name),
                "file" => writeln!(out, "{} ({} bytes)", item.name, item.size),
                kind => writeln!(out, "{} ({kind})", item.name),
            };
        }
        if listed.items.is_empty() {
            out.push_str("(an empty folder)");
        }
        if listed.cut {
            out.push_str("[there are more]\n");
        }
        done(out, json!({ "items": listed.items.len() }))
    }
}
