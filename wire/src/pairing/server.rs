//! The sandbox's side: who connects, and with what.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::sign::SingleCertAndKey;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use super::certificate::{Held, tls};
use super::{
    ALPN, Answer, Asked, Certificate, Fingerprint, Hello, Proof, Refusal, Standing, read_line,
    write_line,
};
use crate::{WireError, tls as mutual};

/// The exchange takes no longer; nobody types meanwhile.
const EXCHANGE: Duration = Duration::from_secs(10);
/// After a wrong code the next one is looked at so much later, whoever sends it.
const AFTER_A_WRONG_ONE: Duration = Duration::from_millis(500);

/// Where a sandbox keeps with whom it is paired, and its code.
pub trait Desk: Send + Sync + 'static {
    /// The harness that may call.
    fn paired(&self) -> Option<Fingerprint>;

    /// A harness proves that it knows the code: it is the paired one from now on,
    /// and gets the sandbox's own proof.
    ///
    /// # Errors
    /// Why not.
    fn take(&self, harness: Fingerprint, proof: &Proof) -> Result<Proof, Refusal>;
}

/// Who is at the other end of a [`Connection`], in the extensions of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer(pub Fingerprint);

/// A connection of the paired harness.
#[derive(Debug)]
pub struct Connection {
    stream: TlsStream<TcpStream>,
    peer: Peer,
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// The connections of the harness that is paired at that moment, for
/// `serve_with_incoming`. Others get the exchange, or are closed.
///
/// # Errors
/// A certificate that TLS does not take.
pub fn incoming(
    listener: TcpListener,
    certificate: &Certificate,
    version: &'static str,
    desk: Arc<dyn Desk>,
) -> Result<ReceiverStream<io::Result<Connection>>, WireError> {
    let acceptor = acceptor(certificate)?;
    // One proof at a time, so that waiting after a wrong one holds everybody up.
    let turn = Arc::new(Mutex::new(()));
    Ok(mutual::connections(listener, move |socket| {
        let (acceptor, desk, turn) = (acceptor.clone(), Arc::clone(&desk), Arc::clone(&turn));
        async move {
            let handshake = tokio::time::timeout(mutual::HANDSHAKE, acceptor.accept(socket));
            let mut stream = handshake.await.ok()?.ok()?;
            let session = stream.get_ref().1;
            let harness = Fingerprint::of(session.peer_certificates()?.first()?);
            if session.alpn_protocol() == Some(mutual::ALPN) {
                let peer = Peer(harness);
                return (desk.paired() == Some(harness)).then_some(Connection { stream, peer });
            }
            let exchange = exchange(&mut stream, harness, version, &*desk, &turn);
            let _ = tokio::time::timeout(EXCHANGE, exchange).await;
            let _ = tokio::time::timeout(EXCHANGE, stream.shutdown()).await;
            None
        }
    }))
}

pub(super) fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor, WireError> {
    let mut config = ServerConfig::builder_with_provider(mutual::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .with_client_cert_verifier(Held::by(None))
        .with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(
            &certificate.key,
        ))));
    config.alpn_protocols = vec![mutual::ALPN.to_vec(), ALPN.to_vec()];
    config.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

async fn exchange(
    stream: &mut TlsStream<TcpStream>,
    harness: Fingerprint,
    version: &str,
    desk: &dyn Desk,
    turn: &Mutex<()>,
) -> io::Result<()> {
    let hello = Hello {
        version: version.to_owned(),
        paired: match desk.paired() {
            Some(paired) if paired == harness => Standing::You,
            Some(_) => Standing::Another,
            None => Standing::Nobody,
        },
    };
    write_line(stream, &hello).await?;
    let Some(Asked { proof }) = read_line(stream).await? else {
        return Ok(());
    };
    let turn = turn.lock().await;
    let answer = match desk.take(harness, &proof) {
        Ok(proof) => Answer::Proof(proof),
        Err(refusal) => {
            if refusal == Refusal::Wrong {
                tokio::time::sleep(AFTER_A_WRONG_ONE).await;
            }
            Answer::Refused(refusal)
        }
    };
    drop(turn);
    write_line(stream, &answer).await
}
