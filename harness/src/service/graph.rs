//! What goes on for a conversation: its tasks, who waits for whom, and how far those are
//! that work for it.

use std::collections::{BTreeMap, BTreeSet};

use mooring_durable::{
    Engine,
    id::ConversationId,
    view::{ChangeView, ConversationView},
    wait::TaskGraph,
};
use mooring_wire::harness as wire;
use tonic::Status;

use super::{session, work};
use crate::card::one_line;

/// Tasks that are shown of one conversation.
const MAX_TASKS: usize = 200;
/// Conversations that work for it and are followed.
const MAX_CHILDREN: usize = 50;
/// Characters of what a child does.
const MAX_DOING: usize = 160;

/// A conversation's graph at one moment.
#[derive(Default)]
pub struct Graph {
    graph: TaskGraph,
    children: BTreeMap<ConversationId, wire::Child>,
}

impl Graph {
    /// Reads the tasks anew, and those that work for the conversation since. Whether the
    /// tasks changed.
    pub async fn read_again(
        &mut self,
        engine: &Engine,
        conversation: ConversationId,
    ) -> Result<bool, Status> {
        let before = std::mem::take(&mut self.graph);
        self.read_tasks(engine, conversation).await?;
        let owned = self.owned();
        self.children.retain(|id, _| owned.contains(id));
        for id in owned {
            if !self.children.contains_key(&id) {
                self.read_child(engine, id).await?;
            }
        }
        Ok(before != self.graph)
    }

    /// Forgets how those stand that are not among `known`: they are read anew.
    pub fn keep_children(&mut self, known: &BTreeSet<ConversationId>) {
        self.children.retain(|id, _| known.contains(id));
    }

    async fn read_tasks(
        &mut self,
        engine: &Engine,
        conversation: ConversationId,
    ) -> Result<(), Status> {
        let graph = engine.tasks(conversation, MAX_TASKS).await;
        self.graph = graph.map_err(session)?;
        Ok(())
    }

    async fn read_child(&mut self, engine: &Engine, id: ConversationId) -> Result<(), Status> {
        let view = engine.view(id, 0, None).await.map_err(session)?;
        if let Some(view) = view {
            self.stands(&view);
        }
        Ok(())
    }

    /// How a conversation stands that works for this one.
    pub fn stands(&mut self, view: &ConversationView) -> Option<wire::Child> {
        let mut child = self.place(view.conversation)?;
        child.title = match view.title.as_str() {
            "" => format!("conversation {}", view.conversation),
            title => brief(title),
        };
        if let Some(run) = &view.run {
            child.state = super::convert::state_of(run.state).into();
            child.tool_calls = run.tool_calls;
            child.tokens = run.usage.input + run.usage.output;
            child.doing = run.note.clone();
        }
        let open = view.calls.iter().find(|call| call.ended_at.is_none());
        if let Some(call) = open {
            let summary = match call.note.as_str() {
                "" => &call.summary,
                note => note,
            };
            child.doing = format!("{} {}", call.tool, brief(summary));
        }
        self.children.insert(view.conversation, child.clone());
        Some(child)
    }

    /// A run of one that works for this one has ended, with these figures.
    pub fn ended(&mut self, change: &ChangeView) -> Option<wire::Child> {
        let run = change.ended.as_ref()?;
        let known = self.children.get_mut(&change.conversation)?;
        let answered = change.submissions.iter().any(|submission| {
            submission.id == run.id
                && submission.state == mooring_durable::submission::SubmissionState::Done
        });
        known.state = if answered { "done" } else { "unanswered" }.into();
        known.tool_calls = run.tool_calls;
        known.tokens = run.usage.input + run.usage.output;
        known.doing = String::new();
        Some(known.clone())
    }

    /// Whose call a conversation works for, and how deep.
    fn place(&self, id: ConversationId) -> Option<wire::Child> {
        let tasks = &self.graph.tasks;
        let task = tasks.iter().find(|task| task.owns == Some(id))?;
        let mut child = wire::Child {
            conversation: id.0,
            call_task: task.owner.map_or(0, |owner| owner.0),
            ..wire::Child::default()
        };
        // Up to the conversation that is watched.
        let mut at = task.conversation;
        while let Some(above) = tasks.iter().find(|task| task.owns == Some(at)) {
            child.depth += 1;
            child.call_task = above.owner.map_or(0, |owner| owner.0);
            at = above.conversation;
        }
        Some(child)
    }

    /// Nothing goes on.
    pub fn is_empty(&self) -> bool {
        self.graph.tasks.is_empty()
    }

    /// Whether a conversation works for this one.
    pub fn owns(&self, id: ConversationId) -> bool {
        self.graph.tasks.iter().any(|task| task.owns == Some(id))
    }

    /// Conversations that work for this one.
    pub fn owned(&self) -> BTreeSet<ConversationId> {
        let owned = self.graph.tasks.iter().filter_map(|task| task.owns);
        owned.take(MAX_CHILDREN).collect()
    }

    /// The tasks.
    pub fn tasks(&self) -> wire::TaskGraph {
        wire::TaskGraph {
            tasks: self.graph.tasks.iter().map(work::task).collect(),
            more: self.graph.more,
        }
    }

    /// Those that work for it.
    pub fn children(&self) -> Vec<wire::Child> {
        self.children.values().cloned().collect()
    }
}

/// Whether a change may have changed what goes on.
pub fn moves(change: &ChangeView) -> bool {
    change.run.is_some()
        || change.ended.is_some()
        || change.compaction.is_some()
        || !(change.calls.is_empty() && change.approvals.is_empty() && change.questions.is_empty())
}

/// One line of it, cut.
fn brief(text: &str) -> String {
    one_line(text).chars().take(MAX_DOING).collect()
}
