//! What is asked and what is open: answers to questions, and the graph of tasks.

use mooring_durable::{
    id::{ConversationId, TaskId},
    wait::{Question, TaskView, WorkEnd},
};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tonic::Status;

use super::{Service, session};
use crate::members::{Act, Actor, may, same};

/// Bytes of an answer.
const MAX_ANSWER: usize = 64 << 10;

impl Service {
    pub(super) async fn answer(
        &self,
        actor: Actor,
        request: wire::AnswerRequest,
    ) -> Result<wire::AnswerResponse, Status> {
        may(&actor, Act::Talk).map_err(|text| status(Code::Forbidden, text))?;
        if request.text.trim().is_empty() || request.text.len() > MAX_ANSWER {
            let text = format!("an answer has 1 byte to {} KiB", MAX_ANSWER >> 10);
            return Err(status(Code::Invalid, text));
        }
        let task = TaskId(request.question);
        let missing = || {
            let text = format!("there is no question {task}; `mooring tasks` lists what waits");
            status(Code::NotFound, text)
        };
        let questions = self.engine.questions().await.map_err(session)?;
        if let Some(question) = questions.iter().find(|question| question.task == task) {
            let view = self.view_of(question.conversation, 0).await?;
            let own = view.run.as_ref().is_some_and(|run| {
                let mut requesters = run.requesters.iter();
                requesters.any(|requester| same(requester, &actor.requester))
            });
            if !own {
                // Others' questions need the role that answers any.
                may(&actor, Act::Decide).map_err(|text| status(Code::Forbidden, text))?;
            }
        }
        let (first, question) = self
            .engine
            .answer(task, request.text, actor.requester, Vec::new())
            .await
            .map_err(session)?
            .ok_or_else(missing)?;
        Ok(wire::AnswerResponse {
            first,
            question: Some(shown(&question)),
        })
    }

    pub(super) async fn task_graph(
        &self,
        request: wire::TaskGraphRequest,
    ) -> Result<wire::TaskGraphResponse, Status> {
        let conversation = ConversationId(request.conversation);
        self.view_of(conversation, 0).await?;
        let tasks = self.engine.tasks(conversation).await.map_err(session)?;
        Ok(wire::TaskGraphResponse {
            tasks: tasks.iter().map(task).collect(),
        })
    }
}

fn task(task: &TaskView) -> wire::Task {
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
    let (state, answer, by) = match &question.end {
        None => ("open", String::new(), String::new()),
        Some(WorkEnd::Answered { text, by }) => ("answered", text.clone(), by.to_string()),
        Some(WorkEnd::Expired) => ("expired", String::new(), String::new()),
        Some(_) => ("aborted", String::new(), String::new()),
    };
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
