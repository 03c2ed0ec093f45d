//! A tenant's link: the group and until when, signed. Nothing is stored for it.
//!
//! The token is base64url (RFC 4648 §5, no padding) of: one byte, the form's version; eight, until when (seconds since 1970, big-endian);
//! thirty-two, HMAC-SHA256 over [`PURPOSE`], version, end and group; the rest, the group's written form. Whoever holds it can read the group's
//! name in it, and nothing else.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::event::{Group, Secret, Wall};

/// Tokens of another purpose that are signed with the same secret are none of these.
const PURPOSE: &[u8] = b"fairlane tenant page\0";

/// The form described above.
const VERSION: u8 = 1;

/// Bytes before the group.
const HEAD: usize = 1 + 8 + MAC;
const MAC: usize = 32;

/// No token of ours is longer: a group's written form has at most 769 bytes.
const TOKEN_MAX: usize = 1_100;

/// A token for `group`, good until `until` (whole seconds).
pub(super) fn token(secret: &Secret, group: &Group, until: Wall) -> String {
    let until = until.unix_s().to_be_bytes();
    let mac = mac(secret, VERSION, until, group.as_str().as_bytes()).finalize().into_bytes();
    let mut bytes = Vec::with_capacity(HEAD + group.as_str().len());
    bytes.push(VERSION);
    bytes.extend_from_slice(&until);
    bytes.extend_from_slice(&mac);
    bytes.extend_from_slice(group.as_str().as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The group that `token` is good for at `now`, and for how long yet; `None` for whatever is wrong with it. Each of `secrets` may have signed it.
pub(super) fn opened(secrets: &[Secret], token: &str, now: Wall) -> Option<(Group, Duration)> {
    if token.len() > TOKEN_MAX {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(token).ok()?;
    let (head, name) = bytes.split_at_checked(HEAD)?;
    let (version, rest) = head.split_first()?;
    let (until, given) = rest.split_first_chunk::<8>()?;
    // All are tried, and each is compared whole: the time tells nothing about how near a guess was.
    let good = secrets
        .iter()
        .fold(false, |good, secret| mac(secret, *version, *until, name).verify_slice(given).is_ok() | good);
    let ends = Wall::from_unix_s(i64::from_be_bytes(*until));
    if !good || *version != VERSION || ends <= now {
        return None;
    }
    Some((Group::from_written(std::str::from_utf8(name).ok()?)?, ends.since(now)))
}

fn mac(secret: &Secret, version: u8, until: [u8; 8], name: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose()).expect("HMAC takes keys of any length (RFC 2104 §3)");
    for part in [PURPOSE, &[version], &until, name] {
        mac.update(part);
    }
    mac
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_opens_its_group_until_it_ends_and_with_either_secret() {
        let [new, old, other] = ["new", "old", "other"].map(Secret::new);
        let (group, now) = (Group::of(&["café", "a"]), Wall::from_unix_s(1_000));
        let link = token(&old, &group, Wall::from_unix_s(1_060));
        let (rotating, after, before) = ([new.clone(), old.clone()], [new, other], [old]);
        assert_eq!(opened(&rotating, &link, now), Some((group, Duration::from_secs(60))));
        assert_eq!(opened(&after, &link, now), None);
        assert_eq!(opened(&before, &link, Wall::from_unix_s(1_060)), None, "it has ended");
        assert_eq!(opened(&[], &link, now), None);
        for wrong in ["", "A", "!", &link[1..], &format!("{link}A"), &"A".repeat(2_000)] {
            assert_eq!(opened(&before, wrong, now), None, "{wrong}");
        }
    }

    #[test]
    fn no_bit_of_a_link_can_be_changed() {
        let (secrets, now) = ([Secret::new("secret")], Wall::from_unix_s(1_000));
        let link = token(&secrets[0], &Group::of(&["shop"]), Wall::from_unix_s(2_000));
        let bytes = URL_SAFE_NO_PAD.decode(&link).unwrap();
        for at in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert_eq!(opened(&secrets, &URL_SAFE_NO_PAD.encode(changed), now), None, "bit {at}");
        }
    }
}
