//! A reset: the context begins anew, and a run that is going ends for it.

use super::{actor::Actor, inbox::repeated};
use crate::{
    error::SubmitError,
    sql::submission::SubmissionType,
    submission::{Submitted, Unanswered},
    write::Write,
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
