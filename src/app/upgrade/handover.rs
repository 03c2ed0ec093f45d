//! The predecessor's side after `go`: it makes way, hands over, and goes on where its successor does not come to serve.

use anyhow::Context as _;
use tokio::time::timeout;

use super::super::{Again, End, Given, Running, notify};
use super::door::Successor;
use super::{CUT, GAP};

/// How making way came out.
pub(in crate::app) enum Way {
    /// Nothing of any event is under way: the store may go.
    Clear(Successor),
    /// The successor went away; all is as before.
    Stays,
    /// This process is to end, by this signal.
    Signal(&'static str),
}

impl Running {
    /// Lets attempts in flight end and begins no further one, while senders are served as ever.
    pub(in crate::app) async fn make_way(&mut self, mut successor: Successor) -> Way {
        let within = self.reloader.drain();
        let (process, version) = (successor.process(), successor.version.clone());
        tracing::info!(
            process,
            version,
            ?within,
            "a successor is ready: what is in flight ends, and what comes is kept for it"
        );
        let those = self.serving.retire();
        let (handle, signals) = (&self.handle, &mut self.signals);
        let finished = async {
            // Deliveries go on until only they are left to wait for.
            if timeout(within, those.gone()).await.is_err() {
                tracing::debug!("requests outlived shutdown.drain");
            }
            let mut quiet = std::pin::pin!(handle.hold_events());
            if timeout(within, &mut quiet).await.is_err() {
                // They hold up a successor no longer than a restart.
                let cut = handle.cut_attempts().await.is_ok() && timeout(CUT, quiet).await.is_ok();
                tracing::debug!(cut, "attempts outlived shutdown.drain");
            }
        };
        let signal = tokio::select! {
            biased;
            name = signals.end() => Some(name),
            () = successor.gone() => None,
            () = finished => return Way::Clear(successor),
        };
        if let Some(name) = signal {
            successor.refuse("it was told to end").await;
            return Way::Signal(name);
        }
        tracing::warn!(process, "the successor went away before it took over: this process goes on as before");
        self.serving.stay();
        if self.handle.resume_events().await.is_err() {
            tracing::debug!("the driver has ended");
        }
        Way::Stays
    }

    /// Hands over. The gap begins and ends in here.
    pub(in crate::app) async fn hand_over(self, mut successor: Successor) -> anyhow::Result<End> {
        let Self {
            serving,
            handle,
            store,
            reloader,
            door,
            membership,
            mut signals,
            mut driver,
            mut admin,
            ending,
            alerts,
            ..
        } = self;
        let within = reloader.drain();
        ending.now();
        // What there is to say of the store is said by whoever has it.
        drop(alerts);
        let admin_over = async { while admin.join_next().await.is_some() {} };
        let (leftover, ()) = tokio::join!(serving.hand_over(GAP), admin_over);
        let clean = matches!(timeout(within, handle.let_go()).await, Ok(Ok(())));
        if let Some(membership) = membership
            && timeout(within, membership.end(clean)).await.is_err()
        {
            tracing::warn!("this node's shards are free when its lease is over: they could not be given back in time");
        }
        // Where it cannot be closed, its lock goes with this process, and the successor recovers it.
        store.close().await.context("the store was not closed in order; the successor recovers it")?;
        let process = successor.process();
        tracing::info!(process, "the store is closed and the sockets are the successor's");
        let serves = tokio::select! {
            serves = successor.serves() => serves,
            name = signals.end() => {
                tracing::info!(signal = name, process, "ending; the successor goes on by itself");
                return Ok(End::Over);
            }
        };
        if let Err(why) = serves {
            tracing::error!(
                process,
                why,
                "the successor does not serve: this process takes its sockets back and goes on"
            );
            let basis = reloader.end().await;
            let given = Given::new(basis, Some(handle.metrics()))?;
            let sockets = door.close().context("the sockets were given away")?;
            return Ok(End::Again(Box::new(Again { given, sockets, leftover: driver })));
        }
        notify::main_process(process);
        // Senders that wait for the upstream's answer have it from here.
        let last = async {
            while driver.join_next().await.is_some() {}
            leftover.gone().await;
        };
        if timeout(within, last).await.is_err() {
            tracing::warn!(
                within_s = within.as_secs_f64(),
                "some connections were still open at the end of shutdown.drain and were cut"
            );
        }
        reloader.end().await;
        tracing::info!(process, "ended: the successor serves");
        Ok(End::Over)
    }
}
