//! Bytes as text, piece by piece: invalid UTF-8 and NUL become U+FFFD, a character
//! that is cut between two pieces does not.

/// Holds the bytes of a character that is not whole yet.
#[derive(Debug, Default, Clone)]
pub(crate) struct Decoder {
    held: Vec<u8>,
}

impl Decoder {
    /// Bytes that came and are not in any text yet.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// The text of the bytes so far that have none yet.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        let joined;
        let mut rest: &[u8] = if self.held.is_empty() {
            bytes
        } else {
            joined = [std::mem::take(&mut self.held), bytes.to_vec()].concat();
            &joined
        };
        let mut text = String::with_capacity(rest.len());
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    match error.error_len() {
                        None => {
                            self.held = after.to_vec();
                            break;
                        }
                        Some(length) => {
                            text.push('\u{FFFD}');
                            rest = &after[length..];
                        }
                    }
                }
            }
        }
        clean(text)
    }

    /// What is held when nothing more comes.
    pub fn finish(&mut self) -> String {
        if std::mem::take(&mut self.held).is_empty() {
            String::new()
        } else {
            "\u{FFFD}".into()
        }
    }
}

/// Without NUL, which neither databases nor providers take well.
pub(crate) fn clean(text: String) -> String {
    if text.contains('\0') {
        text.replace('\0', "\u{FFFD}")
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_the_same_wherever_the_pieces_are_cut() {
        let bytes = "a\u{0}é😀z"
            .as_bytes()
            .iter()
            .copied()
            .chain([0xFF, b'q', 0xE2, 0x82])
            .collect::<Vec<_>>();
        for cut in 0..bytes.len() {
            let mut decoder = Decoder::default();
            let mut text = decoder.push(&bytes[..cut]);
            text += &decoder.push(&bytes[cut..]);
            assert_eq!(decoder.held(), 2);
            text += &decoder.finish();
            assert_eq!(text, "a\u{FFFD}é😀z\u{FFFD}q\u{FFFD}", "cut at {cut}");
        }
    }
}
