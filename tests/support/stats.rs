//! A `stats`, `stats-tube` or `stats-job` reply: its fields in the order they came.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stats {
    fields: Vec<(String, String)>,
}

impl Stats {
    /// Takes a whole reply, `OK <bytes>\r\n---\n…\r\n`. Panics if it is anything else.
    pub fn parse(reply: &[u8]) -> Stats {
        let text = String::from_utf8_lossy(reply);
        let body = text.split_once("\r\n").filter(|(line, _)| line.starts_with("OK ")).map(|(_, body)| body);
        let Some(body) = body else { panic!("no statistics, but {text:?}") };
        let lines = body.strip_prefix("---\n").and_then(|lines| lines.strip_suffix("\r\n"));
        let Some(lines) = lines else { panic!("not the YAML of statistics: {body:?}") };
        let fields = lines.lines().map(|line| match line.split_once(": ") {
            Some((key, value)) => (key.to_owned(), value.to_owned()),
            None => panic!("a line of statistics without a colon: {line:?}"),
        });
        Stats { fields: fields.collect() }
    }

    /// Panics if the field is missing.
    pub fn text(&self, key: &str) -> &str {
        match self.fields.iter().find(|(name, _)| name == key) {
            Some((_, value)) => value,
            None => panic!("no field {key} in {:?}", self.fields),
        }
    }

    pub fn number(&self, key: &str) -> i64 {
        let text = self.text(key);
        text.parse().unwrap_or_else(|_| panic!("{key} is no number: {text:?}"))
    }

    pub fn keys(&self) -> Vec<&str> {
        self.fields.iter().map(|(key, _)| key.as_str()).collect()
    }

    /// The same with the values of `keys` blanked: what is allowed to differ between two servers. The keys
    /// themselves stay, so that a missing field is still a difference.
    pub fn masking(&self, keys: &[&str]) -> Stats {
        let mask = |(key, value): &(String, String)| {
            let value = if keys.contains(&key.as_str()) { "*".to_owned() } else { value.clone() };
            (key.clone(), value)
        };
        Stats { fields: self.fields.iter().map(mask).collect() }
    }

    /// `key: got, expected` of each field that is not as expected; empty if all are.
    pub fn differences(&self, expected: &[(&str, &str)]) -> Vec<String> {
        let wrong = expected.iter().filter(|(key, value)| self.text(key) != *value);
        wrong.map(|(key, value)| format!("{key}: {} instead of {value}", self.text(key))).collect()
    }
}
