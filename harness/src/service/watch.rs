//! Follows conversations: a snapshot, then what each commit changed.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use mooring_durable::{
    Engine,
    id::ConversationId,
    view::{ChangeView, Frame, Watch},
};
use mooring_wire::harness::{self as wire, watch_frame::Frame as Told};
use tonic::Status;

use super::{
    Frames, Service,
    convert::Convert,
    graph::{Graph, moves},
    session,
};
use crate::{books::Books, sandbox::Link};

impl Service {
    pub(super) async fn watch(
        &self,
        request: wire::WatchRequest,
    ) -> Result<Frames<wire::WatchFrame>, Status> {
        let conversation =
            (request.conversation != 0).then_some(ConversationId(request.conversation));
        let incarnation = format!(
            "{}-{}",
            self.engine.incarnation().0,
            self.engine.generation()
        );
        // A sequence of another process says nothing about this one's.
        let after = (request.after != 0 && request.session == incarnation).then_some(request.after);
        let watch = self
            .engine
            .watch(conversation, after)
            .await
            .map_err(session)?;
        let mut following = Following {
            watch,
            conversation,
            graphs: BTreeMap::new(),
            pending: VecDeque::new(),
            engine: self.engine.clone(),
            books: self.books.clone(),
            link: self.link.clone(),
            incarnation,
        };
        if let (Some(id), Some(after)) = (conversation, after) {
            following.resume(id, after).await?;
        }
        let stream = futures::stream::unfold(following, |mut following| async move {
            let frame = following.next().await?;
            Some((Ok(frame), following))
        });
        Ok(Box::pin(stream))
    }
}

/// One watcher.
struct Following {
    watch: Watch,
    /// The one that is watched; `None`: all.
    conversation: Option<ConversationId>,
    /// Of conversations in which something goes on, as they were told last.
    graphs: BTreeMap<ConversationId, Graph>,
    /// What is told next.
    pending: VecDeque<wire::WatchFrame>,
    engine: Engine,
    books: Arc<Books>,
    link: Arc<Link>,
    incarnation: String,
}

impl Following {
    /// What goes on now is told first to one that comes back: what it missed of it is
    /// not kept.
    async fn resume(&mut self, id: ConversationId, after: u64) -> Result<(), Status> {
        let mut graph = Graph::default();
        self.read(&mut graph, id).await?;
        let change = wire::Change {
            conversation: id.0,
            tasks: Some(graph.tasks()),
            children: graph.children(),
            ..wire::Change::default()
        };
        self.know(id, graph);
        self.tell(after, Told::Change(change));
        Ok(())
    }

    /// The next frame; `None` at the end.
    async fn next(&mut self) -> Option<wire::WatchFrame> {
        loop {
            if let Some(next) = self.pending.pop_front() {
                return Some(next);
            }
            match self.watch.next().await? {
                Frame::Snapshot(view) => {
                    let (id, sequence) = (view.conversation, view.sequence);
                    if self.is_watched(id) {
                        let mut shown = self.convert().view(&view);
                        let mut graph = Graph::default();
                        if self.read(&mut graph, id).await.is_ok() {
                            (shown.tasks, shown.children) = (Some(graph.tasks()), graph.children());
                            self.know(id, graph);
                        }
                        self.tell(sequence, Told::Snapshot(shown));
                    }
                    for owner in self.owners(id) {
                        let graph = self.graphs.get_mut(&owner);
                        let child = graph.and_then(|graph| graph.stands(&view));
                        self.tell_owner(owner, sequence, child).await;
                    }
                }
                Frame::Change { sequence, change } => {
                    let id = change.conversation;
                    if self.is_watched(id) {
                        let mut shown = self.convert().change(&change);
                        if moves(&change)
                            && let Some(moved) = self.moved(id, None).await
                        {
                            (shown.tasks, shown.children) = (moved.tasks, moved.children);
                        }
                        self.tell(sequence, Told::Change(shown));
                    }
                    let owners = match moves(&change) {
                        true => self.owners(id),
                        false => Vec::new(),
                    };
                    for owner in owners {
                        let child = self.child(owner, &change).await;
                        self.tell_owner(owner, sequence, child).await;
                    }
                }
            }
        }
    }

    fn is_watched(&self, id: ConversationId) -> bool {
        self.conversation.is_none_or(|only| only == id)
    }

    /// Conversations that one works for, as far as they are known here.
    fn owners(&self, id: ConversationId) -> Vec<ConversationId> {
        let owners = self.graphs.iter().filter(|(_, graph)| graph.owns(id));
        owners.map(|(owner, _)| *owner).collect()
    }

    /// How one that works for `owner` stands after a change.
    async fn child(&mut self, owner: ConversationId, change: &ChangeView) -> Option<wire::Child> {
        if let Some(None) = change.run {
            return self.graphs.get_mut(&owner)?.ended(change);
        }
        let view = self.engine.view(change.conversation, 0, None).await;
        self.graphs.get_mut(&owner)?.stands(&view.ok()??)
    }

    async fn tell_owner(
        &mut self,
        owner: ConversationId,
        sequence: u64,
        child: Option<wire::Child>,
    ) {
        if let Some(change) = self.moved(owner, child).await {
            self.tell(sequence, Told::Change(change));
        }
    }

    /// The graph where it changed, with what moved; `None`: nothing did.
    async fn moved(
        &mut self,
        id: ConversationId,
        child: Option<wire::Child>,
    ) -> Option<wire::Change> {
        let mut graph = self.graphs.remove(&id).unwrap_or_default();
        let known = graph.owned();
        let changed = self.read(&mut graph, id).await.ok()?;
        let mut children: Vec<wire::Child> = child.into_iter().collect();
        let new = graph.children().into_iter().filter(|child| {
            let id = ConversationId(child.conversation);
            !known.contains(&id)
        });
        children.extend(new);
        let tasks = changed.then(|| graph.tasks());
        self.know(id, graph);
        (changed || !children.is_empty()).then(|| wire::Change {
            conversation: id.0,
            tasks,
            children,
            ..wire::Change::default()
        })
    }

    /// Reads a graph anew; whether it changed. Who is new in it is followed first and
    /// read then: what such a one did in between comes in no frame.
    async fn read(&mut self, graph: &mut Graph, id: ConversationId) -> Result<bool, Status> {
        let known = graph.owned();
        let mut changed = graph.read_again(&self.engine, id).await?;
        let mut followed = known.clone();
        while self.conversation.is_some() && graph.owned() != followed {
            followed = graph.owned();
            self.watch.also(followed.clone());
            graph.keep_children(&known);
            changed |= graph.read_again(&self.engine, id).await?;
        }
        Ok(changed)
    }

    /// Keeps a graph, as long as something goes on, and follows whoever is in it.
    fn know(&mut self, id: ConversationId, graph: Graph) {
        if self.conversation.is_some() {
            self.watch.also(graph.owned());
        }
        match graph.is_empty() {
            true => drop(self.graphs.remove(&id)),
            false => drop(self.graphs.insert(id, graph)),
        }
    }

    fn convert(&self) -> Convert<'_> {
        let status = self.link.status();
        Convert {
            books: &self.books,
            grade: status
                .map(|status| status.grade.clone())
                .unwrap_or_default(),
        }
    }

    fn tell(&mut self, sequence: u64, told: Told) {
        self.pending.push_back(wire::WatchFrame {
            sequence,
            session: self.incarnation.clone(),
            frame: Some(told),
        });
    }
}
