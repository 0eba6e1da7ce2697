//! Text as a card shows it: nothing invisible, nothing that moves other text.

/// Replaces control, bidirectional, zero-width and other invisible characters by
/// `\u{…}`; a newline stays, a tab becomes `\t`. Nothing is cut.
pub fn escape_for_display(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' => shown.push('\n'),
            '\t' => shown.push_str("\\t"),
            '\r' => shown.push_str("\\r"),
            _ if is_hidden(character) => {
                shown.push_str(&format!("\\u{{{:x}}}", u32::from(character)));
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// Characters that a reader does not see, or that change where others are seen.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{00ad}' // soft hyphen
            | '\u{034f}' // combining grapheme joiner
            | '\u{061c}' // Arabic letter mark
            | '\u{115f}' | '\u{1160}' | '\u{3164}' | '\u{ffa0}' // Hangul fillers
            | '\u{17b4}' | '\u{17b5}' // Khmer inherent vowels
            | '\u{180b}'..='\u{180f}' // Mongolian selectors
            | '\u{200b}'..='\u{200f}' // zero-width and marks
            | '\u{2028}'..='\u{202e}' // separators, embeddings, overrides
            | '\u{2060}'..='\u{206f}' // word joiner, isolates, deprecated formats
            | '\u{fe00}'..='\u{fe0f}' // variation selectors
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' // interlinear annotation
            | '\u{1d173}'..='\u{1d17a}' // musical formats
            | '\u{e0000}'..='\u{e0fff}' // tags, more selectors
        )
}

#[cfg(test)]
mod tests {
    use super::escape_for_display;

    #[test]
    fn what_cannot_be_seen_is_spelled_out() {
        for (text, shown) in [
            ("git status\nls", "git status\nls"),
            ("ls # \u{202e}dliub", "ls # \\u{202e}dliub"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("ls\rrm\u{1b}[2K", "ls\\rrm\\u{1b}[2K"),
            ("a\tb\0", "a\\tb\\u{0}"),
            ("größe 日本 é", "größe 日本 é"),
        ] {
            assert_eq!(escape_for_display(text), shown);
        }
    }
}
