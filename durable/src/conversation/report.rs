//! The end of a conversation in the background: its owner's conversation is told, once.

use serde_json::json;
use tokio::sync::oneshot;

use super::{
    actor::{Actor, Effect, Over},
    command::Command,
    step::Step,
    waiting::child_request,
};
use crate::{
    id::{Millis, SubmissionId},
    message::Part,
    sql::{
        conversation::Owner,
        open_work::{Wake, What},
    },
    submission::{Input, Requester, WhenBusy},
};

/// Between two tries, in milliseconds.
const AGAIN: i64 = 1_000;

impl Actor {
    /// Tells the owner's conversation of an end that it has not been told.
    pub(super) fn report_end(&mut self) {
        let (Some(owner), Some(report)) = (self.state.row.origin.owner, self.state.report) else {
            return;
        };
        if self.reporting || !self.session.started() {
            return;
        }
        self.reporting = true;
        let (session, id) = (self.session.clone(), self.id);
        self.effect(
            async move {
                let end = session.reader.work_end(id, &child_request(owner.task)).await;
                let said = match end {
                    Ok(Some(end)) => told(&end),
                    _ => "it ended".to_owned(),
                };
                let input = Input {
                    conversation: owner.conversation,
                    request_id: Some(child_request(owner.task)),
                    requester: Requester::Task { id: owner.task.0 },
                    content: vec![Part::text(format!(
                        "The subagent in conversation {id}, which worked in the background, has ended: {said}"
                    ))],
                    when_busy: WhenBusy::Steer,
                    autonomous: false,
                    data: json!({ "subagent": id }),
                    extra: Vec::new(),
                };
                let (reply, answer) = oneshot::channel();
                let command = Command::Submit(Box::new(input), reply);
                session.registry.send(&session, owner.conversation, command);
                let told = matches!(answer.await, Ok(Ok(_)));
                if !told {
                    let again = Millis(session.now().0 + AGAIN);
                    session.clock.until(again).await;
                }
                Effect::Reported {
                    submission: report,
                    told,
                }
            },
            move || Effect::Reported {
                submission: report,
                told: false,
            },
        );
    }

    /// The owner's conversation has the end.
    pub(super) async fn reported(&mut self, submission: SubmissionId) -> Result<(), Over> {
        let mut step = self.step("report");
        step.state.report = None;
        step.batch.drop_open(self.id, What::Report, submission.0);
        self.commit_surely(step).await
    }
}

fn told(end: &crate::wait::WorkEnd) -> String {
    use crate::wait::WorkEnd;
    match end {
        WorkEnd::Done { text, .. } => format!("\n\n{text}"),
        WorkEnd::Failed { reason } => format!("it has no answer: {reason}"),
        _ => "it was stopped".into(),
    }
}

impl Step {
    /// The first run of a conversation in the background ends: that is owed to its owner.
    pub(super) fn owe_report(&mut self, run: SubmissionId, first: bool) {
        let Some(Owner {
            background: true, ..
        }) = self.state.row.origin.owner
        else {
            return;
        };
        if !first {
            return;
        }
        self.state.report = Some(run);
        self.batch
            .put_open(self.state.row.id, What::Report, run.0, Wake::Runnable);
    }
}
