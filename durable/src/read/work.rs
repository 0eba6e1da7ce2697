//! What calls own and wait for, as it stands in the file.

use sqlx::Row as _;

use super::{Read, Reader, load::child};
use crate::{
    conversation::state::WaitRow,
    id::{ConversationId, RequestId, TaskId},
    message::{Message, Part},
    model::Usage,
    sql::{
        attempt,
        entry::{parse, parse_opt},
        submission,
        task::{self, TaskRow, kind},
    },
    store::fault::of_read,
    submission::Unanswered,
    wait::{Question, TaskView, Work, WorkEnd},
};

impl Reader {
    /// How an owned conversation's first input ended; `None` while it has not.
    pub async fn work_end(
        &self,
        conversation: ConversationId,
        request: &RequestId,
    ) -> Read<Option<WorkEnd>> {
        let row = sqlx::query(submission::END)
            .bind(conversation.0)
            .bind(&request.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        let Some(row) = row else { return Ok(None) };
        let used = sqlx::query(attempt::USED)
            .bind(conversation.0)
            .fetch_one(&self.pool)
            .await
            .map_err(of_read)?;
        let number = |at: usize| {
            let number = used.try_get::<Option<i64>, _>(at);
            number
                .map(|number| number.unwrap_or(0) as u64)
                .map_err(of_read)
        };
        let usage = Usage {
            input: number(0)?,
            cached: number(1)?,
            output: number(2)?,
        };
        let read = || -> Result<Option<WorkEnd>, sqlx::Error> {
            let state: &str = row.try_get(0)?;
            Ok(match state {
                "done" => {
                    let message: Option<Message> = parse_opt(row.try_get(3)?)?;
                    Some(WorkEnd::Done {
                        text: message.map(|message| said(&message)).unwrap_or_default(),
                        usage,
                    })
                }
                "unanswered" => {
                    let reason: Unanswered = parse(&format!("\"{}\"", row.try_get::<&str, _>(1)?))?;
                    let detail: Option<&str> = row.try_get(2)?;
                    Some(match reason {
                        Unanswered::Aborted | Unanswered::Withdrawn => WorkEnd::Aborted,
                        reason => WorkEnd::Failed {
                            reason: match detail.unwrap_or_default() {
                                "" => format!("{reason:?}"),
                                detail => detail.to_owned(),
                            },
                        },
                    })
                }
                _ => None,
            })
        };
        read().map_err(of_read)
    }

    /// A question by its task; `None` where that is none.
    pub async fn question(&self, task: TaskId) -> Read<Option<Question>> {
        let Some(row) = self.task(task, kind::QUESTION).await? else {
            return Ok(None);
        };
        let owner = row.owner.unwrap_or(TaskId(0));
        Ok(child(&row)
            .map_err(of_read)?
            .question(row.conversation, owner))
    }

    /// Questions that nobody has answered.
    pub async fn questions(&self) -> Read<Vec<Question>> {
        let rows = sqlx::query(task::OPEN_QUESTIONS)
            .fetch_all(&self.pool)
            .await
            .map_err(of_read)?;
        let mut found = Vec::new();
        for row in &rows {
            let row = TaskRow::read(row).map_err(of_read)?;
            let owner = row.owner.unwrap_or(TaskId(0));
            let child = child(&row).map_err(of_read)?;
            found.extend(child.question(row.conversation, owner));
        }
        Ok(found)
    }

    /// Tasks of a conversation that have not ended, oldest first, at most `limit`.
    pub async fn tasks(&self, conversation: ConversationId, limit: usize) -> Read<Vec<TaskView>> {
        let rows = sqlx::query(task::OPEN_ALL)
            .bind(conversation.0)
            .bind(i64::try_from(limit).unwrap_or(i64::MAX))
            .fetch_all(&self.pool)
            .await
            .map_err(of_read)?;
        let mut found = Vec::new();
        for row in &rows {
            let row = TaskRow::read(row).map_err(of_read)?;
            found.push(task_view(&row).map_err(of_read)?);
        }
        Ok(found)
    }
}

fn task_view(row: &TaskRow) -> Result<TaskView, sqlx::Error> {
    let waits: Option<WaitRow> = parse_opt(row.waits.as_deref())?;
    let (mut about, mut owns) = (String::new(), None);
    if let kind::TIMER | kind::QUESTION | kind::SUBAGENT | kind::FOLLOWED = row.kind.as_str() {
        let child = child(row)?;
        owns = child.conversation;
        about = match &child.awaited.work {
            Work::Timer { until } => jiff::Timestamp::from_millisecond(until.0)
                .map_or_else(|_| until.0.to_string(), |at| at.to_string()),
            Work::Question { text, .. } => text.clone(),
            Work::Conversation(_) => child.awaited.key,
            Work::Call { task } => format!("call {task}"),
        };
    }
    Ok(TaskView {
        task: row.id,
        owner: row.owner,
        conversation: row.conversation,
        kind: row.kind.clone(),
        status: row.status.clone(),
        background: row.background,
        about,
        waits: waits.map(|wait| wait.on).unwrap_or_default(),
        owns,
        created_at: row.created_at,
    })
}

fn said(message: &Message) -> String {
    let Message::Assistant { content } = message else {
        return String::new();
    };
    let text = content.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    text.collect::<Vec<_>>().join("\n")
}
