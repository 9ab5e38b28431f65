//! A registry of schemas, as Confluent's answers.

use std::time::{Duration, Instant};

use pyrklog_client::{Address, Backoff, Cancel, ClientConfig, ClientError, HttpAnswer, http_get};
use serde_json::Value;

use crate::error::{ErrorKind, Result, ScanError};

/// Of an answer.
const ANSWER_BYTES_MAX: usize = 4 << 20;
const SCHEME: &str = "http://";
const URL_BYTES_MAX: usize = 2000;
/// The registry's word for a schema that it has not; another 404 is not the registry's.
const NO_SCHEMA: u64 = 40403;
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

/// What a registry has for an id.
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
            question_timeout: config.connect_timeout,
            timeout: config.request_timeout,
            cancel: cancel.clone(),
        })
    }

    /// Asks for a schema, again and again if need be.
    ///
    /// # Errors
    /// `Registry`, `Cancelled`.
    pub fn schema(&self, id: u32) -> Result<Answer> {
        let until = Instant::now() + self.timeout;
        let mut backoff = Backoff::default();
        loop {
            let reason = match self.ask(id) {
                Ok(answer) => return Ok(answer),
                Err(reason) => reason,
            };
            self.cancel.check()?;
            if Instant::now() >= until {
                let text = format!(
                    "the registry {SCHEME}{}{} gives no schema {id}: {reason}",
                    self.address, self.path
                );
                return Err(ScanError::new(ErrorKind::Registry, text));
            }
            self.cancel.sleep(backoff.next_wait())?;
        }
    }

    fn ask(&self, id: u32) -> std::result::Result<Answer, String> {
        let path = format!("{}/schemas/ids/{id}", self.path);
        let found = http_get(
            &self.address,
            &path,
            self.question_timeout,
            ANSWER_BYTES_MAX,
            &self.cancel,
        );
        match found {
            Ok(answer) => read(&answer),
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
fn read(answer: &HttpAnswer) -> std::result::Result<Answer, String> {
    let found: Option<Value> = serde_json::from_slice(&answer.body).ok();
    let field = |name: &str| found.as_ref().and_then(|found| found.get(name));
    match answer.status {
        200 => match (field("schema"), field("schemaType")) {
            (Some(Value::String(_)), Some(Value::String(format))) if format != "AVRO" => {
                Ok(Answer::Other(short(format)))
            }
            (Some(Value::String(text)), _) => Ok(Answer::Schema(text.clone())),
            _ => Err("an answer without a schema".into()),
        },
        404 if field("error_code").and_then(Value::as_u64) == Some(NO_SCHEMA) => {
            Ok(Answer::Unknown)
        }
        status => Err(match field("message").and_then(Value::as_str) {
            Some(message) => format!("status {status}, {}", short(message)),
            None => format!("status {status}"),
        }),
    }
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
            assert_eq!(read(&HttpAnswer { status, body }), expected);
        }
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
