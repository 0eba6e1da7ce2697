//! `mooring reset`, `mooring compact` and `mooring fork`: where a conversation's context begins.

use std::path::Path;

use mooring_wire::harness::{CompactRequest, ForkRequest, ResetRequest};

use super::{named_or_last, new_request_id, say};
use crate::args::{CompactArgs, ForkArgs, ResetArgs};
use crate::connection::Connection;
use crate::error::Error;
use crate::exit::Exit;
use crate::setup;

/// Lets a conversation begin anew.
pub async fn run_reset(project: Option<&Path>, args: ResetArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let conversation = named_or_last(&connection, args.conversation).await?;
    say(reset(&connection, conversation, args.brief).await?)?;
    Ok(Exit::Done)
}

/// Forks a conversation and prints the new one's number.
pub async fn run_fork(project: Option<&Path>, args: ForkArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let conversation = named_or_last(&connection, args.conversation).await?;
    let request = ForkRequest {
        conversation,
        entry: args.at.unwrap_or(0),
        side_chat: args.side,
        title: args.title,
        model: args.model.unwrap_or_default(),
        ..ForkRequest::default()
    };
    say(fork(&connection, request).await?)?;
    Ok(Exit::Done)
}

/// Compacts a conversation.
pub async fn run_compact(project: Option<&Path>, args: CompactArgs) -> Result<Exit, Error> {
    let connection = setup::records(project).await?;
    let conversation = named_or_last(&connection, args.conversation).await?;
    say(compact(&connection, conversation, args.about).await?)?;
    Ok(Exit::Done)
}

/// Compacts, and says what became of it.
pub async fn compact(
    connection: &Connection,
    conversation: i64,
    instructions: String,
) -> Result<String, Error> {
    let request = CompactRequest {
        conversation,
        instructions,
        author: None,
    };
    let response = connection
        .call(move |mut c| {
            let request = request.clone();
            async move { c.compact(request).await }
        })
        .await?;
    Ok(match response.state.as_str() {
        "going" => format!("a summary is being written ({})", response.mode),
        _ => "there is nothing to compact".into(),
    })
}

/// Resets, and says what became of it.
pub async fn reset(
    connection: &Connection,
    conversation: i64,
    brief: String,
) -> Result<String, Error> {
    let request = ResetRequest {
        conversation,
        request_id: new_request_id(),
        brief,
        author: None,
    };
    let response = connection
        .call(move |mut c| {
            let request = request.clone();
            async move { c.reset(request).await }
        })
        .await?;
    Ok(match response.state.as_str() {
        "done" => format!("conversation {conversation} begins anew here"),
        _ => format!("the run of conversation {conversation} ends; then it begins anew"),
    })
}

/// Forks, and gives the new conversation.
pub async fn fork(connection: &Connection, request: ForkRequest) -> Result<i64, Error> {
    let response = connection
        .call(move |mut c| {
            let request = request.clone();
            async move { c.fork(request).await }
        })
        .await?;
    Ok(response.conversation)
}
