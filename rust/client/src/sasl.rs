//! Who the client says it is: SASL's mechanisms, without sockets and clocks.

pub(crate) mod scram;
pub(crate) mod tokens;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::rand::{SecureRandom, SystemRandom};

use self::scram::Hash;
use self::tokens::{Token, Tokens};
use crate::secret::Secret;

const NONCE_BYTES: usize = 24;
/// Characters of another side's words in a message.
const WORDS_MAX: usize = 500;

/// A mechanism with what it needs.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// PLAIN: the password itself is sent, so use it over TLS.
    Plain {
        /// Name.
        username: String,
        /// Password.
        password: Secret,
    },
    /// SCRAM.
    Scram {
        /// Which of the two.
        hash: Hash,
        /// Name.
        username: String,
        /// Password.
        password: Secret,
    },
    /// OAUTHBEARER.
    OAuthBearer(Tokens),
}

impl Credentials {
    /// As brokers name it.
    pub fn mechanism(&self) -> &'static str {
        match self {
            Credentials::Plain { .. } => "PLAIN",
            Credentials::Scram { hash, .. } => match hash {
                Hash::Sha256 => "SCRAM-SHA-256",
                Hash::Sha512 => "SCRAM-SHA-512",
            },
            Credentials::OAuthBearer(_) => "OAUTHBEARER",
        }
    }

    /// Which options say so.
    fn settings(&self) -> &'static str {
        match self {
            Credentials::OAuthBearer(_) => {
                "the token of sasl.oauthbearer.token or sasl.oauthbearer.callable"
            }
            _ => "sasl.username and sasl.password",
        }
    }

    /// An exchange. Blocks while a token is asked for.
    ///
    /// # Errors
    /// There is no token, or the system has no random numbers.
    pub(crate) fn begin(&self) -> Result<Exchange, String> {
        match self {
            Credentials::OAuthBearer(tokens) => {
                let token = tokens.wait();
                token.map(|token| self.bearer(&token)).map_err(|error| {
                    let error = line(&error);
                    format!("no token (sasl.oauthbearer.token or .callable): {error}")
                })
            }
            _ => self.begin_without_token(),
        }
    }

    /// An exchange, unless a token must be waited for: it is asked for meanwhile.
    ///
    /// # Errors
    /// As of [`Credentials::begin`].
    pub(crate) fn try_begin(&self) -> Result<Option<Exchange>, String> {
        match self {
            Credentials::OAuthBearer(tokens) => {
                Ok(tokens.try_get().map(|token| self.bearer(&token)))
            }
            _ => self.begin_without_token().map(Some),
        }
    }

    fn begin_without_token(&self) -> Result<Exchange, String> {
        let (state, message) = match self {
            Credentials::Plain { username, password } => {
                if username.contains('\0') || password.expose().contains('\0') {
                    return Err("sasl.username or sasl.password has a NUL".into());
                }
                let message = format!("\0{username}\0{}", password.expose());
                (State::Plain, message.into_bytes())
            }
            Credentials::Scram {
                hash,
                username,
                password,
            } => {
                let (first, message) =
                    scram::First::new(*hash, username, password.clone(), nonce()?);
                (State::ScramFirst(first), message)
            }
            Credentials::OAuthBearer(_) => return Err("a token is needed".into()),
        };
        Ok(self.exchange(message, state))
    }

    /// RFC 7628, without an identity of its own: the token says who it is.
    fn bearer(&self, token: &Token) -> Exchange {
        let mut message = format!("n,,\x01auth=Bearer {}\x01", token.value.expose());
        for (key, value) in &token.extensions {
            message.push_str(&format!("{key}={value}\x01"));
        }
        message.push('\x01');
        self.exchange(message.into_bytes(), State::Bearer)
    }

    fn exchange(&self, message: Vec<u8>, state: State) -> Exchange {
        Exchange {
            mechanism: self.mechanism(),
            settings: self.settings(),
            message,
            state,
        }
    }
}

/// One authentication: the first message, and what comes after it.
pub(crate) struct Exchange {
    pub mechanism: &'static str,
    settings: &'static str,
    message: Vec<u8>,
    state: State,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({})", self.mechanism)
    }
}

enum State {
    Plain,
    ScramFirst(scram::First),
    ScramFinal(scram::Final),
    Bearer,
    /// The server has said that it refuses the token, and will say so again with an error.
    Refused(String),
    Over,
}

impl Exchange {
    /// Which options say who the client is, for messages.
    pub fn settings(&self) -> &'static str {
        self.settings
    }

    /// The first message, once.
    pub fn first(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.message)
    }

    /// The answer to a challenge; `None` at the end, with both sides content.
    ///
    /// # Errors
    /// What the server did wrong.
    pub fn challenge(&mut self, bytes: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Plain | State::Bearer if bytes.is_empty() => Ok(None),
            State::Bearer => {
                self.state = State::Refused(line(&String::from_utf8_lossy(bytes)));
                Ok(Some(vec![1]))
            }
            State::ScramFirst(first) => {
                let (last, message) = first.answer(bytes)?;
                self.state = State::ScramFinal(last);
                Ok(Some(message))
            }
            State::ScramFinal(last) => last.verify(bytes).map(|()| None),
            State::Refused(text) => Err(format!("it refuses {}: {text}", self.settings)),
            State::Plain | State::Over => Err("it asks for more than the mechanism has".into()),
        }
    }
}

/// Another side's words, as a part of a sentence.
pub(crate) fn line(text: &str) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(WORDS_MAX).map(printable).collect()
}

fn nonce() -> Result<String, String> {
    let mut bytes = [0; NONCE_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| "the system has no random numbers")?;
    Ok(BASE64.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_sends_name_and_password_once() {
        let credentials = Credentials::Plain {
            username: "alice".into(),
            password: Secret::new("wonder"),
        };
        let mut exchange = credentials.begin().unwrap();
        assert!(!format!("{credentials:?} {exchange:?}").contains("wonder"));
        assert_eq!(exchange.first(), b"\0alice\0wonder");
        assert_eq!(exchange.challenge(b"").unwrap(), None);
        assert!(exchange.challenge(b"").is_err());
    }

    struct NoTokens;

    impl tokens::TokenSource for NoTokens {
        fn token(&self) -> Result<Token, String> {
            Err("none\ntoday".into())
        }

        fn elsewhere(&self, _: Box<dyn FnOnce() + Send>) -> bool {
            false
        }
    }

    fn bearer() -> Credentials {
        Credentials::OAuthBearer(Tokens::new(Box::new(NoTokens)))
    }

    #[test]
    fn a_token_that_is_missing_is_said_in_one_line() {
        let error = bearer().begin().unwrap_err();
        assert!(error.contains("sasl.oauthbearer.token"), "{error}");
        assert!(error.ends_with("none today"), "{error}");
        assert!(bearer().try_begin().unwrap().is_none());
    }

    #[test]
    fn a_name_cannot_end_before_its_end() {
        let credentials = Credentials::Plain {
            username: "alice\0bob".into(),
            password: Secret::new("wonder"),
        };
        assert!(credentials.begin().unwrap_err().contains("NUL"));
    }

    #[test]
    fn a_token_that_is_refused_is_answered_and_named() {
        let token = Token {
            value: Secret::new("T"),
            lifetime: None,
            extensions: vec![("a".into(), "b".into())],
        };
        let mut exchange = bearer().bearer(&token);
        assert_eq!(exchange.first(), b"n,,\x01auth=Bearer T\x01a=b\x01\x01");
        let refusal = br#"{"status":"invalid_token"}"#;
        assert_eq!(exchange.challenge(refusal).unwrap(), Some(vec![1]));
        let error = exchange.challenge(b"").unwrap_err();
        assert!(error.contains("invalid_token"), "{error}");
    }

    #[test]
    fn a_server_that_ends_scram_without_its_signature_is_refused() {
        let credentials = Credentials::Scram {
            hash: Hash::Sha512,
            username: "alice".into(),
            password: Secret::new("wonder"),
        };
        let mut exchange = credentials.begin().unwrap();
        assert!(exchange.challenge(b"").is_err());
        let nonces = [nonce().unwrap(), nonce().unwrap()];
        assert!(nonces[0] != nonces[1] && !nonces[0].contains(','));
    }
}
