//! A workspace's harness, over gRPC.

use std::path::Path;
use std::time::Duration;

use mooring_wire::harness as wire;
use mooring_wire::harness::harness_client::HarnessClient;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

const TIMEOUT: Duration = Duration::from_secs(15);
/// Bytes of one message: an input with its images.
const MESSAGE: usize = 32 << 20;

/// Why the harness did not do it.
#[derive(Debug, thiserror::Error)]
pub enum HarnessError {
    /// It cannot be reached, or is about to start: later.
    #[error("the harness cannot be reached: {0}")]
    Away(String),
    /// It said no; the text is for people.
    #[error("{text}")]
    Refused {
        /// The stable code, or gRPC's.
        code: String,
        /// For people.
        text: String,
    },
}

impl From<Status> for HarnessError {
    fn from(status: Status) -> HarnessError {
        match status.code() {
            Code::Unavailable
            | Code::DeadlineExceeded
            | Code::Cancelled
            | Code::Unknown
            | Code::Internal
            | Code::Aborted
            | Code::ResourceExhausted
            | Code::DataLoss => HarnessError::Away(status.message().to_owned()),
            code => HarnessError::Refused {
                code: mooring_wire::code::code(&status)
                    .map_or_else(|| format!("{code:?}"), str::to_owned),
                text: status.message().to_owned(),
            },
        }
    }
}

impl HarnessError {
    /// Whether the caller's role does not allow it.
    pub fn is_forbidden(&self) -> bool {
        matches!(self, HarnessError::Refused { code, .. } if code == "forbidden" || code == "PermissionDenied")
    }

    /// Whether there is no such thing.
    pub fn is_not_found(&self) -> bool {
        matches!(self, HarnessError::Refused { code, .. } if code == "not-found" || code == "NotFound")
    }
}

type Answer<T> = Result<T, HarnessError>;

/// The client. Connects when it is used, and again after the harness was away.
#[derive(Clone)]
pub struct Harness {
    client: HarnessClient<Channel>,
}

macro_rules! call {
    ($name:ident, $request:ident -> $response:ident) => {
        #[doc = concat!("`", stringify!($name), "` of the harness's contract.")]
        pub async fn $name(&self, request: wire::$request) -> Answer<wire::$response> {
            let mut client = self.client.clone();
            match tokio::time::timeout(TIMEOUT, client.$name(request)).await {
                Ok(answer) => Ok(answer?.into_inner()),
                Err(_) => Err(HarnessError::Away("no answer in time".into())),
            }
        }
    };
}

impl Harness {
    /// `unix:/path/to/socket` or `http://host:port`.
    pub fn at(address: &str) -> Result<Harness, String> {
        let channel = if let Some(path) = address.strip_prefix("unix:") {
            mooring_wire::uds::connect_lazy(Path::new(path))
        } else if address.starts_with("http://") {
            Endpoint::from_shared(address.to_owned())
                .map_err(|error| error.to_string())?
                .connect_timeout(Duration::from_secs(5))
                .connect_lazy()
        } else {
            return Err(format!(
                "`{address}` is neither unix:/path nor http://host:port"
            ));
        };
        let client = HarnessClient::new(channel)
            .max_decoding_message_size(MESSAGE)
            .max_encoding_message_size(MESSAGE);
        Ok(Harness { client })
    }

    call!(submit, SubmitRequest -> SubmitResponse);
    call!(threads, ThreadsRequest -> ThreadsResponse);
    call!(advance, AdvanceRequest -> AdvanceResponse);
    call!(ack, AckRequest -> AckResponse);
    call!(decide, DecideRequest -> DecideResponse);
    call!(approvals, ApprovalsRequest -> ApprovalsResponse);
    call!(abort, AbortRequest -> AbortResponse);
    call!(withdraw, WithdrawRequest -> WithdrawResponse);
    call!(view, ViewRequest -> ConversationView);
    call!(usage, UsageRequest -> UsageResponse);
    call!(status, StatusRequest -> StatusResponse);
    call!(conversations, ConversationsRequest -> ConversationsResponse);

    /// Rows as they come due, until the harness goes away.
    pub async fn outbox(&self) -> Answer<Streaming<wire::OutboxRow>> {
        let mut client = self.client.clone();
        Ok(client.outbox(wire::OutboxRequest {}).await?.into_inner())
    }
}
