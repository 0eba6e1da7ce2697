//! gRPC over Unix sockets, as `mooring dev` uses it. Who connects is known by
//! the kernel's peer credentials, so the file mode is the only key.

use std::{
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Listens at `path`, which only this user may connect to. A socket that was
/// left behind and that nobody listens at is replaced; a live one is
/// [`io::ErrorKind::AddrInUse`].
pub async fn listen(path: &Path) -> io::Result<UnixListenerStream> {
    if path.exists() {
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("{} is served by another process", path.display()),
            ));
        }
        std::fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(UnixListenerStream::new(listener))
}

/// Connects to the server at `path`; fails at once where nobody listens.
///
/// The channel reconnects by itself when the server comes back.
pub async fn connect(path: &Path) -> Result<Channel, tonic::transport::Error> {
    let path: PathBuf = path.to_owned();
    // The address is never resolved; tonic demands one.
    Endpoint::from_static("http://mooring.invalid")
        .connect_with_connector(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }))
        .await
}
