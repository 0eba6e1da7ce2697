//! Inputs: submit, abort, withdraw.

use mooring_durable::{
    error::SubmitError,
    extension,
    id::{ConversationId, RequestId, SubmissionId},
    message::Part,
    submission::{AbortScope, Input, Requester, Submission, SubmissionState, Submitted, WhenBusy},
};
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use serde_json::{Value, json};
use tonic::Status;

use super::{Service, convert, session};
use crate::{
    members::{Act, Actor, may, same},
    record::{refused, thread},
};

/// Bytes of one input, images included.
const MAX_INPUT: usize = 20 << 20;

impl Service {
    pub(super) async fn submit(
        &self,
        actor: Actor,
        request: wire::SubmitRequest,
    ) -> Result<wire::SubmitResponse, Status> {
        may(&actor, Act::Talk).map_err(|text| status(Code::Forbidden, text))?;
        let content = content(&request)?;
        if request.edit {
            return self.edit(actor, request, content).await;
        }
        if let Some(answered) = self.answer_by_reply(&actor, &request, &content).await? {
            return Ok(answered);
        }
        let conversation = self.conversation_of(&request, &content).await?;
        let when_busy = when_busy(&request);
        let request_id = match (&request.thread, request.request_id.as_str()) {
            (Some(thread), "") => Some(RequestId(thread.message_id.clone())),
            (_, "") => None,
            (_, id) => Some(RequestId(id.to_owned())),
        };
        // A message of a thread is found again in its history.
        let said = request_id
            .clone()
            .filter(|_| request.thread.is_some() && when_busy == WhenBusy::Reject);
        if let Some(said) = &said
            && refused::is_refused(self.engine.reader(), &said.0)
                .await
                .map_err(|error| super::storage(&error))?
        {
            return Err(busy());
        }
        let input = Input {
            conversation,
            request_id,
            requester: actor.requester,
            content,
            when_busy,
            autonomous: request.autonomous,
            data: request.thread.as_ref().map(origin).unwrap_or(Value::Null),
            extra: Vec::new(),
        };
        let submitted = self.engine.submit(input).await;
        let submitted = match submitted {
            Ok(submitted) => submitted,
            Err(SubmitError::Busy) => {
                if let Some(said) = said {
                    let statements = refused::refused(&said.0, self.clock.now());
                    self.engine
                        .commit("refuse", statements.into())
                        .await
                        .map_err(session)?;
                }
                return Err(busy());
            }
            Err(error) => return Err(not_admitted(error)),
        };
        Ok(admitted(&submitted))
    }

    /// A message's text was changed: the input takes the place of the one of the same
    /// message and author that is queued.
    async fn edit(
        &self,
        actor: Actor,
        request: wire::SubmitRequest,
        content: Vec<Part>,
    ) -> Result<wire::SubmitResponse, Status> {
        let thread = request.thread.as_ref();
        let thread = thread
            .filter(|thread| !thread.message_id.is_empty() && !request.request_id.is_empty())
            .ok_or_else(|| status(Code::Invalid, "an edit needs its message and a request id"))?;
        let row = thread::find(self.engine.reader(), &thread.thread_id)
            .await
            .map_err(|error| super::storage(&error))?;
        let conversation = row.and_then(|row| row.conversation);
        let unchanged = || wire::SubmitResponse {
            conversation: conversation.map_or(0, |id| id.0),
            state: "unchanged".into(),
            ..wire::SubmitResponse::default()
        };
        let Some(conversation) = conversation else {
            return Ok(unchanged());
        };
        let of_message = |id: &RequestId| {
            let rest = id.0.strip_prefix(&thread.message_id);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('@'))
        };
        let inbox = self.view_of(conversation, 0).await?.inbox;
        let queued = inbox.iter().find(|submission| {
            submission.state == SubmissionState::Queued
                && submission.request_id.as_ref().is_some_and(of_message)
                && same(&submission.requester, &actor.requester)
        });
        let Some(queued) = queued else {
            return Ok(unchanged());
        };
        let input = Input {
            conversation,
            request_id: Some(RequestId(request.request_id.clone())),
            requester: actor.requester,
            content,
            when_busy: when_busy(&request),
            autonomous: request.autonomous,
            data: origin(thread),
            extra: Vec::new(),
        };
        let replaced = self.engine.replace(queued.id, input).await;
        Ok(replaced
            .map_err(not_admitted)?
            .map_or_else(unchanged, |submitted| admitted(&submitted)))
    }

    /// The conversation that an input is for; made where it has none yet.
    async fn conversation_of(
        &self,
        request: &wire::SubmitRequest,
        content: &[Part],
    ) -> Result<ConversationId, Status> {
        if let Some(thread) = &request.thread {
            if thread.thread_id.is_empty() || thread.message_id.is_empty() {
                return Err(status(
                    Code::Invalid,
                    "a thread needs thread_id and message_id",
                ));
            }
            // Key is the thread id alone. Two first messages of one thread are
            // taken one after the other, so that they find one conversation.
            let _making = self.making.lock().await;
            let found = thread::find(self.engine.reader(), &thread.thread_id)
                .await
                .map_err(|error| super::storage(&error))?;
            if let Some(conversation) = found.and_then(|row| row.conversation) {
                return Ok(conversation);
            }
            let settings = thread_settings(thread, &thread.name);
            return self
                .engine
                .create_conversation(&self.model_of(request), settings, Vec::new())
                .await
                .map_err(session);
        }
        match request.conversation {
            0 => {
                // Sent again after the answer was lost, it is the same request.
                let _making = self.making.lock().await;
                if !request.request_id.is_empty() {
                    let id = RequestId(request.request_id.clone());
                    let found = self.engine.conversation_of_request(&id).await;
                    if let Some(conversation) = found.map_err(session)? {
                        return Ok(conversation);
                    }
                }
                let mut settings = json!({ "title": title(content) });
                if !request.extensions.is_empty() {
                    settings[extension::SETTING] = self.known(&request.extensions)?.into();
                }
                self.engine
                    .create_conversation(&self.model_of(request), settings, Vec::new())
                    .await
                    .map_err(session)
            }
            id => Ok(ConversationId(id)),
        }
    }

    /// Names of extensions, all of which there are.
    fn known(&self, names: &[String]) -> Result<Vec<String>, Status> {
        let known = self.extensions.names();
        match names.iter().find(|name| !known.contains(name)) {
            None => Ok(names.to_vec()),
            Some(name) => {
                let known = known.join(", ");
                let text = format!("there is no extension {name}; there are {known}");
                Err(status(Code::Invalid, text))
            }
        }
    }

    /// The model that a new conversation is for; it stays its model.
    fn model_of(&self, request: &wire::SubmitRequest) -> String {
        match request.model.as_str() {
            "" => self.catalog.names().into_iter().next().unwrap_or_default(),
            name => name.to_owned(),
        }
    }

    pub(super) async fn abort(
        &self,
        actor: Actor,
        request: wire::AbortRequest,
    ) -> Result<wire::AbortResponse, Status> {
        let conversation = ConversationId(request.conversation);
        let view = self.view_of(conversation, 0).await?;
        let own = view.run.as_ref().is_none_or(|run| {
            run.requesters
                .iter()
                .all(|requester| same(requester, &actor.requester))
        });
        let act = if own { Act::StopOwn } else { Act::StopOthers };
        may(&actor, act).map_err(|text| status(Code::Forbidden, text))?;
        let scope = if request.run_only {
            AbortScope::Run
        } else {
            AbortScope::Conversation
        };
        let aborted = self
            .engine
            .abort(conversation, scope)
            .await
            .map_err(session)?;
        Ok(wire::AbortResponse {
            was_running: aborted.was_running,
            withdrawn: aborted.withdrawn.iter().map(convert::submission).collect(),
        })
    }

    pub(super) async fn withdraw(
        &self,
        actor: Actor,
        request: wire::WithdrawRequest,
    ) -> Result<wire::WithdrawResponse, Status> {
        let id = SubmissionId(request.submission);
        let missing = || {
            let text = format!("there is no submission {id}");
            status(Code::NotFound, text)
        };
        let known = self.engine.submission(id).await.map_err(session)?;
        let was = |message: &Submission| {
            let said = convert::said_in(&message.data);
            said.is_some_and(|said| said.message_id == request.deleted_message)
        };
        let deleted = !request.deleted_message.is_empty() && known.as_ref().is_some_and(was);
        // Who may delete a message is decided in Discord.
        if !deleted {
            let own = known.is_none_or(|known| same(&known.requester, &actor.requester));
            let act = if own { Act::StopOwn } else { Act::StopOthers };
            may(&actor, act).map_err(|text| status(Code::Forbidden, text))?;
        }
        let withdrawn = self.engine.withdraw(id).await.map_err(session)?;
        let found = withdrawn.ok_or_else(missing)?;
        Ok(wire::WithdrawResponse {
            submission: Some(convert::submission(&found)),
        })
    }
}

/// Why something was not admitted, with its code.
pub(super) fn not_admitted(error: SubmitError) -> Status {
    match error {
        SubmitError::Busy => busy(),
        SubmitError::OtherType(_) => status(Code::OtherType, error.to_string()),
        SubmitError::Session(error) => session(error),
    }
}

fn when_busy(request: &wire::SubmitRequest) -> WhenBusy {
    match request.when_busy() {
        wire::WhenBusy::Steer => WhenBusy::Steer,
        wire::WhenBusy::Reject => WhenBusy::Reject,
        wire::WhenBusy::FollowUp | wire::WhenBusy::Unspecified => WhenBusy::FollowUp,
    }
}

fn admitted(submitted: &Submitted) -> wire::SubmitResponse {
    let (state, _, _) = convert::state(&submitted.submission.state);
    wire::SubmitResponse {
        conversation: submitted.submission.conversation.0,
        submission: submitted.submission.id.0,
        state: state.into(),
        repeated: submitted.repeated,
        note: String::new(),
    }
}

fn content(request: &wire::SubmitRequest) -> Result<Vec<Part>, Status> {
    use base64::Engine as _;
    let mut bytes = 0;
    let mut content = Vec::with_capacity(request.content.len());
    for part in &request.content {
        match &part.part {
            Some(wire::part::Part::Text(text)) => {
                bytes += text.len();
                content.push(Part::text(text.clone()));
            }
            Some(wire::part::Part::Image(image)) => {
                bytes += image.data.len();
                content.push(Part::Image {
                    media_type: image.media_type.clone(),
                    data: base64::engine::general_purpose::STANDARD.encode(&image.data),
                });
            }
            None => {}
        }
    }
    if bytes > MAX_INPUT {
        let text = format!(
            "an input has at most {} MiB; this one has {bytes} bytes",
            MAX_INPUT >> 20
        );
        return Err(status(Code::Invalid, text));
    }
    if bytes == 0 {
        return Err(status(
            Code::Invalid,
            "an input needs some text or an image",
        ));
    }
    Ok(content)
}

fn busy() -> Status {
    status(
        Code::Busy,
        "a run is going; try again when it has ended, or steer it",
    )
}

/// A conversation is called by the beginning of its first text.
fn title(content: &[Part]) -> String {
    let text = crate::books::plain(content);
    let line = text
        .lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
        .trim();
    match line.char_indices().nth(60) {
        None => line.to_owned(),
        Some((cut, _)) => format!("{}…", &line[..cut]),
    }
}

/// Settings of a conversation that has a thread. The ledger makes the thread's row
/// in the conversation's commit, before the first input is admitted: the anchor of
/// that input has a thread.
pub(super) fn thread_settings(thread: &wire::Thread, title: &str) -> Value {
    json!({
        "title": title,
        "thread": thread.thread_id,
        "channel": thread.channel_id,
        // Without a known past the thread begins with this message.
        "cursor": match thread.previous_message_id.as_str() {
            "" => &thread.message_id,
            previous => previous,
        },
    })
}

/// Where in Discord an input came from, as it is stored with the submission.
fn origin(thread: &wire::Thread) -> Value {
    let newest = thread
        .also_message_ids
        .iter()
        .chain([&thread.message_id])
        .max_by_key(|id| (id.len(), id.as_str()))
        .expect("there is at least the message itself");
    json!({
        "discord": {
            "thread": thread.thread_id,
            "channel": thread.channel_id,
            "message": thread.message_id,
            "also": thread.also_message_ids,
            "previous": thread.previous_message_id,
            "newest": newest,
            "name": thread.name,
        }
    })
}

/// The person at the other end of a Unix socket.
pub(super) fn local_person(uid: Option<u32>) -> Requester {
    let uid = uid.unwrap_or(u32::MAX);
    let name = nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid))
        .ok()
        .flatten()
        .map_or_else(|| format!("uid-{uid}"), |user| user.name);
    Requester::Local { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_is_called_by_its_first_line() {
        for (text, expected) in [
            ("fix the build", "fix the build"),
            ("\n  run ls\nmore", "run ls"),
            (&"é".repeat(70), &format!("{}…", "é".repeat(60))),
        ] {
            assert_eq!(title(&[Part::text(text)]), expected);
        }
    }

    #[test]
    fn the_newest_of_a_split_paste_moves_the_cursor() {
        let thread = wire::Thread {
            message_id: "99".into(),
            also_message_ids: vec!["100".into()],
            ..wire::Thread::default()
        };
        assert_eq!(origin(&thread)["discord"]["newest"], "100");
    }
}
