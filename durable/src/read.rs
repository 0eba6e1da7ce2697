//! Reads of committed state, on connections of their own.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;
use sqlx::{Row as _, SqliteConnection, SqlitePool, sqlite::SqliteRow};

use crate::{
    context::{Context, Item, calls_of},
    conversation::state::{
        Active, CallEnd, CallOrigin, Phase, Progress, Round, Settled, Slot, State,
    },
    engine::Rebuilt,
    error::SessionError,
    gate::{Approval, ApprovalState},
    id::{ConversationId, EntryId, Hash, RequestId, SubmissionId, TaskId},
    ledger::RunState,
    message::{Message, Part, ToolSchema},
    section::Told,
    sql::{
        attempt::{self, Attempt, part_of},
        call::{self, CallRow},
        chunk::{self, ChunkRow},
        conversation::{self, ConversationRow},
        entry::{self, EntryRow, kind, parse, parse_opt},
        open_work::What,
        submission::{self, SubmissionRow},
        task::{self, TaskRow},
    },
    store::fault::of_read,
    submission::Submission,
    tool::{Tool, Toolbox},
    view::{CallView, ChunkView, ConversationSummary, ConversationView, EntryView, StreamKind},
    window::Window,
};

/// Most entries of one page.
const MOST_ENTRIES: usize = 1_000;

/// Reads. Clones share the connections.
#[derive(Clone)]
pub(crate) struct Reader {
    pub pool: SqlitePool,
    pub tools: Arc<dyn Toolbox>,
}

type Read<T> = Result<T, SessionError>;

/// A conversation as its rows have it.
pub(crate) struct Loaded {
    pub state: State,
    /// Output of open calls: retained window and offset.
    pub outputs: HashMap<TaskId, (Window, u64)>,
}

impl Reader {
    /// A conversation's state; `None` where there is none.
    pub async fn load(&self, id: ConversationId) -> Read<Option<Loaded>> {
        let mut tx = self.pool.begin().await.map_err(of_read)?;
        let loaded = load(&mut tx, id).await.map_err(of_read)?;
        Ok(loaded)
    }

    /// The entries of the context: from the newest head on, through `cutoff`.
    pub async fn context(&self, id: ConversationId, cutoff: Option<EntryId>) -> Read<Vec<Item>> {
        let mut tx = self.pool.begin().await.map_err(of_read)?;
        context(&mut tx, id, cutoff).await.map_err(of_read)
    }

    /// A part's JSON by its hash.
    pub async fn part(&self, hash: &Hash) -> Read<Value> {
        let row = sqlx::query(attempt::PART)
            .bind(&hash.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        let row = row.ok_or_else(|| {
            SessionError::Corrupt(format!("part {} of a request is missing", hash.0))
        })?;
        part_of(&row).map_err(of_read)
    }

    pub async fn attempt(&self, task: TaskId, number: u32) -> Read<Option<Attempt>> {
        let mut connection = self.pool.acquire().await.map_err(of_read)?;
        attempt_of(&mut connection, task, number)
            .await
            .map_err(of_read)
    }

    pub async fn submission(&self, id: SubmissionId) -> Read<Option<SubmissionRow>> {
        let row = sqlx::query(submission::BY_ID)
            .bind(id.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        row.as_ref()
            .map(SubmissionRow::read)
            .transpose()
            .map_err(of_read)
    }

    pub async fn by_request(
        &self,
        conversation: ConversationId,
        id: &RequestId,
    ) -> Read<Option<SubmissionRow>> {
        let row = sqlx::query(submission::BY_REQUEST)
            .bind(conversation.0)
            .bind(&id.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        row.as_ref()
            .map(SubmissionRow::read)
            .transpose()
            .map_err(of_read)
    }

    pub async fn approval(&self, id: TaskId) -> Read<Option<Approval>> {
        let row = sqlx::query(task::BY_ID)
            .bind(id.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        let Some(row) = row else { return Ok(None) };
        let row = TaskRow::read(&row).map_err(of_read)?;
        if row.kind_is_approval() {
            approval_of(&row).map(Some).map_err(of_read)
        } else {
            Ok(None)
        }
    }

    pub async fn approvals(
        &self,
        conversation: Option<ConversationId>,
        pending_only: bool,
    ) -> Read<Vec<Approval>> {
        let query = match (conversation, pending_only) {
            (Some(id), true) => sqlx::query(task::OPEN)
                .bind(id.0)
                .bind(What::Approval as i64),
            (None, true) => sqlx::query(task::OPEN_APPROVALS),
            (id, false) => sqlx::query(task::APPROVALS).bind(id.map(|id| id.0)),
        };
        let rows = query.fetch_all(&self.pool).await.map_err(of_read)?;
        rows.iter()
            .map(|row| approval_of(&TaskRow::read(row)?))
            .collect::<Result<_, _>>()
            .map_err(of_read)
    }

    /// One column of ids, for sweeps.
    pub async fn ids(&self, sql: &'static str, binds: &[i64]) -> Read<Vec<i64>> {
        let mut query = sqlx::query(sql);
        for bind in binds {
            query = query.bind(bind);
        }
        let rows = query.fetch_all(&self.pool).await.map_err(of_read)?;
        rows.iter()
            .map(|row| row.try_get(0))
            .collect::<Result<_, _>>()
            .map_err(of_read)
    }

    /// One number; `None` where there is none.
    pub async fn number(&self, sql: &'static str, binds: &[i64]) -> Read<Option<i64>> {
        let mut query = sqlx::query(sql);
        for bind in binds {
            query = query.bind(bind);
        }
        let row = query.fetch_optional(&self.pool).await.map_err(of_read)?;
        row.map_or(Ok(None), |row| row.try_get(0)).map_err(of_read)
    }

    /// Calls whose release or kill is owed, after a task.
    pub async fn owed(&self, after: TaskId, limit: i64) -> Read<Vec<(CallRow, CallOrigin, Value)>> {
        let mut connection = self.pool.acquire().await.map_err(of_read)?;
        owed(&mut connection, after, limit).await.map_err(of_read)
    }

    /// The committed partial of an answer: text and thinking.
    pub async fn partial(&self, task: TaskId) -> Read<(String, String)> {
        let rows = sqlx::query(chunk::OF_TASK)
            .bind(task.0)
            .fetch_all(&self.pool)
            .await
            .map_err(of_read)?;
        let mut partial = (String::new(), String::new());
        for row in &rows {
            let chunk = ChunkRow::read(row).map_err(of_read)?;
            match chunk.stream {
                StreamKind::Answer => partial.0.push_str(&chunk.text),
                StreamKind::Thinking => partial.1.push_str(&chunk.text),
                StreamKind::Output => {}
            }
        }
        Ok(partial)
    }

    /// A page of raw entries, oldest first, and whether there are older ones.
    pub async fn entries(
        &self,
        id: ConversationId,
        before: Option<EntryId>,
        limit: usize,
    ) -> Read<(Vec<EntryView>, bool)> {
        let mut tx = self.pool.begin().await.map_err(of_read)?;
        page(&mut tx, id, before, limit).await.map_err(of_read)
    }

    /// The request of an attempt, from its parts and entries.
    pub async fn rebuild(&self, id: ConversationId, attempt: &Attempt) -> Read<Rebuilt> {
        let (options, tools) = (
            self.part(&attempt.options).await?,
            self.part(&attempt.tools).await?,
        );
        let tools: Vec<ToolSchema> = serde_json::from_value(tools)
            .map_err(|error| SessionError::Corrupt(format!("tools of a request: {error}")))?;
        let mut context = Context::derive(&self.context(id, Some(attempt.cutoff)).await?);
        let (request, hash) = context.request(&attempt.model, &options, &tools);
        Ok(Rebuilt {
            request: Arc::unwrap_or_clone(request),
            exact: hash == attempt.request,
        })
    }

    /// A snapshot of one conversation.
    pub async fn view(
        &self,
        id: ConversationId,
        entries: usize,
        before: Option<EntryId>,
    ) -> Read<Option<ConversationView>> {
        let mut tx = self.pool.begin().await.map_err(of_read)?;
        let sequence: i64 = sqlx::query("SELECT commit_no FROM session")
            .fetch_one(&mut *tx)
            .await
            .and_then(|row| row.try_get(0))
            .map_err(of_read)?;
        let Some(loaded) = load(&mut tx, id).await.map_err(of_read)? else {
            return Ok(None);
        };
        let (entries, more) = page(&mut tx, id, before, entries).await.map_err(of_read)?;
        let chunks = sqlx::query(chunk::OF_CONVERSATION)
            .bind(id.0)
            .fetch_all(&mut *tx)
            .await
            .map_err(of_read)?;
        let chunks = chunks
            .iter()
            .map(ChunkRow::read)
            .collect::<Result<Vec<_>, _>>()
            .map_err(of_read)?;
        drop(tx);
        let State {
            row, queue, run, ..
        } = loaded.state;
        let tools = self.tools.tools(id);
        let round = run.as_ref().and_then(|run| run.round.as_ref());
        let slots = round.map_or(&[][..], |round| &round.slots);
        Ok(Some(ConversationView {
            conversation: id,
            title: row.title.clone(),
            settings: row.settings.clone(),
            model: row.model.clone(),
            sequence: sequence as u64,
            entries,
            more,
            calls: slots
                .iter()
                .filter_map(|slot| call_view(slot, &tools))
                .collect(),
            approvals: slots
                .iter()
                .flat_map(|slot| &slot.approvals)
                .filter(|approval| approval.state == ApprovalState::Pending)
                .map(|approval| (**approval).clone())
                .collect(),
            run: run.map(|run| run.progress.run),
            chunks: stored_output(&loaded.outputs)
                .into_iter()
                .chain(chunks.into_iter().map(|row| ChunkView {
                    of: row.stream,
                    task: row.task,
                    offset: row.offset,
                    text: row.text,
                }))
                .collect(),
            inbox: queue.iter().map(|row| row.submission.clone()).collect(),
        }))
    }

    /// The list of conversations, newest activity first.
    pub async fn conversations(
        &self,
        limit: usize,
        before: Option<ConversationId>,
    ) -> Read<Vec<ConversationSummary>> {
        let rows = sqlx::query(conversation::LIST)
            .bind(before.map(|id| id.0))
            .bind(before.map(|id| id.0))
            .bind(before.map(|id| id.0))
            .bind(limit.min(MOST_ENTRIES) as i64)
            .fetch_all(&self.pool)
            .await
            .map_err(of_read)?;
        rows.iter()
            .map(summary)
            .collect::<Result<_, _>>()
            .map_err(of_read)
    }
}

/// What is in a checkpoint's window, as one piece.
fn stored_output(outputs: &HashMap<TaskId, (Window, u64)>) -> Vec<ChunkView> {
    let mut pieces: Vec<_> = outputs
        .iter()
        .filter(|(_, (_, offset))| *offset > 0)
        .map(|(task, (window, _))| ChunkView {
            of: StreamKind::Output,
            task: *task,
            offset: 0,
            text: window.render(),
        })
        .collect();
    pieces.sort_by_key(|piece| piece.task);
    pieces
}

fn summary(row: &SqliteRow) -> Result<ConversationSummary, sqlx::Error> {
    let base = ConversationRow::read(row)?;
    let phase: Option<String> = row.try_get(5)?;
    let state = match phase
        .as_deref()
        .map(|phase| parse::<RunState>(&format!("\"{phase}\"")))
        .transpose()?
    {
        None => "idle",
        Some(RunState::Waiting | RunState::Retrying | RunState::NeedsKey) => "waiting",
        Some(_) => "running",
    };
    Ok(ConversationSummary {
        id: base.id,
        title: base.title,
        settings: base.settings,
        last_at: base.last_at,
        state,
        pending_approvals: row.try_get::<i64, _>(6)? as usize,
        queued: row.try_get::<i64, _>(7)? as usize,
        entries: row.try_get::<Option<i64>, _>(8)?.unwrap_or(0) as u64,
        first: row.try_get::<Option<i64>, _>(9)?.map(SubmissionId),
    })
}

async fn page(
    connection: &mut SqliteConnection,
    id: ConversationId,
    before: Option<EntryId>,
    limit: usize,
) -> Result<(Vec<EntryView>, bool), sqlx::Error> {
    let before = match before {
        None => i64::MAX,
        Some(entry) => sqlx::query(entry::SEQ_OF)
            .bind(entry.0)
            .bind(id.0)
            .fetch_optional(&mut *connection)
            .await?
            .map_or(Ok(0), |row| row.try_get(0))?,
    };
    let limit = limit.min(MOST_ENTRIES);
    let rows = sqlx::query(entry::BEFORE)
        .bind(id.0)
        .bind(before)
        .bind(limit as i64 + 1)
        .fetch_all(&mut *connection)
        .await?;
    let more = rows.len() > limit;
    let mut items = items(connection, &rows[..rows.len().min(limit)]).await?;
    items.reverse();
    Ok((items.iter().map(entry_view).collect(), more))
}

/// An entry as it is shown.
pub(crate) fn entry_view(item: &Item) -> EntryView {
    EntryView {
        id: item.row.id,
        conversation: item.row.conversation,
        kind: item.row.kind.clone(),
        at: item.row.at,
        message: item.message(),
        data: item.row.data.clone(),
        state: item.row.state.to_owned(),
    }
}

/// A call as it is shown.
pub(crate) fn call_view(slot: &Slot, tools: &[Arc<dyn Tool>]) -> Option<CallView> {
    let row = slot.row.as_ref()?;
    let arguments = row
        .arguments
        .clone()
        .unwrap_or_else(|| slot.proposed.arguments.clone());
    let tool = tools
        .iter()
        .find(|tool| tool.declaration().schema.name == row.tool);
    Some(CallView {
        task: row.task,
        conversation: row.conversation,
        tool: row.tool.clone(),
        summary: tool.map_or_else(|| row.tool.clone(), |tool| tool.summary(&arguments)),
        arguments,
        state: row.state,
        started_at: row.started_at,
        ended_at: row.ended_at,
        note: row.note.clone(),
    })
}

/// Entries with the texts that they name by hash.
async fn items(
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

async fn context(
    connection: &mut SqliteConnection,
    id: ConversationId,
    cutoff: Option<EntryId>,
) -> Result<Vec<Item>, sqlx::Error> {
    let cutoff = cutoff.map_or(i64::MAX, |entry| entry.0);
    let head = sqlx::query(entry::HEAD)
        .bind(id.0)
        .bind(cutoff)
        .fetch_optional(&mut *connection)
        .await?;
    let (head_seq, from): (Option<i64>, i64) = match &head {
        Some(row) => (Some(row.try_get(0)?), row.try_get(1)?),
        None => (None, 0),
    };
    // The head's own entry comes first, also where its range begins before it.
    let mut found = Vec::new();
    if let Some(seq) = head_seq.filter(|seq| *seq > from) {
        let rows = sqlx::query(entry::FROM)
            .bind(id.0)
            .bind(seq)
            .bind(cutoff)
            .bind(1_i64)
            .fetch_all(&mut *connection)
            .await?;
        found.extend(items(connection, &rows).await?);
    }
    let rows = sqlx::query(entry::FROM)
        .bind(id.0)
        .bind(from)
        .bind(cutoff)
        .bind(i64::MAX)
        .fetch_all(&mut *connection)
        .await?;
    let rest = items(connection, &rows).await?;
    let own = found.first().map(|item| item.row.id);
    found.extend(rest.into_iter().filter(|item| Some(item.row.id) != own));
    Ok(found)
}

async fn load(
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
    let head = sqlx::query(entry::NEWEST_HEAD)
        .bind(id.0)
        .fetch_optional(&mut *connection)
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
    let state = State {
        row: Arc::new(row),
        seq: seq.unwrap_or(0),
        head: head.map(|row| row.try_get(0)).transpose()?.map(EntryId),
        queue: queue.into_iter().map(Arc::new).collect(),
        run,
    };
    Ok(Some(Loaded { state, outputs }))
}

/// Damage: a record that another one names is not there.
fn missing(what: std::fmt::Arguments<'_>) -> sqlx::Error {
    sqlx::Error::Decode(format!("{what} is missing").into())
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

async fn attempt_of(
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
        slot.terminate = end.is_some_and(|end| end.terminate);
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
            slot.approvals
                .push(Arc::new(approval_of(&TaskRow::read(approval)?)?));
        }
        slot.row = Some(Arc::new(row));
    }
    Ok(Round {
        entry,
        content: Arc::new(content),
        slots,
    })
}

async fn owed(
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

/// Output that the chunks hold, after what the checkpoint holds.
pub(crate) async fn output_of(
    reader: &Reader,
    task: TaskId,
    stored: Option<(Window, u64)>,
    retain: crate::window::Retain,
) -> Read<(Window, u64)> {
    let (mut window, mut offset) = stored.unwrap_or_else(|| (Window::new(retain), 0));
    let rows = sqlx::query(chunk::OF_TASK)
        .bind(task.0)
        .fetch_all(&reader.pool)
        .await
        .map_err(of_read)?;
    for row in &rows {
        let chunk = ChunkRow::read(row).map_err(of_read)?;
        if chunk.stream == StreamKind::Output {
            window.push(&chunk.text);
            offset = chunk.offset + chunk.length;
        }
    }
    Ok((window, offset))
}

/// An approval as its task has it.
fn approval_of(row: &TaskRow) -> Result<Approval, sqlx::Error> {
    let input = row
        .input
        .as_deref()
        .ok_or_else(|| missing(format_args!("the question of task {}", row.id)))?;
    let mut approval: Approval = parse(input)?;
    if let Some(settled) = parse_opt::<Settled>(row.outcome.as_deref())? {
        approval.state = settled.state;
        approval.decision = settled.decision;
    }
    Ok(approval)
}
