//! What tests say and read: inputs, ends, transcripts, and waits that are bounded.

use std::time::Duration;

use mooring_durable::{
    Engine,
    gate::{Question, Verdict},
    id::{ConversationId, Millis, RequestId, SubmissionId},
    message::{Message, Part},
    model::ModelRequest,
    submission::{Input, Requester, Submission, SubmissionState, WhenBusy},
    tool::{ToolEnd, ToolFailure, ToolResult},
    view::{ConversationView, EntryView},
};
use serde_json::Value;

use super::ports::START;

/// The longest wait for anything.
pub const BOUND: Duration = Duration::from_secs(60);

/// A submission's state in one word, its reason included.
pub fn state(submission: &Submission) -> String {
    match &submission.state {
        SubmissionState::Queued => "queued".into(),
        SubmissionState::Placed => "placed".into(),
        SubmissionState::Done => "done".into(),
        SubmissionState::Unanswered { reason, .. } => format!("unanswered {reason:?}"),
    }
}

pub fn anna() -> Requester {
    Requester::Local {
        name: "anna".into(),
    }
}

pub fn input(conversation: ConversationId, text: &str, when_busy: WhenBusy) -> Input {
    Input {
        conversation,
        request_id: None,
        requester: anna(),
        content: vec![Part::text(text)],
        when_busy,
        autonomous: false,
        data: Value::Null,
        extra: Vec::new(),
    }
}

pub fn request_id(id: &str) -> Option<RequestId> {
    Some(RequestId(id.into()))
}

/// Submits, and gives the id.
pub async fn say(engine: &Engine, conversation: ConversationId, text: &str) -> SubmissionId {
    engine
        .submit(input(conversation, text, WhenBusy::FollowUp))
        .await
        .unwrap()
        .submission
        .id
}

/// A result that is a text.
pub fn done(text: &str) -> Result<ToolEnd, ToolFailure> {
    Ok(ToolEnd::Completed(ToolResult {
        content: vec![Part::text(text)],
        is_error: false,
        terminate: false,
        data: Value::Null,
        documents: Vec::new(),
    }))
}

pub fn ask(rule: &str) -> Verdict {
    Verdict::Ask(Question {
        rule: rule.into(),
        expires_at: None,
        data: Value::Null,
    })
}

pub fn approve(approved: bool) -> mooring_durable::gate::Decision {
    mooring_durable::gate::Decision {
        approved,
        by: Requester::Local {
            name: "bert".into(),
        },
        via: "terminal".into(),
        reason: if approved {
            String::new()
        } else {
            "not today".into()
        },
        scope: "once".into(),
        at: Millis(START),
    }
}

/// Polls until something holds, within the bound.
pub async fn eventually(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + BOUND;
    while !holds().await {
        assert!(
            tokio::time::Instant::now() < deadline,
            "{what} did not come about"
        );
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits for the end of a submission and gives its state.
pub async fn settled(engine: &Engine, id: SubmissionId) -> String {
    let mut found = String::new();
    eventually("the end of a submission", async || {
        let submission = engine.submission(id).await.unwrap().unwrap();
        found = state(&submission);
        !matches!(
            submission.state,
            SubmissionState::Queued | SubmissionState::Placed
        )
    })
    .await;
    // A commit can be read from the file a moment before the ledger and watchers are
    // told of it. Its conversation answers this, which changes nothing, after that.
    let _ = tokio::time::timeout(BOUND, engine.withdraw(id)).await;
    found
}

pub async fn view(engine: &Engine, id: ConversationId) -> ConversationView {
    engine.view(id, 1_000, None).await.unwrap().unwrap()
}

/// Waits until a view shows something.
pub async fn shows(
    engine: &Engine,
    id: ConversationId,
    what: &str,
    mut holds: impl FnMut(&ConversationView) -> bool,
) -> ConversationView {
    let mut last = None;
    eventually(what, async || {
        let view = view(engine, id).await;
        let found = holds(&view);
        last = Some(view);
        found
    })
    .await;
    last.unwrap()
}

/// A transcript as words: `U:text`, `A:text`, `A2` (calls), `R:text`, `S`, and states.
pub fn transcript(entries: &[EntryView]) -> Vec<String> {
    entries.iter().map(entry_word).collect()
}

fn entry_word(entry: &EntryView) -> String {
    let text = |content: &[Part]| {
        content
            .iter()
            .filter_map(|part| match part {
                Part::Text { text } => Some(text.as_str()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join("|")
    };
    let body = match &entry.message {
        Some(Message::System { text }) => format!("S:{text}"),
        Some(Message::User { content }) => format!("U:{}", text(content)),
        Some(Message::Assistant { content }) => {
            match content
                .iter()
                .filter(|part| matches!(part, Part::ToolCall(_)))
                .count()
            {
                0 => format!("A:{}", text(content)),
                calls => format!("A{calls}"),
            }
        }
        Some(Message::ToolResult {
            content, is_error, ..
        }) => format!("R{}:{}", if *is_error { "!" } else { "" }, text(content)),
        None => format!("{} {}", entry.kind, entry.data),
    };
    if entry.state.is_empty() {
        body
    } else {
        format!("{body} ({})", entry.state)
    }
}

/// How many results the context has after its last user message.
pub fn results(request: &ModelRequest) -> usize {
    request
        .messages
        .iter()
        .rev()
        .take_while(|message| !matches!(message, Message::User { .. }))
        .filter(|message| matches!(message, Message::ToolResult { .. }))
        .count()
}

/// The newest user text of a request.
pub fn last_user(request: &ModelRequest) -> String {
    request
        .messages
        .iter()
        .rev()
        .find_map(|message| match message {
            Message::User { content } => content.iter().find_map(|part| match part {
                Part::Text { text } => Some(text.clone()),
                _ => None,
            }),
            _ => None,
        })
        .unwrap_or_default()
}
