//! How many files and sockets this process may open, and what that leaves for senders.
//!
//! Where connections take the last one, the store cannot open its next segment, and that is the end of the process: strangers
//! must not get so far.

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::config::Config;

/// Kept for the store's segments and tables, admin calls, the log and what opens for a moment.
const OURS: usize = 512;

/// Asks the system for as many as it allows, as programs do that do not use `select`. The answer is how many there may be; `None`
/// for any number.
pub(super) fn raise() -> Option<usize> {
    let mut limits = getrlimit(Resource::Nofile);
    let soft = limits.current;
    limits.current = limits.maximum;
    let raised = if setrlimit(Resource::Nofile, limits).is_ok() { limits.maximum } else { soft };
    raised.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// Fewer than this, and the store, the sockets and the log have no room: it would fail in the middle of a start, or of an event.
const LEAST: usize = 64;

/// Whether there are enough at all.
///
/// # Errors
/// There are not, and what to do.
pub(super) fn suffice(allowed: Option<usize>) -> anyhow::Result<()> {
    match allowed {
        Some(allowed) if allowed < LEAST => anyhow::bail!(
            "this process may open only {allowed} files, and needs at least {LEAST}: allow it more (LimitNOFILE= in systemd, ulimit -n, \
             --ulimit nofile= in docker)"
        ),
        _ => Ok(()),
    }
}

/// How many there may be, without asking for more; `None` for any number.
pub(super) fn most() -> Option<usize> {
    getrlimit(Resource::Nofile).maximum.map(|files| usize::try_from(files).unwrap_or(usize::MAX))
}

/// Lowers `listen.limits.connections` to what the system allows; the answer says so where it had to.
pub(super) fn fit(config: &mut Config, allowed: Option<usize>) -> Option<String> {
    let allowed = allowed?;
    let slots = usize::try_from(config.upstream.concurrency).unwrap_or(usize::MAX);
    // With a very small limit half is ours, whatever it is enough for.
    let room = allowed - OURS.saturating_add(slots).min(allowed / 2);
    let asked = config.listen.limits.connections;
    if asked <= room {
        return None;
    }
    config.listen.limits.connections = room;
    Some(format!(
        "listen.limits.connections is {asked}, but this process may open only {allowed} files: {room} connections are taken; allow it more \
         (LimitNOFILE= in systemd, ulimit -n, --ulimit nofile= in docker)"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_the_store_its_files() {
        let text = "upstream: http://127.0.0.1:9\nsources: [{ path: /a, verify: { provider: none } }]\n";
        let no_file = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        let config = || crate::config::load(text, "f", &|_| None, &no_file).unwrap();
        for (allowed, left) in
            [(None, 10_000), (Some(20_000), 10_000), (Some(4096), 3520), (Some(1024), 512), (Some(64), 32)]
        {
            let mut config = config();
            let said = fit(&mut config, allowed);
            assert_eq!(config.listen.limits.connections, left, "{allowed:?}");
            assert_eq!(said.is_some(), left < 10_000, "{said:?}");
        }
    }
}
