//! A registry of schemas, as Confluent's answers.

use std::time::{Duration, Instant};

use pyrklog_client::{Address, Backoff, Cancel, ClientConfig, ClientError, HttpAnswer, http_get};
use serde_json::Value;

use crate::error::{ErrorKind, Result, ScanError};

/// Of an answer.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const SCHEME: &str = "http://";
const URL_BYTES_MAX: usize = 2000;
/// The registry's words for a schema that it has not, and for a subject or a version of one; another
/// 404 is not the registry's.
const NO_SCHEMA: &[u64] = &[40403];
const NO_SUBJECT: &[u64] = &[40401, 40402];
const SUBJECT_BYTES_MAX: usize = 500;
/// Of an answer in a sentence.
const SHORT_CHARS: usize = 200;

/// Where schemas are, by their ids.
#[derive(Debug)]
pub(crate) struct Registry {
    address: Address,
    /// Without a slash at its end.
    path: String,
    question_timeout: Duration,
    timeout: Duration,
    cancel: Cancel,
}

/// What a registry has for an id or a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Avro's JSON.
    Schema(String),
    /// A schema of another format.
    Other(String),
    Unknown,
}

impl Registry {
    /// By its URL. A question takes as long as a connection may take to open, and is repeated as
    /// long as another answer may take.
    ///
    /// # Errors
    /// A sentence: no such URL.
    pub fn new(
        url: &str,
        config: &ClientConfig,
        cancel: &Cancel,
    ) -> std::result::Result<Registry, String> {
        Registry::with_timeouts(url, config.connect_timeout, config.request_timeout, cancel)
    }

    fn with_timeouts(
        url: &str,
        question_timeout: Duration,
        timeout: Duration,
        cancel: &Cancel,
    ) -> std::result::Result<Registry, String> {
        let bad = || match url.contains('@') {
            // What stands before it may be a password.
            true => "registry has a name or password; it can be http://HOST:PORT".to_owned(),
            false => format!("registry is {url:?}; it can be http://HOST:PORT"),
        };
        let rest = url.strip_prefix(SCHEME).ok_or_else(bad)?;
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"@?#\"<>\\".contains(&byte);
        if url.len() > URL_BYTES_MAX || !rest.bytes().all(is_plain) {
            return Err(bad());
        }
        let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        Ok(Registry {
            address: Address::parse(host).map_err(|_| bad())?,
            path: path.trim_end_matches('/').to_owned(),
            question_timeout,
            timeout,
            cancel: cancel.clone(),
        })
    }

    /// Asks for a schema, again and again if need be.
    ///
    /// # Errors
    /// `Registry`, `Cancelled`.
    pub fn schema(&self, id: u32) -> Result<Answer> {
        let what = format!("schema {id}");
        self.tried(&what, &format!("/schemas/ids/{id}"), NO_SCHEMA)
    }

    /// Asks for the latest schema of a subject, likewise.
    ///
    /// # Errors
    /// `Registry`, `Cancelled`.
    fn latest(&self, subject: &str) -> Result<Answer> {
        let what = format!("schema of subject {subject}");
        let path = format!("/subjects/{}/versions/latest", escaped(subject));
        self.tried(&what, &path, NO_SUBJECT)
    }

    fn tried(&self, what: &str, path: &str, unknown: &[u64]) -> Result<Answer> {
        let until = Instant::now() + self.timeout;
        let mut backoff = Backoff::default();
        loop {
            let reason = match self.ask(path, unknown) {
                Ok(answer) => return Ok(answer),
                Err(reason) => reason,
            };
            self.cancel.check()?;
            if Instant::now() >= until {
                let text = format!(
                    "the registry {SCHEME}{}{} gives no {what}: {reason}",
                    self.address, self.path
                );
                return Err(ScanError::new(ErrorKind::Registry, text));
            }
            self.cancel.sleep(backoff.next_wait())?;
        }
    }

    fn ask(&self, path: &str, unknown: &[u64]) -> std::result::Result<Answer, String> {
        let path = format!("{}{path}", self.path);
        let found = http_get(
            &self.address,
            &path,
            self.question_timeout,
            ANSWER_BYTES_MAX,
            &self.cancel,
        );
        match found {
            Ok(answer) => read(&answer, unknown),
            Err(ClientError::Connection { doing, source, .. }) => Err(format!("{doing}: {source}")),
            Err(ClientError::TimedOut { seconds, .. }) => {
                Err(format!("no answer within {seconds:.1} s"))
            }
            Err(ClientError::Protocol { reason, .. }) => Err(reason),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What an answer says.
///
/// # Errors
/// A sentence: nothing of the registry's.
fn read(answer: &HttpAnswer, unknown: &[u64]) -> std::result::Result<Answer, String> {
    let found: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let field = |name: &str| found.as_ref().and_then(|found| found.get(name));
    let code = field("error_code").and_then(Value::as_u64);
    match answer.status {
        200 => match (field("schema"), field("schemaType")) {
            (Some(Value::String(_)), Some(Value::String(format))) if format != "AVRO" => {
                Ok(Answer::Other(short(format)))
            }
            (Some(Value::String(text)), _) => Ok(Answer::Schema(text.clone())),
            _ => Err("an answer without a schema".into()),
        },
        404 if code.is_some_and(|code| unknown.contains(&code)) => Ok(Answer::Unknown),
        status => Err(match field("message").and_then(Value::as_str) {
            Some(message) => format!("status {status}, {}", short(message)),
            None => format!("status {status}"),
        }),
    }
}

/// The latest schema of a subject, as Avro's JSON. A question takes `question_timeout` at most, and is
/// repeated until `timeout` has passed.
///
/// # Errors
/// `Argument`: no URL, no such subject, no Avro; `Registry`, `Cancelled`.
pub fn latest_schema(
    url: &str,
    subject: &str,
    question_timeout: Duration,
    timeout: Duration,
    cancel: &Cancel,
) -> Result<String> {
    let bad = |text| ScanError::new(ErrorKind::Argument, text);
    if subject.is_empty() || subject.len() > SUBJECT_BYTES_MAX {
        let text = format!("a subject has 1 to {SUBJECT_BYTES_MAX} bytes");
        return Err(bad(text));
    }
    let registry = Registry::with_timeouts(url, question_timeout, timeout, cancel).map_err(bad)?;
    match registry.latest(subject)? {
        Answer::Schema(text) => Ok(text),
        Answer::Other(format) => Err(bad(format!(
            "the latest schema of subject {subject} is {format}, not Avro"
        ))),
        Answer::Unknown => Err(bad(format!(
            "the registry {SCHEME}{}{} has no subject {subject}",
            registry.address, registry.path
        ))),
    }
}

/// As a part of a path.
fn escaped(subject: &str) -> String {
    let mut out = String::with_capacity(subject.len());
    for byte in subject.bytes() {
        match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn short(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(SHORT_CHARS).map(printable).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_what_the_registry_has() {
        let schema = |text: &str| Ok(Answer::Schema(text.into()));
        let cases = [
            (200, r#"{"schema":"\"int\""}"#, schema("\"int\"")),
            (200, r#"{"schema":"x","schemaType":"AVRO"}"#, schema("x")),
            (
                200,
                r#"{"schema":"x","schemaType":"JSON"}"#,
                Ok(Answer::Other("JSON".into())),
            ),
            (
                404,
                r#"{"error_code":40403,"message":"m"}"#,
                Ok(Answer::Unknown),
            ),
            (
                404,
                r#"{"error_code":404,"message":"HTTP 404 Not Found"}"#,
                Err("status 404, HTTP 404 Not Found".into()),
            ),
            (404, "<html>", Err("status 404".into())),
            (500, "", Err("status 500".into())),
            (301, "{}", Err("status 301".into())),
            (
                200,
                r#"{"schema":7}"#,
                Err("an answer without a schema".into()),
            ),
            (200, "[1]", Err("an answer without a schema".into())),
            (200, "\"int\"", Err("an answer without a schema".into())),
        ];
        for (status, body, expected) in cases {
            let body = body.as_bytes().to_vec();
            assert_eq!(read(&HttpAnswer { status, body }, NO_SCHEMA), expected);
        }
        for (code, is_known) in [(40401, true), (40402, true), (40403, false)] {
            let body = format!("{{\"error_code\":{code}}}").into_bytes();
            let found = read(&HttpAnswer { status: 404, body }, NO_SUBJECT);
            assert_eq!(found == Ok(Answer::Unknown), is_known, "{found:?}");
        }
    }

    #[test]
    fn a_subject_is_one_part_of_a_path() {
        assert_eq!(escaped("orders-value_1.x"), "orders-value_1.x");
        assert_eq!(escaped("a/b ?#%\u{e4}\n"), "a%2Fb%20%3F%23%25%C3%A4%0A");
    }

    #[test]
    fn only_a_plain_url_is_taken() {
        let config = ClientConfig {
            bootstrap: Vec::new(),
            client_id: String::new(),
            connect_timeout: Duration::from_secs(1),
            request_timeout: Duration::from_secs(1),
            security: Default::default(),
        };
        let cancel = Cancel::new().unwrap();
        let made = |url: &str| Registry::new(url, &config, &cancel);
        let found = made("http://[::1]:8081/api/v1//").unwrap();
        assert_eq!(found.address.to_string(), "[::1]:8081");
        assert_eq!(found.path, "/api/v1");
        assert_eq!(made("http://registry:80").unwrap().path, "");
        for url in [
            "",
            "registry:8081",
            "https://registry:8081",
            "http://registry",
            "http://user:hunter2@registry:8081",
            "http://registry:8081/a b",
            "http://registry:8081/\r\nX: y",
            "http://registry:8081/?a=b",
        ] {
            let text = made(url).unwrap_err();
            assert!(text.ends_with("; it can be http://HOST:PORT"), "{text}");
            assert!(!text.contains("hunter2"), "{text}");
        }
    }
}
