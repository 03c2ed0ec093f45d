//! The `fairlane` binary: hands the command line to [`fairlane::cli`].

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    fairlane::cli::main()
}
