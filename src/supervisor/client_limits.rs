//! What the flags allow clients, checked against the number of frontends, which have to share it. Pure.

use crate::cli::Settings;
use crate::error::{Exit, Fatal};
use crate::ipc::control::ClientLimits;
use crate::limits;

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
    let each = |bytes: u64| bytes * u64::from(frontends);
    let unfinished_bytes = settings.max_unfinished_bytes.unwrap_or_else(|| {
        let bodies = each(settings.job_bytes * limits::UNFINISHED_BODIES_DEFAULT);
        bodies.max(limits::UNFINISHED_BYTES_DEFAULT)
    });
    if unfinished_bytes < each(settings.job_bytes) {
        return refuse(format!(
            "--max-unfinished-bytes {unfinished_bytes}: the {frontends} frontends share them, so a part would not \
             take a body of {} bytes (-z): allow {} at least, or give a smaller -z or fewer --frontends",
            settings.job_bytes,
            each(settings.job_bytes)
        ));
    }
    let (idle_s, body_s) = (settings.idle_timeout_s, settings.body_timeout_s);
    let (per_address, refused) = (settings.max_connections_per_address, settings.refuse_commands);
    Ok(ClientLimits { connections, unfinished_bytes, idle_s, body_s, per_address, refused })
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

    #[test]
    fn part_that_is_smaller_than_a_body_is_refused_with_the_way_out() {
        let asked = |bytes| Settings { max_unfinished_bytes: bytes, job_bytes: 1000, ..Settings::default() };
        assert_eq!(of(&asked(Some(3000)), 3).unwrap().unfinished_bytes, 3000);
        let refused = of(&asked(Some(2999)), 3).unwrap_err();
        assert_eq!(refused.code, Exit::Usage.code());
        assert!(refused.message.contains("allow 3000 at least"), "{}", refused.message);
    }

    #[test]
    fn some_of_the_largest_bodies_are_always_allowed_without_the_flag() {
        let unfinished = |job_bytes, frontends| {
            of(&Settings { job_bytes, ..Settings::default() }, frontends).unwrap().unfinished_bytes
        };
        assert_eq!(unfinished(limits::JOB_BYTES_DEFAULT as u64, 8), limits::UNFINISHED_BYTES_DEFAULT);
        let largest = limits::JOB_BYTES_MAX as u64;
        assert_eq!(unfinished(largest, 2), 2 * 16 * largest);
    }
}
