//! Metrics and health over HTTP/1.1: one request a connection, an answer, and the end.

use std::net::TcpListener;

use super::{Phase, Supervisor, metrics};
use crate::error::{Exit, Fatal};
use crate::ipc::control::Role;

/// More headers than any client sends.
const HEADERS: usize = 64;

const TEXT: &str = "text/plain; charset=utf-8";

/// Opens `--metrics`: an address and a port, or a host's name and a port.
pub fn listen(address: &str) -> Result<mio::net::TcpListener, Fatal> {
    let open = || {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok((listener.local_addr()?, mio::net::TcpListener::from_std(listener)))
    };
    let (bound, listener) =
        open().map_err(|e: std::io::Error| Fatal::new(Exit::Listen, format!("--metrics {address}: {e}")))?;
    tracing::info!("metrics at http://{bound}/metrics");
    Ok(listener)
}

impl Supervisor {
    /// The answer to what a client sent so far; `None`: more has to come.
    pub(super) fn http_answer(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut parsed = httparse::Request::new(&mut headers);
        match parsed.parse(request) {
            Ok(httparse::Status::Partial) => return None,
            Ok(httparse::Status::Complete(_)) => {}
            Err(error) => return Some(response(400, TEXT, &format!("{error}\n"), true)),
        }
        let method = parsed.method.unwrap_or_default();
        if !matches!(method, "GET" | "HEAD") {
            return Some(response(405, TEXT, "only GET and HEAD\n", true));
        }
        let path = parsed.path.unwrap_or_default().split('?').next().unwrap_or_default();
        let (code, kind, body) = match path {
            "/metrics" => (200, metrics::CONTENT_TYPE, self.metrics()),
            "/healthz" => health(self.unwell()),
            "/readyz" => health(self.unready()),
            "/" => (200, TEXT, "/metrics\n/healthz\n/readyz\n".to_owned()),
            _ => (404, TEXT, "there are /metrics, /healthz and /readyz\n".to_owned()),
        };
        Some(response(code, kind, &body, method == "GET"))
    }

    /// Why not every slot serves. `None`: all do.
    pub(super) fn unwell(&self) -> Option<String> {
        self.trouble_among(&[Role::Owner]).or_else(|| self.not_serving())
    }

    /// Why no client can be served. `None`: some slot and some frontend serve.
    fn unready(&self) -> Option<String> {
        let roles = [Role::Owner, Role::Frontend];
        self.not_serving().or_else(|| {
            let away = roles.into_iter().find(|&role| !self.children.any(role, |child| child.is_well()));
            away.map(|role| format!("no {role} serves: {}", self.trouble_among(&[role]).unwrap_or_default()))
        })
    }

    fn not_serving(&self) -> Option<String> {
        (self.phase != Phase::Serving).then(|| format!("the server is {}", self.phase.name()))
    }
}

fn health(trouble: Option<String>) -> (u16, &'static str, String) {
    match trouble {
        None => (200, TEXT, "ok\n".to_owned()),
        Some(reason) => (503, TEXT, format!("{reason}\n")),
    }
}

fn response(code: u16, kind: &str, body: &str, with_body: bool) -> Vec<u8> {
    let reason = match code {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        _ => "Service Unavailable",
    };
    let allow = if code == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    let length = body.len();
    let body = if with_body { body } else { "" };
    format!(
        "HTTP/1.1 {code} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Cache-Control: no-store\r\n\
         Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
