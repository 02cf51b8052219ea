//! How the supervisor starts one of its processes: `trellis owner --slot 3 --generation 2`, so that `ps` shows
//! who is who. Everything else comes over the control channel.

use std::ffi::OsString;

use clap::Parser;

use super::{Command, clap_saying};
use crate::ipc::control::Role;

#[derive(Parser)]
#[command(name = "trellis", disable_help_subcommand = true)]
enum Roles {
    Owner {
        #[arg(long)]
        slot: u16,
        #[arg(long)]
        generation: u32,
    },
    Frontend {
        #[arg(long)]
        number: u16,
        #[arg(long)]
        generation: u32,
    },
}

/// The arguments that `parse` turns into this role.
pub fn arguments(role: Role, index: u16, generation: u32) -> [String; 5] {
    let number = match role {
        Role::Owner => "--slot",
        Role::Frontend => "--number",
    };
    [role.to_string(), number.into(), index.to_string(), "--generation".into(), generation.to_string()]
}

pub fn parse(words: &[OsString]) -> Command {
    match Roles::try_parse_from([OsString::from("trellis")].iter().chain(words)) {
        Ok(Roles::Owner { slot, generation }) => Command::Role { role: Role::Owner, index: slot, generation },
        Ok(Roles::Frontend { number, generation }) => {
            Command::Role { role: Role::Frontend, index: number, generation }
        }
        Err(error) => clap_saying(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_a_role_parse_to_that_role() {
        for (role, index, generation) in [(Role::Owner, 0, 1), (Role::Frontend, 255, u32::MAX)] {
            let words = arguments(role, index, generation).map(OsString::from);
            assert_eq!(parse(&words), Command::Role { role, index, generation });
        }
    }

    #[test]
    fn role_without_its_numbers_is_a_usage_error() {
        let Command::Say(saying) = parse(&["owner".into()]) else { panic!("not refused") };
        assert_eq!(saying.exit, crate::error::Exit::Usage);
        assert!(saying.text.contains("--slot"), "{}", saying.text);
    }
}
