//! The end of an admin listener while its process goes on: a successor has the socket.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// What calls under way may take then. Senders wait meanwhile, and a page of the dashboard that follows live would never end.
pub(super) const LAST_WORDS: Duration = Duration::from_millis(100);

/// Whether admin listeners are to end; clones are one.
#[derive(Clone, Debug)]
pub struct Ending(Arc<watch::Sender<bool>>);

impl Ending {
    /// They are not.
    #[must_use]
    pub fn not_yet() -> Self {
        Self(Arc::new(watch::Sender::new(false)))
    }

    /// They are, from now on.
    pub fn now(&self) {
        self.0.send_replace(true);
    }

    /// Resolves when they are.
    pub(super) async fn begins(&self) {
        if self.0.subscribe().wait_for(|ends| *ends).await.is_err() {
            // Its sender is in our own hands.
            std::future::pending::<()>().await;
        }
    }
}
