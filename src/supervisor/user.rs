//! `-u`: becoming another user before any child is made, so that all of them are that user too.

use nix::unistd::{self, Gid, Uid, User};

use crate::error::{Exit, Fatal};

/// Finds the user, with stock's exit codes if there is none.
pub fn look_up(name: &str) -> Result<User, Fatal> {
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user),
        Ok(None) => Err(Fatal::new(Exit::UserUnknown, format!("-u {name}: no such user"))),
        Err(error) => Err(Fatal::new(Exit::UserLookup, format!("-u {name}: {error}"))),
    }
}

/// Takes on the user and its group, and gives up all other groups. Stock keeps those, with what they may do.
pub fn become_user(user: &User) -> Result<(), Fatal> {
    let refuse = |doing: &str, error: nix::Error| {
        Fatal::new(Exit::UserRefused, format!("-u {}: {doing}: {error}", user.name))
    };
    match unistd::setgroups(&[user.gid]) {
        // Without the right to change groups there are none that came from it.
        Err(nix::Error::EPERM) if !unistd::geteuid().is_root() => {}
        result => result.map_err(|e| refuse("supplementary groups", e))?,
    }
    unistd::setgid(user.gid).map_err(|e| refuse("group", e))?;
    unistd::setuid(user.uid).map_err(|e| refuse("user", e))?;
    assert_eq!((Uid::effective(), Gid::effective()), (user.uid, user.gid));
    Ok(())
}
