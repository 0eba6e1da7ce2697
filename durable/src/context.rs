//! The context that the model sees, derived from entries.
//!
//! Each entry is taken once, so that a turn costs what it adds and not what came
//! before it. Entries with edits, and heads, make the context be derived anew.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::{
    id::{EntryId, Hash},
    message::{Message, Part, ToolCall, ToolSchema},
    model::ModelRequest,
    prompt::Section,
    section::{self, Told},
    sql::entry::{Edit, EntryRow, kind},
};

/// An entry, with the texts that its data names by hash.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    pub row: Arc<EntryRow>,
    /// Of a `pi.system` entry: its sections' texts.
    pub texts: Vec<String>,
}

impl Item {
    /// What the entry says, system texts put together.
    pub fn message(&self) -> Option<Message> {
        if self.row.kind == kind::SYSTEM
            && self.row.message.is_none()
            && let Some(told) = self.told()
        {
            return Some(Message::System {
                text: section::text(&told, &self.texts),
            });
        }
        self.row.message.clone()
    }

    fn told(&self) -> Option<Told> {
        serde_json::from_value(self.row.data.clone()).ok()
    }
}

/// A round whose results are not all there.
#[derive(Debug, Clone)]
struct Round {
    calls: Vec<ToolCall>,
    results: HashMap<String, Message>,
    /// What came between its calls and its last result.
    after: Vec<Message>,
}

/// A context that grows.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    request: Arc<ModelRequest>,
    canonical: Canonical,
    sections: Vec<Section>,
    /// A whole baseline of the sections is in it.
    based: bool,
    round: Option<Round>,
    cutoff: EntryId,
    bytes: usize,
}

impl Context {
    /// Derives the context of a range of entries, oldest first.
    pub fn derive(items: &[Item]) -> Context {
        let mut edits: HashMap<EntryId, &Edit> = HashMap::new();
        for item in items {
            for edit in &item.row.edits {
                // The newest edit of a target wins.
                edits.insert(edit.target, edit);
            }
        }
        let mut context = Context {
            request: Arc::new(ModelRequest {
                model: String::new(),
                options: Value::Null,
                tools: Vec::new(),
                messages: Vec::new(),
            }),
            canonical: Canonical::default(),
            sections: Vec::new(),
            based: false,
            round: None,
            cutoff: EntryId(0),
            bytes: 0,
        };
        for item in items {
            match edits.get(&item.row.id) {
                None => context.push(item),
                Some(Edit { replace: None, .. }) => {
                    context.cutoff = context.cutoff.max(item.row.id)
                }
                Some(Edit {
                    replace: Some(message),
                    ..
                }) => {
                    let row = EntryRow {
                        message: Some(message.clone()),
                        ..(*item.row).clone()
                    };
                    context.push(&Item {
                        row: Arc::new(row),
                        texts: item.texts.clone(),
                    });
                }
            }
        }
        context
    }

    /// Whether an entry only adds to a context.
    pub fn appends(row: &EntryRow) -> bool {
        row.head.is_none() && row.edits.is_empty()
    }

    /// Adds the next entry.
    pub fn push(&mut self, item: &Item) {
        // A head's own entry comes before older ones that its range begins with.
        self.cutoff = self.cutoff.max(item.row.id);
        if let Some(told) = item.told().filter(|_| item.row.kind == kind::SYSTEM) {
            if told.baseline {
                self.sections.clear();
                self.based = true;
            }
            // What a head leaves of changes is no basis to tell others by.
            if self.based {
                section::apply(&mut self.sections, &told, &item.texts);
            }
        }
        if !item.row.state.is_empty() {
            return;
        }
        let Some(message) = item.message() else {
            return;
        };
        match message {
            Message::Assistant { content } => {
                self.close();
                let calls: Vec<_> = calls_of(&content).cloned().collect();
                self.say(Message::Assistant { content });
                if !calls.is_empty() {
                    self.round = Some(Round {
                        calls,
                        results: HashMap::new(),
                        after: Vec::new(),
                    });
                }
            }
            Message::ToolResult { ref call_id, .. } => {
                // A result without a call is dropped.
                if let Some(round) = &mut self.round
                    && round.calls.iter().any(|call| call.id == *call_id)
                {
                    round.results.entry(call_id.clone()).or_insert(message);
                    if round.results.len() == round.calls.len() {
                        self.close();
                    }
                }
            }
            other => match &mut self.round {
                Some(round) => round.after.push(other),
                None => self.say(other),
            },
        }
    }

    /// Ends an open round: results in call order, missing ones as errors, then what
    /// came between them.
    fn close(&mut self) {
        let Some(Round {
            calls,
            mut results,
            after,
        }) = self.round.take()
        else {
            return;
        };
        for call in calls {
            let result = results
                .remove(&call.id)
                .unwrap_or_else(|| Message::ToolResult {
                    call_id: call.id,
                    name: call.name,
                    content: vec![Part::text(
                        "There is no result: the call was not carried out.",
                    )],
                    is_error: true,
                });
            self.say(result);
        }
        after.into_iter().for_each(|message| self.say(message));
    }

    fn say(&mut self, message: Message) {
        self.bytes += weight(&message);
        // The request is lent to one attempt at a time, so this does not copy.
        Arc::make_mut(&mut self.request).messages.push(message);
    }

    /// The sections as they were last told.
    pub fn sections(&self) -> &[Section] {
        &self.sections
    }

    /// The newest entry in it.
    pub fn cutoff(&self) -> EntryId {
        self.cutoff
    }

    /// About how much memory it takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The request as it stands, for these settings, and its hash.
    pub fn request(
        &mut self,
        model: &str,
        options: &Value,
        tools: &[ToolSchema],
    ) -> (Arc<ModelRequest>, Hash) {
        self.close();
        let same = self.request.model == model
            && self.request.options == *options
            && self.request.tools == tools;
        if !same {
            let request = Arc::make_mut(&mut self.request);
            request.model = model.to_owned();
            request.options = options.clone();
            request.tools = tools.to_vec();
            self.canonical = Canonical::default();
        }
        let hash = self.canonical.hash(&self.request);
        (self.request.clone(), hash)
    }
}

/// The calls in an answer.
pub(crate) fn calls_of(content: &[Part]) -> impl Iterator<Item = &ToolCall> {
    content.iter().filter_map(|part| match part {
        Part::ToolCall(call) => Some(call),
        _ => None,
    })
}

/// About the bytes of a message.
pub(crate) fn weight(message: &Message) -> usize {
    let part = |part: &Part| match part {
        Part::Text { text } => text.len(),
        Part::Thinking { text, signature } => {
            text.len() + signature.as_ref().map_or(0, String::len)
        }
        Part::Image { data, .. } => data.len(),
        Part::ToolCall(call) => call.name.len() + call.id.len() + value_weight(&call.arguments),
    };
    128 + match message {
        Message::System { text } => text.len(),
        Message::User { content }
        | Message::Assistant { content }
        | Message::ToolResult { content, .. } => content.iter().map(|it| 64 + part(it)).sum(),
    }
}

fn value_weight(value: &Value) -> usize {
    32 + match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_weight).sum(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| key.len() + value_weight(value))
            .sum(),
        _ => 0,
    }
}

/// The hash of the canonical request, kept up as messages are added.
#[derive(Clone, Default)]
struct Canonical {
    hasher: Option<Sha256>,
    messages: usize,
}

impl std::fmt::Debug for Canonical {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Canonical")
            .field("messages", &self.messages)
            .finish()
    }
}

impl Canonical {
    /// Of `request`, whose messages only grew since the last time.
    fn hash(&mut self, request: &ModelRequest) -> Hash {
        let hasher = self.hasher.get_or_insert_with(|| {
            let empty = ModelRequest {
                messages: Vec::new(),
                ..clone_head(request)
            };
            let head = json(&empty);
            let mut hasher = Sha256::new();
            // Messages come last: all but the "]}" of the empty list.
            hasher.update(&head[..head.len() - 2]);
            hasher
        });
        let mut text = Vec::new();
        for message in &request.messages[self.messages..] {
            if self.messages > 0 {
                text.push(b',');
            }
            serde_json::to_writer(&mut text, message).expect("requests are plain data");
            hasher.update(&text);
            text.clear();
            self.messages += 1;
        }
        let mut whole = hasher.clone();
        whole.update(b"]}");
        Hash(hex::encode(whole.finalize()))
    }
}

fn clone_head(request: &ModelRequest) -> ModelRequest {
    ModelRequest {
        model: request.model.clone(),
        options: request.options.clone(),
        tools: request.tools.clone(),
        messages: Vec::new(),
    }
}

fn json<T: serde::Serialize>(value: &T) -> Vec<u8> {
    serde_json::to_vec(value).expect("requests are plain data")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{ConversationId, Millis};

    fn item(id: i64, kind: &str, message: Option<Message>) -> Item {
        Item {
            row: Arc::new(EntryRow {
                id: EntryId(id),
                conversation: ConversationId(1),
                seq: id,
                kind: kind.into(),
                state: "",
                message,
                data: Value::Null,
                head: None,
                edits: Vec::new(),
                writer: None,
                submission: None,
                at: Millis(0),
            }),
            texts: Vec::new(),
        }
    }

    fn user(id: i64, text: &str) -> Item {
        item(
            id,
            kind::USER,
            Some(Message::User {
                content: vec![Part::text(text)],
            }),
        )
    }

    fn answer(id: i64, calls: &[&str]) -> Item {
        let mut content = vec![Part::text("so")];
        content.extend(calls.iter().map(|id| {
            Part::ToolCall(ToolCall {
                id: (*id).into(),
                name: "t".into(),
                arguments: Value::Null,
            })
        }));
        item(id, kind::ASSISTANT, Some(Message::Assistant { content }))
    }

    fn result(id: i64, call: &str) -> Item {
        let content = vec![Part::text(format!("of {call}"))];
        item(
            id,
            kind::TOOL_RESULT,
            Some(Message::ToolResult {
                call_id: call.into(),
                name: "t".into(),
                content,
                is_error: false,
            }),
        )
    }

    fn system(id: i64, text: &str) -> Item {
        item(
            id,
            kind::SYSTEM,
            Some(Message::System { text: text.into() }),
        )
    }

    fn edited(id: i64, target: i64, replace: Option<&str>) -> Item {
        let mut item = user(id, "edit");
        let row = Arc::make_mut(&mut item.row);
        row.message = None;
        row.edits = vec![Edit {
            target: EntryId(target),
            replace: replace.map(|text| Message::User {
                content: vec![Part::text(text)],
            }),
        }];
        item
    }

    fn state(mut item: Item, state: &'static str) -> Item {
        Arc::make_mut(&mut item.row).state = state;
        item
    }

    fn shown(items: &[Item]) -> String {
        let mut context = Context::derive(items);
        let (request, _) = context.request("m", &Value::Null, &[]);
        let word = |message: &Message| match message {
            Message::System { text } => format!("S:{text}"),
            Message::User { content } => match &content[0] {
                Part::Text { text } => format!("U:{text}"),
                _ => "U".into(),
            },
            Message::Assistant { content } => format!("A{}", calls_of(content).count()),
            Message::ToolResult {
                call_id, is_error, ..
            } => format!("R:{call_id}{}", if *is_error { "!" } else { "" }),
        };
        request
            .messages
            .iter()
            .map(word)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn d035_results_stand_after_their_call_in_call_order() {
        let items = [
            user(1, "q"),
            answer(2, &["a", "b"]),
            result(3, "b"),
            system(4, "news"),
            result(5, "a"),
            user(6, "s"),
        ];
        assert_eq!(shown(&items), "U:q A2 R:a R:b S:news U:s");
    }

    #[test]
    fn contexts_by_what_happened() {
        for (name, items, expected) in [
            (
                "a missing result is an error",
                vec![
                    user(1, "q"),
                    answer(2, &["a", "b"]),
                    result(3, "a"),
                    user(4, "r"),
                ],
                "U:q A2 R:a R:b! U:r",
            ),
            (
                "a round that is left open",
                vec![user(1, "q"), answer(2, &["a"])],
                "U:q A1 R:a!",
            ),
            (
                "a stray result is dropped",
                vec![user(1, "q"), result(2, "z"), answer(3, &[])],
                "U:q A0",
            ),
            (
                "a second result is dropped",
                vec![
                    user(1, "q"),
                    answer(2, &["a"]),
                    result(3, "a"),
                    result(4, "a"),
                    user(5, "r"),
                ],
                "U:q A1 R:a U:r",
            ),
            (
                "errors and aborted answers are left out",
                vec![
                    user(1, "q"),
                    state(answer(2, &[]), "error"),
                    state(answer(3, &["a"]), "aborted"),
                    user(4, "r"),
                ],
                "U:q U:r",
            ),
            (
                "entries without a message are left out",
                vec![user(1, "q"), item(2, "host.note", None), user(3, "r")],
                "U:q U:r",
            ),
            (
                "an omitted entry",
                vec![user(1, "q"), user(2, "r"), edited(3, 1, None)],
                "U:r",
            ),
            (
                "the newest edit wins",
                vec![user(1, "q"), edited(2, 1, None), edited(3, 1, Some("p"))],
                "U:p",
            ),
        ] {
            assert_eq!(shown(&items), expected, "{name}");
        }
    }

    #[test]
    fn growing_and_deriving_give_the_same_request_and_hash() {
        let items = [
            user(1, "q"),
            answer(2, &["a", "b"]),
            result(3, "b"),
            system(4, "n"),
            result(5, "a"),
            answer(6, &["c"]),
            result(7, "c"),
            answer(8, &[]),
            user(9, "again"),
        ];
        let tools = [ToolSchema {
            name: "t".into(),
            description: "d".into(),
            parameters: serde_json::json!({}),
        }];
        let options = serde_json::json!({"thinking": "low"});
        let mut grown = Context::derive(&[]);
        for (at, item) in items.iter().enumerate() {
            grown.push(item);
            // Requests go out between entries, but never within a round.
            if [0, 4, 6, 8].contains(&at) {
                let (request, hash) = grown.request("m", &options, &tools);
                let mut derived = Context::derive(&items[..=at]);
                let (again, hash_again) = derived.request("m", &options, &tools);
                assert_eq!(request, again);
                assert_eq!(hash, hash_again);
                assert_eq!(
                    hash,
                    Hash::of(&json(&*request)),
                    "the canonical JSON's own hash"
                );
            }
        }
        let (_, other) = grown.request("m2", &options, &tools);
        let (request, _) = grown.request("m2", &options, &tools);
        assert_eq!(other, Hash::of(&json(&*request)));
    }
}
