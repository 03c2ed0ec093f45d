//! The loop: a terminal that is given back however this ends, and a thread that asks the gateway, so that keys never wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use http::Method;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::draw::draw;
use super::picture::{Picture, Sort, detail, fetch};
use super::state::{State, Wish};
use crate::cli::remote::{Remote, ask, encoded};
use crate::cli::{FAILED, complain};

/// How long a key may wait for a look at what has come.
const BEAT: Duration = Duration::from_millis(100);

/// Wishes that may wait for the asking thread; whoever presses more is not heard.
const WISHES_MAX: usize = 16;

/// What the asking thread has to say: a picture or what went wrong, and what was done.
struct Said {
    picture: Result<Picture, String>,
    done: Option<String>,
}

/// Gives the terminal back, whatever happens; a panic does so before its message (`ratatui::try_init` sees to that).
struct Restored;

impl Drop for Restored {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

pub(super) fn run(remote: &Remote, sort: Sort, interval: Duration) -> u8 {
    // A gateway that is not there is said on a terminal that is still its owner's.
    let first = match fetch(remote, sort) {
        Ok(picture) => picture,
        Err(message) => return complain(&message, FAILED),
    };
    match shown(remote, State::new(sort), first, interval) {
        Ok(()) => 0,
        Err(error) => complain(&format!("the terminal cannot be used: {error}"), FAILED),
    }
}

fn shown(remote: &Remote, mut state: State, first: Picture, interval: Duration) -> std::io::Result<()> {
    let told_to_end = ends()?;
    let (wishes, wished) = sync_channel(WISHES_MAX);
    let (say, said) = sync_channel(1);
    let (asks, sort) = (remote.clone(), state.sort);
    // It ends when this side of its channels is gone.
    std::thread::spawn(move || asker(&asks, sort, interval, &wished, &say));
    state.said.clear();
    state.show(first);
    let mut terminal = ratatui::try_init()?;
    let _restored = Restored;
    while !told_to_end.load(Ordering::Relaxed) {
        terminal.draw(|frame| draw(&state, frame))?;
        if event::poll(BEAT)?
            && let Event::Key(key) = event::read()?
            && key.kind != KeyEventKind::Release
            && let Some(wish) = state.key(key)
        {
            if wish == Wish::Quit {
                return Ok(());
            }
            if let Err(TrySendError::Full(_)) = wishes.try_send(wish) {
                state.said = "the gateway is slow to answer".to_owned();
            }
        }
        while let Ok(news) = said.try_recv() {
            hear(&mut state, news);
        }
    }
    Ok(())
}

fn hear(state: &mut State, news: Said) {
    match news.picture {
        Ok(picture) => {
            // One of a group that was left meanwhile is not wanted any more.
            let group = picture.detail.as_ref().and_then(|detail| detail.group.get("group")).cloned();
            let stale = group.is_some_and(|group| group.as_str() != state.open.as_deref());
            state.show(if stale { Picture { detail: None, ..picture } } else { picture });
            state.said = news.done.unwrap_or_default();
        }
        Err(message) => state.said = message,
    }
}

/// Asks until nobody listens: at every interval, and at once after a wish.
fn asker(remote: &Remote, mut sort: Sort, interval: Duration, wished: &Receiver<Wish>, say: &SyncSender<Said>) {
    let mut open: Option<String> = None;
    loop {
        let mut done = None;
        match wished.recv_timeout(interval) {
            Ok(Wish::Sort(other)) => sort = other,
            Ok(Wish::Open(group)) => open = group,
            Ok(Wish::Pause(group, pause)) => done = Some(paused(remote, &group, pause)),
            Ok(Wish::Quit) | Err(RecvTimeoutError::Disconnected) => return,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let picture = fetch(remote, sort).and_then(|picture| {
            let detail = open.as_deref().map(|group| detail(remote, group)).transpose()?;
            Ok(Picture { detail, ..picture })
        });
        if say.send(Said { picture, done }).is_err() {
            return;
        }
    }
}

/// Pauses a group for an hour, or lets it go on; the answer is what to say.
fn paused(remote: &Remote, group: &str, pause: bool) -> String {
    let path = format!("/api/v1/group?name={}", encoded(group));
    let change = if pause { json!({ "paused": true, "expires": "1h" }) } else { json!({ "paused": false }) };
    match ask(remote, Method::PATCH, &path, Some(change)) {
        Ok(_) if pause => format!("{group} is paused for 1 h"),
        Ok(_) => format!("{group} goes on"),
        Err(error) => error,
    }
}

/// Turns true when this process is told to end (SIGTERM, SIGINT, SIGHUP), so that the terminal is given back before it does.
fn ends() -> std::io::Result<Arc<AtomicBool>> {
    let told = Arc::new(AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = {
        let _inside = runtime.enter();
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?)
    };
    let tells = Arc::clone(&told);
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = signals.0.recv() => {}, _ = signals.1.recv() => {}, _ = signals.2.recv() => {} }
        });
        tells.store(true, Ordering::Relaxed);
    });
    Ok(told)
}
