//! Streams that run: partial answers and tool output, between the ports that push
//! them and the line that commits them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use crate::{
    decoder::{Decoder, clean},
    id::{ConversationId, TaskId},
    model::PartialSink,
    sql::{batch::Batch, chunk::ChunkRow},
    tool::OutputSink,
    view::{ChunkView, StreamKind},
    window::{Retain, Window, gap_text},
};

/// Most output of one call that waits for the next tick; of more, the end is kept.
const MOST_WAITING: usize = 64 * 1024;
/// Committed output at which the retained window goes into the checkpoint, and its chunks go.
const FOLD_AT: u64 = 256 * 1024;

/// What is waiting in one stream.
#[derive(Debug, Default)]
struct Waiting {
    /// Bytes of the stream before `text`.
    offset: u64,
    text: String,
    /// Bytes of the stream that `text` stands for.
    length: u64,
}

impl Waiting {
    fn push(&mut self, text: &str, length: u64) {
        self.text.push_str(text);
        self.length += length;
    }

    /// Keeps the end only.
    fn bound(&mut self) {
        if self.text.len() > 2 * MOST_WAITING {
            let cut = self.text.len() - MOST_WAITING;
            let cut = (cut..=self.text.len())
                .find(|at| self.text.is_char_boundary(*at))
                .unwrap_or(self.text.len());
            self.text = gap_text(cut as u64) + &self.text[cut..];
        }
    }

    fn take(&mut self, task: TaskId, stream: StreamKind) -> Option<ChunkRow> {
        if self.length == 0 {
            return None;
        }
        let row = ChunkRow {
            task,
            stream,
            offset: self.offset,
            length: self.length,
            text: std::mem::take(&mut self.text),
        };
        self.offset += self.length;
        self.length = 0;
        Some(row)
    }

    fn give_back(&mut self, row: ChunkRow) {
        self.offset = row.offset;
        self.length += row.length;
        self.text.insert_str(0, &row.text);
    }
}

/// The output of one call.
#[derive(Debug)]
struct Output {
    decoder: Decoder,
    window: Window,
    /// Bytes of the stream that came, those held by the decoder included.
    seen: u64,
    unfolded: u64,
}

#[derive(Debug)]
struct Open {
    conversation: ConversationId,
    answer: Waiting,
    thinking: Waiting,
    output_waiting: Waiting,
    output: Output,
    /// Some chunk or checkpoint of it may be in the file.
    stored: bool,
}

/// A call's output so far, when it is opened again.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub window: Window,
    pub offset: u64,
}

/// What a tick commits.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    rows: Vec<(ConversationId, ChunkRow)>,
    folds: Vec<(TaskId, Window, u64)>,
}

impl Taken {
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As rows of a commit.
    pub fn batch(&self) -> Batch {
        let mut batch = Batch::default();
        for (_, row) in &self.rows {
            let folded = self.folds.iter().any(|(task, _, below)| {
                *task == row.task && row.stream == StreamKind::Output && row.offset < *below
            });
            if !folded {
                batch.insert_chunk(row);
            }
        }
        for (task, window, below) in &self.folds {
            batch.fold_output(*task, &(window, below), *below);
        }
        batch
    }

    /// As pieces to show, by conversation.
    pub fn views(&self) -> HashMap<ConversationId, Vec<ChunkView>> {
        let mut views: HashMap<_, Vec<_>> = HashMap::new();
        for (conversation, row) in &self.rows {
            views.entry(*conversation).or_default().push(ChunkView {
                of: row.stream,
                task: row.task,
                offset: row.offset,
                text: row.text.clone(),
            });
        }
        views
    }
}

/// All open streams of a session.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: Mutex<HashMap<TaskId, Open>>,
    /// Something began to wait.
    pub waiting: Notify,
}

impl Streams {
    fn lock(&self) -> MutexGuard<'_, HashMap<TaskId, Open>> {
        // A panic between two pushes leaves nothing half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a task's streams. `stored` is what the file has of its output.
    pub fn open(
        self: &Arc<Self>,
        conversation: ConversationId,
        task: TaskId,
        retain: Retain,
        stored: Option<Stored>,
    ) -> Sink {
        let offset = stored.as_ref().map_or(0, |stored| stored.offset);
        let open = Open {
            conversation,
            answer: Waiting::default(),
            thinking: Waiting::default(),
            output_waiting: Waiting {
                offset,
                ..Waiting::default()
            },
            stored: stored.is_some(),
            output: Output {
                decoder: Decoder::default(),
                window: stored.map_or_else(|| Window::new(retain), |stored| stored.window),
                seen: offset,
                unfolded: 0,
            },
        };
        self.lock().insert(task, open);
        Sink {
            streams: self.clone(),
            task,
        }
    }

    /// Ends a task's streams: nothing of them is committed any more. Gives the
    /// retained output, and whether the file has something of them.
    pub fn close(&self, task: TaskId) -> (String, bool) {
        match self.lock().remove(&task) {
            None => (String::new(), false),
            Some(mut open) => {
                let rest = open.output.decoder.finish();
                open.output.window.push(&rest);
                (open.output.window.render(), open.stored)
            }
        }
    }

    /// Another end of streams that are open.
    pub fn sink(self: &Arc<Self>, task: TaskId) -> Option<Sink> {
        self.lock().contains_key(&task).then(|| Sink {
            streams: self.clone(),
            task,
        })
    }

    /// How much of a call's output came.
    pub fn seen(&self, task: TaskId) -> u64 {
        self.lock().get(&task).map_or(0, |open| open.output.seen)
    }

    /// Everything that waits, for one commit.
    pub fn take(&self) -> Taken {
        let mut taken = Taken::default();
        for (task, open) in self.lock().iter_mut() {
            let Open {
                conversation,
                answer,
                thinking,
                output_waiting,
                output,
                stored,
            } = open;
            for (waiting, stream) in [
                (answer, StreamKind::Answer),
                (thinking, StreamKind::Thinking),
                (output_waiting, StreamKind::Output),
            ] {
                let Some(row) = waiting.take(*task, stream) else {
                    continue;
                };
                *stored = true;
                if stream == StreamKind::Output {
                    output.unfolded += row.text.len() as u64;
                    if output.unfolded > FOLD_AT {
                        output.unfolded = 0;
                        taken
                            .folds
                            .push((*task, output.window.clone(), row.offset + row.length));
                    }
                }
                taken.rows.push((*conversation, row));
            }
        }
        // In a fixed order, so that the same run makes the same commits.
        taken.rows.sort_by_key(|(_, row)| (row.task, row.offset));
        taken
    }

    /// The commit failed: what was taken waits again.
    pub fn give_back(&self, taken: Taken) {
        let mut all = self.lock();
        for (_, row) in taken.rows.into_iter().rev() {
            if let Some(open) = all.get_mut(&row.task) {
                match row.stream {
                    StreamKind::Answer => open.answer.give_back(row),
                    StreamKind::Thinking => open.thinking.give_back(row),
                    StreamKind::Output => {
                        open.output_waiting.give_back(row);
                        open.output_waiting.bound();
                    }
                }
            }
        }
        for (task, _, _) in taken.folds {
            if let Some(open) = all.get_mut(&task) {
                open.output.unfolded = FOLD_AT;
            }
        }
    }

    fn push(&self, task: TaskId, push: impl FnOnce(&mut Open)) {
        let mut all = self.lock();
        let Some(open) = all.get_mut(&task) else {
            return;
        };
        push(open);
        drop(all);
        self.waiting.notify_one();
    }
}

/// Where one task pushes to; once its streams are closed, into nothing.
#[derive(Debug, Clone)]
pub(crate) struct Sink {
    streams: Arc<Streams>,
    task: TaskId,
}

impl PartialSink for Sink {
    fn text(&self, delta: &str) {
        if !delta.is_empty() {
            let text = clean(delta.to_owned());
            self.streams
                .push(self.task, |open| open.answer.push(&text, text.len() as u64));
        }
    }

    fn thinking(&self, delta: &str) {
        if !delta.is_empty() {
            let text = clean(delta.to_owned());
            self.streams.push(self.task, |open| {
                open.thinking.push(&text, text.len() as u64)
            });
        }
    }
}

impl OutputSink for Sink {
    fn output(&self, offset: u64, bytes: &[u8]) {
        self.streams.push(self.task, |open| {
            let output = &mut open.output;
            if offset > output.seen {
                skip(output, &mut open.output_waiting, offset - output.seen);
            }
            // What came before, before a reconnect, came once.
            let known = (output.seen - offset).min(bytes.len() as u64);
            let new = &bytes[known as usize..];
            if new.is_empty() {
                return;
            }
            let held = output.decoder.held() as u64;
            let text = output.decoder.push(new);
            output.seen += new.len() as u64;
            let length = held + new.len() as u64 - output.decoder.held() as u64;
            output.window.push(&text);
            open.output_waiting.push(&text, length);
            open.output_waiting.bound();
        });
    }

    fn gap(&self, offset: u64, length: u64) {
        self.streams.push(self.task, |open| {
            let end = offset.saturating_add(length);
            if end > open.output.seen {
                let missing = end - open.output.seen;
                skip(&mut open.output, &mut open.output_waiting, missing);
            }
        });
    }
}

/// Notes that `missing` bytes never came.
fn skip(output: &mut Output, waiting: &mut Waiting, missing: u64) {
    let held = output.decoder.held() as u64;
    let text = output.decoder.finish();
    output.seen += missing;
    output.window.push(&text);
    output.window.gap(missing);
    waiting.push(&(text + &gap_text(missing)), held + missing);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn streams() -> (Arc<Streams>, Sink) {
        let streams = Arc::new(Streams::default());
        let sink = streams.open(ConversationId(1), TaskId(7), Retain::Tail, None);
        (streams, sink)
    }

    fn texts(taken: &Taken) -> Vec<(u64, u64, String)> {
        taken
            .rows
            .iter()
            .map(|(_, row)| (row.offset, row.length, row.text.clone()))
            .collect()
    }

    #[test]
    fn output_is_taken_once_and_in_order() {
        let (streams, sink) = streams();
        sink.output(0, b"ab\xC3");
        assert_eq!(texts(&streams.take()), [(0, 2, "ab".into())]);
        sink.output(2, b"\xC3\xA9c");
        assert_eq!(texts(&streams.take()), [(2, 3, "éc".into())]);
        assert!(streams.take().is_empty());
        sink.output(9, b"z");
        assert_eq!(
            texts(&streams.take()),
            [(5, 5, "[4 bytes not kept]\nz".into())]
        );
        sink.gap(10, 90);
        assert_eq!(
            texts(&streams.take()),
            [(10, 90, "[90 bytes not kept]\n".into())]
        );
        let (kept, stored) = streams.close(TaskId(7));
        assert_eq!(kept, "abéc[4 bytes not kept]\nz[90 bytes not kept]\n");
        assert!(stored);
        sink.output(100, b"late");
        assert!(streams.take().is_empty());
    }

    #[test]
    fn what_could_not_be_committed_waits_again() {
        let (streams, sink) = streams();
        sink.text("one ");
        let taken = streams.take();
        sink.text("two");
        streams.give_back(taken);
        assert_eq!(texts(&streams.take()), [(0, 7, "one two".into())]);
    }

    #[test]
    fn a_flood_between_two_ticks_keeps_its_end() {
        let (streams, sink) = streams();
        let piece = [b'x'; 1_000];
        for at in 0..10_000u64 {
            sink.output(at * 1_000, &piece);
        }
        let taken = streams.take();
        let (_, row) = &taken.rows[0];
        assert_eq!((row.offset, row.length), (0, 10_000_000));
        assert!(
            row.text.len() <= 2 * MOST_WAITING + 64 && row.text.starts_with('['),
            "{}",
            row.text.len()
        );
    }

    #[test]
    fn committed_output_is_folded_into_the_window() {
        let (streams, sink) = streams();
        let mut folds = 0;
        for at in 0..100u64 {
            sink.output(at * 10_000, &[b'y'; 10_000]);
            folds += streams.take().folds.len();
        }
        assert_eq!(folds, 3);
    }
}
