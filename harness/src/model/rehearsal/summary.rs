//! What the rehearsal provider writes as a summary: how the conversation began, and for
//! how many answers it stands, so that a script goes on where it was.

use mooring_durable::message::{Message, Part};

use super::Turn;

/// In front of the number of answers that a summary stands for.
const ANSWERS: &str = "Rehearsal summary; answers so far: ";
/// Bytes of the beginning that are kept.
const BEGINNING: usize = 400;

/// The summary that a request asks for.
pub(super) fn turn(messages: &[Message]) -> Turn {
    let asked = messages.iter().filter_map(user).collect::<String>();
    let answers = asked.matches("\n<assistant>\n").count() + answers(&asked);
    let began = asked.split_once("<user>\n").map_or("", |(_, rest)| rest);
    // Of a summary that is summarised, what it says of the beginning.
    let began = began
        .split_once("It began: ")
        .map_or(began, |(_, rest)| rest);
    let began = &began[..began.floor_char_boundary(BEGINNING)];
    let began = began.split("\n<").next().unwrap_or_default().trim();
    Turn {
        text: format!("{ANSWERS}{answers}\nIt began: {began}"),
        ..Turn::default()
    }
}

/// The number of answers that a text says a summary in it stands for.
pub(super) fn answers(text: &str) -> usize {
    let digits = text.split_once(ANSWERS).map_or("", |(_, rest)| rest);
    let end = digits
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(digits.len());
    digits[..end].parse().unwrap_or(0)
}

fn user(message: &Message) -> Option<String> {
    let Message::User { content } = message else {
        return None;
    };
    let text = content.iter().filter_map(|part| match part {
        Part::Text { text } => Some(text.as_str()),
        _ => None,
    });
    Some(text.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_answers_and_keeps_the_beginning() {
        let asked = |text: &str| {
            turn(&[Message::User {
                content: vec![Part::text(text)],
            }])
            .text
        };
        let first = asked("\n<user>\nfix it\n\n<assistant>\nso\n\n<assistant>\ndone\n");
        assert_eq!(
            first,
            "Rehearsal summary; answers so far: 2\nIt began: fix it"
        );
        let again = asked(&format!(
            "\n<user>\nThis:\n\n{first}\n\n<assistant>\nmore\n"
        ));
        assert_eq!(
            again,
            "Rehearsal summary; answers so far: 3\nIt began: fix it"
        );
    }
}
