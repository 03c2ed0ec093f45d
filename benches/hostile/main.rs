//! `make hostile`: a flood of each hostile case beside honest traffic, and what the honest wait meanwhile.
//!
//! Honest senders post by a fixed schedule, each request signed, from the time that it was due to its 2xx. They do so alone, then beside
//! each case in turn, then alone again: a p99 is worth what it is worth between two that should be alike. Whoever is hostile is a process of
//! its own, held to a fifth of one core ([`share`]), for on one machine a flood without limit would only show who
//! gets the processor; how much it does with that is in the table.
//!
//! `HOSTILE_SECONDS` (8, of each case), `HOSTILE_RATE` (500, honest requests a second), `HOSTILE_ONLY` (a part of a case's name).
#![expect(clippy::print_stdout, reason = "the table is what it is for")]

mod cases;
mod honest;
mod senders;
mod share;
#[path = "../../tests/support/mod.rs"]
mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use support::upstream::{Received, answer, upstream};

/// What the child process is told.
const CASE: &str = "HOSTILE_CASE";
const TARGET: &str = "HOSTILE_TARGET";

fn main() -> anyhow::Result<()> {
    if let (Ok(name), Ok(target)) = (std::env::var(CASE), std::env::var(TARGET)) {
        return share::run(cases::named(&name).context("no such case")?, target.parse()?);
    }
    let number = |name: &str, usual: u64| std::env::var(name).ok().map_or(Ok(usual), |text| text.parse());
    let (seconds, rate) = (number("HOSTILE_SECONDS", 8)?, number("HOSTILE_RATE", 500)?);
    let only = std::env::var("HOSTILE_ONLY").unwrap_or_default();
    // Honest events are taken at once; the others as their case says.
    let receiver = upstream(|request: &Received| if request.group() == "hostile" { answer(500) } else { answer(200) })
        .keeping(|_| false);
    let gateway = support::gateway(&configuration(&receiver.url())).start();
    let span = Duration::from_secs(seconds);
    honest::send(gateway.address, rate, Duration::from_secs(2));
    let quiet = honest::send(gateway.address, rate, span);
    println!("{rate} honest requests a second, {seconds} s of each; the hostile process has a fifth of a core\n");
    println!("| what is poured in | a second | its CPU | honest p50 | p99 | × alone | refused |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    println!("| nothing | | | {} | {} | 1.0 | {} |", ms(quiet.p50), ms(quiet.p99), quiet.refused);
    for case in cases::ALL.iter().filter(|case| case.name.contains(&only)) {
        let hostile = Hostile::start(case.name, gateway.address)?;
        let beside = honest::send(gateway.address, rate, span);
        let (units, cpu) = hostile.stop()?;
        println!(
            "| {} | {:.0} {} | {:.0} % | {} | {} | {:.1} | {} |",
            case.name,
            units / span.as_secs_f64(),
            case.unit,
            cpu / span.as_secs_f64() * 100.0,
            ms(beside.p50),
            ms(beside.p99),
            beside.p99.as_secs_f64() / quiet.p99.as_secs_f64(),
            beside.refused
        );
    }
    let after = honest::send(gateway.address, rate, span);
    let times = after.p99.as_secs_f64() / quiet.p99.as_secs_f64();
    println!("| nothing, again | | | {} | {} | {times:.1} | {} |", ms(after.p50), ms(after.p99), after.refused);
    println!("\nmost memory of the gateway: {} MiB", gateway.peak_kib() / 1024);
    let violations = gateway.metric("fairlane_invariant_violations_total ");
    anyhow::ensure!(violations == Some(0.0), "invariants were broken: {violations:?}");
    Ok(())
}

fn configuration(upstream: &str) -> String {
    format!(
        "listen: {{ h2c: true }}\nupstream: {upstream}\nsources:\n  \
         - {{ path: /webhooks/shopify, verify: {{ provider: shopify, secret: \"{}\" }} }}\n  \
         - {{ path: /any, verify: {{ provider: none }}, key: [headers.x-key, body.shop] }}\n",
        support::SHOPIFY_SECRET
    )
}

fn ms(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1_000.0)
}

/// Whoever is hostile, in a process of its own.
struct Hostile(Child);

impl Hostile {
    fn start(name: &str, target: SocketAddr) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(CASE, name).env(TARGET, target.to_string()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        // It says when it has made what it pours.
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().context("its output")?).read_line(&mut line)?;
        Ok(Self(child))
    }

    /// Ends it: how many units it poured, and the seconds of CPU that took.
    fn stop(mut self) -> anyhow::Result<(f64, f64)> {
        self.0.stdin.take().context("its input")?.write_all(b"over\n")?;
        let output = self.0.wait_with_output()?;
        let text = String::from_utf8(output.stdout)?;
        let (units, cpu) = text.trim().split_once(' ').with_context(|| format!("it said {text:?}"))?;
        Ok((units.parse()?, cpu.parse()?))
    }
}
