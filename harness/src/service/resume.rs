//! A conversation that goes on in another thread.

use mooring_durable::id::ConversationId;
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use serde_json::json;
use tonic::Status;

use super::{Service, session, storage};
use crate::{
    members::{Act, Actor, may},
    record::{
        outbox::{self, Kind},
        thread,
    },
};

impl Service {
    /// Moves the conversation, and leaves a word in the thread where it was. What is
    /// still to be shown there is shown there.
    pub(super) async fn resume(
        &self,
        actor: Actor,
        request: wire::ResumeRequest,
    ) -> Result<wire::ResumeResponse, Status> {
        may(&actor, Act::Resume).map_err(|text| status(Code::Forbidden, text))?;
        let conversation = ConversationId(request.conversation);
        let to = request
            .thread
            .filter(|thread| !thread.thread_id.is_empty() && !thread.message_id.is_empty())
            .ok_or_else(|| status(Code::Invalid, "a thread needs thread_id and message_id"))?;
        self.view_of(conversation, 0).await?;
        // Nobody begins a conversation in that thread meanwhile.
        let _making = self.making.lock().await;
        let rows = thread::list(self.engine.reader())
            .await
            .map_err(|error| storage(&error))?;
        let taken = rows
            .iter()
            .find(|row| row.thread_id == to.thread_id)
            .and_then(|row| row.conversation);
        match taken {
            Some(taken) if taken == conversation => return Ok(wire::ResumeResponse::default()),
            Some(taken) => {
                let text = format!(
                    "this thread has conversation {taken}; use /resume in the channel, or in a \
                     thread without one"
                );
                return Err(status(Code::Invalid, text));
            }
            None => {}
        }
        let left = rows
            .into_iter()
            .find(|row| row.conversation == Some(conversation))
            .map(|row| row.thread_id)
            .unwrap_or_default();
        let now = self.clock.now();
        let said = |what: &str, text: String| {
            let key = format!(
                "{}-{conversation}-{what}-{}",
                self.engine.incarnation().0,
                now.0
            );
            let note = json!({ "text": text });
            outbox::shown(now, conversation, &key, Kind::Note, &note, None, None)
        };
        let statements = vec![
            said(
                "moved",
                format!("This conversation goes on in <#{}>.", to.thread_id),
            ),
            thread::left(conversation),
            thread::made(
                &to.thread_id,
                &to.channel_id,
                Some(conversation),
                match to.previous_message_id.as_str() {
                    "" => &to.message_id,
                    previous => previous,
                },
                &to.name,
            ),
            said("here", format!("Conversation {conversation} goes on here.")),
        ];
        self.engine
            .commit("resume", statements)
            .await
            .map_err(session)?;
        self.books.shown.notify_waiters();
        Ok(wire::ResumeResponse {
            left_thread_id: left,
        })
    }
}
