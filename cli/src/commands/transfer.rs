//! `mooring export`, `mooring import` and `mooring delete`.

use std::{
    io::{IsTerminal, Write},
    path::{Path, PathBuf},
};

use mooring_wire::harness::{DeleteRequest, ExportRequest, ImportRequest};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{say, worktrees};
use crate::args::{DeleteArgs, ExportArgs, ImportArgs};
use crate::error::Error;
use crate::exit::Exit;
use crate::setup;
use crate::text::one_line;

/// Bytes of a file that are sent at once.
const CHUNK: usize = 256 << 10;

/// Writes a conversation out. A file is there whole, or is not.
pub async fn export(project: Option<&Path>, args: ExportArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let request = ExportRequest {
        conversation: args.conversation,
        author: None,
    };
    let mut chunks = connection.client().export(request).await?.into_inner();
    let Some(path) = args.out else {
        let mut out = std::io::stdout().lock();
        while let Some(chunk) = chunks.message().await? {
            out.write_all(chunk.lines.as_bytes())?;
        }
        out.flush()?;
        return Ok(Exit::Done);
    };
    let wrong = |error: std::io::Error| Error::Path {
        path: path.clone(),
        why: error.to_string(),
    };
    let mut part = path.clone().into_os_string();
    part.push(".part");
    let part = PathBuf::from(part);
    let mut file = std::fs::File::create(&part).map_err(wrong)?;
    let mut lines = 0;
    while let Some(chunk) = chunks.message().await? {
        lines += chunk.lines.matches('\n').count();
        file.write_all(chunk.lines.as_bytes()).map_err(wrong)?;
    }
    file.sync_all().map_err(wrong)?;
    std::fs::rename(&part, &path).map_err(wrong)?;
    say(format!(
        "conversation {} is in {} ({lines} lines)",
        args.conversation,
        path.display()
    ))?;
    Ok(Exit::Done)
}

/// Restores a conversation, and prints its number.
pub async fn import(project: Option<&Path>, args: ImportArgs) -> Result<Exit, Error> {
    let source: Box<dyn AsyncRead + Send + Unpin> = match args.file.as_os_str() == "-" {
        true => Box::new(tokio::io::stdin()),
        false => {
            let file = tokio::fs::File::open(&args.file).await;
            Box::new(file.map_err(|error| Error::Path {
                path: args.file.clone(),
                why: error.to_string(),
            })?)
        }
    };
    let connection = setup::records(project).await?;
    let (sender, pieces) = tokio::sync::mpsc::channel(4);
    let reading = tokio::spawn(read(source, sender));
    let pieces = tokio_stream::wrappers::ReceiverStream::new(pieces);
    let response = connection.client().import(pieces).await;
    // A file that cannot be read to its end is told by its own error.
    if let Ok(Err(error)) = reading.await {
        return Err(Error::Path {
            path: args.file,
            why: error.to_string(),
        });
    }
    say(response?.into_inner().conversation)?;
    Ok(Exit::Done)
}

/// Reads a source in pieces that end between characters.
async fn read(
    mut source: Box<dyn AsyncRead + Send + Unpin>,
    sender: tokio::sync::mpsc::Sender<ImportRequest>,
) -> std::io::Result<()> {
    let mut rest = Vec::new();
    let mut piece = vec![0; CHUNK];
    loop {
        let count = source.read(&mut piece).await?;
        rest.extend_from_slice(&piece[..count]);
        let whole = match std::str::from_utf8(&rest) {
            Err(error) if count > 0 && error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return Err(std::io::Error::other("it is no text")),
            Ok(_) => rest.len(),
        };
        let left = rest.split_off(whole);
        let lines = String::from_utf8(std::mem::replace(&mut rest, left));
        let lines = lines.expect("it was looked at just now");
        let request = ImportRequest {
            author: None,
            lines,
        };
        // Whoever has enough says why.
        if count == 0 && request.lines.is_empty() || sender.send(request).await.is_err() {
            return Ok(());
        }
    }
}

/// Deletes a conversation, after a yes.
pub async fn delete(project: Option<&Path>, args: DeleteArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let conversation = args.conversation;
    connection.check_conversation(conversation).await?;
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            return Err(Error::Usage(format!(
                "nobody can be asked here; `mooring delete {conversation} --yes` deletes it for ever"
            )));
        }
        let question = format!(
            "Delete conversation {conversation} for ever? `mooring export {conversation}` keeps a copy."
        );
        if !setup::ask_first(&question)? {
            say("it stays")?;
            return Ok(Exit::Done);
        }
    }
    let answer = connection
        .call(move |mut c| async move {
            let author = None;
            c.delete(DeleteRequest {
                conversation,
                author,
            })
            .await
        })
        .await?;
    say(format!("conversation {conversation} is deleted"))?;
    if let Some(worktree) = &answer.worktree {
        say(worktrees::left(worktree))?;
    }
    if !answer.worktree_error.is_empty() {
        say(format!(
            "what became of its worktree is not known: {}; `mooring worktrees` lists what is left",
            one_line(&answer.worktree_error, 300)
        ))?;
    }
    Ok(Exit::Done)
}
