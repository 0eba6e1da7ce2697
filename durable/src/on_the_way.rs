//! Approvals that a call asks for on its way, after it has begun: what it is about to
//! do was not known when the gate let it run (a push of a command, a connection).
//!
//! Such an approval is a task like all others, owned by the call, shown and decided
//! the same ways. It is named by its arguments' hash and its rule: asked again in the
//! same conversation it is found again, while it is pending by whoever asks next, and
//! once it is approved until it is used. What is pending ends with its run, not with its call, so
//! that a command which lost its connection can ask again.

use tokio::sync::oneshot;

use crate::{
    Engine,
    conversation::Command,
    error::SessionError,
    gate::{Approval, ApprovalState, Question},
    id::{ConversationId, Hash, TaskId},
    ledger::Statement,
};

/// What is asked for on the way.
#[derive(Clone, Debug, PartialEq)]
pub struct OnTheWay {
    /// The conversation of the call.
    pub conversation: ConversationId,
    /// The call, which is being executed.
    pub call: TaskId,
    /// What wants to go on, in place of a tool's name (`git push`).
    pub what: String,
    /// Names what exactly would be done, together with the question's rule.
    pub hash: Hash,
    /// What a person is asked.
    pub question: Question,
}

/// The actor's answer.
#[derive(Debug)]
pub(crate) struct Asked {
    pub approval: Approval,
    /// Closes once the approval is settled; `None` where it is.
    pub settled: Option<oneshot::Receiver<()>>,
}

/// An approval that somebody waits for. While one waits, its call is shown as waiting,
/// and a run all of whose calls wait is not charged for the time.
pub struct Passing {
    engine: Engine,
    approval: Approval,
    settled: Option<oneshot::Receiver<()>>,
}

impl Passing {
    /// The approval, as it stood when it was asked for.
    pub fn approval(&self) -> &Approval {
        &self.approval
    }

    /// Whether nobody has to be waited for.
    pub fn is_settled(&self) -> bool {
        self.settled.is_none()
    }

    /// Waits for the decision, or for another end. May be called again after it was
    /// dropped before it returned.
    ///
    /// # Errors
    /// Of the session, which ends before the approval does.
    pub async fn settled(&mut self) -> Result<Approval, SessionError> {
        let Some(settled) = &mut self.settled else {
            return Ok(self.approval.clone());
        };
        // Nothing is ever sent: the other end is dropped.
        let _ = settled.await;
        let session = self.engine.session();
        if let Some(error) = session.line.failure() {
            return Err(error);
        }
        let found = session.reader.approval(self.approval.task).await?;
        match found.filter(|approval| approval.state != ApprovalState::Pending) {
            Some(approval) => {
                self.settled = None;
                self.approval = approval.clone();
                Ok(approval)
            }
            None => Err(SessionError::Closed),
        }
    }
}

impl Engine {
    /// Asks for an approval for a call that is being executed. `None` where it is not:
    /// it has ended, or its run is being ended.
    pub async fn ask_on_the_way(&self, ask: OnTheWay) -> Result<Option<Passing>, SessionError> {
        let asked = self
            .ask(ask.conversation, |reply| {
                Command::AskOnTheWay(Box::new(ask), reply)
            })
            .await?;
        Ok(asked.map(|asked| Passing {
            engine: self.clone(),
            approval: asked.approval,
            settled: asked.settled,
        }))
    }

    /// Uses an approval that was asked for on the way and is approved; whether this is
    /// the first use. What follows from it happens after this.
    pub async fn use_approval(
        &self,
        approval: &Approval,
        extra: Vec<Statement>,
    ) -> Result<bool, SessionError> {
        let (conversation, approval) = (approval.conversation, approval.task);
        self.ask(conversation, |reply| Command::UseApproval {
            approval,
            extra,
            reply,
        })
        .await
    }

    /// Takes back a question that was asked on the way: the policy does not ask it any
    /// more. One that is settled stays as it is.
    pub async fn supersede(&self, approval: &Approval) -> Result<(), SessionError> {
        let (conversation, approval) = (approval.conversation, approval.task);
        self.ask(conversation, |reply| Command::Supersede(approval, reply))
            .await
    }
}
