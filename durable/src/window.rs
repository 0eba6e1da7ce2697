//! The retained window of a call's output: what of it the model is shown.

use serde::{Deserialize, Serialize};

/// Most bytes of output that are kept.
pub const MAX_BYTES: usize = 50 * 1024;
/// Most lines of output that are kept.
pub const MAX_LINES: usize = 2_000;

/// Which end of the output is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Retain {
    /// The beginning.
    Head,
    /// The end.
    #[default]
    Tail,
}

/// Output as it is kept: bounded, in whole lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    retain: Retain,
    text: String,
    /// Bytes of output that `text` does not show.
    dropped: u64,
    /// Gaps in `text`: where their line begins, and the bytes that it stands for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<(usize, u64)>,
}

/// Gaps that are counted exactly; an output has one, and one more on a full disk.
const MAX_GAPS: usize = 16;

/// Text that stands for bytes that nobody has any more. An output file says it in
/// the same words.
pub(crate) fn gap_text(bytes: u64) -> String {
    format!("[{bytes} bytes not kept]\n")
}

/// Text that stands for bytes that are not shown here.
fn hidden_text(bytes: u64) -> String {
    format!("[{bytes} bytes not shown]\n")
}

impl Window {
    /// An empty window.
    pub fn new(retain: Retain) -> Window {
        Window {
            retain,
            text: String::new(),
            dropped: 0,
            gaps: Vec::new(),
        }
    }

    /// Notes that `bytes` of output are missing here.
    pub fn gap(&mut self, bytes: u64) {
        let line = gap_text(bytes);
        if self.retain == Retain::Head && self.text.len() + line.len() > MAX_BYTES {
            self.dropped += bytes;
        } else {
            if self.gaps.len() < MAX_GAPS {
                self.gaps.push((self.text.len(), bytes));
            }
            self.push(&line);
        }
    }

    /// Counts the gaps whose lines begin in `cut` for the bytes that they stand for.
    fn drop_gaps(&mut self, cut: std::ops::Range<usize>) {
        let moved = match self.retain {
            Retain::Tail => cut.len(),
            Retain::Head => 0,
        };
        let mut dropped = 0;
        self.gaps.retain_mut(|(at, bytes)| {
            if cut.contains(at) {
                dropped += bytes.saturating_sub(gap_text(*bytes).len() as u64);
                return false;
            }
            *at -= moved;
            true
        });
        self.dropped += dropped;
    }

    /// Adds output. Trims only now and then, so that the cost of a piece does not
    /// grow with what came before.
    pub fn push(&mut self, text: &str) {
        match self.retain {
            Retain::Tail => {
                self.text.push_str(text);
                if self.text.len() > 2 * MAX_BYTES {
                    self.trim();
                }
            }
            Retain::Head => {
                // One byte more than is kept shows that a line goes on.
                let room = (MAX_BYTES + 1).saturating_sub(self.text.len());
                let taken = floor(text, room);
                self.text.push_str(&text[..taken]);
                self.dropped += (text.len() - taken) as u64;
            }
        }
    }

    fn trim(&mut self) {
        match self.retain {
            Retain::Tail => {
                let cut = tail_cut(&self.text);
                self.dropped += cut as u64;
                self.drop_gaps(0..cut);
                self.text.drain(..cut);
            }
            Retain::Head => {
                let cut = head_cut(&self.text);
                self.dropped += (self.text.len() - cut) as u64;
                self.drop_gaps(cut..self.text.len());
                self.text.truncate(cut);
            }
        }
    }

    /// The text for the model, with what is missing said in its place.
    pub fn render(&self) -> String {
        let mut kept = self.clone();
        kept.trim();
        if kept.dropped == 0 {
            return kept.text;
        }
        match kept.retain {
            Retain::Tail => hidden_text(kept.dropped) + &kept.text,
            Retain::Head => {
                if !kept.text.is_empty() && !kept.text.ends_with('\n') {
                    kept.text.push('\n');
                }
                kept.text + &hidden_text(kept.dropped)
            }
        }
    }
}

/// Where the kept end of `text` begins.
fn tail_cut(text: &str) -> usize {
    let too_long = text.len().saturating_sub(MAX_BYTES);
    let by_lines = text
        .trim_end_matches('\n')
        .rmatch_indices('\n')
        .nth(MAX_LINES - 1)
        .map_or(0, |(at, _)| at + 1);
    let cut = too_long.max(by_lines);
    if cut == 0 || cut == by_lines {
        return cut;
    }
    // The next line that is whole; within one endless line, the next character.
    match text.as_bytes()[cut - 1..]
        .iter()
        .position(|byte| *byte == b'\n')
    {
        Some(at) if cut + at < text.len() => cut + at,
        _ => (cut..=text.len())
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(text.len()),
    }
}

/// Where the kept beginning of `text` ends.
fn head_cut(text: &str) -> usize {
    let by_lines = text
        .match_indices('\n')
        .nth(MAX_LINES - 1)
        .map_or(text.len(), |(at, _)| at + 1);
    if by_lines <= MAX_BYTES {
        return by_lines;
    }
    let limit = floor(text, MAX_BYTES);
    text[..limit].rfind('\n').map_or(limit, |at| at + 1)
}

/// The largest character boundary of `text` at or below `limit`.
pub(crate) fn floor(text: &str, limit: usize) -> usize {
    if limit >= text.len() {
        return text.len();
    }
    (0..=limit)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(retain: Retain, pieces: &[&str]) -> String {
        let mut window = Window::new(retain);
        pieces.iter().for_each(|piece| window.push(piece));
        window.render()
    }

    #[test]
    fn short_output_is_kept_as_it_is() {
        for retain in [Retain::Head, Retain::Tail] {
            assert_eq!(window(retain, &["a\n", "b", "c\n"]), "a\nbc\n");
            assert_eq!(window(retain, &[]), "");
        }
    }

    #[test]
    fn long_output_is_cut_at_whole_lines_with_the_loss_said() {
        let line = format!("{}\n", "x".repeat(99));
        let all = line.repeat(1_000);
        let tail = window(Retain::Tail, &[&all]);
        assert_eq!(
            tail,
            format!(
                "[{} bytes not shown]\n{}",
                1_000 * 100 - 512 * 100,
                line.repeat(512)
            )
        );
        let head = window(Retain::Head, &[&all]);
        assert_eq!(
            head,
            format!(
                "{}[{} bytes not shown]\n",
                line.repeat(512),
                1_000 * 100 - 512 * 100
            )
        );
    }

    #[test]
    fn many_lines_are_cut_to_the_limit_of_lines() {
        let all = "a\n".repeat(3_000);
        assert_eq!(
            window(Retain::Tail, &[&all]),
            format!("[2000 bytes not shown]\n{}", "a\n".repeat(2_000))
        );
        assert_eq!(
            window(Retain::Head, &[&all]),
            format!("{}[2000 bytes not shown]\n", "a\n".repeat(2_000))
        );
    }

    #[test]
    fn pieces_and_the_whole_give_the_same_window() {
        let all: String = (0..20_000).map(|at| format!("line {at} é\n")).collect();
        for retain in [Retain::Head, Retain::Tail] {
            let mut pieces = Vec::new();
            let mut rest = all.as_str();
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(floor(rest, 777));
                pieces.push(piece);
                rest = later;
            }
            assert_eq!(window(retain, &pieces), window(retain, &[&all]));
        }
    }

    #[test]
    fn one_endless_line_is_cut_between_characters() {
        let all = "é".repeat(60_000);
        for retain in [Retain::Head, Retain::Tail] {
            let kept = window(retain, &[&all]);
            assert!(kept.len() <= MAX_BYTES + 40, "{}", kept.len());
            assert!(kept.contains("bytes not shown"));
        }
    }

    #[test]
    fn a_gap_counts_for_the_bytes_that_it_stands_for() {
        let line = format!("{}\n", "x".repeat(99));
        let mut window = Window::new(Retain::Tail);
        window.push("begin\n");
        window.gap(1_000_000);
        window.push("end\n");
        assert_eq!(window.render(), "begin\n[1000000 bytes not kept]\nend\n");
        window.push(&line.repeat(2_000));
        // "begin", the gap, "end", and what is beyond the kept 512 lines.
        let hidden = 6 + 1_000_000 + 4 + 1_488 * 100;
        let told = format!("[{hidden} bytes not shown]\n");
        assert!(
            window.render().starts_with(&told),
            "{}",
            &window.render()[..60]
        );
        let mut head = Window::new(Retain::Head);
        head.push(&line.repeat(600));
        head.gap(1_000_000);
        let told = format!("[{} bytes not shown]\n", 88 * 100 + 1_000_000);
        assert!(head.render().ends_with(&told));
    }

    #[test]
    fn memory_stays_bounded_however_much_comes() {
        let mut window = Window::new(Retain::Tail);
        for _ in 0..10_000 {
            window.push(&"y".repeat(1_000));
        }
        assert!(window.text.capacity() < 8 * MAX_BYTES);
        assert!(window.render().starts_with("[9948800 bytes not shown]\n"));
    }
}
