//! Who serves which slot, and how one finds out: there is one server, Sentinels name the master, or a cluster shows its slots.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;
use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use super::dial;
use super::judge::words;
use crate::store::redis::settings::{Address, Server, User};

/// How long one of those who are asked may take before the next one is: a cluster, or Sentinels, have several.
const ASK: Duration = Duration::from_millis(700);
/// The last slot of a cluster.
const LAST: u16 = 16_383;

/// Who serves which slot: the last slot of each range, and its server. Empty as long as nobody has said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Map(BTreeMap<u16, Option<Address>>);

impl Map {
    /// One server for everything.
    pub(super) fn of_one(address: Address) -> Self {
        Self(BTreeMap::from([(LAST, Some(address))]))
    }

    /// The server of a slot.
    pub(super) fn server(&self, slot: u16) -> Option<&Address> {
        self.0.range(slot..).next().and_then(|(_, server)| server.as_ref())
    }

    /// A slot is another one's now.
    pub(super) fn moved(&mut self, slot: u16, to: Address) {
        let before = self.server(slot).cloned();
        if let Some(below) = slot.checked_sub(1) {
            self.0.entry(below).or_insert(before);
        }
        self.0.insert(slot, Some(to));
    }

    /// Every server, once.
    pub(super) fn servers(&self) -> Vec<Address> {
        let mut servers: Vec<Address> = self.0.values().flatten().cloned().collect();
        servers.sort();
        servers.dedup();
        servers
    }

    /// Slots that nobody serves.
    pub(in crate::store::redis) fn uncovered(&self) -> u16 {
        let mut from = 0_u16;
        let mut missing = 0_u16;
        for (&last, server) in &self.0 {
            if server.is_none() {
                missing += last.saturating_sub(from) + 1;
            }
            from = last.saturating_add(1);
        }
        missing + (LAST + 1).saturating_sub(from)
    }
}

/// One who is asked, over a connection that is kept.
pub(super) struct Witness {
    address: Address,
    connection: Option<MultiplexedConnection>,
}

impl Witness {
    pub(super) fn new(address: Address) -> Self {
        Self { address, connection: None }
    }

    /// Its answer to a question; an error in words.
    async fn ask(&mut self, server: &Server, user: &User, db: u16, question: &Cmd) -> Result<Value, String> {
        let asked = tokio::time::timeout(ASK, async {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => dial::connect(server, &self.address, user, db).await?,
            };
            let answer = connection.send_packed_command(question).await.map_err(|error| words(&error))?;
            self.connection = Some(connection);
            Ok(answer)
        });
        let answer = asked.await.unwrap_or_else(|_elapsed| Err(format!("no answer within {} ms", ASK.as_millis())));
        match answer {
            Ok(Value::ServerError(error)) => Err(format!("{}: {error}", self.address)),
            Ok(value) => Ok(value),
            Err(error) => Err(format!("{}: {error}", self.address)),
        }
    }
}

/// Asks all Sentinels at once which server is the master, and believes most of them: one that is cut off still names the old one.
pub(super) async fn master(
    server: &Server,
    witnesses: &mut [Witness],
    name: &str,
    user: &User,
) -> Result<Address, String> {
    let mut question = redis::cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let answers = join_all(witnesses.iter_mut().map(|witness| witness.ask(server, user, 0, &question))).await;
    let mut votes: Vec<(Address, usize)> = Vec::new();
    let mut errors = Vec::new();
    for answer in answers {
        let named = answer.and_then(|value| {
            let named = redis::from_redis_value::<Option<(String, u16)>>(value).map_err(|error| error.to_string())?;
            named.ok_or_else(|| format!("no Sentinel knows a master {name:?} (store.redis.sentinel.master)"))
        });
        match named {
            Ok((host, port)) => {
                let named = Address::tcp(&host, port);
                match votes.iter_mut().find(|(address, _)| *address == named) {
                    Some((_, votes)) => *votes += 1,
                    None => votes.push((named, 1)),
                }
            }
            Err(error) => errors.push(error),
        }
    }
    // Of equal ones the first, as with one alone.
    let most = votes.into_iter().rev().max_by_key(|(_, votes)| *votes);
    most.map(|(address, _)| address).ok_or_else(|| format!("no Sentinel names the master: {}", errors.join("; ")))
}

/// Asks nodes of a cluster, one after another, who serves which slot. They are turned by one each time, so that one that is cut off and
/// does not know it is not believed twice running.
pub(super) async fn slots(server: &Server, witnesses: &mut Vec<Witness>) -> Result<Map, String> {
    let mut question = redis::cmd("CLUSTER");
    question.arg("SLOTS");
    let mut errors = Vec::new();
    for _ in 0..witnesses.len() {
        let Some(witness) = witnesses.first_mut() else { break };
        let answer = witness.ask(server, &server.user, 0, &question).await;
        let read = answer.and_then(|value| read_slots(value, &witness.address));
        witnesses.rotate_left(1);
        match read {
            Ok(map) => {
                for address in map.servers() {
                    if !witnesses.iter().any(|witness| witness.address == address) {
                        witnesses.push(Witness::new(address));
                    }
                }
                return Ok(map);
            }
            Err(error) => errors.push(error),
        }
    }
    Err(format!("no node shows the cluster's slots: {}", errors.join("; ")))
}

/// `CLUSTER SLOTS`: first and last slot of a range, then its nodes, the master first, each with host, port and more. A node that does not know
/// its own name leaves the host out.
fn read_slots(value: Value, from: &Address) -> Result<Map, String> {
    let unreadable = || format!("{from}: the answer to CLUSTER SLOTS cannot be read");
    let Value::Array(ranges) = value else { return Err(unreadable()) };
    let mut read = BTreeMap::new();
    for range in ranges {
        let Value::Array(parts) = range else { return Err(unreadable()) };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else {
            return Err(unreadable());
        };
        let [host, Value::Int(port), ..] = master.as_slice() else { return Err(unreadable()) };
        let host = redis::from_redis_value_ref::<Option<String>>(host).ok().flatten().unwrap_or_default();
        let number = |n: i64| u16::try_from(n).ok().filter(|&slot| slot <= LAST).ok_or_else(unreadable);
        let port = u16::try_from(*port).map_err(|_| unreadable())?;
        let address = match (host.as_str(), from) {
            ("" | "?", Address::Tcp(own, _)) => Address::Tcp(own.clone(), port),
            (host, _) => Address::tcp(host, port),
        };
        read.insert(number(*first)?, (number(*last)?, address));
    }
    if read.is_empty() {
        return Err(format!("{from}: no slot is assigned; is it a cluster, and was it created?"));
    }
    let mut map = BTreeMap::new();
    let mut next = 0_u16;
    for (first, (last, address)) in read {
        if first > next {
            map.insert(first - 1, None);
        }
        map.insert(last, Some(address));
        next = last.saturating_add(1);
    }
    Ok(Map(map))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(port: u16) -> Address {
        Address::tcp("10.0.0.1", port)
    }

    fn range(first: i64, last: i64, host: &str, port: u16) -> Value {
        let node =
            Value::Array(vec![Value::BulkString(host.into()), Value::Int(port.into()), Value::BulkString("id".into())]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node.clone(), node])
    }

    #[test]
    fn a_map_knows_the_server_of_each_slot() {
        let answer = Value::Array(vec![range(5461, 10_922, "", 7001), range(0, 5460, "10.0.0.9", 7000)]);
        let mut map = read_slots(answer, &at(1)).unwrap();
        let of = |map: &Map, slot| map.server(slot).map(ToString::to_string);
        assert_eq!(of(&map, 0).as_deref(), Some("10.0.0.9:7000"));
        assert_eq!(of(&map, 5460).as_deref(), Some("10.0.0.9:7000"));
        assert_eq!(of(&map, 5461).as_deref(), Some("10.0.0.1:7001"));
        assert_eq!(of(&map, 10_923), None);
        assert_eq!(map.uncovered(), 16_384 - 10_923);
        map.moved(100, at(7009));
        assert_eq!(
            [99, 100, 101].map(|slot| of(&map, slot).unwrap()),
            ["10.0.0.9:7000", "10.0.0.1:7009", "10.0.0.9:7000"]
        );
        map.moved(0, at(7009));
        assert_eq!([0, 1].map(|slot| of(&map, slot).unwrap()), ["10.0.0.1:7009", "10.0.0.9:7000"]);
        map.moved(16_383, at(7009));
        assert_eq!(of(&map, 16_382), None);
        assert_eq!(map.servers().len(), 3);
    }

    #[test]
    fn gaps_are_counted_and_one_server_has_none() {
        let answer = Value::Array(vec![range(1, 9, "a", 1), range(20, 16_383, "a", 1)]);
        assert_eq!(read_slots(answer, &at(1)).unwrap().uncovered(), 11);
        assert_eq!(Map::of_one(at(1)).uncovered(), 0);
        assert_eq!(Map::default().uncovered(), 16_384);
        assert!(read_slots(Value::Array(Vec::new()), &at(1)).unwrap_err().contains("was it created?"));
    }
}
