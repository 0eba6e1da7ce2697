//! How submissions enter the transcript, and what they start or join.

use std::sync::Arc;

use super::step::{NewEntry, Step};
use crate::{
    boundary::{self, Boundary, QueueModes},
    compaction::{Ended, Mode},
    id::SubmissionId,
    ledger::{Change, Run, RunState},
    message::Message,
    model::Usage,
    sql::{
        entry::kind,
        open_work::{Wake, What},
        submission::{SubmissionRow, SubmissionType},
    },
    submission::{SubmissionState, Unanswered},
    write::Head,
};

impl Step {
    /// Admits a submission to the inbox.
    pub fn admit(&mut self, row: SubmissionRow) {
        self.fresh = Some(row.submission.id);
        self.batch.put_open(
            self.state.row.id,
            What::Submission,
            row.submission.id.0,
            Wake::OnEvent,
        );
        self.state.queue.push(Arc::new(row));
    }

    /// The admitted submission as it ended up; told first.
    pub fn admitted(&mut self, row: &SubmissionRow) {
        self.batch.insert_submission(row);
        self.changes.insert(
            0,
            Change::Admitted {
                submission: row.submission.clone(),
            },
        );
        self.view.submissions.push(row.submission.clone());
    }

    /// Places what a boundary lets in; the inputs among it.
    pub fn place(&mut self, ids: &[SubmissionId]) -> Vec<Arc<SubmissionRow>> {
        let mut inputs = Vec::new();
        for id in ids {
            let Some(at) = self
                .state
                .queue
                .iter()
                .position(|row| row.submission.id == *id)
            else {
                continue;
            };
            let row = self.state.queue.remove(at);
            match row.kind {
                SubmissionType::Write => self.place_write(&row),
                SubmissionType::Input => inputs.push(self.place_input(&row)),
            }
        }
        inputs
    }

    fn place_write(&mut self, row: &SubmissionRow) {
        let mut submission = row.submission.clone();
        let Some(body) = &row.write else { return };
        let stale = match (body.head, self.state.head) {
            (Some(Head::From(entry)), Some(head)) => entry < head,
            _ => false,
        };
        let mut entry = None;
        submission.state = if stale {
            if body.kind == kind::COMPACTION {
                let why = "the context begins later by now";
                self.compaction_ended(Mode::Background, Ended::Skipped, why);
            }
            SubmissionState::Unanswered {
                reason: Unanswered::Stale,
                detail: "the context begins later by now".into(),
            }
        } else {
            entry = Some(self.entry(NewEntry {
                data: body.data.clone(),
                head: body.head,
                edits: body.edits.clone(),
                submission: Some(submission.id),
                ..NewEntry::new(&body.kind, body.message.clone())
            }));
            SubmissionState::Done
        };
        if self.fresh == Some(submission.id) {
            // Written settled; it never was open work in the file.
            self.batch
                .drop_open(self.state.row.id, What::Submission, submission.id.0);
            self.admitted(&SubmissionRow {
                submission: submission.clone(),
                entry,
                ..row.clone()
            });
        } else {
            self.batch
                .move_submission(submission.id, &submission.state, entry, None);
            self.batch
                .drop_open(self.state.row.id, What::Submission, submission.id.0);
            self.view.submissions.push(submission.clone());
        }
        self.changes.push(Change::Settled { submission });
    }

    fn place_input(&mut self, row: &SubmissionRow) -> Arc<SubmissionRow> {
        let mut submission = row.submission.clone();
        submission.state = SubmissionState::Placed;
        let message = Message::User {
            content: submission.content.clone(),
        };
        let data =
            serde_json::json!({"submission": submission.id, "requester": submission.requester});
        let entry = self.entry(NewEntry {
            data,
            submission: Some(submission.id),
            ..NewEntry::new(kind::USER, Some(message))
        });
        if !self.touched {
            self.touched = true;
            let title = self
                .state
                .row
                .title
                .is_empty()
                .then(|| title_of(&submission.content))
                .flatten();
            self.batch
                .touch_conversation(self.state.row.id, title.as_deref(), self.at);
            let row = Arc::make_mut(&mut self.state.row);
            row.last_at = self.at;
            if let Some(title) = title {
                row.title = title;
            }
        }
        let placed = SubmissionRow {
            submission,
            entry: Some(entry),
            ..row.clone()
        };
        if self.fresh == Some(placed.submission.id) {
            self.admitted(&placed);
        } else {
            self.batch.move_submission(
                placed.submission.id,
                &SubmissionState::Placed,
                Some(entry),
                None,
            );
            self.view.submissions.push(placed.submission.clone());
        }
        Arc::new(placed)
    }

    /// Places what may enter now, and starts a run with the inputs among it.
    pub fn start(&mut self, ids: &[SubmissionId], model: &str) {
        let inputs = self.place(ids);
        let Some(first) = inputs.first() else { return };
        let run = Run {
            id: first.submission.id,
            conversation: self.state.row.id,
            requesters: Vec::new(),
            started_at: self.at,
            turns: 0,
            tool_calls: 0,
            usage: Usage::default(),
            active_ms: 0,
            model: model.to_owned(),
            state: RunState::Preparing,
            note: String::new(),
        };
        let autonomous = first.submission.autonomous;
        self.generation(run, Vec::new(), autonomous);
        self.join(&inputs);
        self.before = Some(self.run());
        let run = self.run();
        self.changes.push(Change::RunStarted { run });
    }

    /// Placed inputs join the run.
    pub fn join(&mut self, inputs: &[Arc<SubmissionRow>]) {
        for row in inputs {
            let active = self.active();
            active.inputs.push(Arc::new(row.submission.clone()));
            active.progress.inputs.push(row.submission.id);
            let run = &mut active.progress.run;
            if !run.requesters.contains(&row.submission.requester) {
                run.requesters.push(row.submission.requester.clone());
            }
            let (run, entry) = (run.id, row.entry.expect("a placed input has its entry"));
            self.changes.push(Change::Placed {
                submission: row.submission.clone(),
                entry,
                run,
            });
        }
    }

    /// What the final boundary, or an idle conversation, lets in.
    pub fn next_run(&mut self, idle: bool) {
        let modes = QueueModes::of(&self.state.row.settings);
        let queue = self.state.queued();
        let ids = if idle {
            boundary::place_idle(&queue, modes)
        } else {
            boundary::place(Boundary::Final, &queue, modes)
        };
        let model = self.state.row.model.clone();
        self.start(&ids, &model);
    }

    /// What joins a run after a round.
    pub fn steer(&mut self) {
        let modes = QueueModes::of(&self.state.row.settings);
        let ids = boundary::place(Boundary::PostTools, &self.state.queued(), modes);
        let inputs = self.place(&ids);
        self.join(&inputs);
    }
}

/// A conversation's title from its first input: the first line, cut.
fn title_of(content: &[crate::message::Part]) -> Option<String> {
    const LONGEST: usize = 80;
    let text = content.iter().find_map(|part| match part {
        crate::message::Part::Text { text } => {
            text.lines().map(str::trim).find(|line| !line.is_empty())
        }
        _ => None,
    })?;
    Some(text[..crate::window::floor(text, LONGEST)].to_owned())
}
