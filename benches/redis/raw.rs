//! The measure beside the gateway: events of the same size put into a stream and taken out again, as few commands as there can be.

use std::time::Duration;

use fairlane::clock::{Clock as _, SystemClock};
use redis::{Connection, Pipeline};

use crate::redis_server::Redis;
use crate::report::Row;

/// Commands of one pipeline.
const PIPELINE: usize = 64;

/// Pipelined XADD and then XDEL of what was added, for `span`, with `bytes` each.
pub(crate) fn measure(redis: &Redis, bytes: usize, span: Duration) -> anyhow::Result<Row> {
    let mut connection = redis.connect()?;
    let body = vec![b'n'; bytes];
    round(&mut connection, &body)?;
    let (work, began, mut events) = (redis.work()?, SystemClock.now().mono, 0);
    while SystemClock.now().mono.since(began) < span {
        events += round(&mut connection, &body)?;
    }
    let took = SystemClock.now().mono.since(began);
    let work = redis.work()?.since(&work);
    Ok(Row {
        name: "XADD + XDEL, 64 a pipeline".to_owned(),
        events,
        took,
        redis: work.cpu,
        nodes: None,
        sent: work.of("xadd") + work.of("xdel"),
        within: work.of("xadd") + work.of("xdel"),
    })
}

fn round(connection: &mut Connection, body: &[u8]) -> anyhow::Result<u64> {
    let mut add = Pipeline::new();
    for _ in 0..PIPELINE {
        add.cmd("XADD").arg("raw").arg("*").arg("body").arg(body);
    }
    let ids: Vec<String> = add.query(connection)?;
    let mut delete = Pipeline::new();
    for id in &ids {
        delete.cmd("XDEL").arg("raw").arg(id).ignore();
    }
    delete.query::<()>(connection)?;
    Ok(ids.len() as u64)
}
