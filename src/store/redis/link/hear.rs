//! Hearing what is published on a channel: a hint, never the truth. A connection that is lost is made anew, and what was said meanwhile is
//! missed.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;

use super::Inner;
use super::dial;

/// How often it is seen to that the server still answers: a connection may be dead without a word.
const PING: Duration = Duration::from_secs(2);
/// How long after a failure it is tried again.
const PAUSE: Duration = Duration::from_millis(200);
/// Messages that wait to be taken; more are dropped, for those that wait say the same.
const WAITING_MAX: usize = 1024;

/// What is published on a channel, as long as it is held.
pub struct Hearing {
    messages: mpsc::Receiver<Vec<u8>>,
}

impl Hearing {
    /// The next message. Never resolves again when the link is gone.
    pub async fn next(&mut self) -> Vec<u8> {
        match self.messages.recv().await {
            Some(message) => message,
            None => std::future::pending().await,
        }
    }
}

/// A hearing, and the task that fills it.
pub(super) fn hear(inner: Arc<Inner>, channel: String) -> (Hearing, impl Future<Output = ()> + Send) {
    let (tell, messages) = mpsc::channel(WAITING_MAX);
    let task = async move {
        while !tell.is_closed() {
            if let Err(why) = listen(&inner, &channel, &tell).await {
                tracing::debug!(channel, why, "the connection that hears Redis is made anew");
                inner.refresh(inner.generation()).await.ok();
            }
            tokio::time::sleep(PAUSE).await;
        }
    };
    (Hearing { messages }, task)
}

/// Hears until the connection is lost, or nobody wants to know.
async fn listen(inner: &Inner, channel: &str, tell: &mpsc::Sender<Vec<u8>>) -> Result<(), String> {
    let address = inner.any().ok_or("no server is known")?;
    let (mut ask, mut messages) = dial::ears(&inner.server, &address).await?.split();
    let within = |what: &'static str| move |_elapsed| format!("{what}: no answer within {} s", PING.as_secs());
    let subscribed = tokio::time::timeout(PING, ask.subscribe(channel)).await;
    subscribed.map_err(within("SUBSCRIBE"))?.map_err(|error| error.to_string())?;
    let mut ping = tokio::time::interval(PING);
    loop {
        tokio::select! {
            message = messages.next() => {
                let Some(message) = message else { return Err("the connection was lost".into()) };
                inner.heard();
                // A full queue says already that there is news.
                tell.try_send(message.get_payload_bytes().to_vec()).ok();
            }
            _ = ping.tick() => {
                let pong = tokio::time::timeout(PING, ask.ping::<redis::Value>()).await;
                pong.map_err(within("PING"))?.map_err(|error| error.to_string())?;
            }
            () = tell.closed() => return Ok(()),
        }
    }
}
