//! What a conversation is asked to do.

use tokio::sync::oneshot;

use crate::{
    compaction,
    error::{SessionError, SubmitError},
    gate::{Approval, Decision},
    id::{SubmissionId, TaskId},
    ledger::Statement,
    on_the_way::{Asked, OnTheWay},
    submission::{AbortScope, Aborted, Input, Requester, Submission, Submitted},
    wait::Question,
    write::Write,
};

type Reply<T, E = SessionError> = oneshot::Sender<Result<T, E>>;

/// A message to a conversation's actor.
pub(crate) enum Command {
    Submit(Box<Input>, Reply<Submitted, SubmitError>),
    Write(Box<Write>, Reply<Submitted, SubmitError>),
    Reset(Box<Write>, Reply<Submitted, SubmitError>),
    Compact {
        requester: Requester,
        instructions: String,
        reply: Reply<compaction::Asked>,
    },
    Abort(AbortScope, Reply<Aborted>),
    Delete {
        extra: Vec<Statement>,
        reply: Reply<()>,
    },
    Withdraw(SubmissionId, Reply<Option<Submission>>),
    Replace(
        SubmissionId,
        Box<Input>,
        Reply<Option<Submitted>, SubmitError>,
    ),
    Model(String, Reply<()>),
    Decide {
        approval: TaskId,
        decision: Decision,
        extra: Vec<Statement>,
        reply: Reply<Option<(bool, Approval)>>,
    },
    AskOnTheWay(Box<OnTheWay>, Reply<Option<Asked>>),
    UseApproval {
        approval: TaskId,
        extra: Vec<Statement>,
        reply: Reply<bool>,
    },
    Supersede(TaskId, Reply<()>),
    Answer {
        task: TaskId,
        text: String,
        by: Requester,
        extra: Vec<Statement>,
        reply: Reply<Option<(bool, Question)>>,
    },
    Poke(Poke),
    /// Others need the memory.
    Rest,
}

/// A reason to look again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Poke {
    /// Work is runnable, or due.
    Due,
    /// A conversation that a call owns has ended a run.
    Child,
    /// Waiting calls are decided anew.
    Policy,
    /// A run that waits for a key tries again.
    Models,
}

impl Command {
    /// Answers with an error of the session.
    pub fn fail(self, error: SessionError) {
        match self {
            Command::Submit(_, reply) | Command::Write(_, reply) | Command::Reset(_, reply) => {
                drop(reply.send(Err(error.into())))
            }
            Command::Compact { reply, .. } => drop(reply.send(Err(error))),
            Command::Abort(_, reply) => drop(reply.send(Err(error))),
            Command::Delete { reply, .. } => drop(reply.send(Err(error))),
            Command::Withdraw(_, reply) => drop(reply.send(Err(error))),
            Command::Replace(_, _, reply) => drop(reply.send(Err(error.into()))),
            Command::Model(_, reply) => drop(reply.send(Err(error))),
            Command::Decide { reply, .. } => drop(reply.send(Err(error))),
            Command::AskOnTheWay(_, reply) => drop(reply.send(Err(error))),
            Command::UseApproval { reply, .. } => drop(reply.send(Err(error))),
            Command::Supersede(_, reply) => drop(reply.send(Err(error))),
            Command::Answer { reply, .. } => drop(reply.send(Err(error))),
            Command::Poke(_) | Command::Rest => {}
        }
    }
}
