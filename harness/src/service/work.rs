//! What is asked and what is open: answers to questions, and the graph of tasks.

use mooring_durable::{
    id::{ConversationId, RequestId, TaskId},
    message::Part,
    wait::{Question, TaskView},
};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tonic::Status;

use super::{Service, session, storage};
use crate::{
    books::{plain, question_end},
    members::{Act, Actor, may, same},
    record::answer::{self, Reply},
};

/// Bytes of an answer.
const MAX_ANSWER: usize = 64 << 10;
/// Tasks that are listed at once.
const MAX_TASKS: usize = 1_000;
/// Why a reply to a question is no answer.
const NOT_THEIRS: &str =
    "this question is for whoever asked for the run, or needs the role Approver";

impl Service {
    pub(super) async fn answer(
        &self,
        actor: Actor,
        request: wire::AnswerRequest,
    ) -> Result<wire::AnswerResponse, Status> {
        may(&actor, Act::Talk).map_err(|text| status(Code::Forbidden, text))?;
        let missing = || {
            let named = match request.id.as_str() {
                "" => request.question.to_string(),
                id => id.to_owned(),
            };
            let text = format!("there is no question {named}; `mooring tasks` lists what waits");
            status(Code::NotFound, text)
        };
        let task = match request.id.as_str() {
            "" => TaskId(request.question),
            id => self.books.question_of(id).ok_or_else(missing)?,
        };
        let mut text = request.text.clone();
        if let Some(open) = self.open_question(task).await? {
            self.may_answer(&actor, &open).await?;
            if let Some(choice) = (request.choice as usize).checked_sub(1) {
                text = open.choices.get(choice).cloned().ok_or_else(|| {
                    status(
                        Code::Invalid,
                        "there are not so many answers to choose from",
                    )
                })?;
            }
        }
        // One that is not open takes no answer, and tells why.
        let chosen = request.choice > 0;
        if text.len() > MAX_ANSWER || (text.trim().is_empty() && !chosen) {
            let text = format!("an answer has 1 byte to {} KiB", MAX_ANSWER >> 10);
            return Err(status(Code::Invalid, text));
        }
        let (first, question) = self
            .engine
            .answer(task, text, actor.requester, Vec::new())
            .await
            .map_err(session)?
            .ok_or_else(missing)?;
        Ok(wire::AnswerResponse {
            first,
            question: Some(shown(&question)),
        })
    }

    /// A message that replies to the card of an open question is its answer, as is one
    /// that was it before. `None`: it is an input as any other.
    pub(super) async fn answer_by_reply(
        &self,
        actor: &Actor,
        request: &wire::SubmitRequest,
        content: &[Part],
    ) -> Result<Option<wire::SubmitResponse>, Status> {
        let (Some(thread), id) = (&request.thread, request.request_id.as_str()) else {
            return Ok(None);
        };
        if thread.reply_to_message_id.is_empty() || id.is_empty() || request.edit {
            return Ok(None);
        }
        let reader = self.engine.reader();
        let known = answer::find(reader, id).await;
        let known = known.map_err(|error| storage(&error))?;
        let told = |reply: Reply| wire::SubmitResponse {
            state: match reply {
                Reply::Counted => "answered",
                Reply::Refused => "refused",
            }
            .into(),
            repeated: known.is_some(),
            note: match reply {
                Reply::Counted => String::new(),
                Reply::Refused => NOT_THEIRS.into(),
            },
            ..wire::SubmitResponse::default()
        };
        if let Some(reply) = known {
            return Ok(Some(told(reply)));
        }
        let card = answer::card(reader, &thread.reply_to_message_id).await;
        let card = card.map_err(|error| storage(&error))?;
        let Some(task) = card.and_then(|key| self.books.question_of(&key)) else {
            return Ok(None);
        };
        let Some(open) = self.open_question(task).await? else {
            return Ok(None);
        };
        let text = plain(content);
        // What was an input before stays one.
        let before = RequestId(id.to_owned());
        let before = self.engine.conversation_of_request(&before).await;
        if text.trim().is_empty() || before.map_err(session)?.is_some() {
            return Ok(None);
        }
        if text.len() > MAX_ANSWER {
            let text = format!("an answer has at most {} KiB", MAX_ANSWER >> 10);
            return Err(status(Code::Invalid, text));
        }
        let now = self.clock.now();
        if self.may_answer(actor, &open).await.is_err() {
            let row = answer::replied(id, task, Reply::Refused, now);
            let kept = self.engine.commit("refuse", vec![row]).await;
            kept.map_err(session)?;
            return Ok(Some(told(Reply::Refused)));
        }
        let row = answer::replied(id, task, Reply::Counted, now);
        let answered = self
            .engine
            .answer(task, text, actor.requester.clone(), vec![row])
            .await
            .map_err(session)?;
        Ok(answered
            .is_some_and(|(first, _)| first)
            .then(|| told(Reply::Counted)))
    }

    async fn open_question(&self, task: TaskId) -> Result<Option<Question>, Status> {
        let questions = self.engine.questions().await.map_err(session)?;
        Ok(questions.into_iter().find(|question| question.task == task))
    }

    /// Whoever the run works for may answer its questions; others' need the role that
    /// answers any.
    async fn may_answer(&self, actor: &Actor, question: &Question) -> Result<(), Status> {
        let view = self.view_of(question.conversation, 0).await?;
        let own = view.run.as_ref().is_some_and(|run| {
            let mut requesters = run.requesters.iter();
            requesters.any(|requester| same(requester, &actor.requester))
        });
        let act = if own { Act::Talk } else { Act::Decide };
        may(actor, act).map_err(|text| status(Code::Forbidden, text))
    }

    pub(super) async fn task_graph(
        &self,
        request: wire::TaskGraphRequest,
    ) -> Result<wire::TaskGraphResponse, Status> {
        let conversation = ConversationId(request.conversation);
        self.view_of(conversation, 0).await?;
        let graph = self.engine.tasks(conversation, MAX_TASKS).await;
        let graph = graph.map_err(session)?;
        Ok(wire::TaskGraphResponse {
            tasks: graph.tasks.iter().map(task).collect(),
            more: graph.more,
        })
    }
}

/// A task as it is shown.
pub fn task(task: &TaskView) -> wire::Task {
    wire::Task {
        id: task.task.0,
        owner: task.owner.map_or(0, |owner| owner.0),
        conversation: task.conversation.0,
        kind: task.kind.clone(),
        status: task.status.clone(),
        background: task.background,
        about: task.about.clone(),
        waits: task.waits.iter().map(|task| task.0).collect(),
        owns: task.owns.map_or(0, |id| id.0),
        created_ms: task.created_at.0,
    }
}

/// A question as it is shown.
pub fn shown(question: &Question) -> wire::Question {
    let (state, answer, by) = question_end(question);
    wire::Question {
        id: question.task.0,
        conversation: question.conversation.0,
        call_task: question.call.0,
        text: question.text.clone(),
        choices: question.choices.clone(),
        asked_ms: question.asked_at.0,
        expires_ms: question.expires_at.map_or(0, |at| at.0),
        state: state.into(),
        answer,
        answered_by: by,
    }
}
