//! The writer: makes groups of requests true, each group in one transaction.

use std::sync::{Arc, atomic::Ordering};

use rusqlite::{
    CachedStatement, Connection,
    types::{Null, ToSqlOutput, ValueRef},
};

use super::{
    failpoint::{Failpoints, Side},
    fault::{self, Fault, Stage},
    line::{Counters, Refused, Stands, Waiting},
};
use crate::{
    error::SessionError,
    hub::Hub,
    id::CommitNo,
    ledger::{Bind, Ledger, Statement},
    sql::{
        batch::Batch,
        row::{Column, Rows},
    },
    streams::{Streams, Taken},
    view::ChangeView,
};

/// First in every commit: the owner's generation is checked, the clock and the counters move.
const SESSION: &str = "UPDATE session SET generation = ?1, commit_no = ?2, next_conversation = ?3,
 next_entry = ?4, next_task = ?5, next_submission = ?6";

/// What the line's thread writes with.
pub(crate) struct Writer {
    pub generation: i64,
    pub commit_no: i64,
    pub counters: Arc<Counters>,
    pub streams: Arc<Streams>,
    pub ledger: Arc<dyn Ledger>,
    pub hub: Arc<Hub>,
    pub failpoints: Failpoints,
}

/// A member of a group.
struct Member {
    what: What,
    outcome: Option<Result<CommitNo, Fault>>,
}

/// What a member makes true.
enum What {
    Asked(Waiting),
    /// The streams' commit, which nobody waits for.
    Streams(Taken, Box<Batch>),
}

impl Member {
    fn new(what: What) -> Member {
        Member {
            what,
            outcome: None,
        }
    }

    fn name(&self) -> &'static str {
        match &self.what {
            What::Asked(waiting) => waiting.request.name,
            What::Streams(..) => "chunks",
        }
    }

    fn batch(&self) -> &Batch {
        match &self.what {
            What::Asked(waiting) => &waiting.request.batch,
            What::Streams(_, batch) => batch,
        }
    }

    fn extra(&self) -> &[Statement] {
        match &self.what {
            What::Asked(waiting) => &waiting.request.extra,
            What::Streams(..) => &[],
        }
    }
}

impl Writer {
    /// Commits a group. An error has failed the session; each member has its answer else.
    pub fn group(
        &mut self,
        file: &Connection,
        group: &mut Vec<Waiting>,
        taken: Taken,
    ) -> Result<(), SessionError> {
        let mut members = Vec::with_capacity(group.len() + 1);
        if !taken.is_empty() {
            let batch = Box::new(taken.batch());
            members.push(Member::new(What::Streams(taken, batch)));
        }
        members.extend(group.drain(..).map(|it| Member::new(What::Asked(it))));
        for member in &members {
            self.failpoints.crash(member.name(), Side::Before);
        }
        match self.commit_members(file, &mut members) {
            Ok(()) => {
                for member in &members {
                    self.failpoints.crash(member.name(), Side::After);
                }
                members.into_iter().for_each(|member| self.publish(member));
                Ok(())
            }
            Err(fault) => {
                group.extend(members.into_iter().filter_map(|member| match member.what {
                    What::Asked(waiting) => Some(waiting),
                    What::Streams(..) => None,
                }));
                Err(SessionError::from(&fault))
            }
        }
    }

    /// All in one, or each in a savepoint, or each alone.
    fn commit_members(&mut self, file: &Connection, members: &mut [Member]) -> Result<(), Fault> {
        match self.together(file, members) {
            Ok(()) => return Ok(()),
            Err(fatal @ (Fault::Fatal(_) | Fault::Superseded)) => return Err(fatal),
            Err(fault) if members.len() == 1 => {
                // One request alone failed cleanly; a full disk gets its one more try.
                let again = match fault {
                    Fault::Full => self.together(file, members),
                    fault => Err(fault),
                };
                return match again {
                    Err(fatal @ (Fault::Fatal(_) | Fault::Superseded)) => Err(fatal),
                    Err(fault) => {
                        members[0].outcome = Some(Err(fault));
                        Ok(())
                    }
                    Ok(()) => Ok(()),
                };
            }
            Err(Fault::Refused(_)) => match self.in_savepoints(file, members) {
                Ok(()) => return Ok(()),
                Err(fatal @ (Fault::Fatal(_) | Fault::Superseded)) => return Err(fatal),
                Err(Fault::Full | Fault::Refused(_)) => {}
            },
            Err(Fault::Full) => {}
        }
        for member in members {
            member.outcome = None;
            match self.together(file, std::slice::from_mut(member)) {
                Ok(()) => {}
                Err(fatal @ (Fault::Fatal(_) | Fault::Superseded)) => return Err(fatal),
                Err(fault) => member.outcome = Some(Err(fault)),
            }
        }
        Ok(())
    }

    /// Every member in one transaction; all stand or none.
    fn together(&mut self, file: &Connection, members: &mut [Member]) -> Result<(), Fault> {
        let number = self.commit_no + members.len() as i64;
        let fails = members
            .iter()
            .any(|member| self.failpoints.fails(member.name()));
        let mut stage = Stage::Statement;
        let mut commit = || -> rusqlite::Result<()> {
            run(file, "BEGIN IMMEDIATE")?;
            self.session(file, number)?;
            // Table by table, so that rows of one table follow each other.
            let tables: Vec<_> = members.iter().map(|it| it.batch().tables()).collect();
            for (at, sql) in Batch::SQL.into_iter().enumerate() {
                let mut statement = None;
                for (tables, number) in tables.iter().zip(self.commit_no + 1..) {
                    let rows = tables[at];
                    if !rows.is_empty() {
                        let statement = match &mut statement {
                            Some(statement) => statement,
                            none => none.insert(file.prepare_cached(sql)?),
                        };
                        put(statement, rows, number)?;
                    }
                }
            }
            for member in members.iter() {
                component(file, member.extra())?;
            }
            stage = Stage::Commit;
            match fails {
                true => Ok(()),
                false => run(file, "COMMIT"),
            }
        };
        let fault = match commit() {
            Ok(()) if fails => Fault::Fatal("a flush failed, as the test asked".into()),
            Ok(()) => {
                for (member, number) in members.iter_mut().zip(self.commit_no + 1..) {
                    member.outcome = Some(Ok(CommitNo(number)));
                }
                self.commit_no = number;
                return Ok(());
            }
            Err(error) => fault::of(&error, stage),
        };
        // After a failed COMMIT SQLite has rolled back by itself, or the session ends anyway.
        if fails || stage == Stage::Statement || !matches!(fault, Fault::Fatal(_)) {
            let _ = run(file, "ROLLBACK");
        }
        Err(fault)
    }

    /// Every member in a savepoint of its own, in one transaction. `Err(Full)`: SQLite
    /// has rolled the whole back, nobody has an outcome.
    fn in_savepoints(&mut self, file: &Connection, members: &mut [Member]) -> Result<(), Fault> {
        let statement = |error: rusqlite::Error| fault::of(&error, Stage::Statement);
        run(file, "BEGIN IMMEDIATE").map_err(statement)?;
        let mut number = self.commit_no;
        for member in members.iter_mut() {
            let one = || -> rusqlite::Result<()> {
                run(file, "SAVEPOINT request")?;
                self.session(file, number + 1)?;
                for (sql, rows) in Batch::SQL.into_iter().zip(member.batch().tables()) {
                    if !rows.is_empty() {
                        put(&mut file.prepare_cached(sql)?, rows, number + 1)?;
                    }
                }
                component(file, member.extra())?;
                run(file, "RELEASE request")
            };
            match one().map_err(statement) {
                Ok(()) => {
                    number += 1;
                    member.outcome = Some(Ok(CommitNo(number)));
                }
                Err(Fault::Refused(text)) => {
                    // Fails where the whole transaction is gone.
                    for sql in ["ROLLBACK TO request", "RELEASE request"] {
                        run(file, sql).map_err(|_| Fault::Full)?;
                    }
                    member.outcome = Some(Err(Fault::Refused(text)));
                }
                Err(fault) => {
                    let _ = run(file, "ROLLBACK");
                    return Err(fault);
                }
            }
        }
        match run(file, "COMMIT") {
            Ok(()) => {
                self.commit_no = number;
                Ok(())
            }
            Err(error) => {
                let _ = run(file, "ROLLBACK");
                Err(fault::of(&error, Stage::Commit))
            }
        }
    }

    /// Moves the session's row on to a commit.
    fn session(&self, file: &Connection, number: i64) -> rusqlite::Result<()> {
        let counters = &self.counters;
        let mut statement = file.prepare_cached(SESSION)?;
        for (at, value) in (1..).zip([
            self.generation,
            number,
            counters.conversation.load(Ordering::Relaxed),
            counters.entry.load(Ordering::Relaxed),
            counters.task.load(Ordering::Relaxed),
            counters.submission.load(Ordering::Relaxed),
        ]) {
            statement.raw_bind_parameter(at, value)?;
        }
        statement.raw_execute().map(|_| ())
    }

    /// Tells what stands: to the ledger, to watchers, to who asked.
    fn publish(&self, member: Member) {
        let outcome = member.outcome.unwrap_or(Err(Fault::Full));
        match (member.what, outcome) {
            (What::Asked(waiting), outcome) => {
                let Waiting { mut request, reply } = waiting;
                let answer = match outcome {
                    Ok(number) => {
                        self.ledger.committed(number, request.at, &request.changes);
                        let view = request.view.take();
                        let forgotten = view.map(|view| self.hub.publish(number.0 as u64, view));
                        Ok(Stands {
                            number,
                            request,
                            forgotten: forgotten.unwrap_or_default(),
                        })
                    }
                    Err(fault) => Err(Refused {
                        error: SessionError::from(&fault),
                        request: Some(request),
                    }),
                };
                // A caller that went away never undoes a commit.
                let _ = reply.send(answer);
            }
            (What::Streams(taken, _), Ok(number)) => {
                let mut views: Vec<_> = taken.views().into_iter().collect();
                views.sort_by_key(|(conversation, _)| *conversation);
                for (conversation, chunks) in views {
                    self.hub.publish(
                        number.0 as u64,
                        ChangeView {
                            chunks,
                            ..ChangeView::empty(conversation)
                        },
                    );
                }
            }
            (What::Streams(taken, _), Err(fault)) => {
                tracing::warn!(error = %SessionError::from(&fault), "running output waits for the next tick");
                self.streams.give_back(taken);
                self.streams.waiting.notify_one();
            }
        }
    }
}

fn run(file: &Connection, sql: &'static str) -> rusqlite::Result<()> {
    file.prepare_cached(sql)?.raw_execute().map(|_| ())
}

/// Writes the rows of one table under a commit's number.
fn put(statement: &mut CachedStatement<'_>, rows: &Rows, number: i64) -> rusqlite::Result<()> {
    statement.raw_bind_parameter(1, number)?;
    for row in rows.iter() {
        for (at, column) in (2..).zip(row) {
            match column {
                Column::Null => statement.raw_bind_parameter(at, Null),
                Column::Int(value) => statement.raw_bind_parameter(at, value),
                Column::Text(text) => {
                    statement.raw_bind_parameter(at, ToSqlOutput::Borrowed(ValueRef::Text(text)))
                }
            }?;
        }
        statement.raw_execute()?;
    }
    Ok(())
}

/// Runs a component's statements, whose binds are numbered from 1; rows that one
/// returns are nobody's.
fn component(file: &Connection, statements: &[Statement]) -> rusqlite::Result<()> {
    for Statement { sql, binds } in statements {
        let mut statement = file.prepare_cached(sql)?;
        for at in 1..=statement.parameter_count().min(binds.len()) {
            match &binds[at - 1] {
                Bind::Null => statement.raw_bind_parameter(at, Null),
                Bind::Int(value) => statement.raw_bind_parameter(at, value),
                Bind::Real(value) => statement.raw_bind_parameter(at, value),
                Bind::Text(value) => statement.raw_bind_parameter(at, value),
                Bind::Blob(value) => statement.raw_bind_parameter(at, value),
            }?;
        }
        let mut rows = statement.raw_query();
        while rows.next()?.is_some() {}
    }
    Ok(())
}
