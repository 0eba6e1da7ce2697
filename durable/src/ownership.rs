//! What is asked and what is open: answers to questions, and the graph of tasks.

use crate::{
    conversation::Command,
    engine::Engine,
    error::SessionError,
    id::{ConversationId, TaskId},
    ledger::Statement,
    submission::Requester,
    wait::{Question, TaskGraph},
};

impl Engine {
    /// Answers a question; the first committed answer wins. `Ok((first, question))`,
    /// `None` where there is no such question.
    pub async fn answer(
        &self,
        question: TaskId,
        text: String,
        by: Requester,
        extra: Vec<Statement>,
    ) -> Result<Option<(bool, Question)>, SessionError> {
        let Some(found) = self.session().reader.question(question).await? else {
            return Ok(None);
        };
        self.ask(found.conversation, |reply| Command::Answer {
            task: question,
            text,
            by,
            extra,
            reply,
        })
        .await
    }

    /// Questions that nobody has answered, of all conversations.
    pub async fn questions(&self) -> Result<Vec<Question>, SessionError> {
        self.session().reader.questions().await
    }

    /// Tasks of a conversation that have not ended, and those of the conversations that
    /// they own, owners first: at most `limit` of them.
    pub async fn tasks(
        &self,
        conversation: ConversationId,
        limit: usize,
    ) -> Result<TaskGraph, SessionError> {
        let mut graph = TaskGraph::default();
        let mut next = vec![conversation];
        while let Some(id) = next.pop() {
            let left = limit - graph.tasks.len();
            let mut tasks = self.session().reader.tasks(id, left + 1).await?;
            graph.more |= tasks.len() > left;
            tasks.truncate(left);
            next.extend(tasks.iter().filter_map(|task| task.owns));
            graph.tasks.extend(tasks);
            if graph.more {
                break;
            }
        }
        Ok(graph)
    }
}
