//! A workspace's harness, over gRPC.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mooring_wire::harness as wire;
use mooring_wire::harness::harness_client::HarnessClient;
use mooring_wire::tls::{self, Credentials};
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

/// Bytes of one piece of a file.
const CHUNK: usize = 256 << 10;

type Answer<T> = Result<T, HarnessError>;

/// Where a harness is.
#[derive(Clone)]
pub enum Address {
    /// A Unix socket of this machine.
    Unix(PathBuf),
    /// `http://host:port`, on a network that is trusted.
    Http(Box<Endpoint>),
    /// `HOST:PORT`, by mutual TLS.
    Tls {
        /// Looked up at each connect.
        address: String,
        /// The name that its certificate must carry.
        name: String,
        /// The bot's certificate.
        credentials: Arc<Credentials>,
    },
}

impl Address {
    /// `unix:/path/to/socket` or `http://host:port`; the error is for people.
    pub fn parse(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            Ok(Address::Unix(path.into()))
        } else if text.starts_with("http://") {
            Endpoint::from_shared(text.to_owned())
                .map(|endpoint| endpoint.connect_timeout(Duration::from_secs(5)))
                .map(|endpoint| Address::Http(Box::new(endpoint)))
                .map_err(|error| error.to_string())
        } else {
            Err(format!(
                "`{text}` is neither unix:/path nor http://host:port"
            ))
        }
    }

    /// By mutual TLS, to a server whose certificate carries `name`; the error is for
    /// people.
    pub fn tls(
        address: String,
        name: String,
        credentials: Arc<Credentials>,
    ) -> Result<Address, String> {
        // A name that is none is told here, where somebody reads it.
        tls::connect_lazy(address.clone(), &name, credentials.clone())
            .map_err(|error| error.to_string())?;
        Ok(Address::Tls {
            address,
            name,
            credentials,
        })
    }

    fn channel(&self) -> Channel {
        match self {
            Address::Unix(path) => mooring_wire::uds::connect_lazy(path),
            Address::Http(endpoint) => endpoint.connect_lazy(),
            Address::Tls {
                address,
                name,
                credentials,
            } => tls::connect_lazy(address.clone(), name, credentials.clone())
                .expect("the name was taken when the address was made"),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
            Address::Http(endpoint) => endpoint.uri().fmt(f),
            Address::Tls { address, name, .. } => write!(f, "{address} ({name})"),
        }
    }
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self}")
    }
}

/// The same place; certificates are renewed behind it.
impl PartialEq for Address {
    fn eq(&self, other: &Address) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Eq for Address {}

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
    /// The harness at that address.
    pub fn at(address: &Address) -> Harness {
        let channel = address.channel();
        let client = HarnessClient::new(channel)
            .max_decoding_message_size(MESSAGE)
            .max_encoding_message_size(MESSAGE);
        Harness { client }
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
    call!(answer, AnswerRequest -> AnswerResponse);
    call!(role, RoleRequest -> RoleResponse);
    call!(model, ModelRequest -> ModelResponse);
    call!(explain, ExplainRequest -> ExplainResponse);
    call!(diff, DiffRequest -> DiffResponse);
    call!(compact, CompactRequest -> CompactResponse);
    call!(reset, ResetRequest -> ResetResponse);
    call!(fork, ForkRequest -> ForkResponse);
    call!(resume, ResumeRequest -> ResumeResponse);
    call!(conversations, ConversationsRequest -> ConversationsResponse);

    /// Puts a file of a message into the sandbox.
    pub async fn upload(
        &self,
        header: wire::upload_request::Header,
        data: bytes::Bytes,
    ) -> Answer<wire::UploadResponse> {
        use wire::upload_request::Part;
        let chunks = data
            .chunks(CHUNK)
            .map(|chunk| Part::Chunk(data.slice_ref(chunk)));
        let requests: Vec<_> = std::iter::once(Part::Header(header))
            .chain(chunks)
            .map(|part| wire::UploadRequest { part: Some(part) })
            .collect();
        let mut client = self.client.clone();
        let sent = client.upload(tokio_stream::iter(requests));
        match tokio::time::timeout(TIMEOUT * 4, sent).await {
            Ok(answer) => Ok(answer?.into_inner()),
            Err(_) => Err(HarnessError::Away("no answer in time".into())),
        }
    }

    /// A conversation as JSON Lines; `None`: it has more bytes than `limit`.
    pub async fn export(
        &self,
        request: wire::ExportRequest,
        limit: usize,
    ) -> Answer<Option<Vec<u8>>> {
        let mut client = self.client.clone();
        let reading = async {
            let mut chunks = client.export(request).await?.into_inner();
            let mut lines = Vec::new();
            while let Some(chunk) = chunks.message().await? {
                if lines.len() + chunk.lines.len() > limit {
                    return Ok(None);
                }
                lines.extend_from_slice(chunk.lines.as_bytes());
            }
            Ok(Some(lines))
        };
        match tokio::time::timeout(TIMEOUT * 4, reading).await {
            Ok(answer) => answer,
            Err(_) => Err(HarnessError::Away("no answer in time".into())),
        }
    }

    /// Rows as they come due, until the harness goes away.
    pub async fn outbox(&self) -> Answer<Streaming<wire::OutboxRow>> {
        let mut client = self.client.clone();
        Ok(client.outbox(wire::OutboxRequest {}).await?.into_inner())
    }
}
