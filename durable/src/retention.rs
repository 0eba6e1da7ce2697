//! Retention: what is old, and what is left of deleted conversations, is removed in small
//! commits that wait in the line like all others. Entries that any conversation can still
//! see are kept.

use std::sync::Arc;

use crate::{
    conversation::Command,
    engine::Engine,
    error::SessionError,
    id::{ConversationId, Hash, Millis},
    ledger::{Bind, Statement},
    session::Session,
    sql::{
        batch::Batch,
        retention::{self as sql, PAGE},
        transfer::{OWNED, WORKS},
    },
    store::line::Request,
};

/// What a pass removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Tasks that had ended.
    pub tasks: usize,
    /// Submissions that were settled.
    pub submissions: usize,
    /// Revisions of documents that no entry's span needs.
    pub revisions: usize,
    /// Texts of prompts, and tools and options of requests, that nothing names any more.
    pub parts: usize,
}

impl Engine {
    /// Removes tasks, submissions and revisions that came to their end before a time, and
    /// parts that nothing names any more.
    pub async fn retain(&self, since: Millis) -> Result<Removed, SessionError> {
        let session = self.session();
        let mut removed = Removed::default();
        for (find, drop, count) in [
            (sql::TASKS, &sql::DROP_TASKS[..], &mut removed.tasks),
            (
                sql::SUBMISSIONS,
                &sql::DROP_SUBMISSIONS[..],
                &mut removed.submissions,
            ),
        ] {
            let mut after = 0;
            loop {
                let ids = session
                    .reader
                    .column::<i64>(find, &[after, since.0, PAGE])
                    .await?;
                let Some(last) = ids.last() else { break };
                after = *last;
                *count += ids.len();
                retire(session, drop, list(&ids)).await?;
            }
        }
        removed.revisions = self.retain_revisions(since).await?;
        removed.parts = self.retain_parts().await?;
        Ok(removed)
    }

    /// Removes parts that nothing names. One that this process has stored is left for the
    /// next one: a request may be on its way that names it.
    async fn retain_parts(&self) -> Result<usize, SessionError> {
        let session = self.session();
        let Ok(_alone) = session.parts_stay.try_write() else {
            return Ok(0);
        };
        // First the bounds: what came later is looked at again as it is removed.
        let since = session
            .reader
            .column::<String>(sql::PARTS_SINCE, &[])
            .await?;
        let since = since.first().map_or("[0,0]", String::as_str);
        let found = session.reader.column::<String>(sql::PARTS, &[]).await?;
        let unnamed: Vec<String> = found
            .into_iter()
            .filter(|hash| !session.has_part(&Hash(hash.clone())))
            .collect();
        for page in unnamed.chunks(PAGE as usize) {
            let hashes = serde_json::to_string(page).expect("texts are plain data");
            let bind = Bind::Text(format!("[{since},{hashes}]"));
            retire(session, &sql::DROP_PARTS, bind).await?;
        }
        Ok(unnamed.len())
    }

    /// Removes revisions that came to their end before a time.
    async fn retain_revisions(&self, since: Millis) -> Result<usize, SessionError> {
        let session = self.session();
        let before = session
            .reader
            .number(sql::COMMIT_BEFORE, &[since.0])
            .await?;
        let (Some(before), mut count) = (before, 0) else {
            return Ok(0);
        };
        loop {
            let pairs = session
                .reader
                .column::<String>(sql::REVISIONS, &[before, PAGE])
                .await?;
            if pairs.is_empty() {
                return Ok(count);
            }
            count += pairs.len();
            let pairs = format!("[{}]", pairs.join(","));
            retire(session, &sql::DROP_REVISIONS, Bind::Text(pairs)).await?;
        }
    }

    /// Deletes a conversation and those that its tasks own. Nothing of them can be
    /// reached any more; what forks still see is kept for them. None of them may be at
    /// work. `extra` are statements of the caller's own tables, in the same commit.
    pub async fn delete(
        &self,
        conversation: ConversationId,
        extra: Vec<Statement>,
    ) -> Result<(), SessionError> {
        let reader = &self.session().reader;
        if reader.conversation(conversation).await?.is_none() {
            return Err(SessionError::NoConversation(conversation));
        }
        let owned = reader.column::<i64>(OWNED, &[conversation.0]).await?;
        let works = reader.text_number(WORKS, &ids(&owned)).await?;
        if let Some(works) = works {
            return Err(SessionError::Working(ConversationId(works)));
        }
        // Those that it owns first: a process that ends in between leaves nobody's.
        for id in owned.iter().filter(|id| **id != conversation.0) {
            self.ask(ConversationId(*id), |reply| Command::Delete {
                extra: Vec::new(),
                reply,
            })
            .await?;
        }
        self.ask(conversation, |reply| Command::Delete { extra, reply })
            .await?;
        self.session().deleted.notify_one();
        Ok(())
    }
}

/// The statements that delete a conversation.
pub(crate) fn delete(conversation: ConversationId) -> impl Iterator<Item = Statement> {
    let of = move |sql| Statement {
        sql,
        binds: vec![Bind::Int(conversation.0)],
    };
    sql::DELETE.into_iter().map(of)
}

/// Removes what is left of deleted conversations, until the session ends.
pub(crate) async fn run(session: Arc<Session>) {
    loop {
        if let Err(error) = sweep(&session).await {
            tracing::warn!(%error, "what is left of deleted conversations stays for now");
            return;
        }
        tokio::select! {
            () = session.closing.cancelled() => return,
            () = session.deleted.notified() => {}
        }
    }
}

async fn sweep(session: &Arc<Session>) -> Result<(), SessionError> {
    for id in session.reader.column::<i64>(sql::DELETED, &[]).await? {
        if session.is_arriving(ConversationId(id)) {
            continue;
        }
        for (find, drop) in [
            (sql::TASKS_OF, &sql::DROP_TASKS[..]),
            (sql::SUBMISSIONS_OF, &sql::DROP_SUBMISSIONS[..]),
            (sql::ENTRIES_OF, &sql::DROP_ENTRIES[..]),
        ] {
            loop {
                let ids = session.reader.column::<i64>(find, &[id, PAGE]).await?;
                if ids.is_empty() {
                    break;
                }
                retire(session, drop, list(&ids)).await?;
            }
        }
        if session.reader.number(sql::LEFT_OF, &[id]).await?.is_none() {
            retire(session, &sql::DROP_CONVERSATION, Bind::Int(id)).await?;
        }
    }
    Ok(())
}

fn list(numbers: &[i64]) -> Bind {
    Bind::Text(ids(numbers))
}

/// A JSON list.
pub(crate) fn ids(numbers: &[i64]) -> String {
    serde_json::to_string(numbers).expect("numbers are plain data")
}

async fn retire(
    session: &Arc<Session>,
    statements: &[&'static str],
    bind: Bind,
) -> Result<(), SessionError> {
    let statement = |sql: &&'static str| Statement {
        sql,
        binds: vec![bind.clone()],
    };
    let request = Request {
        name: "retire",
        at: session.now(),
        batch: Batch::default(),
        extra: statements.iter().map(statement).collect(),
        changes: Vec::new(),
        view: None,
    };
    session.line.commit(request).await?;
    Ok(())
}
