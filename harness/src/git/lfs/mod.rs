//! Large files (git-lfs): commands fetch and send them through the gateway, which asks
//! the host's batch API in their place and follows its addresses itself.
//!
//! | part | what |
//! |---|---|
//! | `batch` | which objects there are, and where: the batch API on both sides |
//! | `action` | an address that the host gave out, with its fields, which stay here |
//! | `transfer` | the bytes of one object, in both directions |
//! | `waiting` | objects that wait for a push |
//! | `pointer` | objects that a push names |
//! | `pushed` | objects that go to the host with a push |
//!
//! git-lfs sends objects before it pushes. Where the `git` table allows the push, they
//! go on at once; where it asks, they wait in the harness, and go with the push that
//! names them after its approval.
//!
//! <https://github.com/git-lfs/git-lfs/tree/main/docs/api>

mod action;
mod batch;
mod pointer;
mod pushed;
mod transfer;
mod waiting;

use axum::body::Body;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
};
use serde_json::json;

pub use pointer::{Pointer, named};
pub use pushed::detail;
pub use waiting::Held;

use self::{action::Actions, waiting::Waiting};
use super::{Gateway, upstream::Failure};
use crate::boundary::Origin;

/// What the API's texts are.
const KIND: &str = "application/vnd.git-lfs+json";

/// What the gateway knows of large files.
pub struct Large {
    actions: Actions,
    waiting: Waiting,
}

impl Large {
    /// Objects wait below `folder`.
    pub fn new(folder: std::path::PathBuf) -> Large {
        Large {
            actions: Actions::default(),
            waiting: Waiting::new(folder),
        }
    }
}

/// What a request asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asks {
    /// Where objects are, or may go.
    Batch,
    /// One object.
    Object(Pointer),
    /// Something that is not served, as locks.
    Other,
}

/// Reads `/git/N.git/info/lfs/…`: the number of the repository, and what is asked.
pub fn route(path: &str) -> Option<(usize, Asks)> {
    let (number, asked) = path.strip_prefix("/git/")?.split_once("/info/lfs/")?;
    // As git-lfs makes it of an address that ends in a slash, and of one in `.lfsconfig`.
    let number = number.strip_suffix(".git").unwrap_or(number);
    let number = number.trim_end_matches('/').parse().ok()?;
    let object = |rest: &str| {
        let (oid, size) = rest.split_once('/')?;
        Pointer::new(oid, size.parse().ok()?)
    };
    let asks = match asked.strip_prefix("objects/") {
        Some("batch") => Asks::Batch,
        Some(rest) => object(rest).map_or(Asks::Other, Asks::Object),
        None => Asks::Other,
    };
    Some((number, asks))
}

impl Gateway {
    /// Answers one request for large files.
    pub(super) async fn large(
        &self,
        origin: &Origin,
        (number, asks): (usize, Asks),
        request: Request<Incoming>,
    ) -> Response<Body> {
        let Some(repository) = self.repository(number) else {
            return told(
                StatusCode::NOT_FOUND,
                "the Workspace names no such repository (any more)",
            );
        };
        match (asks, request.method()) {
            (Asks::Batch, &Method::POST) => self.batch(origin, &repository, number, request).await,
            (Asks::Object(object), &Method::GET) => {
                self.download(&repository, &object, request.headers()).await
            }
            (Asks::Object(object), &Method::PUT) => {
                let length = request.headers().get(header::CONTENT_LENGTH);
                let length = length.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
                if length.is_some_and(|length| length != object.size) {
                    return told(
                        StatusCode::UNPROCESSABLE_ENTITY,
                        "the object has another length than was said",
                    );
                }
                let body = Body::new(request.into_body());
                self.upload(&repository, &object, body).await
            }
            (Asks::Other, _) => told(
                StatusCode::NOT_FOUND,
                "of git-lfs only the batch API with basic transfers is served; there are no locks",
            ),
            _ => told(StatusCode::METHOD_NOT_ALLOWED, "git-lfs asks otherwise"),
        }
    }
}

/// An answer in git-lfs's form.
fn told(status: StatusCode, text: &str) -> Response<Body> {
    answer(status, &json!({ "message": text }))
}

fn answer(status: StatusCode, value: &serde_json::Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(KIND));
    response
}

/// What the host's failure is to a command. Never 401: the command has no credential
/// to try again with.
fn failed(failure: &Failure) -> Response<Body> {
    let status = match failure {
        Failure::NoCredential { .. } | Failure::Refused { .. } | Failure::Forbidden { .. } => {
            StatusCode::FORBIDDEN
        }
        Failure::NotFound { .. } => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_GATEWAY,
    };
    told(status, &failure.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_what_is_asked_of_large_files_is_a_route() {
        let oid = "ab".repeat(32);
        let object = Pointer::new(&oid, 7).unwrap();
        for (path, expected) in [
            (
                "/git/0.git/info/lfs/objects/batch".to_owned(),
                Some((0, Asks::Batch)),
            ),
            (
                "/git/12//info/lfs/objects/batch".to_owned(),
                Some((12, Asks::Batch)),
            ),
            (
                format!("/git/0.git/info/lfs/objects/{oid}/7"),
                Some((0, Asks::Object(object))),
            ),
            (
                format!("/git/0.git/info/lfs/objects/{}/7", &oid[1..]),
                Some((0, Asks::Other)),
            ),
            (
                format!("/git/0.git/info/lfs/objects/{oid}/../7"),
                Some((0, Asks::Other)),
            ),
            (
                "/git/0.git/info/lfs/locks/verify".to_owned(),
                Some((0, Asks::Other)),
            ),
            ("/git/0-other.git/info/lfs/objects/batch".to_owned(), None),
            ("/git/0/info/refs".to_owned(), None),
        ] {
            assert_eq!(route(&path), expected, "{path}");
        }
    }
}
