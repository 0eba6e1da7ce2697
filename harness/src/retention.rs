//! Retention: what is older than the Workspace says is removed, in the background.

use std::{sync::Arc, time::Duration};

use mooring_crds::duration::duration;
use mooring_durable::{Engine, clock::Clock, error::SessionError, id::Millis};

use crate::{error::Error, record::audit, workspace::Source};

/// Between two passes.
const EVERY: Duration = Duration::from_secs(3600);

/// Passes every hour, and after a change of the Workspace.
pub async fn run(source: Arc<Source>, engine: Engine, clock: Arc<dyn Clock>) {
    let mut changes = source.changes();
    loop {
        changes.borrow_and_update();
        if let Err(error) = pass(&source, &engine, clock.now()).await {
            tracing::warn!(%error, "what is older than its retention stays for now");
        }
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

/// Removes what was old at `now`.
async fn pass(source: &Source, engine: &Engine, now: Millis) -> Result<(), Error> {
    let retention = source.current().spec.retention.clone();
    if let Some(since) = before(retention.transcripts.as_deref(), now) {
        let removed = engine.retain(since).await.map_err(Error::Session)?;
        tracing::debug!(?removed, "retention of transcripts");
    }
    if let Some(since) = before(retention.audit.as_deref(), now) {
        let mut after = 0;
        loop {
            let ids = audit::older(engine.reader(), after, since).await;
            let ids = ids.map_err(|error| {
                Error::Session(SessionError::SessionFailed(format!(
                    "a read failed: {error}"
                )))
            })?;
            let Some(last) = ids.last() else { break };
            after = *last;
            let removed = vec![audit::removed(&ids)];
            engine
                .commit("retire", removed)
                .await
                .map_err(Error::Session)?;
        }
    }
    Ok(())
}

/// The time before which things are old; `None`: nothing is.
fn before(kept: Option<&str>, now: Millis) -> Option<Millis> {
    let kept = duration(kept?).ok().flatten()?;
    let kept = i64::try_from(kept.as_millis()).unwrap_or(i64::MAX);
    Some(Millis(now.0.saturating_sub(kept)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_kept() {
        let day = 86_400_000;
        for (kept, expected) in [
            (None, None),
            (Some("2d"), Some(Millis(day))),
            (Some("never"), None),
        ] {
            assert_eq!(before(kept, Millis(3 * day)), expected, "{kept:?}");
        }
    }
}
