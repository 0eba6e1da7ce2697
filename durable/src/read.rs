//! Reads of committed state, on connections of their own.

mod chain;
mod load;
mod work;

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;
use sqlx::{Row as _, SqliteConnection, SqlitePool, sqlite::SqliteRow};

use self::chain::{Chain, Position};
use self::load::{approval_of, attempt_of, context, items, load, owed};
use crate::{
    compaction,
    context::{Context, Item},
    conversation::state::{CallOrigin, Slot, State},
    document::Scope,
    error::SessionError,
    gate::{Approval, ApprovalState},
    id::{CommitNo, ConversationId, EntryId, Hash, RequestId, SubmissionId, TaskId},
    ledger::RunState,
    message::ToolSchema,
    reading::Rebuilt,
    sql::{
        attempt::{self, Attempt, part_of},
        call::CallRow,
        chunk::{self, ChunkRow},
        conversation::{self, ConversationRow},
        document::{self, StoredDocument},
        entry::{parse, parse_opt},
        open_work::What,
        submission::{self, SubmissionRow},
        task::{self, TaskRow},
    },
    store::fault::of_read,
    tool::{Tool, Toolbox},
    view::{
        CallView, ChunkView, ConversationSummary, ConversationView, EntryView, Shows, StreamKind,
    },
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

/// Where a fork begins.
pub(crate) struct Place {
    pub entry: EntryId,
    /// What is seen from there, nearest first, each with its last sequence.
    pub sources: Vec<(ConversationId, i64)>,
}

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

    /// A conversation's row; `None` where there is none.
    pub async fn conversation(&self, id: ConversationId) -> Read<Option<ConversationRow>> {
        let row = sqlx::query(conversation::READ)
            .bind(id.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        row.as_ref()
            .map(ConversationRow::read)
            .transpose()
            .map_err(of_read)
    }

    /// Where a fork at an entry, or at the newest, begins; `None`: that cannot be seen.
    pub async fn place_of(&self, id: ConversationId, at: Option<EntryId>) -> Read<Option<Place>> {
        let mut tx = self.pool.begin().await.map_err(of_read)?;
        let chain = Chain::read(&mut tx, id).await.map_err(of_read)?;
        let found = match at {
            Some(entry) => chain
                .position(&mut tx, entry)
                .await
                .map_err(of_read)?
                .map(|position| (entry, position)),
            None => chain.newest(&mut tx).await.map_err(of_read)?,
        };
        Ok(found.map(|(entry, position)| {
            let mut sources = chain.0[position.depth..].to_vec();
            sources[0].1 = position.seq;
            Place { entry, sources }
        }))
    }

    /// A document at the end of a commit, in the version in which it was written.
    pub async fn document(
        &self,
        scope: Scope,
        name: &str,
        at: Option<CommitNo>,
    ) -> Read<Option<StoredDocument>> {
        let (scope, owner) = document::address(scope);
        let row = sqlx::query(document::READ)
            .bind(scope)
            .bind(owner)
            .bind(name)
            .bind(at.map_or(i64::MAX, |at| at.0))
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        row.as_ref()
            .map(StoredDocument::read)
            .transpose()
            .map_err(of_read)
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

    pub async fn conversation_of_request(
        &self,
        request: &RequestId,
    ) -> Read<Option<ConversationId>> {
        let row = sqlx::query(submission::CONVERSATION_OF_REQUEST)
            .bind(&request.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        row.map(|row| row.try_get(0).map(ConversationId))
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
        let row = self.task(id, task::kind::APPROVAL).await?;
        row.as_ref().map(approval_of).transpose().map_err(of_read)
    }

    /// Approvals of a conversation that were asked for on the way with these
    /// arguments, oldest first.
    pub async fn passed(&self, conversation: ConversationId, hash: &Hash) -> Read<Vec<Approval>> {
        let rows = sqlx::query(task::APPROVALS_OF_HASH)
            .bind(conversation.0)
            .bind(&hash.0)
            .fetch_all(&self.pool)
            .await
            .map_err(of_read)?;
        rows.iter()
            .map(|row| approval_of(&TaskRow::read(row)?))
            .collect::<Result<_, _>>()
            .map_err(of_read)
    }

    /// A task by its id; `None` where there is none of this kind.
    async fn task(&self, id: TaskId, kind: &str) -> Read<Option<TaskRow>> {
        let row = sqlx::query(task::BY_ID)
            .bind(id.0)
            .fetch_optional(&self.pool)
            .await
            .map_err(of_read)?;
        let row = row.as_ref().map(TaskRow::read).transpose();
        Ok(row.map_err(of_read)?.filter(|row| row.kind == kind))
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

    /// One column, for sweeps.
    pub async fn column<T>(&self, sql: &'static str, binds: &[i64]) -> Read<Vec<T>>
    where
        T: for<'row> sqlx::Decode<'row, sqlx::Sqlite> + sqlx::Type<sqlx::Sqlite>,
    {
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

    /// One number, by a text; `None` where there is none.
    pub async fn text_number(&self, sql: &'static str, bind: &str) -> Read<Option<i64>> {
        let query = sqlx::query(sql).bind(bind);
        let row = query.fetch_optional(&self.pool).await.map_err(of_read)?;
        row.map_or(Ok(None), |row| row.try_get(0)).map_err(of_read)
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
        let Some(shows) = shows(&mut tx, id).await.map_err(of_read)? else {
            return Ok((Vec::new(), false));
        };
        page(&mut tx, id, shows, before, limit)
            .await
            .map_err(of_read)
    }

    /// The request of an attempt, from its parts and entries.
    pub async fn rebuild(&self, id: ConversationId, attempt: &Attempt) -> Read<Rebuilt> {
        let (options, tools) = (
            self.part(&attempt.options).await?,
            self.part(&attempt.tools).await?,
        );
        let tools: Vec<ToolSchema> = serde_json::from_value(tools)
            .map_err(|error| SessionError::Corrupt(format!("tools of a request: {error}")))?;
        let items = self.context(id, Some(attempt.cutoff)).await?;
        if let Some(input) = self.compaction(attempt.task).await? {
            let request = compaction::request(&items, &input, &attempt.model, &options);
            let json = serde_json::to_vec(&request).expect("requests are plain data");
            return Ok(Rebuilt {
                exact: Hash::of(&json) == attempt.request,
                request,
            });
        }
        let mut context = Context::derive(&items);
        let (request, hash) = context.request(&attempt.model, &options, &tools);
        Ok(Rebuilt {
            request: Arc::unwrap_or_clone(request),
            exact: hash == attempt.request,
        })
    }

    /// The input of a compaction's task; `None` of any other.
    async fn compaction(&self, task: TaskId) -> Read<Option<compaction::Input>> {
        match self.task(task, task::kind::COMPACTION).await? {
            Some(row) => parse_opt(row.input.as_deref()).map_err(of_read),
            None => Ok(None),
        }
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
        let shows = loaded.state.row.origin.shows;
        let (entries, more) = page(&mut tx, id, shows, before, entries)
            .await
            .map_err(of_read)?;
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
            row,
            queue,
            run,
            compaction,
            passing,
            ..
        } = loaded.state;
        let tools = named(&self.tools.tools(id, &row.settings));
        let round = run.as_ref().and_then(|run| run.round.as_ref());
        let slots = round.map_or(&[][..], |round| &round.slots);
        Ok(Some(ConversationView {
            conversation: id,
            title: row.title.clone(),
            settings: row.settings.clone(),
            model: row.model.clone(),
            origin: row.origin,
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
                .chain(&passing)
                .filter(|approval| approval.state == ApprovalState::Pending)
                .map(|approval| (**approval).clone())
                .collect(),
            questions: slots
                .iter()
                .filter_map(|slot| Some((slot.row.as_ref()?.task, slot.wait.as_ref()?)))
                .flat_map(|(call, waiting)| {
                    let open = waiting.open();
                    open.filter_map(move |child| child.question(id, call))
                })
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
            compaction: compaction.map(|going| going.input.mode),
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
    let phase: Option<String> = row.try_get(11)?;
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
        pending_approvals: row.try_get::<i64, _>(12)? as usize,
        queued: row.try_get::<i64, _>(13)? as usize,
        entries: row.try_get::<Option<i64>, _>(14)?.unwrap_or(0) as u64,
        first: row.try_get::<Option<i64>, _>(15)?.map(SubmissionId),
    })
}

async fn shows(
    connection: &mut SqliteConnection,
    id: ConversationId,
) -> Result<Option<Shows>, sqlx::Error> {
    let row = sqlx::query(conversation::READ)
        .bind(id.0)
        .fetch_optional(connection)
        .await?;
    Ok(row
        .as_ref()
        .map(ConversationRow::read)
        .transpose()?
        .map(|row| row.origin.shows))
}

async fn page(
    connection: &mut SqliteConnection,
    id: ConversationId,
    shows: Shows,
    before: Option<EntryId>,
    limit: usize,
) -> Result<(Vec<EntryView>, bool), sqlx::Error> {
    let mut chain = Chain::read(connection, id).await?;
    if shows == Shows::Own {
        chain.0.truncate(1);
    }
    let position = match before {
        None => Some(Position {
            depth: 0,
            seq: i64::MAX,
        }),
        Some(entry) => chain.position(connection, entry).await?,
    };
    let Some(position) = position else {
        return Ok((Vec::new(), false));
    };
    let limit = limit.min(MOST_ENTRIES);
    let rows = chain.before(connection, position, limit + 1).await?;
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
        writer: item.row.writer,
    }
}

/// Tools by their names, which a tool says only in its whole declaration.
pub(crate) fn named(tools: &[Arc<dyn Tool>]) -> Vec<(String, Arc<dyn Tool>)> {
    let name = |tool: &Arc<dyn Tool>| tool.declaration().schema.name;
    tools.iter().map(|it| (name(it), it.clone())).collect()
}

/// A call as it is shown.
pub(crate) fn call_view(slot: &Slot, tools: &[(String, Arc<dyn Tool>)]) -> Option<CallView> {
    let row = slot.row.as_ref()?;
    let arguments = row
        .arguments
        .clone()
        .unwrap_or_else(|| slot.proposed.arguments.clone());
    let tool = tools.iter().find(|(name, _)| *name == row.tool);
    Some(CallView {
        task: row.task,
        conversation: row.conversation,
        tool: row.tool.clone(),
        summary: tool.map_or_else(|| row.tool.clone(), |(_, tool)| tool.summary(&arguments)),
        arguments,
        state: row.state,
        started_at: row.started_at,
        ended_at: row.ended_at,
        note: row.note.clone(),
    })
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
