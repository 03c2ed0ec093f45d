//! `fairlane completions SHELL`.

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, print};

/// Prints the completions of a shell; the answer is the exit code.
pub(super) fn run(shell: Shell) -> u8 {
    print(&script(shell))
}

fn script(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "fairlane", &mut script);
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_shell_learns_every_command() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = String::from_utf8(script(shell)).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(script.contains("provider-event-id"), "{shell}");
        }
    }
}
