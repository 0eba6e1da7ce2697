//! One conversation as the frames of `Watch` tell it.

use std::collections::BTreeMap;

use mooring_wire::harness::chunk::Of;
use mooring_wire::harness::watch_frame::Frame;
use mooring_wire::harness::{
    Approval, Call, Change, Child, Chunk, ConversationView, Entry, Question, Run, Submission,
    WatchFrame,
};

/// Bytes of a command's output that are kept to be shown while it runs.
const OUTPUT_TAIL: usize = 8 << 10;
/// Bytes of a streaming answer that are followed; its rest comes with its entry.
const ANSWER_MAX: usize = 4 << 20;

/// What changed, in the order in which it is to be shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A new entry of the transcript.
    Entry(Entry),
    /// More of the streaming answer.
    Answer(String),
    /// The answer that was streaming is void: the model is asked again.
    AnswerVoid,
    /// More of the model's thinking.
    Thinking(String),
    /// More output of a running call.
    Output {
        /// The call.
        task: i64,
        /// What came.
        text: String,
    },
    /// A call is new or changed its state.
    Call(Call),
    /// An approval is asked.
    Asked(Approval),
    /// An approval that was open is no more.
    Decided(Approval),
    /// The agent asks something, or that is settled.
    Question(Question),
    /// An input was queued, placed or settled.
    Submission(Submission),
    /// A run began.
    RunBegan(Run),
    /// A run ended; its last figures.
    RunEnded(Run),
    /// A conversation that worked for the run that has just ended.
    Worked(Child),
}

/// One conversation: what holds now, and where the watch stands.
#[derive(Debug, Default)]
pub struct View {
    /// Its id; 0 until the first frame or a submission tells it.
    pub conversation: i64,
    /// Its title.
    pub title: String,
    /// Its model.
    pub model: String,
    /// The incarnation in which `sequence` counts.
    pub session: String,
    /// The last change that was seen.
    pub sequence: u64,
    /// The run that is going on; its state is `idle` or empty where none is.
    pub run: Run,
    /// Calls of the run, by task.
    pub calls: BTreeMap<i64, Call>,
    /// Open approvals, by id.
    pub approvals: BTreeMap<String, Approval>,
    /// Open questions, by id.
    pub questions: BTreeMap<i64, Question>,
    /// Inputs that wait or are in the run, by id.
    pub inbox: BTreeMap<i64, Submission>,
    /// The mode of a summary that is being written, or nothing.
    pub compaction: String,
    /// Conversations that work for it, by their ids.
    pub children: BTreeMap<i64, Child>,
    /// Whether entries older than the first one seen exist.
    pub more: bool,
    answer: Stream,
    thinking: Stream,
    outputs: BTreeMap<i64, Stream>,
    last_entry: i64,
}

/// Text that comes in chunks with offsets.
#[derive(Debug, Default)]
struct Stream {
    task: i64,
    /// Bytes that came before `kept`.
    dropped: u64,
    kept: String,
}

impl View {
    /// A conversation that is known by its id, or a new one (0).
    pub fn new(conversation: i64) -> Self {
        View {
            conversation,
            ..View::default()
        }
    }

    /// Whether a run is going on.
    pub fn is_busy(&self) -> bool {
        !is_idle(&self.run)
    }

    /// Whether nothing goes on until a person decides.
    pub fn waits_for_people(&self) -> bool {
        let at_work =
            |call: &Call| matches!(call.state.as_str(), "proposed" | "running" | "unreachable");
        self.is_busy()
            && !(self.approvals.is_empty() && self.questions.is_empty())
            && matches!(self.run.state.as_str(), "waiting" | "tools")
            && !self.calls.values().any(at_work)
    }

    /// The question that has waited longest.
    pub fn question(&self) -> Option<i64> {
        self.questions.keys().next().copied()
    }

    /// The approval that has waited longest.
    pub fn oldest_approval(&self) -> Option<&Approval> {
        self.approvals
            .values()
            .min_by_key(|approval| (approval.asked_ms, approval.call_task))
    }

    /// Conversations that work for a call, each before those that work for it.
    pub fn children_of(&self, call: i64) -> Vec<&Child> {
        let of = self.children.values();
        let mut found: Vec<_> = of.filter(|child| child.call_task == call).collect();
        found.sort_by_key(|child| (child.depth, child.conversation));
        found
    }

    /// Inputs that are not placed yet, oldest first.
    pub fn queued(&self) -> impl Iterator<Item = &Submission> {
        self.inbox
            .values()
            .filter(|submission| submission.state == "queued")
    }

    /// The text of the answer that is streaming.
    pub fn answer(&self) -> &str {
        &self.answer.kept
    }

    /// The end of what the model is thinking, while it does.
    pub fn thinking(&self) -> &str {
        &self.thinking.kept
    }

    /// The end of a call's output, and the bytes before it.
    pub fn output(&self, task: i64) -> (&str, u64) {
        self.outputs
            .get(&task)
            .map_or(("", 0), |stream| (&stream.kept, stream.dropped))
    }

    /// Takes a frame in; frames of other conversations change nothing.
    pub fn apply(&mut self, frame: WatchFrame) -> Vec<Event> {
        let mut events = Vec::new();
        match frame.frame {
            Some(Frame::Snapshot(view)) if self.is_ours(view.conversation) => {
                self.snapshot(view, &mut events);
            }
            Some(Frame::Change(change)) if self.is_ours(change.conversation) => {
                self.change(change, &mut events);
            }
            _ => {}
        }
        self.session = frame.session;
        self.sequence = frame.sequence;
        events
    }

    fn is_ours(&self, conversation: i64) -> bool {
        self.conversation != 0 && self.conversation == conversation
    }

    fn snapshot(&mut self, view: ConversationView, events: &mut Vec<Event>) {
        self.title = view.title;
        self.model = view.model;
        self.compaction = view.compaction;
        if self.last_entry == 0 {
            self.more = view.more;
        }
        self.entries(view.entries, events);
        for call in view.calls {
            self.call(call, events);
        }
        if view.chunks.is_empty() {
            self.answer = Stream::default();
            self.thinking = Stream::default();
        }
        for chunk in view.chunks {
            self.chunk(chunk, events);
        }
        // What has ended is shown with its run.
        self.children.retain(|_, child| is_settled(&child.state));
        self.worked(view.children);
        let asked: Vec<i64> = view.questions.iter().map(|question| question.id).collect();
        self.questions.retain(|id, _| asked.contains(id));
        for question in view.questions {
            self.ask(question, events);
        }
        // A snapshot is all there is: what it lacks was settled meanwhile.
        let open: Vec<String> = view
            .approvals
            .iter()
            .map(|approval| approval.id.clone())
            .collect();
        for approval in view.approvals {
            self.approval(approval, events);
        }
        let closed: Vec<String> = self
            .approvals
            .keys()
            .filter(|id| !open.contains(id))
            .cloned()
            .collect();
        for id in closed {
            if let Some(approval) = self.approvals.remove(&id) {
                events.push(Event::Decided(Approval {
                    state: "decided".into(),
                    ..approval
                }));
            }
        }
        let waiting: Vec<i64> = view.inbox.iter().map(|submission| submission.id).collect();
        self.inbox.retain(|id, _| waiting.contains(id));
        for submission in view.inbox {
            self.submission(submission, events);
        }
        match view.run {
            Some(run) => self.run(run, events),
            None => self.run(
                Run {
                    state: "idle".into(),
                    ..self.run.clone()
                },
                events,
            ),
        }
    }

    fn worked(&mut self, children: Vec<Child>) {
        for child in children {
            self.children.insert(child.conversation, child);
        }
    }

    fn change(&mut self, change: Change, events: &mut Vec<Event>) {
        self.worked(change.children);
        if let Some(compaction) = change.compaction {
            self.compaction = compaction;
        }
        // Chunks first: they came before the entry that ends their stream.
        for chunk in change.chunks {
            self.chunk(chunk, events);
        }
        let was_busy = self.is_busy();
        let goes_on = change.run.as_ref().filter(|run| !is_idle(run));
        let next = was_busy && goes_on.is_some_and(|run| run.id != self.run.id);
        if let Some(run) = goes_on.filter(|_| !was_busy) {
            self.run(run.clone(), events);
        }
        // One commit can end a run and begin the next: what follows the first
        // new input belongs to that one.
        let mut entries = change.entries;
        let inputs = entries
            .iter()
            .position(|entry| next && entry.kind == "pi.user");
        let later = entries.split_off(inputs.unwrap_or(entries.len()));
        self.entries(entries, events);
        for call in change.calls {
            self.call(call, events);
        }
        for approval in change.approvals {
            self.approval(approval, events);
        }
        for question in change.questions {
            self.ask(question, events);
        }
        let (settled, open): (Vec<_>, Vec<_>) = change
            .submissions
            .into_iter()
            .partition(|submission| is_settled(&submission.state));
        for submission in settled {
            self.submission(submission, events);
        }
        if let Some(ended) = change
            .ended
            .filter(|ended| was_busy && ended.id == self.run.id)
        {
            self.run = ended;
        }
        if let Some(run) = change.run {
            self.run(run, events);
        }
        self.entries(later, events);
        for submission in open {
            self.submission(submission, events);
        }
    }

    fn entries(&mut self, entries: Vec<Entry>, events: &mut Vec<Event>) {
        for entry in entries {
            if entry.id <= self.last_entry {
                continue;
            }
            self.last_entry = entry.id;
            let ends_answer = entry.kind == "pi.assistant";
            events.push(Event::Entry(entry));
            if ends_answer {
                self.answer = Stream::default();
                self.thinking = Stream::default();
            }
        }
    }

    fn chunk(&mut self, chunk: Chunk, events: &mut Vec<Event>) {
        match chunk.of() {
            Of::Answer => {
                if let Some(void) = self.answer.differs(&chunk)
                    && void
                {
                    events.push(Event::AnswerVoid);
                }
                let text = self.answer.push(chunk, ANSWER_MAX, Keep::Head);
                if !text.is_empty() {
                    events.push(Event::Answer(text));
                }
            }
            Of::Thinking => {
                let text = self.thinking.push(chunk, OUTPUT_TAIL, Keep::Tail);
                if !text.is_empty() {
                    events.push(Event::Thinking(text));
                }
            }
            Of::Output => {
                let task = chunk.task;
                let text =
                    self.outputs
                        .entry(task)
                        .or_default()
                        .push(chunk, OUTPUT_TAIL, Keep::Tail);
                if !text.is_empty() {
                    events.push(Event::Output { task, text });
                }
            }
            Of::Unspecified => {}
        }
    }

    fn call(&mut self, call: Call, events: &mut Vec<Event>) {
        if self.calls.get(&call.task) == Some(&call) {
            return;
        }
        self.calls.insert(call.task, call.clone());
        events.push(Event::Call(call));
    }

    fn ask(&mut self, question: Question, events: &mut Vec<Event>) {
        let known = match question.state.as_str() {
            "open" => self
                .questions
                .insert(question.id, question.clone())
                .is_some(),
            _ => self.questions.remove(&question.id).is_none(),
        };
        if !known {
            events.push(Event::Question(question));
        }
    }

    fn approval(&mut self, approval: Approval, events: &mut Vec<Event>) {
        if approval.state == "pending" {
            let known = self.approvals.insert(approval.id.clone(), approval.clone());
            if known.is_none() {
                events.push(Event::Asked(approval));
            }
        } else if self.approvals.remove(&approval.id).is_some() {
            events.push(Event::Decided(approval));
        }
    }

    fn submission(&mut self, submission: Submission, events: &mut Vec<Event>) {
        if is_settled(&submission.state) {
            self.inbox.remove(&submission.id);
        } else {
            self.inbox.insert(submission.id, submission.clone());
        }
        events.push(Event::Submission(submission));
    }

    fn run(&mut self, run: Run, events: &mut Vec<Event>) {
        let was_busy = self.is_busy();
        let ended = is_idle(&run);
        if was_busy && (ended || run.id != self.run.id) {
            // What is known last of it stands.
            events.push(Event::RunEnded(self.run.clone()));
            for child in self.children.values() {
                events.push(Event::Worked(child.clone()));
            }
            // What goes on in the background goes on being shown.
            self.children.retain(|_, child| !is_settled(&child.state));
            self.calls.clear();
            self.outputs.clear();
            self.answer = Stream::default();
            self.thinking = Stream::default();
        }
        if !ended && (!was_busy || run.id != self.run.id) {
            events.push(Event::RunBegan(run.clone()));
        }
        self.run = run;
    }
}

/// Whether this stands for no run at all.
fn is_idle(run: &Run) -> bool {
    matches!(run.state.as_str(), "" | "idle")
}

/// Whether a submission in this state never changes again.
pub fn is_settled(state: &str) -> bool {
    matches!(state, "done" | "unanswered")
}

/// Which end of a stream is kept when it is too long.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Keep {
    Head,
    Tail,
}

impl Stream {
    fn end(&self) -> u64 {
        self.dropped + self.kept.len() as u64
    }

    /// Whether the chunk says something else than what was kept for the same
    /// place: another attempt. `None` where nothing was kept.
    fn differs(&self, chunk: &Chunk) -> Option<bool> {
        if self.kept.is_empty() {
            return None;
        }
        if chunk.task != self.task {
            return Some(true);
        }
        let Some(at) = chunk.offset.checked_sub(self.dropped) else {
            return Some(false);
        };
        let at = usize::try_from(at).ok()?;
        let known = self.kept.as_bytes().get(at..).unwrap_or_default();
        let both = known.len().min(chunk.text.len());
        Some(known[..both] != chunk.text.as_bytes()[..both])
    }

    /// Takes a chunk in and returns what is new of it.
    fn push(&mut self, chunk: Chunk, max: usize, keep: Keep) -> String {
        if chunk.task != self.task || self.differs(&chunk) == Some(true) {
            *self = Stream {
                task: chunk.task,
                dropped: chunk.offset,
                kept: String::new(),
            };
        }
        let known = usize::try_from(self.end().saturating_sub(chunk.offset)).unwrap_or(usize::MAX);
        if chunk.offset > self.end() {
            // Something was missed: go on from here.
            self.dropped = chunk.offset;
            self.kept.clear();
        }
        let Some(new) = chunk.text.get(known..) else {
            return String::new();
        };
        match keep {
            Keep::Head if self.kept.len() + new.len() > max => return String::new(),
            _ => self.kept.push_str(new),
        }
        if keep == Keep::Tail && self.kept.len() > max {
            let mut at = self.kept.len() - max / 2;
            while !self.kept.is_char_boundary(at) {
                at += 1;
            }
            self.dropped += at as u64;
            self.kept.drain(..at);
        }
        new.to_owned()
    }
}

#[cfg(test)]
#[path = "view_tests.rs"]
mod tests;
