//! Debts: executions outside of the process that are to be forgotten or ended, now
//! that what became of their calls is committed.

use std::{sync::Arc, time::Duration};

use futures::{StreamExt, stream};
use serde_json::Value;

use crate::{
    conversation::state::CallOrigin,
    id::{Hash, Millis, TaskId},
    session::Session,
    sql::{batch::Batch, call::CallRow},
    store::line::Request,
    tool::{Call, ToolFailure},
};

/// Debts that are paid at the same time.
const AT_ONCE: usize = 8;
const PAGE: i64 = 64;
/// A payment that takes longer has failed.
const LONGEST: Duration = Duration::from_secs(30);
/// Between two tries, in milliseconds: doubling from, and to.
const FIRST_WAIT: i64 = 1_000;
const LONGEST_WAIT: i64 = 30_000;

/// Pays debts until the session ends.
pub(crate) async fn run(session: Arc<Session>) {
    let mut wait = FIRST_WAIT;
    loop {
        let left = match pay_all(&session).await {
            Ok(left) => left,
            Err(error) => {
                tracing::warn!(%error, "releases of executions stop");
                return;
            }
        };
        let again = Millis(session.now().0 + wait);
        wait = if left {
            (wait * 2).min(LONGEST_WAIT)
        } else {
            FIRST_WAIT
        };
        tokio::select! {
            () = session.closing.cancelled() => return,
            () = session.owed.notified() => {}
            () = session.clock.until(again), if left => {}
        }
    }
}

/// Pays what can be paid; whether some are left.
async fn pay_all(session: &Arc<Session>) -> Result<bool, crate::error::SessionError> {
    let mut after = TaskId(0);
    let mut left = false;
    loop {
        let page = session.reader.owed(after, PAGE).await?;
        let Some((last, ..)) = page.last() else {
            return Ok(left);
        };
        after = last.task;
        let paid: Vec<_> = stream::iter(page)
            .map(|(row, origin, arguments)| pay(session, row, origin, arguments))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let mut batch = Batch::default();
        let mut settled: Vec<_> = paid.iter().flatten().copied().collect();
        left |= settled.len() < paid.len();
        settled.sort();
        settled.iter().for_each(|task| batch.settle_debt(*task));
        if !settled.is_empty() {
            let request = Request {
                name: "release",
                at: session.now(),
                batch,
                extra: Vec::new(),
                changes: Vec::new(),
                view: None,
            };
            session
                .line
                .commit(request)
                .await
                .map_err(|refused| refused.error)?;
        }
    }
}

async fn pay(
    session: &Arc<Session>,
    row: CallRow,
    origin: CallOrigin,
    arguments: Value,
) -> Option<TaskId> {
    let tools = session.ports.tools.tools(row.conversation, &Value::Null);
    let tool = tools
        .into_iter()
        .find(|tool| tool.declaration().schema.name == row.tool)?;
    let call = call_of(session, &row, &origin, arguments);
    let payment = async {
        if row.owed_kill {
            tool.kill(&call).await
        } else {
            tool.release(&call).await
        }
    };
    match tokio::time::timeout(LONGEST, payment).await {
        Ok(Ok(())) => Some(row.task),
        Ok(Err(ToolFailure::Unreachable(_))) | Err(_) => None,
        Ok(Err(error)) => {
            tracing::warn!(task = %row.task, tool = row.tool, %error, "an execution is not released; it is tried again");
            None
        }
    }
}

/// The call of a row.
pub(crate) fn call_of(
    session: &Session,
    row: &CallRow,
    origin: &CallOrigin,
    arguments: Value,
) -> Call {
    Call {
        conversation: row.conversation,
        run: origin.run,
        task: row.task,
        execution: execution(session, row.task),
        call_id: row.call_id.clone(),
        tool: row.tool.clone(),
        arguments_hash: row.hash.clone().unwrap_or_else(|| hash_of(&arguments)),
        arguments,
        requesters: origin.requesters.clone(),
        autonomous: origin.autonomous,
        binding: row.binding.clone(),
    }
}

/// The name of a call's execution: the file's incarnation and the task.
pub(crate) fn execution(session: &Session, task: TaskId) -> String {
    format!("{}-{task}", session.incarnation.0)
}

/// SHA-256 of the JSON of final arguments.
pub(crate) fn hash_of(arguments: &Value) -> Hash {
    Hash::of(arguments.to_string().as_bytes())
}
