//! `trellis completions`: a script that completes our command line in a shell. The package installs them.
//!
//! The server's flags are stock's and not clap's, so their part of the grammar is read out of their usage text;
//! every other command hands its own over.

use std::ffi::OsString;

use clap::{Arg, ArgAction, CommandFactory, Parser, ValueHint};
use clap_complete::Shell;

use super::{Command, Saying, bench, clap_saying, compare, migrate, serve, status, topology, wal};
use crate::error::Exit;

/// Print a script that completes the command line in a shell
#[derive(Parser)]
#[command(name = "trellis completions", bin_name = "trellis completions")]
struct Line {
    shell: Shell,
}

pub fn parse(words: &[OsString]) -> Command {
    match Line::try_parse_from(words) {
        Ok(line) => Command::Say(Saying { text: script(line.shell), to_stdout: true, exit: Exit::Done }),
        Err(error) => clap_saying(error),
    }
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut whole(), "trellis", &mut script);
    String::from_utf8(script).expect("scripts are text").trim_end().to_owned()
}

/// The command line as clap would see it.
fn whole() -> clap::Command {
    let subcommands = [
        ("status", status::grammar()),
        ("topology", topology::grammar()),
        ("wal", wal::grammar()),
        ("migrate", migrate::grammar()),
        ("export", migrate::export_grammar()),
        ("compare", compare::grammar()),
        ("bench", bench::grammar()),
        ("completions", Line::command()),
    ];
    let server = |name: &'static str| {
        let own_help = clap::Command::new(name).disable_help_flag(true).disable_version_flag(true);
        own_help.args(flags(&serve::usage("trellis")))
    };
    server("trellis")
        .disable_help_subcommand(true)
        .subcommand(server("serve").about("Run the server"))
        .subcommands(subcommands.map(|(name, grammar)| grammar.name(name)))
}

/// A flag for each line of the usage text that begins with one: its meaning is behind it, or on the next line.
fn flags(usage: &str) -> Vec<Arg> {
    let lines: Vec<&str> = usage.lines().collect();
    let flag = |(at, line): (usize, &&str)| {
        let line = line.strip_prefix(' ').filter(|line| line.starts_with('-'))?;
        let (words, help) = line.split_once("  ").unwrap_or((line, lines.get(at + 1).unwrap_or(&"")));
        let (name, value) = words.split_once(' ').map_or((words, None), |(name, value)| (name, Some(value)));
        Some(argument(name, value, help.trim()))
    };
    lines.iter().enumerate().filter_map(flag).collect()
}

fn argument(name: &str, value: Option<&str>, help: &str) -> Arg {
    let arg = Arg::new(name.to_owned()).help(help.to_owned());
    let arg = match name.strip_prefix("--") {
        Some(long) => arg.long(long.to_owned()),
        None => arg.short(name.chars().nth(1)),
    };
    let Some(value) = value else { return arg.action(ArgAction::SetTrue) };
    let arg = arg.action(ArgAction::Set).value_name(value.to_owned());
    match value {
        "DIR" => arg.value_hint(ValueHint::DirPath),
        "PATH" => arg.value_hint(ValueHint::FilePath),
        "USER" => arg.value_hint(ValueHint::Username),
        "ADDR" => arg.value_hint(ValueHint::Hostname),
        "F" => arg.value_parser(["text", "json"]),
        _ => arg.value_hint(ValueHint::Other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grammar_is_one_that_clap_accepts() {
        whole().debug_assert();
    }

    #[test]
    fn flags_are_those_of_the_usage_text() {
        let flags =
            flags(" -b DIR    keep jobs\n           there\n -F        never\n --long N\n    help\nno flag");
        let names: Vec<&str> = flags.iter().map(|flag| flag.get_id().as_str()).collect();
        assert_eq!(names, ["-b", "-F", "--long"]);
        assert_eq!(flags[0].get_short(), Some('b'));
        assert_eq!(flags[0].get_value_hint(), ValueHint::DirPath);
        assert!(matches!(flags[1].get_action(), ArgAction::SetTrue));
        assert_eq!(flags[2].get_long(), Some("long"));
        assert_eq!(flags[2].get_help().unwrap().to_string(), "help");
    }

    #[test]
    fn script_of_each_shell_names_flags_and_commands() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell);
            for word in ["metrics-tubes", "owner-wait", "wal", "repair", "export", "json"] {
                assert!(script.contains(word), "{shell} lacks {word}");
            }
        }
    }
}
