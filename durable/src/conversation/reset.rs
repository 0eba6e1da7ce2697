//! New beginnings, and the last end: a reset, whose run ends for it; a handoff; a deletion.

use super::{
    actor::Actor,
    inbox::repeated,
    step::{NewEntry, Step},
};
use crate::{
    error::{SessionError, SubmitError},
    ledger::Statement,
    message::{Message, Part},
    retention,
    sql::{entry::kind, submission::SubmissionType},
    submission::{Submitted, Unanswered},
    write::{Head, Write},
};

impl Actor {
    /// Places a head at once while idle; else the run ends `reset`, and the head and
    /// whatever is queued follow in the commit of its end.
    pub(super) async fn reset(&mut self, write: Write) -> Result<Submitted, SubmitError> {
        if let Some(known) = self.known(write.request_id.as_ref()).await? {
            return repeated(known, SubmissionType::Write);
        }
        let mut step = self.step("reset");
        let going = self.state.run.as_ref().map(|run| run.ending());
        if going == Some(false) {
            self.mark(&mut step, Unanswered::Reset);
        }
        // Its summary would be of what is left behind.
        step.abort_compaction();
        let id = self.admit_write(&mut step, write);
        let submission = step.shown(id);
        self.commit(step).await?;
        if going == Some(false) {
            self.let_go();
        }
        Ok(Submitted {
            submission,
            repeated: false,
        })
    }
}

impl Actor {
    /// Deletes the conversation; nothing of it may be at work.
    pub(super) async fn delete(&mut self, extra: Vec<Statement>) -> Result<(), SessionError> {
        let state = &self.state;
        if state.run.is_some() || state.compaction.is_some() || state.report.is_some() {
            return Err(SessionError::Working(self.id));
        }
        let mut step = self.step("delete");
        step.extra = retention::delete(self.id).chain(extra).collect();
        self.commit(step).await
    }
}

impl Step {
    /// The context begins anew for a call that handed off.
    pub(super) fn hand_off(&mut self, brief: Option<String>) {
        let Some(brief) = brief else { return };
        let message = Message::User {
            content: vec![Part::text(brief)],
        };
        self.entry(NewEntry {
            head: Some(Head::Here),
            ..NewEntry::new(kind::RESET, Some(message))
        });
    }
}
