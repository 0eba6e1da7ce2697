//! Writing a conversation out: one snapshot of the file, row by row.

use futures::TryStreamExt;
use sqlx::{AssertSqlSafe, Row as _, SqliteConnection};
use tokio::sync::mpsc;

use super::{Header, Spans, VERSION};
use crate::{
    engine::Engine,
    error::SessionError,
    id::ConversationId,
    retention::ids,
    sql::transfer::{ANCESTORS, OF_ANCESTOR, OF_CONVERSATION, OWNED, SPANS, TABLES, Table, WORKS},
    store::fault::of_read,
};

/// Lines that are read ahead.
const AHEAD: usize = 64;

/// The lines of an export, as they are read.
pub struct Export(mpsc::Receiver<Result<String, SessionError>>);

impl Export {
    /// The next line, without its end; `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<String, SessionError>> {
        self.0.recv().await
    }
}

impl Engine {
    /// Writes a conversation out as it stands now. It and those that its tasks own may
    /// not be at work; queued inputs are part of it.
    pub async fn export(&self, conversation: ConversationId) -> Result<Export, SessionError> {
        let session = self.session();
        let reader = &session.reader;
        if reader.conversation(conversation).await?.is_none() {
            return Err(SessionError::NoConversation(conversation));
        }
        let mut tx = reader.pool.begin().await.map_err(of_read)?;
        let header = header(&mut tx, conversation).await?;
        let (lines, received) = mpsc::channel(AHEAD);
        tokio::spawn(async move {
            if let Err(error) = write(&mut tx, &header, &lines).await {
                // Whoever has gone needs no reason.
                let _ = lines.send(Err(error)).await;
            }
        });
        Ok(Export(received))
    }
}

async fn header(
    connection: &mut SqliteConnection,
    conversation: ConversationId,
) -> Result<Header, SessionError> {
    let rows = sqlx::query(OWNED)
        .bind(conversation.0)
        .fetch_all(&mut *connection)
        .await
        .map_err(of_read)?;
    let conversations: Vec<i64> = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()
        .map_err(of_read)?;
    let own = ids(&conversations);
    let works = sqlx::query(WORKS)
        .bind(&own)
        .fetch_optional(&mut *connection);
    if let Some(row) = works.await.map_err(of_read)? {
        let id = row.try_get(0).map_err(of_read)?;
        return Err(SessionError::Working(ConversationId(id)));
    }
    let rows = sqlx::query(ANCESTORS)
        .bind(&own)
        .fetch_all(&mut *connection)
        .await
        .map_err(of_read)?;
    let ancestors: Vec<i64> = rows
        .iter()
        .map(|row| row.try_get(0))
        .collect::<Result<_, _>>()
        .map_err(of_read)?;
    let all: Vec<i64> = conversations.iter().chain(&ancestors).copied().collect();
    let row = sqlx::query(SPANS)
        .bind(ids(&all))
        .bind(&own)
        .fetch_one(connection);
    let row = row.await.map_err(of_read)?;
    let span = |at: usize| -> Result<[i64; 2], SessionError> {
        let end = |at| row.try_get::<Option<i64>, _>(at).map_err(of_read);
        Ok([end(at)?.unwrap_or(0), end(at + 1)?.unwrap_or(0)])
    };
    Ok(Header {
        mooring_export: VERSION,
        conversation: conversation.0,
        ids: Spans {
            conversation: span(0)?,
            entry: span(2)?,
            task: span(4)?,
            submission: span(6)?,
            document: span(8)?,
        },
        commit: row.try_get(10).map_err(of_read)?,
        incarnation: row.try_get(11).map_err(of_read)?,
        conversations,
        ancestors,
    })
}

type Lines = mpsc::Sender<Result<String, SessionError>>;

async fn write(
    connection: &mut SqliteConnection,
    header: &Header,
    lines: &Lines,
) -> Result<(), SessionError> {
    let first = serde_json::to_string(header).expect("a header is plain data");
    if lines.send(Ok(first)).await.is_err() {
        return Ok(());
    }
    let seen = sqlx::query(ANCESTORS)
        .bind(ids(&header.conversations))
        .fetch_all(&mut *connection)
        .await
        .map_err(of_read)?;
    for row in &seen {
        let (id, through) = (row.try_get(0), row.try_get(1));
        let (id, through) = (id.map_err(of_read)?, through.map_err(of_read)?);
        for (table, filter) in tables().filter(|(table, _)| OF_ANCESTOR.contains(&table.name)) {
            rows(connection, table, filter, [id, through], lines).await?;
        }
    }
    for id in &header.conversations {
        for (table, filter) in tables() {
            rows(connection, table, filter, [*id, i64::MAX], lines).await?;
        }
    }
    Ok(())
}

fn tables() -> impl Iterator<Item = (&'static Table, &'static str)> {
    TABLES.iter().zip(OF_CONVERSATION)
}

async fn rows(
    connection: &mut SqliteConnection,
    table: &Table,
    filter: &str,
    binds: [i64; 2],
    lines: &Lines,
) -> Result<(), SessionError> {
    let sql = format!("SELECT {} FROM {} {filter}", table.row, table.name);
    let query = sqlx::query(AssertSqlSafe(sql))
        .bind(binds[0])
        .bind(binds[1]);
    let mut found = query.fetch(connection);
    while let Some(row) = found.try_next().await.map_err(of_read)? {
        let row: &str = row.try_get(0).map_err(of_read)?;
        let line = format!("{{\"table\":\"{}\",\"row\":{row}}}", table.name);
        if lines.send(Ok(line)).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}
