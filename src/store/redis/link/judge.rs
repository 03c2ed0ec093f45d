//! What follows from an error of Redis: who is asked next, and when.

use redis::{ErrorKind, RedisError, ServerError, ServerErrorKind};

use super::call::Unanswered;
use crate::store::redis::settings::Address;

/// What to do about a call that has no value yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing: it is refused.
    Refused(Unanswered),
    /// Tell the server the script, and ask it again at once.
    Load,
    /// Ask this server at once; the slot is there now.
    Moved(Address),
    /// Ask this server at once, this time: the slot is on its way there.
    Ask(Address),
    /// Ask again in a while; why, in words.
    Wait(String),
    /// The server is not who it was: find out anew who serves the slot, over a new connection; why, in words.
    Elsewhere(String),
    /// The same, after an attempt that ended before anybody said anything: a reason that was given earlier says more.
    Silent(String),
}

/// What an error reply to one call means.
pub(super) fn judge(error: &ServerError, from: &Address) -> Next {
    let said = || match error.details() {
        Some(details) => format!("{} {details}", error.code()),
        None => error.code().to_owned(),
    };
    match error.kind() {
        Some(ServerErrorKind::NoScript) => Next::Load,
        Some(ServerErrorKind::Moved) => redirect(error, from).map_or_else(|| Next::Elsewhere(said()), Next::Moved),
        Some(ServerErrorKind::Ask) => redirect(error, from).map_or_else(|| Next::Elsewhere(said()), Next::Ask),
        Some(ServerErrorKind::BusyLoading | ServerErrorKind::TryAgain) => Next::Wait(said()),
        Some(ServerErrorKind::ReadOnly | ServerErrorKind::ClusterDown | ServerErrorKind::MasterDown) => {
            Next::Elsewhere(said())
        }
        // BUSY: another one's script runs. NOREPLICAS, MISCONF: it takes no writes as long as its replicas or its disk are away.
        None if matches!(error.code(), "BUSY" | "NOREPLICAS" | "MISCONF") => Next::Wait(said()),
        _ => {
            let detail = error.details().unwrap_or_default();
            Next::Refused(Unanswered::Refused { code: error.code().into(), detail: detail.into() })
        }
    }
}

/// The server that `MOVED 3999 host:port` names; a server that does not know its own name leaves the host out.
fn redirect(error: &ServerError, from: &Address) -> Option<Address> {
    let (host, port) = error.details()?.split_ascii_whitespace().nth(1)?.rsplit_once(':')?;
    let port = port.parse().ok()?;
    match (host, from) {
        ("", Address::Tcp(own, _)) => Some(Address::Tcp(own.clone(), port)),
        ("", Address::Unix(_)) => None,
        (host, _) => Some(Address::tcp(host, port)),
    }
}

/// What went wrong with a connection, for people.
pub(super) fn words(error: &RedisError) -> String {
    match error.kind() {
        ErrorKind::AuthenticationFailed => {
            let detail = error.detail().unwrap_or("no reason given");
            format!("user or password is wrong ({detail})")
        }
        _ if error.is_connection_refusal() => "nothing listens there (connection refused)".to_owned(),
        _ if error.is_connection_dropped() => "the connection was lost".to_owned(),
        _ => error.to_string(),
    }
}

/// What reasons say that are about settings, here or there. All others may pass by themselves.
const SETTINGS: [&str; 14] = [
    "user or password is wrong",
    "WRONGPASS",
    "NOAUTH",
    "NOPERM",
    "asks for a user and a password",
    "the password is not text",
    "a Sentinel answers here",
    "no Sentinel knows a master",
    "cluster support disabled",
    "(ACL +info)",
    "append-only file",
    "appendfsync",
    "cannot be read",
    "ertificate",
];

/// Whether a reason why nothing can be done with a server, in words for people, is one that stays until a person changes something.
pub(in crate::store::redis) fn needs_a_person(why: &str) -> bool {
    SETTINGS.iter().any(|setting| why.contains(setting))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the crate reads it.
    fn reply(line: &str) -> ServerError {
        let value = redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap();
        let redis::Value::ServerError(error) = value else { panic!("{line} is no error") };
        error
    }

    #[test]
    fn each_error_has_its_consequence() {
        let here = Address::tcp("10.0.0.1", 7000);
        let next = |line: &str| judge(&reply(line), &here);
        assert_eq!(next("NOSCRIPT No matching script."), Next::Load);
        assert_eq!(next("MOVED 3999 10.0.0.2:7001"), Next::Moved(Address::tcp("10.0.0.2", 7001)));
        assert_eq!(next("MOVED 3999 :7001"), Next::Moved(Address::tcp("10.0.0.1", 7001)));
        assert_eq!(next("ASK 3999 ::1:7001"), Next::Ask(Address::tcp("::1", 7001)));
        for line in ["LOADING Redis is loading", "TRYAGAIN Multiple keys", "BUSY Redis is busy", "MISCONF disk"] {
            assert!(
                matches!(next(line), Next::Wait(why) if why.starts_with(line.split(' ').next().unwrap())),
                "{line}"
            );
        }
        for line in
            ["READONLY You can't write", "CLUSTERDOWN Hash slot not served", "MASTERDOWN Link with MASTER is down"]
        {
            assert!(matches!(next(line), Next::Elsewhere(_)), "{line}");
        }
        for line in ["FENCED 7", "OOM command not allowed", "NOPERM no", "ERR wrong", "CROSSSLOT Keys"] {
            assert!(matches!(next(line), Next::Refused(_)), "{line}");
        }
        let Next::Refused(refused) = next("OOM command not allowed") else { panic!("not refused") };
        assert!(matches!(refused.into_error(), crate::store::Error::Full(_)));
    }
}
