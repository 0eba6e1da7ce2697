//! The model of a conversation.

use mooring_durable::id::ConversationId;
use mooring_wire::{
    code::{Code, status},
    harness as wire,
};
use tonic::Status;

use super::{Service, session};
use crate::members::{Act, Actor, may};

impl Service {
    pub(super) async fn model(
        &self,
        actor: Actor,
        request: wire::ModelRequest,
    ) -> Result<wire::ModelResponse, Status> {
        may(&actor, Act::Talk).map_err(|text| status(Code::Forbidden, text))?;
        let conversation = ConversationId(request.conversation);
        let model = self.view_of(conversation, 0).await?.model;
        let models = self.catalog.names();
        if request.model.is_empty() {
            return Ok(wire::ModelResponse { model, models });
        }
        may(&actor, Act::Model).map_err(|text| status(Code::Forbidden, text))?;
        if !models.contains(&request.model) {
            let text = format!(
                "the Workspace has no model {:?}; it has {}",
                request.model,
                models.join(", ")
            );
            return Err(status(Code::Invalid, text));
        }
        self.engine
            .set_model(conversation, request.model.clone())
            .await
            .map_err(session)?;
        Ok(wire::ModelResponse {
            model: request.model,
            models,
        })
    }
}
