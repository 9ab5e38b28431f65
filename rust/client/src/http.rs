//! A question by HTTP, such as a registry of schemas answers. On the transport of the other
//! connections, so that a [`Cancel`] ends it at once.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::config::Address;
use crate::error::{ClientError, Result};
use crate::transport::Transport;
use crate::wake::{Cancel, Ready, wait, wait_failed};

/// Of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
const READ_BYTES: usize = 16 << 10;
/// Digits of a chunk's length.
const CHUNK_DIGITS_MAX: usize = 8;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpAnswer {
    /// 200 is good.
    pub status: u16,
    /// Its body.
    pub body: Vec<u8>,
}

/// Asks for `path`, which begins with a slash and has no spaces. Takes `timeout` at most for each
/// address that the name has, besides resolving it; a body has at most `limit` bytes.
///
/// # Errors
/// `Connection`, `TimedOut`, `Cancelled`; `Protocol` for what is no HTTP, or is longer.
pub fn http_get(
    address: &Address,
    path: &str,
    timeout: Duration,
    limit: usize,
    cancel: &Cancel,
) -> Result<HttpAnswer> {
    let until = Instant::now() + timeout;
    let mut transport = Transport::connect(address, timeout, cancel)?;
    let failed = |source| ClientError::Connection {
        address: address.to_string(),
        doing: "asking",
        source,
    };
    let request = format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: application/json\r\n\
         User-Agent: pyrklog\r\nConnection: close\r\n\r\n"
    );
    let (mut sent, mut received) = (0, Vec::new());
    let mut space = vec![0; READ_BYTES];
    loop {
        cancel.check()?;
        if sent < request.len() {
            sent += transport
                .write(&request.as_bytes()[sent..])
                .map_err(failed)?;
        }
        let read = transport.read(&mut space).map_err(failed)?;
        received.extend_from_slice(&space[..read.unwrap_or(0)]);
        let found = answer(&received, read == Some(0), limit)
            .map_err(|reason| ClientError::protocol(&address.to_string(), reason))?;
        if let Some(found) = found {
            return Ok(found);
        }
        if read == Some(0) {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ClientError::TimedOut {
                address: address.to_string(),
                doing: "a question by HTTP",
                seconds: timeout.as_secs_f64(),
            });
        }
        let interest = match sent < request.len() {
            true => Ready::ReadOrWrite,
            false => Ready::Read,
        };
        if read.is_none() {
            let files = [(transport.as_fd(), interest), (cancel.as_fd(), Ready::Read)];
            wait(&files, left).map_err(wait_failed)?;
        }
    }
}

/// The answer, as soon as all of it has come.
///
/// # Errors
/// A sentence: no HTTP, too long.
fn answer(
    received: &[u8],
    is_end: bool,
    limit: usize,
) -> std::result::Result<Option<HttpAnswer>, String> {
    let mut heads = received.windows(4).take(HEAD_BYTES_MAX);
    let Some(end) = heads.position(|four| four == b"\r\n\r\n") else {
        return match received.len() > HEAD_BYTES_MAX || !is_begun(received) {
            true => Err("an answer that is no HTTP".into()),
            false => Ok(None),
        };
    };
    let (head, body) = (&received[..end], &received[end + 4..]);
    let head = std::str::from_utf8(head).map_err(|_| "a head that is no text")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(status);
    let status = status.ok_or("an answer that is no HTTP")?;
    let (mut len, mut is_chunked) = (None, false);
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            len = Some(
                value
                    .parse::<usize>()
                    .map_err(|_| "a length that is none")?,
            );
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            is_chunked = value.eq_ignore_ascii_case("chunked");
            if !is_chunked {
                return Err(format!("the transfer encoding {value:?}"));
            }
        }
    }
    if len.is_some_and(|len| len > limit) || body.len() > 2 * limit + HEAD_BYTES_MAX {
        return Err(format!("an answer of more than {limit} bytes"));
    }
    let body = match (is_chunked, len) {
        (true, _) => chunks(body)?,
        (false, Some(len)) => body.get(..len).map(<[u8]>::to_vec),
        (false, None) => is_end.then(|| body.to_vec()),
    };
    match body {
        Some(body) if body.len() > limit => Err(format!("an answer of more than {limit} bytes")),
        body => Ok(body.map(|body| HttpAnswer { status, body })),
    }
}

/// Whether this may become an answer.
fn is_begun(received: &[u8]) -> bool {
    const START: &[u8] = b"HTTP/1.";
    let len = received.len().min(START.len());
    received[..len] == START[..len]
}

fn status(line: &str) -> Option<u16> {
    let rest = line.strip_prefix("HTTP/1.")?;
    let (_, rest) = rest.split_once(' ')?;
    rest.split(' ').next()?.parse().ok()
}

/// A body in chunks, once the last one is there.
///
/// # Errors
/// A sentence: no chunks.
fn chunks(mut rest: &[u8]) -> std::result::Result<Option<Vec<u8>>, String> {
    let mut body = Vec::new();
    loop {
        let Some(end) = rest.windows(2).position(|two| two == b"\r\n") else {
            return Ok(None);
        };
        let line = std::str::from_utf8(&rest[..end]).unwrap_or_default();
        let digits = line.split(';').next().unwrap_or_default().trim();
        let len = match digits.len() <= CHUNK_DIGITS_MAX {
            true => usize::from_str_radix(digits, 16).ok(),
            false => None,
        };
        let len = len.ok_or("a chunk without a length")?;
        rest = &rest[end + 2..];
        if len == 0 {
            return Ok(Some(body));
        }
        let Some((chunk, behind)) = rest.split_at_checked(len) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        if behind.len() < 2 {
            return Ok(None);
        }
        rest = behind
            .strip_prefix(b"\r\n")
            .ok_or("a chunk that is longer than it says")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 100;

    fn whole(text: &str) -> Option<HttpAnswer> {
        answer(text.as_bytes(), true, LIMIT).unwrap()
    }

    fn good(status: u16, body: &str) -> Option<HttpAnswer> {
        let body = body.as_bytes().to_vec();
        Some(HttpAnswer { status, body })
    }

    #[test]
    fn an_answer_is_whole_when_its_last_byte_has_come() {
        let texts = [
            "HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\nA: b\r\n\r\nhello",
            "HTTP/1.0 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\n",
        ];
        for (text, status) in texts.into_iter().zip([200, 404]) {
            for end in 0..text.len() {
                assert_eq!(
                    answer(&text.as_bytes()[..end], false, LIMIT),
                    Ok(None),
                    "{end}"
                );
            }
            assert_eq!(whole(text), good(status, "hello"));
            assert_eq!(whole(&format!("{text}\r\nmore")), good(status, "hello"));
        }
        let open = "HTTP/1.1 500\r\n\r\nhello";
        assert_eq!(answer(open.as_bytes(), false, LIMIT), Ok(None));
        assert_eq!(whole(open), good(500, "hello"));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        let long = "x".repeat(LIMIT + 1);
        let texts = [
            "SSH-2.0-OpenSSH".to_owned(),
            "\0\0\0\x05".to_owned(),
            "HTTP/1.1 many\r\n\r\n".to_owned(),
            "HTTP/2\r\n\r\n".to_owned(),
            "HTTP/1.1 200\r\nContent-Length: -1\r\n\r\n".to_owned(),
            "HTTP/1.1 200\r\nContent-Length: 101\r\n\r\n".to_owned(),
            "HTTP/1.1 200\r\nTransfer-Encoding: gzip\r\n\r\n".to_owned(),
            "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n".to_owned(),
            "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n100000000\r\n".to_owned(),
            "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n".to_owned(),
            format!("HTTP/1.1 200\r\n\r\n{long}"),
            format!("HTTP/1.1 200\r\n{}", "a: b\r\n".repeat(HEAD_BYTES_MAX)),
        ];
        for text in texts {
            let found = answer(text.as_bytes(), true, LIMIT);
            assert!(found.is_err(), "{text:.60}: {found:?}");
        }
    }
}
