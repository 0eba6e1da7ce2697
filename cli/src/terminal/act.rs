//! What a person wants of the harness, carried out.

use mooring_wire::harness::{
    AbortRequest, ApprovalsRequest, ConfigureRequest, ConversationsRequest, DecideRequest,
    ForkRequest, Part, Scope, StatusRequest, StatusResponse, SubmitRequest, UsageRequest, WhenBusy,
    WithdrawRequest,
};

use crate::commands;
use crate::connection::Connection;
use crate::error::Error;
use crate::style::{Line, Style};
use crate::text::{one_line, sanitize};
use crate::{cards, format, slash};

/// What a person wants of the harness.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// An input; conversation 0 begins a new one.
    Submit {
        /// Where.
        conversation: i64,
        /// What.
        text: String,
        /// Into the run that is going on, or after it.
        when: When,
    },
    /// A decision.
    Decide {
        /// Of which approval.
        id: String,
        /// Which.
        decision: Decision,
    },
    /// Lets the context begin anew.
    Reset {
        /// Of which conversation.
        conversation: i64,
        /// What the model is told there.
        brief: String,
    },
    /// Shows what goes on in a conversation.
    Tasks(i64),
    /// Answers a question.
    Answer {
        /// Which.
        question: i64,
        /// How.
        text: String,
    },
    /// Shows what a conversation changed.
    Diff(i64),
    /// Lets a summary take the place of the beginning.
    Compact {
        /// Of which conversation.
        conversation: i64,
        /// What it must keep.
        about: String,
    },
    /// Goes on in a fork, or with a text in a side chat.
    Fork {
        /// Of which conversation.
        conversation: i64,
        /// The last entry that is taken along; 0 for the newest.
        entry: i64,
        /// What is asked in a side chat.
        aside: Option<String>,
    },
    /// Stops a conversation's run and withdraws what is queued.
    Stop(i64),
    /// Takes a queued input back.
    Withdraw(i64),
    /// Lists conversations.
    Threads,
    /// Lists open approvals of a conversation.
    Pending(i64),
    /// Shows how the harness is.
    Status,
    /// Shows tokens and cost of a conversation and of all.
    Usage(i64),
    /// Looks whether a changed Workspace file waits for a yes, or is wrong.
    Look {
        /// What was told of it.
        known: String,
    },
    /// Agrees to the changed Workspace file.
    Accept,
}

/// When an input is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// By the run that is going on.
    Now,
    /// As the Workspace says.
    InTurn,
}

/// A decision on an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Yes, so far.
    Approve(slash::Scope),
    /// No, and why.
    Deny(String),
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Done {
    /// What is to be shown.
    pub lines: Vec<Line>,
    /// The conversation that an input went to.
    pub conversation: Option<i64>,
    /// Where to go, and what to say there.
    pub go: Option<(i64, Option<String>)>,
    /// What was told of a changed Workspace file.
    pub workspace_told: Option<String>,
}

impl Done {
    fn told(lines: Vec<Line>) -> Self {
        Done {
            lines,
            ..Done::default()
        }
    }
}

/// Whether only somebody of whom it is known who they are may do it.
fn needs_a_name(act: &Act) -> bool {
    matches!(
        act,
        Act::Decide { .. } | Act::Reset { .. } | Act::Compact { .. } | Act::Accept
    )
}

/// Carries it out; `width` is the screen's.
pub async fn perform(connection: &Connection, act: Act, width: usize) -> Result<Done, Error> {
    if connection.is_attached() && needs_a_name(&act) {
        let text = "nobody knows who is at an attached terminal: do this in Discord, or decide with kubectl on the Approval";
        return Ok(Done::told(vec![Line::new(Style::Notice, text)]));
    }
    match act {
        Act::Submit {
            conversation,
            text,
            when,
        } => submit(connection, conversation, text, when).await,
        Act::Decide { id, decision } => decide(connection, id, decision, width).await,
        Act::Reset {
            conversation,
            brief,
        } => {
            let told = commands::reset(connection, conversation, brief).await?;
            Ok(Done::told(vec![Line::new(Style::Dim, told)]))
        }
        Act::Tasks(conversation) => {
            let (tasks, _) = commands::tasks(connection, conversation).await?;
            let lines = commands::task_lines(&tasks, format::now_ms(), width);
            Ok(Done::told(lines))
        }
        Act::Answer { question, text } => {
            let told = commands::answer(connection, question, text).await?;
            Ok(Done::told(vec![Line::new(Style::Dim, told)]))
        }
        Act::Diff(conversation) => {
            let lines = commands::diff_lines(connection, conversation).await?;
            Ok(Done::told(lines))
        }
        Act::Compact {
            conversation,
            about,
        } => {
            let told = commands::compact(connection, conversation, about).await?;
            Ok(Done::told(vec![Line::new(Style::Dim, told)]))
        }
        Act::Fork {
            conversation,
            entry,
            aside,
        } => {
            let request = ForkRequest {
                conversation,
                entry,
                side_chat: aside.is_some(),
                ..ForkRequest::default()
            };
            let fork = commands::fork(connection, request).await?;
            let what = if aside.is_some() { "side chat" } else { "fork" };
            let text = format!("— a {what} of {conversation}; /resume {conversation} goes back —");
            Ok(Done {
                go: Some((fork, aside)),
                ..Done::told(vec![Line::new(Style::Dim, text)])
            })
        }
        Act::Stop(conversation) => stop(connection, conversation).await,
        Act::Withdraw(submission) => {
            let request = || WithdrawRequest {
                submission,
                author: None,
                ..WithdrawRequest::default()
            };
            let response = connection
                .call(move |mut c| async move { c.withdraw(request()).await })
                .await?;
            let text = response.submission.map(|s| s.text).unwrap_or_default();
            Ok(Done::told(vec![withdrawn(&text)]))
        }
        Act::Threads => {
            let request = ConversationsRequest {
                limit: 20,
                before: 0,
            };
            let found = connection
                .call(move |mut c| async move { c.conversations(request).await })
                .await?
                .conversations;
            if found.is_empty() {
                return Ok(Done::told(vec![Line::new(
                    Style::Dim,
                    "there is no conversation yet",
                )]));
            }
            let now = format::now_ms();
            Ok(Done::told(
                found
                    .iter()
                    .map(|one| commands::conversation_line(one, now, width))
                    .collect(),
            ))
        }
        Act::Pending(conversation) => {
            let request = || ApprovalsRequest {
                conversation,
                all: false,
                id: String::new(),
            };
            let found = connection
                .call(move |mut c| async move { c.approvals(request()).await })
                .await?
                .approvals;
            let zone = jiff::tz::TimeZone::system();
            let now = format::now_ms();
            let mut lines: Vec<Line> = found
                .iter()
                .flat_map(|one| cards::approval_card(one, now, &zone, width))
                .collect();
            if lines.is_empty() {
                lines.push(Line::new(Style::Dim, "no approval waits"));
            }
            Ok(Done::told(lines))
        }
        Act::Status => {
            let status = connection
                .call(|mut c| async move { c.status(StatusRequest {}).await })
                .await?;
            let log = connection.plan().state.log();
            let lines = commands::status_lines(&status, &log, format::now_ms());
            Ok(Done::told(lines.into_iter().map(Line::plain).collect()))
        }
        Act::Usage(conversation) => usage(connection, conversation).await,
        Act::Look { known } => look(connection, known).await,
        Act::Accept => accept(connection).await,
    }
}

/// Tells each change of the Workspace file that is not in use, once. The harness
/// may be gone at this moment, which the watch tells.
async fn look(connection: &Connection, known: String) -> Result<Done, Error> {
    let Ok(status) = connection.client().status(StatusRequest {}).await else {
        return Ok(Done::default());
    };
    let (told, lines) = workspace_news(&status.into_inner(), &known);
    Ok(Done {
        lines,
        workspace_told: Some(told),
        ..Done::default()
    })
}

/// What stands against the Workspace file, by a word that names it, and what to
/// tell where that is not `known`.
fn workspace_news(status: &StatusResponse, known: &str) -> (String, Vec<Line>) {
    let told = format!("{}{}", status.workspace_error, status.pending_workspace);
    if told.is_empty() || told == known {
        return (told, Vec::new());
    }
    let mut lines = Vec::new();
    if !status.workspace_error.is_empty() {
        let text = format!(
            "the Workspace file is wrong, the last good one stays in use: {}",
            status.workspace_error
        );
        lines.extend(
            sanitize(&text)
                .lines()
                .map(|line| Line::new(Style::Bad, line)),
        );
    }
    if !status.pending_workspace.is_empty() {
        lines.push(Line::new(
            Style::Notice,
            "the Workspace file has changed and would permit more:",
        ));
        lines.extend(
            status
                .pending_changes
                .iter()
                .map(|change| Line::plain(format!("  {}", one_line(change, 200)))),
        );
        lines.push(Line::new(Style::Notice, "/accept puts it in use"));
    }
    (told, lines)
}

async fn accept(connection: &Connection) -> Result<Done, Error> {
    let status = connection
        .call(|mut c| async move { c.status(StatusRequest {}).await })
        .await?;
    if status.pending_workspace.is_empty() {
        return Ok(Done::told(vec![Line::new(
            Style::Dim,
            "nothing waits for a yes",
        )]));
    }
    connection
        .call(move |mut c| {
            let accept_workspace = status.pending_workspace.clone();
            let request = ConfigureRequest {
                accept_workspace,
                ..ConfigureRequest::default()
            };
            async move { c.configure(request).await }
        })
        .await?;
    Ok(Done::told(vec![Line::new(
        Style::Good,
        "the changed Workspace file is in use",
    )]))
}

async fn submit(
    connection: &Connection,
    conversation: i64,
    text: String,
    when: When,
) -> Result<Done, Error> {
    let when_busy = match when {
        When::Now => WhenBusy::Steer,
        When::InTurn => WhenBusy::Unspecified,
    };
    let request = SubmitRequest {
        conversation,
        request_id: commands::new_request_id(),
        content: vec![Part::text(text)],
        when_busy: when_busy.into(),
        ..SubmitRequest::default()
    };
    let response = connection
        .call(move |mut c| {
            let request = request.clone();
            async move { c.submit(request).await }
        })
        .await?;
    Ok(Done {
        conversation: Some(response.conversation),
        ..Done::default()
    })
}

async fn decide(
    connection: &Connection,
    id: String,
    decision: Decision,
    width: usize,
) -> Result<Done, Error> {
    let (approve, scope, reason) = match decision {
        Decision::Approve(slash::Scope::Once) => (true, Scope::Once, String::new()),
        Decision::Approve(slash::Scope::Conversation) => (true, Scope::Conversation, String::new()),
        Decision::Deny(reason) => (false, Scope::Unspecified, reason),
    };
    let request = DecideRequest {
        id,
        approve,
        scope: scope.into(),
        reason,
        via: "terminal".into(),
        ..DecideRequest::default()
    };
    let response = connection
        .call(move |mut c| {
            let request = request.clone();
            async move { c.decide(request).await }
        })
        .await?;
    let mut lines = Vec::new();
    if !response.first {
        lines.push(Line::new(Style::Notice, "somebody had decided before:"));
        lines.push(cards::decision_line(
            &response.approval.unwrap_or_default(),
            width,
        ));
    }
    // The first decision is told by the watch.
    Ok(Done::told(lines))
}

async fn stop(connection: &Connection, conversation: i64) -> Result<Done, Error> {
    let request = || AbortRequest {
        conversation,
        run_only: false,
        author: None,
    };
    let response = connection
        .call(move |mut c| async move { c.abort(request()).await })
        .await?;
    let mut lines: Vec<Line> = response
        .withdrawn
        .iter()
        .map(|s| withdrawn(&s.text))
        .collect();
    if !response.was_running && lines.is_empty() {
        lines.push(Line::new(Style::Dim, "nothing was running"));
    }
    Ok(Done::told(lines))
}

fn withdrawn(text: &str) -> Line {
    Line::new(Style::Notice, format!("withdrawn: {}", one_line(text, 500)))
}

async fn usage(connection: &Connection, conversation: i64) -> Result<Done, Error> {
    let mut lines = Vec::new();
    for (title, conversation) in [
        ("this conversation", conversation),
        ("all conversations", 0),
    ] {
        if conversation == 0 && title.starts_with("this") {
            continue;
        }
        let rows = connection
            .call(move |mut c| async move { c.usage(UsageRequest { conversation }).await })
            .await?
            .rows;
        lines.push(Line::new(Style::Bold, title));
        lines.extend(commands::usage_table(&rows).into_iter().map(Line::plain));
    }
    Ok(Done::told(lines))
}

/// An error as lines of the conversation.
pub fn error_lines(error: &Error) -> Vec<Line> {
    sanitize(&error.to_string())
        .lines()
        .map(|line| Line::new(Style::Bad, line))
        .collect()
}

/// What a typed command asks for, in a conversation whose oldest open approval
/// is `oldest` and whose open question is `question`, which a message answers; an
/// `Err` is to be shown.
pub fn of_typed(
    typed: slash::Typed,
    conversation: i64,
    oldest: Option<&str>,
    question: Option<i64>,
) -> Result<Option<Act>, String> {
    use slash::Typed;
    let approval = |id: Option<String>| {
        id.or_else(|| oldest.map(String::from))
            .ok_or_else(|| "no approval waits here".to_owned())
    };
    let begun = |act| {
        if conversation == 0 {
            Err("nothing was said yet".to_owned())
        } else {
            Ok(Some(act))
        }
    };
    match typed {
        Typed::Answer(text) | Typed::Message(text) if question.is_some() => Ok(Some(Act::Answer {
            question: question.unwrap_or_default(),
            text,
        })),
        Typed::Answer(_) => Err("nothing is asked here".to_owned()),
        Typed::Tasks => begun(Act::Tasks(conversation)),
        Typed::Message(text) => Ok(Some(Act::Submit {
            conversation,
            text,
            when: When::InTurn,
        })),
        Typed::Steer(text) => Ok(Some(Act::Submit {
            conversation,
            text,
            when: When::Now,
        })),
        Typed::Threads => Ok(Some(Act::Threads)),
        Typed::Reset(brief) => begun(Act::Reset {
            conversation,
            brief,
        }),
        Typed::Diff => begun(Act::Diff(conversation)),
        Typed::Compact(about) => begun(Act::Compact {
            conversation,
            about,
        }),
        Typed::Fork(entry) => begun(Act::Fork {
            conversation,
            entry: entry.unwrap_or(0),
            aside: None,
        }),
        Typed::Aside(text) => begun(Act::Fork {
            conversation,
            entry: 0,
            aside: Some(text),
        }),
        Typed::Stop => begun(Act::Stop(conversation)),
        Typed::Withdraw(id) => Ok(Some(Act::Withdraw(id))),
        Typed::Status => Ok(Some(Act::Status)),
        Typed::Usage => Ok(Some(Act::Usage(conversation))),
        Typed::Pending => Ok(Some(Act::Pending(0))),
        Typed::Accept => Ok(Some(Act::Accept)),
        Typed::Approve { id, scope } => {
            let id = approval(id)?;
            Ok(Some(Act::Decide {
                id,
                decision: Decision::Approve(scope),
            }))
        }
        Typed::Deny { id, reason } => Ok(Some(Act::Decide {
            id: approval(id)?,
            decision: Decision::Deny(reason),
        })),
        Typed::Wrong(text) => Err(text),
        Typed::Nothing
        | Typed::Resume(_)
        | Typed::New
        | Typed::Queue
        | Typed::Help
        | Typed::Quit => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slash::parse;

    #[test]
    fn a_changed_workspace_file_is_told_once() {
        let mut status = StatusResponse::default();
        assert_eq!(workspace_news(&status, ""), (String::new(), vec![]));
        status.pending_workspace = "d1".into();
        status.pending_changes = vec!["bash \"rm *\": ask becomes allow".into()];
        let (told, lines) = workspace_news(&status, "");
        assert_eq!((told.as_str(), lines.len()), ("d1", 3));
        assert_eq!(workspace_news(&status, &told).1, vec![]);
        status.pending_workspace = "d2".into();
        assert_eq!(workspace_news(&status, &told).1.len(), 3);
    }

    #[test]
    fn typed_commands_become_acts_in_their_conversation() {
        let decide = |id: &str, decision| {
            Ok(Some(Act::Decide {
                id: id.into(),
                decision,
            }))
        };
        let submit = |text: &str, when| {
            Ok(Some(Act::Submit {
                conversation: 7,
                text: text.into(),
                when,
            }))
        };
        for (typed, oldest, act) in [
            ("hello", None, submit("hello", When::InTurn)),
            ("/steer left", None, submit("left", When::Now)),
            ("/stop", None, Ok(Some(Act::Stop(7)))),
            (
                "/approve",
                Some("a"),
                decide("a", Decision::Approve(slash::Scope::Once)),
            ),
            (
                "/approve b",
                Some("a"),
                decide("b", Decision::Approve(slash::Scope::Once)),
            ),
            ("/approve", None, Err("no approval waits here".into())),
            (
                "/deny no good",
                Some("a"),
                decide("a", Decision::Deny("no good".into())),
            ),
            ("/help", None, Ok(None)),
        ] {
            assert_eq!(of_typed(parse(typed), 7, oldest, None), act, "{typed}");
        }
        assert_eq!(
            of_typed(parse("/stop"), 0, None, None),
            Err("nothing was said yet".into())
        );
    }
}
