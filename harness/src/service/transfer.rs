//! Conversations that leave and arrive: export, import, deletion.

use mooring_durable::{
    error::SessionError,
    id::{ConversationId, TaskId},
    transfer::{Header, Import, ImportError},
};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use serde_json::{Map, Value};
use tonic::{Request, Status, Streaming};

use super::{Frames, Service, session, storage, threads::async_stream};
use crate::{
    members::{Act, Actor, may},
    record::{audit, outbox, thread},
};

/// Bytes of lines in one message, about.
const CHUNK: usize = 256 << 10;
/// The table that an export ends with: how many lines came before.
const END: &str = "end";
/// Bytes of the longest line.
const MAX_LINE: usize = 64 << 20;

/// An import on its way.
struct Arriving {
    import: Import,
    lines: u64,
    /// Its end came, and nothing was missing.
    whole: bool,
}

fn not_imported(error: ImportError) -> Status {
    match error {
        ImportError::Session(error) => session(error),
        error => status(Code::Invalid, error.to_string()),
    }
}

impl Service {
    pub(super) async fn delete(
        &self,
        actor: Actor,
        request: wire::DeleteRequest,
    ) -> Result<wire::DeleteResponse, Status> {
        may(&actor, Act::Transfer).map_err(|text| status(Code::Forbidden, text))?;
        let conversation = ConversationId(request.conversation);
        let extra = vec![
            thread::left(conversation),
            outbox::forgotten(conversation, self.clock.now()),
        ];
        self.engine
            .delete(conversation, extra)
            .await
            .map_err(session)?;
        Ok(self.leave_worktree(conversation).await)
    }

    pub(super) async fn export(
        &self,
        actor: Actor,
        request: wire::ExportRequest,
    ) -> Result<Frames<wire::ExportChunk>, Status> {
        may(&actor, Act::Transfer).map_err(|text| status(Code::Forbidden, text))?;
        let conversation = ConversationId(request.conversation);
        let mut export = self.engine.export(conversation).await.map_err(session)?;
        let pool = self.engine.reader().clone();
        let stream = async_stream(move |sender| async move {
            let sent = |chunk| {
                let sender = sender.clone();
                async move { sender.send(chunk).await.is_ok() }
            };
            let (mut lines, mut conversations) = (String::new(), Vec::new());
            let mut count: u64 = 0;
            while let Some(line) = export.next().await {
                let line = match line {
                    Ok(line) => line,
                    Err(error) => {
                        sent(Err(session(error))).await;
                        return;
                    }
                };
                if conversations.is_empty() {
                    let header = serde_json::from_str::<Header>(&line);
                    conversations = header.map_or_else(|_| Vec::new(), |it| it.conversations);
                }
                count += 1;
                lines.push_str(&line);
                lines.push('\n');
                if lines.len() > CHUNK {
                    let lines = std::mem::take(&mut lines);
                    if !sent(Ok(wire::ExportChunk { lines })).await {
                        return;
                    }
                }
            }
            for conversation in conversations {
                let mut after = 0;
                loop {
                    let rows = audit::exported(&pool, ConversationId(conversation), after).await;
                    let rows = match rows {
                        Ok(rows) => rows,
                        Err(error) => {
                            sent(Err(storage(&error))).await;
                            return;
                        }
                    };
                    let Some((last, _)) = rows.last() else { break };
                    after = *last;
                    count += rows.len() as u64;
                    for (_, row) in &rows {
                        lines.push_str(&format!(
                            "{{\"table\":\"{}\",\"row\":{row}}}\n",
                            audit::TABLE
                        ));
                    }
                    let lines = std::mem::take(&mut lines);
                    if !sent(Ok(wire::ExportChunk { lines })).await {
                        return;
                    }
                }
            }
            lines.push_str(&format!(
                "{{\"table\":\"{END}\",\"row\":{{\"lines\":{count}}}}}\n"
            ));
            sent(Ok(wire::ExportChunk { lines })).await;
        });
        Ok(Box::pin(stream))
    }

    pub(super) async fn import(
        &self,
        request: Request<Streaming<wire::ImportRequest>>,
    ) -> Result<wire::ImportResponse, Status> {
        let (metadata, extensions, mut parts) = request.into_parts();
        let caller = Request::from_parts(metadata, extensions, ());
        let (mut import, mut rest) = (None, String::new());
        let mut first = true;
        while let Some(part) = parts.message().await? {
            if std::mem::take(&mut first) {
                let actor = self.actor(&caller, part.author.as_ref());
                may(&actor, Act::Transfer).map_err(|text| status(Code::Forbidden, text))?;
            }
            rest.push_str(&part.lines);
            while let Some(end) = rest.find('\n') {
                let line: String = rest.drain(..=end).collect();
                self.line(&mut import, line.trim_end()).await?;
            }
            if rest.len() > MAX_LINE {
                let text = format!("a line of an export has at most {} MiB", MAX_LINE >> 20);
                return Err(status(Code::Invalid, text));
            }
        }
        self.line(&mut import, rest.trim_end()).await?;
        let arriving = import.filter(|arriving: &Arriving| arriving.whole);
        let Some(arriving) = arriving else {
            let text = "there is no export in it, or only the beginning of one; nothing was kept";
            return Err(status(Code::Invalid, text));
        };
        let conversation = arriving.import.finish().await.map_err(not_imported)?;
        Ok(wire::ImportResponse {
            conversation: conversation.0,
        })
    }

    async fn line(&self, arriving: &mut Option<Arriving>, line: &str) -> Result<(), Status> {
        if line.is_empty() {
            return Ok(());
        }
        let Some(arriving) = arriving else {
            let import = self.engine.import(line).await.map_err(not_imported)?;
            *arriving = Some(Arriving {
                import,
                lines: 1,
                whole: false,
            });
            return Ok(());
        };
        let import = &mut arriving.import;
        let taken = import.take(line).await.map_err(not_imported)?;
        arriving.lines += 1;
        match taken {
            None => Ok(()),
            Some((table, row)) if table == audit::TABLE => audited(import, row).await,
            Some((table, row)) if table == END => {
                arriving.whole = row.get("lines") == Some(&(arriving.lines - 1).into());
                Ok(())
            }
            Some((table, _)) => {
                let text = format!("this program knows no table {table}");
                Err(status(Code::Invalid, text))
            }
        }
    }
}

async fn audited(import: &mut Import, row: Map<String, Value>) -> Result<(), Status> {
    let number = |name: &str| row.get(name).and_then(Value::as_i64).unwrap_or(0);
    let conversation = import.conversation(ConversationId(number("conversation")));
    let Some(conversation) = conversation else {
        let text = "an audit row is of none of its conversations";
        return Err(status(Code::Invalid, text));
    };
    // The call may be gone: audit is kept longer than what ended.
    let call = import.task(TaskId(number("call"))).map_or(0, |task| task.0);
    let statement = audit::imported(conversation, call, &Value::Object(row));
    match import.extra(statement).await {
        Err(ImportError::Session(SessionError::Constraint(text))) => {
            Err(status(Code::Invalid, format!("an audit row: {text}")))
        }
        other => other.map_err(not_imported),
    }
}
