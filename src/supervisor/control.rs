//! The control socket: for whoever may open it, what the server is doing. One word, one JSON text back.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

use mio::net::UnixListener;
use nix::sys::stat::{Mode, umask};
use nix::unistd::{User, chown};

use crate::error::{Exit, Fatal};

/// The one request there is.
pub const STATUS: &[u8] = b"status\n";

/// The socket, whose file goes when it goes. The path is claimed for as long as the supervisor lives.
pub struct Socket {
    path: PathBuf,
    listener: Option<UnixListener>,
}

impl Socket {
    /// Replaces what a server that is gone left there. The path must be claimed.
    pub fn open(path: &Path, user: Option<&User>) -> Result<Socket, Fatal> {
        let refuse =
            |error: io::Error| Fatal::new(Exit::Listen, format!("--control {}: {error}", path.display()));
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs::remove_file(path).map_err(refuse)?,
            Ok(_) => return Err(refuse(io::Error::other("a file of another kind exists there"))),
            Err(_) => {}
        }
        // Nobody else's from its first moment on. This process has one thread now: no other file is concerned.
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(path);
        umask(before);
        let socket = Socket { path: path.to_owned(), listener: Some(bound.map_err(refuse)?) };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(refuse)?;
        if let Some(user) = user {
            chown(path, Some(user.uid), Some(user.gid)).map_err(|e| refuse(e.into()))?;
        }
        tracing::info!("control socket {}", path.display());
        Ok(socket)
    }

    /// Once.
    pub fn take_listener(&mut self) -> UnixListener {
        self.listener.take().expect("taken once")
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // After -u the directory may not be ours: then it stays, and the next server replaces it.
        let _ = fs::remove_file(&self.path);
    }
}

/// The answer to what a client sent so far; `None`: more has to come.
pub fn answer(request: &[u8], status: impl FnOnce() -> crate::status::Status) -> Option<Vec<u8>> {
    let end = request.iter().position(|&b| b == b'\n')? + 1;
    let mut text = if request[..end] == *STATUS {
        serde_json::to_vec(&status()).expect("a status is plain data")
    } else {
        br#"{"error":"unknown request"}"#.to_vec()
    };
    text.push(b'\n');
    Some(text)
}
