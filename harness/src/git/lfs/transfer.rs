//! The bytes of one object: streamed through, whatever their number.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use bytes::Bytes;
use futures::{Stream, StreamExt};
use hyper::{
    Method, Request, Response, StatusCode,
    header::{self, HeaderMap, HeaderValue},
};
use serde_json::json;
use tokio_util::io::ReaderStream;

use super::{
    KIND, Pointer,
    action::{Action, Direction, Way},
    batch::Found,
    failed, told,
    waiting::NotTaken,
};
use crate::git::{
    Gateway, Repository,
    connector::{self, Answered, unreachable},
    upstream::{Failure, location, silent},
};

/// Addresses that a host may lead on to.
const MOST_REDIRECTS: usize = 3;

impl Gateway {
    /// Fetches an object for a command.
    pub(super) async fn download(
        &self,
        repository: &Repository,
        object: &Pointer,
        fields: &HeaderMap,
    ) -> Response<Body> {
        let range = fields.get(header::RANGE);
        let range = range
            .and_then(|it| from(it.to_str().ok()?))
            .filter(|it| *it < object.size);
        let known = self
            .large
            .actions
            .find(&repository.address, object, Direction::Down);
        let fresh = known.is_none();
        let mut answered = match known {
            Some(Way::Down(action)) => self.get(repository, action, range).await,
            _ => self.get_anew(repository, object, range).await,
        };
        // What was given out may have come to its end.
        let over = |status: StatusCode| matches!(status.as_u16(), 401 | 403 | 404 | 410);
        if !fresh && matches!(&answered, Ok((_, answer)) if over(answer.status())) {
            answered = self.get_anew(repository, object, range).await;
        }
        let (action, answer) = match answered {
            Ok(answered) => answered,
            Err(failure) => return failed(&failure),
        };
        let begin = match (answer.status(), range) {
            (StatusCode::OK, _) => 0,
            (StatusCode::PARTIAL_CONTENT, Some(begin)) => begin,
            (status, _) => return failed(&self.upstream.status(&action.at, status)),
        };
        if answer.headers().contains_key(header::CONTENT_ENCODING) {
            let why = "it sends the object encoded otherwise than it was asked";
            return failed(&unreachable(&action.at, why));
        }
        let left = object.size - begin;
        let body = self.upstream.timely(&action.at, answer).into_data_stream();
        let mut response = Response::new(Body::from_stream(exactly(body, left)));
        let fields = response.headers_mut();
        fields.insert(header::CONTENT_LENGTH, left.into());
        let kind = HeaderValue::from_static("application/octet-stream");
        fields.insert(header::CONTENT_TYPE, kind);
        if begin > 0 {
            let range = format!("bytes {begin}-{}/{}", object.size - 1, object.size);
            let range = HeaderValue::try_from(range).expect("digits are a field's value");
            fields.insert(header::CONTENT_RANGE, range);
            *response.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        response
    }

    /// The same by an address that is asked for now.
    async fn get_anew(
        &self,
        repository: &Repository,
        object: &Pointer,
        range: Option<u64>,
    ) -> Result<(Action, Answered), Failure> {
        let asked = std::slice::from_ref(object);
        let found = self.find(repository, Direction::Down, None, asked).await?;
        match found.into_iter().next() {
            Some(Found::Way(way @ Way::Down(_))) => {
                self.large
                    .actions
                    .keep(&repository.address, object, way.clone());
                let Way::Down(action) = way else {
                    unreachable!("it is matched above");
                };
                self.get(repository, action, range).await
            }
            Some(Found::Wrong(_, why)) => Err(unreachable(&repository.address, why)),
            _ => Err(unreachable(
                &repository.address,
                "it names no address of the object",
            )),
        }
    }

    /// Asks for an object where the host has said, and where that leads on to.
    async fn get(
        &self,
        repository: &Repository,
        mut action: Action,
        range: Option<u64>,
    ) -> Result<(Action, Answered), Failure> {
        for _ in 0..=MOST_REDIRECTS {
            let mut request = self.request(repository, &action, Method::GET, Body::empty())?;
            if let Some(begin) = range {
                let range = HeaderValue::try_from(format!("bytes={begin}-"));
                let range = range.expect("digits are a field's value");
                request.headers_mut().insert(header::RANGE, range);
            }
            let answer = self.upstream.large(&action.at, request).await?;
            if !answer.status().is_redirection() {
                return Ok((action, answer));
            }
            let to = location(answer.headers());
            action = action
                .led_on(&to)
                .ok_or_else(|| unreachable(&action.at, format!("it leads on to {to}")))?;
        }
        Err(unreachable(&action.at, "it leads on and on"))
    }

    fn request(
        &self,
        repository: &Repository,
        action: &Action,
        method: Method,
        body: Body,
    ) -> Result<Request<Body>, Failure> {
        let at = &action.at;
        let fields = action.fields.clone();
        let mut request = connector::request(at, method, &action.path, fields, body)?;
        let fields = request.headers_mut();
        // The host itself wants its own credential, where it has given no other.
        let address = &repository.address;
        let learnt = self
            .upstream
            .learnt_of_large(address, repository.secret.as_deref());
        let own = learnt.moved.clone().unwrap_or(address.clone());
        if at.is_at(&own)
            && !fields.contains_key(header::AUTHORIZATION)
            && let Some(field) = learnt.field_for(&own, address)
        {
            fields.insert(header::AUTHORIZATION, field);
        }
        Ok(request)
    }

    /// Takes an object from a command: to the host, or until a push names it.
    pub(super) async fn upload(
        &self,
        repository: &Repository,
        object: &Pointer,
        body: Body,
    ) -> Response<Body> {
        match self
            .large
            .actions
            .find(&repository.address, object, Direction::Up)
        {
            Some(Way::Up(upload, verify)) => {
                let sent = self.send_up(repository, object, body, &upload, verify.as_ref());
                match sent.await {
                    Ok(()) => Response::new(Body::empty()),
                    Err(failure) => failed(&failure),
                }
            }
            Some(Way::Wait) => {
                let taken = self.large.waiting.take(&repository.address, object, body);
                match taken.await {
                    Ok(()) => Response::new(Body::empty()),
                    Err(error) => {
                        let status = match &error {
                            NotTaken::Other(_) => StatusCode::UNPROCESSABLE_ENTITY,
                            NotTaken::Full | NotTaken::NoRoom => StatusCode::INSUFFICIENT_STORAGE,
                            NotTaken::Io(_) => StatusCode::BAD_GATEWAY,
                        };
                        told(status, &error.to_string())
                    }
                }
            }
            // git-lfs asks anew after a 403.
            _ => told(
                StatusCode::FORBIDDEN,
                "it was not said that this object may be sent",
            ),
        }
    }

    /// Sends an object that lies in a file.
    pub(super) async fn send_file(
        &self,
        repository: &Repository,
        object: &Pointer,
        file: tokio::fs::File,
        (upload, verify): (&Action, Option<&Action>),
    ) -> Result<(), Failure> {
        let body = Body::from_stream(ReaderStream::with_capacity(file, 64 << 10));
        self.send_up(repository, object, body, upload, verify).await
    }

    async fn send_up(
        &self,
        repository: &Repository,
        object: &Pointer,
        body: Body,
        upload: &Action,
        verify: Option<&Action>,
    ) -> Result<(), Failure> {
        let moved = Arc::new(AtomicU64::new(0));
        let count = moved.clone();
        let pieces = exactly(body.into_data_stream(), object.size).inspect(move |piece| {
            let bytes = piece.as_ref().map_or(0, Bytes::len) as u64;
            count.fetch_add(bytes, Ordering::Relaxed);
        });
        let body = Body::from_stream(pieces);
        let mut request = self.request(repository, upload, Method::PUT, body)?;
        let fields = request.headers_mut();
        fields.insert(header::CONTENT_LENGTH, object.size.into());
        let kind = HeaderValue::from_static("application/octet-stream");
        fields.entry(header::CONTENT_TYPE).or_insert(kind);
        let answer = self.while_moving(upload, request, &moved).await?;
        if !answer.status().is_success() {
            return Err(self.upstream.status(&upload.at, answer.status()));
        }
        let Some(verify) = verify else {
            return Ok(());
        };
        let text = json!({ "oid": object.oid, "size": object.size }).to_string();
        let length = text.len();
        let mut request = self.request(repository, verify, Method::POST, Body::from(text))?;
        let fields = request.headers_mut();
        fields.insert(header::CONTENT_LENGTH, length.into());
        fields.insert(header::CONTENT_TYPE, HeaderValue::from_static(KIND));
        fields.insert(header::ACCEPT, HeaderValue::from_static(KIND));
        let answer = self.upstream.large(&verify.at, request).await?;
        match answer.status().is_success() {
            true => Ok(()),
            false => Err(self.upstream.status(&verify.at, answer.status())),
        }
    }

    /// Sends a request whose body may take any time, as long as it moves.
    async fn while_moving(
        &self,
        action: &Action,
        request: Request<Body>,
        moved: &AtomicU64,
    ) -> Result<Answered, Failure> {
        let patience: Duration = self.upstream.patience.push;
        let sent = self.upstream.connector.exchange(&action.at, request);
        tokio::pin!(sent);
        let mut before = 0;
        loop {
            if let Ok(answer) = tokio::time::timeout(patience, &mut sent).await {
                return answer;
            }
            let now = moved.load(Ordering::Relaxed);
            if now == before {
                return Err(silent(&action.at, patience));
            }
            before = now;
        }
    }
}

/// Where a range begins that goes to the end.
fn from(range: &str) -> Option<u64> {
    let begin = range.strip_prefix("bytes=")?.split_once('-')?.0;
    begin.parse().ok().filter(|begin| *begin > 0)
}

/// The same pieces; an error in place of the byte that is too many, and of the end that
/// comes too early.
fn exactly<E: Into<axum::BoxError>>(
    pieces: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    size: u64,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static {
    futures::stream::unfold(Some((pieces, size)), |state| async move {
        let (mut pieces, left) = state?;
        let stop = |why: &str| Some((Err(std::io::Error::other(why.to_owned())), None));
        match pieces.next().await {
            Some(Ok(piece)) => match left.checked_sub(piece.len() as u64) {
                Some(left) => Some((Ok(piece), Some((pieces, left)))),
                None => stop("the object is longer than was said"),
            },
            Some(Err(error)) => Some((Err(std::io::Error::other(error.into())), None)),
            None if left > 0 => stop("the object is shorter than was said"),
            None => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_object_is_as_long_as_was_said_or_an_error() {
        for (pieces, size, whole) in [
            (vec!["ab", "c"], 3, true),
            (vec![], 0, true),
            (vec!["ab", "c"], 2, false),
            (vec!["ab"], 3, false),
        ] {
            let text: usize = pieces.iter().map(|it| it.len()).sum();
            let pieces = futures::stream::iter(
                pieces
                    .into_iter()
                    .map(|it| Ok::<_, std::io::Error>(Bytes::from(it))),
            );
            let read: Vec<_> = exactly(pieces, size).collect().await;
            assert_eq!(read.iter().all(Result::is_ok), whole, "{text} of {size}");
        }
    }

    #[test]
    fn a_range_is_read_that_goes_on_where_a_transfer_broke_off() {
        for (range, expected) in [
            ("bytes=5-", Some(5)),
            ("bytes=5-9", Some(5)),
            ("bytes=0-", None),
            ("bytes=-5", None),
            ("lines=5-", None),
            ("bytes=x-", None),
        ] {
            assert_eq!(from(range), expected, "{range}");
        }
    }
}
