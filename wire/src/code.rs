//! Errors on the wire: a gRPC status with a stable code for programs and a text
//! for people.

use tonic::{Status, metadata::MetadataValue};

/// The trailer that carries the stable code.
const CODE: &str = "mooring-code";

/// What went wrong, for programs. The words are stable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Code {
    /// The request itself is wrong.
    Invalid,
    /// There is no such conversation, submission, approval or grant.
    NotFound,
    /// A run is going and the input asked to be refused then.
    Busy,
    /// The caller's role does not allow it.
    Forbidden,
    /// The request id is used by a submission of the other type.
    OtherType,
    /// No space left on the harness's disk; nothing was kept.
    StorageFull,
    /// The harness is about to start again; send it again.
    Restarting,
    /// The harness's records are damaged.
    Corrupt,
}

impl Code {
    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Code::Invalid => "invalid",
            Code::NotFound => "not-found",
            Code::Busy => "busy",
            Code::Forbidden => "forbidden",
            Code::OtherType => "other-type",
            Code::StorageFull => "storage-full",
            Code::Restarting => "restarting",
            Code::Corrupt => "corrupt",
        }
    }

    fn grpc(self) -> tonic::Code {
        match self {
            Code::Invalid => tonic::Code::InvalidArgument,
            Code::NotFound => tonic::Code::NotFound,
            Code::Busy => tonic::Code::FailedPrecondition,
            Code::Forbidden => tonic::Code::PermissionDenied,
            Code::OtherType => tonic::Code::AlreadyExists,
            Code::StorageFull => tonic::Code::ResourceExhausted,
            Code::Restarting => tonic::Code::Unavailable,
            Code::Corrupt => tonic::Code::DataLoss,
        }
    }
}

/// A status with `code` and a text for people.
pub fn status(code: Code, text: impl Into<String>) -> Status {
    let mut status = Status::new(code.grpc(), text.into());
    status
        .metadata_mut()
        .insert(CODE, MetadataValue::from_static(code.word()));
    status
}

/// The stable code of a status, where it has one.
pub fn code(status: &Status) -> Option<&str> {
    status.metadata().get(CODE)?.to_str().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_and_the_text_are_read_back() {
        let told = status(Code::Busy, "a run is going");
        assert_eq!(code(&told), Some("busy"));
        assert_eq!(told.message(), "a run is going");
        assert_eq!(code(&Status::internal("x")), None);
    }
}
