//! Text of others for a terminal: what comes from a model, a tool or a file is
//! stripped of all that would steer the terminal, and broken into lines.

use unicode_segmentation::UnicodeSegmentation;
use unicode_width::UnicodeWidthStr;

/// Columns of a tab.
const TAB: &str = "    ";

/// Strips terminal control from a text that comes in pieces: a sequence that a
/// piece begins and the next one ends is stripped as well.
#[derive(Clone, Debug, Default)]
pub struct Sanitizer {
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After a carriage return, whose meaning the next character tells.
    Return,
    /// After ESC.
    Escape,
    /// After ESC and intermediate characters (`ESC ( B`).
    EscapeMore,
    /// In `ESC [ …`, until its final character.
    Control,
    /// In a string (`ESC ] …`, `ESC P …`), until its end.
    String,
    /// In a string, after ESC.
    StringEscape,
}

impl Sanitizer {
    /// The visible part of `piece`: line feeds stay, tabs become blanks, a lone
    /// carriage return begins a new line, and characters that reorder or hide
    /// text are shown by their number.
    pub fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        for c in piece.chars() {
            self.state = self.step(c, &mut out);
        }
        out
    }

    fn step(&self, c: char, out: &mut String) -> State {
        match self.state {
            State::Text => text_char(c, out),
            State::Return => {
                out.push('\n');
                if c == '\n' {
                    State::Text
                } else {
                    text_char(c, out)
                }
            }
            State::Escape => match c {
                '[' => State::Control,
                ']' | 'P' | 'X' | '^' | '_' => State::String,
                ' '..='/' => State::EscapeMore,
                '\n' => text_char(c, out),
                '\u{1b}' => State::Escape,
                _ => State::Text,
            },
            State::EscapeMore => match c {
                ' '..='/' => State::EscapeMore,
                '\n' => text_char(c, out),
                '\u{1b}' => State::Escape,
                _ => State::Text,
            },
            State::Control => match c {
                '@'..='~' => State::Text,
                '\u{1b}' => State::Escape,
                // A sequence that never ends must not swallow the rest.
                '\n' => text_char(c, out),
                _ => State::Control,
            },
            State::String => match c {
                '\u{07}' | '\u{9c}' => State::Text,
                '\u{1b}' => State::StringEscape,
                '\n' => text_char(c, out),
                _ => State::String,
            },
            State::StringEscape => match c {
                '\\' => State::Text,
                '[' => State::Control,
                '\n' => text_char(c, out),
                _ => State::Text,
            },
        }
    }
}

fn text_char(c: char, out: &mut String) -> State {
    match c {
        '\u{1b}' => return State::Escape,
        '\u{9b}' => return State::Control,
        '\u{90}' | '\u{98}' | '\u{9d}' | '\u{9e}' | '\u{9f}' => return State::String,
        '\r' => return State::Return,
        '\n' => out.push('\n'),
        '\t' => out.push_str(TAB),
        c if c.is_control() => {}
        // Bidirectional controls, zero-width characters, line separators, tags.
        '\u{200b}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{2069}'
        | '\u{61c}'
        | '\u{feff}'
        | '\u{e0000}'..='\u{e007f}' => {
            out.push_str(&format!("<U+{:04X}>", u32::from(c)));
        }
        c => out.push(c),
    }
    State::Text
}

/// The visible part of a whole text.
pub fn sanitize(text: &str) -> String {
    Sanitizer::default().push(text)
}

/// The visible part of a text, on one line of at most `width` columns; `…`
/// stands for what was left out.
pub fn one_line(text: &str, width: usize) -> String {
    let text = sanitize(text);
    let words: Vec<&str> = text.split_whitespace().collect();
    cut(&words.join(" "), width)
}

/// `text` cut to `width` columns; `…` stands for what was left out.
pub fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut columns = 0;
    for grapheme in text.graphemes(true) {
        columns += grapheme.width();
        if columns > width.saturating_sub(1) {
            break;
        }
        out.push_str(grapheme);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Breaks a text into lines of at most `width` columns, between words where
/// that goes. Indentation at the start of a line stays.
///
/// All but the last line of `wrap(a)` are the first lines of `wrap(a + b)`:
/// a streaming text can be printed line by line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    text.split('\n')
        .flat_map(|line| wrap_line(line, width))
        .collect()
}

fn wrap_line(line: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let mut current = String::new();
    let mut columns = 0;
    for piece in line.split_word_bounds() {
        let piece_columns = piece.width();
        if columns + piece_columns <= width {
            current.push_str(piece);
            columns += piece_columns;
            continue;
        }
        if piece.trim().is_empty() {
            // Blanks at a break are the break.
            lines.push(std::mem::take(&mut current));
            columns = 0;
            continue;
        }
        if columns > 0 && piece_columns <= width {
            lines.push(std::mem::take(&mut current).trim_end().to_owned());
            current.push_str(piece);
            columns = piece_columns;
            continue;
        }
        for grapheme in piece.graphemes(true) {
            let grapheme_columns = grapheme.width();
            if columns + grapheme_columns > width && columns > 0 {
                lines.push(std::mem::take(&mut current));
                columns = 0;
            }
            current.push_str(grapheme);
            columns += grapheme_columns;
        }
    }
    lines.push(current);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_sequences_are_stripped_wherever_they_are_split() {
        for (dirty, clean) in [
            ("plain", "plain"),
            ("a\tb", "a    b"),
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;title\u{7}x", "x"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}Pq#0;2\u{1b}\\x", "x"),
            ("\u{1b}(Bx", "x"),
            ("\u{9b}2Jx", "x"),
            ("a\u{8}b\u{7}c\u{0}", "abc"),
            ("10%\r20%\r\nend", "10%\n20%\nend"),
            ("\u{1b}[9999999\nnext", "\nnext"),
            ("\u{1b}]never ended\nnext", "\nnext"),
            ("\u{1b}[31\u{1b}[32mx", "x"),
            ("rm \u{202e}txt.exe", "rm <U+202E>txt.exe"),
            ("a\u{200b}b\u{2066}", "a<U+200B>b<U+2066>"),
            ("äöü 漢字 👩‍👩‍👧", "äöü 漢字 👩‍👩‍👧"),
        ] {
            assert_eq!(sanitize(dirty), clean, "{dirty:?}");
            for (at, _) in dirty.char_indices() {
                let mut sanitizer = Sanitizer::default();
                let split = sanitizer.push(&dirty[..at]) + &sanitizer.push(&dirty[at..]);
                assert_eq!(split, clean, "{dirty:?} split at {at}");
            }
        }
    }

    #[test]
    fn nothing_that_steers_a_terminal_comes_through() {
        let all: String = (0..0x3000).filter_map(char::from_u32).collect();
        for c in sanitize(&all).chars() {
            assert!(c == '\n' || !c.is_control(), "{c:?}");
        }
    }

    #[test]
    fn lines_are_broken_between_words_and_long_words_inside() {
        for (text, width, lines) in [
            ("", 10, vec![""]),
            ("one two three", 7, vec!["one two", "three"]),
            ("one two three", 8, vec!["one two", "three"]),
            ("a\n\nb", 10, vec!["a", "", "b"]),
            ("    indented code", 12, vec!["    indented", "code"]),
            ("abcdefgh", 3, vec!["abc", "def", "gh"]),
            ("x abcdefgh", 4, vec!["x ab", "cdef", "gh"]),
            ("漢字漢字", 5, vec!["漢字", "漢字"]),
            ("👩‍👩‍👧👩‍👩‍👧", 2, vec!["👩‍👩‍👧", "👩‍👩‍👧"]),
            ("ab", 0, vec!["a", "b"]),
        ] {
            assert_eq!(wrap(text, width), lines, "{text:?} at {width}");
        }
    }

    #[test]
    fn a_line_once_finished_stays_as_it_is_when_more_comes() {
        let text =
            "The quick brown fox jumps over the lazy-looking dog, twice: 3.14 äöü-漢字漢字漢字 end";
        for width in 1..40 {
            for (at, _) in text.char_indices() {
                let part = wrap(&text[..at], width);
                let whole = wrap(text, width);
                // The word at the end may still grow and move to the next line.
                let sure = part.len().saturating_sub(2);
                assert_eq!(part[..sure], whole[..sure], "{at} at {width}");
            }
        }
    }

    #[test]
    fn texts_are_cut_to_one_line_with_a_mark() {
        for (text, width, cut) in [
            ("short", 10, "short"),
            ("a b\n c\td", 20, "a b c d"),
            ("abcdefgh", 5, "abcd…"),
            ("漢字漢字", 5, "漢字…"),
            ("abc", 1, "…"),
            ("abc", 0, ""),
        ] {
            assert_eq!(one_line(text, width), cut, "{text:?} at {width}");
        }
    }
}
