//! What a turn says: one input, five instantaneous tools, one answer.

use mooring_durable::message::{Message, Part, ToolCall};
use serde_json::json;

/// Calls in a round.
pub const CALLS: usize = 5;
/// Bytes of an input, of a result, and of an answer.
pub const INPUT: usize = 200;
pub const RESULT: usize = 1_500;
pub const ANSWER: usize = 800;

/// The texts of a turn.
pub struct Turn {
    pub input: String,
    pub result: String,
    pub answer: String,
}

impl Turn {
    pub fn new() -> Turn {
        let text = |length: usize| {
            "Lines of a program, and \"words\" about it.\n".repeat(length / 40 + 1)[..length]
                .to_owned()
        };
        Turn {
            input: text(INPUT),
            result: text(RESULT),
            answer: text(ANSWER),
        }
    }

    /// Bytes of JSON of all its messages: what has to be stored, whatever stores it.
    pub fn payload(&self) -> usize {
        let answer = Message::Assistant {
            content: vec![Part::text(&self.answer)],
        };
        let length = |message: &Message| serde_json::to_string(message).expect("plain data").len();
        length(&user(self))
            + length(&assistant(self))
            + (0..CALLS)
                .map(|at| length(&result(self, at)))
                .sum::<usize>()
            + length(&answer)
    }
}

pub fn user(turn: &Turn) -> Message {
    Message::User {
        content: vec![Part::text(&turn.input)],
    }
}

pub fn call(ordinal: usize) -> ToolCall {
    let arguments = json!({"path": format!("src/part-{ordinal}.rs"), "from": 1, "to": 80, "note": "to see what it does"});
    ToolCall {
        id: format!("call-{ordinal}"),
        name: "look".into(),
        arguments,
    }
}

pub fn assistant(_turn: &Turn) -> Message {
    Message::Assistant {
        content: (0..CALLS)
            .map(|ordinal| Part::ToolCall(call(ordinal)))
            .collect(),
    }
}

pub fn result(turn: &Turn, ordinal: usize) -> Message {
    Message::ToolResult {
        call_id: format!("call-{ordinal}"),
        name: "look".into(),
        content: vec![Part::text(&turn.result)],
        is_error: false,
    }
}
