//! Follows conversations: a snapshot, then what each commit changed.

use mooring_durable::{id::ConversationId, view::Frame};
use mooring_wire::harness as wire;
use std::sync::Arc;
use tonic::Status;

use super::{Frames, Service, convert::Convert, session};

impl Service {
    pub(super) async fn watch(
        &self,
        request: wire::WatchRequest,
    ) -> Result<Frames<wire::WatchFrame>, Status> {
        let conversation =
            (request.conversation != 0).then_some(ConversationId(request.conversation));
        let incarnation = format!(
            "{}-{}",
            self.engine.incarnation().0,
            self.engine.generation()
        );
        // A sequence of another process says nothing about this one's.
        let after = (request.after != 0 && request.session == incarnation).then_some(request.after);
        let watch = self
            .engine
            .watch(conversation, after)
            .await
            .map_err(session)?;
        let books = self.books.clone();
        let link = self.link.clone();
        let stream = futures::stream::unfold(watch, move |mut watch| {
            let books = Arc::clone(&books);
            let grade = link
                .status()
                .map(|status| status.grade.clone())
                .unwrap_or_default();
            let incarnation = incarnation.clone();
            async move {
                let frame = watch.next().await?;
                let convert = Convert {
                    books: &books,
                    grade,
                };
                let frame = match frame {
                    Frame::Snapshot(view) => wire::WatchFrame {
                        sequence: view.sequence,
                        session: incarnation,
                        frame: Some(wire::watch_frame::Frame::Snapshot(convert.view(&view))),
                    },
                    Frame::Change { sequence, change } => wire::WatchFrame {
                        sequence,
                        session: incarnation,
                        frame: Some(wire::watch_frame::Frame::Change(convert.change(&change))),
                    },
                };
                Some((Ok(frame), watch))
            }
        });
        Ok(Box::pin(stream))
    }
}
