//! `fairlane demo` as a newcomer runs it: what it prints, what it leaves, and that it leaves nothing else, however it ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::indexing_slicing, reason = "likewise")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

/// One demo at a time: each loads the machine as well as it can.
static ONE: Mutex<()> = Mutex::new(());

/// A demo to be, in a folder of its own, with its own place for temporary files.
struct Demo {
    _alone: MutexGuard<'static, ()>,
    folder: TempDir,
    command: Command,
}

fn demo(arguments: &[&str]) -> Demo {
    through(&[], arguments)
}

/// Started through another program.
fn through(wrapper: &[&str], arguments: &[&str]) -> Demo {
    let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("tmp")).unwrap();
    let words = [wrapper, &[env!("CARGO_BIN_EXE_fairlane"), "demo"], arguments].concat();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder.path()).env("TMPDIR", folder.path().join("tmp"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Demo { _alone: alone, folder, command }
}

impl Demo {
    fn run(&mut self) -> Output {
        self.command.output().unwrap()
    }

    fn temporary(&self) -> std::path::PathBuf {
        self.folder.path().join("tmp")
    }

    fn assert_nothing_is_left(&self) {
        let left: Vec<_> = std::fs::read_dir(self.temporary()).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
        let pictures = self.folder.path().join("fairlane-demo");
        assert!(!pictures.exists() || pictures.read_dir().unwrap().count() == 2);
        assert_eq!(gateways(&self.temporary()), [0; 0]);
    }

    /// Starts it, waits until its gateway runs, and gives that one's process id.
    fn start(&mut self) -> (Child, u32) {
        let mut child = self.command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Said when the gateway has begun to listen.
        while !lines.next().expect("it ended early").unwrap().starts_with("1. ") {}
        // Nobody reads on; it must not mind.
        let gateways = gateways(&self.temporary());
        assert_eq!(gateways.len(), 1);
        (child, gateways[0])
    }
}

/// The processes of gateways whose files lie in `folder`.
fn gateways(folder: &Path) -> Vec<u32> {
    let ids = std::fs::read_dir("/proc").unwrap().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let ours = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("\0run\0") && line.contains(folder.to_str().unwrap())
    };
    ids.filter(ours).collect()
}

fn send(signal: &str, process: u32) {
    assert!(Command::new("kill").args([signal, &process.to_string()]).status().unwrap().success());
}

/// The rest of a demo that was started: its exit code and what it complained of.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn it_shows_each_store_draws_both_pictures_and_leaves_nothing_else() {
    let mut demo = demo(&["--flood", "500", "--seconds", "1", "--compare"]);
    let output = demo.run();
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    demo.assert_nothing_is_left();
    assert!(!said.contains('\x1b') && !said.contains('\r'), "{said}");
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    for store in ["fern", "harbour", "juniper", "lantern", "mallow", "orchard", "pebble", "quill", "tidewater"] {
        // Name, events, and p50 and p99 with their units in three phases.
        let row = said.lines().find(|line| line.starts_with(store)).unwrap();
        assert_eq!(row.split_whitespace().count(), 2 + 3 * 2 * 2, "{row}");
    }
    assert!(said.lines().any(|line| line.starts_with("megamart      500      -      -")), "{said}");
    assert!(said.contains("none lost, none twice."), "{said}");
    assert!(said.contains("2. Start it: "), "{said}");

    let out = demo.folder.path().join("fairlane-demo");
    let svg = std::fs::read_to_string(out.join("wait.svg")).unwrap();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert!(svg.contains("One store posts 500 orders at once"), "{svg}");
    // 250 of each flood's 500, and every order of the quiet stores.
    assert!(svg.matches("<circle").count() > 500, "{svg}");
    let mut png =
        png::Decoder::new(std::io::Cursor::new(std::fs::read(out.join("wait.png")).unwrap())).read_info().unwrap();
    let mut pixels = vec![0; png.output_buffer_size().unwrap()];
    let frame = png.next_frame(&mut pixels).unwrap();
    assert!(frame.width > 1_000 && frame.height > 400);
    assert!(pixels.chunks_exact(3).any(|pixel| pixel[2] > pixel[0].saturating_add(100)), "nothing blue in it");
}

#[test]
fn its_figures_as_json_add_up() {
    let mut demo = demo(&["--flood", "300", "--seconds", "1", "--json", "--out", "here", "--seed", "7"]);
    let output = demo.run();
    assert!(output.status.success(), "{}", text(&output.stderr));
    demo.assert_nothing_is_left();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&json["ok"], &json["run"]["flood"], &json["run"]["seed"]), (&true.into(), &300.into(), &7.into()));
    let phases = json["phases"].as_array().unwrap();
    assert_eq!(
        phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect::<Vec<_>>(),
        ["without_flood", "with_flood"]
    );
    for phase in phases {
        assert_eq!(phase["accepted"], phase["delivered"], "{phase:#}");
        assert_eq!((&phase["lost"], &phase["duplicates"], &phase["renamed"]), (&0.into(), &0.into(), &0.into()));
        let stores = phase["stores"].as_array().unwrap();
        let sum: u64 = stores.iter().map(|store| store["events"].as_u64().unwrap()).sum();
        assert_eq!(phase["accepted"], sum);
        for store in stores {
            // An order is five webhooks, and each store sells within the second.
            let events = store["events"].as_u64().unwrap();
            assert!(store["floods"] == true || (events > 0 && events.is_multiple_of(5)), "{store:#}");
            let wait = |name: &str| store["wait_ms"][name].as_f64().unwrap();
            assert!(0.0 < wait("p50") && wait("p50") <= wait("p99") && wait("p99") <= wait("max"), "{store:#}");
        }
    }
    assert_eq!(phases[1]["stores"][9]["events"], 300);
    for file in json["files"].as_array().unwrap() {
        assert!(demo.folder.path().join(file.as_str().unwrap()).metadata().unwrap().len() > 1_000);
    }
    // What is told meanwhile goes elsewhere.
    assert!(text(&output.stderr).contains("none lost, none twice."));
    assert!(text(&output.stderr).contains("DEMO_ARGS=--compare"));
}

#[test]
fn a_signal_ends_it_and_everything_it_started() {
    for signal in ["-INT", "-TERM", "-HUP"] {
        let mut demo = demo(&["--seconds", "300"]);
        let (child, _) = demo.start();
        send(signal, child.id());
        let (code, said) = ended(child);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("nothing is left behind"), "{said}");
        demo.assert_nothing_is_left();
    }
}

#[test]
fn a_gateway_that_is_killed_is_said() {
    let mut demo = demo(&["--seconds", "300"]);
    let (child, gateway) = demo.start();
    send("-KILL", gateway);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the gateway ended in the middle of it (signal: 9"), "{said}");
    demo.assert_nothing_is_left();
}

#[test]
fn the_gateway_does_not_outlive_a_demo_that_is_killed() {
    let mut demo = demo(&["--seconds", "300"]);
    let (mut child, gateway) = demo.start();
    send("-KILL", child.id());
    child.wait().unwrap();
    while Path::new(&format!("/proc/{gateway}/exe")).read_link().is_ok() {
        std::thread::yield_now();
    }
    let left = std::fs::read_dir(demo.temporary()).unwrap().next().unwrap().unwrap().path();
    let (child, _) = demo.start();
    assert!(!left.exists(), "the next one removes what the killed one left");
    send("-TERM", child.id());
    ended(child);
    assert_eq!(std::fs::read_dir(demo.temporary()).unwrap().count(), 0);
}

#[test]
fn what_keeps_it_from_running_is_said_before_it_starts() {
    let mut demo = demo(&["--out", "file/below"]);
    std::fs::write(demo.folder.path().join("file"), "").unwrap();
    let output = demo.run();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(said.contains("cannot write into file/below (--out DIR names another folder)"), "{said}");

    drop(demo);
    let mut limited = through(&["bash", "-c", "ulimit -n 100; exec \"$@\"", "limited"], &[]);
    let output = limited.run();
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
    assert!(said.contains("may open only 100: raise the limit"), "{said}");
    drop(limited);

    assert!(
        text(&through(&["env", "TMPDIR=/nonexistent"], &[]).run().stderr).contains("TMPDIR=DIR names another place")
    );

    for wrong in [&["--flood", "0"], &["--seconds", "0"], &["--flood", "many"]] {
        assert_eq!(self::demo(wrong).run().status.code(), Some(64), "{wrong:?}");
    }
}
