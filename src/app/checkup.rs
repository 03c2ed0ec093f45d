//! `fairlane doctor`: whether this machine gives a gateway of this configuration what it needs. Looks, and changes nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{descriptors, place};
use crate::clock::{Clock as _, SystemClock};
use crate::config::{Config, Store};
use crate::driver::{self, FilePolicies};
use crate::engine::Settings;
pub use crate::store::doctor::{Finding, Standing};
use crate::store::notebook::Notebook;
use crate::store::{Durability, redis};

/// 2025-01-01: this program is younger, so a clock that says less is wrong.
const BORN_S: i64 = 1_735_689_600;

/// 2100-01-01: nobody runs this version then.
const FAR_S: i64 = 4_102_444_800;

/// Looks at everything.
#[must_use]
pub fn checkup(config: &Config) -> Vec<Finding> {
    let data = config.store.folder();
    let there = existing(data);
    let mut findings = vec![
        files(config),
        folder(data, &there, config.store.folder_field()),
        file_system(config, &there),
        disk(config, &there),
        clock(config),
    ];
    findings.extend(config.upstream.addresses.iter().map(|address| upstream(&address.url)));
    findings.extend(damaged_notebooks(data).into_iter().map(|what| finding("notebooks", Standing::Bad, what)));
    if let Store::Redis(settings) = &config.store {
        findings.extend(redis(settings));
    }
    findings
}

/// What in a data folder a start depends on besides the store and cannot read, each in words.
#[must_use]
pub fn damaged_notebooks(folder: &Path) -> Vec<String> {
    let notebook = Notebook::at(folder.join(super::OVERRIDES));
    driver::unreadable(Settings::default(), FilePolicies::default(), &notebook)
}

fn redis(settings: &redis::Settings) -> Vec<Finding> {
    let looked = tokio::runtime::Builder::new_current_thread().enable_all().build().map(|runtime| {
        runtime.block_on(async {
            let link = redis::link::Link::new(settings.server.clone(), settings.ack, Arc::new(SystemClock));
            redis::checkup(&link, settings, &SystemClock).await
        })
    });
    looked.unwrap_or_else(|error| {
        vec![finding("redis", Standing::Bad, format!("{} cannot be looked at: {error}", settings.server))]
    })
}

fn finding(what: &'static str, standing: Standing, text: impl Into<String>) -> Finding {
    Finding { what, standing, text: text.into() }
}

fn files(config: &Config) -> Finding {
    let most = descriptors::most();
    if let Err(error) = descriptors::suffice(most) {
        return finding("files", Standing::Bad, error.to_string());
    }
    let asked = config.listen.limits.connections;
    match descriptors::fit(&mut config.clone(), most) {
        Some(lowered) => finding("files", Standing::Bad, lowered),
        None => {
            let most = most.map_or_else(|| "any number of".to_owned(), |most| most.to_string());
            finding(
                "files",
                Standing::Good,
                format!("{most} files may be open, enough for {asked} connections (listen.limits.connections)"),
            )
        }
    }
}

/// Only a connection is tried, as `fairlane run` does at its start.
fn upstream(url: &http::Uri) -> Finding {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return finding("upstream", Standing::Bad, format!("{url} cannot be tried: {error}")),
    };
    match runtime.block_on(place::why_down(url)) {
        None => finding("upstream", Standing::Good, format!("{url} takes connections; no request was made")),
        Some(why) => finding(
            "upstream",
            Standing::Note,
            format!("{url} does not answer ({why}): events are accepted and wait until it does; upstream.url names it"),
        ),
    }
}

/// The folder itself, or the nearest one above that is there.
fn existing(folder: &Path) -> PathBuf {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    absolute.ancestors().find(|path| path.exists()).unwrap_or_else(|| Path::new("/")).to_owned()
}

fn folder(data: &Path, there: &Path, field: &str) -> Finding {
    let name = data.display();
    let remedy = format!("name a folder with {field} or --data");
    if !there.is_dir() {
        return finding("data", Standing::Bad, format!("{} is not a folder: {remedy}", there.display()));
    }
    let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
    match rustix::fs::access(there, access) {
        Ok(()) if data.exists() => finding("data", Standing::Good, format!("{name} can be written")),
        Ok(()) => finding("data", Standing::Good, format!("{name} will be made at the first start")),
        Err(error) => {
            let user = rustix::process::geteuid().as_raw();
            finding(
                "data",
                Standing::Bad,
                format!("{} cannot be written by this user (uid {user}): {error}; {remedy}", there.display()),
            )
        }
    }
}

/// File systems by the magic numbers of statfs(2), and what each means for events.
fn file_system(config: &Config, there: &Path) -> Finding {
    let kind = match rustix::fs::statfs(there) {
        Ok(found) => u64::try_from(found.f_type).unwrap_or_default(),
        Err(error) => return finding("filesystem", Standing::Bad, format!("{}: {error}", there.display())),
    };
    let place = there.display();
    match kind {
        0x0102_1994 | 0x8584_58f6 => finding(
            "filesystem",
            Standing::Bad,
            format!(
                "{place} is in memory (tmpfs): its events are gone with the next restart of the machine; choose a disk"
            ),
        ),
        0x6969 | 0xff53_4d42 | 0xfe53_4d42 | 0x517b => finding(
            "filesystem",
            Standing::Note,
            format!(
                "{place} is on a network (NFS or SMB): every acknowledgement waits for it, and whether it syncs is its own matter"
            ),
        ),
        0x794c_7630 => finding(
            "filesystem",
            Standing::Note,
            format!("{place} is a container's own layer (overlayfs): it goes with the container; mount a volume there"),
        ),
        _ if matches!(&config.store, Store::Embedded(settings) if settings.durability == Durability::Os) => {
            finding("filesystem", Standing::Note, "durability is `os`: a power cut loses what was acknowledged last")
        }
        _ => finding("filesystem", Standing::Good, format!("{place} is on a local disk")),
    }
}

fn disk(config: &Config, there: &Path) -> Finding {
    let free = match rustix::fs::statvfs(there) {
        Ok(found) => found.f_bavail.saturating_mul(found.f_frsize),
        Err(error) => return finding("disk", Standing::Bad, format!("{}: {error}", there.display())),
    };
    match &config.store {
        Store::Embedded(settings) => disk_of_store(free, settings.min_free),
        Store::Redis(settings) if settings.spool => {
            let text = format!("{} free for events that come while Redis is away (store.redis.spool)", mebibytes(free));
            finding("disk", if free < SPOOL_ROOM { Standing::Note } else { Standing::Good }, text)
        }
        Store::Redis(_) => {
            let text = "no event is ever kept here (store.redis.spool: null): while Redis is away they get 503";
            finding("disk", Standing::Good, text)
        }
    }
}

/// Free space in which a spool outlasts more than a short absence, bytes.
const SPOOL_ROOM: u64 = 4 << 30;

fn disk_of_store(free: u64, least: u64) -> Finding {
    let (shown, least_shown) = (mebibytes(free), mebibytes(least));
    let twice = least.saturating_mul(2);
    if free < least {
        let text = format!(
            "{shown} free, below min_free ({least_shown}): new events get 503; free some, or lower store.embedded.min_free"
        );
        finding("disk", Standing::Bad, text)
    } else if free < twice {
        let text = format!("{shown} free, below twice min_free ({least_shown}): delivered history goes early");
        finding("disk", Standing::Note, text)
    } else {
        finding(
            "disk",
            Standing::Good,
            format!("{shown} free; new events are refused below {least_shown} (store.embedded.min_free)"),
        )
    }
}

fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// A clock that is off refuses genuine requests; how far it may be off depends on who sends.
fn clock(config: &Config) -> Finding {
    let now = SystemClock.now().wall.unix_s();
    let shown = jiff::Timestamp::from_second(now).map_or_else(|_| now.to_string(), |time| time.to_string());
    if !(BORN_S..FAR_S).contains(&now) {
        let text = format!(
            "it says {shown}, which cannot be: signatures with a time are refused; set it (timedatectl set-ntp true)"
        );
        return finding("clock", Standing::Bad, text);
    }
    let senders = config.sources.iter().flat_map(|source| source.senders.iter().map(move |sender| (source, sender)));
    let timed = senders.filter_map(|(source, sender)| {
        let window = sender.verifier.scheme().time()?.window?;
        Some((window.old, source.name.clone()))
    });
    let text = match timed.min() {
        Some((window, source)) => {
            format!("it says {shown}; {source} refuses what is more than {} s off", window.as_secs())
        }
        None => format!("it says {shown}"),
    };
    finding("clock", Standing::Good, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(yaml: &str) -> Config {
        let no_file = |_: &Path| Err(std::io::ErrorKind::NotFound.into());
        let text =
            format!("upstream: http://127.0.0.1:9\nsources: [{{ path: /a, verify: {{ provider: none }} }}]\n{yaml}");
        crate::config::load(&text, "f", &|_| None, &no_file).unwrap()
    }

    fn standing(config: &Config, what: &str) -> Standing {
        checkup(config).into_iter().find(|finding| finding.what == what).unwrap().standing
    }

    #[test]
    fn what_is_missing_is_bad_and_what_is_there_is_good() {
        let dir = tempfile::tempdir().unwrap();
        let kept = |min_free: &str| {
            let data = dir.path().join("data");
            config(&format!(
                "listen: {{ limits: {{ connections: 10 }} }}\nstore: {{ embedded: {{ path: {}, min_free: {min_free} }} }}",
                data.display()
            ))
        };
        let good = kept("0B");
        assert_eq!((standing(&good, "files"), standing(&good, "data")), (Standing::Good, Standing::Good));
        assert_eq!((standing(&good, "disk"), standing(&good, "clock")), (Standing::Good, Standing::Good));
        assert!(!good.store.folder().exists(), "it only looks");

        let bad = kept("1000TiB");
        std::fs::write(bad.store.folder(), "").unwrap();
        assert_eq!((standing(&bad, "disk"), standing(&bad, "data")), (Standing::Bad, Standing::Bad));
    }

    #[test]
    fn a_notebook_that_a_start_would_refuse_is_named() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(damaged_notebooks(dir.path()), Vec::<String>::new());
        for name in ["overrides", "upstream", "sources", "replays", "jobs", "dedicated"] {
            std::fs::write(dir.path().join(format!("{name}.json")), "").unwrap();
        }
        let damaged = damaged_notebooks(dir.path());
        assert!(damaged.len() == 6 && damaged.iter().all(|what| what.contains(".json is empty")), "{damaged:?}");
    }
}
