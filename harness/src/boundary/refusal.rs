//! Answers that the boundary gives itself, in a form that every client shows.

use std::{io, time::Duration};

use mooring_wire::tunnel::Connection;

/// How long a client may take to read an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long it may go on sending after it.
const FAREWELL: Duration = Duration::from_secs(2);

/// An answer, after which the connection ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP's status.
    pub status: u16,
    /// What a person or a model reads: one line. Many clients show the reason phrase
    /// and not the body, so it stands in both.
    pub text: String,
    /// A further field, `name: value`.
    pub field: Option<&'static str>,
}

impl Answer {
    /// An answer of this status.
    pub fn new(status: u16, text: impl Into<String>) -> Answer {
        Answer {
            status,
            text: text.into(),
            field: None,
        }
    }

    fn http(&self) -> String {
        let text: String = self
            .text
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect();
        // A reason phrase is ASCII.
        let phrase: String = text
            .chars()
            .map(|c| if c.is_ascii() { c } else { '?' })
            .collect();
        let field = self.field.map(|field| format!("{field}\r\n"));
        format!(
            "HTTP/1.1 {} {phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: {}\r\nConnection: close\r\n{}\r\nmooring: {text}\n",
            self.status,
            text.len() + "mooring: \n".len(),
            field.unwrap_or_default()
        )
    }

    /// Sends it and ends the connection.
    pub async fn send(&self, connection: &Connection) {
        let all = async {
            write(connection, self.http().as_bytes()).await?;
            connection.finish().await
        };
        if !matches!(tokio::time::timeout(PATIENCE, all).await, Ok(Ok(()))) {
            return;
        }
        // A close with bytes unread would take the answer back.
        let drain = async { while let Ok(Some(_)) = connection.piece().await {} };
        let _ = tokio::time::timeout(FAREWELL, drain).await;
    }
}

/// Writes all of `bytes`.
pub async fn write(connection: &Connection, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        connection.room().await?;
        let taken = connection.push(bytes)?;
        bytes = &bytes[taken..];
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_answer_cannot_be_split_by_what_it_quotes() {
        let answer = Answer::new(403, "no \"a\r\nX: y\" – really");
        let text = answer.http();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert_eq!(
            head.lines().next(),
            Some("HTTP/1.1 403 no \"a  X: y\" ? really")
        );
        assert!(!head.lines().any(|line| line.starts_with("X:")));
        assert_eq!(body, "mooring: no \"a  X: y\" – really\n");
        assert!(head.contains(&format!("Content-Length: {}", body.len())));
    }
}
