//! gRPC over a Unix socket, as `mooring dev` uses it.
//!
//! The socket lies in a folder of mode 0700 and is itself 0600; on top of
//! that the server asks the kernel who connects and takes only its own user.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_stream::{Stream, StreamExt};
use tonic::transport::{Channel, Endpoint};

use crate::WireError;

/// `sun_path` of unix(7), less the closing zero byte.
const PATH_LIMIT: usize = 107;

/// Makes the socket's folder (0700) and the socket (0600); a socket that a
/// dead server left behind is replaced.
///
/// Works without a runtime, so that a program can listen before it starts
/// one; callers that connect in between wait in the backlog.
pub fn bind(path: &Path) -> Result<StdListener, WireError> {
    let length = path.as_os_str().as_bytes().len();
    if length > PATH_LIMIT {
        return Err(WireError::SocketPathTooLong {
            path: path.to_owned(),
            length,
            limit: PATH_LIMIT,
        });
    }
    let failed = |source| WireError::Socket {
        path: path.to_owned(),
        source,
    };
    if let Some(folder) = path.parent() {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .map_err(failed)?;
    }
    match std::fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(failed(error)),
    }
    let listener = StdListener::bind(path).map_err(failed)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// The connections of a bound socket, for `serve_with_incoming`; those of
/// other users are closed at once. Needs a runtime.
pub fn incoming(
    listener: StdListener,
) -> std::io::Result<impl Stream<Item = std::io::Result<UnixStream>>> {
    let own = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self")?);
    incoming_from(listener, own)
}

/// Like [`incoming`], for a server whose own user id is known already
/// (`/proc/self` of a process that is not dumpable belongs to root).
pub fn incoming_from(
    listener: StdListener,
    uid: u32,
) -> std::io::Result<impl Stream<Item = std::io::Result<UnixStream>>> {
    let listener = UnixListener::from_std(listener)?;
    Ok(UnixListenerStream::new(listener).filter(move |stream| {
        stream.as_ref().map_or(true, |stream| {
            stream.peer_cred().is_ok_and(|peer| peer.uid() == uid)
        })
    }))
}

/// [`bind`], for a server that has a runtime. A socket that a live server
/// answers on is not replaced: [`std::io::ErrorKind::AddrInUse`].
pub async fn listen(path: &Path) -> std::io::Result<UnixListenerStream> {
    if UnixStream::connect(path).await.is_ok() {
        return Err(std::io::Error::new(
            std::io::ErrorKind::AddrInUse,
            format!("{} is served by another process", path.display()),
        ));
    }
    let listener = bind(path).map_err(std::io::Error::other)?;
    Ok(UnixListenerStream::new(UnixListener::from_std(listener)?))
}

/// Connects now; fails when nobody listens. The channel connects again by
/// itself when the server comes back.
pub async fn connect(path: &Path) -> Result<Channel, WireError> {
    let path = path.to_owned();
    endpoint()
        .connect_with_connector(connector(path.clone()))
        .await
        .map_err(|source| WireError::Connect {
            address: path.display().to_string(),
            source,
        })
}

/// Connects at the first call, and again after the connection was lost.
pub fn connect_lazy(path: &Path) -> Channel {
    endpoint().connect_with_connector_lazy(connector(path.to_owned()))
}

fn endpoint() -> Endpoint {
    // The authority is not looked at on a Unix socket, but HTTP/2 wants one.
    Endpoint::from_static("http://mooring.invalid").connect_timeout(Duration::from_secs(5))
}

fn connector(
    path: PathBuf,
) -> impl tower::Service<
    tonic::transport::Uri,
    Response = TokioIo<UnixStream>,
    Error = std::io::Error,
    Future = impl Future<Output = std::io::Result<TokioIo<UnixStream>>> + Send,
> + Clone
+ Send
+ 'static {
    tower::service_fn(move |_| {
        let path = path.clone();
        async move { Ok(TokioIo::new(UnixStream::connect(path).await?)) }
    })
}
