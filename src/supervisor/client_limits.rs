//! What the flags allow clients, checked against the number of frontends, which have to share it. Pure.

use crate::cli::Settings;
use crate::error::{Exit, Fatal};
use crate::ipc::control::ClientLimits;

/// An error if a frontend's part would be of no use.
pub fn of(settings: &Settings, frontends: u16) -> Result<ClientLimits, Fatal> {
    let refuse = |text: String| Err(Fatal::new(Exit::Usage, text));
    let connections = settings.max_connections;
    if connections < frontends.into() {
        return refuse(format!(
            "--max-connections {connections}: the {frontends} frontends share them, so one of them could take no \
             client: allow {frontends} at least, or give fewer --frontends"
        ));
    }
    Ok(ClientLimits { connections })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_connections_than_frontends_are_refused_with_the_way_out() {
        let settings = Settings { max_connections: 3, ..Settings::default() };
        assert_eq!(of(&settings, 3).unwrap().connections, 3);
        let refused = of(&settings, 4).unwrap_err();
        assert_eq!(refused.code, Exit::Usage.code());
        assert!(refused.message.contains("allow 4 at least"), "{}", refused.message);
    }
}
