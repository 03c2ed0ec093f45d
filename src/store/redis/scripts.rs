//! The scripts, each small and on the keys of one shard. `shared.lua` stands before each of them.

use std::sync::LazyLock;

use super::link::Script;

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new(concat!(include_str!("lua/shared.lua"), include_str!($file))));
    };
}

script!(APPEND, "lua/append.lua");
script!(SETTLE, "lua/settle.lua");
script!(REQUEUE, "lua/requeue.lua");
script!(OWN, "lua/own.lua");
script!(TAKE, "lua/take.lua");
script!(MOVE, "lua/move.lua");
script!(ARRIVE, "lua/arrive.lua");
script!(LANES, "lua/lanes.lua");
script!(QUEUES, "lua/queues.lua");
script!(EVENTS, "lua/events.lua");
script!(SCAN, "lua/scan.lua");
script!(MOMENT, "lua/moment.lua");
script!(SUMS, "lua/sums.lua");
script!(FORGET, "lua/forget.lua");
