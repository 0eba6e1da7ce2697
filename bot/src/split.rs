//! Long answers in parts that Discord takes.
//!
//! Every part has at most 2000 characters, its code fences are balanced (closed at
//! its end and opened again in the next part, with the language where it is short),
//! and no character is cut in two. At most five parts; the rest goes into a file.

/// Characters of one message (Unicode scalar values, as Discord counts).
pub const LIMIT: usize = 2_000;
/// Parts of one answer.
pub const PARTS: usize = 5;
/// Characters of a fence's opening that are repeated in the next part.
const OPENING: usize = 40;

/// A blank of no width: what follows is not at the beginning of its line.
const GUARD: &str = "\u{200b}";

/// An answer as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Messages, in order.
    pub parts: Vec<String>,
    /// The whole answer, when it does not fit into the parts.
    pub file: Option<String>,
}

/// Splits an answer; the first part leaves `reserved` characters free.
pub fn split(text: &str, reserved: usize) -> Split {
    let mut parts = pieces(text, reserved);
    let mut file = None;
    if parts.len() > PARTS {
        parts.truncate(PARTS);
        file = Some(text.to_owned());
        if let Some(last) = parts.last_mut() {
            *last = with_note(last, "*The whole answer is in the file.*");
        }
    }
    Split { parts, file }
}

/// The text, shortened by whole lines where needed, with a note below it.
fn with_note(part: &str, note: &str) -> String {
    let room = LIMIT - note.chars().count() - 2;
    let kept = pieces_of(part, room, room)
        .into_iter()
        .next()
        .unwrap_or_default();
    format!("{kept}\n\n{note}")
}

fn pieces(text: &str, reserved: usize) -> Vec<String> {
    pieces_of(
        text.trim(),
        LIMIT.saturating_sub(reserved).max(LIMIT / 2),
        LIMIT,
    )
}

/// An open fence: its marker (backticks or tildes) and how it is opened again.
#[derive(Clone)]
struct Fence {
    marker: String,
    opening: String,
}

impl Fence {
    /// Characters that closing it takes, with the line break before.
    fn closing(&self) -> usize {
        self.marker.chars().count() + 1
    }
}

/// The fence after this line.
fn after_line(fence: Option<Fence>, line: &str) -> Option<Fence> {
    let trimmed = line.trim_start();
    // More than three blanks before it make it text (CommonMark 4.5).
    let is_fence = line.len() - trimmed.len() <= 3;
    let mark = trimmed.chars().next().filter(|c| matches!(c, '`' | '~'));
    let Some(mark) = mark.filter(|_| is_fence) else {
        return fence;
    };
    let length = trimmed.chars().take_while(|c| *c == mark).count();
    let info = &trimmed[length..];
    if length < 3 {
        return fence;
    }
    match fence {
        Some(open) => {
            let closes = open.marker.starts_with(mark)
                && length >= open.marker.chars().count()
                && info.trim().is_empty();
            if closes { None } else { Some(open) }
        }
        None if mark == '`' && info.contains('`') => None,
        None => {
            // A fence that is longer than a few marks is opened again as three: the
            // repeated lines must never eat up a part.
            let marker: String = std::iter::repeat_n(mark, length.min(10)).collect();
            let language = info.split_whitespace().next().unwrap_or("");
            // Only what is surely a language is repeated: a mark would lengthen the fence.
            let plain = |c: char| c.is_alphanumeric() || "+-_#.".contains(c);
            let repeated = language.chars().count() <= OPENING && language.chars().all(plain);
            let language = if repeated { language } else { "" };
            Some(Fence {
                opening: format!("{marker}{language}"),
                marker,
            })
        }
    }
}

fn pieces_of(text: &str, first: usize, limit: usize) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut part = String::new();
    let mut count = 0;
    let mut fence: Option<Fence> = None;
    // Whether the part holds something beside the repeated opening of a fence.
    let mut filled = false;
    let room = |parts: &Vec<String>| if parts.is_empty() { first } else { limit };

    let finish =
        |parts: &mut Vec<String>, part: &mut String, count: &mut usize, fence: &Option<Fence>| {
            let mut done = std::mem::take(part);
            if let Some(fence) = fence {
                done.push('\n');
                done.push_str(&fence.marker);
            }
            parts.push(done);
            *count = 0;
            if let Some(fence) = fence {
                part.push_str(&fence.opening);
                *count = fence.opening.chars().count();
            }
        };

    for line in text.split('\n') {
        let mut rest = line;
        // A fence line longer than its repetition allows is shortened: it is cut to
        // its marker and language, which is what Discord reads of it.
        let next = after_line(fence.clone(), line);
        let shortened;
        if fence.is_none()
            && let Some(opened) = &next
            && (line.chars().count() > limit / 4
                || line.trim_start().starts_with(&format!(
                    "{}{}",
                    opened.marker,
                    &opened.marker[..1]
                )))
        {
            shortened = opened.opening.clone();
            rest = &shortened;
        }
        // A closing fence of any length closes as well with its marker alone.
        let closing = fence
            .as_ref()
            .filter(|_| next.is_none())
            .map(|open| open.marker.clone());
        if let Some(closing) = closing.as_deref()
            && line.chars().count() > limit / 4
        {
            rest = closing;
        }
        // Pieces of a cut line must not read as a fence where the line is none.
        let reads_as_fence =
            |piece: &str| after_line(fence.clone(), piece).is_some() != fence.is_some();
        let mut continued = false;
        loop {
            let reserve = next
                .as_ref()
                .or(fence.as_ref())
                .map_or(0, Fence::closing)
                .max(fence.as_ref().map_or(0, Fence::closing));
            let separator = usize::from(count > 0);
            let guard = if continued && reads_as_fence(rest) {
                GUARD
            } else {
                ""
            };
            let length = rest.chars().count() + guard.chars().count();
            if count + separator + length + reserve <= room(&parts) {
                if separator == 1 {
                    part.push('\n');
                }
                part.push_str(guard);
                part.push_str(rest);
                count += separator + length;
                filled = true;
                break;
            }
            if filled {
                finish(&mut parts, &mut part, &mut count, &fence);
                filled = false;
                continue;
            }
            // The line alone is too long: cut between words where there are any.
            let free = room(&parts)
                .saturating_sub(count + separator + reserve)
                .max(1);
            let hard = rest
                .char_indices()
                .nth(free)
                .map_or(rest.len(), |(at, _)| at);
            let cut = rest[..hard]
                .rfind(' ')
                .filter(|at| *at > hard / 2)
                .map_or(hard, |at| at + 1);
            if separator == 1 {
                part.push('\n');
            }
            if reads_as_fence(&rest[..cut]) {
                part.push_str(GUARD);
            }
            part.push_str(&rest[..cut]);
            finish(&mut parts, &mut part, &mut count, &fence);
            rest = &rest[cut..];
            continued = true;
        }
        fence = next;
    }
    if filled {
        // An answer that ends inside a fence is closed there.
        if let Some(fence) = &fence {
            part.push('\n');
            part.push_str(&fence.marker);
        }
        parts.push(part);
    }
    // Discord refuses a message of blanks.
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads a part as Discord does: whether a fence is open at its end.
    fn balanced(part: &str) -> bool {
        let mut open: Option<(char, usize)> = None;
        for line in part.split('\n') {
            let trimmed = line.trim_start();
            let Some(mark) = trimmed.chars().next().filter(|c| matches!(c, '`' | '~')) else {
                continue;
            };
            let length = trimmed.chars().take_while(|c| *c == mark).count();
            let info = &trimmed[length..];
            if length < 3 || line.len() - trimmed.len() > 3 {
                continue;
            }
            open = match open {
                Some((by, least)) if by == mark && length >= least && info.trim().is_empty() => {
                    None
                }
                Some(open) => Some(open),
                None if mark == '`' && info.contains('`') => None,
                None => Some((mark, length)),
            };
        }
        open.is_none()
    }

    fn check(text: &str, reserved: usize) -> Split {
        let split = split(text, reserved);
        assert!(split.parts.len() <= PARTS);
        for (n, part) in split.parts.iter().enumerate() {
            let limit = if n == 0 { LIMIT - reserved } else { LIMIT };
            assert!(
                part.chars().count() <= limit,
                "part {n} has {}",
                part.chars().count()
            );
            assert!(balanced(part), "part {n} leaves a fence open:\n{part}");
            assert!(!part.trim().is_empty());
        }
        if split.file.is_some() {
            assert_eq!(split.file.as_deref(), Some(text));
        }
        split
    }

    #[test]
    fn a_short_answer_is_one_part_as_it_is() {
        let text = "Fixed.\n\n```rust\nfn main() {}\n```\nDone.";
        assert_eq!(
            check(text, 0),
            Split {
                parts: vec![text.into()],
                file: None
            }
        );
        assert_eq!(
            check("", 0),
            Split {
                parts: vec![],
                file: None
            }
        );
    }

    #[test]
    fn f31_a_long_fence_line_never_pushes_a_part_over_the_limit() {
        for info in [10, 1_990, 2_000, 5_000] {
            let text = format!("```{}\n{}\n```", "x".repeat(info), "line\n".repeat(900));
            check(&text, 0);
        }
        check(
            &format!("{}\n{}", "`".repeat(1_999), "a\n".repeat(3_000)),
            0,
        );
        check(
            &format!("{}\n{}", "~".repeat(2_500), "a\n".repeat(3_000)),
            100,
        );
    }

    #[test]
    fn f32_each_part_of_a_long_code_block_is_fenced() {
        let text = format!("See:\n```python\n{}```", "print('hello')\n".repeat(400));
        let split = check(&text, 0);
        assert!(split.parts.len() >= 3);
        for part in &split.parts[1..] {
            assert!(part.starts_with("```python\n"), "{}", &part[..30]);
            assert!(part.ends_with("```"));
        }
    }

    #[test]
    fn f40_an_answer_of_60698_characters_is_five_parts_and_a_file() {
        let text = "word ".repeat(60_698 / 5);
        let split = check(text.trim(), 0);
        assert_eq!(split.parts.len(), PARTS);
        assert!(split.file.is_some());
        assert!(split.parts[4].ends_with("*The whole answer is in the file.*"));
    }

    #[test]
    fn nothing_is_lost_between_parts() {
        let text: String = (0..1_500).map(|n| format!("w{n} ")).collect();
        let split = check(text.trim(), 0);
        assert!(split.file.is_none());
        let joined: String = split.parts.concat().split_whitespace().collect();
        assert_eq!(joined, text.split_whitespace().collect::<String>());
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

        #[test]
        fn every_part_is_within_the_limit_and_balanced(
            lines in proptest::collection::vec(
                prop_oneof![
                    "[a-z ]{0,80}",
                    "(`{3,9}|~{3,9})[a-z`~ ]{0,60}",
                    "[`~]{1,2100}",
                    "\\PC{0,2500}",
                    " {0,5}```.{0,20}",
                ],
                0..60,
            ),
            reserved in 0usize..400,
        ) {
            check(lines.join("\n").trim(), reserved);
        }
    }
}
