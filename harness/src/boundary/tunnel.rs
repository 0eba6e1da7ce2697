//! The stream to the daemon that carries what commands send.

use std::{sync::Arc, time::Duration};

use mooring_wire::{
    sandbox::sandbox_client::SandboxClient,
    tunnel::{Mux, Side},
};
use tokio_stream::StreamExt;
use tonic::transport::Channel;

use super::Boundary;
use crate::sandbox::{Link, State};

/// Connections at once that a daemon may announce.
const MOST: usize = 1024;
/// The longest pause between two attempts to open the stream.
const PAUSE: Duration = Duration::from_secs(1);

/// Keeps a stream open while the sandbox is reached, for ever.
pub async fn follow(link: Arc<Link>, boundary: Arc<Boundary>) {
    let mut changes = link.changes();
    let mut pause = Duration::from_millis(20);
    loop {
        let there = changes
            .wait_for(|state| {
                let status = state.status();
                status.is_some_and(|status| !status.tunnel_address.is_empty())
            })
            .await
            .is_ok();
        if !there {
            return;
        }
        let begun = std::time::Instant::now();
        let mut later = link.changes();
        let gone = async {
            let _ = later
                .wait_for(|state| matches!(state, State::Down { .. }))
                .await;
        };
        let ended = tokio::select! {
            ended = keep(&link, &boundary) => ended,
            () = gone => "the sandbox is not reached".into(),
        };
        tracing::info!(reason = ended, "the tunnel to the sandbox ended");
        // A daemon that has died is known here first.
        link.lost();
        if begun.elapsed() > Duration::from_secs(10) {
            pause = Duration::from_millis(20);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE);
    }
}

/// Carries connections until the stream ends: why.
async fn keep(link: &Link, boundary: &Arc<Boundary>) -> String {
    // A connection of its own: bulk data delays no call.
    let channel = match link.channel().await {
        Ok(channel) => channel,
        Err(error) => return error,
    };
    carry(channel, boundary).await
}

async fn carry(channel: Channel, boundary: &Arc<Boundary>) -> String {
    let (mux, outgoing) = Mux::new(Side::Takes, MOST);
    let mut client = SandboxClient::new(channel).max_decoding_message_size(64 << 10);
    let mut incoming = match client.tunnel(outgoing).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return status.message().to_owned(),
    };
    let reason = loop {
        match incoming.next().await {
            Some(Ok(frame)) => match mux.take(frame) {
                Ok(None) => {}
                Ok(Some(connection)) => {
                    tokio::spawn(boundary.clone().serve(connection));
                }
                Err(violation) => {
                    tracing::warn!(%violation, "the sandbox broke the rules of the tunnel");
                    break violation.to_string();
                }
            },
            Some(Err(status)) => break status.message().to_owned(),
            None => break "the sandbox ended it".into(),
        }
    };
    mux.end("the tunnel ended");
    reason
}
