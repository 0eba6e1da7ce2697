//! A conversation and its context, put together from rows.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;
use sqlx::{Row as _, SqliteConnection, sqlite::SqliteRow};

use super::{
    Loaded,
    chain::{Chain, Position},
};
use crate::{
    context::{Item, calls_of},
    conversation::state::{
        Active, CallEnd, CallOrigin, Child, ChildPlace, Compacting, CompactionProgress, Phase,
        Progress, Round, Settled, Slot, State, WaitRow, Waiting,
    },
    gate::Approval,
    id::{ConversationId, EntryId, SubmissionId, TaskId},
    message::{Message, Part},
    section::Told,
    sql::{
        attempt::{self, Attempt},
        call::{self, CallRow},
        conversation::{self, ConversationRow},
        entry::{self, EntryRow, kind, parse, parse_opt},
        open_work::{self, What},
        submission::{self, SubmissionRow},
        task::{self, TaskRow},
    },
    submission::Submission,
    window::Window,
};

/// Entries with the texts that they name by hash.
pub(super) async fn items(
    connection: &mut SqliteConnection,
    rows: &[SqliteRow],
) -> Result<Vec<Item>, sqlx::Error> {
    let mut items = Vec::with_capacity(rows.len());
    for row in rows {
        let row = EntryRow::read(row)?;
        let mut texts = Vec::new();
        if row.kind == kind::SYSTEM && row.message.is_none() {
            let told: Told = serde_json::from_value(row.data.clone())
                .map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
            for section in &told.sections {
                let part = sqlx::query(attempt::PART)
                    .bind(&section.hash.0)
                    .fetch_optional(&mut *connection)
                    .await?;
                let missing = || {
                    sqlx::Error::Decode(
                        format!("section {} of entry {} is missing", section.name, row.id).into(),
                    )
                };
                texts.push(parse::<String>(part.ok_or_else(missing)?.try_get(0)?)?);
            }
        }
        items.push(Item {
            row: Arc::new(row),
            texts,
        });
    }
    Ok(items)
}

pub(super) async fn context(
    connection: &mut SqliteConnection,
    id: ConversationId,
    cutoff: Option<EntryId>,
) -> Result<Vec<Item>, sqlx::Error> {
    let cutoff = cutoff.map_or(i64::MAX, |entry| entry.0);
    let chain = Chain::read(connection, id).await?;
    let head = chain.head(connection, cutoff).await?;
    let mut found = Vec::new();
    let mut from = Position {
        depth: chain.0.len() - 1,
        seq: 0,
    };
    if let Some(head) = &head {
        // The head's own entry comes first, also where its range begins before it.
        let missing = || missing(format_args!("the head {}", head.own));
        let own = chain
            .position(connection, head.own)
            .await?
            .ok_or_else(missing)?;
        from = chain
            .position(connection, head.target)
            .await?
            .unwrap_or(own);
        if from != own {
            let row = sqlx::query(entry::BY_ID)
                .bind(head.own.0)
                .fetch_one(&mut *connection)
                .await?;
            found.extend(items(connection, &[row]).await?);
        }
    }
    let rows = chain.from(connection, from, cutoff).await?;
    let rest = items(connection, &rows).await?;
    let own = found.first().map(|item| item.row.id);
    // What an older head says, the newest one has taken the place of.
    let newest = head.map(|head| head.own);
    let superseded = |item: &Item| item.row.head.is_some() && Some(item.row.id) != newest;
    found.extend(
        rest.into_iter()
            .filter(|item| Some(item.row.id) != own && !superseded(item)),
    );
    Ok(found)
}

pub(super) async fn load(
    connection: &mut SqliteConnection,
    id: ConversationId,
) -> Result<Option<Loaded>, sqlx::Error> {
    let Some(row) = sqlx::query(conversation::READ)
        .bind(id.0)
        .fetch_optional(&mut *connection)
        .await?
    else {
        return Ok(None);
    };
    let row = ConversationRow::read(&row)?;
    let seq: Option<i64> = sqlx::query(entry::LAST_SEQ)
        .bind(id.0)
        .fetch_one(&mut *connection)
        .await?
        .try_get(0)?;
    let head = Chain::read(connection, id)
        .await?
        .head(connection, i64::MAX)
        .await?;
    let open = sqlx::query(submission::OPEN)
        .bind(id.0)
        .fetch_all(&mut *connection)
        .await?;
    let open = open
        .iter()
        .map(SubmissionRow::read)
        .collect::<Result<Vec<_>, _>>()?;
    let (placed, queue): (Vec<_>, Vec<_>) = open.into_iter().partition(|row| row.entry.is_some());
    let mut outputs = HashMap::new();
    let generation = sqlx::query(task::OPEN)
        .bind(id.0)
        .bind(What::Generation as i64)
        .fetch_optional(&mut *connection)
        .await?;
    let run = match generation {
        None => None,
        Some(row) => {
            let inputs = placed
                .into_iter()
                .map(|row| Arc::new(row.submission))
                .collect();
            Some(active(connection, &TaskRow::read(&row)?, inputs, &mut outputs).await?)
        }
    };
    let compaction = sqlx::query(task::OPEN)
        .bind(id.0)
        .bind(What::Compaction as i64)
        .fetch_optional(&mut *connection)
        .await?;
    let compaction = match compaction {
        Some(row) => Some(compacting(connection, &TaskRow::read(&row)?).await?),
        None => None,
    };
    let report = sqlx::query(open_work::REPORT)
        .bind(id.0)
        .fetch_optional(&mut *connection)
        .await?;
    let report = report
        .map(|row| row.try_get(0).map(SubmissionId))
        .transpose()?;
    let open = sqlx::query(task::OPEN)
        .bind(id.0)
        .bind(What::Approval as i64)
        .fetch_all(&mut *connection)
        .await?;
    let mut passing = Vec::new();
    for row in &open {
        let approval = approval_of(&TaskRow::read(row)?)?;
        if approval.on_the_way {
            passing.push(Arc::new(approval));
        }
    }
    let state = State {
        row: Arc::new(row),
        seq: seq.unwrap_or(0),
        head: head.map(|head| head.target),
        queue: queue.into_iter().map(Arc::new).collect(),
        run,
        compaction,
        report,
        passing,
    };
    Ok(Some(Loaded { state, outputs }))
}

/// Damage: a record that another one names is not there.
fn missing(what: std::fmt::Arguments<'_>) -> sqlx::Error {
    sqlx::Error::Decode(format!("{what} is missing").into())
}

async fn compacting(
    connection: &mut SqliteConnection,
    row: &TaskRow,
) -> Result<Compacting, sqlx::Error> {
    let field = |text: &Option<String>| {
        text.clone()
            .ok_or_else(|| missing(format_args!("a field of task {}", row.id)))
    };
    let progress: CompactionProgress = parse(&field(&row.checkpoint)?)?;
    let attempt = attempt_of(connection, row.id, progress.attempt).await?;
    Ok(Compacting {
        task: row.id,
        created_at: row.created_at,
        input: Arc::new(parse(&field(&row.input)?)?),
        progress,
        attempt: attempt.map(Arc::new),
    })
}

async fn active(
    connection: &mut SqliteConnection,
    generation: &TaskRow,
    inputs: Vec<Arc<Submission>>,
    outputs: &mut HashMap<TaskId, (Window, u64)>,
) -> Result<Active, sqlx::Error> {
    let checkpoint = generation
        .checkpoint
        .as_deref()
        .ok_or_else(|| missing(format_args!("the checkpoint of task {}", generation.id)))?;
    let progress: Progress = parse(checkpoint)?;
    if let Some(lost) = progress
        .inputs
        .iter()
        .find(|id| !inputs.iter().any(|input| input.id == **id))
    {
        return Err(missing(format_args!(
            "submission {lost} of task {}",
            generation.id
        )));
    }
    let attempt = match progress.phase {
        Phase::Request => {
            let row = attempt_of(connection, generation.id, progress.attempt).await?;
            Some(row.ok_or_else(|| {
                missing(format_args!(
                    "attempt {} of task {}",
                    progress.attempt, generation.id
                ))
            })?)
        }
        _ => None,
    };
    let round = match progress.phase {
        Phase::Tools { entry } => Some(round(connection, generation, entry, outputs).await?),
        _ => None,
    };
    Ok(Active {
        generation: generation.id,
        created_at: generation.created_at,
        progress,
        inputs,
        attempt: attempt.map(Arc::new),
        round,
        abort_mark: generation.abort_mark,
    })
}

pub(super) async fn attempt_of(
    connection: &mut SqliteConnection,
    task: TaskId,
    number: u32,
) -> Result<Option<Attempt>, sqlx::Error> {
    let row = sqlx::query(attempt::READ)
        .bind(task.0)
        .bind(number)
        .fetch_optional(connection)
        .await?;
    row.as_ref().map(Attempt::read).transpose()
}

/// What an answer says.
async fn answer(
    connection: &mut SqliteConnection,
    entry: EntryId,
) -> Result<Vec<Part>, sqlx::Error> {
    let row = sqlx::query(entry::BY_ID)
        .bind(entry.0)
        .fetch_optional(connection)
        .await?;
    let row = row.ok_or_else(|| missing(format_args!("entry {entry}")))?;
    match EntryRow::read(&row)?.message {
        Some(Message::Assistant { content }) => Ok(content),
        _ => Err(missing(format_args!("the answer in entry {entry}"))),
    }
}

/// What a call waits for, or waited for.
async fn children(
    connection: &mut SqliteConnection,
    conversation: ConversationId,
    call: TaskId,
) -> Result<Vec<Child>, sqlx::Error> {
    let rows = sqlx::query(task::CHILDREN_OF)
        .bind(call.0)
        .bind(conversation.0)
        .bind(call.0)
        .fetch_all(connection)
        .await?;
    rows.iter().map(|row| child(&TaskRow::read(row)?)).collect()
}

pub(super) fn child(row: &TaskRow) -> Result<Child, sqlx::Error> {
    let input = row
        .input
        .as_deref()
        .ok_or_else(|| missing(format_args!("the input of task {}", row.id)))?;
    let place: Option<ChildPlace> = parse_opt(row.checkpoint.as_deref())?;
    Ok(Child {
        task: row.id,
        awaited: parse(input)?,
        conversation: place.and_then(|place| place.conversation),
        end: parse_opt(row.outcome.as_deref())?,
        created_at: row.created_at,
    })
}

async fn round(
    connection: &mut SqliteConnection,
    generation: &TaskRow,
    entry: EntryId,
    outputs: &mut HashMap<TaskId, (Window, u64)>,
) -> Result<Round, sqlx::Error> {
    let content = answer(connection, entry).await?;
    let mut slots: Vec<_> = calls_of(&content)
        .map(|call| Slot::new(call.clone()))
        .collect();
    let rows = sqlx::query(call::ROUND)
        .bind(generation.conversation.0)
        .bind(generation.id.0)
        .fetch_all(&mut *connection)
        .await?;
    let tasks = sqlx::query(task::OPEN)
        .bind(generation.conversation.0)
        .bind(What::Call as i64)
        .fetch_all(&mut *connection)
        .await?;
    let tasks = tasks
        .iter()
        .map(TaskRow::read)
        .collect::<Result<Vec<_>, _>>()?;
    if tasks.len() != rows.len() {
        return Err(missing(format_args!(
            "a call or a task of the round of task {}",
            generation.id
        )));
    }
    for row in &rows {
        let row = CallRow::read(row)?;
        let task = tasks
            .iter()
            .find(|task| task.id == row.task)
            .ok_or_else(|| missing(format_args!("task {}", row.task)))?;
        let slot = slots
            .get_mut(row.ordinal)
            .ok_or_else(|| missing(format_args!("call {} of entry {entry}", row.ordinal)))?;
        let end: Option<CallEnd> = parse_opt(task.outcome.as_deref())?;
        if let Some(end) = end {
            slot.terminate = end.terminate;
            slot.handoff = end.handoff;
        }
        if row.ended_at.is_none()
            && row.started()
            && let Some(checkpoint) = task.checkpoint.as_deref()
        {
            outputs.insert(row.task, parse(checkpoint)?);
        }
        let approvals = sqlx::query(task::APPROVALS_OF)
            .bind(row.task.0)
            .fetch_all(&mut *connection)
            .await?;
        for approval in &approvals {
            let approval = approval_of(&TaskRow::read(approval)?)?;
            if !approval.on_the_way {
                slot.approvals.push(Arc::new(approval));
            }
        }
        if (row.ended_at.is_none() || task.status == "completing")
            && let Some(wait) = parse_opt::<WaitRow>(task.waits.as_deref())?
        {
            let children = children(connection, generation.conversation, row.task).await?;
            slot.wait = Some(Arc::new(Waiting {
                mode: wait.mode,
                on: wait.on,
                children: children.into_iter().map(Arc::new).collect(),
            }));
        }
        slot.row = Some(Arc::new(row));
    }
    Ok(Round {
        entry,
        content: Arc::new(content),
        slots,
    })
}

pub(super) async fn owed(
    connection: &mut SqliteConnection,
    after: TaskId,
    limit: i64,
) -> Result<Vec<(CallRow, CallOrigin, Value)>, sqlx::Error> {
    let rows = sqlx::query(call::OWED)
        .bind(after.0)
        .bind(limit)
        .fetch_all(&mut *connection)
        .await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in &rows {
        let row = CallRow::read(row)?;
        let task = sqlx::query(task::BY_ID)
            .bind(row.task.0)
            .fetch_optional(&mut *connection)
            .await?;
        let task = TaskRow::read(&task.ok_or_else(|| missing(format_args!("task {}", row.task)))?)?;
        let origin: CallOrigin = parse(
            task.input
                .as_deref()
                .ok_or_else(|| missing(format_args!("the input of task {}", row.task)))?,
        )?;
        let arguments = match &row.arguments {
            Some(arguments) => arguments.clone(),
            None => {
                let content = answer(connection, origin.entry).await?;
                calls_of(&content)
                    .nth(row.ordinal)
                    .map_or(Value::Null, |call| call.arguments.clone())
            }
        };
        found.push((row, origin, arguments));
    }
    Ok(found)
}

/// An approval as its task has it.
pub(super) fn approval_of(row: &TaskRow) -> Result<Approval, sqlx::Error> {
    let input = row
        .input
        .as_deref()
        .ok_or_else(|| missing(format_args!("the question of task {}", row.id)))?;
    let mut approval: Approval = parse(input)?;
    if let Some(settled) = parse_opt::<Settled>(row.outcome.as_deref())? {
        approval.state = settled.state;
        approval.decision = settled.decision;
        approval.used_at = settled.used_at;
    }
    Ok(approval)
}
