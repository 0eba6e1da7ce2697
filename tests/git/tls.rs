//! TLS before a git host, by an authority of its own.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, rustls};

/// A running front; what it takes by TLS it hands to the host.
pub struct Front {
    pub port: u16,
    /// The authority's certificate (PEM).
    pub authority: String,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Front {
    /// A front with a certificate for `name` before the host at the port `to`.
    pub async fn start(name: &str, to: u16) -> Front {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (authority, config) = crate::world::certificates(&[name]);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // A client that does not know the authority ends it here.
                    let Ok(mut near) = acceptor.accept(stream).await else {
                        return;
                    };
                    let mut far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut near, &mut far).await;
                });
            }
        });
        Front {
            port,
            authority,
            server,
        }
    }
}
