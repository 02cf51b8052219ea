//! What the environment says about the log, held against what can be said: as wrong a word as a wrong flag, and
//! one that would silence the server. For `main`, before the log begins.

use tracing::level_filters::LevelFilter;

use crate::log;

/// The error names the variable. An empty one is as none.
pub fn check(variable: impl Fn(&str) -> Option<String>) -> Result<(), String> {
    let asked = |name| variable(name).filter(|text| !text.is_empty());
    if let Some(text) = asked(log::VARIABLE) {
        if let Some(word) = text.split(',').find(|word| !is_directive(word)) {
            return Err(format!(
                "{}: no level {word:?}; there are off, error, warn, info, debug and trace",
                log::VARIABLE
            ));
        }
    }
    match asked(log::FORMAT_VARIABLE) {
        Some(name) if log::Format::from_name(&name).is_none() => {
            Err(format!("{} {name}: must be text or json", log::FORMAT_VARIABLE))
        }
        _ => Ok(()),
    }
}

/// A level, or something longer that the filter itself reads. A word alone would be to it the name of a module, of
/// which everything is shown, and of all others nothing.
fn is_directive(word: &str) -> bool {
    word.contains(['=', '[']) || word.trim().parse::<LevelFilter>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(log: &str, format: &str) -> Result<(), String> {
        check(|name| Some(if name == log::VARIABLE { log } else { format }.to_owned()))
    }

    #[test]
    fn levels_and_formats_are_taken_and_other_words_are_named() {
        assert_eq!(check(|_| None), Ok(()));
        for log in ["", "off", "error", "warn", "info", "debug", "trace", "INFO", "trellis=trace,warn"] {
            assert_eq!(with(log, ""), Ok(()), "{log}");
        }
        for format in ["text", "json"] {
            assert_eq!(with("", format), Ok(()));
        }
        assert!(with("bogus", "").unwrap_err().starts_with("TRELLIS_LOG: no level \"bogus\""));
        assert!(with("info,bogus", "").unwrap_err().contains("\"bogus\""));
        assert_eq!(with("", "xml").unwrap_err(), "TRELLIS_LOG_FORMAT xml: must be text or json");
    }
}
